// Counts allocations, also those of operator new, by functions in place of the C library's: for one unit of a program.
// Not under the sanitizers, which have allocators of their own.
#pragma once

#include "support/random.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>

namespace support {

constinit inline thread_local bool counting = false;  ///< does this thread count?
constinit inline std::atomic<int> allocations{0};     ///< of all threads

inline void count_allocation() {
    if (counting) allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace support

#if defined(__GLIBC__) && !defined(TESTS_SANITIZED)
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) {
    support::count_allocation();
    return __libc_malloc(size);
}
void* realloc(void* p, std::size_t size) {
    support::count_allocation();
    return __libc_realloc(p, size);
}
void* aligned_alloc(std::size_t align, std::size_t size) {
    support::count_allocation();
    return __libc_memalign(align, size);
}
}
#endif
