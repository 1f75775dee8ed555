// Zeroed memory that threads and forked processes share.
#pragma once

#include <sys/mman.h>
#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

namespace support {

class shared_block {
public:
    explicit shared_block(std::size_t bytes) : bytes_(bytes) {
        void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) throw std::bad_alloc();
        at_ = static_cast<std::byte*>(p);
    }
    shared_block(const shared_block&) = delete;
    shared_block& operator=(const shared_block&) = delete;
    ~shared_block() { munmap(at_, bytes_); }

    std::byte* at() const { return at_; }
    /// How many of its pages the kernel has made.
    std::size_t pages_used() const {
        std::vector<unsigned char> in((bytes_ + 4095) / 4096);
        if (mincore(at_, bytes_, in.data()) != 0) return in.size();
        return static_cast<std::size_t>(
            std::count_if(in.begin(), in.end(), [](unsigned char c) { return (c & 1) != 0; }));
    }

private:
    std::size_t bytes_;
    std::byte* at_ = nullptr;
};

}  // namespace support
