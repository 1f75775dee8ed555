// The schedules of two levels that `automatic` may choose where a group knows its hosts.
// IWYU pragma: private
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/detail/request/request.hpp>
#include <colls/detail/support/process_lock.hpp>
#include <colls/schedules/circulant.hpp>
#include <colls/schedules/direct.hpp>
#include <colls/schedules/hierarchical.hpp>
#include <colls/schedules/host_hierarchy.hpp>
#include <colls/schedules/tree.hpp>

#include <string>
#include <utility>
#include <vector>

namespace colls::inline v1::detail {

template <collective C, class Family>
void add_candidate(std::vector<candidate>& to, const Family& family, std::string_view name, int period = 0) {
    if constexpr (colls::provides<Family, C>) {
        const auto s = colls::schedule_of<C>(family);
        to.push_back({.name = name,
            .schedule = any_schedule(s, table_of<std::remove_const_t<decltype(s)>, true>, name),
            .period = period});
    }
}
/// host_hierarchy of Inter, with all lanes, and with one where the collective lets lanes be chosen.
template <class Inter, collective C>
void add_host_hierarchies(std::vector<candidate>& to, host_map hosts, int root) {
    using family = host_hierarchy<Inter>;
    static const std::string& leaders = *new std::string(std::string(written_name<family>()) + ", 1 lane");
    add_candidate<C>(to, family{.hosts = hosts, .lanes = 0, .root = root}, written_name<family>());
    if constexpr (!owned(C)) add_candidate<C>(to, family{.hosts = hosts, .lanes = 1, .root = root}, leaders);
}
/// For host_layout::two_levels: hierarchical where hosts have equally many consecutive ranks; else host_hierarchy of
/// circulant graphs, or of trees where these have no schedule, for a call with that root. Made when first asked for,
/// and kept.
inline candidates two_level_candidates_on(collective what, host_map hosts, int root) {
    struct known {
        collective what;
        host_map hosts;
        int root;
        std::vector<candidate> made;  // its elements stay where they are: plans and choices refer to them
        candidates list() const { return {made.data(), static_cast<int>(made.size())}; }
    };
    const process_lock lock;
    static std::vector<known>& all = *new std::vector<known>;  // never destroyed: threads may outlive main
    const int each = hosts.ranks_per_host();
    if (!rooted(what) || each > 0) root = 0;
    for (const known& k : all)
        if (k.what == what && k.hosts == hosts && k.root == root) return k.list();
    std::vector<candidate> made;
    const auto make = [&]<int c>(std::integral_constant<int, c>) {
        constexpr auto it = static_cast<collective>(c);
        if (what != it) return;
        using even = hierarchical<direct, circulant<>>;
        if (each > 0)
            return add_candidate<it>(
                made, even{.node = each}, written_name<even>(), rooted(it) || is_scan(it) ? 0 : each);
        add_host_hierarchies<circulant<>, it>(made, hosts, root);
        if constexpr (rooted(it)) add_host_hierarchies<tree<>, it>(made, hosts, root);
    };
    [&]<int... C>(std::integer_sequence<int, C...>) { (make(std::integral_constant<int, C>{}), ...); }(
        std::make_integer_sequence<int, collective_count>{});
    all.push_back({what, hosts, root, std::move(made)});
    return all.back().list();
}

}  // namespace colls::inline v1::detail
