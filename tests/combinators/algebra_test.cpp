// The laws of the algebra, each as its combinator states it, over group sizes that find bugs.
#include "catch.hpp"

#include <colls/algebra.hpp>
#include <colls/any_schedule.hpp>
#include <colls/schedules/circulant.hpp>
#include <colls/schedules/direct.hpp>
#include <colls/schedules/recursive_doubling.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/schedules/tree.hpp>
#include <colls/verify.hpp>
#include <colls/verify/report.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

// Within it the names of collectives hide those of the calls.
namespace algebra_test {

using namespace colls;
using enum colls::collective;

namespace {

constexpr int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 16, 17, 31, 32, 33};

/// Recursive halving, for powers of two only.
struct halves {
    struct reduce_scatter {
        static constexpr collective implements = collective::reduce_scatter;
        static constexpr bool supports(int n) { return is_power_of_two(n); }
        static constexpr int rounds(int n) { return log2_ceil(n); }
        static constexpr step at(int r, int n, int k) {
            const int d = n >> (k + 1), p = r ^ d;
            return {.send = {p, block_range(p / d * d, d)}, .recv = {p, block_range(r / d * d, d), action::reduce}};
        }
    };
    struct scatter {
        static constexpr collective implements = collective::scatter;
        static constexpr bool supports(int n) { return is_power_of_two(n); }
        static constexpr int rounds(int n) { return log2_ceil(n); }
        static constexpr step at(int r, int n, int k) {
            const int d = n >> (k + 1);
            if (r % (2 * d) == 0) return {.send = {r + d, block_range(r + d, d)}};
            if (r % (2 * d) == d) return {.recv = {r - d, block_range(r, d)}};
            return {};
        }
    };
};
/// A chain with its number of segments as state.
struct chain {
    static constexpr collective implements = collective::broadcast;
    int segments = 2;
    constexpr int blocks(int) const { return segments; }
    constexpr int rounds(int n) const { return n < 2 ? 0 : n - 2 + segments; }
    constexpr step at(int r, int n, int k) const {
        step s;
        const int out = k - r, in = k - r + 1;
        if (r + 1 < n && out >= 0 && out < segments) s.send = {r + 1, block(out)};
        if (r > 0 && in >= 0 && in < segments) s.recv = {r - 1, block(in)};
        return s;
    }
};
/// all_to_all that stores a received block in the slot that it sends from, and so needs its own `output`.
struct swap_all_to_all {
    static constexpr collective implements = collective::all_to_all;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr int output(int r, int n, int slot) { return mod(2 * r - slot, n); }
    static constexpr step at(int r, int n, int k) {
        const int to = (r + k + 1) % n;
        return {.send = {to, block(to)}, .recv = {mod(r - k - 1, n), block(to)}};
    }
};
/// A reduce_scatter that leaves block b at rank b + 1: an owner apart from the slot's number.
struct displaced {
    struct reduce_scatter {
        static constexpr collective implements = collective::reduce_scatter;
        static constexpr int owner(int r, int n) { return mod(r - 1, n); }
        static constexpr int rounds(int n) { return n - 1; }
        static constexpr step at(int r, int n, int k) {
            const int to = (r + k + 1) % n;
            return {
                .send = {to, block(mod(to - 1, n))}, .recv = {mod(r - k - 1, n), block(mod(r - 1, n)), action::reduce}};
        }
    };
};

using rs = ring::reduce_scatter;
using ag = reversed<rs>;
using halves_all_reduce = schedule_for<halves, all_reduce>;

// What is checked at run time has its type erased, so that each check is compiled once.
void check_right(const any_schedule& s) {
    for (const int n : sizes) {
        if (!s.supports(n)) continue;
        const report r = verify(s, n);
        INFO(s.type() << ", n = " << n << ": " << r.text());
        CHECK(r.ok());
    }
}
template <schedule S>
void check_right(const S& s = {}) {
    check_right(any_schedule(s));
}
template <class... S>
void check_all_right() {
    for (const any_schedule& s : {any_schedule(S{})...}) check_right(s);
}

/// Blocks sent by all ranks together; what a rank does with itself is no traffic.
long volume(const any_schedule& s, int n) {
    long sent = 0;
    for (int r = 0; r < n; ++r)
        for (int k = 0; k < s.rounds(n); ++k)
            for (int p = 0; p < s.ports(n); ++p) {
                const step st = s.at(r, n, k, p);
                if (st.send.peer != none && st.send.peer != r) sent += st.send.blocks.size();
            }
    return sent;
}
/// The same as a multiple of 1 / unit of the data.
long volume_in(const any_schedule& s, int n, int unit) {
    REQUIRE(unit % s.blocks(n) == 0);
    return volume(s, n) * (unit / s.blocks(n));
}
void check_same_cost(const any_schedule& s, const any_schedule& t) {
    for (const int n : sizes) {
        INFO(s.type() << ", n = " << n);
        CHECK(s.supports(n) == t.supports(n));
        if (!s.supports(n) || !t.supports(n)) continue;
        CHECK(s.rounds(n) == t.rounds(n));
        CHECK(s.ports(n) == t.ports(n));
        CHECK(s.blocks(n) == t.blocks(n));
        CHECK(volume(s, n) == volume(t, n));
    }
}
template <schedule S, schedule T>
void check_same_cost(const S& s, const T& t) {
    check_same_cost(any_schedule(s), any_schedule(t));
}
bool same_steps(const any_schedule& s, const any_schedule& t, int n) {
    if (s.rounds(n) != t.rounds(n) || s.ports(n) != t.ports(n)) return false;
    if (s.blocks(n) != t.blocks(n)) return false;
    for (int r = 0; r < n; ++r)
        for (int k = 0; k < s.rounds(n); ++k)
            for (int p = 0; p < s.ports(n); ++p) {
                const step a = s.at(r, n, k, p), b = t.at(r, n, k, p);
                if (a.send.peer != b.send.peer || a.send.blocks != b.send.blocks) return false;
                if (a.recv.peer != b.recv.peer || a.recv.blocks != b.recv.blocks) return false;
                if (a.recv.action != b.recv.action) return false;
            }
    return true;
}

}  // namespace

// ---- types: these laws hold or the test does not compile ----

// reversed is an involution, also where it is made of others.
template <class S>
inline constexpr bool involution = std::is_same_v<reversed<reversed<S>>, S>;
static_assert(involution<rs> && involution<tree<>::broadcast> && involution<halves::scatter>);
static_assert(involution<swap_all_to_all> && involution<recursive_doubling::barrier>);
static_assert(involution<compose<rs, ag>> && involution<compose<tree<>::scatter, ag>>);
static_assert(involution<striped<rs, permuted<rs, mirror>>> && involution<permuted<rs, shift<2>>>);
static_assert(involution<folded<halves::reduce_scatter>> && involution<folded<halves_all_reduce>>);
static_assert(involution<ring> && involution<reversed<ring>>);

// It goes through every combinator.
static_assert(std::is_same_v<reversed<compose<tree<>::scatter, ag>>, compose<rs, reversed<tree<>::scatter>>>);
static_assert(std::is_same_v<reversed<compose<rs, ag>>, compose<rs, ag>>);
static_assert(std::is_same_v<reversed<striped<rs, circulant<>::reduce_scatter>>,
    striped<ag, reversed<circulant<>::reduce_scatter>>>);
static_assert(std::is_same_v<reversed<permuted<rs, mirror>>, permuted<ag, mirror>>);
static_assert(std::is_same_v<folded<reversed<halves::reduce_scatter>>, reversed<folded<halves::reduce_scatter>>>);

// What there is no reverse of.
static_assert(!detail::reversible<recursive_doubling::all_reduce> && !detail::reversible<ring::inclusive_scan>);
static_assert(!detail::reversible<folded<recursive_doubling::all_reduce>>);
static_assert(!detail::reversible<permuted<recursive_doubling::all_reduce, mirror>>);

// What a schedule run backwards implements.
static_assert(reversed<rs>::implements == all_gather && reversed<ag>::implements == reduce_scatter);
static_assert(reversed<tree<>::broadcast>::implements == reduce && reversed<tree<>::scatter>::implements == gather);
static_assert(reversed<swap_all_to_all>::implements == all_to_all);
static_assert(reversed<recursive_doubling::barrier>::implements == barrier);

// What a composition implements.
using tree_gather = reversed<tree<>::scatter>;
using tree_reduce = reversed<tree<>::broadcast>;
static_assert(compose<rs, ag>::implements == all_reduce);
static_assert(compose<tree_reduce, tree<>::broadcast>::implements == all_reduce);
static_assert(compose<tree<>::scatter, ag>::implements == broadcast);
static_assert(compose<rs, tree_gather>::implements == reduce);
static_assert(compose<tree_reduce, tree<>::scatter>::implements == reduce_scatter);
static_assert(compose<tree_gather, tree<>::broadcast>::implements == all_gather);
static_assert(compose<recursive_doubling::barrier, recursive_doubling::barrier>::implements == barrier);
// Pairs that make no collective, and pairs whose owners disagree.
static_assert(detail::composable<rs, ag>() && !detail::composable<ag, rs>() && !detail::composable<tree_gather, ag>());
static_assert(!detail::composable<rs, rs>() && !detail::composable<rs, tree<>::broadcast>());
static_assert(!detail::composable<rs, permuted<ag, mirror>>() && !detail::composable<displaced::reduce_scatter, ag>());
static_assert(!detail::composable<tree_reduce, permuted<tree<>::broadcast, mirror>>());
static_assert(detail::composable<displaced::reduce_scatter, reversed<displaced::reduce_scatter>>());
static_assert(detail::composable<permuted<rs, mirror>, permuted<ag, mirror>>());
// Lanes with one root, or none.
static_assert(!detail::stripable<tree<>::broadcast, permuted<tree<>::broadcast, mirror>>());
static_assert(!detail::stripable<tree<>::broadcast, tree<>::scatter>());
static_assert(detail::stripable<rs, permuted<rs, mirror>>());

// Families and schedules are told apart; what is neither is neither.
struct lacks_rounds {
    static constexpr collective implements = collective::barrier;
    static constexpr step at(int, int, int) { return {}; }
};
struct names_nothing {
    int reduce_scatter = 0;
};
static_assert(family<ring> && family<tree<3>> && family<halves> && !schedule<ring>);
static_assert(schedule<rs> && !family<rs> && !family<int> && !schedule<int>);
static_assert(!schedule<lacks_rounds> && !family<lacks_rounds> && !family<names_nothing>);
static_assert(family<striped<ring, ring>> && family<permuted<ring, mirror>> && family<folded<halves>> &&
              family<compose<ring, circulant<>>> && family<reversed<ring>>);
static_assert(schedule<striped<rs, rs>> && schedule<permuted<rs, mirror>> && schedule<folded<rs>> &&
              schedule<compose<rs, ag>> && schedule<synchronising<rs>>);

// What a family provides, by derivation; a plain schedule derives nothing.
template <class F, collective... C>
inline constexpr bool provides_all = (provides<F, C> && ...);
template <class F, collective... C>
inline constexpr bool provides_none = (!provides<F, C> && ...);
static_assert(provides_all<halves, reduce_scatter, all_gather, scatter, gather, broadcast, reduce, all_reduce>);
static_assert(provides<halves, barrier>);
static_assert(provides_none<halves, all_to_all, inclusive_scan, exclusive_scan>);
static_assert(provides_all<tree<>, broadcast, reduce, scatter, gather, all_reduce, barrier>);
static_assert(provides_none<tree<>, reduce_scatter, all_gather, all_to_all>);
static_assert(provides<rs, reduce_scatter> && provides_none<rs, all_gather, all_reduce, barrier>);
static_assert(std::is_same_v<schedule_for<halves, all_reduce>,
    compose<halves::reduce_scatter, reversed<halves::reduce_scatter>>>);
static_assert(
    std::is_same_v<schedule_for<halves, broadcast>, compose<halves::scatter, reversed<halves::reduce_scatter>>>);
static_assert(std::is_same_v<schedule_for<halves, reduce>, reversed<schedule_for<halves, broadcast>>>);
static_assert(std::is_same_v<schedule_for<tree<>, all_reduce>, compose<tree_reduce, tree<>::broadcast>>);
static_assert(std::is_same_v<schedule_for<ring, barrier>, synchronising<rs>>);
static_assert(std::is_same_v<schedule_for<tree<>, barrier>, synchronising<schedule_for<tree<>, all_reduce>>>);
static_assert(std::is_same_v<schedule_for<displaced, all_reduce>,
    compose<displaced::reduce_scatter, reversed<displaced::reduce_scatter>>>);

// A combinator of families is the family of the combinations.
using lanes = striped<ring, permuted<ring, mirror>>;
static_assert(std::is_same_v<schedule_for<lanes, all_gather>, striped<ag, permuted<ag, mirror>>>);
static_assert(!provides<lanes, broadcast> && provides<striped<ring, tree<>>, broadcast>);
static_assert(std::is_same_v<schedule_for<folded<halves>, all_reduce>, folded<halves_all_reduce>>);
static_assert(std::is_same_v<schedule_for<reversed<ring>, all_gather>, ag>);
static_assert(std::is_same_v<schedule_for<compose<ring, circulant<>>, all_reduce>,
    compose<rs, reversed<circulant<>::reduce_scatter>>>);
static_assert(provides_none<compose<ring, circulant<>>, reduce_scatter, inclusive_scan>);
static_assert(provides_none<permuted<ring, mirror>, inclusive_scan, exclusive_scan>);
static_assert(provides_none<folded<recursive_doubling>, inclusive_scan>);

// Stateless schedules make stateless ones, and all are copied as bytes.
static_assert(std::is_empty_v<compose<rs, ag>> && std::is_empty_v<striped<rs, rs, rs>> &&
              std::is_empty_v<permuted<rs, shift<1>>> && std::is_empty_v<folded<rs>> && std::is_empty_v<reversed<rs>>);
static_assert(std::is_trivially_copyable_v<compose<reversed<chain>, chain>>);

// The proof runs at compile time over all of it.
static_assert(proven<compose<rs, ag>, 6> && proven<striped<rs, permuted<rs, mirror>>, 6>);
static_assert(proven<folded<halves_all_reduce>, 7>);

// ---- values ----

TEST_CASE("dual is an involution on the collectives that have one") {
    for (int i = 0; i < collective_count; ++i) {
        const auto c = static_cast<collective>(i);
        INFO(name_of(c));
        CHECK(dual(dual(c)) == c);
        CHECK((dual(c) != c) == (owned(c) || rooted(c)));
        CHECK(rooted(dual(c)) == rooted(c));
    }
}

TEST_CASE("reversed: is proven, in the same rounds, ports and volume") {
    check_all_right<ag, reversed<circulant<>::reduce_scatter>, reversed<direct::reduce_scatter>, tree_reduce,
        reversed<tree<3>::scatter>, reversed<swap_all_to_all>, reversed<displaced::reduce_scatter>,
        reversed<recursive_doubling::barrier>, reversed<compose<tree<>::scatter, ag>>>();
    check_same_cost(rs{}, ag{});
    check_same_cost(direct::reduce_scatter{}, reversed<direct::reduce_scatter>{});
    check_same_cost(tree<3>::scatter{}, reversed<tree<3>::scatter>{});
    check_same_cost(swap_all_to_all{}, reversed<swap_all_to_all>{});
    check_same_cost(chain{5}, reversed_of(chain{5}));
}

TEST_CASE("reversed of all_to_all swaps input with output") {
    const swap_all_to_all s;
    const auto r = reversed_of(s);
    for (int n : {2, 5, 8})
        for (int rank = 0; rank < n; ++rank)
            for (int slot = 0; slot < n; ++slot) {
                CHECK(r.input(rank, n, slot) == output_of(s, rank, n, slot));
                CHECK(r.output(rank, n, slot) == input_of(s, rank, n, slot));
            }
}

TEST_CASE("reversed and compose carry the state of their parts") {
    const auto sum = reversed_of(chain{3});
    CHECK(sum.blocks(4) == 3);
    CHECK(reversed_of(sum).segments == 3);
    const compose both{sum, chain{4}};
    CHECK(both.blocks(7) == 12);
    CHECK(both.rounds(7) == (5 + 3) + (5 + 4));
    const auto back = reversed_of(both);
    CHECK(back.first().blocks(4) == 4);
    CHECK(back.second().segments == 3);
    check_right(both);
    check_right(back);
    check_right(compose{sum, tree<>::scatter{}});
    check_right(compose{tree_gather{}, chain{4}});
    check_right(striped{chain{3}, chain{2}, chain{1}});
    check_right(reversed_of(striped{chain{3}, chain{2}}));
    check_right(permuted{chain{3}, shift<2>{}});
}

void check_composition(const any_schedule& c, const any_schedule& a, const any_schedule& b) {
    check_right(c);
    for (const int n : sizes) {
        INFO(c.type() << ", n = " << n);
        CHECK(c.supports(n) == (a.supports(n) && b.supports(n)));
        if (!c.supports(n)) continue;
        CHECK(c.rounds(n) == a.rounds(n) + b.rounds(n));
        CHECK(c.ports(n) == std::max(a.ports(n), b.ports(n)));
        CHECK(c.blocks(n) == lcm(a.blocks(n), b.blocks(n)));
        CHECK(volume(c, n) == volume_in(a, n, c.blocks(n)) + volume_in(b, n, c.blocks(n)));
    }
}
template <schedule A, schedule B>
void check_composition(const A& a, const B& b) {
    check_composition(any_schedule(compose{a, b}), any_schedule(a), any_schedule(b));
}

TEST_CASE("compose: is proven; rounds and bytes add, ports are the maximum") {
    check_composition(rs{}, ag{});
    check_composition(circulant<>::reduce_scatter{}, ag{});
    check_composition(direct::reduce_scatter{}, ag{});
    check_composition(tree<>::scatter{}, ag{});
    check_composition(rs{}, reversed<tree<3>::scatter>{});
    check_composition(tree_reduce{}, tree<3>::broadcast{});
    check_composition(tree_reduce{}, tree<>::scatter{});
    check_composition(tree_gather{}, tree<3>::broadcast{});
    check_composition(halves::reduce_scatter{}, ag{});
    check_composition(displaced::reduce_scatter{}, reversed<displaced::reduce_scatter>{});
    check_composition(recursive_doubling::barrier{}, recursive_doubling::barrier{});
    check_composition(folded<halves::reduce_scatter>{}, folded<reversed<halves::reduce_scatter>>{});
    check_composition(striped<rs, permuted<rs, mirror>>{}, striped<ag, permuted<ag, mirror>>{});
}

TEST_CASE("compose: a size at which the state of the parts makes their owners disagree is not supported") {
    // Two mappings of one type, with which owners agree by default only.
    struct turn {
        int by = 0;
        constexpr int role(int rank, int n) const { return mod(rank - by, n); }
        constexpr int rank(int role, int n) const { return mod(role + by, n); }
    };
    const auto on = [](int a, int b) { return compose{permuted{rs{}, turn{a}}, permuted{ag{}, turn{b}}}; };
    CHECK(supports(on(1, 1), 5));
    CHECK(!supports(on(1, 2), 5));
    CHECK(supports(on(1, 6), 5));
    check_right(on(2, 2));
    check_right(on(2, 3));
}

TEST_CASE("compose: parts that have no blocks at a size are refused there, and right elsewhere") {
    struct halved : ring::reduce_scatter {
        static constexpr int blocks(int n) { return n == 1 ? 0 : n; }
    };
    const compose none_at_one{halved{}, reversed<halved>{}};
    CHECK(!verify(none_at_one, 1).ok());
    CHECK(verify(none_at_one, 4).ok());
}

void check_lanes_of(const any_schedule& lane, const std::vector<any_schedule>& all) {
    check_right(lane);
    for (const int n : sizes) {
        INFO(lane.type() << ", n = " << n);
        CHECK(lane.supports(n) == std::all_of(all.begin(), all.end(), [&](const auto& s) { return s.supports(n); }));
        if (!lane.supports(n)) continue;
        // Each lane moves its own share of the data: bytes moved are the mean.
        const int each = lane.blocks(n) / static_cast<int>(all.size());
        int ports = 0, rounds = 0;
        long sent = 0;
        for (const any_schedule& s : all) {
            ports += s.ports(n);
            rounds = std::max(rounds, s.rounds(n));
            sent += volume_in(s, n, each);
        }
        CHECK(lane.ports(n) == ports);
        CHECK(lane.rounds(n) == rounds);
        CHECK(volume(lane, n) == sent);
    }
}
template <class... S>
void check_lanes(const S&... s) {
    check_lanes_of(any_schedule(striped{s...}), {any_schedule(s)...});
}

TEST_CASE("striped: is proven; ports add, bytes are the mean, rounds those of the longest lane") {
    check_lanes(rs{});
    check_lanes(rs{}, permuted<rs, mirror>{});
    check_lanes(rs{}, circulant<>::reduce_scatter{}, halves::reduce_scatter{});
    check_lanes(ag{}, permuted<ag, shift<1>>{});
    check_lanes(tree<>::broadcast{}, chain{3}, compose<tree<>::scatter, ag>{});
    check_lanes(compose<tree_reduce, tree<>::broadcast>{}, permuted<compose<rs, ag>, mirror>{},
        recursive_doubling::all_reduce{});
    check_lanes(direct::all_to_all{}, swap_all_to_all{}, permuted<swap_all_to_all, mirror>{});
    check_lanes(ring::inclusive_scan{}, recursive_doubling::inclusive_scan{});
    check_lanes(recursive_doubling::barrier{}, synchronising<rs>{});
}

using mapping = std::function<int(int, int)>;
void check_permutation(const any_schedule& p, const any_schedule& s, const mapping& role_of, const mapping& rank_of) {
    check_right(p);
    check_same_cost(s, p);
    for (const int n : sizes) {
        if (!s.supports(n)) continue;
        INFO(p.type() << ", n = " << n);
        if (rooted(s.implements)) CHECK(p.root(n) == rank_of(s.root(n), n));
        for (int r = 0; r < n; ++r) {
            REQUIRE(rank_of(role_of(r, n), n) == r);
            for (int k = 0; k < s.rounds(n); ++k)
                for (int port = 0; port < s.ports(n); ++port) {
                    const step mine = p.at(r, n, k, port), role = s.at(role_of(r, n), n, k, port);
                    const auto named = [&](int peer) { return peer == none ? none : rank_of(peer, n); };
                    REQUIRE(mine.send.peer == named(role.send.peer));
                    REQUIRE(mine.recv.peer == named(role.recv.peer));
                    REQUIRE(mine.send.blocks == role.send.blocks);
                    REQUIRE(mine.recv.action == role.recv.action);
                }
        }
    }
}
template <schedule S, class M>
void check_permutation(const S& s, const M& m) {
    check_permutation(
        any_schedule(permuted{s, m}), any_schedule(s), [m](int rank, int n) { return m.role(rank, n); },
        [m](int role, int n) { return m.rank(role, n); });
}

/// Ranks 0, 2, 4, ... and then 1, 3, 5, ...: no rotation, and not its own inverse.
struct evens_first {
    constexpr int rank(int role, int n) const { return role < (n + 1) / 2 ? 2 * role : 2 * (role - (n + 1) / 2) + 1; }
    constexpr int role(int rank, int n) const { return rank % 2 == 0 ? rank / 2 : (n + 1) / 2 + rank / 2; }
};

TEST_CASE("permuted: is proven, at the same cost; rank r does what role(r) did") {
    check_permutation(rs{}, mirror{});
    check_permutation(rs{}, evens_first{});
    check_permutation(displaced::reduce_scatter{}, shift<5>{});
    check_permutation(tree<>::broadcast{}, mirror{});
    check_permutation(tree<3>::scatter{}, evens_first{});
    check_permutation(reversed<tree<3>::scatter>{}, shift<-1>{});
    check_permutation(compose<tree_reduce, tree<>::broadcast>{}, shift<40>{});
    check_permutation(swap_all_to_all{}, evens_first{});
    check_permutation(direct::all_to_all{}, shift<3>{});
    check_permutation(recursive_doubling::barrier{}, mirror{});
}

/// Both ways the same rotation, which is no inverse of itself.
struct one_way {
    constexpr int role(int rank, int n) const { return mod(rank + 1, n); }
    constexpr int rank(int role, int n) const { return mod(role + 1, n); }
};
/// All ranks have one role.
struct crowd {
    constexpr int role(int, int n) const { return n - 1; }
    constexpr int rank(int, int n) const { return n - 1; }
};
struct rotation {
    int by = 0;
    constexpr int role(int rank, int n) const { return mod(rank - by, n); }
    constexpr int rank(int role, int n) const { return mod(role + by, n); }
};

TEST_CASE("permutes: a mapping without state is judged as a type, one with state at each size") {
    CHECK(detail::permutes<mirror>());
    CHECK(detail::permutes<shift<3>>());
    CHECK(detail::permutes<rotation>());
    CHECK_FALSE(detail::permutes<one_way>());
    CHECK_FALSE(detail::permutes<crowd>());
    CHECK_FALSE(detail::permutes<int>());
    for (const int n : sizes) {
        CHECK(detail::permutes(rotation{5}, n));
        CHECK(detail::permutes(one_way{}, n) == (n <= 2));
        CHECK(detail::permutes(crowd{}, n) == (n == 1));
    }
}

void check_fold(const any_schedule& f, const any_schedule& s, int more_rounds) {
    check_right(f);
    for (const int n : sizes) {
        INFO(f.type() << ", n = " << n);
        CHECK(f.supports(n));
        if (s.supports(n)) {
            CHECK(same_steps(f, s, n));
        } else {
            int p = 1;
            while (2 * p <= n) p *= 2;
            CHECK(f.rounds(n) == s.rounds(p) + more_rounds);
        }
    }
}
template <schedule S>
void check_fold(const S& s, int more_rounds) {
    check_fold(any_schedule(folded_of(s)), any_schedule(s), more_rounds);
}

TEST_CASE("folded: is proven at every size; a legal size is unchanged, any other takes two rounds more") {
    check_fold(halves_all_reduce{}, 2);
    check_fold(recursive_doubling::all_reduce{}, 2);
    check_fold(halves::reduce_scatter{}, 2);
    check_fold(reversed<halves::reduce_scatter>{}, 2);
    check_fold(halves::scatter{}, 1);
    check_fold(reversed<halves::scatter>{}, 1);
    check_fold(schedule_for<halves, broadcast>{}, 1);
    check_fold(schedule_for<halves, reduce>{}, 1);
    check_fold(schedule_for<halves, barrier>{}, 2);
    check_fold(striped<halves_all_reduce, permuted<halves_all_reduce, mirror>>{}, 2);
    check_fold(permuted<halves::reduce_scatter, mirror>{}, 2);
    check_fold(compose<tree_reduce, tree<>::broadcast>{}, 0);
    // A broadcast that sends the root what it has (scatter, then all_gather) is folded, then run backwards.
    check_right(reversed<folded<schedule_for<halves, broadcast>>>{});
    check_right(reversed<folded<halves::reduce_scatter>>{});
    check_right(reversed<folded<halves_all_reduce>>{});
}

TEST_CASE("folded: combines in rank order where the schedule does") {
    for (const int n : sizes) {
        INFO("n = " << n);
        CHECK(properties_of(folded<recursive_doubling::all_reduce>{}, n).order_preserving);
    }
}

TEST_CASE("folded: adds its rounds twice inside a compose, once outside") {
    const folded<halves_all_reduce> outside;
    const compose<folded<halves::reduce_scatter>, folded<reversed<halves::reduce_scatter>>> inside;
    for (const int n : {3, 5, 7, 13, 33}) CHECK(inside.rounds(n) == outside.rounds(n) + 2);
    for (const int n : {2, 4, 8, 32}) CHECK(inside.rounds(n) == outside.rounds(n));
}

TEST_CASE("folded: every rank is the home of a slot, and every slot has a home") {
    const folded<halves::reduce_scatter> f;
    for (const int n : sizes) {
        INFO("n = " << n);
        std::vector<int> parts(static_cast<std::size_t>(n));
        for (int slot = 0; slot < f.blocks(n); ++slot) {
            const int home = f.home(n, slot);
            REQUIRE(home >= 0);
            REQUIRE(home < n);
            ++parts[static_cast<std::size_t>(home)];
        }
        for (const int p : parts) CHECK(p > 0);
    }
}

TEST_CASE("the slots that a rank owns may be several stretches at uneven distances") {
    using three = striped<rs, permuted<rs, mirror>, permuted<rs, shift<1>>>;
    using half = halves::reduce_scatter;
    using three_halves = striped<half, permuted<half, mirror>, half>;
    check_all_right<three, reversed<three>, compose<three, reversed<three>>, folded<three_halves>,
        reversed<folded<three_halves>>, striped<three, folded<halves::reduce_scatter>>>();
}

TEST_CASE("synchronising: is proven, in the same rounds, without bytes") {
    check_all_right<synchronising<rs>, synchronising<ag>, synchronising<compose<rs, ag>>,
        synchronising<swap_all_to_all>, synchronising<recursive_doubling::all_reduce>,
        synchronising<direct::reduce_scatter>>();
    for (const int n : sizes) {
        CHECK(synchronising<rs>{}.rounds(n) == rs{}.rounds(n));
        CHECK(volume(any_schedule(synchronising<rs>{}), n) == 0);
    }
}

void check_right_for(collective c, const any_schedule& s) {
    INFO(name_of(c));
    CHECK(s.implements == c);
    check_right(s);
}
template <class F, int C = 0>
int check_family(const F& f = {}) {
    if constexpr (C == collective_count) {
        return 0;
    } else {
        constexpr auto c = static_cast<collective>(C);
        if constexpr (provides<F, c>) {
            check_right_for(c, any_schedule(schedule_of<c>(f)));
            return 1 + check_family<F, C + 1>(f);
        } else {
            return check_family<F, C + 1>(f);
        }
    }
}

/// Is not copied as bytes.
struct named_ring : ring {
    std::string name;
};

TEST_CASE("families: a schedule is none, nor is what names no schedule or is not copied as bytes") {
    CHECK(detail::names_schedules<ring>());
    CHECK(detail::names_schedules<halves>());
    CHECK_FALSE(detail::names_schedules<ring::reduce_scatter>());
    CHECK_FALSE(detail::names_schedules<names_nothing>());
    CHECK_FALSE(detail::names_schedules<named_ring>());
    CHECK_FALSE(detail::names_schedules<int>());
}

TEST_CASE("families: every derived schedule is proven") {
    CHECK(check_family<halves>() == 8);
    CHECK(check_family<tree<>>() == 6);
    CHECK(check_family<displaced>() == 4);
    CHECK(check_family<ring>() >= 8);
    CHECK(check_family<circulant<>>() >= 4);
}

TEST_CASE("families: every schedule of a combinator of families is proven") {
    CHECK(check_family<lanes>() == check_family<striped<ring, ring>>() - 4);  // neither rooted nor scans
    CHECK(check_family<folded<halves>>() == 8);
    CHECK(check_family<folded<recursive_doubling>>() == 2);
    CHECK(check_family<permuted<tree<3>, evens_first>>() == 6);
    CHECK(check_family<reversed<halves>>() == 8);
    CHECK(check_family<compose<tree<>, ring>>() >= 3);
    CHECK(check_family<striped<folded<halves>, permuted<folded<halves>, shift<1>>>>() == 4);
}

}  // namespace algebra_test
