// The proof at run time, of a schedule whose type is erased: what an execution plan needs before it is made; and what
// the proof takes.
// IWYU pragma: private, include <colls/any_schedule.hpp>
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/verify.hpp>

namespace colls::inline v1::detail {

inline constexpr double most_proof_bytes = 4.0 * (1 << 30);

/// The most blocks that the first `ranks` ranks send in one round; a message of a barrier counts as one.
[[gnu::cold]] inline double most_sent(const schedule_reader& s, int n, int ranks, int slots) {
    double most = 0;
    for (int round = 0, rounds = s.rounds(n), ports = s.ports(n); round < rounds; ++round) {
        double sent = 0;
        for (int r = 0; r < ranks; ++r)
            for (int port = 0; port < ports; ++port)
                if (const send_part p = s.at(r, n, round, port).send; p.peer != none)
                    sent += s.implements == collective::barrier ? 1.0
                            : well_formed(p.blocks, slots)      ? double(size_of(p.blocks))
                                                                : 0.0;
        if (sent > most) most = sent;
    }
    return most;
}
/// About the bytes that the proof takes where it plays all ranks, and where symmetry leaves one of them: for the slots,
/// the moves of a round, and the blocks that are sent in it, which may be many times the slots if there are many ports.
[[gnu::cold]] inline double proof_bytes(const schedule_reader& s, int n, bool symmetric) {
    const double slots = s.implements == collective::barrier ? 1.0 : double(s.blocks(n)) + s.scratch(n);
    const double ranks = symmetric ? 1 : n, ports = s.ports(n), mask = n / 8.0 + 3 * sizeof(int);
    const double slot = !symmetric && reduces(s.implements) ? mask + sizeof(expression) : mask;
    const double all = 2 * ranks * slots * slot + ranks * ports * sizeof(move),
                 more = ranks * (ports - 1) * slots * slot;
    if (all > most_proof_bytes || all + more <= most_proof_bytes || slots > 0x7fffffff) return all;
    const double sent = most_sent(s, n, static_cast<int>(ranks), static_cast<int>(slots)) - ranks * slots;
    return sent > 0 ? all + sent * slot : all;
}

#ifndef COLLS_SEPARATE
[[gnu::cold]] inline finding found_by(const examination& e) {
    finding f{.right = e.proof.ok(),
        .order_preserving = e.order_preserving,
        .one_expression = e.folds.one_expression,
        .rank = e.proof.rank,
        .round = e.proof.round,
        .text = {}};
    if (!f.right) f.text << e.proof.text();
    return f;
}
/// The proof of a large group: by symmetry, if the schedule has it, or none. Expressions are not looked for.
[[gnu::cold]] inline finding prove_large(const any_schedule& s, int n) {
    finding f{.expressions_known = false, .unproven = true, .text = {}};
    const double all = proof_bytes(s, n, false);
    // In units of some nanoseconds: the search for symmetry reads all steps of all ranks, and their blocks.
    // So n times the blocks is at most 2e9, and the labels of slots are numbers of an int.
    constexpr double most_work = 4e9;  // ten seconds
    if (double(n) * (32.0 * s.rounds(n) * s.ports(n) + 2.0 * s.blocks(n)) > most_work) {
        f.text << "looking for symmetry in the steps of all ranks would take too long, and playing all ranks ";
    } else if (proof_bytes(s, n, true) <= most_proof_bytes) {
        symmetric_execution e(s, n);
        if (e.applies()) {
            finding done = found_by({.proof = e.run()});
            done.expressions_known = false;
            return done;
        }
        f.text << "the ranks do not all do the same up to rotation, and playing all of them ";
    } else {
        f.text << "the proof ";
    }
    put_gigabytes(f.text << "would take about ", all)
        << ", more than 4: take a schedule of the library's families, which its own tests prove";
    return f;
}

COLLS_INLINE finding prove(const any_schedule& s, int n) {
    if (proof_bytes(s, n, false) > most_proof_bytes) return prove_large(s, n);
    return found_by(examined(s, n));
}
#endif

}  // namespace colls::inline v1::detail
