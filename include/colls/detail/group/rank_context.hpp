// What one rank knows of a group that it is a member of.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/call_log.hpp>
#include <colls/detail/group/group_backend.hpp>
#include <colls/detail/group/group_memory.hpp>
#include <colls/detail/group/thread_gate.hpp>
#include <colls/detail/group/wait_policy.hpp>
#include <colls/detail/group/wait_site.hpp>
#include <colls/detail/support/clock.hpp>
#include <colls/detail/support/environment.hpp>
#include <colls/detail/support/error_text.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/detail/support/process_lock.hpp>
#include <colls/detail/support/wait_hook.hpp>
#include <colls/extend/host_map.hpp>

#include <memory>
#include <vector>

namespace colls::inline v1::detail {

struct rank_operations {
    list<pending*> in_flight;
    std::shared_ptr<group_cycle> cycle = std::make_shared<group_cycle>();
    const pending* current = nullptr;                                       ///< what is waited for
    std::vector<std::unique_ptr<pending>> idle_collectives, idle_messages;  ///< to be used again

    bool only_these() const { return cycle->in_flight == in_flight.size(); }
    void start(pending& o) {
        in_flight.push_back(&o);
        ++cycle->in_flight;
    }
    /// The i-th in flight is over, or its caller takes it back.
    void drop(std::size_t i) {
        in_flight.drop(i);
        --cycle->in_flight;
    }
};

struct memory_piece {
    std::byte* at = nullptr;
    std::size_t bytes = 0;
    bool populated = false;  ///< the system has been asked for its pages
};

/// Where a rank stages. What an operation has staged stays there for peers that have yet to read it, while the rank
/// goes on: memory is written again when all ranks have completed the operation that wrote it last. Positions only
/// grow; that of a byte is its offset in the memory plus a multiple of the memory's size.
struct staging_ring {
    struct use {
        std::uint64_t operation, begin;  ///< 1 + its sequence, its first position
    };
    memory_piece memory;
    std::uint64_t next = 0;     ///< the position where the next operation begins
    std::uint64_t free_to = 0;  ///< up to this position no operation has to be waited for: a lower bound
    use uses[window] = {};      ///< by sequence modulo `window`: the operation `window` before it has been completed
};

/// Memory that other ranks can reach and that no operation uses at present.
struct scratch_pool {
    list<memory_piece> pieces;
    staging_ring ring;

    /// One of `bytes` bytes or more. Throws std::bad_alloc.
    memory_piece take(group_backend& backend, std::size_t bytes) {
        for (std::size_t i = 0; i < pieces.size() && bytes > 0; ++i)
            if (pieces[i].bytes >= bytes) {
                const memory_piece piece = pieces[i];
                pieces.drop(i);
                return piece;
            }
        return bytes > 0 ? memory_piece{backend.take(bytes), bytes} : memory_piece{};
    }
};

struct candidates;
class execution_plan;

/// The memory that a rank shares with the others of its group, and how copies between them go.
struct shared_access {
    std::byte* base = nullptr;            ///< its begin
    std::size_t reach = ~std::size_t{0};  ///< its length; threads share everything
    bool copies_between = false;          ///< the kernel can copy between the processes of any two ranks
    bool copies_always = false;           ///< and does so whatever was measured
    bool copies_faster = false;           ///< as measured with the figures of the machine: faster than staging
    bool starts_near = false;             ///< the ranks were near each other when the machine was measured
    bool streams = false;                 ///< as measured with them: staged data are stored past the caches

    bool is_whole() const { return reach == ~std::size_t{0}; }
    bool has(const void* p, std::size_t bytes) const { return to_offset(p) <= reach && bytes <= reach - to_offset(p); }
    /// Addresses, as one rank tells them to another: processes map the memory at different places.
    std::uintptr_t to_offset(const void* p) const {
        return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base);
    }
    std::byte* from_offset(std::uintptr_t p) const {
        return reinterpret_cast<std::byte*>(p + reinterpret_cast<std::uintptr_t>(base));
    }
};

/// What is known of the hosts of a group.
struct host_layout {
    host_map hosts{};  ///< where there are several hosts, and one of them has several ranks; else not known
    /// Where hosts are known: the schedules of two levels for a collective. Null: the group has none.
    candidates (*two_levels)(collective what, host_map hosts, int root) = nullptr;
};

/// What `automatic` chose for one kind of call. Without a plan: the eager path.
struct schedule_choice {
    std::uint64_t key = 0;
    const execution_plan* plan = nullptr;
    std::size_t chunk_bytes = std::size_t{64} << 10;  ///< bytes of a unit per chunk
    /// Instead of `plan` where a rank's buffer is out of the others' reach; null: one of the same schedule.
    const execution_plan* staged = nullptr;
    std::string_view name = {}, staged_name = {};  ///< of the schedules, for texts
    bool eager_first = false;   ///< each rank knows its own lengths only: what is short goes by the eager path
    bool takes_sample = false;  ///< taken once in a while instead of the eager path: a sample of the distance follows
};

/// Choices by their keys: a hash table, since a program may call with thousands of sizes, and each call looks one up.
class choice_table {
public:
    /// The choice with that key for which `is` is true; null: there is none.
    template <class F>
    const schedule_choice* find(std::uint64_t key, F is) const {
        const std::uint32_t* const slots = slots_.data();
        const schedule_choice* const all = all_.data();
        for (std::size_t i = key * spread >> 40 & last_slot_; slots != nullptr && slots[i] != 0;
            i = (i + 1) & last_slot_)
            if (const schedule_choice& p = all[slots[i] - 1]; p.key == key && is(p)) return &p;
        return nullptr;
    }
    /// `find` looks at the first of several choices with one key before the others.
    void add(const schedule_choice& p) {
        all_.push_back(p);
        if (2 * all_.size() <= slots_.size()) {
            enter(all_.size());
            return;
        }
        std::size_t size = 64;
        while (size < 2 * all_.size()) size *= 2;
        slots_.clear();
        slots_.resize(size, 0);
        last_slot_ = size - 1;
        for (std::size_t number = 1; number <= all_.size(); ++number) enter(number);
    }

    void clear() { *this = choice_table(); }
    // All choices, in the order in which they were added.
    const schedule_choice* begin() const { return all_.begin(); }
    const schedule_choice* end() const { return all_.end(); }

private:
    void enter(std::size_t number) {
        std::size_t i = all_[number - 1].key * spread >> 40 & last_slot_;
        while (slots_[i] != 0) i = (i + 1) & last_slot_;
        slots_[i] = static_cast<std::uint32_t>(number);
    }

    static constexpr std::size_t spread = 0x9e3779b97f4a7c15;  // the product's highest bits depend on all of the key's
    list<schedule_choice> all_;
    list<std::uint32_t> slots_;  // numbers of choices, from 1; 0: none. Their count is a power of two
    std::size_t last_slot_ = 0;
};

/// The dumps of a group that signals have asked for.
struct dump_state {
    unsigned seen = 0;  ///< that were given, or are due
    double due_at = 0;  ///< when the others have said where they wait; 0: none is due
};

/// The groups that a thread has made other than by a split, as far as they advance together.
struct groups_of_thread {
    rank_context* last = nullptr;        ///< one of them; null: there is none
    std::shared_ptr<group_cycle> cycle;  ///< in whose gate `last` is read and written, also by other threads
};

struct rank_context : std::enable_shared_from_this<rank_context> {
    int rank = 0, size = 1;
    group_memory memory;
    shared_backend backend;
    shared_access access;
    environment env = environment::read();
    bool crowded = false;      ///< more ranks than cores: waits yield instead of spinning
    bool by_messages = false;  ///< ranks do not share memory
    wait_policy waits;
    host_layout layout;
    /// The number of the group: equal on its ranks, different for each group of a process; 0: it has none.
    std::uint64_t number = 0;
    rank_context* forming_from = nullptr;  ///< while this group is being formed: the group that it is split from
    /// The groups of the thread that joined this one to them: see join_groups_of_thread.
    std::shared_ptr<groups_of_thread> latest;
    /// The contexts of one thread's groups form a cycle: a wait in one of them advances the operations of all.
    rank_context *next = this, *previous = this;
    const unsigned born = count_forks();  ///< the process that made it: see `is_foreign`
    hook_function hook = nullptr;         ///< of this group's waits, beside the process's: the transport's, or null
    char label[32] = "0";                 ///< of the group, in texts; the same on all ranks
    unsigned splits = 0;                  ///< of this group, so far
    unsigned tie = 0;              ///< groups of the cycle with the same number break together; 0: it is tied to none
    double began = seconds_now();  ///< when the group was made from which this one was split, directly or not
    dump_state dump;
    std::shared_ptr<rank_context> held;         ///< the communicator's share of this context: backend/split.hpp
    const status_place status = take_status();  ///< what other programs see of this rank

    call_log log;
    direct_calls direct;
    eager_calls eager;
    message_counts messages;
    rank_operations operations;
    scratch_pool scratch;
    const std::unique_ptr<tracer> trace = make_tracer(*this);
    int lingers = none;  ///< a rank that was still in its call when this one left by an error

    choice_table choices;  ///< what `automatic` chose

    rank_context(int own_rank, int group_size, const group_memory& m, shared_backend b)
        : rank(own_rank), size(group_size), memory(m), backend(static_cast<shared_backend&&>(b)) {
        if (backend) access.starts_near = backend->figures().alpha < backend->figures().near_below;
    }
    rank_context(const rank_context&) = delete;
    rank_context& operator=(const rank_context&) = delete;
    [[gnu::cold]] ~rank_context() {
        if (latest && latest->last == this) {
            latest->last = next == this ? nullptr : next;
            if (next != this) next->latest = latest;
        }
        previous->next = next;
        next->previous = previous;
        operations.idle_collectives.clear();  // they give back memory
        operations.idle_messages.clear();
        for (const memory_piece& piece : scratch.pieces) backend->give(piece.at, piece.bytes);
    }

    /// Calls f with the context of each of the thread's other groups.
    template <class F>
    void for_others(F f) {
        for (rank_context* x = next; x != this; x = x->next) f(*x);
    }
    /// With those of them that are tied to this one.
    template <class F>
    void for_tied(F f) {
        for (rank_context* x = next; x != this; x = x->next)
            if (tie != 0 && x->tie == tie) f(*x);
    }
    /// Was this process forked from the process that has the group? Then it must touch nothing.
    bool is_foreign() const { return born != forks.load(std::memory_order_relaxed); }

    bool in_call() const { return status->in_call.load(std::memory_order_relaxed) != 0; }
    /// From here on other programs see this rank, until its context ends.
    [[gnu::cold]] void show() {
        status->show(number, rank, size,
            by_messages         ? rank_status::no_memory
            : access.is_whole() ? rank_status::memory_of_threads
                                : rank_status::memory_of_processes,
            label);
    }
    /// Adds this context to the cycle of `other`.
    void join(rank_context& other) {
        operations.cycle = other.operations.cycle;  // a new context has nothing in flight
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
    self.status->label.store(self.label);
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
