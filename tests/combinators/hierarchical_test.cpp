// hierarchical<Intra, Inter>: its laws, for every collective, at two and three levels, with nodes of every size.
#include "catch.hpp"

#include "support/star.hpp"

#include <colls/algebra.hpp>
#include <colls/any_schedule.hpp>
#include <colls/schedules/circulant.hpp>
#include <colls/schedules/direct.hpp>
#include <colls/schedules/hierarchical.hpp>
#include <colls/schedules/recursive_doubling.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/schedules/tree.hpp>
#include <colls/verify.hpp>
#include <colls/verify/report.hpp>

#include <iterator>
#include <utility>
#include <vector>

// Within it the names of collectives hide those of the calls.
namespace hierarchical_test {

using namespace colls;
using support::star;
using enum colls::collective;

namespace {

constexpr int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 17, 18, 24, 31, 32, 33, 36};

/// Bruck's all_to_all: slot i stands for the rank i away, and runs of slots move together.
struct bruck_exchange {
    struct all_to_all {
        static constexpr collective implements = collective::all_to_all;
        static constexpr int rounds(int n) { return log2_ceil(n); }
        static constexpr int input(int r, int n, int slot) { return (r + slot) % n; }
        static constexpr int output(int r, int n, int slot) { return mod(r - slot, n); }
        static constexpr step at(int r, int n, int k) {
            const int d = 1 << k;
            int count = 0;
            for (int i = 0; i < n; ++i) count += i / d % 2;
            const block_set moved{.first = d, .count = count, .run = d, .period = 2 * d};
            return {.send = {(r + d) % n, moved}, .recv = {mod(r - d, n), moved}};
        }
    };
};
/// Recursive halving, for powers of two.
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
};

/// Two blocks a rank, r and r + n, on one port: what a rank owns is no one stretch.
struct two_blocks {
    struct reduce_scatter {
        static constexpr collective implements = collective::reduce_scatter;
        static constexpr int blocks(int n) { return 2 * n; }
        static constexpr int home(int n, int slot) { return slot % n; }
        static constexpr int rounds(int n) { return n - 1; }
        static constexpr step at(int r, int n, int k) {
            const auto both = [n](int b) { return block_set{.first = b, .count = 2, .period = n}; };
            const int to = (r + k + 1) % n;
            return {.send = {to, both(to)}, .recv = {mod(r - k - 1, n), both(r), action::reduce}};
        }
    };
};
/// A scan with a scratch slot, in which the value on its way is kept.
struct scratch_scan {
    struct inclusive_scan {
        static constexpr collective implements = collective::inclusive_scan;
        static constexpr int rounds(int n) { return n < 2 ? 0 : 2 * (n - 1); }
        static constexpr int scratch(int) { return 1; }
        static constexpr step at(int r, int, int k) {
            if (k % 2 == 0 && r == k / 2) return {.send = {r + 1, block(0)}};
            if (k % 2 == 0 && r == k / 2 + 1) return {.recv = {r - 1, block(1)}};
            if (k % 2 == 1 && r == k / 2 + 1) return {.send = {r, block(1)}, .recv = {r, block(0), action::reduce}};
            return {};
        }
    };
    using broadcast = tree<>::broadcast;
};

/// The schedules of the family, their types erased: what follows is compiled once.
template <class F>
std::vector<any_schedule> schedules_of(const F& f) {
    std::vector<any_schedule> all;
    const auto add = [&]<int C>(std::integral_constant<int, C>) {
        if constexpr (constexpr auto c = static_cast<collective>(C); provides<F, c>)
            all.push_back(any_schedule(schedule_of<c>(f)));
    };
    [&]<int... C>(std::integer_sequence<int, C...>) { (add(std::integral_constant<int, C>{}), ...); }(
        std::make_integer_sequence<int, collective_count>{});
    return all;
}

/// How many of them were checked, and are right.
int check_schedules(const std::vector<any_schedule>& all, int n) {
    int right = 0;
    for (const any_schedule& s : all)
        if (s.supports(n)) {
            const report r = verify(s, n);
            INFO(s.type() << ", " << name_of(s.implements) << ", n = " << n << ": " << r.text());
            CHECK(r.ok());
            right += r.ok();
        }
    return right;
}
template <class F>
int check_family(const F& f, int n) {
    return check_schedules(schedules_of(f), n);
}
/// How many schedules, over all sizes.
template <class F>
int check_everywhere(const F& f = {}) {
    const std::vector<any_schedule> all = schedules_of(f);
    int right = 0;
    for (const int n : sizes) right += check_schedules(all, n);
    return right;
}
constexpr int all_sizes = static_cast<int>(std::size(sizes));

/// Blocks that cross from one node to another, and those that stay in one.
struct traffic {
    long inside = 0, across = 0;
};
traffic traffic_of(const any_schedule& s, int n, int node) {
    traffic t;
    for (int r = 0; r < n; ++r)
        for (int k = 0; k < s.rounds(n); ++k)
            for (int p = 0; p < s.ports(n); ++p) {
                const step st = s.at(r, n, k, p);
                if (st.send.peer == none || st.send.peer == r) continue;
                (st.send.peer / node == r / node ? t.inside : t.across) += st.send.blocks.size();
            }
    return t;
}
template <collective C, class F>
traffic traffic_of(const F& f, int n, int node) {
    return traffic_of(any_schedule(schedule_of<C>(f)), n, node);
}

}  // namespace

// ---- types ----

template <class F, collective... C>
inline constexpr bool provides_all = (provides<F, C> && ...);

static_assert(family<hierarchical<ring, ring>> && !schedule<hierarchical<ring, ring>>);
static_assert(provides_all<hierarchical<direct, ring>, broadcast, all_gather, reduce, reduce_scatter, all_reduce,
    barrier, inclusive_scan, exclusive_scan>);
static_assert(provides_all<hierarchical<direct, direct>, scatter, gather, all_to_all>);
static_assert(provides<hierarchical<tree<>, recursive_doubling>, all_reduce>);
static_assert(!provides<hierarchical<tree<>, recursive_doubling>, reduce_scatter>);
static_assert(!provides<hierarchical<recursive_doubling, tree<>>, all_reduce>);
static_assert(provides<hierarchical<ring::reduce_scatter, circulant<>>, reduce_scatter>);
static_assert(provides_all<hierarchical<ring::reduce_scatter, circulant<>>, all_gather, all_reduce>);
static_assert(!provides<hierarchical<ring::reduce_scatter, circulant<>>, broadcast>);

// Backwards, it is made of its levels backwards.
template <collective C>
inline constexpr bool dual_by_reversal = std::is_same_v<schedule_for<hierarchical<direct, tree<>>, C>,
    reversed<schedule_for<hierarchical<direct, tree<>>, dual(C)>>>;
static_assert(dual_by_reversal<broadcast> && dual_by_reversal<reduce>);
static_assert(dual_by_reversal<scatter> && dual_by_reversal<gather>);
static_assert(std::is_same_v<schedule_for<hierarchical<direct, circulant<>>, all_gather>,
    reversed<schedule_for<hierarchical<direct, circulant<>>, reduce_scatter>>>);
static_assert(std::is_same_v<reversed<schedule_for<hierarchical<direct, ring>, all_reduce>>,
    schedule_for<hierarchical<direct, ring>, all_reduce>>);

// Two levels do not agree on owners with one: no composition of them compiles.
static_assert(
    !detail::composable<schedule_for<hierarchical<ring, ring>, reduce_scatter>, schedule_for<ring, all_gather>>());
static_assert(!detail::composable<schedule_for<hierarchical<ring, direct>, reduce_scatter>,
    schedule_for<hierarchical<direct, direct>, gather>>());
static_assert(detail::composable<schedule_for<hierarchical<ring, ring>, reduce_scatter>,
    schedule_for<hierarchical<circulant<>, direct>, all_gather>>());

static_assert(std::is_trivially_copyable_v<schedule_for<hierarchical<direct, hierarchical<ring, ring>>, all_reduce>>);
static_assert(proven<schedule_for<hierarchical<direct, ring>, all_reduce>, 8>);
using three_brucks = hierarchical<bruck_exchange, hierarchical<bruck_exchange, bruck_exchange>>;
static_assert(proven_at<schedule_for<three_brucks, all_to_all>, 8>);

// ---- values ----

TEST_CASE("hierarchical: every collective is proven at two levels") {
    CHECK(check_everywhere<hierarchical<direct, direct>>() == 11 * all_sizes);
    CHECK(check_everywhere<hierarchical<direct, ring>>() >= 8 * all_sizes);
    CHECK(check_everywhere<hierarchical<ring, direct>>() >= 8 * all_sizes);
    CHECK(check_everywhere<hierarchical<circulant<>, tree<3>>>() >= 2 * all_sizes);
    CHECK(check_everywhere<hierarchical<tree<>, ring>>() >= 4 * all_sizes);
    CHECK(check_everywhere<hierarchical<tree<3>, tree<>>>() == 6 * all_sizes);
    CHECK(check_everywhere<hierarchical<ring, recursive_doubling>>() > all_sizes);
    CHECK(check_everywhere<hierarchical<bruck_exchange, bruck_exchange>>() == all_sizes);
}

TEST_CASE("hierarchical: every collective is proven at three and four levels") {
    CHECK(check_everywhere<hierarchical<direct, hierarchical<ring, direct>>>() >= 8 * all_sizes);
    CHECK(check_everywhere<hierarchical<hierarchical<direct, ring>, ring>>() >= 8 * all_sizes);
    using two = hierarchical<direct, direct>;
    CHECK(check_everywhere<hierarchical<two, two>>() == 11 * all_sizes);
    CHECK(check_everywhere<three_brucks>() == all_sizes);
    CHECK(check_everywhere<hierarchical<hierarchical<bruck_exchange, bruck_exchange>, bruck_exchange>>() == all_sizes);
}

TEST_CASE("hierarchical: is proven over striped, folded and permuted levels, and inside of them") {
    using lanes = striped<ring, permuted<ring, mirror>>;
    CHECK(check_everywhere<hierarchical<lanes, ring>>() >= 4 * all_sizes);
    CHECK(check_everywhere<hierarchical<ring, lanes>>() >= 4 * all_sizes);
    CHECK(check_everywhere<hierarchical<lanes, hierarchical<lanes, ring>>>() >= 4 * all_sizes);
    CHECK(check_everywhere<hierarchical<folded<halves>, ring>>() >= 4 * all_sizes);
    CHECK(check_everywhere<hierarchical<ring, folded<halves>>>() == 4 * all_sizes);
    CHECK(check_everywhere<hierarchical<folded<halves>, folded<recursive_doubling>>>() == 2 * all_sizes);
    CHECK(check_everywhere<striped<hierarchical<ring, direct>, ring>>() >= 5 * all_sizes);
    CHECK(check_everywhere<permuted<hierarchical<ring, direct>, mirror>>() >= 5 * all_sizes);
    CHECK(check_everywhere<folded<hierarchical<halves, halves>>>() == 4 * all_sizes);
    CHECK(check_everywhere<reversed<hierarchical<direct, direct>>>() == 9 * all_sizes);
}

TEST_CASE("hierarchical: is proven with levels that have their own owners, roots and scratch slots") {
    CHECK(check_everywhere<hierarchical<two_blocks, ring>>() == 4 * all_sizes);
    CHECK(check_everywhere<hierarchical<ring, two_blocks>>() == 4 * all_sizes);
    CHECK(check_everywhere<hierarchical<two_blocks, two_blocks>>() == 4 * all_sizes);
    CHECK(check_everywhere<hierarchical<star, tree<>>>() == 6 * all_sizes);
    CHECK(check_everywhere<hierarchical<tree<>, star>>() == 6 * all_sizes);
    CHECK(check_everywhere<hierarchical<star, star>>() == 8 * all_sizes);
    CHECK(check_everywhere<hierarchical<scratch_scan, hierarchical<direct, ring>>>() >= 3 * all_sizes);
}

TEST_CASE("hierarchical: only an all_to_all that one block set cannot express is not supported") {
    // Across 8 nodes the first lane repeats its blocks over half of its slots; another repetition does not join on.
    const hierarchical<bruck_exchange, striped<hierarchical<bruck_exchange, bruck_exchange>, direct>> h{.node = 8};
    CHECK(!supports(schedule_of<all_to_all>(h), 64));
    CHECK(check_family(h, 16) == 1);
    CHECK(check_family(h, 56) == 1);
}

TEST_CASE("hierarchical: is proven for nodes of every size, equal or nested") {
    for (const int n : {4, 6, 8, 12, 18, 24}) {
        for (int node = 1; node <= n; ++node) {
            const hierarchical<direct, direct> h{.node = node};
            INFO("n = " << n << ", node = " << node);
            CHECK(check_family(h, n) == (n % node == 0 ? 11 : 0));
        }
    }
    const hierarchical<direct, hierarchical<ring, direct>> deep{.node = 3, .inter = {.node = 2}};
    CHECK(check_family(deep, 12) >= 8);
    CHECK(check_family(deep, 9) == 0);
    CHECK(check_family(hierarchical<hierarchical<direct, direct>, ring>{.node = 6, .intra = {.node = 3}}, 24) >= 8);
    CHECK(check_family(reversed<hierarchical<direct, direct>>{hierarchical<direct, direct>{.node = 4}}, 8) == 9);
}

TEST_CASE("hierarchical: the node is the largest divisor no greater than the square root") {
    for (const auto& [n, node] : {std::pair{1, 1}, {2, 1}, {4, 2}, {6, 2}, {7, 1}, {12, 3}, {16, 4}, {24, 4}, {36, 6}})
        CHECK(detail::balanced_node(n) == node);
}

TEST_CASE("hierarchical: scans combine in rank order") {
    const hierarchical<direct, ring> two;
    const hierarchical<hierarchical<ring, direct>, hierarchical<direct, recursive_doubling>> four;
    const any_schedule scans[] = {any_schedule(schedule_of<inclusive_scan>(two)),
        any_schedule(schedule_of<exclusive_scan>(two)), any_schedule(schedule_of<inclusive_scan>(four)),
        any_schedule(schedule_of<exclusive_scan>(four))};
    for (const any_schedule& s : scans)
        for (const int n : sizes) {
            INFO(s.type() << ", n = " << n);
            CHECK(properties_of(s, n).order_preserving);
        }
}

void check_node_size(collective c, bool reverse, int found, int node) {
    INFO(name_of(c) << (reverse ? ", reversed" : ""));
    CHECK(found == node);
}
template <class F, int C = 0>
void check_node(const F& f, int node) {
    if constexpr (C < collective_count) {
        constexpr auto c = static_cast<collective>(C);
        const auto s = schedule_of<c>(f);
        if constexpr (c == barrier) {
            check_node_size(c, false, s.inner().node, node);
        } else if constexpr (c == all_gather || c == gather) {
            check_node_size(c, false, s.inner().node, node);
            check_node_size(c, true, reversed_of(s).node, node);
        } else {
            check_node_size(c, false, s.node, node);
            if constexpr (c == all_reduce || c == broadcast || c == reduce)
                check_node_size(c, true, reversed_of(s).node, node);
            if constexpr (c == all_to_all || c == scatter) check_node_size(c, true, reversed_of(s).inner().node, node);
        }
        check_node<F, C + 1>(f, node);
    }
}

TEST_CASE("hierarchical: every schedule, also reversed, carries the node size") {
    check_node(hierarchical<direct, direct>{.node = 4}, 4);
    const hierarchical<ring, hierarchical<ring, ring>> deep{.node = 2, .inter = {.node = 3}};
    CHECK(schedule_of<all_reduce>(deep).inter().node == 3);
}

void expect_rounds(collective c, int n, int found, int expected) {
    INFO(name_of(c) << ", n = " << n);
    CHECK(found == expected);
}
template <collective C, class F>
void check_rounds(const F& f, int n, int expected) {
    expect_rounds(C, n, schedule_of<C>(f).rounds(n), expected);
}

TEST_CASE("hierarchical: rounds are the sum of the levels'") {
    for (const auto& [n, m] : {std::pair{8, 2}, {12, 4}, {12, 3}, {36, 6}, {7, 1}, {7, 7}}) {
        const hierarchical<ring, circulant<>> h{.node = m};
        const hierarchical<tree<>, tree<3>> t{.node = m};
        const hierarchical<direct, ring> d{.node = m};
        const int nodes = n / m, ring_in = m - 1, circulant_across = log2_ceil(nodes);
        check_rounds<reduce_scatter>(h, n, ring_in + circulant_across);
        check_rounds<all_gather>(h, n, ring_in + circulant_across);
        check_rounds<all_reduce>(h, n, 2 * (ring_in + circulant_across));
        check_rounds<barrier>(h, n, ring_in + circulant_across);
        const int trees = tree<>::broadcast::rounds(m) + tree<3>::broadcast::rounds(nodes);
        check_rounds<broadcast>(t, n, trees);
        check_rounds<reduce>(t, n, trees);
        check_rounds<scatter>(t, n, trees);
        check_rounds<gather>(t, n, trees);
        // Scans: the levels', the broadcast inside, and what is local: the total set aside, and the result combined.
        const int scan = direct::inclusive_scan::rounds(m) + schedule_for<ring, exclusive_scan>{}.rounds(nodes) +
                         direct::broadcast::rounds(m) + 2;
        check_rounds<inclusive_scan>(d, n, nodes == 1 ? direct::inclusive_scan::rounds(m) : scan);
    }
}

TEST_CASE("hierarchical: bytes are the sum of the levels', each on its own links") {
    for (const auto& [n, m] : {std::pair{8, 2}, {8, 4}, {12, 3}, {16, 4}, {36, 6}, {10, 5}}) {
        INFO("n = " << n << ", node = " << m);
        const int nodes = n / m;
        const hierarchical<ring, ring> h{.node = m};
        // In units of 1 / n of the data: inside, n ranks send (m - 1) / m of it; across, (nodes - 1) / nodes of 1 / m.
        const auto scattered = schedule_of<reduce_scatter>(h);
        REQUIRE(scattered.blocks(n) == n);
        const traffic t = traffic_of<reduce_scatter>(h, n, m);
        CHECK(t.inside == static_cast<long>(n) * (m - 1) * nodes);
        CHECK(t.across == static_cast<long>(n) * (nodes - 1));
        const auto reduced = schedule_of<all_reduce>(h);
        REQUIRE(reduced.blocks(n) == n);
        const traffic u = traffic_of<all_reduce>(h, n, m);
        CHECK(u.inside == 2 * t.inside);
        CHECK(u.across == 2 * t.across);
        // Data crosses between nodes once a node in a broadcast, and once a block in a scatter and a gather.
        const hierarchical<tree<>, tree<>> trees{.node = m};
        CHECK(traffic_of<broadcast>(trees, n, m).across == nodes - 1);
        CHECK(traffic_of<reduce>(trees, n, m).across == nodes - 1);
        CHECK(traffic_of<broadcast>(trees, n, m).inside == static_cast<long>(nodes) * (m - 1));
        const hierarchical<direct, direct> all{.node = m};
        CHECK(traffic_of<scatter>(all, n, m).across == static_cast<long>(nodes - 1) * m);
        CHECK(traffic_of<gather>(all, n, m).across == static_cast<long>(nodes - 1) * m);
        CHECK(traffic_of<all_to_all>(all, n, m).across == static_cast<long>(n) * (n - m));
    }
}

TEST_CASE("hierarchical: all_to_all sends one message a rank and node") {
    for (const auto& [n, m] : {std::pair{8, 2}, {12, 3}, {16, 4}}) {
        const hierarchical<direct, direct> h{.node = m};
        const auto s = schedule_of<all_to_all>(h);
        int messages = 0;
        for (int p = 0; p < s.ports(n); ++p)
            if (const step st = s.at(0, n, 1, p); st.send.peer != none) {
                ++messages;
                CHECK(st.send.peer % m == 0);
                CHECK(st.send.blocks.size() == m);
            }
        CHECK(messages == n / m - 1);
    }
}

TEST_CASE("hierarchical: inter-node steps of an all_reduce join ranks of equal place only") {
    const hierarchical<circulant<>, ring> h{.node = 4};
    const auto s = schedule_of<all_reduce>(h);
    for (int r = 0; r < 12; ++r)
        for (int k = 0; k < s.rounds(12); ++k)
            for (int p = 0; p < s.ports(12); ++p) {
                const int to = s.at(r, 12, k, p).send.peer;
                if (to != none && to / 4 != r / 4) CHECK(to % 4 == r % 4);
            }
}

}  // namespace hierarchical_test
