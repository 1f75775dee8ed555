// Buffers of blocks with lengths and displacements, one for each rank.
#pragma once

#include "buffers.hpp"
#include "numbers.hpp"

#include <cstddef>
#include <vector>

namespace colls_mpi {

/// Which of the program's blocks a list has.
class block_order {
public:
    block_order(int size) : size_(size) {}  // all
    block_order(const std::vector<int>& order) : size_(static_cast<int>(order.size())), order_(order.data()) {}
    int size() const { return size_; }
    int operator[](int i) const { return order_ == nullptr ? i : order_[i]; }

private:
    const int size_;
    const int* const order_ = nullptr;
};

/// Where the blocks of a call lie.
class block_list {
public:
    block_list() = default;
    /// Blocks of one length, from one to the next of `stride` elements.
    block_list(const void* base, MPI_Count count, MPI_Count stride, MPI_Datatype type, const block_order& order);
    /// Displacements in elements, as of MPI_Gatherv.
    block_list(const void* base, const numbers& counts, const numbers& displacements, MPI_Datatype type,
        const block_order& order);
    /// Displacements in bytes, a type for each block, as of MPI_Alltoallw.
    block_list(const void* base, const numbers& counts, const numbers& displacements, const MPI_Datatype types[],
        const block_order& order);

    /// The bytes of data in each block.
    const std::vector<std::size_t>& bytes() const { return bytes_; }
    std::size_t total() const { return total_; }
    /// The bytes of data in the blocks before.
    std::size_t bytes_before(int i) const;
    /// All data lies in a row, from `data` on.
    bool in_row() const { return in_row_; }
    std::byte* data() const { return data_; }
    /// Copies blocks that do not lie in a row to memory in which they do, and back.
    void pack_all(std::byte* to) const;
    void unpack_all(const std::byte* from) const;
    /// The program may free the datatypes before `unpack_all`.
    void keep_types();

private:
    struct block {
        std::byte* data;
        std::size_t count;
        MPI_Datatype type;
        layout lies;
    };
    template <class BlockAt>
    void fill(const block_order& order, const BlockAt& block_at);

    std::vector<block> blocks_;  // none where all data lies in a row
    std::vector<kept_type> kept_;
    std::vector<std::size_t> bytes_;
    std::size_t total_ = 0;
    bool in_row_ = true;
    std::byte* data_ = nullptr;
};

/// Blocks that are only read.
class input_blocks {
public:
    input_blocks() = default;
    explicit input_blocks(const block_list& from);
    const std::byte* data() const { return data_; }

private:
    scratch packed_;
    const std::byte* data_ = nullptr;
};

/// Blocks that are written; the list must outlive them.
class output_blocks {
public:
    output_blocks() = default;
    explicit output_blocks(const block_list& to);
    std::byte* data() const { return data_; }
    /// Copies the result to where it belongs.
    void deliver() const;

private:
    const block_list* to_ = nullptr;
    scratch packed_;
    std::byte* data_ = nullptr;
};

}  // namespace colls_mpi
