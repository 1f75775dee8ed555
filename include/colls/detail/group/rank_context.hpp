// What one rank knows of a group that it is a member of.
// IWYU pragma: private
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/detail/group/choice_table.hpp>
#include <colls/detail/group/group_backend.hpp>
#include <colls/detail/group/group_memory.hpp>
#include <colls/detail/group/pending.hpp>
#include <colls/detail/group/recorder.hpp>
#include <colls/detail/group/told_calls.hpp>
#include <colls/detail/group/wait_policy.hpp>
#include <colls/detail/support/clock.hpp>
#include <colls/detail/support/environment.hpp>
#include <colls/detail/support/error_text.hpp>
#include <colls/detail/support/hash.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/detail/support/wait_hook.hpp>
#include <colls/extend/host_map.hpp>

#include <pthread.h>
#include <memory>
#include <mutex>
#include <vector>

namespace colls::inline v1::detail {

struct candidates;

struct memory_piece {
    std::byte* at = nullptr;
    std::size_t bytes = 0;
    bool populated = false;  ///< the system has been asked for its pages
};

/// Messages to or from one rank.
struct message_count {
    std::uint64_t begun = 0, over = 0;
};

/// How many forks led to this process since the library was first used. A forked child is another process, which must
/// not use the groups of its parent.
inline std::atomic<unsigned> forks{0};
inline unsigned count_forks() {
    static const int watching = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    static_cast<void>(watching);
    return forks.load(std::memory_order_relaxed);
}

struct rank_context : std::enable_shared_from_this<rank_context> {
    int rank = 0, size = 1;
    group_memory memory;
    shared_backend backend;
    std::byte* base = nullptr;            ///< begin of the memory that the ranks share
    std::size_t reach = ~std::size_t{0};  ///< its length; threads share everything
    environment env = environment::read();
    bool crowded = false;         ///< more ranks than cores: waits yield instead of spinning
    bool copies_between = false;  ///< the kernel can copy between the processes of any two ranks
    bool copies_always = false;   ///< and does so whatever was measured
    bool copies_faster = false;   ///< as measured with the figures of the machine: faster than staging
    bool streams = false;         ///< as measured with them: staged data are stored past the caches
    bool by_messages = false;     ///< ranks do not share memory
    wait_policy waits;
    int ranks_per_host = 0;  ///< where several hosts have equally many ranks, in order; else 0
    host_map hosts{};        ///< where there are several hosts, and one of them has several ranks; else not known
    /// Where hosts are known: the schedules of two levels for a collective. Null: the group has none.
    candidates (*two_levels)(collective what, int ranks_per_host, host_map hosts, int root) = nullptr;
    /// Of the group: equal on its ranks, different for each group of a process; 0: it has none.
    std::uint64_t number = 0;
    rank_context* forming_from = nullptr;  ///< while this group is being formed: the group that it is split from
    /// Of the thread that joined it to the thread's groups: see join_groups_of_thread.
    std::shared_ptr<rank_context*> latest;
    /// The contexts of one thread's groups form a cycle: a wait in one of them advances the operations of all.
    rank_context *next = this, *previous = this;
    std::mutex* shared = nullptr;         ///< of the whole cycle, where a second thread makes progress
    const unsigned born = count_forks();  ///< the process that made it: see `is_foreign`
    hook_function hook = nullptr;         ///< of this group's waits, beside the process's: the transport's, or null
    char label[32] = "0";                 ///< of the group, in texts; the same on all ranks
    unsigned splits = 0;                  ///< of this group, so far
    double began = seconds_now();         ///< when the group was made from which this one was split, directly or not
    unsigned dumps = 0;                   ///< dumps that signals asked for and that were given, or are due
    double dump_at = 0;                   ///< when the others have said where they wait; 0: no dump is due
    std::shared_ptr<rank_context> held;   ///< the communicator's share of this context: backend/split.hpp

    std::uint64_t calls = 0;                ///< collective calls so far
    std::uint64_t history = 0;              ///< hash of all of them: a mismatch that a call misses the next one finds
    call_record recent[call_record::kept];  ///< the latest calls, by number modulo `kept`
    std::uint64_t sequence = 0;             ///< calls that expose buffers
    std::uint64_t eager_calls = 0;          ///< calls by the eager path
    std::uint64_t telling_calls = 0;        ///< calls that may tell the distance of the cores (execute/distance.hpp)
    std::uint64_t last_full_eager = 0;      ///< 1 + the latest of them in which every rank heard from every rank
    std::uint64_t completed_by_all = 0, eager_by_all = 0;  ///< lower bounds, refreshed when they do not suffice
    std::uint32_t finished = 0;  ///< a bit for each operation from `completed` on that is over
    int near_votes = 0;  ///< rank 0: samples of late that say near, less those that say far (execute/distance.hpp)
    bool has_refused = false;          ///< the call that would have been the next one
    std::unique_ptr<recorder> events;  ///< from the first call on, where COLLS_TRACE says so; else null
    int lingers = none;                ///< a rank that was still in its call when this one left by an error

    list<message_count> sent, received;  ///< messages to and from each rank
    int next_source = 0;                 ///< where the search for a sender begins, for recv_any
    list<pending*> in_flight;
    std::vector<std::unique_ptr<pending>> idle_collectives, idle_messages;  ///< to be used again
    /// Operations in flight of the whole cycle: a wait looks through thousands of groups only where there are some.
    std::shared_ptr<std::size_t> in_flight_of_cycle = std::make_shared<std::size_t>(0);
    const pending* current = nullptr;  ///< what is waited for
    list<memory_piece> pieces;         ///< scratch memory that is not in use
    std::size_t staging_at = 0;        ///< where the next operation begins to stage in its piece
    choice_table choices;              ///< what `automatic` chose

    rank_context(int own_rank, int group_size, const group_memory& m, shared_backend b)
        : rank(own_rank), size(group_size), memory(m), backend(static_cast<shared_backend&&>(b)) {}
    rank_context(const rank_context&) = delete;
    rank_context& operator=(const rank_context&) = delete;
    ~rank_context() {
        if (latest && *latest == this) {
            *latest = next == this ? nullptr : next;
            if (next != this) next->latest = latest;
        }
        previous->next = next;
        next->previous = previous;
        idle_collectives.clear();  // they give back memory
        idle_messages.clear();
        for (const memory_piece& piece : pieces) backend->give(piece.at, piece.bytes);
    }

    /// Calls f with the context of each of the thread's other groups.
    template <class F>
    void for_others(F f) {
        for (rank_context* x = next; x != this; x = x->next) f(*x);
    }
    /// The i-th operation in flight is over, or its caller takes it back.
    void drop_in_flight(std::size_t i) {
        in_flight.drop(i);
        --*in_flight_of_cycle;
    }
    /// Was this process forked from the process that has the group? Then it must touch nothing.
    bool is_foreign() const { return born != forks.load(std::memory_order_relaxed); }

    /// Addresses, as one rank tells them to another: processes map the shared memory at different places.
    std::uintptr_t to_offset(const void* p) const {
        return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base);
    }
    template <class T>
    T* from_offset(std::uintptr_t p) const {
        return reinterpret_cast<T*>(p + reinterpret_cast<std::uintptr_t>(base));
    }
    bool shares_everything() const { return reach == ~std::size_t{0}; }
    bool shares(const void* p, std::size_t bytes) const {
        return to_offset(p) <= reach && bytes <= reach - to_offset(p);
    }

    /// The fingerprint of a new call. Its highest four bits are the collective, so that an error can name both sides'.
    std::uint64_t sign(collective what, std::uint64_t hash) {
        history = static_cast<std::uint64_t>(what) << 60 | hash_mix(hash, history) >> 4;
        return recent[calls++ % call_record::kept].fingerprint = history;
    }
    /// Adds this context to the cycle of `other`.
    void join(rank_context& other) {
        shared = other.shared;
        in_flight_of_cycle = other.in_flight_of_cycle;  // a new context has none
        previous = &other;
        next = other.next;
        next->previous = other.next = this;
    }
};

/// Groups that this process made other than by a split: traces number them.
inline std::atomic<unsigned> groups_made{0};
/// A label that is too long is cut off.
[[gnu::cold]] inline void put_label(rank_context& self, const error_text& text) {
    std::string_view(text.text()).substr(0, sizeof self.label - 1).copy(self.label, sizeof self.label - 1);
}
[[gnu::cold]] inline void label_group(rank_context& self, unsigned number) {
    put_label(self, error_text() << static_cast<std::size_t>(number));
}

/// Gives other libraries the processor, between two looks at what a rank waits for. False: there is no hook.
inline bool call_hooks(const rank_context& self) {
    const bool called = call_wait_hook();
    if (self.hook != nullptr) call_hook(self.hook, nullptr);
    return called || self.hook != nullptr;
}
/// Seconds that a rank sleeps at most while there are hooks.
inline constexpr double sleep_between_hooks = 100e-6;

/// How often a signal has asked for a dump.
inline std::atomic<unsigned> dumps_wanted{0};

}  // namespace colls::inline v1::detail
