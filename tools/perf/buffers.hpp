// A rank's buffers, between guard bytes.
#pragma once

#include <colls/communicator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>

namespace perf {

/// Memory for a buffer of up to `capacity` bytes, which begins at a cache line or up to `most_shift` bytes past it,
/// with guard bytes before it and behind it.
class guarded {
public:
    static constexpr std::size_t guard = 256, alignment = 128;

    guarded(colls::communicator& comm, std::size_t capacity, std::size_t most_shift, bool registered)
        : size_(guard + most_shift + capacity + guard) {
        if (registered)
            registered_.emplace(comm.allocate<std::byte>(size_));
        else
            ordinary_.reset(static_cast<std::byte*>(::operator new(size_, std::align_val_t{alignment})));
        std::memset(memory(), 0, size_);  // pages are there before anything is timed
    }

    /// The buffer begins `shift` bytes past a cache line.
    void move_to(std::size_t shift) { begin_ = guard + shift; }
    std::byte* data() { return memory() + begin_; }
    /// A buffer of `bytes` bytes with the guards around it.
    std::span<std::byte> around(std::size_t bytes) { return {memory(), begin_ + bytes + guard}; }
    std::size_t begin() const { return begin_; }

private:
    struct release {
        void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{alignment}); }
    };
    std::byte* memory() { return registered_ ? registered_->data() : ordinary_.get(); }

    std::size_t begin_ = guard, size_;
    std::optional<colls::memory<std::byte>> registered_;
    std::unique_ptr<std::byte, release> ordinary_;
};

/// The two buffers of one operation. Out of place the first is the input and the second the output; in place both lie
/// in the second.
struct buffer_pair {
    guarded first, second;
};

}  // namespace perf
