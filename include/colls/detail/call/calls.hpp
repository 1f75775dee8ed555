// The calls, written once: what a mode makes of a request decides whether they block, start or prepare.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/call/submit.hpp>

namespace colls::inline v1 {

/// The collectives and messages, with the arguments that collectives.hpp describes. `Mode`: modes.hpp. A class, so that
/// a template may take it as an argument; all members are static.
template <class Mode>
struct calls {
    using result = typename Mode::result;  ///< what its members return

    template <class Schedule = automatic, class Comm, class InOut = detail::braces, class... V>
    static result broadcast(Comm& comm, InOut&& inout, int root, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_copy<Mode, collective::broadcast, InOut, InOut>(inout, inout, root), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
    static result scatter(Comm& comm, In&& in, Out&& out, int root, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_copy<Mode, collective::scatter, In, Out>(in, out, root), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
    static result gather(Comm& comm, In&& in, Out&& out, int root, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_copy<Mode, collective::gather, In, Out>(in, out, root), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
    static result all_gather(Comm& comm, In&& in, Out&& out, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_copy<Mode, collective::all_gather, In, Out>(in, out), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
    static result all_to_all(Comm& comm, In&& in, Out&& out, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_copy<Mode, collective::all_to_all, In, Out>(in, out), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
        class... V>
    static result reduce(Comm& comm, In&& in, Out&& out, const Op& op, int root, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_fold<Mode, collective::reduce, In, Out>(in, out, op, root), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
        class... V>
    static result reduce_scatter(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_fold<Mode, collective::reduce_scatter, In, Out>(in, out, op), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
        class... V>
        requires(detail::buffer_like<Out>)
    static result all_reduce(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_fold<Mode, collective::all_reduce, In, Out>(in, out, op), schedule...);
    }
    template <class Schedule = automatic, class Comm, class InOut = detail::braces, class Op, class... V>
        requires(!detail::buffer_like<const Op>)
    static result all_reduce(Comm& comm, InOut&& inout, const Op& op, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_fold<Mode, collective::all_reduce, InOut, InOut>(inout, inout, op), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
        class... V>
    static result inclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_fold<Mode, collective::inclusive_scan, In, Out>(in, out, op), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
        class... V>
    static result exclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_fold<Mode, collective::exclusive_scan, In, Out>(in, out, op), schedule...);
    }
    template <class Schedule = automatic, class Comm, class... V>
    static result barrier(Comm& comm, const V&... schedule) {
        return detail::submit<Mode, Schedule>(comm, detail::typed_request<collective::barrier, true>(), schedule...);
    }

    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces,
        class Counts, class... V>
    static result scatter_v(Comm& comm, In&& in, Out&& out, const Counts& counts, int root, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_copy_v<Mode, collective::scatter, In, Out>(in, out, counts, root), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces,
        class Counts, class... V>
    static result gather_v(Comm& comm, In&& in, Out&& out, const Counts& counts, int root, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_copy_v<Mode, collective::gather, In, Out>(in, out, counts, root), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces,
        class Counts, class... V>
    static result all_gather_v(Comm& comm, In&& in, Out&& out, const Counts& counts, const V&... schedule) {
        return detail::submit<Mode, Schedule>(
            comm, detail::request_to_copy_v<Mode, collective::all_gather, In, Out>(in, out, counts), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces,
        class Counts, class Op, class... V>
    static result reduce_scatter_v(
        Comm& comm, In&& in, Out&& out, const Counts& counts, const Op& op, const V&... schedule) {
        auto r = detail::request_to_fold<Mode, collective::reduce_scatter, In, Out>(in, out, op);
        detail::set_counts(r.q, r.q.sends, counts);
        return detail::submit<Mode, Schedule>(comm, std::move(r), schedule...);
    }
    template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Sent,
        class Received, class... V>
    static result all_to_all_v(
        Comm& comm, In&& in, Out&& out, const Sent& sent, const Received& received, const V&... schedule) {
        auto r = detail::request_to_copy_v<Mode, collective::all_to_all, In, Out>(in, out, sent);
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
};

/// The calls that return when they are over.
using blocking = calls<detail::blocking_mode>;

}  // namespace colls::inline v1
