// The executor for transports that can load from and store to a peer's memory.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// It runs one rank's program of an execution plan, chunk outside and round inside, so that a chunk stays in the cache
// between its rounds. It is not a template: compiled once, it serves every schedule, type and operator.
#pragma once

#include <colls/detail/execute/copy_policy.hpp>
#include <colls/detail/execute/distance.hpp>
#include <colls/detail/execute/executor.hpp>
#include <colls/detail/group/backoff.hpp>
#include <colls/detail/plan/plan_cache.hpp>
#include <colls/detail/reduce/fold.hpp>
#include <colls/detail/request/request.hpp>
#include <colls/detail/support/copy.hpp>
#include <colls/detail/support/process_copy.hpp>

#include <cstring>

namespace colls::inline v1::detail {

/// How far an operation that has begun has come on this rank:
///     begin   -> learning_count, off the root of a gather or scatter
///     enter   -> agreeing, where only others may have buffers out of reach; else -> running
///     agree   agreeing -> running
enum class direct_phase : unsigned char { learning_count, agreeing, running };

/// One rank's buffers, as this rank reaches them.
struct rank_buffers {
    std::uint64_t stamp = 0;  ///< sequence + 1 of the operation for which they were read
    /// All ranks can load from and store to `in`, `out`. Else they are addresses in the rank's own process.
    bool in_reached = false, out_reached = false;
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::byte* scratch = nullptr;
    const std::size_t* in_offsets = nullptr;
    const std::size_t* out_offsets = nullptr;
    std::size_t count = 0;
};

/// Asks for the ring's pages at once, since the first calls would fault on every one of them. Where many ranks share a
/// core the ring is small: there the pages of all ranks count. False: the group has not so much memory.
[[gnu::cold]] inline bool make_staging_ring(rank_context& self) {
    const bool many = sleep_at_once(self.size, self.backend->figures().cores);
    const std::size_t bytes = many ? store_policy::staging_ring_of_many : store_policy::staging_ring;
    try {
        self.scratch.ring.memory = {self.backend->take(bytes), bytes, true};
    } catch (const std::bad_alloc&) {
        return false;
    }
    self.scratch.ring.free_to = bytes;
    self.backend->populate(self.scratch.ring.memory.at, bytes);
    return true;
}
/// Memory for operation `sequence` to stage in: each time another part of the ring, since a line that is written again
/// while a peer's cache still has it is as slow as one that comes from there. Null: peers have not read enough of what
/// is there, or it is too small.
inline std::byte* take_staging(rank_context& self, std::uint64_t sequence, std::size_t bytes) {
    staging_ring& ring = self.scratch.ring;
    if (ring.memory.at == nullptr && !make_staging_ring(self)) return nullptr;
    const std::size_t size = ring.memory.bytes, to_end = size - (ring.next & (size - 1));
    if (bytes > size / 2) return nullptr;
    const std::uint64_t at = ring.next + (bytes > to_end ? to_end : 0);
    if (at + bytes > ring.free_to) {
        const std::uint64_t completed = count_completed_by_all(self);
        std::uint64_t oldest = at;
        for (const staging_ring::use& u : ring.uses)
            if (u.operation > completed && u.begin < oldest) oldest = u.begin;
        ring.free_to = oldest + size;
        if (at + bytes > ring.free_to) return nullptr;
    }
    ring.next = at + padded(bytes);
    ring.uses[sequence % window] = {sequence + 1, at};
    return ring.memory.at + (at & (size - 1));
}

class direct_executor final : public executor {
public:
    explicit direct_executor(rank_context& self) : executor(self) {}

    void begin() override {
        activate(self_);  // now, while no stores are pending that it would have to wait for
        const auto n = static_cast<std::size_t>(self_.size);
        sign_call();
        buffers_.resize(n);
        operands_.reserve(n + 1);
        now.chunk = now.at = exit_at_ = 0;
        done = false;
        bounce_output_ = nullptr;
        sequence = take_place(self_, site);
        choose_copying();
        phase_ = direct_phase::learning_count;
        if (!arguments.count_from_root) enter();
    }
    bool advance() override {
        activate(self_);
        if (phase_ != direct_phase::running) {
            if (phase_ == direct_phase::learning_count && !learn_count()) return false;
            if (phase_ == direct_phase::agreeing && !agree()) return false;
        }
        const auto &reuse_waits = program_->reuse_waits, &body = program_->body;
        for (; now.chunk < layout_.chunks; ++now.chunk, now.at = 0) {
            // A rank that has nothing to wait for would go on for long in buffers of ranks that have left.
            if (now.chunk > 0 && now.at == 0) throw_if_broken(self_, &site, std::memory_order_relaxed);
            for (; now.at < reuse_waits.size(); ++now.at)
                if (now.chunk >= scratch_chunks_ && !try_wait(reuse_waits[now.at], now.chunk - scratch_chunks_))
                    return false;
            for (; now.at < reuse_waits.size() + body.size(); ++now.at) {
                const instruction& i = body[now.at - reuse_waits.size()];
                switch (i.op) {
                    case opcode::wait:
                        if ((now.chunk == 0 || i.value != 0) && !try_wait(i, now.chunk)) return false;
                        break;
                    case opcode::publish:
                        line_of(self_.rank)
                            .progress.store(progress_word(now.chunk, i.value), std::memory_order_release);
                        wake_sleepers(self_);
                        break;
                    case opcode::copy:
                        if (!copy(i)) return false;
                        break;
                    case opcode::fold:
                        if (!fold(i)) return false;
                        break;
                    default:  // the message executor's
                        break;
                }
            }
        }
        for (; !leaves_early_ && exit_at_ < program_->exit.size(); ++exit_at_)
            if (!try_wait(program_->exit[exit_at_], layout_.chunks - 1)) return false;
        finish();
        return true;
    }
    /// From the rank's line in shared memory, if it is in this operation.
    [[gnu::cold]] void describe(error_text& text, int rank) const override {
        const std::uint64_t word =
            self_.memory.operation(sequence % window, rank).progress.load(std::memory_order_acquire);
        if (word >> 24 != sequence + 1 || !plan_ || plan_->values() == 0) return;  // it has not entered
        const auto value = static_cast<std::size_t>(word & 0xffffff),
                   values = static_cast<std::size_t>(plan_->values());
        put_brief(
            text << "; in call " << static_cast<std::size_t>(site.call) << " (" << site.what << ", ", site.schedule)
            << "), ";
        if (value == 0)
            text << "which it has entered";
        else
            text << "chunk " << (value - 1) / values << " of " << layout_.chunks << ", has done round "
                 << (value - 1) % values / 2;
    }

private:
    /// Decides whether copies are pulled or pushed, from what all ranks know. An all_reduce pushes its result.
    void choose_copying() {
        const call& c = arguments;
        near_ = distance::is_near(self_, sequence);
        adapts_ = self_.size > 1 && !is_unsized(c);
        if (!adapts_) return;
        const std::size_t whole = c.count * c.element;
        copying best = plan_->copies;
        if (c.what == collective::broadcast)
            best = near_ || self_.size > 2 ? copying::pulled : copying::pushed;
        else if (c.what == collective::all_gather || c.what == collective::all_to_all)
            best = whole < (self_.crowded ? store_policy::pull_crowded_below
                               : near_    ? store_policy::pull_below
                                          : 0)
                       ? copying::pulled
                       : copying::pushed;
        if (best != plan_->copies) follow(copied_otherwise(*plan_));
    }
    /// How this rank enters. Others have buffers out of reach only where a group does not reach all memory.
    enum class entry {
        agreed,   ///< all go by the plan that the operation begins with
        open,     ///< its buffers are within reach, and others' perhaps not: all agree on a plan once all have entered
        bounced,  ///< its buffers are out of reach: they are copied, to and from memory within reach
        decided   ///< its buffers are out of reach: so it knows already which plan all will agree on
    };
    struct entry_copies {
        std::size_t input = 0, output = 0, table = 0;  ///< bytes of each; there are two tables
    };
    entry entry_of(const rank_buffers& own) const {
        if (own.in_reached && own.out_reached) return is_agreed() ? entry::agreed : entry::open;
        // Where each rank knows its own counts only.
        if (arguments.ragged && (!copies_now() || ragged_bytes(buffer_kind::input) + ragged_bytes(buffer_kind::output) <
                                                      single_copy_policy::from))
            return entry::bounced;
        return entry::decided;
    }
    /// What this rank copies to scratch memory as it enters: the input of an all_to_all in place; buffers that are
    /// bounced; where each rank knows its own counts only, the tables of offsets.
    entry_copies copies_of(entry how) const {
        entry_copies copies{.input = copied_input()};
        if (how == entry::bounced)
            copies.input = ragged_bytes(buffer_kind::input), copies.output = ragged_bytes(buffer_kind::output);
        if (arguments.ragged && !self_.access.is_whole())
            copies.table = (static_cast<std::size_t>(plan_->blocks) + 1) * sizeof(std::size_t);
        return copies;
    }
    /// `staged`: peers read it after this operation is over.
    std::byte* take_memory(std::size_t bytes, bool staged) {
        std::byte* memory = staged ? take_staging(self_, sequence, bytes) : nullptr;
        leaves_early_ = memory != nullptr;
        if (leaves_early_) return memory;
        if (bytes > 0) memory = take_scratch(bytes);
        if (staged && !scratch_.populated) {
            self_.backend->populate(scratch_.at, scratch_.bytes);
            scratch_.populated = true;
        }
        return memory;
    }
    /// Makes these copies, which the other ranks are told of in place of the buffers.
    void copy_buffers(rank_buffers& own, const entry_copies& copies, std::byte* to) {
        if (copies.input > 0) {
            own.in = static_cast<const std::byte*>(std::memcpy(to, own.in, copies.input));
            own.in_reached = true;
            to += padded(copies.input);
        }
        if (copies.output > 0) {
            own.out = bounce_output_ = to;
            own.out_reached = true;
            to += padded(copies.output);
        }
        if (copies.table == 0) return;
        for (const std::size_t** const table : {&own.in_offsets, &own.out_offsets}) {
            if (*table) *table = static_cast<const std::size_t*>(std::memcpy(to, *table, copies.table));
            to += copies.table;
        }
    }
    /// Tells the other ranks where this rank's buffers and scratch memory are.
    void enter() {
        const call& c = arguments;
        rank_buffers& own = buffers_[self_.rank];
        own = {sequence + 1, is_within_reach(buffer_kind::input), is_within_reach(buffer_kind::output), c.in, c.out,
            nullptr, c.in_offsets, c.out_offsets, c.ragged ? c.own_count : c.count};
        const entry how = entry_of(own);
        const bool agreed = is_agreed();
        const entry_copies copies = copies_of(how);
        // Scratch memory begins with the program's slots: as many as any plan needs that the ranks may follow.
        std::size_t slots = 0;
        const execution_plan &direct = *plan_, &other = agreed ? direct : other_plan(), *laid_out = nullptr;
        const auto make_room = [&](const execution_plan& plan) {
            follow(plan);
            if (program_->scratch == 0) return;
            lay_out();
            laid_out = &plan;
            if (scratch_bytes() > slots) slots = scratch_bytes();
        };
        if (!agreed) make_room(other);
        if (how != entry::decided) make_room(direct);
        // Where buffers are out of reach, peers read only what is staged.
        const std::size_t copied = padded(copies.input) + padded(copies.output) + 2 * copies.table;
        own.scratch =
            take_memory(slots + copied, how == entry::decided && slots > 0 && plan_->within == reach::scratch);
        copy_buffers(own, copies, own.scratch + slots);
        operation_line& published = line_of(self_.rank);
        published.fingerprint = fingerprint_;
        published.in = to_be_published(own.in, own.in_reached);
        published.out = to_be_published(own.out, own.out_reached);
        published.scratch = self_.access.to_offset(own.scratch);
        published.in_offsets = self_.access.to_offset(own.in_offsets);
        published.out_offsets = self_.access.to_offset(own.out_offsets);
        published.count = own.count;
        const bool runs = agreed || how == entry::decided;
        phase_ = runs ? direct_phase::running : direct_phase::agreeing;
        published.progress.store(progress_word(0, 0), std::memory_order_release);
        wake_sleepers(self_);
        if (runs && laid_out != plan_) lay_out();  // now, while the entry is on its way
    }
    /// Off the root of a gather or scatter: reads the whole count once the root has entered, and then enters.
    bool learn_count() {
        const int root = arguments.root;
        site.peer = root;
        const rank_buffers* b = buffers_of(root);
        if (!b) return false;
        take_count_of_root(b->count);
        enter();
        return true;
    }
    /// Once all ranks have entered: if any of them has buffers that others cannot reach, all follow the other plan.
    bool agree() {
        bool reached = true;
        for (int r = 0; r < self_.size; ++r) {
            const rank_buffers* b = buffers_of(r);
            site.peer = r;
            if (!b) return false;
            reached = reached && b->in_reached && b->out_reached;
        }
        follow(reached ? *plan_ : other_plan());
        lay_out();
        phase_ = direct_phase::running;
        return true;
    }
    /// The plan to take where not all buffers are within reach.
    const execution_plan& other_plan() const {
        return choice_.staged ? *choice_.staged : out_of_reach_plan(*plan_, single_copy_pays());
    }
    /// For a schedule that is given: `automatic` predicts.
    bool single_copy_pays() const {
        const call& c = arguments;
        return copies_now() && !traits_of(c.what).reduces() &&
               (c.ragged || c.count * c.element / static_cast<std::size_t>(plan_->blocks) >= single_copy_policy::from);
    }
    bool copies_now() const { return copies_at(self_, near_); }
    /// How the operation runs by its plan: in which chunks, with which scratch slots and stores.
    void lay_out() {
        const call& c = arguments;
        const execution_plan& plan = *plan_;
        if (site.blocks_of != &plan.schedule) set_wait_site();
        const std::size_t longest = longest_unit(), whole = c.count * c.element;
        const bool is_staged = plan.within == reach::scratch;
        stream_pushes_ = streams_from(whole);
        stream_own_ = whole >= store_policy::stream_own_from;
        stream_staged_ = is_staged && (streams_staged(self_, near_) || whole >= store_policy::stream_staged_from);
        const bool overlaps = is_staged && c.what == collective::broadcast && plan.blocks == 1 && !self_.crowded;
        const std::size_t staged_chunk = overlaps ? store_policy::staged_broadcast_chunk : store_policy::staged_chunk,
                          staged_chunks =
                              overlaps ? store_policy::staged_broadcast_chunks : store_policy::staged_chunks;
        if (c.ragged)
            layout_.keep_whole();
        else
            // A progress word has 24 bits for the chunk and the value.
            layout_.cut(longest, c.element,
                is_staged ? staged_chunk / static_cast<std::size_t>(plan.blocks * plan.fewest_parts)
                : plan.within == reach::processes ? single_copy_policy::chunk
                                                  : choice_.chunk_bytes,
                ((std::size_t{1} << 24) - 1) / static_cast<std::size_t>(plan.values() + 1));
        // Staged, a scratch slot holds a chunk, and a few chunks' slots are used in turn; else it holds all of a unit.
        scratch_chunks_ = !is_staged ? 0 : layout_.chunks < staged_chunks ? layout_.chunks : staged_chunks;
        layout_.slot_bytes = padded((is_staged && layout_.count < longest ? layout_.count : longest) * c.element);
    }
    /// Are pushes of a buffer of this many bytes streamed?
    bool streams_from(std::size_t whole) const {
        if (arguments.what == collective::all_reduce && near_ && !self_.crowded &&
            whole < store_policy::stream_result_below)
            return true;
        return whole >= (!adapts_ || (self_.crowded && near_) ? store_policy::stream_crowded_from
                            : near_                           ? store_policy::stream_near_from
                                                              : store_policy::stream_far_from);
    }
    /// Can all ranks reach this rank's input, output? A buffer that is empty they need not reach.
    bool is_within_reach(buffer_kind where) const {
        const call& c = arguments;
        if (self_.access.is_whole() || self_.size == 1) return true;
        const std::byte* const p = where == buffer_kind::input ? c.in : c.out;
        return p == nullptr || (c.ragged ? ragged_bytes(where) : c.count * c.element) == 0 || self_.access.has(p, 1);
    }
    /// Is it known beforehand that all ranks go by the plan that the operation begins with?
    bool is_agreed() const { return self_.access.is_whole() || self_.size == 1 || (arguments.ragged && !copies_now()); }
    /// `p`, as this rank tells it to the others.
    std::uintptr_t to_be_published(const std::byte* p, bool reached) const {
        return reached ? self_.access.to_offset(p) : out_of_reach | reinterpret_cast<std::uintptr_t>(p);
    }
    std::byte* published_address(std::uintptr_t p) const {
        return is_out_of_reach(p) ? reinterpret_cast<std::byte*>(p ^ out_of_reach) : self_.access.from_offset(p);
    }
    std::size_t scratch_bytes() const {
        return static_cast<std::size_t>(program_->scratch) * (scratch_chunks_ > 0 ? scratch_chunks_ : 1) *
               layout_.slot_bytes;
    }
    /// Bytes of this rank's buffer, where each rank knows its own counts only.
    std::size_t ragged_bytes(buffer_kind where) const {
        const call& c = arguments;
        const std::size_t* offsets = where == buffer_kind::input ? c.in_offsets : c.out_offsets;
        const bool own = c.what == (where == buffer_kind::input ? collective::gather : collective::scatter);
        return (offsets ? offsets[plan_->blocks] : own ? c.own_count : 0) * c.element;
    }
    operation_line& line_of(int rank) const { return self_.memory.operation(sequence % window, rank); }
    /// The progress word of a rank that has come to `value` in the chunk; see dependencies.hpp for the values.
    std::uint64_t progress_word(std::size_t chunk, int value) const {
        // Zeroed memory is no entry: hence + 1.
        return (sequence + 1) << 24 |
               (value == 0 ? 0 : chunk * static_cast<std::size_t>(plan_->values()) + static_cast<std::size_t>(value));
    }
    /// Where a unit lies in a rank's input or output, in elements.
    extent unit_in(const rank_buffers& b, buffer_kind where, int unit) const {
        const call& c = arguments;  // its tables are those of all ranks, unless they are ragged
        return unit_at(where, unit,
            where == buffer_kind::input ? (c.ragged ? b.in_offsets : c.in_offsets)
                                        : (c.ragged ? b.out_offsets : c.out_offsets),
            c.ragged, b.count);
    }
    /// A rank's buffers, or null while it has not entered.
    const rank_buffers* buffers_of(int rank) {
        rank_buffers& b = buffers_[rank];
        if (b.stamp == sequence + 1) return &b;
        const operation_line& l = line_of(rank);
        if (l.progress.load(std::memory_order_acquire) < progress_word(0, 0)) return nullptr;
        if (l.fingerprint != fingerprint_) fail_mismatch(self_, site, rank, l.fingerprint);
        b = {sequence + 1, !is_out_of_reach(l.in), !is_out_of_reach(l.out), published_address(l.in),
            published_address(l.out), self_.access.from_offset(l.scratch),
            reinterpret_cast<const std::size_t*>(self_.access.from_offset(l.in_offsets)),
            reinterpret_cast<const std::size_t*>(self_.access.from_offset(l.out_offsets)), l.count};
        return &b;
    }
    /// Where the current chunk of an operand lies.
    const std::byte* address(const rank_buffers& b, const location& l) const {
        const std::size_t skip = now.chunk * layout_.count;
        if (l.where == buffer_kind::scratch)
            return b.scratch +
                   (scratch_chunks_ > 0
                           ? (static_cast<std::size_t>(l.index) * scratch_chunks_ + now.chunk % scratch_chunks_) *
                                 layout_.slot_bytes
                           : static_cast<std::size_t>(l.index) * layout_.slot_bytes + skip * arguments.element);
        const std::byte* base = l.where == buffer_kind::input ? b.in : b.out;
        return base + (unit_in(b, l.where, l.index).first + skip) * arguments.element;
    }
    /// Passes a wait if the peer has come to the instruction's value in that chunk; else false, and the operation waits
    /// for that peer. Acquire: what the peer stored before it published the value is visible after.
    bool try_wait(const instruction& i, std::size_t chunk) {
        const int peer = rank_of(i.peer);
        site.peer = peer;
        site.round = i.round;
        if (line_of(peer).progress.load(std::memory_order_acquire) < progress_word(chunk, i.value)) return false;
        return buffers_of(peer) != nullptr;
    }
    bool copy(const instruction& i) {
        const location& from = program_->operands[static_cast<std::size_t>(i.first)];
        const int to_rank = rank_of(i.to.rank), from_rank = rank_of(from.rank);
        const recorded_work recorder(*this, traced_part::copy, i, to_rank != self_.rank ? to_rank : from_rank);
        const rank_buffers *to = buffers_of(to_rank), *source = buffers_of(from_rank);
        if (!to || !source) {
            site.peer = to ? from_rank : to_rank;
            return false;
        }
        const call& c = arguments;
        const extent unit = unit_in(*source, from.where == buffer_kind::scratch ? buffer_kind::input : from.where,
            from.where == buffer_kind::scratch ? i.unit : from.index);
        if (c.ragged) {
            site.round = i.round;
            expect_length(self_, site, from_rank, unit.count, to_rank, unit_in(*to, i.to.where, i.to.index).count);
        }
        const std::size_t count = chunk_of(unit).count;
        if (count == 0 || (c.is_signed && source->in == nullptr)) return true;  // in a gather, it has been posted
        const std::byte* source_at = address(*source, from);
        auto* to_at = const_cast<std::byte*>(address(*to, i.to));
        const std::size_t bytes = moved_ = count * c.element;
        // Addresses in two processes may be equal.
        if (is_in_other_process(*source, from))
            pull(to_at, from_rank, source_at, bytes, i.round);
        else if (is_in_other_process(*to, i.to))
            push(to_rank, to_at, source_at, bytes, i.round);
        else if (source_at == to_at)
            return true;
        else if (i.pushes > 0 && stream_staged_)
            return copy_twice(i, to_at, source_at, bytes);
        else if (to_rank != self_.rank                ? streams_to(*to)
                 : i.to.where == buffer_kind::scratch ? stream_staged_
                                                      : stream_own_)
            stream_bytes(to_at, source_at, bytes);
        else
            copy_bytes(to_at, source_at, bytes);
        return true;
    }
    /// Copies what this rank keeps as well as stages to both places in one pass. (By plain stores two passes are
    /// faster.)
    bool copy_twice(const instruction& i, std::byte* staged, const std::byte* from, std::size_t bytes) {
        auto* const own = const_cast<std::byte*>(address(*buffers_of(self_.rank), (&i + 1)->to));
        for (std::size_t at = 0; at < bytes; at += store_policy::piece) {
            const std::size_t n = bytes - at < store_policy::piece ? bytes - at : store_policy::piece;
            stream_bytes_unfenced(staged + at, from + at, n);
            if (own != from) copy_bytes(own + at, from + at, n);
        }
        fence_stream();
        now.at += 1;
        return true;
    }
    bool fold(const instruction& i) {
        const recorded_work recorder(*this, traced_part::fold, i, none);
        const rank_buffers& own = *buffers_of(self_.rank);
        const location* sources = program_->operands.data() + i.first;
        const std::size_t count = chunk_of(unit_in(own, buffer_kind::input, i.unit)).count;
        if (count == 0) return true;
        moved_ = count * arguments.element;
        operands_.reserve(static_cast<std::size_t>(i.count));
        const int first = first_operand(i);
        for (int k = 0; k < i.count; ++k) {
            const location& from = sources[(k + first) % i.count];
            const int peer = rank_of(from.rank);
            const rank_buffers* b = buffers_of(peer);
            if (!b) {
                site.peer = peer;
                site.round = i.round;
                return false;
            }
            operands_.data()[k] = {address(*b, from)};
        }
        auto* to = const_cast<std::byte*>(address(own, i.to));
        if ((i.pushes > 0 || (stream_own_ && i.finish)) && fold_in_pieces(i, to, count)) return true;
        arguments.op->fold(to, operands_.data(), i.count, count, arguments.op_value);
        finish_fold(i, to, count);
        return true;
    }
    // Copies from and to the memory of other processes, which the kernel makes: one copy where staging takes two.
    bool is_in_other_process(const rank_buffers& b, const location& l) const {
        return rank_of(l.rank) != self_.rank &&
               !(l.where == buffer_kind::scratch || (l.where == buffer_kind::input ? b.in_reached : b.out_reached));
    }
    void pull(std::byte* to, int peer, const std::byte* from, std::size_t bytes, int round) {
        const auto process = static_cast<pid_t>(self_.memory.state(peer).process.load(std::memory_order_relaxed));
        if (const int why = copy_from_process(process, to, from, bytes)) single_copy_failed(peer, round, why);
    }
    void push(int peer, std::byte* to, const std::byte* from, std::size_t bytes, int round) {
        const auto process = static_cast<pid_t>(self_.memory.state(peer).process.load(std::memory_order_relaxed));
        site.peer = peer;
        site.round = round;
        // This rank may have been stopped, and the peer may use that memory for something else by now.
        confirm(self_, site);
        if (const int why = copy_to_process(process, to, from, bytes)) single_copy_failed(peer, round, why);
    }
    /// A peer that has died is reported as elsewhere, once it is known to be dead.
    [[gnu::cold]] void single_copy_failed(int peer, int round, int why) {
        site.peer = peer;
        site.round = round;
        for (const double until = seconds_now() + 0.1; why != EPERM && seconds_now() < until; sched_yield()) {
            self_.backend->look(self_, nullptr, 0);
            throw_if_broken(self_, &site, std::memory_order_relaxed);  // throw_poison reads the report
        }
        fail(self_, errc::peer_failed, site,
            error_text() << "cannot copy from or to the memory of its process: " << std::string_view(std::strerror(why))
                         << "; with COLLS_SINGLE_COPY=0 data go through shared memory instead");
    }
    /// Folds, and copies the result to its targets while it is in the nearest cache; stores this rank's own result past
    /// the caches where that is best. False where that cannot be done, for instance since a target has not entered yet:
    /// then the fold and the copies are done one after the other.
    bool fold_in_pieces(const instruction& i, std::byte* to, std::size_t count) {
        const call& c = arguments;
        constexpr int most = 8;
        if (i.count > most || i.pushes > most) return false;
        std::byte* targets[most];
        bool streamed[most];
        const instruction* pushed = &i + 1;
        for (int j = 0; j < i.pushes; ++j) {
            const rank_buffers* b = buffers_of(rank_of(pushed[j].to.rank));
            if (!b) return false;
            targets[j] = const_cast<std::byte*>(address(*b, pushed[j].to));
            streamed[j] = plan_->within == reach::scratch ? stream_staged_ : streams_to(*b);
        }
        // In pieces, a rank's own result that is streamed is folded into a buffer in the nearest cache first.
        alignas(64) std::byte near[store_policy::piece];
        bool stream_own = stream_own_ && i.finish;  // a partial result is not: peers read it from this core's cache
        for (int k = 0; k < i.count; ++k) stream_own = stream_own && operands_.data()[k].data != to;
        // Stores past the caches go well between loads where what is loaded comes from a cache or from far cores; plain
        // ones of many bytes between far cores do not.
        const std::size_t whole = c.count * c.element;
        const bool interleaves =
            i.pushes == 0 || (streamed[0] ? stream_own || !near_ || whole < store_policy::stream_result_below
                                          : !stream_own && (near_ || whole < store_policy::interleave_far_below));
        if (i.pushes == 0 && !stream_own) return false;
        if (i.count == 2 && i.pushes <= 1 && c.op->fold_twice && !(i.finish && c.op->finish) && interleaves &&
            c.op->fold_twice(to, i.pushes == 0 ? to : targets[0],
                i.pushes == 0 ? past_caches::alone
                : stream_own  ? past_caches::both
                : streamed[0] ? past_caches::second
                              : past_caches::none,
                operands_.data(), count, c.op_value)) {
            fence_stream();
            now.at += static_cast<std::size_t>(i.pushes);
            return true;
        }
        std::size_t piece = store_policy::piece / c.element;
        if (piece == 0) {
            if (i.pushes == 0) return false;
            piece = 1, stream_own = false;
        }
        operand x[most];
        for (std::size_t at = 0; at < count; at += piece) {
            const std::size_t n = count - at < piece ? count - at : piece, skip = at * c.element, bytes = n * c.element;
            for (int k = 0; k < i.count; ++k) x[k] = {static_cast<const std::byte*>(operands_.data()[k].data) + skip};
            std::byte* const made = stream_own ? near : to + skip;
            c.op->fold(made, x, i.count, n, c.op_value);
            finish_fold(i, made, n);
            for (int j = 0; j < i.pushes; ++j)
                if (streamed[j])
                    stream_bytes_unfenced(targets[j] + skip, made, bytes);
                else
                    copy_bytes(targets[j] + skip, made, bytes);
            if (stream_own) stream_bytes_unfenced(to + skip, made, bytes);
        }
        fence_stream();
        now.at += static_cast<std::size_t>(i.pushes);
        return true;
    }
    /// Lines that a reduction in place has just pulled from the peer are in this core's cache: a plain store is best,
    /// except for more bytes than the caches hold, between far cores.
    bool streams_to(const rank_buffers& b) const {
        const call& c = arguments;
        if (!stream_pushes_ || !traits_of(c.what).reduces() || b.in != b.out) return stream_pushes_;
        return !near_ && c.count * c.element >= store_policy::stream_in_place_far_from;
    }
    void finish() {
        confirm(self_, site);
        // What rank 0 decides here the others are to see once they see that this operation is over.
        if (adapts_) distance::sample(self_, sequence, arguments.count * arguments.element, choice_.takes_sample);
        complete_operation(self_, sequence);
        wake_sleepers(self_);
        if (bounce_output_) copy_bytes(arguments.out, bounce_output_, ragged_bytes(buffer_kind::output));
        if (scratch_.at) give_scratch();
        // The next entry's line was read by peers `window` operations ago: so its stores do not wait for theirs to go.
        prefetch_to_store(&self_.memory.operation((sequence + 1) % window, self_.rank));
        done = true;
    }

    direct_phase phase_ = direct_phase::running;
    std::size_t exit_at_ = 0;         ///< the next of the program's exit waits
    bool leaves_early_ = false;       ///< without these waits: peers read what it has staged after it is over
    std::size_t scratch_chunks_ = 0;  ///< chunks whose scratch slots are apart; 0: all of them
    bool near_ = false;               ///< the ranks' cores are near each other, as decided for it (distance.hpp)
    bool adapts_ = false;             ///< whether it pushes or pulls, and by which stores, depends on that
    /// Which stores bypass the caches: pushes, this rank's own result, copies into scratch memory.
    bool stream_pushes_ = false, stream_own_ = false, stream_staged_ = false;
    /// A bounce buffer of the output, which other ranks reach: copied to the output at the end. Null: none is needed.
    std::byte* bounce_output_ = nullptr;
    list<rank_buffers> buffers_;  ///< of each rank
};

}  // namespace colls::inline v1::detail
