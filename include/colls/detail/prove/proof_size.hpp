// What the proof of a schedule at run time takes, before it is done.
// IWYU pragma: private, include <colls/any_schedule.hpp>
#pragma once

#include <colls/detail/prove/expression.hpp>
#include <colls/detail/prove/schedule_reader.hpp>

namespace colls::inline v1::detail {

inline constexpr double most_proof_bytes = 4.0 * (1 << 30);

/// About the bytes that the proof takes where it plays all ranks, and where symmetry leaves one of them.
inline double proof_bytes(const schedule_reader& s, int n, bool symmetric) {
    const double slots = s.implements == collective::barrier ? 1.0 : double(s.blocks(n)) + s.scratch(n);
    const double ranks = symmetric ? 1 : n, slot = n / 8.0 + 3 * sizeof(int);
    return 2 * ranks * slots * (!symmetric && reduces(s.implements) ? slot + sizeof(expression) : slot);
}

/// About the time that the search for symmetry takes, in units of some nanoseconds: it reads all steps of all ranks,
/// and their blocks.
inline double symmetry_work(const schedule_reader& s, int n) {
    return double(n) * (32.0 * s.rounds(n) * s.ports(n) + 2.0 * s.blocks(n));
}

}  // namespace colls::inline v1::detail
