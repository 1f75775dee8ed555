// Groups of processes whose messages go by RDMA: InfiniBand or RoCE v2, by libibverbs. CMake links colls::verbs.
//
// A program that includes this header makes its groups as without it, by colls::world() or processes::run. Between
// hosts it takes RDMA where all ranks have a device and a message passes from each host to the next one, and TCP
// otherwise. The environment chooses the transport and the device:
//   COLLS_TRANSPORT=verbs       all messages by RDMA
//   COLLS_TRANSPORT=shm+verbs   shared memory within hosts, RDMA between them, or an error
//   COLLS_TRANSPORT=shm         shared memory within hosts, TCP between them
//   COLLS_VERBS_DEVICE          names of devices, as ibv_devices prints them, or patterns:
//   mlx5_0,mlx5_[3-6],^mlx5_bond*
//                               (^: none of these)
//   COLLS_VERBS_PORT            number of its port, from 1
//   COLLS_VERBS_GID             index in the port's table of addresses
// Without the last three: the first active port that has the address by which other ranks reach this one over TCP, else
// the first active one with an IPv4 address, then IPv6. Connections for a GPU (cuda::communicator) take the device that
// is nearest to it by /sys; GPUs that are equally near several spread over them. A rank uses up to four devices at
// once, over which it cuts messages of 128 KB or more, where more are near than such GPUs, and without a GPU where
// COLLS_VERBS_DEVICE names several (not tried on hardware). A device that cannot be used makes world() and run throw
// colls::error (unsupported), which names what was found and what to do, where COLLS_TRANSPORT asks for it; a malformed
// number, one (invalid_argument).
//
// Control messages, and the detection of dead processes, go over TCP, which must connect the same hosts. Messages above
// 8 KB are read by the device from the sender's buffer and written into the receiver's where both are registered with
// it: memory from communicator::allocate is, and what a `registered` names. Other messages are copied once on each
// side.
#pragma once

#include <colls/transports/shm.hpp>
#include <colls/verbs/detail/between_hosts.hpp>

#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace colls::inline v1::verbs {

/// Memory of the caller's that is registered with this process's RDMA device as long as this object lives. A message
/// above 8 KB that is sent from it is read by the device directly, and one received into it is written there directly.
/// Memory from communicator::allocate is registered already.
///
/// The memory must stay mapped while the object lives, and no call may be using it when the object ends. The object may
/// outlive the groups whose calls use the memory, or be made before them. Calls find registered memory by its address,
/// so nothing else is to be passed. Ranges may overlap, and be registered from any thread.
class registered {
public:
    /// Registers `memory`, which must be writable, whether it is sent from or received into; it may be empty.
    /// Throws colls::error (unsupported) that says what to do: there is no device that can be used; the process may not
    /// hold so much memory in place (RLIMIT_MEMLOCK); the memory is not mapped, not writable, or of a kind that cannot
    /// be held in place. Throws std::bad_alloc. Cost: a system call that holds all pages of the memory in place, so
    /// time in proportion to its length.
    template <class T>
    explicit registered(std::span<T> memory) : device_(detail::process_device::get()) {
        static_assert(!std::is_const_v<T>, "colls: memory that is registered must be writable");
        if (!memory.empty())
            region_ = device_->registry->add(reinterpret_cast<std::byte*>(memory.data()), memory.size_bytes());
    }
    /// `other` registers nothing afterwards.
    registered(registered&& other) noexcept
        : device_(std::move(other.device_)), region_(std::exchange(other.region_, {})) {}
    /// Exchanges what the two objects register.
    registered& operator=(registered&& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(region_, other.region_);
        return *this;
    }
    /// Ends the registration; not in a process that was forked from this one. Cost: a system call.
    ~registered() {
        if (device_ && device_->process != getpid())
            new registered(std::move(*this));  // what is registered is the parent's: nothing may be destroyed
        else if (region_.bytes > 0)
            device_->registry->drop(region_);
    }

private:
    friend registered register_dmabuf(int, std::uint64_t, void*, std::size_t);
    registered(std::shared_ptr<detail::process_device> device, const detail::region& r)
        : device_(std::move(device)), region_(r) {}
    std::shared_ptr<detail::process_device> device_;
    detail::region region_;
};

/// Registers memory of a GPU, so that the RDMA device reads and writes it directly. Not tested on hardware.
///
/// `file` is a dma-buf (CUDA: cuMemGetHandleForAddressRange), which the caller may close afterwards; `offset` and
/// `bytes` say which part of it; `at` is the address of that part's first byte on the GPU, by which calls find it.
/// Returns the registration, which must end before the memory is freed.
///
/// Collectives that only copy may then be given such memory, on all ranks, where each message is larger than 8 KB and
/// in at most sixteen pieces of 512 bytes or more. Other messages would have to be copied by the processor: they break
/// the group, with an error that says so. Throws colls::error (unsupported): no device can be used, or kernel, driver
/// or device do not register dma-bufs. Throws std::bad_alloc. Cost: a system call.
inline registered register_dmabuf(int file, std::uint64_t offset, void* at, std::size_t bytes) {
    auto device = detail::process_device::get();
    const detail::region r = device->device->at_each([&](auto& d) {
        return static_cast<detail::verbs_device&>(d).add_dmabuf(file, offset, static_cast<std::byte*>(at), bytes);
    });
    device->registry->insert(r);
    return {std::move(device), r};
}

}  // namespace colls::inline v1::verbs
