// Which ranks of a group are on which host (or node): what schedules for hosts of different sizes are made from.
#pragma once

#include <colls/config.hpp>
#include <colls/detail/schedule/precondition.hpp>

#include <span>

namespace colls::inline v1 {

namespace detail {

/// The ranks by host. Hosts are numbered in the order of their lowest ranks, and places on a host in the order of
/// ranks.
struct host_table {
    int ranks = 0, hosts = 0;
    int largest = 0;                ///< ranks of the largest host
    const int* host_of = nullptr;   ///< by rank
    const int* place_of = nullptr;  ///< by rank: its number among the ranks of its host
    const int* first = nullptr;     ///< by host, and one more: where its ranks begin in `members`
    const int* members = nullptr;   ///< the ranks, host by host
};

/// The entries of a table, for `ranks` ranks of which rank r is on the host that is called called[r]. Hosts are told
/// apart by what they are called, and that is forgotten. host_of, place_of and members have room for `ranks`, first for
/// one more.
template <class Name>
constexpr host_table fill_host_table(
    const Name* called, int ranks, int* host_of, int* place_of, int* first, int* members) {
    host_table t{.ranks = ranks, .host_of = host_of, .place_of = place_of, .first = first, .members = members};
    for (int r = 0; r < ranks; ++r) {
        int before = r - 1;
        while (before >= 0 && called[before] != called[r]) --before;
        host_of[r] = before < 0 ? t.hosts++ : host_of[before];
        place_of[r] = before < 0 ? 0 : place_of[before] + 1;
        if (place_of[r] >= t.largest) t.largest = place_of[r] + 1;
    }
    int at = 0;
    for (int h = 0; h < t.hosts; ++h) {
        first[h] = at;
        for (int r = 0; r < ranks; ++r)
            if (host_of[r] == h) members[at++] = r;
    }
    first[t.hosts] = at;
    return t;
}

}  // namespace detail

/// Which ranks share a host. A value of one pointer: its table is kept until the process ends, and equal maps that are
/// made at run time have the same table, so that schedules that hold equal maps are equal. It is aligned as an int is:
/// any_schedule compares bytes, so schedules must have no padding between it and their other members.
class [[gnu::packed, gnu::aligned(4)]] host_map {
public:
    /// Not known: all ranks of a group, however many, count as those of one host.
    constexpr host_map() = default;
    /// Rank r is on the same host as all ranks q with host_of_rank[q] == host_of_rank[r]; the numbers have no other
    /// meaning. Throws std::bad_alloc. Takes a lock, and time in proportion to the square of the number of ranks.
    explicit host_map(std::span<const int> host_of_rank);
    /// For fixed_hosts.
    constexpr explicit host_map(const detail::host_table& t) : table_(&t) {}

    /// Is this a map, and not the absence of one?
    constexpr bool known() const { return table_ != nullptr; }
    /// Ranks that the map is for; 0 where it is not known.
    constexpr int ranks() const { return table_ ? table_->ranks : 0; }
    /// Hosts, numbered in the order of their lowest ranks; 0 where the map is not known.
    constexpr int hosts() const { return table_ ? table_->hosts : 0; }
    /// The number of the rank's host.
    constexpr int host_of(int rank) const { return table_ ? table_->host_of[rank] : 0; }
    /// Ranks of that host. The map must be known.
    constexpr int size_of(int host) const {
        if (!table_) detail::precondition_failed("host_map::size_of: the map is not known");
        return table_->first[host + 1] - table_->first[host];
    }
    /// Ranks of the largest host; 0 where the map is not known.
    constexpr int largest() const { return table_ ? table_->largest : 0; }

    /// For the library: the table; null where the map is not known.
    constexpr const detail::host_table* table() const { return table_; }
    /// True for maps of one table: also for equal maps, where both were made at run time.
    friend constexpr bool operator==(host_map a, host_map b) { return a.table() == b.table(); }

private:
    const detail::host_table* table_ = nullptr;
};

namespace detail {

/// A table in static memory, made by the compiler.
template <int... Host>
struct fixed_host_table {
    static constexpr int ranks = sizeof...(Host);
    struct arrays {
        int host_of[ranks], place_of[ranks], first[ranks + 1], members[ranks];
        int hosts, largest;
    };
    static constexpr arrays filled = [] {
        const int called[] = {Host...};
        arrays a{};
        const host_table t = fill_host_table(called, ranks, a.host_of, a.place_of, a.first, a.members);
        a.hosts = t.hosts, a.largest = t.largest;
        return a;
    }();
    static constexpr host_table table{
        ranks, filled.hosts, filled.largest, filled.host_of, filled.place_of, filled.first, filled.members};
};

}  // namespace detail

/// The map of ranks whose hosts are known at compile time: fixed_hosts<0, 0, 0, 1, 1> has three ranks on a host and two
/// on another.
template <int... Host>
inline constexpr host_map fixed_hosts{detail::fixed_host_table<Host...>::table};

}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/detail/support/made_host_tables.hpp>
#endif
