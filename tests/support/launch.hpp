// Runs a function on n ranks. They are threads or, with COLLS_TEST_TRANSPORT set, processes: over shm, tcp, verbs or
// ofi, or routed, routed-verbs or routed-ofi (a world in which each two ranks have a host name of their own: shared
// memory within a host, TCP, verbs or libfabric between hosts).
#pragma once

#include "ports.hpp"

#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>

#include <sys/mman.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace support {

inline const std::string_view tested_transport = [] {
    const char* named = std::getenv("COLLS_TEST_TRANSPORT");
    const std::string_view name = named ? named : "threads";
    const bool routed = name.starts_with("routed");
    const std::string between(routed ? name.substr(6) : "");  // "-verbs"
    if (name != "threads")
        setenv("COLLS_TRANSPORT", !routed ? named : between.empty() ? "shm" : ("shm+" + between.substr(1)).c_str(), 1);
    return name;
}();
inline const bool by_processes = tested_transport != "threads";
/// Some ranks pass messages to each other.
inline const bool passes_messages = by_processes && tested_transport != "shm";

/// Ranks of the largest group. COLLS_TEST_RANKS sets fewer, where tests run slowly.
inline const int most_ranks = [] {
    const char* named = std::getenv("COLLS_TEST_RANKS");
    return named ? std::atoi(named) : by_processes ? 16 : 129;
}();

/// Runs f on n processes of a world, launched by environment variables, of which each `per_host` have a host name of
/// their own. before(rank) is called in each process first.
template <class F, class Before = void (*)(int)>
void launch_world(int n, int per_host, F&& f, Before&& before = [](int) {}) {
    const claimed_ports port;
    std::fflush(nullptr);
    std::vector<pid_t> children;
    for (int r = 0; r < n; ++r) {
        const pid_t child = fork();
        if (child < 0) throw std::runtime_error("cannot fork");
        if (child > 0) {
            children.push_back(child);
            continue;
        }
        const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
        set("COLLS_RANK", std::to_string(r));
        set("COLLS_SIZE", std::to_string(n));
        set("COLLS_MASTER_ADDR", "127.0.0.1");
        set("COLLS_MASTER_PORT", std::to_string(port.first()));
        set("COLLS_HOST", "host " + std::to_string(r / per_host));
        before(r);
        int status = 1;
        try {
            colls::communicator comm = colls::world();
            f(comm);
            status = 0;
        } catch (const std::exception& e) {
            std::fprintf(stderr, "rank %d: %s\n", r, e.what());
        }
        std::fflush(nullptr);
        _exit(status);
    }
    int failed = 0;
    for (const pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        failed += status != 0;
    }
    if (failed > 0) throw std::runtime_error(std::to_string(failed) + " ranks of a world failed");
}

/// Runs f on n ranks.
template <class F>
void launch(int n, F&& f) {
    if (tested_transport.starts_with("routed"))
        launch_world(n, 2, f);
    else if (by_processes)
        colls::processes::run(n, f);
    else
        colls::threads::run(n, f);
}

/// Memory that a test shares with the processes that it forks. It becomes free when all of it has been given back.
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
    static constexpr std::size_t size = std::size_t{8}
                                        << 30;  // of address space; the kernel makes pages when they are used
    shared_pool()
        : base_(static_cast<std::byte*>(
              mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
        if (base_ == MAP_FAILED) throw std::bad_alloc();
    }
    std::byte* base_;
    std::size_t used_ = 0, users_ = 0;
};

}  // namespace support
