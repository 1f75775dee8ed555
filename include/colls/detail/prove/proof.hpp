// The proof, and how a schedule combines contributions, as constants: one evaluation for each schedule and group size,
// so that a compiler's limits on constant evaluation hold for each of them.
// IWYU pragma: private, include <colls/verify.hpp>
#pragma once

#include <colls/detail/prove/symmetric_execution.hpp>
#include <colls/family.hpp>

#include <utility>

namespace colls::inline v1::detail {

/// Says in words what S lacks where a call or a proof is given it. False: what follows is not compiled.
template <class S>
constexpr bool expect_schedule_or_family() {
    constexpr bool is = schedule<S> || family<S>;
    static_assert(is,
        "colls: this is not a schedule: it needs `implements`, `rounds(n)`, and `at(rank, n, round)` or `at(rank, n, "
        "round, port)` "
        "that returns a colls::step, const or static, in a trivially copyable type; or it is a family, which names "
        "such types");
    return is;
}

/// From this group size on, where masks have several words, the search for symmetry pays.
inline constexpr int symmetry_from = 65;

[[gnu::cold]] [[gnu::noinline]] constexpr report run_proof(const schedule_reader& s, int n) {
    if (n >= symmetry_from)
        if (symmetric_execution e(s, n); e.applies()) return e.run();
    return symbolic_execution(s, n).run();
}

template <class S>
constexpr report proof_at(const S& s, int n) {
    return v1::supports(s, n) ? run_proof(reader_of<S>(s), n) : report{.n = n};
}
// Initialised by a call with arguments: g++ evaluates one without them twice.
template <class S, int n>
inline constexpr report proof_of = proof_at(S{}, n);

/// The proof of S at one group size; of a family that of its first schedule for which a law is broken.
struct evidence : report {
    collective what{};
    bool supported = false;  ///< by S, or one of its schedules
};
template <class S, int n>
constexpr evidence evidence_of() {
    if constexpr (!expect_schedule_or_family<S>())
        return {{}, {}, true};  // the error has been reported
    else if constexpr (schedule<S>)
        return {proof_of<S, n>, implemented_by<S>, v1::supports(S{}, n)};
    else
        return []<int... C>(std::integer_sequence<int, C...>) {
            evidence all{};
            const auto add = [&all]<collective c>() {
                if constexpr (provides<S, c>) {
                    const evidence v = evidence_of<schedule_for<S, c>, n>();
                    const bool supported = all.supported || v.supported;
                    if (all.ok()) all = v;
                    all.supported = supported;
                }
            };
            (add.template operator()<static_cast<collective>(C)>(), ...);
            return all;
        }(std::make_integer_sequence<int, collective_count>{});
}
template <class S, int n>
inline constexpr evidence evidence_at = evidence_of<S, n>();

constexpr examination examined(const schedule_reader& s, int n) {
    symbolic_execution e(s, n, true);
    const report proof = e.run();
    return {proof, proof.ok() && e.in_rank_order(), proof.ok() ? e.folds() : fold_properties{}, e.staged_rounds()};
}
template <class S>
constexpr examination examined_at(const S& s, int n) {
    return v1::supports(s, n) ? examined(reader_of<S>(s), n)
                              : examination{{}, true, {.one_expression = true, .single_fold = true}};
}
// Likewise.
template <class S, int n>
inline constexpr examination examination_of = examined_at(S{}, n);

/// What holds at every group size from 2 to 8 that S supports.
template <class S>
inline constexpr examination at_small_sizes = []<int... i>(std::integer_sequence<int, i...>) {
    return examination{{}, (examination_of<S, i + 2>.order_preserving && ...),
        {.one_expression = (examination_of<S, i + 2>.folds.one_expression && ...),
            .single_fold = (examination_of<S, i + 2>.folds.single_fold && ...)}};
}(std::make_integer_sequence<int, 7>{});

}  // namespace colls::inline v1::detail
