// The host maps that this process has made.
// IWYU pragma: private, include <colls/extend/host_map.hpp>
#pragma once

#include <colls/config.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/extend/host_map.hpp>

#include <mutex>

namespace colls::inline v1 {

COLLS_INLINE host_map::host_map(std::span<const int> host_of_rank) {
    static std::mutex mutex;
    // Never destroyed: threads may outlive main, and plans refer to the tables.
    static detail::list<const detail::host_table*>& made = *new detail::list<const detail::host_table*>;
    const std::size_t size = host_of_rank.size();
    const int n = static_cast<int>(size);
    int* const room = new int[4 * size + 1];
    auto* const t = new detail::host_table(
        detail::fill_host_table(host_of_rank.data(), n, room, room + size, room + 2 * size, room + 3 * size + 1));
    const std::lock_guard lock(mutex);
    for (const detail::host_table* other : made) {
        bool same = other->ranks == n;
        for (int r = 0; same && r < n; ++r) same = other->host_of[r] == t->host_of[r];
        if (!same) continue;
        delete[] room;
        delete t;
        table_ = other;
        return;
    }
    made.push_back(t);
    table_ = t;
}

}  // namespace colls::inline v1
