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
inline void no_longer_active(rank_context& self) {
    auto& active = self.memory.state(self.rank).active;
    if (active.load(std::memory_order_relaxed) != 0) active.store(0, std::memory_order_release);
}

/// In a handler: breaks the group, unless it is broken, so that no rank waits for this one. The library's own errors
/// have broken it before they were thrown; an operator's exceptions have not, nor has a lack of memory.
[[gnu::cold]] inline void call_threw(rank_context& self, const char* what) {
    if (self.memory.poison().state.load(std::memory_order_seq_cst) == 0) {
        error_text text;
        text << "colls: rank " << self.rank << " in " << what << ": ";
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
        break_group(self, errc::peer_failed, none, none, text.text());
    }
    leave(self);
}
/// In a handler: an error of the library says which calls the rank has made.
[[gnu::cold]] [[gnu::noinline]] inline void add_latest_calls(const rank_context& self) {
    try {
        throw;
    } catch (error& x) {
        try {
            std::string lines;
            for_latest_calls(
                self.log.recent, self.log.count, [&](const error_text& text) { lines.append(text.text()) += '\n'; });
            x.set_calls(static_cast<std::string&&>(lines));
        } catch (const std::bad_alloc&) {}  // then it does not say
    } catch (...) {}
}

/// In a handler of what a call has thrown, which may be a user's operator: breaks the group before the exception goes
/// on. However a call ends, this rank is not active after it.
[[gnu::cold]] [[gnu::noinline]] inline void call_ended_by_error(rank_context& self, const char* what) {
    call_threw(self, what);
    no_longer_active(self);
    add_latest_calls(self);
}
/// Runs f, which is a part of a call.
template <class F>
void guarded(rank_context& self, const char* what, F f) {
    try {
        f();
    } catch (...) {
        call_ended_by_error(self, what);
        throw;
    }
    no_longer_active(self);
}

}  // namespace colls::inline v1::detail
