// What is behind the calls and the objects that they return: a table of functions, which a group brings with it.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Nothing here depends on the type of a schedule, an element or an operator. So a unit that makes calls compiles these
// declarations alone; what they stand for is compiled where groups are made (engine.hpp).
#pragma once

#include <colls/detail/backend/join.hpp>
#include <colls/detail/support/clock.hpp>
#include <colls/detail/support/wait_hook.hpp>
#include <colls/error.hpp>
#include <colls/extend/host_map.hpp>

#include <sched.h>
#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

namespace colls::inline v1 {

struct model;

namespace detail {

enum class operation_kind : unsigned char;
struct call;
struct composite_call;
struct request;
class operation_state;
struct prepared;

/// Something of a rank that a program holds, and ends, maybe later than its communicator.
struct held_by_program {
    virtual void end() = 0;

protected:
    ~held_by_program() = default;
};

/// Unless noexcept, each of these may throw colls::error.
struct engine {
    /// Throws an error of this rank about arguments from which no request could be made, and tells ranks that wait for
    /// its next call.
    void (*refuse_call)(rank_context&, errc code, const char* why);
    /// From now on this rank's calls are parts of that one, or of none. Returns of which they were before.
    const composite_call* (*set_composite)(rank_context&, const composite_call* whole);
    /// Checks a request and runs the collective to its end.
    void (*perform)(rank_context&, request& q);
    void (*perform_message)(rank_context&, operation_kind kind, const call& c, int peer);
    /// A send and a receive at once.
    void (*perform_exchange)(rank_context&, const call& sent, int to, const call& received, int from);
    /// A receive from any rank; returns that rank.
    int (*perform_recv_any)(rank_context&, const call& c);
    /// The rank from which it would receive now; or none.
    int (*probe_any)(rank_context&);

    /// Checks a request and starts the collective. The caller owns the operation until one of the functions below sets
    /// its pointer to null.
    operation_state* (*begin)(rank_context&, request& q);
    operation_state* (*begin_message)(rank_context&, operation_kind kind, const call& c, int peer);
    /// Would `begin` return without waiting for other ranks? It waits where some rank has so many operations of the
    /// group in flight that there is no place for another one.
    bool (*begins_at_once)(rank_context&);
    /// Each advances all operations of the thread; where o is over or has failed, it is released and o becomes null.
    void (*test_operation)(rank_context&, operation_state*& o);
    void (*wait_operation)(rank_context&, operation_state*& o);
    void (*wait_operation_for)(rank_context&, operation_state*& o, double seconds);
    /// For a destructor: waits, and releases o. While an exception unwinds it waits for a second at most, and then
    /// breaks the group: the other ranks may wait for calls that this rank will not make any more.
    void (*finish_operation)(rank_context&, operation_state*& o, bool unwinding) noexcept;

    /// Checks a request and keeps it.
    prepared* (*prepare_call)(rank_context&, request& q);
    /// Checks the arguments of a request that is then made otherwise: with copies of its buffers, or by several calls.
    void (*check_arguments)(rank_context&, request& q);
    void (*run_prepared)(prepared& p);
    operation_state* (*start_prepared)(prepared& p);
    void (*drop_prepared)(prepared& p);

    // A rank context is held by its communicator, its operations, prepared calls and progress threads. The last of them
    // to go makes the rank leave the group.
    joined_group (*split)(rank_context&, int color, int key);
    joined_group (*shrink)(rank_context&);
    void (*leave_group)(rank_context&);
    void (*dump)(rank_context&);
    void (*abort_group)(rank_context&, std::string_view why);
    void (*tie_parts)(rank_context&);
    /// `off`: there is no deadline.
    void (*set_timeout)(rank_context&, double seconds, bool off);
    /// Which ranks share a host, where there are several hosts and one of them has several ranks; else not known.
    host_map (*hosts_of)(const rank_context&);

    held_by_program* (*allocate)(rank_context&, std::size_t count, std::size_t element, std::byte*& at);
    /// The same kind of memory, of `bytes` bytes or more, as the length that it sets says; out of what the rank keeps
    /// for its calls. The system has given its pages.
    std::byte* (*take_kept)(rank_context&, std::size_t& bytes);
    void (*give_kept)(rank_context&, std::byte* at, std::size_t bytes);

    held_by_program* (*start_progress)(rank_context&);

    // What explain.hpp says.
    model (*model_of)(const rank_context&);
    std::string (*chosen)(const rank_context&, collective what, std::size_t bytes, bool reproducible);
    std::string (*explain)(const rank_context&, collective what, std::size_t bytes, bool reproducible);
};

[[noreturn, gnu::cold]] inline void throw_no_group() {
    throw error(errc::invalid_argument,
        "colls: this communicator belongs to no group: it was default-constructed, moved from, or split off with a "
        "negative color");
}
[[noreturn, gnu::cold]] inline void throw_empty_plan() {
    throw error(errc::invalid_argument, "colls: this plan is empty: it was moved from");
}
[[noreturn, gnu::cold]] inline void refuse_call(const rank_handle& rank, errc code, const char* why) {
    rank.by->refuse_call(*rank.self, code, why);
    __builtin_unreachable();
}

/// Yields the processor between two rounds of tests, and sleeps once they have gone on for some milliseconds. Takes
/// what it returned the last time, at first 0.
inline double pause_between_tests(double since) {
    call_wait_hook();
    const double now = seconds_now();
    if (since != 0 && now - since > 3e-3)
        sleep_seconds(50e-6);
    else
        sched_yield();
    return since != 0 ? since : now;
}

/// Waits for several operations, whatever becomes of one of them: keeps the first error.
class joint_wait {
public:
    template <class F>
    void run(F wait) {
        try {
            wait();
        } catch (...) {
            if (!first_) first_ = std::current_exception();
        }
    }
    void rethrow() const {
        if (first_) std::rethrow_exception(first_);
    }

private:
    std::exception_ptr first_;
};

}  // namespace detail
}  // namespace colls::inline v1
