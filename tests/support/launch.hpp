// What the ranks of a test are: threads, or, with COLLS_TEST_TRANSPORT set, processes over that transport.
#pragma once

#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string_view>

namespace support {

inline const std::string_view transport = [] {
    const char* named = std::getenv("COLLS_TEST_TRANSPORT");
    if (named) setenv("COLLS_TRANSPORT", named, 1);
    return std::string_view(named ? named : "threads");
}();
inline const bool by_processes = transport != "threads";

/// Ranks of the largest group that is worth its time.
inline const int most_ranks = by_processes ? 16 : 129;

/// Runs f on n ranks.
template <class F>
void launch(int n, F&& f) {
    if (by_processes)
        colls::processes::run(n, f);
    else
        colls::threads::run(n, f);
}

/// Memory that a test's ranks and the test itself see: processes are forked, and write into pages that stay shared. It is
/// given back as a whole.
class shared_pool {
public:
    static shared_pool& of_test() {
        static shared_pool pool;
        return pool;
    }
    std::byte* take(std::size_t bytes) {
        bytes = (bytes + 63) / 64 * 64;
        if (used_ + bytes > size) throw std::runtime_error("the tests' shared memory is used up");
        ++users_;
        used_ += bytes;
        return base_ + used_ - bytes;
    }
    void give() {
        if (--users_ == 0) used_ = 0;
    }

private:
    static constexpr std::size_t size = std::size_t{8} << 30;   // of addresses; pages come when used
    shared_pool()
        : base_(static_cast<std::byte*>(
              mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
        if (base_ == MAP_FAILED) throw std::bad_alloc();
    }
    std::byte* base_;
    std::size_t used_ = 0, users_ = 0;
};

}  // namespace support
