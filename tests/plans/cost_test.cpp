// The counted costs against the closed formulas, and the model against its check figures.
#include "catch.hpp"
#include "support/schedules.hpp"

#include <colls/cost.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace colls;

// The collectives hide the calls of the same names, which are in namespace colls.
namespace cost_test {
using enum colls::collective;

namespace {

/// What is known in closed form: rounds, and blocks that the busiest rank sends, receives and reduces.
struct formula {
    long rounds, sent, received, reduced, ports;
};
/// With the schedule's own type the cost would be a constant, which compilers evaluate, slowly, wherever it stands. So
/// the type is erased.
cost cost_at(const any_schedule& s, int n) { return cost_of(s, n); }
template <schedule S>
cost cost_at(const S& s, int n) {
    return cost_at(any_schedule(s), n);
}
template <schedule S>
cost cost_at(int n) {
    return cost_at(any_schedule(S{}), n);
}
void check_erased(const any_schedule& s, int n, const formula& f) {
    const cost c = cost_at(s, n);
    INFO(s.name() << " at " << n);
    CHECK(c.rounds == f.rounds);
    CHECK(c.blocks_sent == f.sent);
    CHECK(c.blocks_received == f.received);
    CHECK(c.blocks_reduced == f.reduced);
    CHECK(c.ports == f.ports);
}
template <schedule S>
void check(const S& s, int n, const formula& f) {
    check_erased(any_schedule(s), n, f);
}

int log_ceil(int base, int n) {
    int k = 0;
    for (long reached = 1; reached < n; reached *= base) ++k;
    return k;
}
template <collective C, class F>
auto of(const F& f) {
    return schedule_of<C>(f);
}
/// Rank `sender` receives one block into `slot` in round 0, and sends it on in round 1. Nothing else happens.
struct passed_on {
    collective implements;
    int sender, slot;

    static int rounds(int) { return 2; }
    static int blocks(int n) { return n; }
    static int scratch(int) { return 2; }
    static int root(int) { return 2; }
    static int ports(int) { return 1; }
    step at(int rank, int n, int round, int port) const {
        if (rank < 0 || rank >= n || round < 0 || round >= 2 || port != 0) throw std::out_of_range("no such step");
        const int from = mod(sender + round - 1, n), to = mod(from + 1, n);
        step s;
        if (rank == from) s.send = {to, block(round == 0 ? 0 : slot)};
        if (rank == to) s.recv = {from, block(round == 0 ? slot : n + 1)};
        return s;
    }
};
/// Rank 1 receives into one slot a round, and sends one on, to rank 2, which sends none.
struct handed_on {
    static constexpr collective implements = all_reduce;
    std::vector<int> arrives, leaves;

    int rounds(int) const { return static_cast<int>(arrives.size()); }
    static int blocks(int) { return 1; }
    static int scratch(int) { return 9; }
    step at(int rank, int, int round) const {
        const int in = arrives[static_cast<std::size_t>(round)], out = leaves[static_cast<std::size_t>(round)];
        step s;
        if (rank == 0 && in != none) s.send = {1, block(0)};
        if (rank == 1 && in != none) s.recv = {0, block(in)};
        if (rank == 1 && out != none) s.send = {2, block(out)};
        if (rank == 2 && out != none) s.recv = {1, block(out)};
        return s;
    }
};
/// Each rank sends blocks to the rank `away` from it, round after round, and folds what arrives; where there is none,
/// to `away` itself.
struct misled {
    static constexpr collective implements = collective::reduce;
    int away;
    block_set blocks_of_round[2];

    static int rounds(int) { return 2; }
    static int blocks(int) { return 5; }
    step at(int rank, int n, int round) const {
        const bool exists = away > 0 && away < n;
        const block_set& b = blocks_of_round[round];
        return {.send = {exists ? mod(rank + away, n) : away, b},
            .recv = {exists ? mod(rank - away, n) : away, b, action::reduce}};
    }
};
bool close(double is, double should, double within) { return std::abs(is - should) <= within * should; }

}  // namespace

TEST_CASE("rounds and volume follow the closed formulas", "[cost]") {
    for (int n = 1; n <= 128; ++n) {
        const long q = log2_ceil(n), others = n - 1, one = n > 1 ? 1 : 0;
        // The busiest rank sends all blocks but its own, once; an all_reduce twice.
        check(ring::reduce_scatter{}, n, {others, others, others, others, 1});
        check(of<all_gather>(ring{}), n, {others, others, others, 0, 1});
        check(of<all_reduce>(ring{}), n, {2 * others, 2 * others, 2 * others, others, 1});
        check(ring::broadcast{}, n, {others, one, one, 0, 1});
        check(ring::inclusive_scan{}, n, {others, one, one, one, 1});
        check(circulant<>::reduce_scatter{}, n, {q, others, others, others, 1});
        check(of<all_reduce>(circulant<>{}), n, {2 * q, 2 * others, 2 * others, others, 1});
        check(circulant<doubling>::reduce_scatter{}, n, {q, others, others, others, 1});
        check(circulant<linear>::reduce_scatter{}, n, {others, others, others, others, 1});
        check(direct::reduce_scatter{}, n, {one, others, others, others, n > 1 ? n - 1 : 1});
        check(of<all_gather>(direct{}), n, {one, others, others, 0, n > 1 ? n - 1 : 1});
        check(direct::all_to_all{}, n, {one, others, others, 0, n > 1 ? n - 1 : 1});
        check(direct::broadcast{}, n, {one, others, one, 0, n > 1 ? n - 1 : 1});
        check(direct::scatter{}, n, {one, others, one, 0, n > 1 ? n - 1 : 1});
        check(one_shot::all_reduce{}, n, {one, others, others, others, n > 1 ? n - 1 : 1});
        check(tree<2>::broadcast{}, n, {q, q, one, 0, 1});
        check(of<collective::reduce>(tree<2>{}), n, {q, one, q, q, 1});
        // The greatest subtree below the root is that of rank 2^(q-1), or of the rank before it where that is cut
        // short.
        const long half = n > 1 ? 1L << (q - 1) : 0;
        check(tree<2>::scatter{}, n, {q, others, n > 1 ? std::max(n - half, half / 2) : 0, 0, 1});
        check(bruck<2>::all_gather{}, n, {q, others, others, 0, 1});
        check(bruck<4>::all_gather{}, n, {log_ceil(4, n), others, others, 0, 3});
        check(of<collective::reduce_scatter>(bruck<2>{}), n, {q, others, others, others, 1});
        check(recursive_doubling::inclusive_scan{}, n, {q, q, q, q, 1});
        {
            const int p = 1 << q, a1 = 1, a4 = p < 4 ? p : 4;
            const auto rounds = [&](int a) { return log2_ceil(a) + std::min(p / a, n) - 1; };
            check(pat<1>::all_gather{}, n, {rounds(a1), others, others, 0, 1});
            check(pat<4>::all_gather{}, n, {rounds(a4), others, others, 0, 1});
        }
        for (const int segments : {1, 2, 5, 12}) {
            const pipelined_broadcast f{segments};
            const cost c = cost_at(of<broadcast>(f), n);
            INFO("pipelined_broadcast of " << segments << " at " << n);
            CHECK(c.rounds == (n == 1 ? 0 : segments + q - 1));
            CHECK(c.critical_sent == (n == 1 ? 0 : segments + q - 1));  // a block a round
            CHECK(c.blocks_received == (n == 1 ? 0 : segments));
        }
        {  // slots whose number has the digit z at place k go on: all n - 1 slots, once for each digit that is not 0
            long moved = 0, rounds = 0;
            for (int d = 1; d < n; d *= 2, ++rounds)
                for (int i = 0; i < n; ++i) moved += i / d % 2;
            check(bruck<2>::all_to_all{}, n, {rounds, moved, moved, 0, 1});
        }
        {
            const cost c = cost_at(of<broadcast>(double_tree{}), n);
            INFO("double_tree at " << n);
            CHECK(c.rounds == log2_ceil(n + 1) * one);
            CHECK(c.blocks == 2);
            CHECK(c.blocks_received == 2 * one);
            CHECK(c.blocks_sent <= 2);  // S a rank: interior in one tree alone
            CHECK(cost_at(of<all_reduce>(double_tree{}), n).blocks_sent <= 4);
        }
        if (is_power_of_two(n)) {
            check(halving_doubling::reduce_scatter{}, n, {q, others, others, others, 1});
            check(of<all_reduce>(halving_doubling{}), n, {2 * q, 2 * others, 2 * others, others, 1});
            check(swing::reduce_scatter{}, n, {q, others, others, others, 1});
            check(bine::broadcast{}, n, {q, q, one, 0, 1});
            check(distance_doubling::reduce_scatter{}, n, {q, others, others, others, 1});
            check(recursive_doubling::all_reduce{}, n, {q, q, q, q, 1});
        } else {
            // Folded outside compose: two rounds more than at the power of two below.
            CHECK(cost_at(of<all_reduce>(folded<halving_doubling>{}), n).rounds == 2 * (q - 1) + 2);
        }
    }
}

TEST_CASE("costs equal the figures of the literature", "[cost]") {
    // all_to_all of 64 ranks, radix 2, 4, 8, 64: blocks a rank.
    CHECK(cost_at<bruck<2>::all_to_all>(64).blocks_sent == 192);
    CHECK(cost_at<bruck<4>::all_to_all>(64).blocks_sent == 144);
    CHECK(cost_at<bruck<8>::all_to_all>(64).blocks_sent == 112);
    CHECK(cost_at<bruck<64>::all_to_all>(64).blocks_sent == 63);
    CHECK(cost_at<bruck<8>::all_to_all>(64).rounds == 14);

    // Fold against circulant at n = 48: 12 rounds each; sent a rank 2.94 S (3.94 S on the critical path) and 1.96 S.
    const cost fold = cost_at(of<all_reduce>(folded<halving_doubling>{}), 48);
    CHECK(fold.rounds == 12);
    CHECK(close(static_cast<double>(fold.blocks_sent) / fold.blocks, 2.94, 0.005));
    CHECK(close(static_cast<double>(fold.critical_sent) / fold.blocks, 3.94, 0.005));
    const cost flat = cost_at(of<all_reduce>(circulant<>{}), 48);
    CHECK(flat.rounds == 12);
    CHECK(close(static_cast<double>(flat.blocks_sent) / flat.blocks, 1.96, 0.005));
    CHECK(flat.critical_sent == flat.blocks_sent);

    // Partial results held at a time, out of place, reduce_scatter of 64 ranks.
    CHECK(cost_at<ring::reduce_scatter>(64).scratch == 2);
    CHECK(cost_at<circulant<>::reduce_scatter>(64).scratch == 31);
    CHECK(cost_at<halving_doubling::reduce_scatter>(64).scratch == 31);
    CHECK(cost_at(of<collective::reduce_scatter>(pat<1>{}), 64).scratch == 3);
    CHECK(cost_at<direct::reduce_scatter>(64).scratch == 0);
    CHECK(cost_at<circulant<linear>::reduce_scatter>(64).scratch == 0);
}

TEST_CASE("scratch follows the closed formulas", "[cost]") {
    for (int n = 2; n <= 128; ++n) {
        INFO(n);
        CHECK(cost_at<ring::reduce_scatter>(n).scratch == (n > 3 ? 2 : n - 2));
        CHECK(cost_at<circulant<>::reduce_scatter>(n).scratch == n / 2 - 1);
        CHECK(cost_at<direct::reduce_scatter>(n).scratch == 0);
        // PAT: about every other bit of an offset, the tails that are open at a time.
        if (is_power_of_two(n))
            CHECK(
                cost_at(of<collective::reduce_scatter>(pat<1>{}), n).scratch == (n == 2 ? 0 : (log2_ceil(n) + 1) / 2));
        // What is wanted at the end has a place; inner nodes of a tree have what they pass on beside it.
        CHECK(cost_at(of<all_reduce>(ring{}), n).scratch == 0);
        CHECK(cost_at(of<all_gather>(circulant<>{}), n).scratch == 0);
        CHECK(cost_at<tree<2>::broadcast>(n).scratch == 0);
        CHECK(cost_at(of<collective::reduce>(tree<2>{}), n).scratch == (n > 3 ? 1 : 0));
        CHECK(cost_at(of<barrier>(ring{}), n).scratch == 0);
    }
    CHECK(cost_at<tree<2>::scatter>(16).scratch == 7);  // rank 8 holds the blocks of 9 to 15 for others
    CHECK(cost_at(of<gather>(tree<2>{}), 16).scratch == 7);
}

TEST_CASE("scratch counts what a rank passes on and does not keep", "[cost]") {
    const int n = 5, root = passed_on::root(n);
    for (const collective c : {broadcast, scatter, gather, all_gather, all_to_all, collective::reduce,
             collective::reduce_scatter, all_reduce, inclusive_scan, exclusive_scan})
        for (int who = 0; who < n; ++who)
            for (int slot = 0; slot <= n; ++slot) {  // the last one is beside the blocks
                const bool keeps = c == scatter || c == collective::reduce_scatter ? slot == who
                                   : c == gather || c == collective::reduce        ? who == root
                                                                                   : true;
                INFO(name_of(c) << ", slot " << slot << " of rank " << who);
                CHECK(cost_of(passed_on{c, who, slot}, n).scratch == (slot < n && keeps ? 0 : 1));
            }
}

TEST_CASE("scratch counts a slot from its first arrival to the last round that sends that on", "[cost]") {
    const auto scratch = [](std::vector<int> arrives, std::vector<int> leaves) {
        return cost_of(handed_on{std::move(arrives), std::move(leaves)}, 3).scratch;
    };
    CHECK(scratch({1, none, 2, none}, {none, 1, none, 2}) == 1);  // one after the other
    CHECK(scratch({1, 2, none, none}, {none, none, 1, 2}) == 2);
    CHECK(scratch({1, 2, none}, {none, 1, 2}) == 2);                                // one arrives as the other leaves
    CHECK(scratch({1, none, 2, none, none}, {none, 1, none, 2, 1}) == 2);           // sent again
    CHECK(scratch({1, none, 2, none, 1, none}, {none, 1, none, 2, none, 1}) == 1);  // used again
    CHECK(scratch({1, none, 2, none, 3}, {none, 1, none, 2, none}) == 1);           // the last one stays
    CHECK(scratch({1, 2, 3}, {none, none, none}) == 0);                             // all stay
    CHECK(scratch({1, 2, 3, 4, none, none}, {none, none, none, none, 2, 3}) == 2);  // some stay
}

TEST_CASE(
    "a wrong schedule has a cost: peers that are no ranks, and blocks that are no slots, do not count", "[cost]") {
    for (const int bad : {-7, -2, 3, 1 << 30}) {
        const cost to_none = cost_of(misled{bad, {block(0), block(0)}}, 3);
        CHECK((to_none.messages == 0 && to_none.all_sent == 0 && to_none.all_reduced == 0));
    }
    for (const block_set bad : {block(-1), block(5), block(1 << 30), block_set{.count = -1}, block_set{.count = 9},
             block_set{.count = 50'000, .grain = 50'000}}) {
        const cost nowhere = cost_of(misled{1, {bad, block(0)}}, 3);
        CHECK((nowhere.messages == 6 && nowhere.scratch == 0));
    }
}

TEST_CASE("predicted seconds equal the check figures of the model", "[cost]") {
    // 2e9 bytes to 256 ranks, 5 us a round, 0.1 ns a byte.
    constexpr model m{.alpha = 5e-6, .beta = 1e-10};
    constexpr double bytes = 2e9;
    const cost linear = cost_at<direct::broadcast>(256);  // the root sends to each in turn: 255 (alpha + beta S)
    CHECK(close(linear.seconds(m, bytes) * 256 / 255, 51.2, 0.001));
    const double tree_time = cost_at<tree<2>::broadcast>(256).seconds(m, bytes);
    CHECK(close(tree_time, 1.6, 0.001));
    CHECK(tree_time == Approx(8 * (5e-6 + 0.2)));
    const double pipelined = cost_at(of<broadcast>(pipelined_broadcast{500}), 256).seconds(m, bytes);
    CHECK(close(pipelined, 0.2, 0.03));
    CHECK(pipelined == Approx((500 - 1 + 8) * (5e-6 + 0.2 / 500)));
    // 14 GB over 32 ranks at 200 GB/s: ring all_reduce.
    constexpr model link{.beta = 1 / 200e9};
    CHECK(close(cost_at(of<all_reduce>(ring{}), 32).seconds(link, 14e9), 0.14, 0.04));
    CHECK(cost_at(of<all_reduce>(ring{}), 32).seconds(link, 14e9) == Approx(2 * 31.0 / 32 * 14e9 / 200e9));

    // gamma: every byte of a ring reduce_scatter but the own block's share is reduced once.
    CHECK(cost_at<ring::reduce_scatter>(8).seconds({.gamma = 1e-9}, 8e9) == Approx(7.0));
    CHECK(cost{}.seconds(m, bytes) == 0);
    STATIC_REQUIRE(cost_of<circulant<>::reduce_scatter>(13).blocks_sent == 12);
    STATIC_REQUIRE(cost_of<circulant<>::reduce_scatter>(16).seconds({.alpha = 1.0}, 1e6) == 4.0);
}

TEST_CASE("relations that hold between the costs of every schedule", "[cost]") {
    for (const auto& [name, s] : support::every_schedule())
        for (int n = 1; n <= 40; ++n) {
            if (!supports(s, n)) continue;
            const cost c = cost_at(s, n);
            INFO(name << " at " << n);
            CHECK(c == [&] {
                cost t = traffic_of(s, n);
                t.scratch = c.scratch;
                return t;
            }());
            // What one rank sends in all lies between an even share and the sum over rounds of the busiest.
            CHECK(c.critical_sent >= c.blocks_sent);
            CHECK(c.critical_reduced >= c.blocks_reduced);
            CHECK((c.blocks_sent > 0) == (c.blocks_received > 0));
            if (!reduces(s.implements)) CHECK(c.blocks_reduced == 0);
            if (s.implements == barrier) CHECK(c.blocks_sent == 0);
            if (n == 1) CHECK(c.blocks_sent == 0);
        }
}

}  // namespace cost_test
