// Results whose bits do not depend on how data are cut into calls: gradients are summed as a whole, and again in
// buckets. Under colls::reproducible both have the same bits; by the ring they do not. The same hash comes from any
// transport:
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/reproducible.cpp -o reproducible
// Run:   ./reproducible                  on 4 threads
//        mpirun -n 4 ./reproducible      on 4 processes; by messages with COLLS_TRANSPORT=tcp
#include <colls/bootstrap/launch.hpp>
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>
#include <colls/world.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

namespace {

/// A hash of the bits of floats.
std::uint64_t hash_of(std::span<const float> x) {
    std::uint64_t h = 14695981039346656037u;
    for (const float v : x) {
        std::uint32_t bits;
        std::memcpy(&bits, &v, sizeof bits);
        h = (h ^ bits) * 1099511628211u;
    }
    return h;
}

/// Sums x over all ranks, in calls on `bucket` elements each.
template <class Schedule>
std::uint64_t sum_in_buckets(colls::communicator& comm, std::vector<float> x, std::size_t bucket) {
    for (std::size_t at = 0; at < x.size(); at += bucket)
        colls::all_reduce<Schedule>(comm, std::span(x).subspan(at, std::min(bucket, x.size() - at)), colls::sum);
    return hash_of(x);
}

int failures = 0;

void run(colls::communicator& comm) {
    std::vector<float> gradients(1'000'000);
    std::uint32_t state = 12345u + static_cast<std::uint32_t>(comm.rank());
    for (float& g : gradients) {
        state = state * 1664525u + 1013904223u;
        g = static_cast<float>(static_cast<int>(state >> 8) - (1 << 23)) / static_cast<float>(1u << (state >> 4) % 20u);
    }
    const std::size_t whole = gradients.size(), buckets[] = {whole, 100'003, 4'099};
    std::uint64_t reproducible[3], ring[3];
    for (int i = 0; i < 3; ++i) {
        // example-begin buckets
        reproducible[i] = sum_in_buckets<colls::reproducible>(comm, gradients, buckets[i]);
        ring[i] = sum_in_buckets<colls::ring>(comm, gradients, buckets[i]);
        // example-end
    }
    if (comm.rank() != 0) return;
    const auto equal = [](const std::uint64_t(&h)[3]) { return h[0] == h[1] && h[1] == h[2] ? "equal" : "different"; };
    std::printf("%d ranks, reproducible: %016llx, %s bits in buckets\n", comm.size(),
        static_cast<unsigned long long>(reproducible[0]), equal(reproducible));
    std::printf("%d ranks, ring: %s bits in buckets\n", comm.size(), equal(ring));
    failures += std::strcmp(equal(reproducible), "equal") != 0;
}

}  // namespace

int main() {
    if (colls::read_launch().size > 1) {
        colls::communicator comm = colls::world();
        run(comm);
    } else {
        colls::threads::run(4, [](colls::communicator& comm) { run(comm); });
    }
    return failures;
}
