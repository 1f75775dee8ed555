// How operations in flight make progress: each wait of a rank advances all of them.
// IWYU pragma: private, include <colls/operation.hpp>
#pragma once

#include <colls/detail/execute/direct_executor.hpp>
#include <colls/detail/execute/guarded.hpp>
#include <colls/detail/execute/point_to_point.hpp>

namespace colls::inline v1::detail {

/// Runs one operation as far as it gets without waiting; true when it is over.
inline bool advance(rank_context& e, operation_state& o) {
    if (o.done) return true;
    if (e.by_messages) return e.backend->advance(e, o);
    return o.kind == operation_kind::collective ? direct_executor(e, o).advance() : advance_message(e, o);
}
/// Likewise all operations in flight of this group.
inline void advance_all(rank_context& e) {
    for (std::size_t i = 0; i < e.in_flight.size();)
        if (advance(e, *e.in_flight[i]))
            e.drop_in_flight(i);
        else
            ++i;
}

/// Likewise all but one that is waited for. Between any two looks at that one: the peer may wait for another of them,
/// as where two ranks exchange messages, and would wait for as long as this rank spins.
inline void advance_others(rank_context& e, const operation_state& o) {
    if (e.by_messages) return;  // there, to advance one is to advance the connections of all
    for (std::size_t i = 0; i < e.in_flight.size();)
        if (operation_state* const other = e.in_flight[i]; other != &o && advance(e, *other))
            e.drop_in_flight(i);
        else
            ++i;
}

#ifndef COLLS_SEPARATE
/// Likewise in the thread's other groups, too, so that ranks may wait in different orders. An error in another group
/// breaks that group, and its own next call throws it: thrown here, it would leave this group whole, while peers may
/// still be at buffers that the caller is about to give up.
COLLS_INLINE void progress(rank_context& e) {
    advance_all(e);
    if (*e.in_flight_of_cycle == e.in_flight.size()) return;
    for (rank_context* x = e.next; x != &e; x = x->next) {
        if (x->in_flight.empty() || x->memory.poison().state.load(std::memory_order_relaxed) != 0) continue;
        try {
            advance_all(*x);
        } catch (...) {
            call_threw(*x, "an operation in flight");
        }
        no_longer_active(*x);
    }
}
#endif

/// Waits for an operation, within guarded().
inline void run_until_done(rank_context& e, operation_state& o) {
    const struct waiting {
        rank_context& e;
        ~waiting() { e.current = nullptr; }
    } here{e};
    e.current = &o;
    for (;;) {
        // Where it has moved another wait begins: a long call is no reason to sleep.
        backoff wait(e);
        for (const std::size_t chunk = o.chunk, at = o.at; o.chunk == chunk && o.at == at; wait(o.site)) {
            if (advance(e, o)) return;
            advance_others(e, o);
        }
    }
}
/// Waits for an operation; what it throws has broken the group.
inline void wait_until_done(rank_context& e, operation_state& o) {
    guarded(e, o.site.what, [&] { run_until_done(e, o); });
}

}  // namespace colls::inline v1::detail
