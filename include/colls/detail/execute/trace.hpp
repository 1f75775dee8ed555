// COLLS_DEBUG=trace: each rank prints one line for each of its calls, when the call is over. COLLS_TRACE: the call is
// recorded (recorder.hpp).
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/execute/operation_state.hpp>

#include <cstdio>

namespace colls::inline v1::detail {

inline bool traces(const rank_context& e) { return e.env.debug == debug_level::trace || e.env.trace != nullptr; }
/// When a call begins that is traced.
[[gnu::cold]] [[gnu::noinline]] inline double begin_trace(rank_context& e) {
    if (e.env.trace != nullptr && !e.events) e.events.reset(new recorder(e.env.trace, e.label, e.rank, e.size));
    return seconds_now();
}

/// Traces a call that began at `from`. `what` is the collective, send or recv; `peer` that of a message, none for a
/// collective; `number` the call's; `how` comes before the time that the call took.
[[gnu::cold]] [[gnu::noinline]] inline void put_trace(const rank_context& e, const call& c, const char* what,
    std::string_view schedule, int peer, std::uint64_t number, double from, const char* how) {
    const double took = seconds_now() - from;
    const std::string_view outcome = how;
    if (e.events) {
        recorded_call r;
        r.whole = {from, from + took, (c.count > 0 ? c.count : c.own_count) * c.element, peer, none,
            outcome.substr(0, 7) == "started" ? recorded::started : recorded::call};
        r.number = peer == none ? number : no_recorded_number;
        r.name = what;
        r.failed = outcome.find("failed") != std::string_view::npos;
        e.events->add(r, schedule);
    }
    if (e.env.debug != debug_level::trace) return;
    // Off the root of a gather or scatter a rank may know its own block only.
    const std::size_t count = c.count > 0 ? c.count : c.own_count;
    char by[96], text[320];
    if (peer == none)
        std::snprintf(by, sizeof by, "by %.*s", static_cast<int>(schedule.size()), schedule.data());
    else
        std::snprintf(by, sizeof by, "%s rank %d", what[0] == 's' ? "to" : "from", peer);
    std::snprintf(text, sizeof text, "colls: %.6f s: rank %d of group %s: %s of %zu elements (%zu bytes) %s: %s%.1f us",
        from - e.began, e.rank, e.label, what, count, count * c.element, by, how, took * 1e6);
    say(message() << text);
}
/// Likewise of an operation, when its caller gives it back.
[[gnu::cold]] [[gnu::noinline]] inline void put_trace(const rank_context& e, const operation_state& o) {
    const bool started = o.request.non_blocking, is_message = o.kind != operation_kind::collective;
    put_trace(e, o.request, is_message ? o.site.what : name_of(o.request.what), o.schedule,
        is_message ? o.site.peer : none, o.number, o.traced_from,
        !o.done   ? started ? "started, failed after " : "failed after "
        : started ? "started, "
                  : "");
}

}  // namespace colls::inline v1::detail
