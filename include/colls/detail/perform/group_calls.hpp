// What communicators do beside collectives: split, shrink, leave, abort, dump.
// IWYU pragma: private, include <colls/communicator.hpp>
#pragma once

#include <colls/detail/backend/split.hpp>
#include <colls/detail/perform/started_operation.hpp>

#include <limits>
#include <memory>

namespace colls::inline v1::detail {

COLLS_INLINE joined_group split(rank_context& e, int color, int key) { return joined(split_off(e, color, key)); }
COLLS_INLINE joined_group shrink(rank_context& e) {
    const progress_lock mine(e);
    // This rank takes no part in calls of its other groups meanwhile: their ranks are told not to wait for it.
    struct absence {
        explicit absence(rank_context& own) : e(own) { tell(e.number); }
        ~absence() { tell(0); }
        void tell(std::uint64_t number) const {
            e.for_others([number](rank_context& x) {
                x.memory.state(x.rank).away.store(number, std::memory_order_release);
                x.backend->absent(x, number);
            });
        }
        rank_context& e;
    };
    const absence meanwhile(e);
    std::unique_ptr<rank_context> left = e.backend->shrink(e);
    left->join(e);  // the two share a progress thread, and what is behind their backends
    put_label(*left, message() << e.label << ".shrunk");
    left->began = e.began;
    return joined(std::move(left));
}
COLLS_INLINE void leave_group(rank_context* e) {
    if (e->is_foreign()) return;
    const progress_lock mine(*e, progress_lock::quiet{});  // outlives the rank context
    const std::shared_ptr<rank_context> communicators = std::move(e->held);
}
COLLS_INLINE int ranks_per_host(const rank_context& e) { return e.ranks_per_host; }
COLLS_INLINE host_map hosts_of(const rank_context& e) { return e.hosts; }
COLLS_INLINE void dump(rank_context& e) {
    const progress_lock mine(e);
    for (const double until = seconds_now() + e.backend->ask_for_waits(e); seconds_now() < until; sched_yield())
        e.backend->look(e, nullptr, 0);
    print_dump(e, nullptr);
}
COLLS_INLINE void abort_group(rank_context& e, std::string_view why) {
    const progress_lock mine(e);
    break_group(
        e, errc::peer_failed, none, none, (message() << "colls: rank " << e.rank << " aborted: " << why).text());
    leave(e);
    if (!e.by_messages) return;
    // The control message goes to all ranks, to some over connections that do not exist yet, and this rank may not make
    // another call for long: it advances them here.
    for (const double until = seconds_now() + 20e-3; seconds_now() < until;) {
        e.backend->look(e, nullptr, 0);
        e.backend->sleep(e);
    }
}
COLLS_INLINE void set_timeout(rank_context& e, double seconds, bool off) {
    const progress_lock mine(e);
    if (!(seconds > 0))
        throw error(errc::invalid_argument,
            (message() << "colls: rank " << e.rank << " in set_timeout: " << seconds
                       << " s: a deadline is above 0, and duration::max() means none")
                .text(),
            e.rank);
    e.env.timeout = off ? std::numeric_limits<double>::infinity() : seconds;
}

[[noreturn]] COLLS_INLINE void throw_no_group() {
    throw error(errc::invalid_argument,
        "colls: this communicator belongs to no group: it was default-made, moved from, or split off with a negative "
        "color");
}

}  // namespace colls::inline v1::detail
