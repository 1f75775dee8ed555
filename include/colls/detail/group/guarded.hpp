// What happens to the group where a call ends by an exception.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/failure.hpp>
#include <colls/detail/group/told_calls.hpp>

#include <exception>
#include <new>
#include <string>

namespace colls::inline v1::detail {

/// Says that this rank loads from and stores to no other rank's memory any more: see activate.
inline void no_longer_active(rank_context& e) {
    auto& active = e.memory.state(e.rank).active;
    if (active.load(std::memory_order_relaxed) != 0) active.store(0, std::memory_order_release);
}

/// In a handler: breaks the group, unless it is broken, so that no rank waits for this one. The library's own errors
/// have broken it before they were thrown; an operator's exceptions have not, nor has a lack of memory.
[[gnu::cold]] inline void call_threw(rank_context& e, const char* what) {
    if (e.memory.poison().state.load(std::memory_order_seq_cst) == 0) {
        message text;
        text << "colls: rank " << e.rank << " in " << what << ": ";
        try {
            throw;
        } catch (const std::bad_alloc&) {
            text << "there is no more memory";
        } catch (const error& x) {
            text << quoted(x.what());
        } catch (const std::exception& x) {
            text << "the operator threw: " << x.what();
        } catch (...) {
            text << "the operator threw";
        }
        break_group(e, errc::peer_failed, none, none, text.text());
    }
    leave(e);
}
/// In a handler: an error of the library says which calls the rank has made.
[[gnu::cold]] [[gnu::noinline]] inline void add_latest_calls(const rank_context& e) {
    try {
        throw;
    } catch (error& x) {
        try {
            std::string lines;
            for_latest_calls(e.recent, e.calls, [&](const message& text) { lines.append(text.text()) += '\n'; });
            x.set_calls(static_cast<std::string&&>(lines));
        } catch (const std::bad_alloc&) {}  // then it does not say
    } catch (...) {}
}

/// In a handler of what a call has thrown, which may be a user's operator: breaks the group before the exception goes
/// on. However a call ends, this rank is not active after it.
[[gnu::cold]] [[gnu::noinline]] inline void call_ended_by_error(rank_context& e, const char* what) {
    call_threw(e, what);
    no_longer_active(e);
    add_latest_calls(e);
}
/// Runs f, which is a part of a call.
template <class F>
void guarded(rank_context& e, const char* what, F f) {
    try {
        f();
    } catch (...) {
        call_ended_by_error(e, what);
        throw;
    }
    no_longer_active(e);
}

}  // namespace colls::inline v1::detail
