// The face of the engine: what a request becomes (done at once, started, or kept to be done many times), and the few
// functions behind communicators. Calls see the engine through these declarations alone.
#pragma once

#include <colls/detail/call/call.hpp>

#include <exception>

namespace colls::inline v1 {

class communicator;

namespace detail {

struct rank_context;
struct operation_state;
struct prepared;
struct allocation;
struct helper;

/// Checks a request and carries it out. Throws colls::error, as all of these.
void perform(rank_context& e, request& q);
void perform_message(rank_context& e, operation_kind kind, const call& c, int peer);
/// A send and a receive at once.
void perform_exchange(rank_context& e, const call& sent, int to, const call& received, int from);
/// A receive from whichever rank sends, which it returns.
int perform_recv_any(rank_context& e, const call& c);
/// Checks it, and starts it.
operation_state* begin(rank_context& e, request& q);
operation_state* begin_message(rank_context& e, operation_kind kind, const call& c, int peer);
/// Moves everything on. When o is over, or has failed, it is released, and o is null after.
void test_operation(rank_context& e, operation_state*& o);
void wait_operation(rank_context& e, operation_state*& o);
/// At most so many seconds.
void wait_operation_for(rank_context& e, operation_state*& o, double seconds);
/// For a destructor: waits. Where an exception is on its way, for a second at most: then the group is broken, for its
/// ranks may wait for what this rank was about to do.
void settle_operation(rank_context& e, operation_state*& o, bool unwinding) noexcept;
/// Gives other threads a turn. Takes what it returned the last time, at first 0.
double pause_between_tests(double since);
/// Checks it, and keeps it.
prepared* prepare_call(rank_context& e, request& q);
/// Null throws, as a communicator of no group does.
void run_prepared(prepared* p);
operation_state* start_prepared(prepared* p);
void drop_prepared(prepared* p);

/// The life of a communicator's end, of memory that was allocated through one, and of a progress thread. Operations,
/// kept calls and progress threads hold the end, too: whichever of them is the last leaves the group.
communicator split(rank_context& e, int color, int key);
communicator shrink(rank_context& e);
void leave_group(rank_context* e);
allocation* allocate(rank_context& e, std::size_t count, std::size_t element, std::byte*& at);
void deallocate(allocation* a);
helper* start_helper(rank_context& e);
void stop_helper(helper* h);
void dump(rank_context& e);
void abort_group(rank_context& e, std::string_view why);
/// Where hosts have equally many ranks, in order, and there are several: how many. Else 0.
int ranks_per_host(const rank_context& e);
[[noreturn]] void throw_no_group();

}  // namespace detail

/// A started collective or message. `wait` and `test` also advance all other operations of the thread, so ranks may
/// finish them in any order; all ranks start them in the same order. The destructor waits, while an exception unwinds
/// for a second at most, after which it breaks the group. The buffers must outlive it. It holds the group: where its
/// communicator goes first, this rank leaves the group when the operation has gone, too. After an error it is over: the
/// buffers are the caller's again.
class [[nodiscard]] operation {
public:
    operation() = default;
    operation(detail::rank_context& e, detail::operation_state* o) : e_(&e), o_(o) {}
    operation(operation&& other) noexcept : e_(other.e_), o_(other.o_) { other.o_ = nullptr; }
    operation& operator=(operation&& other) noexcept {
        if (this != &other) {
            settle();
            e_ = other.e_;
            o_ = other.o_;
            other.o_ = nullptr;
        }
        return *this;
    }
    ~operation() { settle(); }

    /// There is nothing to wait for: default-made, moved from, or already said to be over.
    bool empty() const { return o_ == nullptr; }
    /// True when it is over; never waits. Throws colls::error.
    bool test() {
        if (o_) detail::test_operation(*e_, o_);
        return o_ == nullptr;
    }
    /// Until it is over. Throws colls::error.
    void wait() {
        if (o_) detail::wait_operation(*e_, o_);
    }
    /// At most for `d`, a std::chrono::duration; true when it is over.
    template <class Duration>
    bool wait_for(Duration d) {
        using period = typename Duration::period;
        const double seconds =
            static_cast<double>(d.count()) * static_cast<double>(period::num) / static_cast<double>(period::den);
        if (o_) detail::wait_operation_for(*e_, o_, seconds);
        return o_ == nullptr;
    }

private:
    void settle() noexcept {
        if (o_) detail::settle_operation(*e_, o_, std::uncaught_exceptions() > 0);
    }
    detail::rank_context* e_ = nullptr;
    detail::operation_state* o_ = nullptr;
};

/// A call made ready by prepare::...: its schedule chosen, its arguments checked. The buffers must outlive it. It holds
/// the group, as an operation does. All ranks start and run their plans in the same order. A moved-from plan throws.
class [[nodiscard]] plan {
public:
    plan(detail::rank_context& e, detail::request& q) : e_(&e), p_(detail::prepare_call(e, q)) {}
    plan(plan&& other) noexcept : e_(other.e_), p_(other.p_) { other.p_ = nullptr; }
    plan& operator=(plan&& other) noexcept {
        if (this != &other) {
            detail::drop_prepared(p_);
            e_ = other.e_;
            p_ = other.p_;
            other.p_ = nullptr;
        }
        return *this;
    }
    ~plan() { detail::drop_prepared(p_); }

    /// The call, once more, to its end. Does not allocate after its first time. Throws colls::error.
    void run() { detail::run_prepared(p_); }
    /// The call, once more, without waiting. Throws invalid_argument where the operation that it started before is not
    /// over, which wait or test has to say. The plan may go before the operation.
    operation start() {
        detail::operation_state* const o = detail::start_prepared(p_);  // throws where e_ is no end
        return {*e_, o};
    }

private:
    detail::rank_context* e_;
    detail::prepared* p_;
};

}  // namespace colls::inline v1
