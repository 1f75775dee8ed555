// The engine behind the face that perform.hpp declares: nothing here is a template of a schedule, type or operator.
// Included with the calls, or compiled once, by separate.cpp, for units that define COLLS_SEPARATE.
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/backend/groups.hpp>
#include <colls/detail/backend/split.hpp>
#include <colls/detail/call/check_arguments.hpp>
#include <colls/detail/choose/choose.hpp>
#include <colls/detail/execute/dump.hpp>
#include <colls/detail/execute/eager.hpp>
#include <colls/detail/execute/progress.hpp>
#include <colls/detail/execute/trace.hpp>
#include <colls/detail/group/progress_lock.hpp>
#include <colls/detail/prove/examine.hpp>
#include <colls/operation.hpp>
#include <colls/wait.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

namespace colls::inline v1::detail {

COLLS_INLINE request::request() = default;
COLLS_INLINE request::request(request&&) noexcept = default;
COLLS_INLINE request::~request() = default;

/// The schedule, checked against what the call needs.
inline schedule_choice resolve_schedule(rank_context& e, const request& q, bool eager) {
    const call& c = q.c;
    eager = eager && !e.by_messages;
    const schedule_choice p = resolve(e, c, q.how, eager);
    if (q.how.given && c.op && !c.op->commutative && !p.steps->order_preserving)
        throw error(errc::unsupported,
            (message() << "colls: rank " << e.rank << " in " << name_of(c.what) << ": at " << e.size << " ranks "
                       << p.name << " does not keep the order of ranks, which this operator needs")
                .text(),
            e.rank);
    return q.how.instead ? resolve(e, c, {q.how.instead, nullptr, nullptr}, eager) : p;
}

/// Says to ranks that may wait for this one why it does not come, or that it comes after all.
[[gnu::cold]] [[gnu::noinline]] inline void tell_refusal(rank_context& e, const char* why) {
    refusal_state& refusal = e.memory.refusal(e.rank);
    refusal.call.store(0, std::memory_order_relaxed);
    if (why) {
        refusal.text.store(quoted(why));
        refusal.call.store(e.calls + 1, std::memory_order_release);
    }
    e.has_refused = why != nullptr;
    e.backend->refused(e);
}
/// The schedule of a request, once its arguments have been checked. The copy that elision saves is a tenth of a short
/// call.
inline schedule_choice checked(rank_context& e, request& q, bool eager) {
    try {
        checker(e, q).run();
        return resolve_schedule(e, q, eager);
    } catch (const error& x) {
        tell_refusal(e, x.what());
        throw;
    }
}

/// Fills an operation with a call; it is not begun.
inline void fill(operation_state& o, const call& c, const schedule_choice& p) {
    o.kind = operation_kind::collective;
    o.request = c;
    o.plan = p.steps;
    o.staged_plan = p.staged;
    o.schedule = p.name;
    o.staged_schedule = p.staged_name;
    o.chunk_bytes = p.chunk_bytes;
}

/// Back to the idle ones when it leaves the scope.
struct loan {
    rank_context& e;
    operation_state* o;
    ~loan() {
        if (o) e.idle.push_back(o);
    }
};

inline void enter(rank_context& e, operation_state& o) {
    if (e.by_messages)
        e.backend->begin(e, o);
    else
        direct_executor(e, o).begin();
}

inline void carry_out(rank_context& e, const call& c, const schedule_choice& p) {
    if (e.has_refused) tell_refusal(e, nullptr);
    if (p.steps == nullptr) {
        guarded(e, name_of(c.what), [&] { eager_executor(e, c).run(); });
        return;
    }
    const loan own{e, take_operation(e)};
    fill(*own.o, c, p);
    guarded(e, name_of(c.what), [&] { enter(e, *own.o); });
    wait_until_done(e, *own.o);
}

[[gnu::cold]] [[gnu::noinline]] inline void carry_out_traced(rank_context& e, const call& c, const schedule_choice& p) {
    const double from = seconds_now();
    try {
        carry_out(e, c, p);
    } catch (...) {
        put_trace(e, c, name_of(c.what), p.name, none, from, "failed after ");
        throw;
    }
    put_trace(e, c, name_of(c.what), p.name, none, from, "");
}
inline void run_to_end(rank_context& e, const call& c, const schedule_choice& p) {
    if (traces(e))
        carry_out_traced(e, c, p);
    else
        carry_out(e, c, p);
}

COLLS_INLINE void perform(rank_context& e, request& q) {
    const progress_lock mine(e);
    run_to_end(e, q.c, checked(e, q, true));
}

/// Gives the operation to its caller. It holds the end until the caller gives it back.
inline operation_state* fly(rank_context& e, operation_state& o) {
    o.asked = backoff(e);
    e.in_flight.push_back(&o);
    ++e.holders;
    return &o;
}
/// One holder less. The last leaves the group.
inline void let_go(rank_context* e) {
    if (--e->holders > 0) return;
    const std::unique_ptr<rank_context> own(e);
    // Release: all that this rank did for the others is done.
    e->memory.state(e->rank).gone.store(1, std::memory_order_release);
    e->backend->close();
}

/// Starts a call whose operator and counts `keep` and the tables hold.
inline operation_state* begin_call(rank_context& e, const call& c, const schedule_choice& p,
    const std::shared_ptr<const void>& keep, list<std::size_t>&& in_offsets, list<std::size_t>&& out_offsets) {
    if (e.has_refused) tell_refusal(e, nullptr);
    const double from = traces(e) ? seconds_now() : 0;
    loan own{e, take_operation(e)};
    operation_state& o = *own.o;
    fill(o, c, p);
    o.request.non_blocking = true;
    o.keep = keep;
    o.in_offsets = static_cast<list<std::size_t>&&>(in_offsets);  // the data stays where it is
    o.out_offsets = static_cast<list<std::size_t>&&>(out_offsets);
    guarded(e, name_of(c.what), [&] { enter(e, o); });
    own.o = nullptr;
    o.traced_from = from;
    return fly(e, o);
}
/// A copy of the operator for a call that outlives its arguments. Null: the operator has no state.
inline std::shared_ptr<const void> keep_operator(request& q) {
    if (!q.copy_op) return nullptr;
    std::shared_ptr<const void> kept(q.copy_op(q.c.op_value), q.drop_op);
    q.c.op_value = kept.get();
    return kept;
}
COLLS_INLINE operation_state* begin(rank_context& e, request& q) {
    const progress_lock mine(e);
    const schedule_choice p = checked(e, q, false);
    const std::shared_ptr<const void> keep = keep_operator(q);
    return begin_call(e, q.c, p, keep, static_cast<list<std::size_t>&&>(q.in_offsets),
        static_cast<list<std::size_t>&&>(q.out_offsets));
}

constexpr const char* name_of_message(operation_kind kind) { return kind == operation_kind::send ? "send" : "recv"; }
inline operation_state& new_message(rank_context& e, operation_state& o, operation_kind kind, const call& c, int peer) {
    o.kind = kind;
    o.request = c;
    o.site = {peer, none, name_of_message(kind), {}, 0, no_call};
    auto& counters = kind == operation_kind::send ? e.sent : e.received;
    if (counters.empty()) counters.resize(static_cast<std::size_t>(e.size));
    o.sequence = counters[peer].begun++;
    o.chunk = 0;
    o.done = false;
    if (e.by_messages) e.backend->begin(e, o);
    return o;
}
inline void check_message(const rank_context& e, operation_kind kind, const call& c, int peer, const char* what) {
    const std::byte* const data = kind == operation_kind::send ? c.in : c.out;
    if (peer >= 0 && peer < e.size && (data != nullptr || c.count == 0)) return;
    message text;
    text << "colls: rank " << e.rank << " in " << what << ": ";
    if (data != nullptr || c.count == 0)
        text << "peer " << peer << " of a group of " << e.size << " ranks";
    else
        text << "the buffer is null, of " << c.count << " elements";
    throw error(errc::invalid_argument, text.text(), e.rank, peer);
}
inline operation_state* fly_message(rank_context& e, operation_kind kind, const call& c, int peer, bool started) {
    operation_state& o = new_message(e, *take_operation(e), kind, c, peer);
    o.request.non_blocking = started;
    o.traced_from = traces(e) ? seconds_now() : 0;
    return fly(e, o);
}
COLLS_INLINE operation_state* begin_message(rank_context& e, operation_kind kind, const call& c, int peer) {
    const progress_lock mine(e);
    check_message(e, kind, c, peer, name_of_message(kind));
    return fly_message(e, kind, c, peer, true);
}

/// A blocking message to or from this rank itself waits for what the same rank calls next, and so for ever, unless the
/// other half has been started.
inline void check_own_message(const rank_context& e, operation_kind kind, const char* what) {
    const bool sends = kind == operation_kind::send;
    const auto begun = [&](const list<message_count>& of) { return of.empty() ? 0 : of[e.rank].begun; };
    if (sends ? begun(e.received) > begun(e.sent) : begun(e.sent) > begun(e.received)) return;
    throw error(errc::invalid_argument,
        (message() << "colls: rank " << e.rank << " in " << what << ": a message to itself would never "
                   << (sends ? "be received" : "come") << ": start the " << (sends ? "receive" : "send")
                   << " first, with start::" << (sends ? "recv" : "send"))
            .text(),
        e.rank, e.rank);
}
COLLS_INLINE void perform_message(rank_context& e, operation_kind kind, const call& c, int peer) {
    operation_state* o = nullptr;
    {
        const progress_lock mine(e);
        check_message(e, kind, c, peer, name_of_message(kind));
        if (peer == e.rank) check_own_message(e, kind, name_of_message(kind));
        o = fly_message(e, kind, c, peer, false);
    }
    operation(e, o).wait();
}
COLLS_INLINE void perform_exchange(rank_context& e, const call& sent, int to, const call& received, int from) {
    {
        const progress_lock mine(e);
        check_message(e, operation_kind::send, sent, to, "exchange");
        check_message(e, operation_kind::recv, received, from, "exchange");
        const auto address = [](const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); };
        const std::size_t out = sent.count * sent.element, in = received.count * received.element;
        if (out > 0 && in > 0 && address(sent.in) < address(received.out) + in &&
            address(received.out) < address(sent.in) + out)
            throw error(errc::invalid_argument,
                (message() << "colls: rank " << e.rank << " in exchange: the two buffers overlap").text(), e.rank);
    }
    const auto begun = [&](operation_kind kind, const call& c, int peer) {
        const progress_lock mine(e);
        return fly_message(e, kind, c, peer, false);
    };
    operation receives(e, begun(operation_kind::recv, received, from));
    operation sends(e, begun(operation_kind::send, sent, to));
    wait_all(receives, sends);
}
COLLS_INLINE int perform_recv_any(rank_context& e, const call& c) {
    operation_state* o = nullptr;
    int from = none;
    {
        const progress_lock mine(e);
        check_message(e, operation_kind::recv, c, e.rank, "recv_any");
        if (e.size == 1) check_own_message(e, operation_kind::recv, "recv_any");
        from = wait_for_sender(e);
        o = fly_message(e, operation_kind::recv, c, from, false);
    }
    operation(e, o).wait();
    return from;
}

struct prepared {
    rank_context* e;
    call c;
    schedule_choice blocking, started;
    std::shared_ptr<const void> keep;
    list<std::size_t> in_offsets, out_offsets;
    bool runs = false;     ///< an operation that it started is not over
    bool dropped = false;  ///< by its owner: that operation is the last to need it
};

/// Takes an operation back from its caller: it is over, or has failed.
inline void take_back(rank_context* e, operation_state& o) {
    for (std::size_t i = 0; i < e->in_flight.size(); ++i)
        if (e->in_flight[i] == &o) {
            e->in_flight.drop(i);
            break;
        }
    if (o.traced_from != 0) put_trace(*e, o);
    o.traced_from = 0;
    o.keep.reset();
    if (o.of != nullptr) {
        o.of->runs = false;
        if (o.of->dropped) delete o.of;
        o.of = nullptr;
    }
    e->idle.push_back(&o);
    let_go(e);
}
/// Runs f for an operation. Where it fails, or the operation is over after it, its caller has it no longer.
template <class F>
void attend(rank_context& e, operation_state*& o, F f) {
    const progress_lock mine(e);
    struct attention {
        rank_context& e;
        operation_state*& o;
        bool failed = true;
        ~attention() {
            if (!failed && !o->done) return;
            operation_state& its = *o;
            o = nullptr;
            take_back(&e, its);
        }
    };
    attention now{e, o};
    f();
    now.failed = false;
}
COLLS_INLINE void test_operation(rank_context& e, operation_state*& o) {
    attend(e, o, [&] {
        guarded(e, o->site.what, [&] {
            progress(e);
            if (!o->done) o->asked.asked(o->site);
        });
    });
}
COLLS_INLINE void wait_operation(rank_context& e, operation_state*& o) {
    attend(e, o, [&] { wait_until_done(e, *o); });
}
COLLS_INLINE void wait_operation_for(rank_context& e, operation_state*& o, double seconds) {
    const double until = seconds_now() + seconds;
    for (test_operation(e, o); o != nullptr && seconds_now() < until; test_operation(e, o)) sched_yield();
}

COLLS_INLINE void settle_operation(rank_context& e, operation_state*& o, bool unwinding) noexcept {
    try {
        if (unwinding)
            wait_operation_for(e, o, 1);
        else
            wait_operation(e, o);
        if (o == nullptr) return;
        attend(e, o, [&] {
            break_group(e, errc::peer_failed, none, none,
                (message() << "colls: rank " << e.rank << ": an exception left its function while its " << o->site.what
                           << " was under way")
                    .text());
            leave(e);
            wait_until_done(e, *o);  // throws
        });
    } catch (...) {  // the group is broken, and every later call on it says so
    }
}

COLLS_INLINE double pause_between_tests(double since) {
    const double now = seconds_now();
    if (since != 0 && now - since > 3e-3) {
        const timespec nap{0, 50'000};
        nanosleep(&nap, nullptr);
    } else {
        sched_yield();
    }
    return since != 0 ? since : now;
}

COLLS_INLINE prepared* prepare_call(rank_context& e, request& q) {
    const progress_lock mine(e);
    const schedule_choice blocking = checked(e, q, true), started = resolve_schedule(e, q, false);
    std::shared_ptr<const void> keep = keep_operator(q);
    auto* const p = new prepared{&e, q.c, blocking, started, static_cast<std::shared_ptr<const void>&&>(keep),
        static_cast<list<std::size_t>&&>(q.in_offsets), static_cast<list<std::size_t>&&>(q.out_offsets)};
    ++e.holders;
    return p;
}
/// A kept call that may run now, or an error.
inline prepared& ready(prepared* p) {
    if (p == nullptr) throw error(errc::invalid_argument, "colls: this plan is empty: moved from");
    if (p->runs)
        throw error(errc::invalid_argument,
            (message()
                << "colls: rank " << p->e->rank << " in " << name_of(p->c.what)
                << ": the plan's operation is not over, and uses its buffers: wait for it before the next start or run")
                .text(),
            p->e->rank);
    return *p;
}
COLLS_INLINE void run_prepared(prepared* p) {
    const prepared& now = ready(p);
    const progress_lock mine(*now.e);
    run_to_end(*now.e, now.c, now.blocking);
}
COLLS_INLINE operation_state* start_prepared(prepared* p) {
    prepared& now = ready(p);
    const progress_lock mine(*now.e);
    operation_state* const o = begin_call(*now.e, now.c, now.started, now.keep, {}, {});
    o->of = p;
    now.runs = true;
    return o;
}
COLLS_INLINE void drop_prepared(prepared* p) {
    if (p == nullptr || p->e->is_foreign()) return;
    rank_context* const e = p->e;
    const progress_lock mine(*e, progress_lock::quiet{});
    if (p->runs)
        p->dropped = true;
    else
        delete p;
    let_go(e);
}

COLLS_INLINE void exchange(rank_context& e, const void* own, std::size_t bytes, void* all) {
    call c{
        .what = collective::all_gather, .in = static_cast<const std::byte*>(own), .out = static_cast<std::byte*>(all)};
    c.count = bytes * static_cast<std::size_t>(e.size);
    c.signature = hash_text("split");
    if (e.by_messages) {
        // Not as COLLS_SCHEDULE says: that is of the program's calls.
        static const any_schedule fixed(schedule_of<collective::all_gather>(circulant<>{}));
        schedule_choice p = resolve(e, c, {&fixed, nullptr, nullptr}, false);
        p.name = "within split";
        carry_out(e, c, p);
    } else {
        guarded(e, "split", [&] { eager_executor(e, c).run(); });
    }
}

COLLS_INLINE communicator communicator_over(std::unique_ptr<rank_context> e) {
    if (!e) return {};
    const int rank = e->rank, size = e->size;
    return {e.release(), rank, size};
}
COLLS_INLINE communicator split(rank_context& e, int color, int key) {
    return communicator_over(split_off(e, color, key));
}
COLLS_INLINE communicator shrink(rank_context& e) {
    const progress_lock mine(e);
    // In calls of its other groups this rank is waited for in vain.
    struct absence {
        explicit absence(rank_context& own) : e(own) { say(e.number); }
        ~absence() { say(0); }
        void say(std::uint64_t number) const {
            e.for_others([number](rank_context& x) {
                x.memory.state(x.rank).away.store(number, std::memory_order_release);
                x.backend->absent(x, number);
            });
        }
        rank_context& e;
    };
    const absence meanwhile(e);
    std::unique_ptr<rank_context> left = e.backend->shrink(e);
    left->join(e);  // they share a progress thread, and what is behind their links
    put_label(*left, message() << e.label << ".shrunk");
    left->began = e.began;
    return communicator_over(std::move(left));
}
COLLS_INLINE void leave_group(rank_context* e) {
    if (e->is_foreign()) return;
    const progress_lock mine(*e, progress_lock::quiet{});  // outlives the end
    let_go(e);
}
COLLS_INLINE int ranks_per_host(const rank_context& e) { return e.ranks_per_host; }
COLLS_INLINE void dump(rank_context& e) { print_dump(e, nullptr); }
COLLS_INLINE void abort_group(rank_context& e, std::string_view why) {
    const progress_lock mine(e);
    break_group(
        e, errc::peer_failed, none, none, (message() << "colls: rank " << e.rank << " aborted: " << why).text());
    leave(e);
    if (!e.by_messages) return;
    // The control messages goes to ranks that there may be no connection to yet, and this rank may not call again for
    // long.
    for (const double until = seconds_now() + 20e-3; seconds_now() < until;) {
        e.backend->look(e, nullptr, 0);
        e.backend->idle(e, 1);
    }
}

/// Memory taken from a group: it keeps alive what it comes from.
struct allocation {
    shared_backend from;
    std::byte* at;
    std::size_t bytes;
    unsigned born;  // as the end's
};
COLLS_INLINE allocation* allocate(rank_context& e, std::size_t count, std::size_t element, std::byte*& at) {
    constexpr std::size_t most = std::size_t{1} << 56;  // no process has more addresses
    if (count > most / element) throw std::bad_array_new_length();
    const std::size_t bytes = count * element;
    auto a = std::make_unique<allocation>(allocation{e.backend, nullptr, bytes, e.born});
    at = a->at = e.backend->take(bytes);
    return a.release();
}
COLLS_INLINE void deallocate(allocation* a) {
    if (a->born != forks.load(std::memory_order_relaxed)) return;
    a->from->give(a->at, a->bytes);
    delete a;
}

/// For a second thread: false where there is nothing to do.
inline bool progress_in_turn(rank_context& e) {
    const progress_lock mine(e);
    bool any = !e.in_flight.empty();
    for (rank_context* x = e.next; x != &e; x = x->next) any = any || !x->in_flight.empty();
    if (!any) return false;
    try {
        progress(e);
        no_longer_active(e);
    } catch (...) {  // the group is broken, which its next call says
        call_threw(e, "an operation in flight");
        no_longer_active(e);
    }
    return true;
}
/// The second thread of a progress_thread.
struct helper {
    explicit helper(rank_context& own) : e(own) {
        if (e.shared != nullptr)
            throw error(errc::invalid_argument,
                (message() << "colls: rank " << e.rank
                           << ": a progress_thread already serves this communicator, "
                              "or one that it was split from or into: one is enough")
                    .text(),
                e.rank);
        ++e.holders;
        share(&mutex);
        thread = std::thread([this] {
            while (!over.load(std::memory_order_relaxed))
                if (progress_in_turn(e)) {
                    sched_yield();
                } else {
                    const timespec nap{0, 100'000};
                    nanosleep(&nap, nullptr);
                }
        });
    }
    ~helper() {
        over.store(true, std::memory_order_relaxed);
        thread.join();
        share(nullptr);
        let_go(&e);
    }
    /// Gives the mutex, by which threads take turns, to all ends in the ring.
    void share(std::mutex* m) {
        e.shared = m;
        for (rank_context* x = e.next; x != &e; x = x->next) x->shared = m;
    }

    rank_context& e;
    std::mutex mutex;
    std::atomic<bool> over{false};
    std::thread thread;
};
COLLS_INLINE helper* start_helper(rank_context& e) { return new helper(e); }
COLLS_INLINE void stop_helper(helper* h) {
    if (!h->e.is_foreign()) delete h;  // a forked process does not have the thread
}

[[noreturn]] COLLS_INLINE void throw_no_group() {
    throw error(errc::invalid_argument,
        "colls: this communicator belongs to no group: default-made, moved from, or split off with a negative color");
}

}  // namespace colls::inline v1::detail
