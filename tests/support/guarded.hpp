// Buffers between guard bytes, which show writes out of bounds.
#pragma once

#include "launch.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>

namespace support {

/// `size` bytes with at least `guard` patterned bytes before and after them. The first byte sits `shift` bytes past a
/// 64-byte boundary (shift: a multiple of the element's alignment), so that buffers need not begin on a cache line.
class guarded {
public:
    static constexpr std::size_t guard = 128, line = 64;

    guarded() = default;
    explicit guarded(std::size_t size, std::size_t shift = 0) : size_(size), shift_(shift % line) {
        whole_ = guard + line + size + guard;
        memory_.reset(by_processes ? shared_pool::of_test().take(whole_)
                                   : static_cast<std::byte*>(::operator new(whole_, std::align_val_t{line})));
        for (std::size_t i = 0; i < begin(); ++i) memory_[i] = pattern(i);
        for (std::size_t i = begin() + size_; i < whole_; ++i) memory_[i] = pattern(i);
        std::memset(memory_.get() + begin(), 0xcd, size_);
    }

    std::byte* data() { return memory_.get() + begin(); }
    const std::byte* data() const { return memory_.get() + begin(); }
    std::size_t size() const { return size_; }
    /// The buffer with its guards.
    std::span<std::byte> whole() { return {memory_.get(), whole_}; }
    template <class T>
    std::span<T> as() {
        return {reinterpret_cast<T*>(data()), size_ / sizeof(T)};
    }

    /// Empty, or the place of the first guard byte that has changed.
    std::string broken() const {
        for (std::size_t i = 0; i < whole_; ++i) {
            if (i == begin()) i += size_;
            if (i < whole_ && memory_[i] != pattern(i))
                return i < begin() ? std::to_string(begin() - i) + " bytes before the buffer"
                                   : std::to_string(i - begin() - size_) + " bytes past the end of the buffer";
        }
        return {};
    }

private:
    struct release {
        void operator()(std::byte* p) const {
            if (by_processes)
                shared_pool::of_test().give();
            else
                ::operator delete(p, std::align_val_t{line});
        }
    };
    static std::byte pattern(std::size_t i) { return static_cast<std::byte>((i * 37 + 11) ^ (i >> 8)); }
    std::size_t begin() const { return guard + shift_; }

    std::size_t size_ = 0, shift_ = 0, whole_ = 0;
    std::unique_ptr<std::byte[], release> memory_;
};

}  // namespace support
