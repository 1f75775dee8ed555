// The schedules of two levels that `automatic` may choose where hosts have equally many ranks.
// IWYU pragma: private
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/detail/request/candidates.hpp>
#include <colls/schedules/circulant.hpp>
#include <colls/schedules/direct.hpp>
#include <colls/schedules/hierarchical.hpp>

#include <mutex>
#include <vector>

namespace colls::inline v1::detail {

/// hierarchical<direct, circulant<>> of a collective, for hosts of so many ranks: made when first asked for, and kept.
template <int... C>
const candidate* two_level_candidate(collective what, int ranks_per_host, std::integer_sequence<int, C...>) {
    struct known {
        collective what;
        int ranks_per_host;
        const candidate* made;
    };
    static std::mutex mutex;
    static std::vector<known>& all = *new std::vector<known>;  // never destroyed: threads may outlive main
    const std::lock_guard lock(mutex);
    for (const known& k : all)
        if (k.what == what && k.ranks_per_host == ranks_per_host) return k.made;
    const candidate* made = nullptr;
    const auto make = [&]<int c>(std::integral_constant<int, c>) {
        constexpr auto it = static_cast<collective>(c);
        using family = hierarchical<direct, circulant<>>;
        constexpr std::string_view name = written_name<family>();
        if constexpr (colls::provides<family, it>)
            if (what == it) {
                const auto s = colls::schedule_of<it>(family{.node = ranks_per_host});
                made = new candidate{.name = name,
                    .schedule = any_schedule(s, table_of<std::remove_const_t<decltype(s)>>, name),
                    .period = rooted(it) || is_scan(it) ? 0 : ranks_per_host};
            }
    };
    (make(std::integral_constant<int, C>{}), ...);
    all.push_back({what, ranks_per_host, made});
    return made;
}
inline const candidate* two_level_candidate(collective what, int ranks_per_host) {
    return two_level_candidate(what, ranks_per_host, std::make_integer_sequence<int, collective_count>{});
}

}  // namespace colls::inline v1::detail
