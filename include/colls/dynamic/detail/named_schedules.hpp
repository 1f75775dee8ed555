// Schedules by name.
// IWYU pragma: private, include <colls/dynamic.hpp>
#pragma once

#include <colls/detail/request/known_families.hpp>
#include <colls/detail/request/request.hpp>

#include <mutex>
#include <string_view>

namespace colls::inline v1::detail {

/// The schedule of a family for a collective; null: there is none.
inline const candidate* named_candidate(collective what, std::string_view name) {
    const candidates all = list_of_candidates(what)();
    for (int i = 0; i < all.count; ++i)
        if (all.first[i].name == name) return &all.first[i];
    return nullptr;
}
/// The schedule of a candidate, which is proven before it runs: the proof finds in which order it folds.
inline const any_schedule* proven_schedule(const candidate& of) {
    struct kept {
        const candidate* of;
        schedule_table table;
        any_schedule schedule;
        kept* next;
    };
    static std::mutex mutex;
    static kept* first = nullptr;  // never destroyed: threads may outlive main
    const std::lock_guard lock(mutex);
    for (kept* k = first; k != nullptr; k = k->next)
        if (k->of == &of) return &k->schedule;
    first = new kept{&of, {}, of.schedule, first};
    first->schedule = of.schedule.to_be_proven(first->table);
    return &first->schedule;
}

}  // namespace colls::inline v1::detail
