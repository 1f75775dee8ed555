// The nonblocking calls of MPI's that a transport has under way, and the memory that they use.
// IWYU pragma: private, include <colls/transports/mpi.hpp>
#pragma once

#include <colls/detail/support/list.hpp>
#include <colls/detail/transport/vocabulary.hpp>
#include <colls/mpi/detail/mpi_header.hpp>
#include <colls/schedule.hpp>

#include <algorithm>
#include <new>

namespace colls::inline v1::detail {

/// Memory blocks of one size, used again.
class block_pool {
public:
    explicit block_pool(std::size_t block_bytes) : block_bytes_(block_bytes) {}
    block_pool(const block_pool&) = delete;
    block_pool& operator=(const block_pool&) = delete;
    ~block_pool() {
        for (std::byte* const block : free_) operator delete(block);
    }
    std::byte* take() {
        if (free_.empty()) return static_cast<std::byte*>(operator new(block_bytes_));
        std::byte* const block = free_.back();
        free_.pop_back();
        return block;
    }
    void give_back(std::byte* block) { free_.push_back(block); }

private:
    std::size_t block_bytes_;
    list<std::byte*> free_;
};

/// A request that is under way.
struct mpi_operation {
    enum kind : std::uint8_t {
        send,             ///< a header and what is packed behind it, from a block; or a part of a payload, in place
        receive_header,   ///< into a block
        receive_payload,  ///< a part of a payload, in place
        discard_payload,  ///< likewise, into memory of its own
        send_control,
        receive_control
    } what;
    int peer;
    std::uint64_t message;  ///< its number
    std::byte* memory;      ///< to be given back when the request is complete; null: a caller's

    bool uses_callers_memory() const { return what == receive_payload || (what == send && memory == nullptr); }
};

class mpi_requests {
public:
    struct completion {
        mpi_operation operation;
        MPI_Status status;
        int error;  ///< MPI_SUCCESS, or an error code
    };

    void add(const MPI_Request& r, const mpi_operation& o) {
        requests_.push_back(r);
        operations_.push_back(o);
    }
    bool empty() const { return requests_.size() == 0; }
    auto begin() const { return operations_.begin(); }
    auto end() const { return operations_.end(); }

    /// Asks MPI to cancel the requests for which `which(operation)` holds. They complete all the same.
    template <class F>
    void cancel(F which) {
        for (std::size_t i = 0; i < operations_.size(); ++i)
            if (which(operations_[i])) PMPI_Cancel(&requests_[i]);
    }
    /// Takes the completed requests out. They are valid until the next call, also while requests are added.
    const list<completion>& test() {
        const std::size_t n = requests_.size();
        indices_.resize(n);
        statuses_.resize(n);
        int count = 0;
        const int code =
            PMPI_Testsome(static_cast<int>(n), requests_.data(), &count, indices_.data(), statuses_.data());
        completed_.clear();
        if (count == MPI_UNDEFINED || count <= 0) return completed_;
        for (int k = 0; k < count; ++k) {
            const int i = indices_[k];
            completed_.push_back(
                {operations_[i], statuses_[k], code == MPI_ERR_IN_STATUS ? statuses_[k].MPI_ERROR : code});
            operations_[i].peer = none;
        }
        std::size_t kept = 0;
        for (std::size_t i = 0; i < n; ++i) {
            if (operations_[i].peer == none) continue;
            requests_[kept] = requests_[i];
            operations_[kept++] = operations_[i];
        }
        requests_.resize(kept);
        operations_.resize(kept);
        return completed_;
    }

private:
    list<MPI_Request> requests_;
    list<mpi_operation> operations_;  // of each request
    list<completion> completed_;
    list<int> indices_;
    list<MPI_Status> statuses_;
};

/// Divides a payload into parts that MPI can count, alike on both sides wherever their pieces lie.
class mpi_payload {
public:
    static constexpr std::size_t part_bytes = 16 << 20;  ///< of a part, at most: MPI counts in int

    /// Calls f(address, count, datatype) for each part: in one piece, or in several, described by a datatype.
    template <class F>
    void for_each_part(const piece* pieces, int count, F f) {
        std::size_t filled = 0;
        std::byte* only = nullptr;
        const auto flush = [&] {
            if (filled == 0) return;
            if (places_.size() == 1) {
                f(static_cast<void*>(only), lengths_[0], MPI_BYTE);
            } else {
                MPI_Datatype scattered;
                PMPI_Type_create_hindexed(
                    static_cast<int>(places_.size()), lengths_.data(), places_.data(), MPI_BYTE, &scattered);
                PMPI_Type_commit(&scattered);
                f(MPI_BOTTOM, 1, scattered);
                PMPI_Type_free(&scattered);
            }
            places_.clear();
            lengths_.clear();
            filled = 0;
        };
        for (int i = 0; i < count; ++i) {
            std::byte* at = pieces[i].data;
            for (std::size_t left = pieces[i].bytes; left > 0;) {
                const std::size_t n = std::min(left, part_bytes - filled);
                MPI_Aint place;
                PMPI_Get_address(at, &place);
                only = at;
                places_.push_back(place);
                lengths_.push_back(static_cast<int>(n));
                at += n;
                left -= n;
                filled += n;
                if (filled == part_bytes) flush();
            }
        }
        flush();
    }

private:
    list<int> lengths_;
    list<MPI_Aint> places_;
};

}  // namespace colls::inline v1::detail
