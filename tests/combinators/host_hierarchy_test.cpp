// host_hierarchy<Inter>: its laws on hosts of different sizes with ranks in any order, and on which ranks it knows
// hosts.
#include "catch.hpp"

#include "support/random.hpp"
#include "support/star.hpp"

#include <colls/algebra.hpp>
#include <colls/any_schedule.hpp>
#include <colls/cost.hpp>
#include <colls/detail/prove/count.hpp>
#include <colls/schedules/circulant.hpp>
#include <colls/schedules/direct.hpp>
#include <colls/schedules/hierarchical.hpp>
#include <colls/schedules/host_hierarchy.hpp>
#include <colls/schedules/recursive_doubling.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/schedules/tree.hpp>
#include <colls/verify.hpp>
#include <colls/verify/report.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

using namespace colls;
using support::star;
using enum colls::collective;

namespace {

using lanes_of_rings = striped<ring, permuted<ring, mirror>>;

std::string text_of(const std::vector<int>& host) {
    std::string text;
    for (const int h : host) text += std::to_string(h) + " ";
    return text;
}

/// Proves every schedule of the family at n; returns how many it has that support n.
template <class F, int C = 0>
int check_family(const F& f, int n) {
    if constexpr (C == collective_count) {
        return 0;
    } else {
        constexpr auto c = static_cast<collective>(C);
        int right = 0;
        if constexpr (provides<F, c>) {
            const auto s = schedule_of<c>(f);
            if (supports(s, n)) {
                const report r = verify(s, n);
                if (!r.ok()) FAIL_CHECK(name_of(c) << ", n = " << n << ": " << r.text());
                right = r.ok() && (!rooted(c) || root_of(s, n) == f.root);
            }
        }
        return right + check_family<F, C + 1>(f, n);
    }
}
/// Proves the families on these hosts, with that root and number of lanes.
void check_on(const std::vector<int>& host, int root, int lanes, bool all = true) {
    const int n = static_cast<int>(host.size());
    const host_map hosts(host);
    INFO("hosts " << text_of(host) << ", root " << root << ", lanes " << lanes);
    CHECK(check_family(host_hierarchy<circulant<>>{.hosts = hosts, .lanes = lanes, .root = root}, n) == 4);
    CHECK(check_family(host_hierarchy<tree<>>{.hosts = hosts, .lanes = lanes, .root = root}, n) == 6);
    if (!all) return;
    CHECK(check_family(host_hierarchy<direct>{.hosts = hosts, .lanes = lanes, .root = root}, n) == 8);
    CHECK(check_family(host_hierarchy<lanes_of_rings>{.hosts = hosts, .lanes = lanes, .root = root}, n) == 4);
    CHECK(check_family(host_hierarchy<star>{.hosts = hosts, .lanes = lanes, .root = root}, n) == 6);
}

/// Calls f with each way to put n ranks on hosts.
template <class F>
void for_each_partition(int n, F f, std::vector<int> host = {}, int hosts = 0) {
    if (static_cast<int>(host.size()) == n) return f(host);
    host.push_back(0);
    for (int h = 0; h <= hosts; ++h) {
        host.back() = h;
        for_each_partition(n, f, host, h == hosts ? hosts + 1 : hosts);
    }
}

/// Blocks that each host sends to others.
template <class S>
std::vector<long> sent_between(const S& s, const host_map& hosts) {
    const int n = hosts.ranks();
    std::vector<long> sent(static_cast<std::size_t>(hosts.hosts()));
    for (int r = 0; r < n; ++r)
        for (int k = 0; k < s.rounds(n); ++k)
            for (int p = 0; p < ports_of(s, n); ++p)
                if (const step st = step_of(s, r, n, k, p);
                    st.send.peer != none && hosts.host_of(st.send.peer) != hosts.host_of(r))
                    sent[static_cast<std::size_t>(hosts.host_of(r))] += st.send.blocks.size();
    return sent;
}

}  // namespace

// ---- at compile time ----

constexpr host_map three_five_one = fixed_hosts<0, 0, 0, 1, 1, 1, 1, 1, 2>;
static_assert(three_five_one.hosts() == 3 && three_five_one.ranks() == 9 && three_five_one.largest() == 5);
static_assert(three_five_one.size_of(0) == 3 && three_five_one.size_of(2) == 1 && three_five_one.host_of(7) == 1);
constexpr host_map interleaved = fixed_hosts<7, 2, 7, 7, 2, 9, 7>;
static_assert(interleaved.hosts() == 3 && interleaved.host_of(0) == 0 && interleaved.host_of(5) == 2);

template <class F, collective... C>
constexpr bool right_on(host_map hosts, F f = {}) {
    f.hosts = hosts;
    return ((supports(schedule_of<C>(f), hosts.ranks()) && verify(schedule_of<C>(f), hosts.ranks()).ok()) && ...);
}
static_assert(right_on<host_hierarchy<circulant<>>, all_reduce, all_gather, reduce_scatter, barrier>(three_five_one));
static_assert(right_on<host_hierarchy<circulant<>>, all_reduce, all_gather, reduce_scatter, barrier>(interleaved));
static_assert(right_on<host_hierarchy<tree<>>, broadcast, reduce, scatter, gather>(three_five_one, {.root = 4}));
static_assert(right_on<host_hierarchy<tree<>>, broadcast, reduce>(interleaved, {.lanes = 1, .root = 5}));

static_assert(family<host_hierarchy<ring>> && !schedule<host_hierarchy<ring>>);
template <class F, collective... C>
inline constexpr bool provides_all = (provides<F, C> && ...);
static_assert(provides_all<host_hierarchy<direct>, broadcast, scatter, gather, all_gather, reduce, reduce_scatter,
    all_reduce, barrier>);
static_assert(!provides<host_hierarchy<direct>, all_to_all> && !provides<host_hierarchy<direct>, inclusive_scan>);
static_assert(!provides<host_hierarchy<recursive_doubling>, all_gather>);
static_assert(!supports(schedule_of<all_reduce>(host_hierarchy<ring>{.hosts = three_five_one}), 8));
static_assert(!supports(schedule_of<all_reduce>(host_hierarchy<recursive_doubling>{.hosts = three_five_one}), 9));
// any_schedule compares bytes.
template <class F, collective... C>
inline constexpr bool no_padding = (std::has_unique_object_representations_v<schedule_for<F, C>> && ...);
static_assert(no_padding<host_hierarchy<direct>, all_reduce, broadcast, reduce, all_gather, scatter, gather>);
static_assert(no_padding<host_hierarchy<hierarchical<direct, direct>>, all_reduce, broadcast, all_gather, scatter>);
// Without a map: one host.
static_assert(proven<schedule_for<host_hierarchy<ring>, all_reduce>, 6>);
static_assert(cost_of<schedule_for<host_hierarchy<ring>, all_reduce>>(6).rounds == 2);

// ---- maps ----

TEST_CASE("host_map: equal maps are one, whatever their hosts are called") {
    const std::vector<int> a{5, 5, 3, 5}, b{0, 0, 9, 0}, c{0, 0, 9, 9};
    CHECK(host_map(a) == host_map(b));
    CHECK(host_map(a) != host_map(c));
    CHECK(host_map(a) != host_map());
    CHECK(!host_map().known());
    const host_map m(a);
    CHECK(m.hosts() == 2);
    CHECK(m.host_of(2) == 1);
    CHECK(m.size_of(0) == 3);
    CHECK(m.size_of(1) == 1);
    CHECK(m.largest() == 3);
    CHECK(m.ranks_per_host() == 0);
    CHECK(host_map(std::vector<int>{4, 4, 1, 1}).ranks_per_host() == 2);
    CHECK(host_map(std::vector<int>{4, 1, 4, 1}).ranks_per_host() == 0);  // interleaved
    CHECK(host_map(std::vector<int>{4, 4}).ranks_per_host() == 0);        // one host
    CHECK(any_schedule(schedule_of<all_reduce>(host_hierarchy<ring>{.hosts = host_map(a)})) ==
          any_schedule(schedule_of<all_reduce>(host_hierarchy<ring>{.hosts = host_map(b)})));
}

TEST_CASE("host_map: hosts are numbered by their lowest ranks, and have the ranks that were given") {
    CHECK(host_map().ranks() + host_map().hosts() + host_map().largest() + host_map().host_of(3) == 0);
    for (int n = 1; n <= 6; ++n)
        for_each_partition(n, [&](const std::vector<int>& host) {  // which numbers hosts in that order, too
            const host_map m(host);
            INFO("hosts " << text_of(host));
            std::vector<int> of, size;
            for (int r = 0; r < m.ranks(); ++r) of.push_back(m.host_of(r));
            for (int h = 0; h < m.hosts(); ++h) size.push_back(m.size_of(h));
            CHECK(m.known());
            CHECK(of == host);
            CHECK(m.hosts() == *std::max_element(host.begin(), host.end()) + 1);
            for (int h = 0; h < m.hosts(); ++h)
                CHECK(size[static_cast<std::size_t>(h)] == std::count(host.begin(), host.end(), h));
            CHECK(m.largest() == *std::max_element(size.begin(), size.end()));
            bool alike = m.hosts() > 1 && m.size_of(m.hosts() - 1) == m.largest();
            for (int r = 0; r < n; ++r) alike = alike && m.host_of(r) == r / m.largest();
            CHECK(m.ranks_per_host() == (alike ? m.largest() : 0));
        });
}

// ---- proofs ----

TEST_CASE("host_hierarchy: every schedule is proven on all partitions of up to 7 ranks into hosts") {
    int partitions = 0;
    for (int n = 1; n <= 7; ++n)
        for_each_partition(n, [&](const std::vector<int>& host) {
            const int root = partitions++ % n;
            check_on(host, root, partitions % 3);
        });
    CHECK(partitions == 1 + 2 + 5 + 15 + 52 + 203 + 877);
}

TEST_CASE("host_hierarchy: every schedule is proven on consecutive hosts of all sizes, up to 10 ranks") {
    int compositions = 0;
    for (int n = 1; n <= 10; ++n)
        for (unsigned cuts = 0; cuts < 1u << (n - 1); ++cuts) {
            std::vector<int> host(static_cast<std::size_t>(n));
            for (std::size_t r = 1; r < host.size(); ++r) host[r] = host[r - 1] + static_cast<int>(cuts >> (r - 1) & 1);
            check_on(host, compositions % n, compositions % 4, n <= 8);
            ++compositions;
        }
    CHECK(compositions == 1023);
}

TEST_CASE("host_hierarchy: every schedule is proven on random hosts of up to 64 ranks") {
    support::random_source random = support::stream(11, 0);
    for (int i = 0; i < 60; ++i) {
        const int n = i == 0 ? 64 : random.between(9, 64), hosts = random.between(1, i % 3 == 0 ? n : 6);
        std::vector<int> host;
        for (int r = 0; r < n; ++r) host.push_back(random.between(0, hosts - 1));
        if (i % 2 == 0) std::sort(host.begin(), host.end());
        check_on(host, random.between(0, n - 1), random.between(0, 3), i % 4 == 0);
    }
}

TEST_CASE("host_hierarchy: equal hosts of consecutive ranks move the blocks of hierarchical<direct, Inter>") {
    for (const int node : {2, 4}) {
        const int n = 12;
        std::vector<int> host;
        for (int r = 0; r < n; ++r) host.push_back(r / node);
        const host_map hosts(host);
        const auto same = [&]<collective C>() {
            const auto a = schedule_of<C>(host_hierarchy<circulant<>>{.hosts = hosts});
            const auto b = schedule_of<C>(hierarchical<direct, circulant<>>{.node = node});
            INFO(name_of(C) << ", node " << node);
            CHECK(a.rounds(n) == b.rounds(n));
            CHECK(blocks_of(a, n) == blocks_of(b, n));
            CHECK(sent_between(a, hosts) == sent_between(b, hosts));
            CHECK(cost_of(a, n).all_sent == cost_of(b, n).all_sent);
        };
        same.operator()<all_reduce>();
        same.operator()<reduce_scatter>();
        same.operator()<all_gather>();
    }
}

TEST_CASE(
    "host_hierarchy: rounds are those of Inter and at most two more, and hosts send no more than one rank by Inter") {
    for (const std::vector<int>& host : {std::vector<int>{0, 0, 0, 1, 1, 1, 1, 1, 2}, {0, 1, 0, 1, 1, 2, 0, 1}}) {
        const host_map hosts(host);
        const int n = hosts.ranks();
        const cost across = cost_of<schedule_for<circulant<>, all_reduce>>(hosts.hosts());
        for (const int lanes : {0, 1, 2}) {
            const auto s = schedule_of<all_reduce>(host_hierarchy<circulant<>>{.hosts = hosts, .lanes = lanes});
            const int cut = lanes == 0 ? hosts.largest() : lanes;
            INFO(text_of(host) << ", lanes " << lanes);
            CHECK(s.rounds(n) == across.rounds + 2);
            CHECK(s.blocks(n) == cut * across.blocks);
            for (const long sent : sent_between(s, hosts)) CHECK(sent == cut * across.blocks_sent);
            const detail::counted_messages between{.between = true, .hosts = hosts}, within{.hosts = hosts};
            const auto total = detail::traffic(detail::reader_of<decltype(s)>(s), n);
            const auto far = detail::traffic(detail::reader_of<decltype(s)>(s), n, between);
            const auto near = detail::traffic(detail::reader_of<decltype(s)>(s), n, within);
            CHECK(far.rounds == across.rounds);
            CHECK(near.rounds == 2);
            CHECK(far.all_sent + near.all_sent == total.all_sent);
            CHECK(far.all_sent == hosts.hosts() * cut * across.blocks_sent);
        }
        // Each rank's block goes to each other host once.
        const auto gather_all = schedule_of<all_gather>(host_hierarchy<circulant<>>{.hosts = hosts});
        CHECK(gather_all.rounds(n) == cost_of<schedule_for<circulant<>, all_gather>>(hosts.hosts()).rounds + 1);
        long blocks = 0;
        for (int r = 0; r < n; ++r)
            for (int k = 0; k < gather_all.rounds(n); ++k)
                for (int p = 0; p < ports_of(gather_all, n); ++p)
                    if (const step st = step_of(gather_all, r, n, k, p);
                        st.send.peer != none && hosts.host_of(st.send.peer) != hosts.host_of(r))
                        for (int i = 0; i < st.send.blocks.size(); ++i)
                            blocks += home_of(gather_all, n, st.send.blocks[i]) != none;
        CHECK(blocks == static_cast<long>(n) * (hosts.hosts() - 1));
    }
}

TEST_CASE("host_hierarchy: on hosts of one rank there are the rounds of Inter alone") {
    const host_map hosts(std::vector<int>{3, 1, 4, 0, 2});
    const auto as_inter = [&]<collective C>() {
        INFO(name_of(C));
        const auto s = schedule_of<C>(host_hierarchy<circulant<>>{.hosts = hosts});
        CHECK(s.rounds(5) == cost_of<schedule_for<circulant<>, C>>(5).rounds);
    };
    as_inter.operator()<all_reduce>();
    as_inter.operator()<reduce_scatter>();
    as_inter.operator()<all_gather>();
}

TEST_CASE("host_hierarchy: a broadcast begins at the root's host, and enters each other host once a lane") {
    const std::vector<int> host{0, 1, 0, 1, 1, 2, 0, 1, 3};
    const host_map hosts(host);
    for (int root = 0; root < 9; ++root)
        for (const int lanes : {0, 1}) {
            const auto s = schedule_of<broadcast>(host_hierarchy<tree<>>{.hosts = hosts, .lanes = lanes, .root = root});
            INFO("root " << root << ", lanes " << lanes);
            CHECK(s.root(9) == root);
            const auto sent = sent_between(s, hosts);
            CHECK(std::accumulate(sent.begin(), sent.end(), 0L) == 3 * (lanes == 0 ? hosts.largest() : 1));
            CHECK(sent[static_cast<std::size_t>(hosts.host_of(root))] > 0);
        }
}

TEST_CASE("host_hierarchy: the order of ranks is kept on consecutive hosts where Inter keeps it, and not on others") {
    const auto keeps = []<class F>(F f, const std::vector<int>& host) {
        f.hosts = host_map(host);
        return properties_of(schedule_of<all_reduce>(f), static_cast<int>(host.size())).order_preserving;
    };
    const std::vector<int> consecutive{0, 0, 0, 1, 1, 1, 1, 1, 2}, mixed{0, 1, 0, 1, 1, 2, 0, 1, 1};
    CHECK(keeps(host_hierarchy<direct>{}, consecutive));
    CHECK(keeps(host_hierarchy<direct>{.lanes = 1}, consecutive));
    CHECK(!keeps(host_hierarchy<direct>{}, mixed));
    CHECK(!keeps(host_hierarchy<direct>{.lanes = 1}, mixed));
    CHECK(!keeps(host_hierarchy<circulant<>>{}, consecutive));
}

// ---- faults ----

/// A schedule of two maps: `wrong` is what one rank believes.
template <class S>
struct misled : S {
    S believed;
    int rank = none;
    constexpr step at(int r, int n, int round, int port) const {
        return r == rank ? believed.at(r, n, round, port) : S::at(r, n, round, port);
    }
};

TEST_CASE("host_hierarchy: the proof rejects a rank with a wrong map, a wrong leader or a wrong root") {
    const std::vector<int> host{0, 0, 0, 1, 1, 1, 1, 1, 2};
    // Rank 3, the leader of host 1, takes itself for one of host 0: rank 4 would lead.
    const host_map hosts(host), other(std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1, 2});
    const auto rejected = [](const auto& right, const auto& believed, int rank) {
        using S = std::remove_cvref_t<decltype(right)>;
        CHECK(verify(right, 9).ok());
        const misled<S> s{{right}, believed, rank};
        const report r = verify(s, 9);
        CHECK(!r.ok());
        return r;
    };
    for (const int lanes : {0, 1}) {
        using family = host_hierarchy<circulant<>>;
        rejected(schedule_of<all_reduce>(family{.hosts = hosts, .lanes = lanes}),
            schedule_of<all_reduce>(family{.hosts = other, .lanes = lanes}), 3);
    }
    using family = host_hierarchy<tree<>>;
    rejected(schedule_of<broadcast>(family{.hosts = hosts, .root = 3}),
        schedule_of<broadcast>(family{.hosts = hosts, .root = 4}), 3);
    rejected(schedule_of<scatter>(family{.hosts = hosts, .root = 3}),
        schedule_of<scatter>(family{.hosts = hosts, .root = 0}), 3);
    // All ranks believe in a root that is not theirs: each step is matched, and still the result is wrong.
    struct other_root : decltype(schedule_of<broadcast>(family{})) {
        constexpr int root(int) const { return 5; }
    };
    const other_root s{schedule_of<broadcast>(family{.hosts = hosts, .root = 4})};
    CHECK(!verify(s, 9).ok());
}
