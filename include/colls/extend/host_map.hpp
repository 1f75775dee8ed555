// Which ranks of a group are on which host (or node): what schedules for hosts of different sizes are made from.
#pragma once

#include <colls/config.hpp>
#include <colls/detail/schedule/host_table.hpp>
#include <colls/detail/schedule/precondition.hpp>

#include <span>

namespace colls::inline v1 {

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
    /// Ranks of each host, where several hosts have equally many consecutive ranks; else 0.
    constexpr int ranks_per_host() const { return table_ ? table_->each : 0; }

    /// For the library: the table; null where the map is not known.
    constexpr const detail::host_table* table() const { return table_; }
    /// True for maps of one table: also for equal maps, where both were made at run time.
    friend constexpr bool operator==(host_map a, host_map b) { return a.table() == b.table(); }

private:
    const detail::host_table* table_ = nullptr;
};

/// The map of ranks whose hosts are known at compile time: fixed_hosts<0, 0, 0, 1, 1> has three ranks on a host and two
/// on another.
template <int... Host>
inline constexpr host_map fixed_hosts{detail::fixed_host_table<Host...>::table};

}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/detail/support/list.hpp>
#include <colls/detail/support/process_lock.hpp>

#include <cstring>
#include <memory>

namespace colls::inline v1 {

COLLS_INLINE host_map::host_map(std::span<const int> host_of_rank) {
    const std::size_t size = host_of_rank.size();
    const int n = static_cast<int>(size);
    std::unique_ptr<int[]> room(new int[4 * size + 1]);
    int* const at = room.get();
    const detail::host_table own =
        detail::fill_host_table(host_of_rank.data(), n, at, at + size, at + 2 * size, at + 3 * size + 1);
    const detail::process_lock lock;
    // The tables made so far. Never destroyed: threads may outlive main, and plans refer to them.
    static detail::list<const detail::host_table*>& made = *new detail::list<const detail::host_table*>;
    for (const detail::host_table* const m : made)
        if (m->ranks == n && std::memcmp(m->host_of, own.host_of, size * sizeof(int)) == 0) table_ = m;
    if (table_) return;
    made.push_back(table_ = new detail::host_table(own));
    room.release();
}

}  // namespace colls::inline v1
#endif
