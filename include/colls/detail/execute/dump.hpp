// The dump of a group: how far each of its ranks is, for a person who debugs a program that hangs.
// IWYU pragma: private, include <colls/communicator.hpp>
#pragma once

#include <colls/detail/execute/operation_state.hpp>

#include <cstdio>

namespace colls::inline v1::detail {

/// Appends how far rank r is in its current operation, from its line in shared memory. `own` is an operation of this
/// rank: if it is the same one, its plan says what the line's progress word means.
[[gnu::cold]] inline void describe_line(message& text, const rank_context& e, int r, const operation_state* own) {
    const std::uint64_t sequence = e.memory.state(r).completed.load(std::memory_order_acquire);
    const std::uint64_t word = e.memory.operation(sequence % window, r).progress.load(std::memory_order_acquire);
    if (word >> 24 != sequence + 1) return;  // it has not entered
    text << "; in operation " << static_cast<std::size_t>(sequence + 1);
    const auto value = static_cast<std::size_t>(word & 0xffffff);
    if (!own || own->sequence != sequence || !own->plan || own->plan->values() == 0) return;
    const auto values = static_cast<std::size_t>(own->plan->values());
    put_brief(text << " (" << own->site.what << ", ", own->site.schedule) << ")";
    if (value == 0)
        text << ": has entered";
    else
        text << ": chunk " << (value - 1) / values << " of " << own->layout.chunks << ", has done round "
             << (value - 1) % values / 2;
}

/// Prints to stderr what this rank is doing, and what it knows of the others. `at`: where it waits; null: it does not.
COLLS_INLINE void print_dump(const rank_context& e, const wait_site* at) {
    const auto print = [](const message& text) { std::fprintf(stderr, "%s\n", text.text()); };
    print(message() << "colls: rank " << e.rank << " of " << e.size << ": " << static_cast<std::size_t>(e.calls)
                    << " calls begun, " << e.in_flight.size() << " operations in flight"
                    << (e.by_messages ? ", by messages" : ""));
    const operation_state* own = e.current;
    if (at) {
        message text;
        text << "colls:   waits" << *at;
        if (at->peer != none) text << ", for rank " << at->peer;
        print(text);
    }
    if (e.calls > 0) print(message() << "colls:   its latest calls:");
    for_latest_calls(e.recent, e.calls, [&](const message& text) { print(message() << "colls:     " << text.text()); });
    for (const operation_state* o : e.in_flight) {
        message text;
        text << "colls:   in flight:" << o->site;
        if (o->site.peer != none) text << ", waits for rank " << o->site.peer;
        print(text);
        if (o->kind == operation_kind::collective && (!own || o->sequence < own->sequence)) own = o;
    }
    const poison_state& p = e.memory.poison();
    if (p.state.load(std::memory_order_acquire) == 2)
        print(message() << "colls:   the group is broken: " << std::string_view(p.text));
    for (int r = 0; r < e.size; ++r) {
        const rank_state& s = e.memory.state(r);
        message text;
        text << "colls:   rank " << r;
        if (const auto process = s.process.load(std::memory_order_relaxed); process != 0)
            text << " (process " << static_cast<long long>(process) << ")";
        text << ":";
        if (e.backend->dead(r))
            text << " has died";
        else if (s.gone.load(std::memory_order_acquire) != 0)
            text << " has left the group";
        else if (!e.by_messages)
            text << " " << static_cast<std::size_t>(s.completed.load(std::memory_order_acquire)) << " operations over";
        else
            text << (r == e.rank ? " this one" : " is there, as far as is known");
        if (!e.by_messages) describe_line(text, e, r, own);
        if (const std::uint64_t call = s.board_call.load(std::memory_order_acquire); call != 0)
            text << "; has waited for long in call " << static_cast<std::size_t>(call) << ", "
                 << collective_in(s.board_fingerprint.load(std::memory_order_acquire));
        print(text);
    }
}

}  // namespace colls::inline v1::detail
