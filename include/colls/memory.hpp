// class memory: buffers that the transport can move fastest.
#pragma once

#include <colls/detail/call/perform.hpp>
#include <colls/detail/support/element.hpp>

#include <cstddef>
#include <type_traits>

namespace colls::inline v1 {

/// A buffer of `size()` elements from communicator::allocate, aligned to 128 bytes and not initialised. Where ranks
/// share memory or use RDMA, all of them can reach it, so that calls move its data without a copy in between.
template <class T>
class memory {
    static_assert(detail::copies_as_bytes<T>(), "colls: elements must be trivially copyable");

public:
    /// As communicator::allocate, on whose rank context this is called.
    memory(detail::rank_context& from, std::size_t count) : size_(count) {
        std::byte* at = nullptr;
        from_ = detail::allocate(from, count, sizeof(T), at);
        data_ = reinterpret_cast<T*>(at);
    }
    memory(memory&& other) noexcept : from_(other.from_), data_(other.data_), size_(other.size_) {
        other.from_ = nullptr;
    }
    /// Swaps the two.
    memory& operator=(memory&& other) noexcept {
        detail::allocation* const from = from_;
        T* const data = data_;
        const std::size_t size = size_;
        from_ = other.from_, data_ = other.data_, size_ = other.size_;
        other.from_ = from, other.data_ = data, other.size_ = size;
        return *this;
    }
    ~memory() {
        if (from_) detail::deallocate(from_);
    }

    T* data() { return data_; }
    const T* data() const { return data_; }
    std::size_t size() const { return size_; }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }
    T* begin() { return data_; }
    T* end() { return data_ + size_; }
    const T* begin() const { return data_; }
    const T* end() const { return data_ + size_; }

private:
    detail::allocation* from_ = nullptr;  // null where it was moved from
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace colls::inline v1
