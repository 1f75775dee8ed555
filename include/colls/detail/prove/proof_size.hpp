// What the proof of a schedule at run time takes, before it is done.
// IWYU pragma: private, include <colls/any_schedule.hpp>
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/detail/prove/expression.hpp>

namespace colls::inline v1::detail {

inline constexpr double most_proof_bytes = 4.0 * (1 << 30);

/// About the bytes that the proof takes where it plays all ranks, and where symmetry leaves one of them.
inline double proof_bytes(const any_schedule& s, int n, bool symmetric) {
    const double slots = s.implements == collective::barrier ? 1.0 : double(s.blocks(n)) + s.scratch(n);
    const double ranks = symmetric ? 1 : n, slot = n / 8.0 + 3 * sizeof(int);
    return 2 * ranks * slots * (!symmetric && reduces(s.implements) ? slot + sizeof(expression) : slot);
}

/// About the time that the search for symmetry takes, in units of some nanoseconds: it reads all steps of all ranks,
/// and their blocks.
inline double symmetry_work(const any_schedule& s, int n) {
    return double(n) * (32.0 * s.rounds(n) * s.ports(n) + 2.0 * s.blocks(n));
}

/// Has it been proven, or can it be without symmetry?
inline bool is_provable(const any_schedule& s, int n) {
    return !s.needs_proof() || proof_bytes(s, n, false) <= most_proof_bytes;
}

}  // namespace colls::inline v1::detail
