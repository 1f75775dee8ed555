// The calls that a rank has made, how many of each kind, and what it tells of them.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/told_calls.hpp>
#include <colls/detail/support/list.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace colls::inline v1::detail {

/// The calls that a rank has refused, for errors on its own side. They do not count as calls, since a program that is
/// wrong on all ranks leaves the group as it was. So a refusal is named by its place, which is the number of the call
/// that the rank would have made, and by how often the rank has refused there. Ranks whose programs are the same refuse
/// equally often at each place, the slower ones later: what this rank has refused itself is no news of another rank.
/// Where a peer refuses more often than this rank did at a place that this rank has passed, the programs part, or the
/// peer alone is wrong, and the call of that place waits in vain unless the peer makes it soon. (Where both were wrong
/// in different calls at one place, and the peer does not go on, the wait ends at its deadline.)
struct refused_calls {
    std::uint64_t latest[32] = {};  ///< by place: (place + 1) << 16 | how often

    /// One more, at that place. Later places, and later refusals at a place, are greater numbers.
    std::uint64_t add(std::uint64_t place) {
        std::uint64_t& at = latest[place % 32];
        if (at >> 16 != place + 1) at = (place + 1) << 16;
        if ((at & 0xffff) != 0xffff) ++at;
        return at;
    }
    /// Does a peer's refusal, by its number, keep it from the call that this rank waits in? Not one that this rank has
    /// made too. Where a later place is remembered instead, this rank is far ahead, and cannot tell.
    bool concerns(std::uint64_t refusal, std::uint64_t call) const {
        const std::uint64_t place = (refusal >> 16) - 1;
        return refusal != 0 && place <= call && refusal > latest[place % 32];
    }
};

/// Collective calls.
struct call_log {
    std::uint64_t count = 0;                  ///< so far
    std::uint64_t history = 0;                ///< hash of all of them: a mismatch that a call misses the next one finds
    call_record recent[call_record::kept];    ///< the latest, by number modulo `kept`
    refused_calls refused;                    ///< by this rank
    bool has_refused = false;                 ///< the others know of one, and not that this rank has gone on
    const composite_call* part_of = nullptr;  ///< of which the calls are parts that the rank makes now, or null

    call_record& of(std::uint64_t number) { return recent[number % call_record::kept]; }
    const char* name_of_call(collective what) const {
        return part_of != nullptr ? part_of->name : traits_of(what).name;
    }
};

/// Calls in memory that expose buffers, numbered.
struct direct_calls {
    std::uint64_t count = 0;
    std::uint64_t completed_by_all = 0;  ///< a lower bound, refreshed when it does not suffice
    std::uint32_t finished = 0;          ///< a bit for each from this rank's `completed` on that is over
};

/// Calls by the eager path, numbered.
struct eager_calls {
    std::uint64_t count = 0;
    std::uint64_t last_full = 0;   ///< 1 + the latest of them in which every rank heard from every rank
    std::uint64_t by_all = 0;      ///< how many all ranks have made: a lower bound, refreshed when it does not suffice
    std::uint64_t may_sample = 0;  ///< calls that may tell the distance of the cores (execute/distance.hpp)
    int near_votes = 0;            ///< rank 0: samples of late that say near, less those that say far
};

/// Messages to or from one rank.
struct message_count {
    std::uint64_t begun = 0, over = 0;
};
struct message_counts {
    list<message_count> sent, received;  ///< by rank; empty before the first one
    int next_source = 0;                 ///< where the search for a sender begins, for recv_any
};

/// What a rank shows of itself to other programs, which read it while the rank goes on (status/): a place in the record
/// that its process publishes, or ordinary memory where it cannot. The rank alone writes it, by plain stores, since
/// each call does. Whatever changes here changes status::format, too (status/detail/record.hpp).
struct alignas(line) rank_status {
    enum shares : std::uint32_t { memory_of_threads, memory_of_processes, no_memory };
    std::atomic<std::uint64_t> shown;     ///< which use of this place it is, from 1; 0: nothing is to be read
    std::atomic<std::uint64_t> calls;     ///< collectives begun
    std::atomic<std::uint64_t> messages;  ///< likewise
    std::atomic<std::uint64_t> latest;    ///< of all these, as long_wait::call_in says
    std::atomic<std::uint64_t> bytes;     ///< of the buffers of all of them
    /// 1: a thread is in a call with this group, which others see where a wait lets them in.
    std::atomic<std::uint8_t> in_call;
    std::atomic<std::uint64_t> waits;       ///< a long wait that it is in now, as long_wait says; 0: none
    std::atomic<std::uint64_t> waits_from;  ///< in milliseconds of the monotonic clock
    std::atomic<std::uint64_t> epoch;       ///< of an elastic group; 0: another one
    std::atomic<std::uint64_t> errors;      ///< that it has had; 0 also while the text changes
    shared_text<4> label;
    shared_text<40> error;
    // Constant while `shown` is.
    std::uint64_t group;
    std::int32_t rank, size;
    shares by;
    std::uint64_t uses;  ///< of this place, so far

    [[gnu::cold]] void show(std::uint64_t number, int own, int all, shares how, const char* name) {
        group = number, rank = own, size = all, by = how;
        label.store(name);
        shown.store(++uses, std::memory_order_release);
    }
    /// One more of `calls`, or of `messages`.
    void begin(std::atomic<std::uint64_t>& of_kind, std::uint64_t what, std::uint64_t n) {
        of_kind.store(of_kind.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        latest.store(what, std::memory_order_relaxed);
        bytes.store(bytes.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
    [[gnu::cold]] void add_error(const char* text) {
        const std::uint64_t before = errors.load(std::memory_order_relaxed);
        errors.store(0, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_release);  // a reader that sees new words sees the 0, too
        error.store(text);
        errors.store(before + 1, std::memory_order_release);
    }
};

/// A place for the rank of a new group; what was there is gone.
using status_place = std::unique_ptr<rank_status, void (*)(rank_status*)>;
status_place take_status();

struct call;
struct rank_context;

/// A part of a call; times as seconds_now says them.
struct traced_part {
    enum kind : unsigned char { wait, copy, fold };
    double begin = 0, end = 0;
    std::size_t bytes = 0;
    int peer = none, round = none;
    kind what = wait;
};
/// How a call went that is over.
struct traced_call {
    const char* name = "";  ///< the collective, send or recv
    std::string_view schedule = {};
    int peer = none;           ///< of a message; none: a collective
    std::uint64_t number = 0;  ///< of a collective
    double begin = 0;
    bool started = false, failed = false;
};

/// What a rank tells of its calls, where COLLS_TRACE or COLLS_DEBUG=trace asks for it: see files/.
class tracer {
public:
    virtual ~tracer() = default;
    /// A call begins: returns when.
    virtual double begin() = 0;
    virtual void add(const traced_part& p) = 0;
    virtual void end(const call& c, const traced_call& how) = 0;
};
/// That of a new group; null: nothing is traced. (Groups bring it with them, as their engine.)
std::unique_ptr<tracer> make_tracer(const rank_context& self);

}  // namespace colls::inline v1::detail
