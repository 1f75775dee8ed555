// A lower bound for an 8-byte all_reduce of two ranks over RDMA: two processes write 72 bytes to each other at the same
// time, by the library's interface to the device and nothing else.
#include <colls/verbs/detail/device.hpp>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <sys/mman.h>
#include <sys/wait.h>

#include <sched.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <vector>

namespace {

namespace rdma = colls::detail::rdma;

/// Memory that the two processes share, to connect their queues.
struct board {
    std::atomic<int> named[2], connected[2], done[2];
    rdma::queue_name name[2];
    std::uint64_t base[2];
    std::uint32_t key[2];
};

void check(const char* wrong) {
    if (wrong) throw std::runtime_error(wrong);
}
/// Waits until `is()` returns true; throws after 20 s.
template <class Is>
void await(Is is) {
    const auto begin = std::chrono::steady_clock::now();
    for (int turn = 1; !is(); ++turn)
        if (turn % 4096 == 0 && std::chrono::steady_clock::now() - begin > std::chrono::seconds(20))
            throw std::runtime_error("the other process did not come within 20 s");
}
void meet(std::atomic<int> (&flags)[2], int me) {
    flags[me].store(1, std::memory_order_release);
    await([&] { return flags[1 - me].load(std::memory_order_acquire) != 0 || sched_yield() != 0; });
}

/// Median microseconds of an exchange.
double exchange(board& b, int me, int times) {
    constexpr std::uint32_t bytes = 72, page = 4096, receives = 128, batch = 16;
    rdma::verbs_device device{colls::detail::address{}};
    auto* const memory = static_cast<std::byte*>(std::aligned_alloc(page, 2 * page));
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, 2 * page);
    const rdma::region region = device.add(memory, 2 * page);
    const auto queue =
        device.open({.inlined = 256, .gathers = 1, .requests = 256, .receives = receives, .bytes = page});
    b.name[me] = queue->name();
    b.base[me] = reinterpret_cast<std::uintptr_t>(memory);
    b.key[me] = region.remote;
    meet(b.named, me);
    check(queue->connect(b.name[1 - me]));
    check(queue->receive(receives));
    meet(b.connected, me);

    std::vector<double> us;
    std::uint32_t used = 0;
    auto last = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) {
        const rdma::write_request write{.id = static_cast<std::uint64_t>(i),
            .to = b.base[1 - me],
            .remote = b.key[1 - me],
            .first = 0,
            .count = 1,
            .immediate = 0,
            .announces = true,
            .signalled = i % 64 == 0,
            .inlined = true};
        const rdma::gather from{memory + page, bytes, region.local};
        check(queue->post(&write, 1, &from));
        await([&] {
            rdma::completion one;
            if (queue->poll(&one, 1) == 0) return false;
            if (one.what == rdma::completion::failed) throw std::runtime_error(one.status);
            used += one.what == rdma::completion::arrived;
            return one.what == rdma::completion::arrived;
        });
        if (used == batch) check(queue->receive(static_cast<int>(used))), used = 0;
        const auto now = std::chrono::steady_clock::now();
        us.push_back(std::chrono::duration<double, std::micro>(now - last).count());
        last = now;
    }
    meet(b.done, me);
    device.drop(region);
    std::free(memory);
    std::nth_element(us.begin(), us.begin() + times / 2, us.end());
    return us[static_cast<std::size_t>(times) / 2];
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{
        "Two processes write 72 bytes to each other at the same time, by RDMA: a lower bound for an 8-byte all_reduce "
        "of two "
        "ranks."};
    int times = 3000;
    app.add_option("--times", times, "number of exchanges")->check(CLI::PositiveNumber)->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    void* const shared = mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    auto* const b = new (shared) board{};
    const pid_t child = fork();
    const int me = child == 0 ? 1 : 0;
    try {
        const double us = exchange(*b, me, times);
        if (me == 0) fmt::print("an exchange of 72 bytes: {:.1f} us, the median of {}\n", us, times);
    } catch (const std::exception& e) {
        fmt::print(stderr, "exchange: {}\n", e.what());
        if (me == 0) kill(child, SIGKILL);
        std::_Exit(1);
    }
    if (me == 1) std::_Exit(0);
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
