// One operation on one rank, as calls begin and end it: a collective that an executor runs, or a message; and how its
// call is described to errors.
// IWYU pragma: private, include <colls/operation.hpp>
#pragma once

#include <colls/detail/group/backoff.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/request/request.hpp>
#include <colls/detail/support/hash.hpp>

#include <cstddef>
#include <memory>
#include <optional>

namespace colls::inline v1::detail {

/// Appends the blocks that this rank and its peer exchange in the round, the first few of them by number.
[[gnu::cold]] inline void say_blocks(error_text& text, const wait_site& at) {
    const any_schedule& s = *static_cast<const any_schedule*>(at.blocks_of);
    if (at.round >= s.rounds(at.size)) return;  // after the last round a rank waits for others to finish: no blocks
    const auto role = [&](int rank) { return (rank - at.shift + 2 * at.size) % at.size; };
    constexpr int most = 4;
    int found[most + 1], count = 0;
    for (int port = 0; port < s.ports(at.size); ++port) {
        const step does = s.at(role(at.rank), at.size, at.round, port);
        for (const auto& [peer, blocks] : {send_part{does.recv.peer, does.recv.blocks}, does.send}) {
            if (peer != role(at.peer)) continue;
            for (int i = 0; i < blocks.size() && count <= most; ++i) {
                const int slot = blocks[i], block = slot < s.blocks(at.size) ? s.home(at.size, slot) : none;
                if (block != none && (count == 0 || found[count - 1] != block)) found[count++] = block;
            }
        }
    }
    for (int i = 0; i < count; ++i) {
        text << (i > 0 ? ", " : count > 1 ? ", blocks " : ", block ");
        i == most ? text << "..." : text << found[i];
    }
}

/// Counts a new call, remembers it for errors about calls that do not match, and shows it. Returns its fingerprint, of
/// `hash` and all calls before. The highest four bits are the collective, so that an error can name both sides'.
inline std::uint64_t record_call(
    rank_context& self, const call& c, std::uint64_t hash, std::string_view schedule, bool own_lengths) {
    call_log& log = self.log;
    call_record& r = log.recent[log.count++ % call_record::kept];
    r.name = nullptr;
    r.what = c.what;
    r.count = c.count;
    r.type = c.type;
    r.op = c.op_type;
    r.root = c.root;
    r.own_lengths = own_lengths;
    if (const composite_call* const whole = log.part_of) {
        static_cast<named_call&>(r) = static_cast<const named_call&>(*whole);
        hash = hash_mix(hash, whole->hash);
    }
    r.fingerprint = log.history = static_cast<std::uint64_t>(r.what) << 60 | hash_mix(hash, log.history) >> 4;
    r.schedule = schedule;
    r.non_blocking = c.non_blocking;
    r.reproducible = c.reproducible;
    // Off the root of a gather or scatter a rank may know its own block only.
    self.status->begin(self.status->calls, log.history >> 60, (c.count > 0 ? c.count : c.own_count) * c.element);
    return log.history;
}

/// How many operations every rank has completed.
inline std::uint64_t count_completed_by_all(rank_context& self) {
    std::uint64_t least = ~std::uint64_t{0};
    for (int r = 0; r < self.size; ++r)
        if (const std::uint64_t k = self.memory.state(r).completed.load(std::memory_order_acquire); k < least)
            least = k;
    return self.direct.completed_by_all = least;
}
/// Has every rank finished the operation that used the place of operation `sequence` before?
inline bool has_free_place(rank_context& self, std::uint64_t sequence) {
    return sequence < window || self.direct.completed_by_all + window > sequence ||
           count_completed_by_all(self) + window > sequence;
}
/// The number of a new operation in shared memory, once its place is free.
inline std::uint64_t take_place(rank_context& self, wait_site& site) {
    const std::uint64_t sequence = self.direct.count++;
    for (int r = has_free_place(self, sequence) ? self.size : 0; r < self.size; ++r) {
        backoff wait(self);
        site.peer = r;
        while (self.memory.state(r).completed.load(std::memory_order_acquire) + window <= sequence) wait(site);
    }
    return sequence;
}
/// This rank has done all its loads from the operation's slots.
inline void complete_operation(rank_context& self, std::uint64_t sequence) {
    std::atomic<std::uint64_t>& over = self.memory.state(self.rank).completed;
    std::uint64_t completed = over.load(std::memory_order_relaxed);
    self.direct.finished |= std::uint32_t{1} << (sequence - completed);
    for (; self.direct.finished & 1; self.direct.finished >>= 1) ++completed;
    over.store(completed, std::memory_order_release);
}
/// Fails where a block does not have the length that its receiver expects. This rank is one of the two.
inline void expect_length(
    rank_context& self, wait_site& site, int from, std::size_t sent, int to, std::size_t expected) {
    if (sent == expected) [[likely]]
        return;
    site.peer = to == self.rank ? from : to;
    error_text text;
    if (from != self.rank) text << "rank " << from << " ";
    fail(self, errc::mismatch, site,
        text << "sends " << sent << " elements to rank " << to << ", which expects " << expected);
}

/// Bytes rounded up to whole cache lines: regions of scratch memory begin at one.
constexpr std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Every rank of a group computes the same layout; a rank that may not know the lengths of others' units has one chunk.
struct chunk_layout {
    static constexpr std::size_t whole_unit = ~std::size_t{0} / 2;
    static constexpr std::size_t any_number = ~std::size_t{0};

    std::size_t count = whole_unit;  ///< elements of a unit in one chunk
    std::size_t chunks = 1;
    std::size_t slot_bytes = 0;  ///< of a scratch slot, which holds a chunk of a unit, or a whole one

    /// Units of `longest` elements or fewer in chunks of `bytes` bytes, but at least one element each, and in no more
    /// chunks than `most`. Leaves slot_bytes as it is.
    constexpr void cut(std::size_t longest, std::size_t element, std::size_t bytes, std::size_t most) {
        count = whole_unit;
        chunks = 1;
        if (longest == 0) return;
        if (longest * element <= bytes && longest <= most) {  // as most short calls are: without a division
            count = longest;
            return;
        }
        count = bytes / element > 0 ? bytes / element : 1;
        if (longest / most >= count) count = longest / most + 1;
        chunks = (longest + count - 1) / count;
    }
    /// One chunk, whatever the lengths of the units.
    constexpr void keep_whole() {
        count = whole_unit;
        chunks = 1;
    }
};

/// What a call's arguments point to and its caller may drop.
struct kept_arguments {
    std::shared_ptr<const void> op;  ///< a copy of the operator; null where it has no state
    list<std::size_t> in_offsets, out_offsets;
};

class operation_state : public pending {
public:
    /// For messages `kind` is set later.
    explicit operation_state(rank_context& self, bool collective = false)
        : pending(collective), kind(collective ? operation_kind::collective : operation_kind::send), self_(self) {}
    /// One that failed may have kept its scratch memory.
    ~operation_state() override {
        if (scratch_.at) self_.backend->give(scratch_.at, scratch_.bytes);
    }
    /// Its arguments are set, and what it does from here on it does in `advance`. It may wait for its turn.
    virtual void begin() = 0;

    operation_kind kind;
    call arguments;
    kept_arguments kept;
    std::string_view schedule;             ///< its name, for texts
    std::uint64_t number = 0;              ///< among the calls of the group
    double traced_from = 0;                ///< when it began, where calls are traced; else 0
    bool is_prepared = false;              ///< it runs one prepared call alone
    std::optional<backoff> between_tests;  ///< for `test`, which asks again and again instead of waiting
    position tested;                       ///< where it was when it was last tested
    std::shared_ptr<prepared> of;          ///< the persistent call that it belongs to, or null
    std::shared_ptr<rank_context> group;   ///< while its caller holds it: an operation holds its group

protected:
    /// Gives its scratch memory back to the rank. That of a prepared call stays with it: how much is in use at once
    /// depends on time, so a later run could find none.
    void give_scratch() {
        if (is_prepared) return;
        if (scratch_.at) self_.scratch.pieces.push_back(scratch_);
        scratch_ = {};
    }
    std::byte* take_scratch(std::size_t bytes) {
        if (is_prepared && scratch_.bytes >= bytes) return scratch_.at;
        if (scratch_.at) self_.scratch.pieces.push_back(scratch_);  // an operation that failed may have kept its own
        scratch_ = {};
        scratch_ = self_.scratch.take(*self_.backend, bytes);
        return scratch_.at;
    }
    rank_context& self_;
    memory_piece scratch_{};
};

/// Waits for an operation, within guarded().
inline void run_until_done(rank_context& self, operation_state& o) {
    const struct waiting {
        rank_context& self;
        ~waiting() { self.operations.current = nullptr; }
    } here{self};
    self.operations.current = &o;
    for (;;) {
        // Where it has moved another wait begins: a long call is no reason to sleep.
        backoff wait(self);
        for (const position before = o.now; o.now == before; wait(o.site)) {
            if (o.done || o.advance()) return;
            // Between any two looks at it: the peer may wait for another of them, as where two ranks exchange messages,
            // and would wait for as long as this rank spins. By messages, to advance one is to advance the connections
            // of all.
            if (!self.by_messages) advance_all(self, &o);
        }
    }
}
/// Waits for an operation; what it throws has broken the group.
inline void wait_until_done(rank_context& self, operation_state& o) {
    guarded(self, o.site.what, [&] { run_until_done(self, o); });
}

}  // namespace colls::inline v1::detail
