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
#include <atomic>
#include <cstring>

namespace colls::inline v1 {

COLLS_INLINE host_map::host_map(std::span<const int> host_of_rank) {
    // The tables made so far. Never destroyed: threads may outlive main, and plans refer to them.
    struct made_table {
        detail::host_table table;
        made_table* before;
    };
    static std::atomic<made_table*> last{nullptr};
    const std::size_t size = host_of_rank.size();
    const int n = static_cast<int>(size);
    int* const room = new int[4 * size + 1];
    auto* const own = new made_table{
        detail::fill_host_table(host_of_rank.data(), n, room, room + size, room + 2 * size, room + 3 * size + 1),
        nullptr};
    table_ = &own->table;
    const made_table* looked = nullptr;  // it and those before it are other ones
    // Acquire: the tables were written before. Release: so is this one.
    made_table* newest = last.load(std::memory_order_acquire);
    do {
        for (const made_table* m = newest; m != looked; m = m->before) {
            if (m->table.ranks != n || std::memcmp(m->table.host_of, own->table.host_of, size * sizeof(int)) != 0)
                continue;
            table_ = &m->table;
            delete[] room;
            delete own;
            return;
        }
        looked = own->before = newest;
    } while (!last.compare_exchange_weak(newest, own, std::memory_order_release, std::memory_order_acquire));
}

}  // namespace colls::inline v1
#endif
