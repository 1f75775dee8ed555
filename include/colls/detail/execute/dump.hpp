// Where the ranks of a group stand: for a person who looks at a program that does not move.
#pragma once

#include <colls/detail/execute/direct_executor.hpp>

namespace colls::inline v1::detail {

/// What rank r does in the operation that it is in, from its line in shared memory; `mine`: this rank's own state of
/// it, which knows the execution plan.
[[gnu::cold]] inline void describe_line(message& text, const rank_context& e, int r, const operation_state* mine) {
    const std::uint64_t sequence = e.memory.state(r).completed.load(std::memory_order_acquire);
    const std::uint64_t word = e.memory.operation(sequence % window, r).progress.load(std::memory_order_acquire);
    if (word >> 24 != sequence + 1) return;  // it has not entered
    text << "; in operation " << static_cast<std::size_t>(sequence + 1);
    const auto value = static_cast<std::size_t>(word & 0xffffff);
    if (!mine || mine->sequence != sequence || !mine->steps || mine->steps->values() == 0) return;
    const auto values = static_cast<std::size_t>(mine->steps->values());
    put_brief(text << " (" << mine->site.what << ", ", mine->site.schedule) << ")";
    if (value == 0)
        text << ": has entered";
    else
        text << ": chunk " << (value - 1) / values << " of " << mine->chunks << ", has done round "
             << (value - 1) % values / 2;
}

COLLS_INLINE void print_dump(const rank_context& e, const wait_site* at) {
    const auto print = [](const message& text) { std::fprintf(stderr, "%s\n", text.text()); };
    print(message() << "colls: rank " << e.rank << " of " << e.size << ": " << static_cast<std::size_t>(e.calls)
                    << " calls begun, " << e.in_flight.size() << " operations in flight"
                    << (e.by_messages ? ", by messages" : ""));
    const operation_state* mine = e.current;
    if (at) {
        message text;
        text << "colls:   waits" << *at;
        if (at->peer != none) text << ", for rank " << at->peer;
        print(text);
    }
    for (const operation_state* o : e.in_flight) {
        message text;
        text << "colls:   in flight:" << o->site;
        if (o->site.peer != none) text << ", waits for rank " << o->site.peer;
        print(text);
        if (o->kind == operation_kind::collective && (!mine || o->sequence < mine->sequence)) mine = o;
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
        if (!e.by_messages) describe_line(text, e, r, mine);
        if (const std::uint64_t call = s.board_call.load(std::memory_order_acquire); call != 0)
            text << "; has waited for long in call " << static_cast<std::size_t>(call) << ", "
                 << collective_in(s.board_fingerprint.load(std::memory_order_acquire));
        print(text);
    }
}

}  // namespace colls::inline v1::detail
