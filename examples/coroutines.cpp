// A hundred calls in flight at once, in a hundred coroutines of each rank, and how many allocations a call makes: none.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/coroutines.cpp -o coroutines
// Run:   ./coroutines
#include <colls/colls.hpp>
#include <colls/interop/coroutine.hpp>
#include <colls/transports/threads.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <span>
#include <stdexcept>
#include <vector>

namespace {

std::atomic<long> allocations{0};
constexpr int rounds = 20;

// example-begin coroutine
/// What a rank does with one bucket of gradients: sums it over the ranks, and then sends the mean's largest element to
/// all of them. While it waits, the rank's other coroutines go on. Returns the largest element.
colls::interop::task<float> average(colls::communicator& comm, std::vector<float>& bucket) {
    co_await colls::start::all_reduce(comm, bucket, colls::avg);
    float largest = *std::max_element(bucket.begin(), bucket.end());
    co_await colls::start::broadcast(comm, std::span(&largest, 1), 0);
    co_return largest;
}
// example-end

// example-begin lanes
/// The same calls again and again; `lanes` are groups of the same ranks, since a group has 32 operations in flight.
colls::interop::task<> repeat(colls::communicator& lane, std::vector<float>& x, int& in_flight, int& most) {
    for (int round = 0; round < rounds; ++round) {
        colls::operation sum = colls::start::all_reduce(lane, x, colls::max);
        most = std::max(most, ++in_flight);
        co_await sum;
        --in_flight;
    }
}
void many(colls::communicator& comm) {
    std::vector<colls::communicator> lanes;
    for (int i = 0; i < 4; ++i) lanes.push_back(comm.split(0, comm.rank()));
    std::vector<std::vector<float>> x(100, std::vector<float>(1000, static_cast<float>(comm.rank())));
    int in_flight = 0, most = 0;
    for (const bool warm : {false, true}) {
        std::vector<colls::interop::task<>> tasks;  // their frames are allocated here
        for (std::size_t i = 0; i < x.size(); ++i) tasks.push_back(repeat(lanes[i % 4], x[i], in_flight, most));
        colls::barrier(comm);
        const long before = allocations;
        colls::interop::run(tasks);  // in the same order on all ranks
        colls::barrier(comm);
        const long made = allocations - before;
        colls::barrier(comm);
        if (warm && comm.rank() == 0)
            std::printf("%d calls in flight, %ld allocations in %d calls\n", most, made, 100 * rounds);
        if (warm && (made != 0 || most != 100)) throw std::runtime_error("a call has allocated, or has not been made");
    }
    for (const auto& v : x)
        if (v[999] != static_cast<float>(comm.size() - 1)) throw std::runtime_error("the maximum is another");
}
// example-end

}  // namespace

// Not inlined: g++ would warn that what operator new gives is freed.
[[gnu::noinline]] void* operator new(std::size_t size) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    if (void* const p = std::malloc(size)) return p;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

int main() {
    colls::threads::run(4, [](colls::communicator& comm) {
        std::vector<float> a(1000, static_cast<float>(comm.rank())), b(10, 3);
        // example-begin run
        auto first = average(comm, a);
        auto second = average(comm, b);
        colls::interop::loop loop;
        first.start(loop);
        second.start(loop);
        loop.run();  // until both are over
        const float largest = first.get() + second.get();
        // example-end
        if (comm.rank() == 0) std::printf("largest elements: %g\n", largest);
        if (largest != 4.5f) throw std::runtime_error("the largest elements are others");
        many(comm);
    });
}
