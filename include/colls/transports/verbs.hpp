// Ranks as processes over RDMA, InfiniBand or RoCE v2: CMake links colls::verbs. A program that includes this makes its
// groups as without it, by colls::world() or processes::run, and the environment says when they go this way:
//   COLLS_TRANSPORT=verbs       all messages by RDMA
//   COLLS_TRANSPORT=shm+verbs   shared memory within hosts, RDMA between
// COLLS_VERBS_DEVICE, COLLS_VERBS_PORT and COLLS_VERBS_GID: net/verbs_device.hpp.
//
// News, and who has died, go over TCP, which must connect the same hosts. What is larger than 8 KB lands straight in
// the receiver's buffer, and is read straight from the sender's, where both are known to the device: memory from
// communicator::allocate is, and what `registered` has made known. Other memory is copied on its way.
#pragma once

#include <colls/detail/transport/hosts/group.hpp>
#include <colls/detail/transport/verbs/device.hpp>
#include <colls/detail/transport/verbs/verbs_transport.hpp>
#include <colls/transports/shm.hpp>

#include <span>
#include <type_traits>

namespace colls::inline v1::verbs {

namespace detail {

using colls::detail::rdma::memory_book;
using colls::detail::rdma::region;
using colls::detail::rdma::verbs_device;

/// The device of this process, opened when it is first needed, and what is registered with it. Throws colls::error.
struct opened {
    explicit opened(const colls::detail::address& own)
        : device(std::make_shared<verbs_device>(own)), book(std::make_shared<memory_book>(device)) {}
    const std::shared_ptr<verbs_device> device;
    const std::shared_ptr<memory_book> book;

    static std::shared_ptr<opened> of_process(const colls::detail::address& own = {}) {
        static std::mutex mutex;
        static std::weak_ptr<opened> latest;
        static pid_t process = 0;
        const std::lock_guard lock(mutex);
        std::shared_ptr<opened> it =
            process == getpid() ? latest.lock() : nullptr;  // a forked process has one of its own
        if (it) return it;
        it = std::make_shared<opened>(own);
        latest = it;
        process = getpid();
        return it;
    }
};

class way final : public colls::detail::hosts::inter_node_transport {
public:
    explicit way(const colls::detail::address& own) : on_(opened::of_process(own)) {}
    std::unique_ptr<colls::detail::message_transport> over(
        std::unique_ptr<colls::detail::message_transport> control, int rank, int size) override {
        return std::make_unique<colls::detail::verbs_transport>(std::move(control), on_->book, rank, size);
    }
    std::byte* take(std::size_t bytes) override { return on_->book->take(bytes); }
    void give(std::byte* at, std::size_t bytes) noexcept override { on_->book->give(at, bytes); }

private:
    const std::shared_ptr<opened> on_;
};

inline const bool hooked = [] {
    colls::detail::hosts::open_verbs =
        [](int rank, const colls::detail::address& own) -> std::shared_ptr<colls::detail::hosts::inter_node_transport> {
        try {
            return std::make_shared<way>(own);
        } catch (const error& e) {
            throw error(e.code(),
                (colls::detail::message() << "colls: rank " << rank << ": " << std::string_view(e.what()).substr(7))
                    .text(),
                rank);
        }
    };
    return true;
}();

}  // namespace detail

/// Memory of the user's own that the device knows as long as this lives. It must stay mapped for so long, and may be
/// used by no call any more when this ends.
class registered {
public:
    /// Throws colls::error (unsupported), which says what to do: no device, too little memory that may be held in
    /// place, memory of a kind that cannot be registered. Cost: a system call, which holds all the pages in place.
    template <class T>
    explicit registered(std::span<T> memory) : on_(detail::opened::of_process()) {
        static_assert(!std::is_const_v<T>, "colls: memory that is registered must be writable");
        if (!memory.empty()) region_ = on_->book->add(reinterpret_cast<std::byte*>(memory.data()), memory.size_bytes());
    }
    registered(registered&& other) noexcept : on_(std::move(other.on_)), region_(std::exchange(other.region_, {})) {}
    registered& operator=(registered&& other) noexcept {
        std::swap(on_, other.on_);
        std::swap(region_, other.region_);
        return *this;
    }
    ~registered() {
        if (region_.bytes > 0) on_->book->drop(region_);
    }

private:
    friend registered register_dmabuf(int, std::uint64_t, void*, std::size_t);
    registered(std::shared_ptr<detail::opened> on, const detail::region& r) : on_(std::move(on)), region_(r) {}
    std::shared_ptr<detail::opened> on_;
    detail::region region_;
};

/// Memory of a GPU, for RDMA straight from and to it: `bytes` from `offset` on of the dma-buf `file` (CUDA:
/// cuMemGetHandleForAddressRange), whose addresses there begin with `at`. Collectives that only copy may be given such
/// memory on all ranks, with blocks above 8 KB in up to sixteen pieces; others break the group with an error that says
/// so. Untested on hardware. Throws colls::error (unsupported).
inline registered register_dmabuf(int file, std::uint64_t offset, void* at, std::size_t bytes) {
    auto on = detail::opened::of_process();
    const detail::region r = on->device->add_dmabuf(file, offset, static_cast<std::byte*>(at), bytes);
    on->book->note(r);
    return {std::move(on), r};
}

}  // namespace colls::inline v1::verbs
