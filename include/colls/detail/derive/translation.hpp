// A schedule in which every rank does what rank 0 does, translated by its number: it states the steps of rank 0 alone.
// IWYU pragma: private, include <colls/schedules.hpp>
//
// So a family cannot break the symmetry, and the proof of rank 0 is the proof of all ranks, at any group size
// (docs/proof.md).
#pragma once

#include <colls/schedule.hpp>

namespace colls::inline v1::detail {

/// Which slot of rank r stands for slot x of rank 0: x + r mod n, or x.
enum class slot_motion : unsigned char { follows_rank, stays };

/// p moved on by `rank`, mod n; both are in [0, n).
constexpr int translated(int p, int rank, int n) { return p + rank - (p >= n - rank ? n : 0); }
/// True where the blocks can be moved on, mod n: none, one block, or a set modulo n.
constexpr bool translatable(const block_set& b, int n) {
    return b.empty() ||
           (b.base == 0 && b.grain == 1 && b.reps == 1 && (b.modulus == n || (b.count == 1 && b.modulus == 0)));
}
/// Where a set of blocks begins once it is moved on.
constexpr int translated_first(const block_set& b, int rank, int n, slot_motion motion) {
    return motion == slot_motion::stays || b.empty() ? b.first : translated(b.first, rank, n);
}
/// Makes of what rank 0 does what `rank` does. Blocks that follow the rank must be translatable: the proof checks it.
/// (In place: copies of parts of a step would take most of the time.)
constexpr void translate(step& s, int rank, int n, slot_motion motion) {
    if (s.send.peer != none) {
        s.send.peer = translated(s.send.peer, rank, n);
        s.send.blocks.first = translated_first(s.send.blocks, rank, n, motion);
    }
    if (s.recv.peer != none) {
        s.recv.peer = translated(s.recv.peer, rank, n);
        s.recv.blocks.first = translated_first(s.recv.blocks, rank, n, motion);
    }
}

/// The base of a schedule S that states of_rank_0(n, round) or of_rank_0(n, round, port), with peers, and first blocks
/// that follow the rank, in [0, n). An all_to_all whose slots stay states input_of_rank_0(n, slot), output_of_rank_0.
template <class S, slot_motion Motion = slot_motion::follows_rank>
// Aggregates have no private constructors: NOLINTNEXTLINE(bugprone-crtp-constructor-accessibility)
struct by_translation {
    static constexpr slot_motion motion = Motion;

    /// With or without a port, as S does.
    template <class... Port>
    static constexpr step at(int rank, int n, int round, Port... port)
        requires requires { S::of_rank_0(n, round, port...); }
    {
        step s = S::of_rank_0(n, round, port...);
        translate(s, rank, n, Motion);
        return s;
    }
    static constexpr int input(int rank, int n, int slot)
        requires requires { S::input_of_rank_0(n, slot); }
    {
        return translated(S::input_of_rank_0(n, slot), rank, n);
    }
    static constexpr int output(int rank, int n, int slot)
        requires requires { S::output_of_rank_0(n, slot); }
    {
        return translated(S::output_of_rank_0(n, slot), rank, n);
    }
};

}  // namespace colls::inline v1::detail
