// Which slots a rank owns: what is left for the next level of a combination to work on.
// IWYU pragma: private, include <colls/algebra.hpp>
#pragma once

#include <colls/schedule.hpp>

namespace colls::inline v1::detail {

/// An interval of consecutive slots.
struct stretch {
    int first = 0, count = 0;
};
/// The k-th maximal stretch of slots that s leaves to `rank`: all, if s is not owned and leaves them there; empty past
/// the last.
/// What one rank owns need not be evenly spaced (with a mirrored lane it is not), but always is a few stretches.
template <class S>
constexpr stretch owned_stretch(const S& s, int rank, int n, int k) {
    const int b = blocks_of(s, n);
    if constexpr (!owned(implemented_by<S>)) {
        return {0, k == 0 && (!traits_of(implemented_by<S>).out_at_root || rank == root_of(s, n)) ? b : 0};
    } else {
        for (int slot = 0; slot < b; ++slot) {
            if (home_of(s, n, slot) != rank) continue;
            const int first = slot;
            while (slot < b && home_of(s, n, slot) == rank) ++slot;
            if (k-- == 0) return {first, slot - first};
        }
        return {};
    }
}
/// The maximal stretch of one owner around `slot`.
template <class S>
constexpr stretch stretch_around(const S& s, int n, int slot) {
    const int home = home_of(s, n, slot), b = blocks_of(s, n);
    int first = slot, last = slot;
    while (first > 0 && home_of(s, n, first - 1) == home) --first;
    while (last + 1 < b && home_of(s, n, last + 1) == home) ++last;
    return {first, last - first + 1};
}
/// The most stretches that any rank owns.
template <class S>
constexpr int most_stretches(const S& s, int n) {
    if (!owned(implemented_by<S>) || blocks_of(s, n) == n) return 1;
    int most = 1;
    for (int rank = 0; rank < n; ++rank)
        while (owned_stretch(s, rank, n, most).count > 0) ++most;
    return most;
}

}  // namespace colls::inline v1::detail
