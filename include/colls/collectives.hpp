// The calls. Blocking ones are functions of colls; start:: and prepare:: have the same ones with the same arguments.
//
// A buffer is a contiguous range of trivially copyable elements (std::span, std::vector, std::array, an array, ...).
// Where a buffer has a block for each rank and its size does not divide, the first size % n blocks are longer by one.
// In place means the same buffer as input and output; for collectives with blocks, that the one buffer is the rank's
// own block within the other. All ranks make the same calls in the same order, and the library checks that they do.
//
// The schedule is the first template argument (a schedule, or a family of them), or a value as the last argument;
// without one the library chooses (`automatic`). Every call throws colls::error.
#pragma once

#include <colls/detail/reduce/known_folds.hpp>
#include <colls/operation.hpp>
#include <colls/verify.hpp>
#include <colls/wait.hpp>
#ifndef COLLS_SEPARATE
#include <colls/detail/call/engine.hpp>
#endif

namespace colls::inline v1 {
namespace detail {

template <class R>
concept buffer_like = std::is_array_v<std::remove_reference_t<R>> || requires(R& r) {
    *r.data();
    { r.size() } -> std::convertible_to<std::size_t>;
};
template <class R>
constexpr auto* data_of(R& r) {
    if constexpr (std::is_array_v<R>)
        return &r[0];
    else
        return r.data();
}
template <class R>
constexpr std::size_t size_of_buffer(R& r) {
    if constexpr (std::is_array_v<R>)
        return sizeof(R) / sizeof(r[0]);
    else
        return static_cast<std::size_t>(r.size());
}
/// In place of a list in braces, which has no type.
struct braces {
    template <class... T>
    braces(T&&...) {}
};
/// Of what is no buffer, which is said once: see `expect_buffers`.
struct no_element {};
template <class R>
struct element {
    using type = no_element;
};
template <buffer_like R>
struct element<R> {
    using type = std::remove_reference_t<decltype(*data_of(std::declval<R&>()))>;
};
template <class R>
using element_of = typename element<std::remove_reference_t<R>>::type;

/// May a call that outlives its statement use what was passed as X&&: something with a name, or a view of something
/// else?
template <class X>
inline constexpr bool outlives_call =
    std::is_lvalue_reference_v<X> || std::ranges::enable_borrowed_range<std::remove_cvref_t<X>>;

/// Says in words what is wrong with buffers that were passed as X&&. False: something is, and what follows is not
/// compiled.
template <bool keeps, class... X>
constexpr bool expect_buffers() {
    constexpr bool are = (buffer_like<std::remove_reference_t<X>> && ...);
    static_assert(are,
        "colls: a buffer is a contiguous range, such as std::vector, std::array or std::span; for a pointer and a "
        "count "
        "write std::span(p, n), for one value std::span(&x, 1)");
    constexpr bool live = !keeps || (outlives_call<X> && ...);
    static_assert(live,
        "colls: this buffer is a temporary, and a started or prepared call uses its buffers after the statement that "
        "makes "
        "it: give the buffer a name");
    return are && live;
}
/// The same of an input and an output.
template <bool keeps, class In, class Out>
constexpr bool expect_in_and_out() {
    if constexpr (expect_buffers<keeps, In, Out>()) {
        using T = element_of<Out>;
        static_assert(!std::is_const_v<T>, "colls: the output buffer is const");
        constexpr bool alike = std::is_same_v<std::remove_const_t<element_of<In>>, std::remove_const_t<T>>;
        static_assert(alike, "colls: input and output must be of one element type");
        static_assert(std::is_trivially_copyable_v<T>, "colls: elements must be trivially copyable");
        return !std::is_const_v<T> && alike && std::is_trivially_copyable_v<T>;
    }
    return false;
}
/// The same of an operator.
template <class T, class Op>
constexpr bool expect_operator() {
    constexpr bool function = std::is_function_v<Op>;
    static_assert(!function, "colls: this operator is a function: pass its address, &f");
    if constexpr (!function) {
        constexpr bool takes = operator_on<Op, T>;
        static_assert(
            takes, "colls: this operator does not take this element type: it must be const-callable as T(T, T)");
        return takes;
    }
    return false;
}

template <class T>
inline constexpr std::string_view type_text = type_name<T>();
template <class T>
inline constexpr std::uint64_t type_hash = hash_text(type_text<T>);

/// S can be asked in a constant expression, without a value of it at hand.
template <class S>
concept constant_schedule = requires { typename std::bool_constant<(static_cast<void>(S{}.rounds(2)), true)>; };

/// Is S in rank order at small sizes? (At the size of the call the proof at run time asks again.)
template <class S>
constexpr bool keeps_order_at_small_sizes() {
    if constexpr (constant_schedule<S>) {
        for (int n = 2; n <= 5; ++n)
            if (v1::supports(S{}, n) && !examine(S{}, n).order_preserving) return false;
    }
    return true;
}

template <class S, class... F>
constexpr bool is_candidate(collective, families<F...>) {
    return (std::is_same_v<S, F> || ...);
}

// What a mode does with a request that is complete.
struct blocking_mode {
    using result = void;
    static constexpr bool keeps = false;
    static void go(rank_context& e, request& q) { perform(e, q); }
    static void message_go(rank_context& e, operation_kind kind, const call& c, int peer) {
        perform_message(e, kind, c, peer);
    }
};
struct start_mode {
    using result = operation;
    static constexpr bool keeps = true;
    static operation go(rank_context& e, request& q) { return {e, begin(e, q)}; }
    static operation message_go(rank_context& e, operation_kind kind, const call& c, int peer) {
        return {e, begin_message(e, kind, c, peer)};
    }
};
struct prepare_mode {
    using result = plan;
    static constexpr bool keeps = true;
    static plan go(rank_context& e, request& q) { return plan(e, q); }
};

template <class Schedule, class... V>
struct schedule_argument {
    using type = Schedule;
};
template <class Schedule, class V>
struct schedule_argument<Schedule, V> {
    using type = V;
};

template <class T>
void set_input(request& q, const T* data, std::size_t count) {
    q.c.in = reinterpret_cast<const std::byte*>(data);
    q.in_count = count;
}
template <class T>
void set_output(request& q, T* data, std::size_t count) {
    q.c.out = reinterpret_cast<std::byte*>(data);
    q.out_count = count;
}
template <class T>
void set_type(request& q) {
    q.c.element = sizeof(T);
    q.c.type = &type_text<std::remove_const_t<T>>;
    q.c.signature = hash_mix(q.c.signature, type_hash<std::remove_const_t<T>>);
}
template <bool keep, class T, class Op>
void set_operator(request& q, const Op& op) {
    q.c.op = &op_table_for<T, Op>;
    q.c.op_type = &type_text<Op>;
    q.c.signature = hash_mix(q.c.signature, type_hash<Op>);
    q.c.op_value = &op;  // an empty operator is never looked at
    if constexpr (keep && !std::is_empty_v<Op>) {
        q.copy_op = [](const void* from) -> void* { return new Op(*static_cast<const Op*>(from)); };
        q.drop_op = [](void* copy) { delete static_cast<Op*>(copy); };
    }
}
template <class Counts>
list<std::size_t> counts_of(request& q, const Counts& counts) {
    using I = std::remove_const_t<element_of<const Counts>>;
    static_assert(std::is_integral_v<I>, "colls: counts are a contiguous range of integers");
    list<std::size_t> all;
    if constexpr (std::is_integral_v<I>) {
        const auto* const at = data_of(counts);
        for (std::size_t i = 0; i < size_of_buffer(counts); ++i) {
            if constexpr (std::is_signed_v<I>) q.negative = q.negative || at[i] < 0;
            all.push_back(static_cast<std::size_t>(at[i]));
        }
    }
    q.with_counts = true;
    return all;
}

/// The schedule of a call, its type forgotten. What is wrong with it is said here, in words.
template <collective C, bool ordered, class S>
any_schedule schedule_for_call(const S& given) {
    if constexpr (expect_schedule_or_family<S>()) {
        static_assert(
            provides<S, C>, "colls: this schedule implements another collective, and none of its kind follows from it");
        if constexpr (provides<S, C>) {
            const auto s = schedule_of<C>(given);
            using made = std::remove_const_t<decltype(s)>;
            if constexpr (ordered) {
                constexpr bool in_order = keeps_order_at_small_sizes<made>();
                static_assert(in_order,
                    "colls: this operator is not known to commute, and this schedule does not keep the order of ranks; "
                    "take direct, "
                    "or automatic, or mark the operator with colls::commutative(op)");
                return any_schedule(s, table_of<made>, written_name<S>());
            } else if constexpr (is_candidate<S>(C, known_families{})) {
                return any_schedule(s, proven_table_of<made>, written_name<S>());
            } else {
                return any_schedule(s, table_of<made>, written_name<S>());
            }
        }
    }
    __builtin_trap();  // compiled only after an error: g++ would also warn that nothing is returned
}

/// `fine`: nothing has been found wrong with the arguments, which the compiler has said then.
template <class Mode, class Schedule, collective C, bool fine, bool ordered, class Comm, class... V>
typename Mode::result submit(Comm& comm, request& q, const V&... value) {
    static_assert(!fine || sizeof...(V) <= 1,
        "colls: too many arguments: a call takes one schedule value at most, as its last argument");
    rank_context& e = comm.context();
    q.c.what = C;
    using S = typename schedule_argument<Schedule, V...>::type;
    if constexpr (!fine || sizeof...(V) > 1) {
        __builtin_trap();
    } else if constexpr (std::is_same_v<S, automatic>) {
        q.how.list = &candidates_for<C>;
        return Mode::go(e, q);
    } else {
        const any_schedule s = [&] {
            if constexpr (sizeof...(V) != 0)
                return schedule_for_call<C, ordered>(value...);
            else if constexpr (requires(S by_levels) { by_levels.node = 0; })
                return schedule_for_call<C, ordered>(S{.node = ranks_per_host(e)});  // the hosts, where they are alike
            else
                return schedule_for_call<C, ordered>(S{});
        }();
        q.how.given = &s;
        if constexpr (C == collective::reduce && ordered) {
            // Rotation would break the order of ranks: only one fold at the root itself keeps it.
            const any_schedule at_root = schedule_for_call<C, ordered>(direct{});
            if (q.c.root != 0) q.how.instead = &at_root;
            return Mode::go(e, q);
        }
        return Mode::go(e, q);
    }
}

/// All calls, for one mode.
template <class Mode>
struct calls {
    using result = typename Mode::result;

    template <class S = automatic, class Comm, class X = braces, class... V>
    static result broadcast(Comm& comm, X&& inout, int root, const V&... v) {
        request q = moving<X, X>(inout, inout);
        q.two = false;
        q.c.root = root;
        return submit<Mode, S, collective::broadcast, fine<X, X>, false>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class In = braces, class Out = braces, class... V>
    static result scatter(Comm& comm, In&& in, Out&& out, int root, const V&... v) {
        request q = moving<In, Out>(in, out);
        q.c.root = root;
        return submit<Mode, S, collective::scatter, fine<In, Out>, false>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class In = braces, class Out = braces, class... V>
    static result gather(Comm& comm, In&& in, Out&& out, int root, const V&... v) {
        request q = moving<In, Out>(in, out);
        q.c.root = root;
        return submit<Mode, S, collective::gather, fine<In, Out>, false>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class In = braces, class Out = braces, class... V>
    static result all_gather(Comm& comm, In&& in, Out&& out, const V&... v) {
        request q = moving<In, Out>(in, out);
        return submit<Mode, S, collective::all_gather, fine<In, Out>, false>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class In = braces, class Out = braces, class... V>
    static result all_to_all(Comm& comm, In&& in, Out&& out, const V&... v) {
        request q = moving<In, Out>(in, out);
        return submit<Mode, S, collective::all_to_all, fine<In, Out>, false>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class... V>
    static result barrier(Comm& comm, const V&... v) {
        request q;
        return submit<Mode, S, collective::barrier, true, false>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class In = braces, class Out = braces, class Op, class... V>
    static result reduce(Comm& comm, In&& in, Out&& out, const Op& op, int root, const V&... v) {
        request q = folding<In, Out>(in, out, op);
        q.c.root = root;
        return submit<Mode, S, collective::reduce, fine_fold<In, Out, Op>, ordered<In, Op>>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class In = braces, class Out = braces, class Op, class... V>
    static result reduce_scatter(Comm& comm, In&& in, Out&& out, const Op& op, const V&... v) {
        request q = folding<In, Out>(in, out, op);
        return submit<Mode, S, collective::reduce_scatter, fine_fold<In, Out, Op>, ordered<In, Op>>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class X = braces, class Op, class... V>
        requires(!buffer_like<const Op>)
    static result all_reduce(Comm& comm, X&& inout, const Op& op, const V&... v) {
        request q = folding<X, X>(inout, inout, op);
        q.two = false;
        return submit<Mode, S, collective::all_reduce, fine_fold<X, X, Op>, ordered<X, Op>>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class In = braces, class Out = braces, class Op, class... V>
        requires(buffer_like<Out>)
    static result all_reduce(Comm& comm, In&& in, Out&& out, const Op& op, const V&... v) {
        request q = folding<In, Out>(in, out, op);
        return submit<Mode, S, collective::all_reduce, fine_fold<In, Out, Op>, ordered<In, Op>>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class In = braces, class Out = braces, class Op, class... V>
    static result inclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const V&... v) {
        request q = scanning<In, Out>(in, out, op);
        return submit<Mode, S, collective::inclusive_scan, fine_scan<In, Out, Op>, ordered<In, Op>>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class In = braces, class Out = braces, class Op, class... V>
    static result exclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const V&... v) {
        request q = scanning<In, Out>(in, out, op);
        return submit<Mode, S, collective::exclusive_scan, fine_scan<In, Out, Op>, ordered<In, Op>>(comm, q, v...);
    }

    template <class S = automatic, class Comm, class In = braces, class Out = braces, class Counts, class... V>
    static result scatter_v(Comm& comm, In&& in, Out&& out, const Counts& counts, int root, const V&... v) {
        request q = moving<In, Out>(in, out);
        q.sends = counts_of(q, counts);
        q.c.root = root;
        return submit_direct<S, collective::scatter, fine<In, Out>>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class In = braces, class Out = braces, class Counts, class... V>
    static result gather_v(Comm& comm, In&& in, Out&& out, const Counts& counts, int root, const V&... v) {
        request q = moving<In, Out>(in, out);
        q.sends = counts_of(q, counts);
        q.c.root = root;
        return submit_direct<S, collective::gather, fine<In, Out>>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class In = braces, class Out = braces, class Counts, class... V>
    static result all_gather_v(Comm& comm, In&& in, Out&& out, const Counts& counts, const V&... v) {
        request q = moving<In, Out>(in, out);
        q.sends = counts_of(q, counts);
        return submit<Mode, S, collective::all_gather, fine<In, Out>, false>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class In = braces, class Out = braces, class Counts, class Op,
        class... V>
    static result reduce_scatter_v(Comm& comm, In&& in, Out&& out, const Counts& counts, const Op& op, const V&... v) {
        request q = folding<In, Out>(in, out, op);
        q.sends = counts_of(q, counts);
        return submit<Mode, S, collective::reduce_scatter, fine_fold<In, Out, Op>, ordered<In, Op>>(comm, q, v...);
    }
    template <class S = automatic, class Comm, class In = braces, class Out = braces, class Sent, class Received,
        class... V>
    static result all_to_all_v(
        Comm& comm, In&& in, Out&& out, const Sent& sent, const Received& received, const V&... v) {
        request q = moving<In, Out>(in, out);
        q.sends = counts_of(q, sent);
        q.receives = counts_of(q, received);
        return submit_direct<S, collective::all_to_all, fine<In, Out>>(comm, q, v...);
    }

    template <class Comm, class X = braces>
    static result send(Comm& comm, X&& data, int peer) {
        return Mode::message_go(comm.context(), operation_kind::send, outgoing<X>(data), peer);
    }
    template <class Comm, class X = braces>
    static result recv(Comm& comm, X&& data, int peer) {
        return Mode::message_go(comm.context(), operation_kind::recv, incoming<X>(data), peer);
    }
    /// Of a message, passed as X&&.
    template <class X, class A>
    static call outgoing(A& data) {
        request q;
        if constexpr (constexpr bool is = expect_buffers<Mode::keeps, X>(); is) {
            set_type<element_of<const X>>(q);
            set_input(q, data_of(data), size_of_buffer(data));
        }
        q.c.count = q.in_count;
        return q.c;
    }
    template <class X, class A>
    static call incoming(A& data) {
        request q;
        if constexpr (constexpr bool is = expect_in_and_out<Mode::keeps, X, X>(); is) {
            set_type<element_of<X>>(q);
            set_output(q, data_of(data), size_of_buffer(data));
        }
        q.c.count = q.out_count;
        return q.c;
    }

private:
    template <class X, class Op>
    static constexpr bool ordered = !is_commutative<Op, std::remove_const_t<element_of<X>>>;
    // Where ranks know their own counts only, blocks cannot pass through others.
    template <class S, class... V>
    using direct_only = S;

    // Has nothing been found wrong with buffers and operator?
    template <class In, class Out>
    static constexpr bool fine = expect_in_and_out<Mode::keeps, In, Out>();
    template <class In, class Out, class Op>
    static constexpr bool fine_fold = [] {
        if constexpr (fine<In, Out>) return expect_operator<element_of<Out>, Op>();
        return false;
    }();
    template <class In, class Out, class Op>
    static constexpr bool fine_scan = [] {
        if constexpr (fine_fold<In, Out, Op>) {
            constexpr bool finishes = has_finish<Op, element_of<Out>>;
            static_assert(!finishes,
                "colls: a scan has no use for an operator with a last step, such as avg: the ranks' results are of "
                "different numbers "
                "of contributions");
            return !finishes;
        }
        return false;
    }();

    template <class S, collective C, bool fine, class Comm, class... V>
    static result submit_direct(Comm& comm, request& q, const V&...) {
        using given = typename schedule_argument<S, V...>::type;
        static_assert(std::is_same_v<given, automatic> || std::is_same_v<given, direct>,
            "colls: gather_v, scatter_v and all_to_all_v go straight from rank to rank (direct): ranks between would "
            "not know how "
            "much they pass on");
        return submit<Mode, direct, C, fine, false>(comm, q);
    }
    template <class In, class Out, class A, class B>
    static request moving(A& in, B& out) {
        request q;
        if constexpr (fine<In, Out>) {
            set_type<element_of<Out>>(q);
            set_input(q, data_of(in), size_of_buffer(in));
            set_output(q, data_of(out), size_of_buffer(out));
            q.two = true;
        }
        return q;
    }
    template <class In, class Out, class A, class B, class Op>
    static request folding(A& in, B& out, const Op& op) {
        request q = moving<In, Out>(in, out);
        if constexpr (fine_fold<In, Out, Op>) set_operator<Mode::keeps, element_of<Out>>(q, op);
        return q;
    }
    template <class In, class Out, class A, class B, class Op>
    static request scanning(A& in, B& out, const Op& op) {
        request q = moving<In, Out>(in, out);
        if constexpr (fine_scan<In, Out, Op>) set_operator<Mode::keeps, element_of<Out>>(q, op);
        return q;
    }
};

}  // namespace detail

/// Non-blocking calls: `auto done = colls::start::all_reduce(comm, x, colls::sum); ... done.wait();`
struct start : detail::calls<detail::start_mode> {};
/// Calls to be made many times: `auto plan = colls::prepare::all_reduce(comm, x, colls::sum); ... plan.run();`
struct prepare : detail::calls<detail::prepare_mode> {};

// Blocking calls. Costs: in the best schedules, S the bytes of the larger buffer, n ranks; see docs for each family's.

/// (comm, inout, root): every rank gets the root's buffer. log2 n rounds or S bytes a rank.
template <class Schedule = automatic, class Comm, class X = detail::braces, class... V>
void broadcast(Comm& comm, X&& inout, int root, const V&... schedule) {
    detail::calls<detail::blocking_mode>::broadcast<Schedule>(comm, static_cast<X&&>(inout), root, schedule...);
}
/// (comm, in, out, root): rank r gets block r of the root's `in`; elsewhere `in` may be empty.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
void scatter(Comm& comm, In&& in, Out&& out, int root, const V&... schedule) {
    detail::calls<detail::blocking_mode>::scatter<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), root, schedule...);
}
/// (comm, in, out, root): the root gets rank r's `in` as block r of `out`; elsewhere `out` may be empty.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
void gather(Comm& comm, In&& in, Out&& out, int root, const V&... schedule) {
    detail::calls<detail::blocking_mode>::gather<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), root, schedule...);
}
/// (comm, in, out): every rank gets rank r's `in` as block r of `out`. S (n - 1) / n bytes a rank.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
void all_gather(Comm& comm, In&& in, Out&& out, const V&... schedule) {
    detail::calls<detail::blocking_mode>::all_gather<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), schedule...);
}
/// (comm, in, out, op, root): the root gets the fold of all ranks' `in`; elsewhere `out` may be empty.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
    class... V>
void reduce(Comm& comm, In&& in, Out&& out, const Op& op, int root, const V&... schedule) {
    detail::calls<detail::blocking_mode>::reduce<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), op, root, schedule...);
}
/// (comm, in, out, op): rank r gets block r of the fold of all ranks' `in`. S (n - 1) / n bytes a rank.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
    class... V>
void reduce_scatter(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
    detail::calls<detail::blocking_mode>::reduce_scatter<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), op, schedule...);
}
/// (comm, inout, op) or (comm, in, out, op): every rank gets the fold of all ranks' `in`. 2 S (n - 1) / n bytes a rank.
template <class Schedule = automatic, class Comm, class X = detail::braces, class Op, class... V>
    requires(!detail::buffer_like<const Op>)
void all_reduce(Comm& comm, X&& inout, const Op& op, const V&... schedule) {
    detail::calls<detail::blocking_mode>::all_reduce<Schedule>(comm, static_cast<X&&>(inout), op, schedule...);
}
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
    class... V>
    requires(detail::buffer_like<Out>)
void all_reduce(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
    detail::calls<detail::blocking_mode>::all_reduce<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), op, schedule...);
}
/// (comm, in, out): block b of rank r's `in` becomes block r of rank b's `out`. Sizes divide by n.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
void all_to_all(Comm& comm, In&& in, Out&& out, const V&... schedule) {
    detail::calls<detail::blocking_mode>::all_to_all<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), schedule...);
}
/// (comm): returns when every rank has called it.
template <class Schedule = automatic, class Comm, class... V>
void barrier(Comm& comm, const V&... schedule) {
    detail::calls<detail::blocking_mode>::barrier<Schedule>(comm, schedule...);
}
/// (comm, in, out, op): rank r gets the fold of ranks 0..r.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
    class... V>
void inclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
    detail::calls<detail::blocking_mode>::inclusive_scan<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), op, schedule...);
}
/// (comm, in, out, op): rank r gets the fold of ranks 0..r-1; rank 0's `out` stays as it is.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
    class... V>
void exclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
    detail::calls<detail::blocking_mode>::exclusive_scan<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), op, schedule...);
}

/// (comm, in, out, counts, root): blocks of counts[r] elements, back to back. Only the root needs the counts.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Counts,
    class... V>
void scatter_v(Comm& comm, In&& in, Out&& out, const Counts& counts, int root, const V&... schedule) {
    detail::calls<detail::blocking_mode>::scatter_v<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), counts, root, schedule...);
}
/// (comm, in, out, counts, root): likewise.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Counts,
    class... V>
void gather_v(Comm& comm, In&& in, Out&& out, const Counts& counts, int root, const V&... schedule) {
    detail::calls<detail::blocking_mode>::gather_v<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), counts, root, schedule...);
}
/// (comm, in, out, counts): blocks of counts[r] elements, back to back; the same counts on every rank.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Counts,
    class... V>
void all_gather_v(Comm& comm, In&& in, Out&& out, const Counts& counts, const V&... schedule) {
    detail::calls<detail::blocking_mode>::all_gather_v<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), counts, schedule...);
}
/// (comm, in, out, counts, op): likewise.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Counts,
    class Op, class... V>
void reduce_scatter_v(Comm& comm, In&& in, Out&& out, const Counts& counts, const Op& op, const V&... schedule) {
    detail::calls<detail::blocking_mode>::reduce_scatter_v<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), counts, op, schedule...);
}
/// (comm, in, out, send_counts, receive_counts): each rank knows its own; what does not fit is an error (mismatch).
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Sent,
    class Received, class... V>
void all_to_all_v(Comm& comm, In&& in, Out&& out, const Sent& sent, const Received& received, const V&... schedule) {
    detail::calls<detail::blocking_mode>::all_to_all_v<Schedule>(
        comm, static_cast<In&&>(in), static_cast<Out&&>(out), sent, received, schedule...);
}

/// (comm, data, peer): returns when the receiver has copied the data, straight out of this buffer.
template <class Comm, class X = detail::braces>
void send(Comm& comm, X&& data, int peer) {
    detail::calls<detail::blocking_mode>::send(comm, static_cast<X&&>(data), peer);
}
/// (comm, data, peer): the next message from that rank, which must be as long as `data`.
template <class Comm, class X = detail::braces>
void recv(Comm& comm, X&& data, int peer) {
    detail::calls<detail::blocking_mode>::recv(comm, static_cast<X&&>(data), peer);
}
/// (comm, data): the next message of any rank, which must be as long as `data`. Returns the rank. Messages of one rank
/// come in the order in which they were sent, and ranks that send take turns. While a started `recv` from a rank is not
/// over, this does not take that rank's messages.
template <class Comm, class X = detail::braces>
int recv_any(Comm& comm, X&& data) {
    return detail::perform_recv_any(comm.context(), detail::calls<detail::blocking_mode>::incoming<X>(data));
}
/// (comm, out, to, in, from): sends `out` to one rank, and receives `in` from one, at once: where each rank of a ring
/// calls it, none waits for ever. The two buffers must not overlap. Either rank may be this one.
template <class Comm, class Out = detail::braces, class In = detail::braces>
void exchange(Comm& comm, Out&& out, int to, In&& in, int from) {
    using blocking = detail::calls<detail::blocking_mode>;
    detail::perform_exchange(comm.context(), blocking::outgoing<Out>(out), to, blocking::incoming<In>(in), from);
}

}  // namespace colls::inline v1
