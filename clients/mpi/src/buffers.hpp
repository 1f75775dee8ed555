// The program's buffers as colls takes them: in place where their data lies in a row, else packed into scratch memory.
#pragma once

#include "types.hpp"

#include <colls/mpi/detail/mpi_header.hpp>

#include <cstddef>
#include <memory>

namespace colls_mpi {

/// Memory that is not initialised.
class scratch {
public:
    scratch() = default;
    explicit scratch(std::size_t bytes) : data_(std::make_unique_for_overwrite<std::byte[]>(bytes)) {}
    std::byte* data() const { return data_.get(); }

private:
    std::unique_ptr<std::byte[]> data_;
};

/// The address `elements` elements of a type behind another one. It may be an absolute one (MPI_BOTTOM is null).
inline std::byte* displaced(const void* from, MPI_Aint bytes) {
    return reinterpret_cast<std::byte*>(reinterpret_cast<MPI_Aint>(from) + bytes);
}

/// MPICH refuses a call that reads where it writes without MPI_IN_PLACE. Open MPI takes it.
bool mpi_refuses_aliases();
inline bool is_refused_alias(const void* sent, const void* received) {
    return sent == received && mpi_refuses_aliases() && sent != MPI_BOTTOM && sent != MPI_IN_PLACE;
}

/// Copies `count` elements to packed memory and back, of any number of bytes. Throw colls::error where MPI fails.
void pack(const void* from, std::size_t count, MPI_Datatype type, const layout& l, std::byte* to);
void unpack(const std::byte* from, void* to, std::size_t count, MPI_Datatype type, const layout& l);

/// `count` elements of a buffer that is only read.
class input {
public:
    input() = default;
    input(const void* data, std::size_t count, MPI_Datatype type) : input(data, count, type, layout_of(type)) {}
    input(const void* data, std::size_t count, MPI_Datatype type, const layout& l);
    const std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

private:
    scratch packed_;
    const std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

/// `count` elements of a buffer that is written. Where it is packed, its bytes are not set unless `with_contents`.
class output {
public:
    output() = default;
    output(void* data, std::size_t count, MPI_Datatype type, bool with_contents = false)
        : output(data, count, type, layout_of(type), with_contents) {}
    output(void* data, std::size_t count, MPI_Datatype type, const layout& l, bool with_contents = false);
    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    /// The program may free the datatype before `deliver`.
    void keep_type();
    /// Copies the result to where it belongs.
    void deliver() const;

private:
    scratch packed_;
    std::byte* data_ = nullptr;
    void* target_ = nullptr;
    std::size_t count_ = 0, bytes_ = 0;
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
    kept_type kept_;
    layout layout_;
};

}  // namespace colls_mpi
