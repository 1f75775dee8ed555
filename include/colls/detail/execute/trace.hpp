// COLLS_DEBUG=trace: each rank prints one line for each of its calls, when the call is over. COLLS_TRACE: the call is
// recorded (recorder.hpp).
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/execute/operation_state.hpp>

#include <cstdio>

namespace colls::inline v1::detail {

/// When a call begins that is traced.
[[gnu::cold]] [[gnu::noinline]] inline double begin_trace(rank_context& self) {
    if (self.env.trace != nullptr && !self.events)
        self.events.reset(new recorder(self.env.trace, self.label, self.rank, self.size));
    return seconds_now();
}

/// How a call went that is traced.
struct traced_outcome {
    bool started = false, failed = false;
};
/// Traces a call that began at `from`. `what` is the collective, send or recv; `peer` that of a message, none for a
/// collective; `number` the call's.
[[gnu::cold]] [[gnu::noinline]] inline void put_trace(const rank_context& self, const call& c, const char* what,
    std::string_view schedule, int peer, std::uint64_t number, double from, traced_outcome how = {}) {
    const double took = seconds_now() - from;
    if (self.events) {
        recorded_call r;
        r.whole = {from, from + took, (c.count > 0 ? c.count : c.own_count) * c.element, peer, none,
            how.started ? recorded::started : recorded::call};
        r.number = peer == none ? number : no_call;
        r.name = what;
        r.failed = how.failed;
        self.events->add(r, schedule);
    }
    if (self.env.debug != debug_level::trace) return;
    // Off the root of a gather or scatter a rank may know its own block only.
    const std::size_t count = c.count > 0 ? c.count : c.own_count;
    char by[96], text[320];
    if (peer == none)
        std::snprintf(by, sizeof by, "by %.*s", static_cast<int>(schedule.size()), schedule.data());
    else
        std::snprintf(by, sizeof by, "%s rank %d", what[0] == 's' ? "to" : "from", peer);
    std::snprintf(text, sizeof text,
        "colls: %.6f s: rank %d of group %s: %s of %zu elements (%zu bytes) %s: %s%s%.1f us", from - self.began,
        self.rank, self.label, what, count, count * c.element, by, how.started ? "started, " : "",
        how.failed ? "failed after " : "", took * 1e6);
    say(error_text() << text);
}
/// Likewise of an operation, when its caller gives it back.
[[gnu::cold]] [[gnu::noinline]] inline void put_trace(const rank_context& self, const operation_state& o) {
    const bool is_message = o.kind != operation_kind::collective;
    put_trace(self, o.arguments, is_message ? o.site.what : name_of(o.arguments.what), o.schedule,
        is_message ? o.site.peer : none, o.number, o.traced_from, {o.arguments.non_blocking, !o.done});
}

}  // namespace colls::inline v1::detail
