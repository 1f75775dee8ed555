// The table behind a host_map: which ranks are on which host.
// IWYU pragma: private, include <colls/extend/host_map.hpp>
#pragma once

namespace colls::inline v1::detail {

/// The ranks by host. Hosts are numbered in the order of their lowest ranks, and places on a host in the order of
/// ranks.
struct host_table {
    int ranks = 0, hosts = 0;
    int largest = 0;                ///< ranks of the largest host
    int each = 0;                   ///< ranks of each of several hosts, if equally many and consecutive; else 0
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
    bool even = t.hosts > 1;
    for (int r = 0; r < ranks; ++r) even = even && host_of[r] == r / t.largest;
    if (even && t.hosts * t.largest == ranks) t.each = t.largest;
    return t;
}

/// A table in static memory, made by the compiler.
template <int... Host>
struct fixed_host_table {
    static constexpr unsigned ranks = sizeof...(Host);
    struct arrays {
        int host_of[ranks], place_of[ranks], first[ranks + 1], members[ranks];
        int hosts, largest, each;
    };
    static constexpr arrays filled = [] {
        const int called[] = {Host...};
        arrays a{};
        const host_table t = fill_host_table(called, ranks, a.host_of, a.place_of, a.first, a.members);
        a.hosts = t.hosts, a.largest = t.largest, a.each = t.each;
        return a;
    }();
    static constexpr host_table table{ranks, filled.hosts, filled.largest, filled.each, filled.host_of, filled.place_of,
        filled.first, filled.members};
};

}  // namespace colls::inline v1::detail
