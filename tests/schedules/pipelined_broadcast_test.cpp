#include <colls/schedules/pipelined_broadcast.hpp>

#include "laws.hpp"

#include <cstddef>
#include <vector>

using colls::pipelined_broadcast;
using enum colls::collective;

namespace {
template <int Segments>
struct cut : pipelined_broadcast::broadcast {
    constexpr cut() : pipelined_broadcast::broadcast{Segments} {}
};

/// What every rank receives in a phase of the broadcast, in round k: [rank * q + k]; the root nothing.
std::vector<int> arrivals(int n) {
    const int q = colls::log2_ceil(n);
    std::vector<int> all(static_cast<std::size_t>(n * q));
    for (int r = 1; r < n; ++r)
        for (int k = 0; k < q; ++k) all[static_cast<std::size_t>(r * q + k)] = pipelined_broadcast::arrival(r, n, k);
    return all;
}

/// Each rank receives its own block of the phase and all others of the last one; what it sends (read off what the
/// receiver receives) came in an earlier round of the phase, or is its own of the last phase; the root sends block k in
/// round k.
bool sound(int n) {
    const int q = colls::log2_ceil(n);
    const std::vector<int> r_of = arrivals(n);
    const auto at = [&](int r, int k) { return r_of[static_cast<std::size_t>(r * q + k)]; };
    for (int r = 0; r < n; ++r) {
        unsigned long long got = 0;  // bit b of the last phase, bit q + b of this one
        int own = colls::none;
        for (int k = 0; k < q && r > 0; ++k) {
            const int b = at(r, k);
            if (b < -q || b >= q || (got >> (b + q) & 1) != 0 || (b >= 0 && own != colls::none)) return false;
            got |= 1ull << (b + q);
            if (b >= 0) own = b;
        }
        if (r > 0 && (own == colls::none || (got >> own & 1) != 0)) return false;
        got = own == colls::none ? 0 : 1ull << own;
        for (int k = 0; k < q; ++k) {
            const int to = (r + colls::halving::skip(n, q - k)) % n;
            if (to != 0 && (r == 0 ? at(to, k) != k : (got >> (at(to, k) + q) & 1) == 0)) return false;
            if (r > 0) got |= 1ull << (at(r, k) + q);
        }
    }
    return true;
}
}  // namespace

static_assert(colls::proven<pipelined_broadcast, proven_to>);
static_assert(colls::proven<cut<1>, proven_to>);
static_assert(colls::proven<cut<2>, proven_to>);
static_assert(colls::proven<cut<9>, proven_to>);
static_assert(colls::proven<colls::reversed<cut<9>>, proven_to>);

TEST_CASE("pipelined broadcast: provides the collectives that are documented") {
    CHECK(laws::collectives_of<pipelined_broadcast>() == "broadcast reduce all_reduce barrier");
}

TEST_CASE("pipelined broadcast: every schedule is proven, at compile time and at run time") {
    for (const int segments : {0, 1, 2, 3, 4, 7, 8, 13, 64}) {
        INFO("segments = " << segments);
        laws::prove(pipelined_broadcast{segments});
    }
}

TEST_CASE("pipelined broadcast: sends match receives, and a rank sends only blocks that it has, at every size") {
    int wrong = 0;
    for (int n = 2; n <= 1200; ++n) wrong += !sound(n);
    CHECK(wrong == 0);
    for (const int n : {4095, 4096, 4097, 10007, 65537}) {
        INFO("n = " << n);
        CHECK(sound(n));
    }
}

TEST_CASE("pipelined broadcast: rounds and volume follow the closed formulas") {
    for (const int segments : {1, 2, 5, 7, 32}) {
        const auto rounds = [=](int n) { return n == 1 ? 0 : segments + colls::log2_ceil(n) - 1; };
        laws::check_cost<reduce>(pipelined_broadcast{segments}, rounds, [=](int n) { return n == 1 ? 0 : segments; });
        const auto s = pipelined_broadcast::broadcast{segments};
        for (int n = 2; n <= laws::largest; ++n) {
            const colls::cost c = colls::traffic_of(s, n);
            INFO("segments = " << segments << ", n = " << n);
            CHECK(c.rounds == rounds(n));
            CHECK(c.blocks_received == segments);
            CHECK(c.blocks_sent <= rounds(n));  // the root, and ranks that serve as often
            CHECK(c.critical_sent == rounds(n));
            CHECK(colls::schedule_of<all_reduce>(pipelined_broadcast{segments}).rounds(n) == 2 * rounds(n));
        }
        for (const int n : laws::awkward_sizes) {
            INFO("segments = " << segments << ", n = " << n);
            CHECK(colls::properties_of(s, n).round_optimal);
        }
    }
    CHECK(pipelined_broadcast::broadcast{}.blocks(33) == 6);
    CHECK(pipelined_broadcast::broadcast{}.blocks(2) == 1);
}

TEST_CASE("pipelined broadcast: every rank but the root receives every block once") {
    for (const int n : laws::awkward_sizes) {
        std::vector<int> received(static_cast<std::size_t>(n * 7));
        laws::for_each_step(pipelined_broadcast::broadcast{7}, n, [&](int rank, int, int, const colls::step& st) {
            if (st.recv.peer != colls::none) ++received[static_cast<std::size_t>(rank * 7 + st.recv.blocks[0])];
        });
        bool once = true;
        for (std::size_t i = 0; i < received.size(); ++i) once = once && received[i] == (i < 7 ? 0 : 1);
        INFO("n = " << n);
        CHECK(once);
    }
}

TEST_CASE("pipelined broadcast: reversed, it does not combine in rank order; all ranks compute the same bits") {
    CHECK(!laws::keeps_order<reduce>(pipelined_broadcast{4}));
    laws::check_identical(pipelined_broadcast{4});
}
