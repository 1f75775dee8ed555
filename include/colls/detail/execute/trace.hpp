// COLLS_DEBUG=trace: each rank prints one line for each of its calls, when the call is over.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/execute/operation_state.hpp>

#include <cstdio>

namespace colls::inline v1::detail {

inline bool traces(const rank_context& e) { return e.env.debug == debug_level::trace; }

/// Prints the line of a call that began at `from`, as seconds_now says it. `what` is the collective, send or recv;
/// `peer` that of a message, none for a collective; `how` comes before the time that the call took.
[[gnu::cold]] [[gnu::noinline]] inline void put_trace(const rank_context& e, const call& c, const char* what,
    std::string_view schedule, int peer, double from, const char* how) {
    const double took = seconds_now() - from;
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
        is_message ? o.site.peer : none, o.traced_from,
        !o.done   ? started ? "started, failed after " : "failed after "
        : started ? "started, "
                  : "");
}

}  // namespace colls::inline v1::detail
