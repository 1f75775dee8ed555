// One rank's end of a group: how it waits, and how it fails.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/detail/group/group_memory.hpp>
#include <colls/detail/group/told_calls.hpp>
#include <colls/detail/support/environment.hpp>
#include <colls/detail/support/hash.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/detail/support/message.hpp>
#include <colls/error.hpp>

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <memory>
#include <mutex>

namespace colls::inline v1::detail {

struct candidate;
struct prepared;
struct rank_context;
struct operation_state;
struct execution_plan;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

inline double seconds_now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

inline std::uint64_t milliseconds_now() { return static_cast<std::uint64_t>(seconds_now() * 1e3); }

/// Of messages, which are no calls of everyone.
inline constexpr std::uint64_t no_call = ~std::uint64_t{0};

/// What a wait is for, so that an error can say it.
struct wait_site {
    int peer = none;
    int round = none;
    const char* what = "";  ///< the collective
    std::string_view schedule = {};
    std::uint64_t call = 0;  ///< number of the call in this group
    std::uint64_t fingerprint = 0;
    /// Says, for an error, which blocks this rank and the peer exchange in the round.
    void (*blocks)(message& text, const wait_site& at) = nullptr;
    const void* steps = nullptr;  ///< the any_schedule that it asks
    int rank = 0, size = 0;
    int shift = 0;  ///< the actual root less the schedule's
};

struct memory_piece {
    std::byte* at = nullptr;
    std::size_t bytes = 0;
};
struct tuning {
    std::size_t chunk = 64 << 10;  ///< bytes of a unit per chunk
};
/// How fast the machine is, as far as predictions go.
struct machine {
    double alpha = 1e-6;   ///< seconds from a store to a peer's having seen it
    double beta = 1e-10;   ///< seconds a byte copied to a peer
    double gamma = 1e-10;  ///< seconds a byte reduced
    int cores = 1;
    double message = 0;  ///< seconds that both ends together work for a message; 0: memory is shared
};

/// Of messages to or from one rank.
struct message_count {
    std::uint64_t begun = 0, over = 0;
};
/// The choice for one kind of call. Without steps: the eager path.
struct pick {
    std::uint64_t key = 0;
    const execution_plan* steps = nullptr;
    tuning tuned{};
    const execution_plan* staged =
        nullptr;  ///< instead of `steps`, where not all buffers are within reach; null: the same schedule
    std::string_view name = {}, staged_name = {};  ///< of their schedules, in texts
};

/// What differs between the transports behind an rank context.
class group_backend {
public:
    virtual ~group_backend() = default;
    /// Now and then, while a rank waits, for how long already: finds out who has died, and passes on what others should
    /// know.
    virtual void look(rank_context&, const wait_site*, double /*seconds*/) {}
    /// Where messages pass, a while without work, after so many seconds of waiting.
    virtual void idle(rank_context&, double /*waited*/) {}
    /// This rank has just broken the group, or leaves a call by an error: nothing of its buffers is touched after.
    virtual void broke(rank_context&) {}
    /// The rank context is about to go; memory that was taken may stay.
    virtual void close() {}
    virtual void abandon(rank_context&) {}
    /// A rank does not answer, and may yet come back and write: memory that is given back is not taken again.
    virtual void pin() {}
    /// Where messages pass, collectives and messages are this link's affair: to begin one, and to bring it forward
    /// (true: it is over).
    virtual void begin(rank_context&, operation_state&) {}
    virtual bool advance(rank_context&, operation_state&) { return true; }
    /// Where messages pass: from now on ranks announce what they send to this one, also what they have begun to send.
    virtual void ask_for_messages(rank_context&) {}
    /// Has the rank announced the next message that it sends to this one?
    virtual bool announced(rank_context&, int /*rank*/) { return false; }
    /// Is the rank known to be dead, and not just slow?
    virtual bool dead(int /*rank*/) const { return false; }
    /// Memory that the group's ranks can reach, aligned to 128 bytes. Throws std::bad_alloc.
    virtual std::byte* take(std::size_t bytes) = 0;
    virtual void give(std::byte* at, std::size_t bytes) noexcept = 0;
    /// A place for a group of n, whatever that is, made by one rank; and the way there for each.
    virtual std::uint64_t create(int n) = 0;
    virtual std::unique_ptr<rank_context> attach(
        rank_context& from, std::uint64_t place, int rank, const list<int>& members) = 0;
    virtual void discard(std::uint64_t place, int n) = 0;
    /// This rank shrinks the group of that number, and comes to no call of this one; 0: it is back. Where memory is
    /// shared the others see it in `rank_state::away`.
    virtual void absent(rank_context&, std::uint64_t /*group*/) {}
    /// This rank has refused a call, or has made it by now, as its refusal_state says, which where memory is shared the
    /// others read.
    virtual void refused(rank_context&) {}
    /// Those who still call, as a group of its own.
    virtual std::unique_ptr<rank_context> shrink(rank_context& from) = 0;
    /// What predictions are made from: the same for all ranks of the group.
    virtual const machine& figures() = 0;
};

/// Counts the forks that led to this process since the library was first used: a forked child is another process, and
/// its parent's groups are not its own.
inline std::atomic<unsigned> forks{0};
inline unsigned count_forks() {
    static const int watching = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    static_cast<void>(watching);
    return forks.load(std::memory_order_relaxed);
}

/// Memory of a group, which outlives it where it is still in use.
using shared_backend = std::shared_ptr<group_backend>;

struct rank_context {
    int rank = 0, size = 1;
    group_memory memory;
    shared_backend backend;
    std::byte* base = nullptr;            ///< the memory that ranks share begins here ...
    std::size_t reach = ~std::size_t{0};  ///< ... and is so long; of threads, everything
    environment env = environment::read();
    bool crowded = false;      ///< more ranks than cores: yield rather than spin
    bool by_messages = false;  ///< ranks do not share memory
    int ranks_per_host = 0;    ///< where hosts have equally many ranks, in order, and there are several; else 0
    /// Where ranks_per_host is not 0: the candidate that goes within hosts first, or null for a collective that has
    /// none.
    const candidate* (*two_levels)(collective what, int ranks_per_host) = nullptr;
    std::uint64_t number =
        0;  ///< of the group: equal on its ranks, another one for each of a process's groups; 0: none
    rank_context* forming_from = nullptr;         ///< while this group comes about: the one that it is split from
    rank_context *next = this, *previous = this;  ///< the same thread's ends of other groups, in a ring
    std::mutex* shared = nullptr;                 ///< of the whole ring, where a second thread makes progress
    const unsigned born = count_forks();          ///< in which process: see `is_foreign`
    char label[32] = "0";                         ///< of the group, the same on all ranks
    unsigned splits = 0;                          ///< of this group, so far
    double began = seconds_now();  ///< when this rank's first group was made, from which others were split
    unsigned dumps = 0;            ///< that were asked for by a signal, and given
    int holders = 1;               ///< communicator, operations, kept calls, progress threads: the last ends it

    std::uint64_t calls = 0;                ///< collective calls so far
    std::uint64_t history = 0;              ///< of all of them, hashed: what one call lets slip the next one finds
    call_record recent[call_record::kept];  ///< the latest calls, by number
    std::uint64_t sequence = 0;             ///< of them, operations that expose buffers
    std::uint64_t eager_calls = 0;          ///< and those through the eager path
    std::uint64_t last_full_eager = 0;      ///< 1 + the latest in which every rank heard of every rank
    std::uint64_t completed_by_all = 0, eager_by_all = 0;  ///< lower bounds, refreshed when they do not suffice
    std::uint32_t finished = 0;                            ///< operations from completed on that are over: a bit each
    bool has_refused = false;                              ///< the call that would have been the next one
    int lingers = none;  ///< a rank that was still in its call when this one left by an error

    list<message_count> sent, received;  ///< messages to and from each rank
    int next_source = 0;                 ///< of a message from any rank: where the search begins
    list<operation_state*> in_flight, idle;
    const operation_state* current = nullptr;  ///< that is waited for
    list<memory_piece> pieces;                 ///< scratch memory that is not in use
    list<pick> picks;                          ///< what `automatic` chose

    rank_context(int own_rank, int group_size, const group_memory& m, shared_backend l)
        : rank(own_rank), size(group_size), memory(m), backend(static_cast<shared_backend&&>(l)) {}
    /// For each of the thread's other groups.
    template <class F>
    void for_others(F f) {
        for (rank_context* x = next; x != this; x = x->next) f(*x);
    }
    /// Has this process been forked from the one that has the group? Then it must touch nothing.
    bool is_foreign() const { return born != forks.load(std::memory_order_relaxed); }
    rank_context(const rank_context&) = delete;
    rank_context& operator=(const rank_context&) = delete;
    ~rank_context();

    /// Addresses, as one rank tells another: processes have the shared memory at different places.
    std::uintptr_t told(const void* p) const {
        return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base);
    }
    template <class T>
    T* here(std::uintptr_t p) const {
        return reinterpret_cast<T*>(p + reinterpret_cast<std::uintptr_t>(base));
    }
    bool shares_everything() const { return reach == ~std::size_t{0}; }
    bool shares(const void* p, std::size_t bytes) const { return told(p) <= reach && bytes <= reach - told(p); }

    /// A new call's fingerprint. The collective is in its highest four bits, so that both sides of a mismatch can be
    /// named.
    std::uint64_t sign(collective what, std::uint64_t hash) {
        history = static_cast<std::uint64_t>(what) << 60 | hash_mix(hash, history) >> 4;
        return recent[calls++ % call_record::kept].fingerprint = history;
    }
    /// Into the ring of `other`.
    void join(rank_context& other) {
        shared = other.shared;
        previous = &other;
        next = other.next;
        next->previous = other.next = this;
    }
};

/// Groups of this process that were not split off: so they are numbered in traces.
inline std::atomic<unsigned> groups_made{0};
/// A longer label is cut off.
[[gnu::cold]] inline void put_label(rank_context& e, const message& text) {
    std::string_view(text.text()).substr(0, sizeof e.label - 1).copy(e.label, sizeof e.label - 1);
}
[[gnu::cold]] inline void label_group(rank_context& e, unsigned number) {
    put_label(e, message() << static_cast<std::size_t>(number));
}

void progress(rank_context& e);
/// Where every rank stands, as far as this one can see. To stderr.
void print_dump(const rank_context& e, const wait_site* at);

/// How often a signal has asked for it.
inline std::atomic<unsigned> dumps_wanted{0};

/// The end that this thread is in a call of; null outside of calls.
inline constinit thread_local const rank_context* in_call_of = nullptr;

/// Is this thread in a call of the end's ring, that is, does an operator ask for another one?
inline bool is_within_call(const rank_context& e) {
    for (const rank_context* x = in_call_of; x != nullptr; x = x->next == in_call_of ? nullptr : x->next)
        if (x == &e) return true;
    return false;
}
[[noreturn, gnu::cold]] inline void refuse_progress(const rank_context& e) {
    if (e.is_foreign())
        throw error(errc::invalid_argument,
            (message() << "colls: rank " << e.rank
                       << ": this process was forked from the rank, whose group it "
                          "cannot use: a group belongs to the process that made it")
                .text(),
            e.rank);
    throw error(errc::invalid_argument,
        (message() << "colls: rank " << e.rank
                   << ": an operator calls the library while a call of this rank "
                      "runs it: an operator may compute, but not communicate or wait")
            .text(),
        e.rank);
}

/// While it lives, no other thread is in the library with rank contexts of this ring. Throws where an operator asks for
/// it.
class progress_lock {
public:
    struct quiet {};
    explicit progress_lock(const rank_context& e) : progress_lock(e, e.is_foreign() || is_within_call(e)) {
        if (within_) refuse_progress(e);
    }
    /// Where nothing may be thrown: the turn of the call that runs the operator does.
    progress_lock(const rank_context& e, quiet) : progress_lock(e, is_within_call(e)) {}
    progress_lock(const progress_lock&) = delete;
    progress_lock& operator=(const progress_lock&) = delete;
    ~progress_lock() {
        in_call_of = outer_;
        if (shared_) shared_->unlock();
    }

private:
    progress_lock(const rank_context& e, bool within)
        : shared_(within ? nullptr : e.shared), outer_(in_call_of), within_(within) {
        if (shared_) shared_->lock();
        in_call_of = &e;
    }
    std::mutex* const shared_;
    const rank_context* const outer_;
    const bool within_;
};

/// To stderr, where COLLS_DEBUG asks for it.
[[gnu::cold]] [[gnu::noinline]] inline void say(const message& what) { std::fprintf(stderr, "%s\n", what.text()); }

/// What an error says besides, where a rank did not come back in time.
[[gnu::cold]] inline void warn_of_lingering(message& text, const rank_context& e) {
    if (e.lingers != none)
        text << "; rank " << e.lingers
             << " has not left its call: should it wake, it may yet write into buffers from allocate()";
}

/// Where a rank is, for a message.
[[gnu::cold]] inline message& operator<<(message& text, const wait_site& at) {
    text << " in " << at.what;
    if (!at.schedule.empty()) put_brief(text << " (", at.schedule) << ")";
    if (at.round != none) text << ", round " << at.round;
    if (at.round != none && at.peer != none && at.blocks) at.blocks(text, at);
    return text;
}

/// What was reported, which names its reporter.
[[gnu::cold]] inline std::string_view report_in(const poison_state& p) { return quoted(p.text); }
[[noreturn, gnu::cold]] inline void throw_poison(rank_context& e, const wait_site* at = nullptr) {
    poison_state& p = e.memory.poison();
    // Whoever writes it may be killed meanwhile.
    for (const double until = seconds_now() + 1; p.state.load(std::memory_order_acquire) == 1 && seconds_now() < until;)
        sched_yield();
    message text;
    text << "colls: rank " << e.rank;
    if (at) text << *at;
    if (p.state.load(std::memory_order_acquire) == 1) {
        text << ": the group is broken, by a rank that died before it had said why";
        throw error(errc::peer_failed, text.text(), e.rank);
    }
    text << ": the group is broken: " << report_in(p);
    warn_of_lingering(text, e);
    // The peer to blame: the one that the reporter blames, unless that is this rank.
    throw error(
        static_cast<errc>(p.code), text.text(), e.rank, p.peer == none || p.peer == e.rank ? p.rank : p.peer, p.round);
}

/// Breaks the group, so that every rank's waits end. The first report stands.
[[gnu::cold]] inline bool poison(
    const group_memory& memory, errc code, int rank, int peer, int round, const char* text) {
    poison_state& p = memory.poison();
    std::uint32_t whole = 0;
    if (!p.state.compare_exchange_strong(whole, 1, std::memory_order_seq_cst)) return false;  // as `activate` needs
    p.code = static_cast<int>(code);
    p.rank = rank;
    p.peer = peer;
    p.round = round;
    std::snprintf(p.text, sizeof p.text, "%s", text);
    p.state.store(2, std::memory_order_seq_cst);
    return true;
}
/// Likewise, by one of its ranks.
[[gnu::cold]] inline void break_group(rank_context& e, errc code, int peer, int round, const char* text) {
    if (poison(e.memory, code, e.rank, peer, round, text)) e.backend->broke(e);
}

/// Before an error leaves a call, nobody may still be touching this rank's buffers: each rank says when it is out, or
/// is dead. Bounded by the deadline and 2 s: a rank that has not come back by then may still be there, and what it may
/// write to is not used again.
[[gnu::cold]] inline void leave(rank_context& e) {
    e.backend->abandon(e);
    e.memory.state(e.rank).active.store(0, std::memory_order_seq_cst);
    const double most = e.env.timeout < 2 ? e.env.timeout : 2;
    const double until = seconds_now() + (e.lingers == none ? most : 0);  // once is enough
    for (int r = 0; r < e.size; ++r) {
        const auto inside = [&] {
            return r != e.rank && e.memory.state(r).active.load(std::memory_order_seq_cst) != 0 && !e.backend->dead(r);
        };
        while (inside() && seconds_now() < until) {
            e.backend->look(e, nullptr, 0);
            sched_yield();
        }
        if (!inside()) continue;
        e.lingers = r;
        e.backend->pin();
    }
}

/// Before a shrink: the group is broken, if it is not yet. What is known of the cause is said, also where it was seen
/// in another group.
[[gnu::cold]] inline void break_to_shrink(rank_context& e) {
    // A rank that has died is about to be seen here, too: links look for that once a millisecond.
    for (const double until = seconds_now() + 3e-3;
        e.memory.poison().state.load(std::memory_order_acquire) == 0 && seconds_now() < until;)
        e.backend->look(e, nullptr, 0);
    message text;
    text << "colls: rank " << e.rank << " shrinks the group";
    for (rank_context* x = e.next; x != &e; x = x->next)
        if (x->memory.poison().state.load(std::memory_order_acquire) == 2) {
            text << ", after an error in another one: " << report_in(x->memory.poison());
            break;
        }
    break_group(e, errc::peer_failed, none, none, text.text());
    leave(e);
}

/// From here on this rank may touch others' memory. Dekker with `leave`: either it sees the poison here, or whoever
/// poisoned the group sees that it is active, and waits.
inline void activate(rank_context& e) {
    e.memory.state(e.rank).active.store(1, std::memory_order_seq_cst);
    if (e.memory.poison().state.load(std::memory_order_seq_cst) == 0) return;
    leave(e);
    throw_poison(e);
}

/// After the last look at others' buffers, before a call is over: whoever has left it by an error meanwhile may be
/// using its buffers for something else already.
inline void confirm(rank_context& e, const wait_site& at) {
#if defined(__aarch64__)
    asm volatile("dmb ishld" ::: "memory");  // the loads before are before
#else
    std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
    if (e.memory.poison().state.load(std::memory_order_seq_cst) == 0) return;
    leave(e);
    throw_poison(e, &at);
}

[[noreturn, gnu::cold]] inline void fail(rank_context& e, errc code, const wait_site& at, const message& why) {
    message text;
    text << "colls: rank " << e.rank << at << ": " << why.text();
    break_group(e, code, at.peer, at.round, text.text());
    leave(e);
    warn_of_lingering(text, e);
    throw error(code, text.text(), e.rank, at.peer, at.round);
}

inline const char* collective_in(std::uint64_t fingerprint) {
    const auto c = static_cast<int>(fingerprint >> 60);
    return c < collective_count ? name_of(static_cast<collective>(c)) : "send/recv";
}
/// How long a mismatch waits for the peer's own account of its calls, in seconds.
inline constexpr double time_to_tell = 0.3;
/// What is different on the peer, as far as that is known, in this rank's call of that number or before.
[[gnu::cold]] inline void say_mismatch(
    message& text, rank_context& e, int peer, std::uint64_t call, std::uint64_t own, std::uint64_t theirs) {
    if (say_difference(text, e.memory, e.rank, peer, e.recent, call)) return;
    text << "rank " << peer << " called " << collective_in(theirs) << ", this rank " << collective_in(own);
    if (theirs >> 60 == own >> 60)
        text << ", with another count, type, operator, root or schedule, or started and not blocking, now or in a call "
                "before";
}
[[noreturn, gnu::cold]] inline void fail_mismatch(rank_context& e, wait_site at, int peer, std::uint64_t theirs) {
    at.peer = peer;
    // The peer tells its calls when it has waited for a while; where it does not wait, it does not say.
    tell_calls(e.memory, e.rank, e.recent, e.calls);
    const auto& broken = e.memory.poison().state;
    for (const double until = seconds_now() + time_to_tell;
        !has_told(e.memory, peer, at.call) && seconds_now() < until;) {
        if (broken.load(std::memory_order_seq_cst) != 0) {  // another rank has reported it
            leave(e);
            throw_poison(e, &at);
        }
        sched_yield();
    }
    message text;
    say_mismatch(text, e, peer, at.call, at.fingerprint, theirs);
    fail(e, errc::mismatch, at, text << "; every rank must make the same calls in the same order");
}

/// What a rank reports in a group that does not come about.
inline constexpr std::string_view origin_is_broken = "the group that it is split from is broken";

/// One wait: a call operator that is invoked between looks at the flag. Spins, then yields (at once where ranks
/// outnumber cores), then sleeps; looks for failures; throws at the deadline.
class backoff {
public:
    backoff() = default;
    explicit backoff(rank_context& e) : e_(&e) {}

    void operator()(const wait_site& at) {
        if (!e_->crowded && spins_ < 2000) {
            ++spins_;
            if (!e_->by_messages) pause();  // a look at a device, a socket or rings takes longer than that
            return;
        }
        turn(at);
    }

    /// For whoever asks again and again instead of waiting: the same looks, and the same deadline; never waits.
    void asked(const wait_site& at) {
        if (++turns_ % 16 == 0) look(at);
    }

private:
    [[gnu::noinline]] void turn(const wait_site& at) {
        if (++turns_ % 16 == 0) look(at);
        if (e_->by_messages) {
            e_->backend->idle(*e_, waited_);
        } else if (waited_ > 3e-3) {
            const timespec nap{0, 50'000};
            nanosleep(&nap, nullptr);
        } else {
            sched_yield();
        }
        progress(*e_);
    }
    [[gnu::cold, gnu::noinline]] void look(const wait_site& at) {
        if (const unsigned wanted = dumps_wanted.load(std::memory_order_relaxed); e_->dumps != wanted) {
            e_->dumps = wanted;
            print_dump(*e_, &at);
        }
        e_->backend->look(*e_, &at, waited_);
        if (e_->memory.poison().state.load(std::memory_order_seq_cst) != 0) {
            leave(*e_);
            throw_poison(*e_, &at);
        }
        const double now = seconds_now();
        if (start_ == 0) start_ = now;
        waited_ = now - start_;
        if (waited_ > 10e-3) compare_boards(at);
        if (waited_ > 0.1 && at.peer != none && at.fingerprint != no_call) look_for_refusal(at);
        if (e_->forming_from) look_at_origin(at);
        if (at.peer != none)
            if (const std::uint64_t away = e_->memory.state(at.peer).away.load(std::memory_order_acquire); away != 0)
                look_for(away, at);
        if (at.peer != none && e_->memory.state(at.peer).gone.load(std::memory_order_acquire) != 0) {
            // It may have done its part before it went: the caller looks once more before this is an error.
            if (peer_gone_++ > 2)
                fail(*e_, errc::peer_failed, at, message() << "rank " << at.peer << " has left the group");
        }
        if (waited_ > e_->env.timeout && at.peer == none)
            fail(*e_, errc::timeout, at,
                message() << "no rank has sent a message: waited " << waited_
                          << " s (COLLS_TIMEOUT sets the deadline)");
        if (waited_ > e_->env.timeout && !leaves_it_to_peer(at))
            fail(*e_, errc::timeout, at,
                message() << "rank " << at.peer << " is unreachable: waited " << waited_ << " s for it"
                          << "; is it stopped, slow, in another call, or cut off? (COLLS_TIMEOUT sets the deadline)");
    }
    // The peer may have refused its own part for what is wrong on its side. It is given time to make the call rightly.
    void look_for_refusal(const wait_site& at) {
        const refusal_state& refusal = e_->memory.refusal(at.peer);
        const std::uint64_t call = refusal.call.load(std::memory_order_acquire);
        if (call == 0 || call - 1 > at.call) return;
        char text[decltype(refusal.text)::most + 1];
        refusal.text.load(text);
        fail(*e_, errc::peer_failed, at,
            message() << "rank " << at.peer << " has not made this call, which it refused: " << text);
    }
    // Where the group that this one is split from breaks, a rank may not come here any more; and no rank has gone on
    // yet.
    [[gnu::cold]] void look_at_origin(const wait_site& at) {
        rank_context& from = *e_->forming_from;
        from.backend->look(from, nullptr, 0);
        if (from.memory.poison().state.load(std::memory_order_acquire) == 2)
            fail(*e_, errc::peer_failed, at, message() << origin_is_broken << ": " << report_in(from.memory.poison()));
    }
    // The peer shrinks a group. If this rank is of that group, it is waited for there, and the peer does not come here
    // before.
    [[gnu::cold]] void look_for(std::uint64_t group, const wait_site& at) {
        for (rank_context* x = e_->next; x != e_; x = x->next) {
            if (x->number != group) continue;
            x->backend->look(*x, nullptr, 0);
            const poison_state& p = x->memory.poison();
            if (p.state.load(std::memory_order_acquire) == 2)
                fail(*e_, errc::peer_failed, at,
                    message() << "rank " << at.peer
                              << " does not come to this call: it shrinks another group of this rank, in which "
                              << report_in(p));
        }
    }
    // A peer that waits itself may soon know better who it is that does not come.
    bool leaves_it_to_peer(const wait_site& at) const {
        const double longer = e_->env.timeout / 4;
        if (at.peer == none || waited_ > e_->env.timeout + (longer < 2 ? longer : 2)) return false;
        const rank_state& peer = e_->memory.state(at.peer);
        const auto call = peer.board_call.load(std::memory_order_relaxed);
        const double said = 1e-3 * static_cast<double>(peer.board_at.load(std::memory_order_relaxed));
        return call != 0 && call + 64 > e_->calls && seconds_now() - said < e_->env.timeout * 3 / 8;
    }
    // Two ranks may both be waiting, in different calls: whoever waits long says where, and looks what others say.
    [[gnu::cold]] void compare_boards(const wait_site& at) {
        if (at.fingerprint == no_call) return;
        if (told_ != at.call + 1) tell_calls(e_->memory, e_->rank, e_->recent, e_->calls);
        told_ = at.call + 1;
        rank_state& own = e_->memory.state(e_->rank);
        own.board_call.store(0, std::memory_order_relaxed);
        own.board_fingerprint.store(at.fingerprint, std::memory_order_release);
        own.board_at.store(milliseconds_now(), std::memory_order_relaxed);
        own.board_call.store(at.call + 1, std::memory_order_release);
        for (int r = 0; r < e_->size; ++r) {
            if (r == e_->rank) continue;
            const rank_state& other = e_->memory.state(r);
            const auto call = other.board_call.load(std::memory_order_acquire);
            const auto theirs = other.board_fingerprint.load(std::memory_order_acquire);
            // The call in which the other waits may be one that is over here.
            if (call == 0 || call > e_->calls || call + 64 <= e_->calls ||
                e_->recent[(call - 1) % call_record::kept].fingerprint == theirs)
                continue;
            if (other.board_call.load(std::memory_order_acquire) == call) fail_mismatch(*e_, at, r, theirs);
        }
    }

    rank_context* e_ = nullptr;
    unsigned spins_ = 0, turns_ = 0, peer_gone_ = 0;
    std::uint64_t told_ = 0;  // 1 + the call in which this rank has told its calls
    double start_ = 0, waited_ = 0;
};

}  // namespace colls::inline v1::detail
