// The engine behind the face that perform.hpp declares: nothing here is a template of a schedule, type or operator.
// Included with the calls, or compiled once, by separate.cpp, for units that define COLLS_SEPARATE.
#pragma once

#include <colls/automatic.hpp>
#include <colls/check.hpp>
#include <colls/communicator.hpp>
#include <colls/dump.hpp>
#include <colls/engine/end.hpp>
#include <colls/examine.hpp>
#include <colls/operation.hpp>
#include <colls/perform.hpp>
#include <colls/regroup.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

namespace colls::inline v1::detail {

COLLS_ENGINE request::request() = default;
COLLS_ENGINE request::request(request&&) noexcept = default;
COLLS_ENGINE request::~request() = default;

/// The schedule, checked against what the call needs.
inline pick settle(endpoint& e, const request& q, bool mail) {
    const call& c = q.c;
    mail = mail && !e.by_messages;
    const pick p = resolve(e, c, q.how, mail);
    if (q.how.given && c.op && !c.op->commutative && !p.steps->order_preserving)
        throw error(errc::unsupported,
                    (message() << "colls: rank " << e.rank << " in " << name_of(c.what) << ": at " << e.size << " ranks "
                               << p.steps->schedule.name() << " does not keep the order of ranks, which this operator needs")
                        .text(), e.rank);
    return q.how.instead ? resolve(e, c, {q.how.instead, nullptr, nullptr}, mail) : p;
}

/// Fills an operation with a call; it is not begun.
inline void fill(operation_state& o, const call& c, const pick& p) {
    o.kind = operation_kind::collective;
    o.request = c;
    o.steps = p.steps;
    o.instead = p.staged;
    o.tuned = p.tuned;
}

/// Back to the idle ones when it leaves the scope.
struct loan {
    endpoint& e;
    operation_state* o;
    ~loan() {
        if (o) e.idle.push_back(o);
    }
};

[[gnu::cold]] [[gnu::noinline]] inline void trace(const endpoint& e, const call& c, const pick& p) {
    say(message() << "colls: rank " << e.rank << ": call " << static_cast<std::size_t>(e.calls) << ": " << name_of(c.what) << " of "
                  << c.count << " elements by " << (p.steps ? p.steps->schedule.name() : std::string_view("mailbox")));
}

inline void enter(endpoint& e, operation_state& o) {
    if (e.by_messages)
        e.via->begin(e, o);
    else
        runner(e, o).begin();
}

inline void run_to_end(endpoint& e, const call& c, const pick& p) {
    if (e.env.debug == debug_level::trace) trace(e, c, p);
    if (p.steps == nullptr) {
        guarded(e, name_of(c.what), [&] { mailman(e, c).run(); });
        return;
    }
    const loan own{e, take_operation(e)};
    fill(*own.o, c, p);
    guarded(e, name_of(c.what), [&] { enter(e, *own.o); });
    wait_until_done(e, *own.o);
}

COLLS_ENGINE void perform(endpoint& e, request& q) {
    const turn mine(e);
    checker(e, q).run();
    run_to_end(e, q.c, settle(e, q, true));
}

/// Starts a call whose operator and counts `keep` and the tables hold.
inline operation_state* begin_call(endpoint& e, const call& c, const pick& p, const std::shared_ptr<const void>& keep,
                                   list<std::size_t>&& in_offsets, list<std::size_t>&& out_offsets) {
    if (e.env.debug == debug_level::trace) trace(e, c, p);
    loan own{e, take_operation(e)};
    operation_state& o = *own.o;
    fill(o, c, p);
    o.request.non_blocking = true;
    o.keep = keep;
    o.in_offsets = static_cast<list<std::size_t>&&>(in_offsets);   // the data stays where it is
    o.out_offsets = static_cast<list<std::size_t>&&>(out_offsets);
    guarded(e, name_of(c.what), [&] { enter(e, o); });
    own.o = nullptr;
    o.asked = patience(e);
    e.in_flight.push_back(&o);
    return &o;
}
/// A copy of the operator for a call that outlives its arguments. Null: the operator has no state.
inline std::shared_ptr<const void> keep_operator(request& q) {
    if (!q.copy_op) return nullptr;
    std::shared_ptr<const void> kept(q.copy_op(q.c.op_value), q.drop_op);
    q.c.op_value = kept.get();
    return kept;
}
COLLS_ENGINE operation_state* begin(endpoint& e, request& q) {
    const turn mine(e);
    checker(e, q).run();
    const pick p = settle(e, q, false);
    const std::shared_ptr<const void> keep = keep_operator(q);
    return begin_call(e, q.c, p, keep, static_cast<list<std::size_t>&&>(q.in_offsets), static_cast<list<std::size_t>&&>(q.out_offsets));
}

inline operation_state& new_message(endpoint& e, operation_state& o, operation_kind kind, const call& c, int peer) {
    o.kind = kind;
    o.request = c;
    o.site = {peer, none, kind == operation_kind::send ? "send" : "recv", {}, 0, no_call};
    auto& counters = kind == operation_kind::send ? e.sent : e.received;
    if (counters.empty()) counters.resize(static_cast<std::size_t>(e.size));
    o.sequence = counters[peer].begun++;
    o.chunk = 0;
    o.done = false;
    if (e.by_messages) e.via->begin(e, o);
    return o;
}
inline void check_message(const endpoint& e, operation_kind kind, const call& c, int peer) {
    const std::byte* const data = kind == operation_kind::send ? c.in : c.out;
    if (peer >= 0 && peer < e.size && (data != nullptr || c.count == 0)) return;
    message text;
    text << "colls: rank " << e.rank << " in " << (kind == operation_kind::send ? "send" : "recv") << ": ";
    if (data != nullptr || c.count == 0)
        text << "peer " << peer << " of a group of " << e.size << " ranks";
    else
        text << "the buffer is null, of " << c.count << " elements";
    throw error(errc::invalid_argument, text.text(), e.rank, peer);
}
COLLS_ENGINE operation_state* begin_message(endpoint& e, operation_kind kind, const call& c, int peer) {
    const turn mine(e);
    check_message(e, kind, c, peer);
    operation_state& o = new_message(e, *take_operation(e), kind, c, peer);
    o.asked = patience(e);
    e.in_flight.push_back(&o);
    return &o;
}

COLLS_ENGINE bool test_operation(endpoint& e, operation_state& o) {
    const turn mine(e);
    guarded(e, o.site.what, [&] {
        progress(e);
        if (!o.done) o.asked.asked(o.site);
    });
    return o.done;
}
COLLS_ENGINE void wait_operation(endpoint& e, operation_state& o) {
    const turn mine(e);
    wait_until_done(e, o);
}
COLLS_ENGINE bool wait_operation_for(endpoint& e, operation_state& o, double seconds) {
    const double until = seconds_now() + seconds;
    while (!test_operation(e, o)) {
        if (seconds_now() >= until) return false;
        sched_yield();
    }
    return true;
}
COLLS_ENGINE void release_operation(endpoint& e, operation_state& o) {
    const turn mine(e);
    for (std::size_t i = 0; i < e.in_flight.size(); ++i)
        if (e.in_flight[i] == &o) {
            e.in_flight.drop(i);
            break;
        }
    o.keep.reset();
    e.idle.push_back(&o);
}

struct prepared {
    endpoint& e;
    call c;
    pick blocking, started;
    std::shared_ptr<const void> keep;
    list<std::size_t> in_offsets, out_offsets;
};
COLLS_ENGINE prepared* prepare_call(endpoint& e, request& q) {
    const turn mine(e);
    checker(e, q).run();
    const pick blocking = settle(e, q, true), started = settle(e, q, false);
    std::shared_ptr<const void> keep = keep_operator(q);
    return new prepared{e, q.c, blocking, started, static_cast<std::shared_ptr<const void>&&>(keep),
                        static_cast<list<std::size_t>&&>(q.in_offsets), static_cast<list<std::size_t>&&>(q.out_offsets)};
}
COLLS_ENGINE void run_prepared(prepared& p) {
    const turn mine(p.e);
    run_to_end(p.e, p.c, p.blocking);
}
COLLS_ENGINE operation_state* start_prepared(prepared& p) {
    const turn mine(p.e);
    return begin_call(p.e, p.c, p.started, p.keep, {}, {});
}
COLLS_ENGINE void drop_prepared(prepared* p) { delete p; }

COLLS_ENGINE void exchange(endpoint& e, const void* own, std::size_t bytes, void* all) {
    call c{.what = collective::all_gather, .in = static_cast<const std::byte*>(own), .out = static_cast<std::byte*>(all)};
    c.count = bytes * static_cast<std::size_t>(e.size);
    c.signature = hash_text("split");
    if (e.by_messages)
        run_to_end(e, c, resolve(e, c, {nullptr, &candidates_for<collective::all_gather>, nullptr}, false));
    else
        guarded(e, "split", [&] { mailman(e, c).run(); });
}

COLLS_ENGINE communicator communicator_over(std::unique_ptr<endpoint> e) {
    if (!e) return {};
    const int rank = e->rank, size = e->size;
    return {e.release(), rank, size};
}
COLLS_ENGINE communicator split(endpoint& e, int color, int key) { return communicator_over(split_off(e, color, key)); }
COLLS_ENGINE communicator shrink(endpoint& e) {
    const turn mine(e);
    return communicator_over(e.via->shrink(e));
}
COLLS_ENGINE void leave_group(endpoint* e) {
    const turn mine(*e);
    const std::unique_ptr<endpoint> own(e);   // goes first
    // Release: all that this rank did for the others is done.
    e->memory.state(e->rank).gone.store(1, std::memory_order_release);
    e->via->close();
}
COLLS_ENGINE int ranks_per_host(const endpoint& e) { return e.ranks_per_host; }
COLLS_ENGINE void dump(endpoint& e) { print_dump(e, nullptr); }

/// Memory taken from a group: it keeps alive what it comes from.
struct allocation {
    shared_link from;
    std::byte* at;
    std::size_t bytes;
};
COLLS_ENGINE allocation* allocate(endpoint& e, std::size_t bytes, std::byte*& at) {
    auto a = std::make_unique<allocation>(allocation{e.via, nullptr, bytes});
    at = a->at = e.via->take(bytes);
    return a.release();
}
COLLS_ENGINE void deallocate(allocation* a) {
    a->from->give(a->at, a->bytes);
    delete a;
}

/// For a second thread: false where there is nothing to do.
inline bool progress_in_turn(endpoint& e) {
    const turn mine(e);
    bool any = !e.in_flight.empty();
    for (endpoint* x = e.next; x != &e; x = x->next) any = any || !x->in_flight.empty();
    if (!any) return false;
    try {
        progress(e);
        rest(e);
    } catch (const error&) {   // the group is broken, which its next call says
        rest(e);
    } catch (...) {
        operator_threw(e, "an operation in flight");
    }
    return true;
}
/// The second thread of a progress_thread.
struct helper {
    explicit helper(endpoint& own) : e(own) {
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
    }
    /// Gives the mutex, by which threads take turns, to all ends in the ring.
    void share(std::mutex* m) {
        e.shared = m;
        for (endpoint* x = e.next; x != &e; x = x->next) x->shared = m;
    }

    endpoint& e;
    std::mutex mutex;
    std::atomic<bool> over{false};
    std::thread thread;
};
COLLS_ENGINE helper* start_helper(endpoint& e) { return new helper(e); }
COLLS_ENGINE void stop_helper(helper* h) { delete h; }

[[noreturn]] COLLS_ENGINE void throw_no_group() {
    throw error(errc::invalid_argument,
                "colls: this communicator belongs to no group: default-made, moved from, or split off with a negative color");
}

}  // namespace colls::inline v1::detail
