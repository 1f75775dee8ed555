// The direct executor's copies from and to the memory of other processes, which the kernel makes: one copy where
// staging takes two.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/execute/direct_executor.hpp>

namespace colls::inline v1::detail {

/// For a schedule that is given: `automatic` predicts.
inline bool direct_executor::single_copy_pays() const {
    const call& c = arguments;
    return copies_now() && !reduces(c.what) &&
           (c.ragged || c.count * c.element / static_cast<std::size_t>(plan_->blocks) >= single_copy_policy::from);
}

inline void direct_executor::pull(std::byte* to, int peer, const std::byte* from, std::size_t bytes, int round) {
    const auto process = static_cast<pid_t>(self_.memory.state(peer).process.load(std::memory_order_relaxed));
    if (const int why = copy_from_process(process, to, from, bytes)) single_copy_failed(peer, round, why);
}
inline void direct_executor::push(int peer, std::byte* to, const std::byte* from, std::size_t bytes, int round) {
    const auto process = static_cast<pid_t>(self_.memory.state(peer).process.load(std::memory_order_relaxed));
    site.peer = peer;
    site.round = round;
    // This rank may have been stopped, and the peer may use that memory for something else by now.
    confirm(self_, site);
    if (const int why = copy_to_process(process, to, from, bytes)) single_copy_failed(peer, round, why);
}

/// A peer that has died is reported as elsewhere, once it is known to be dead.
[[gnu::cold]] inline void direct_executor::single_copy_failed(int peer, int round, int why) {
    site.peer = peer;
    site.round = round;
    for (const double until = seconds_now() + 0.1; why != EPERM && seconds_now() < until; sched_yield()) {
        self_.backend->look(self_, nullptr, 0);
        if (self_.memory.poison().state.load(std::memory_order_relaxed) == 0)
            continue;  // throw_poison reads the report
        leave(self_);
        throw_poison(self_, &site);
    }
    fail(self_, errc::peer_failed, site,
        error_text() << "cannot copy from or to the memory of its process: " << std::string_view(std::strerror(why))
                     << "; with COLLS_SINGLE_COPY=0 data go through shared memory instead");
}

}  // namespace colls::inline v1::detail
