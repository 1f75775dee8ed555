// Schedules by name.
// IWYU pragma: private, include <colls/dynamic.hpp>
#pragma once

#include <colls/detail/request/candidates.hpp>
#include <colls/detail/request/known_families.hpp>

#include <mutex>
#include <string_view>

namespace colls::inline v1::detail {

/// The schedules of the known families for a collective.
inline auto list_of_candidates(collective what) -> candidates (*)() {
    switch (what) {
        case collective::broadcast:
            return &candidates_for<collective::broadcast>;
        case collective::scatter:
            return &candidates_for<collective::scatter>;
        case collective::gather:
            return &candidates_for<collective::gather>;
        case collective::all_gather:
            return &candidates_for<collective::all_gather>;
        case collective::reduce:
            return &candidates_for<collective::reduce>;
        case collective::reduce_scatter:
            return &candidates_for<collective::reduce_scatter>;
        case collective::all_reduce:
            return &candidates_for<collective::all_reduce>;
        case collective::all_to_all:
            return &candidates_for<collective::all_to_all>;
        case collective::barrier:
            return &candidates_for<collective::barrier>;
        case collective::inclusive_scan:
            return &candidates_for<collective::inclusive_scan>;
        case collective::exclusive_scan:
            return &candidates_for<collective::exclusive_scan>;
        default:
            return nullptr;
    }
}
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
