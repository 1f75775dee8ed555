// Device memory that the other ranks of a communicator reach directly: of the group, and buffers of the user.
#pragma once

#include <colls/cuda/detail/group/device_arena.hpp>
#include <colls/cuda/detail/group/shared_buffers.hpp>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace colls::inline v1::cuda {

/// A buffer of size() elements in device memory, uninitialised, from communicator::allocate; freed by its destructor. A
/// call takes it as a buffer. It must not outlive its communicator, and no call that uses it may still be running when
/// it is destroyed: the next allocate may return the same memory.
template <class T>
class memory {
    static_assert(std::is_trivially_copyable_v<T>, "colls: elements must be trivially copyable");

public:
    memory(memory&& other) noexcept
        : arena_(std::move(other.arena_)),
          data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)) {}
    memory& operator=(memory&&) = delete;
    ~memory() {
        if (data_ != nullptr) arena_->give(reinterpret_cast<std::byte*>(data_), size_ * sizeof(T));
    }

    T* data() const { return data_; }
    std::size_t size() const { return size_; }

    /// For the library: size elements at `at`, which return to `arena`.
    memory(std::shared_ptr<detail::device_arena> arena, std::byte* at, std::size_t size)
        : arena_(std::move(arena)), data_(reinterpret_cast<T*>(at)), size_(size) {}

private:
    std::shared_ptr<detail::device_arena> arena_;
    T* data_;
    std::size_t size_;
};

/// A buffer of the user that the other ranks reach directly, from communicator::share, until its destructor. That one
/// is collective: it waits until this device is idle, and for the other ranks' destructors, as long as the host group
/// waits for a peer. All ranks end their buffers in the same order, before their communicators, and free the memory
/// later. Where a rank does not come the group is broken, as by communicator::abort. Graphs that were captured with the
/// buffer must not be replayed afterwards.
template <class T>
class shared_buffer {
public:
    shared_buffer(shared_buffer&& other) noexcept
        : range_(std::move(other.range_)),
          data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)) {}
    shared_buffer& operator=(shared_buffer&&) = delete;

    T* data() const { return data_; }
    std::size_t size() const { return size_; }

    /// For the library.
    shared_buffer(std::unique_ptr<detail::shared_range> range, T* data, std::size_t size)
        : range_(std::move(range)), data_(data), size_(size) {}

private:
    std::unique_ptr<detail::shared_range> range_;  // null within one process
    T* data_;
    std::size_t size_;
};

}  // namespace colls::inline v1::cuda
