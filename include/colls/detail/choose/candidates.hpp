// The schedules that `automatic` chooses from, and the traffic of each.
// IWYU pragma: private, include <colls/explain.hpp>
#pragma once

#include <colls/cost.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/request/known_families.hpp>
#include <colls/detail/request/request.hpp>
#include <colls/detail/support/process_lock.hpp>

#include <new>
#include <type_traits>

namespace colls::inline v1::detail {

/// The schedules of the known families for one collective, made at the first call.
template <collective C>
[[gnu::cold]] candidates candidates_for() {
    static constexpr int count = known_families::count_of<C>;
    const process_lock lock;
    static const candidate* const all = [] {
        // Never destroyed: threads may outlive main.
        auto* const list = static_cast<candidate*>(operator new(sizeof(candidate) * std::size_t{count + 1}));
        candidate* to = list;
        known_families::for_each([&]<class Family>(const Family& family, std::string_view name) {
            if constexpr (provides<Family, C>) {
                const auto s = schedule_of<C>(family);
                new (to++) candidate{name, any_schedule(s, table_of<std::remove_const_t<decltype(s)>, true>, name),
                    !reduces(C) || folds_once<Family>, rotates<Family> && !rooted(C) && !is_scan(C) ? 1 : 0};
            }
        });
        return list;
    }();
    return {all, count};
}

#ifndef COLLS_SEPARATE
[[gnu::cold, gnu::noinline]] COLLS_INLINE candidates all_candidates_of(collective what) {
    return [what]<int... C>(std::integer_sequence<int, C...>) {
        static constexpr candidates (*all[])() = {&candidates_for<static_cast<collective>(C)>...};
        return all[static_cast<int>(what)]();
    }(std::make_integer_sequence<int, collective_count>{});
}
#endif

/// The candidates whose schedules know hosts, for a call with that root; none where the group does not know its hosts,
/// or the collective has no such schedule.
inline candidates two_level_candidates(const rank_context& self, collective what, int root) {
    if (!self.layout.two_levels || !self.layout.hosts.known()) return {};
    return self.layout.two_levels(what, self.layout.hosts, root);
}
/// Does the choice of a schedule depend on the root of the call? Where hosts are not alike, a schedule begins at the
/// root's host; elsewhere it is rotated to the root.
inline bool depends_on_root(const rank_context& self, collective what) {
    const host_map hosts = self.layout.hosts;
    return rooted(what) && hosts.known() && hosts.ranks_per_host() == 0;
}
/// The messages between hosts, where the group knows its hosts; else all messages.
inline counted_messages messages_between_hosts(const rank_context& self) {
    if (const int each = self.layout.hosts.ranks_per_host(); each > 0) return {.node = each, .between = true};
    return {.node = 0, .between = true, .hosts = self.layout.hosts};
}

/// The ranks from which the traffic of a candidate follows: all of them, or those of one period, and of one host where
/// messages within hosts are counted apart. Where hosts are not alike: all of them.
inline int counted_ranks(const candidate& c, int n, const counted_messages& counts) {
    const int ranks = c.period == 0 || counts.hosts.known() ? n : counts.node > c.period ? counts.node : c.period;
    return ranks % (c.period > 0 ? c.period : 1) == 0 && n % ranks == 0 ? ranks : n;
}
/// False where it would take more than 8 million steps, a second, to count the traffic: such a candidate has many
/// rounds or peers for its group, and is not weighed.
inline bool is_countable(const candidate& c, int n, const counted_messages& counts) {
    return static_cast<double>(counted_ranks(c, n, counts)) * c.schedule.rounds(n) * c.schedule.ports(n) <= 1 << 23;
}
/// The traffic of a schedule at n ranks. It is counted once in the process, since every rank asks for it.
[[gnu::cold]] inline cost traffic_of_candidate(const candidate& of, int n, counted_messages counts = {}) {
    const any_schedule& s = of.schedule;
    struct counted_traffic {
        const any_schedule* schedule;
        int n;
        counted_messages counts;
        cost counted;
    };
    const process_lock lock;
    static list<counted_traffic>& cache = *new list<counted_traffic>;  // never destroyed: threads may outlive main
    for (const counted_traffic& k : cache)
        if (k.n == n && k.schedule == &s && k.counts == counts) return k.counted;
    const int ranks = counted_ranks(of, n, counts);
    cache.push_back({&s, n, counts, traffic(s, n, counts, ranks < n ? ranks : 0)});
    return cache.back().counted;
}

}  // namespace colls::inline v1::detail
