// From a typed call to a request that is performed, started or prepared.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/automatic.hpp>
#include <colls/detail/call/make_request.hpp>
#include <colls/detail/call/modes.hpp>
#include <colls/detail/request/known_families.hpp>
#include <colls/verify.hpp>

namespace colls::inline v1::detail {

template <class S>
inline constexpr bool is_constraint = std::is_same_v<S, reproducible>;

/// What a call's template argument and the values behind its other arguments say: at most one schedule value, which
/// counts before the template argument, and colls::reproducible.
template <class Schedule, class... V>
struct schedule_argument {
    using type = std::conditional_t<is_constraint<Schedule>, automatic, Schedule>;
    static constexpr bool constrained = is_constraint<Schedule>;
    static constexpr int values = 0;
};
template <class Schedule, class First, class... V>
struct schedule_argument<Schedule, First, V...> : schedule_argument<Schedule, V...> {
    using rest = schedule_argument<Schedule, V...>;
    using type = std::conditional_t<is_constraint<First>, typename rest::type, First>;
    static constexpr bool constrained = rest::constrained || is_constraint<First>;
    static constexpr int values = rest::values + !is_constraint<First>;
};
/// The schedule value among them.
template <class First, class... V>
constexpr const auto& schedule_value(const First& first, const V&... more) {
    if constexpr (is_constraint<First>)
        return schedule_value(more...);
    else
        return first;
}

/// S can be evaluated in a constant expression, default-made.
template <class S>
concept constant_schedule = requires { typename std::bool_constant<(static_cast<void>(S{}.rounds(2)), true)>; };

/// S keeps the order of ranks at small sizes. (The proof at run time asks again, for the size of the call.)
template <class S>
constexpr bool keeps_order_at_small_sizes() {
    if constexpr (constant_schedule<S>) {
        for (int n = 2; n <= 5; ++n)
            if (v1::supports(S{}, n) && !examine(S{}, n).order_preserving) return false;
    }
    return true;
}

/// The results of S have one fold expression each at small sizes, as far as the type alone says. (The proof at run time
/// asks again, for the size of the call.)
template <class S>
constexpr bool has_one_expression_at_small_sizes() {
    if constexpr (std::is_empty_v<S> && constant_schedule<S>)
        return one_expression<S>;
    else
        return true;
}

/// The schedule of a call, its type erased. What is wrong with it is a compile error in words.
template <collective C, bool ordered, bool constrained, class S>
any_schedule schedule_for_call(const S& given) {
    if constexpr (expect_schedule_or_family<S>()) {
        static_assert(
            provides<S, C>, "colls: this schedule implements another collective, and none of its kind follows from it");
        if constexpr (provides<S, C>) {
            const auto s = schedule_of<C>(given);
            using made = std::remove_const_t<decltype(s)>;
            if constexpr (constrained && reduces(C)) {
                constexpr bool one = has_one_expression_at_small_sizes<made>();
                static_assert(one,
                    "colls: with colls::reproducible all elements must have one fold expression, and this schedule "
                    "computes elements in different places by different ones, so their bits would depend on the count "
                    "and on how data are cut into calls; take direct, recursive_doubling, tree, or colls::reproducible "
                    "alone");
            }
            if constexpr (ordered) {
                constexpr bool in_order = keeps_order_at_small_sizes<made>();
                static_assert(in_order,
                    "colls: this operator is not known to commute, and this schedule does not keep the order of ranks; "
                    "take direct, or automatic, or mark the operator with colls::commutative(op)");
                return any_schedule(s, table_of<made>, written_name<S>());
            } else if constexpr (is_known_family<S> && !(constrained && reduces(C))) {
                return any_schedule(s, proven_table_of<made>, written_name<S>());
            } else {
                return any_schedule(s, table_of<made>, written_name<S>());
            }
        }
    }
    __builtin_trap();  // compiled only after an error: g++ would also warn that nothing is returned
}

/// `fine`: the buffers and the operator are; otherwise the compiler has reported an error, and nothing more is
/// compiled.
template <class Mode, class Schedule, collective C, bool fine, bool ordered, class Comm, class... V>
typename Mode::result submit(Comm& comm, request& q, const V&... value) {
    using argument = schedule_argument<Schedule, V...>;
    static_assert(!fine || argument::values <= 1,
        "colls: too many arguments: a call takes one schedule value at most, as its last argument");
    rank_context& e = comm.context();
    q.c.what = C;
    q.how.reproducible = argument::constrained;
    using S = typename argument::type;
    if constexpr (!fine || argument::values > 1) {
        __builtin_trap();
    } else if constexpr (std::is_same_v<S, automatic>) {
        q.how.list = &candidates_for<C>;
        return Mode::run(e, q);
    } else {
        const any_schedule s = [&] {
            constexpr bool constrained = argument::constrained;
            if constexpr (argument::values != 0)
                return schedule_for_call<C, ordered, constrained>(schedule_value(value...));
            else if constexpr (requires(S by_levels) { by_levels.node = 0; })
                return schedule_for_call<C, ordered, constrained>(S{.node = ranks_per_host(e)});  // the hosts, if alike
            else if constexpr (requires(S by_hosts) { by_hosts.hosts = host_map(), by_hosts.root = 0; })
                return schedule_for_call<C, ordered, constrained>(S{.hosts = hosts_of(e), .root = q.c.root});
            else
                return schedule_for_call<C, ordered, constrained>(S{});
        }();
        q.how.given = &s;
        if constexpr (C == collective::reduce && ordered) {
            // Rotation to another root would break the order of ranks: a fold at the root itself keeps it.
            const any_schedule at_root = schedule_for_call<C, ordered, false>(direct{});
            if (q.c.root != 0) q.how.instead = &at_root;
            return Mode::run(e, q);
        }
        return Mode::run(e, q);
    }
}
/// For the v-variants whose ranks know their own counts only.
template <class Mode, class Schedule, collective C, bool fine, class Comm, class... V>
typename Mode::result submit_direct(Comm& comm, request& q, const V&...) {
    using S = typename schedule_argument<Schedule, V...>::type;
    static_assert(std::is_same_v<S, automatic> || std::is_same_v<S, direct>,
        "colls: gather_v, scatter_v and all_to_all_v go straight from rank to rank (direct): ranks between would not "
        "know how much they pass on");
    return submit<Mode, direct, C, fine, false>(comm, q);
}

// One function for each shape of argument list. In and Out are the deduced types of arguments In&& and Out&&; `root` is
// not read where the collective has none.

/// broadcast (in and out are one), scatter, gather, all_gather, all_to_all
template <class Mode, class Schedule, collective C, class In, class Out, class Comm, class A, class B, class... V>
typename Mode::result submit_copy(Comm& comm, A& in, B& out, int root, const V&... schedule) {
    constexpr bool fine = expect_in_and_out<Mode::keeps, In, Out>();
    request q;
    if constexpr (fine) set_buffers(q, in, out);
    q.c.root = root;
    return submit<Mode, Schedule, C, fine, false>(comm, q, schedule...);
}
/// scatter_v, gather_v, all_gather_v
template <class Mode, class Schedule, collective C, class In, class Out, class Comm, class A, class B, class Counts,
    class... V>
typename Mode::result submit_copy_v(Comm& comm, A& in, B& out, const Counts& counts, int root, const V&... schedule) {
    constexpr bool fine = expect_in_and_out<Mode::keeps, In, Out>();
    request q;
    if constexpr (fine) set_buffers(q, in, out);
    set_counts(q, q.sends, counts);
    q.c.root = root;
    if constexpr (C == collective::all_gather)
        return submit<Mode, Schedule, C, fine, false>(comm, q, schedule...);
    else
        return submit_direct<Mode, Schedule, C, fine>(comm, q, schedule...);
}
template <class Mode, class Schedule, class In, class Out, class Comm, class A, class B, class Sent, class Received,
    class... V>
typename Mode::result submit_all_to_all_v(
    Comm& comm, A& in, B& out, const Sent& sent, const Received& received, const V&... schedule) {
    constexpr bool fine = expect_in_and_out<Mode::keeps, In, Out>();
    request q;
    if constexpr (fine) set_buffers(q, in, out);
    set_counts(q, q.sends, sent);
    set_counts(q, q.receives, received);
    return submit_direct<Mode, Schedule, collective::all_to_all, fine>(comm, q, schedule...);
}
/// reduce, reduce_scatter, all_reduce (in and out may be one), inclusive_scan, exclusive_scan
template <class Mode, class Schedule, collective C, class In, class Out, class Comm, class A, class B, class Op,
    class... V>
typename Mode::result submit_fold(Comm& comm, A& in, B& out, const Op& op, int root, const V&... schedule) {
    constexpr bool scan = C == collective::inclusive_scan || C == collective::exclusive_scan;
    constexpr bool fine = expect_fold<Mode::keeps, scan, In, Out, Op>();
    request q;
    if constexpr (fine) {
        set_buffers(q, in, out);
        set_operator<Mode::keeps, element_of<Out>>(q, op);
    }
    q.c.root = root;
    return submit<Mode, Schedule, C, fine, !is_commutative<Op, element_of<In>>>(comm, q, schedule...);
}
template <class Mode, class Schedule, class In, class Out, class Comm, class A, class B, class Counts, class Op,
    class... V>
typename Mode::result submit_reduce_scatter_v(
    Comm& comm, A& in, B& out, const Counts& counts, const Op& op, const V&... schedule) {
    constexpr bool fine = expect_fold<Mode::keeps, false, In, Out, Op>();
    request q;
    if constexpr (fine) {
        set_buffers(q, in, out);
        set_operator<Mode::keeps, element_of<Out>>(q, op);
    }
    set_counts(q, q.sends, counts);
    return submit<Mode, Schedule, collective::reduce_scatter, fine, !is_commutative<Op, element_of<In>>>(
        comm, q, schedule...);
}
template <class Mode, class Schedule, class Comm, class... V>
typename Mode::result submit_barrier(Comm& comm, const V&... schedule) {
    request q;
    return submit<Mode, Schedule, collective::barrier, true, false>(comm, q, schedule...);
}

}  // namespace colls::inline v1::detail
