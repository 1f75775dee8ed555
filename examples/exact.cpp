// Sums whose bits do not depend on the number of ranks: the same numbers are dealt to 2, 3 and 4 ranks. By colls::exact
// the sums have the same bits; by colls::sum they do not.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/exact.cpp -o exact
// Run:   ./exact                  on threads
//        mpirun -n 3 ./exact      on 3 processes; by messages with COLLS_TRANSPORT=tcp
#include <colls/bootstrap/launch.hpp>
#include <colls/colls.hpp>
#include <colls/exact.hpp>
#include <colls/transports/threads.hpp>
#include <colls/world.hpp>

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

/// Row k of numbers, of very different sizes.
void fill(std::span<float> row, int k) {
    std::uint32_t state = 12345u + static_cast<std::uint32_t>(k);
    for (float& x : row) {
        state = state * 1664525u + 1013904223u;
        x = static_cast<float>(static_cast<int>(state >> 8) - (1 << 23)) / static_cast<float>(1u << (state >> 4) % 20u);
    }
}

struct results {
    std::uint64_t plain = 0, exact = 0;
    float total = 0;
};

results run(colls::communicator& comm) {
    // Twelve rows are dealt to the ranks.
    std::vector<float> in(10'000), row(in.size()), exact(in.size()), plain(in.size());
    colls::exact_sum<float> my_total;
    for (int k = comm.rank(); k < 12; k += comm.size()) {
        fill(row, k);
        my_total.add(row);
        for (std::size_t i = 0; i < in.size(); ++i) plain[i] += row[i];
        if (k == comm.rank() && k < 2) in = row;
    }
    // example-begin calls
    colls::all_reduce(comm, in, exact, colls::exact);                // an addend a rank: here of ranks 0 and 1
    colls::all_reduce(comm, std::span(&my_total, 1), colls::exact);  // any number of addends a rank
    const float total = my_total.value();                            // rounded once
    // example-end
    colls::all_reduce(comm, plain, colls::sum);
    return {hash_of(plain), hash_of(exact), total};
}

}  // namespace

int main() {
    if (colls::read_launch().size > 1) {
        colls::communicator comm = colls::world();
        const results got = run(comm);
        if (comm.rank() == 0) std::printf("%d ranks: the total is %a\n", comm.size(), static_cast<double>(got.total));
        return 0;
    }
    results got[3];
    for (int i = 0; i < 3; ++i)
        colls::threads::run(i + 2, [&](colls::communicator& comm) {
            const results mine = run(comm);
            if (comm.rank() == 0) got[i] = mine;
        });
    const bool plain = got[0].plain == got[1].plain && got[1].plain == got[2].plain;
    const bool exact = got[0].exact == got[1].exact && got[1].exact == got[2].exact && got[0].total == got[1].total &&
                       got[1].total == got[2].total;
    std::printf("2, 3 and 4 ranks, colls::exact: %s bits\n", exact ? "equal" : "different");
    std::printf("2, 3 and 4 ranks, colls::sum: %s bits\n", plain ? "equal" : "different");
    return exact ? 0 : 1;
}
