// The calls, written once: from typed arguments to a request, of which a mode decides whether it is performed, started
// or prepared.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/automatic.hpp>
#include <colls/detail/call/make_request.hpp>
#include <colls/detail/call/modes.hpp>
#include <colls/detail/request/known_families.hpp>
#include <colls/verify.hpp>

namespace colls::inline v1 {
namespace detail {

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
any_schedule erased_schedule(const S& given) {
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
            }
            constexpr bool proven = known_families::holds<S> && !ordered && !(constrained && reduces(C));
            return any_schedule(s, table_of<made, proven>, written_name<S>());
        }
    }
    __builtin_trap();  // compiled only after an error: g++ would also warn that nothing is returned
}
/// That of a type without state is made once.
template <collective C, bool ordered, bool constrained, class S>
std::conditional_t<std::is_empty_v<S>, const any_schedule&, any_schedule> schedule_for_call(const S& given) {
    if constexpr (std::is_empty_v<S>) {
        static const any_schedule made = erased_schedule<C, ordered, constrained>(given);
        return made;
    } else {
        return erased_schedule<C, ordered, constrained>(given);
    }
}

/// A request, with what its types say. `fine`: buffers and operator are what the call needs; otherwise the compiler has
/// reported an error, and nothing more is compiled. `ordered`: the operator is not known to commute. `straight`: it
/// goes from rank to rank alone: ranks between would not know how much they pass on, or cannot fold a part.
template <collective C, bool fine, bool ordered = false, bool straight = false>
struct typed_request {
    request q;
};

/// Finds the schedule of a request, and hands both to what the mode makes of a call.
template <class Mode, class Schedule, collective C, bool fine, bool ordered, bool straight, class Comm, class... V>
typename Mode::result submit(Comm& comm, typed_request<C, fine, ordered, straight>&& typed, const V&... value) {
    using argument = schedule_argument<Schedule, V...>;
    using named = typename argument::type;
    static_assert(!fine || argument::values <= 1,
        "colls: too many arguments: a call takes one schedule value at most, as its last argument");
    static_assert(!straight || std::is_same_v<named, automatic> || std::is_same_v<named, direct>,
        "colls: gather_v, scatter_v and all_to_all_v go straight from rank to rank (direct): ranks between would not "
        "know how much they pass on; so do calls by colls::exact on numbers that are started or prepared");
    const rank_handle& rank = comm.handle();
    request& q = typed.q;
    constexpr bool constrained = argument::constrained || (straight && reduces(C));  // to single folds
    q.reproducible = constrained;
    if constexpr (!fine || argument::values > 1) {
        __builtin_trap();
    } else if constexpr (std::is_same_v<named, automatic>) {
        return Mode::run(rank, q);
    } else {
        using S = named;
        const any_schedule& s = [&]() -> decltype(auto) {
            if constexpr (argument::values != 0 && !straight)
                return schedule_for_call<C, ordered, constrained>(schedule_value(value...));
            else if constexpr (requires(S by_levels) { by_levels.node = 0; })
                return schedule_for_call<C, ordered, constrained>(
                    S{.node = rank.by->hosts_of(*rank.self).ranks_per_host()});  // the hosts, if alike
            else if constexpr (requires(S by_hosts) { by_hosts.hosts = host_map(), by_hosts.root = 0; })
                return schedule_for_call<C, ordered, constrained>(
                    S{.hosts = rank.by->hosts_of(*rank.self), .root = q.c.root});
            else
                return schedule_for_call<C, ordered, constrained>(S{});
        }();
        q.given = &s;
        // Rotation to another root would break the order of ranks: a fold at the root itself keeps it.
        if constexpr (C == collective::reduce && ordered)
            if (q.c.root != 0) q.instead = &schedule_for_call<C, ordered, false>(direct{});
        return Mode::run(rank, q);
    }
}

}  // namespace detail

/// The collectives and messages, with the arguments that collectives.hpp describes. `Mode`: modes.hpp. A class, so that
/// a template may take it as an argument; all members are static.
template <class Mode>
struct calls {
    using result = typename Mode::result;  ///< what its members return

    template <class Schedule = automatic, class Comm, class InOut = detail::braces, class... V>
    static result broadcast(Comm& comm, InOut&& inout, int root, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, copy<collective::broadcast, InOut, InOut>(inout, inout, root), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
    static result scatter(Comm& comm, In&& in, Out&& out, int root, const V&... schedule) {
        return detail::submit<Mode, Schedule>(comm, copy<collective::scatter, In, Out>(in, out, root), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
    static result gather(Comm& comm, In&& in, Out&& out, int root, const V&... schedule) {
        return detail::submit<Mode, Schedule>(comm, copy<collective::gather, In, Out>(in, out, root), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
    static result all_gather(Comm& comm, In&& in, Out&& out, const V&... schedule) {
        return detail::submit<Mode, Schedule>(comm, copy<collective::all_gather, In, Out>(in, out), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
    static result all_to_all(Comm& comm, In&& in, Out&& out, const V&... schedule) {
        return detail::submit<Mode, Schedule>(comm, copy<collective::all_to_all, In, Out>(in, out), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
        class... V>
    static result reduce(Comm& comm, In&& in, Out&& out, const Op& op, int root, const V&... schedule) {
        return detail::submit<Mode, Schedule>(comm, fold<collective::reduce, In, Out>(in, out, op, root), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
        class... V>
    static result reduce_scatter(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, fold<collective::reduce_scatter, In, Out>(in, out, op), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
        class... V>
        requires(detail::buffer_like<Out>)
    static result all_reduce(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
        return detail::submit<Mode, Schedule>(comm, fold<collective::all_reduce, In, Out>(in, out, op), schedule...);
    }
    template <class Schedule = automatic, class Comm, class InOut = detail::braces, class Op, class... V>
        requires(!detail::buffer_like<const Op>)
    static result all_reduce(Comm& comm, InOut&& inout, const Op& op, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, fold<collective::all_reduce, InOut, InOut>(inout, inout, op), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
        class... V>
    static result inclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, fold<collective::inclusive_scan, In, Out>(in, out, op), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
        class... V>
    static result exclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, fold<collective::exclusive_scan, In, Out>(in, out, op), schedule...);
    }
    template <class Schedule = automatic, class Comm, class... V>
    static result barrier(Comm& comm, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::typed_request<collective::barrier, true>{detail::request(collective::barrier)}, schedule...);
    }

    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces,
        class Counts, class... V>
    static result scatter_v(Comm& comm, In&& in, Out&& out, const Counts& counts, int root, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, copy_v<collective::scatter, In, Out>(in, out, counts, root), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces,
        class Counts, class... V>
    static result gather_v(Comm& comm, In&& in, Out&& out, const Counts& counts, int root, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, copy_v<collective::gather, In, Out>(in, out, counts, root), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces,
        class Counts, class... V>
    static result all_gather_v(Comm& comm, In&& in, Out&& out, const Counts& counts, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, copy_v<collective::all_gather, In, Out>(in, out, counts), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces,
        class Counts, class Op, class... V>
    static result reduce_scatter_v(
        Comm& comm, In&& in, Out&& out, const Counts& counts, const Op& op, const V&... schedule) {
        auto r = fold<collective::reduce_scatter, In, Out>(in, out, op);
        detail::set_counts(r.q, r.q.sends, counts);
        return detail::submit<Mode, Schedule>(comm, std::move(r), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Sent,
        class Received, class... V>
    static result all_to_all_v(
        Comm& comm, In&& in, Out&& out, const Sent& sent, const Received& received, const V&... schedule) {
        auto r = copy_v<collective::all_to_all, In, Out>(in, out, sent);
        detail::set_counts(r.q, r.q.receives, received);
        return detail::submit<Mode, Schedule>(comm, std::move(r), schedule...);
    }

    template <class Comm, class Data = detail::braces>
    static result send(Comm& comm, Data&& data, int peer)
        requires(Mode::messages)
    {
        return Mode::run_message(
            comm.handle(), detail::operation_kind::send, detail::sent_message<Mode::keeps, Data>(data), peer);
    }
    template <class Comm, class Data = detail::braces>
    static result recv(Comm& comm, Data&& data, int peer)
        requires(Mode::messages)
    {
        return Mode::run_message(
            comm.handle(), detail::operation_kind::recv, detail::received_message<Mode::keeps, Data>(data), peer);
    }

private:
    // The requests of the calls, by the shape of their arguments. In and Out are the deduced types of arguments In&&
    // and Out&&.

    /// A collective that copies.
    template <collective C, class In, class Out, bool straight = false, class A, class B>
    static auto copy(A& in, B& out, int root = 0) {
        constexpr bool fine = detail::expect_in_and_out<Mode::keeps, In, Out>();
        detail::typed_request<C, fine, false, straight> r{detail::request(C, root)};
        if constexpr (fine) detail::set_buffers(r.q, in, out);
        return r;
    }
    /// One that copies blocks straight from rank to rank, whose lengths are given.
    template <collective C, class In, class Out, class A, class B, class Counts>
    static auto copy_v(A& in, B& out, const Counts& counts, int root = 0) {
        auto r = copy<C, In, Out, (C != collective::all_gather)>(in, out, root);
        detail::set_counts(r.q, r.q.sends, counts);
        return r;
    }
    /// One that reduces.
    template <collective C, class In, class Out, class A, class B, class Op>
    static auto fold(A& in, B& out, const Op& op, int root = 0) {
        constexpr bool fine = detail::expect_fold<Mode::keeps, is_scan(C), In, Out, Op>();
        constexpr bool at_once = fine && detail::folds_at_once<Op, detail::element_of<Out>>();
        detail::typed_request<C, fine, !is_commutative<Op, detail::element_of<In>>, at_once> r{
            detail::request(C, root)};
        if constexpr (fine) {
            detail::set_buffers(r.q, in, out);
            detail::set_operator<Mode::keeps, detail::element_of<Out>>(r.q, op);
        }
        return r;
    }
};

/// The calls that return when they are over.
using blocking = calls<detail::blocking_mode>;

}  // namespace colls::inline v1
