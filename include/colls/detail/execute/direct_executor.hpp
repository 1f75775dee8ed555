// The executor for transports that can load from and store to a peer's memory. It runs one rank's program of a plan,
// chunk outside and round inside, so that a chunk stays in cache between its rounds. It is not a template: compiled
// once, it serves every schedule, type and operator.
#pragma once

#include <colls/detail/group/backoff.hpp>
#include <colls/detail/plan/plan_cache.hpp>
#include <colls/detail/reduce/fold.hpp>
#include <colls/detail/request/call.hpp>
#include <colls/detail/support/copy.hpp>

#include <new>

namespace colls::inline v1::detail {

/// Where stores past the caches begin to pay, in bytes of the whole buffer. Measured: docs/performance.md.
struct store_policy {
    static constexpr std::size_t stream_from = std::size_t{2}
                                               << 20;  ///< pushes into memory that this rank has not just read
    static constexpr std::size_t stream_own_from = std::size_t{4} << 20;  ///< the own result too
    static constexpr std::size_t piece = 16 << 10;  ///< folded, and pushed, at a time: a third of a first-level cache
    static constexpr std::size_t stream_staged_from = std::size_t{32} << 20;  ///< copies for others to read
    static constexpr std::size_t staged_chunk = std::size_t{256}
                                                << 10;  ///< bytes of the whole buffer at a time, staged
    static constexpr std::size_t staged_chunks = 3;     ///< of them, in flight
};

/// A rank's buffers, as another rank sees them.
struct buffer_view {
    std::uint64_t stamp = 0;  // sequence + 1 of the operation that it was read for
    bool reached = false;     // `in` and `out` are where others can reach them
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::byte* scratch = nullptr;
    const std::size_t* in_offsets = nullptr;
    const std::size_t* out_offsets = nullptr;
    std::size_t count = 0;
};

struct message_state;

struct operation_state {
    operation_state() = default;
    operation_state(const operation_state&) = delete;
    ~operation_state();
    operation_kind kind = operation_kind::collective;
    call request;
    // What the call names and its caller may drop: the operator, the counts.
    std::shared_ptr<const void> keep;
    list<std::size_t> in_offsets, out_offsets;
    const execution_plan* steps = nullptr;
    const execution_plan* instead = nullptr;  // of `steps`, where not all buffers are within reach
    std::string_view name, instead_name;      // of their schedules, in texts
    const rank_program* mine = nullptr;
    std::uint64_t sequence = 0, number = 0, fingerprint = 0;
    std::size_t chunk_count = 0;  // elements of a unit per chunk
    std::size_t chunks = 1, chunk = 0, at = 0, exit_at = 0;
    std::size_t stride = 0;          // bytes of a scratch slot, of one chunk where they are a ring
    std::size_t scratch_chunks = 0;  // chunks whose scratch slots are apart; 0: all of them
    bool agreed = false;             // on whether all can reach all buffers
    std::byte* bounced = nullptr;    // the output, in memory that others can reach: copied back at the end
    tuning tuned;
    bool streams = false, streams_own = false, streams_staged = false;
    memory_piece scratch{};
    list<buffer_view> views;
    list<operand> operands;
    wait_site site;
    backoff asked;  // by its owner, whether it is over
    bool entered = false, done = true;
    message_state* passing = nullptr;  // where messages pass
    void (*drop_passing)(message_state*) = nullptr;
    prepared* of = nullptr;  // the kept call that it was started from
    double traced_from = 0;  // when it was begun, where calls are traced; else 0
};
inline operation_state::~operation_state() {
    if (passing) drop_passing(passing);
}

/// For an error: the blocks that this rank and its peer exchange in the round, a few of them by number.
[[gnu::cold]] inline void say_blocks(message& text, const wait_site& at) {
    const any_schedule& s = *static_cast<const any_schedule*>(at.steps);
    if (at.round >= s.rounds(at.size)) return;  // behind the last one the call only waits for others to end
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

inline wait_site site_of(const rank_context& e, const operation_state& o, const execution_plan& p) {
    const call& c = o.request;
    return {.what = name_of(c.what),
        .schedule = &p == o.instead ? o.instead_name : o.name,
        .call = o.number,
        .fingerprint = o.fingerprint,
        .blocks = &say_blocks,
        .steps = &p.schedule,
        .rank = e.rank,
        .size = e.size,
        .shift = rooted(c.what) ? c.root - p.root : 0};
}

/// Remembers the call that was just signed.
inline void record(rank_context& e, const call& c, std::string_view schedule, bool own_lengths) {
    call_record& r = e.recent[(e.calls - 1) % call_record::kept];
    r.type = c.type;
    r.op = c.op_type;
    r.schedule = schedule;
    r.count = c.count;
    r.root = c.root;
    r.what = c.what;
    r.own_lengths = own_lengths;
    r.non_blocking = c.non_blocking;
}

/// What executors know of an operation, whatever way its data take: whose part in the execution plan is whose, and what
/// lies where.
class executor {
protected:
    executor(rank_context& e, operation_state& o) : e_(e), o_(o), p_(o.steps) {}

    /// Takes a number in the order of calls.
    void sign() {
        const call& c = o_.request;
        const bool own_lengths = c.ragged || (owned(c.what) && rooted(c.what));
        o_.number = e_.calls;
        o_.fingerprint =
            e_.sign(c.what, hash_mix(hash_mix(hash_mix(c.signature, own_lengths ? c.ragged : c.count), p_->fingerprint),
                                static_cast<std::uint64_t>(c.root) * 2 + c.non_blocking));
        record(e_, c, o_.name, own_lengths);
        o_.site = site_of(e_, o_, *p_);
    }
    int actual(int virtual_rank) const {
        if (!rooted(o_.request.what)) return virtual_rank;
        const int r = virtual_rank - p_->root + o_.request.root;
        return r < 0 ? r + e_.size : r >= e_.size ? r - e_.size : r;
    }
    bool own_layout(place where) const {
        const collective c = o_.request.what;
        return where == place::input ? c == collective::gather || c == collective::all_gather
                                     : c == collective::scatter || c == collective::reduce_scatter;
    }
    /// Where a unit lies in an input or output, in elements. `offsets`: of the blocks; if there are none, and `alone`,
    /// there is one block only, of `own` elements.
    extent unit_at(place where, int unit, const std::size_t* offsets, bool alone, std::size_t own) const {
        const call& c = o_.request;
        auto parts = static_cast<std::size_t>(p_->parts);
        auto block = static_cast<std::size_t>(unit) / parts;
        const std::size_t part = static_cast<std::size_t>(unit) % parts;
        if (!p_->parts_of.empty()) parts = static_cast<std::size_t>(p_->parts_of[block]);
        if (owned(c.what) && rooted(c.what)) block = static_cast<std::size_t>(actual(static_cast<int>(block)));
        extent whole;
        if (offsets)
            whole = {offsets[block], offsets[block + 1] - offsets[block]};
        else if (alone)
            whole = {0, own};
        else
            whole = balanced(c.count, static_cast<std::size_t>(p_->blocks), block);
        if (own_layout(where)) whole.first = 0;
        if (parts > 1) {
            const extent piece = balanced(whole.count, parts, part);
            return {whole.first + piece.first, piece.count};
        }
        return whole;
    }
    /// Makes room for a fold's operands. The first of them: those of a fold of everyone's at a root that is not rank 0
    /// come in the order of ranks, not of roles.
    int first_operand(const instruction& i) {
        if (o_.operands.size() < static_cast<std::size_t>(i.count))
            o_.operands.resize(static_cast<std::size_t>(i.count));
        return i.count == e_.size && rooted(o_.request.what) ? mod(p_->root - o_.request.root, e_.size) : 0;
    }

    rank_context& e_;
    operation_state& o_;
    const execution_plan* p_;  // the one that is followed: o_.steps
};

/// Executes one operation of an rank context.
class direct_executor : executor {
public:
    direct_executor(rank_context& e, operation_state& o) : executor(e, o) {}

    void begin();
    /// As far as it gets without waiting; true when the operation is over.
    bool advance();

private:
    void enter();
    bool learn();
    bool agree();
    const execution_plan& staged_plan() const { return o_.instead ? *o_.instead : staged(*p_); }
    void follow(const execution_plan& s);
    bool within_reach() const;
    std::size_t scratch_bytes() const {
        return static_cast<std::size_t>(o_.mine->scratch) * (o_.scratch_chunks > 0 ? o_.scratch_chunks : 1) * o_.stride;
    }
    // Of this rank's buffers, where each rank knows its own counts only.
    std::size_t ragged_bytes(place where) const {
        const call& c = o_.request;
        const std::size_t* offsets = where == place::input ? c.in_offsets : c.out_offsets;
        const bool own = c.what == (where == place::input ? collective::gather : collective::scatter);
        return (offsets ? offsets[e_.size] : own ? c.own_count : 0) * c.element;
    }
    operation_line& line_of(int rank) const { return e_.memory.operation(o_.sequence % window, rank); }
    std::uint64_t word(std::size_t chunk, int value) const {
        return (o_.sequence + 1) << 24 |  // zeroed memory is no entry
               (value == 0 ? 0 : chunk * static_cast<std::size_t>(p_->values()) + static_cast<std::size_t>(value));
    }
    // Where a unit lies in a rank's input or output, in elements.
    extent unit_in(const buffer_view& v, place where, int unit) const {
        const call& c = o_.request;  // whose tables are those of all ranks, where they are not ragged
        return unit_at(where, unit,
            where == place::input ? (c.ragged ? v.in_offsets : c.in_offsets)
                                  : (c.ragged ? v.out_offsets : c.out_offsets),
            c.ragged, v.count);
    }
    const buffer_view* view_of(int rank);
    const std::byte* address(const buffer_view& v, const location& l) const;
    bool perform(const instruction& i);
    bool wait_for(const instruction& i, std::size_t chunk);
    bool copy(const instruction& i);
    bool fold(const instruction& i);
    bool fold_and_push(const instruction& i, std::byte* to, std::size_t count);
    // Lines that a reduction in place has just pulled from the peer are in this core's cache: a plain store is best.
    bool streams_to(const buffer_view& v) const { return o_.streams && !(reduces(o_.request.what) && v.in == v.out); }
    void finish();
};

inline void direct_executor::begin() {
    activate(e_);  // now, while no stores are pending that it would have to wait for
    const call& c = o_.request;
    const auto n = static_cast<std::size_t>(e_.size);
    sign();
    o_.views.resize(n);
    o_.operands.resize(n + 1);
    o_.chunk = o_.at = o_.exit_at = 0;
    o_.done = false;
    o_.agreed = e_.shares_everything() || e_.size == 1 || c.ragged;
    o_.bounced = nullptr;

    // The slot is free when every rank has finished the operation that used it before.
    o_.sequence = e_.sequence++;
    if (o_.sequence >= window && e_.completed_by_all + window <= o_.sequence) {
        std::uint64_t least = ~std::uint64_t{0};
        for (int r = 0; r < e_.size; ++r) {
            backoff wait(e_);
            o_.site.peer = r;
            std::uint64_t seen;
            while ((seen = e_.memory.state(r).completed.load(std::memory_order_acquire)) + window <= o_.sequence)
                wait(o_.site);
            if (seen < least) least = seen;
        }
        e_.completed_by_all = least;
    }
    o_.entered = false;
    if (!c.learns) enter();
}

// Off the root, a gather or scatter learns from the root how long it is.
inline bool direct_executor::learn() {
    call& c = o_.request;
    o_.site.peer = c.root;
    const buffer_view* v = view_of(c.root);
    if (!v) return false;
    c.count = v->count;
    const std::size_t own =
        balanced(c.count, static_cast<std::size_t>(e_.size), static_cast<std::size_t>(e_.rank)).count;
    if (own != c.own_count)
        fail(e_, errc::mismatch, o_.site,
            message() << "this rank's block has " << c.own_count << " elements, and of the " << c.count << " of rank "
                      << c.root << ", the root, it should have " << own);
    enter();
    return true;
}

/// From now on, by this execution plan: this rank's part of it, and the chunks.
inline void direct_executor::follow(const execution_plan& s) {
    p_ = o_.steps = &s;
    const call& c = o_.request;
    const auto n = static_cast<std::size_t>(e_.size);
    if (o_.site.steps != &s.schedule) o_.site = site_of(e_, o_, s);
    const int v = rooted(c.what) ? mod(e_.rank - c.root + p_->root, e_.size) : e_.rank;
    o_.mine = &p_->ranks[static_cast<std::size_t>(v)];
    std::size_t longest = 0;
    if (const std::size_t* offsets = c.in_offsets ? c.in_offsets : c.out_offsets; offsets && !c.ragged) {
        for (std::size_t b = 0; b < n; ++b)
            if (offsets[b + 1] - offsets[b] > longest) longest = offsets[b + 1] - offsets[b];
        longest = balanced(longest, static_cast<std::size_t>(p_->fewest_parts), 0).count;
    } else {
        longest = balanced(balanced(c.count, static_cast<std::size_t>(p_->blocks), 0).count,
            static_cast<std::size_t>(p_->fewest_parts), 0)
                      .count;
    }
    const bool is_staged = p_->within == reach::scratch;
    o_.streams = c.count * c.element >= store_policy::stream_from;
    o_.streams_own = c.count * c.element >= store_policy::stream_own_from;
    o_.streams_staged = is_staged && c.count * c.element >= store_policy::stream_staged_from;
    const std::size_t bytes = is_staged
                                  ? store_policy::staged_chunk / static_cast<std::size_t>(p_->blocks * p_->fewest_parts)
                                  : o_.tuned.chunk;
    o_.chunk_count = bytes / c.element > 0 ? bytes / c.element : 1;
    if (c.ragged || longest == 0) o_.chunk_count = ~std::size_t{0} / 2;
    // A progress word has 24 bits for the chunk and the value.
    const std::size_t most = ((std::size_t{1} << 24) - 1) / static_cast<std::size_t>(p_->values() + 1);
    if (longest / most >= o_.chunk_count) o_.chunk_count = longest / most + 1;
    o_.chunks = longest == 0 ? 1 : (longest + o_.chunk_count - 1) / o_.chunk_count;
    if (c.ragged) o_.chunks = 1;
    // Staged, a scratch slot holds a chunk, and a few chunks' slots are used in turn; else it holds all of a unit.
    o_.scratch_chunks = !is_staged                                ? 0
                        : o_.chunks < store_policy::staged_chunks ? o_.chunks
                                                                  : store_policy::staged_chunks;
    o_.stride = ((is_staged && o_.chunk_count < longest ? o_.chunk_count : longest) * c.element + 63) / 64 * 64;
}

/// Memory that others can reach, for an operation.
inline void take_scratch(rank_context& e, operation_state& o, std::size_t bytes) {
    auto& pool = e.pieces;  // an operation that failed may have left its piece
    if (o.scratch.at) pool.push_back(o.scratch);
    o.scratch = {};
    for (std::size_t i = 0; i < pool.size() && bytes > 0; ++i)
        if (pool[i].bytes >= bytes) {
            o.scratch = pool[i];
            pool.drop(i);
            return;
        }
    if (bytes > 0) o.scratch = {e.backend->take(bytes), bytes};
}

// Can the others reach this rank's buffers? Those that are empty they need not.
inline bool direct_executor::within_reach() const {
    const call& c = o_.request;
    if (e_.shares_everything() || e_.size == 1) return true;
    const auto reaches = [&](const std::byte* p, std::size_t bytes) {
        return p == nullptr || bytes == 0 || e_.shares(p, 1);
    };
    const std::size_t whole = c.count * c.element;
    return reaches(c.in, c.ragged ? ragged_bytes(place::input) : whole) &&
           reaches(c.out, c.ragged ? ragged_bytes(place::output) : whole);
}

inline void direct_executor::enter() {
    const call& c = o_.request;
    const bool reached = within_reach();
    // Scratch for the program's slots: for either program, as long as it is not known whether all buffers are within
    // reach.
    std::size_t slots = 0;
    if (!o_.agreed) {
        const execution_plan& direct = *p_;
        follow(staged_plan());
        slots = scratch_bytes();
        follow(direct);
    } else {
        follow(*p_);
    }
    if ((reached || c.ragged) && scratch_bytes() > slots) slots = scratch_bytes();
    // Behind it a copy of the input of an all_to_all in place. Where each rank knows its own counts only, whatever is
    // out of reach is copied as a whole, and so are the counts.
    const std::byte* in = c.in;
    std::byte* out = c.out;
    const std::size_t *in_offsets = c.in_offsets, *out_offsets = c.out_offsets;
    const std::size_t tables =
        c.ragged && !e_.shares_everything() ? (static_cast<std::size_t>(e_.size) + 1) * sizeof(std::size_t) : 0;
    const bool bounces = c.ragged && !reached;
    const std::size_t copied = bounces                                             ? ragged_bytes(place::input)
                               : c.what == collective::all_to_all && c.in == c.out ? c.count * c.element
                                                                                   : 0;
    const auto padded = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
    take_scratch(e_, o_, slots + padded(copied) + (bounces ? padded(ragged_bytes(place::output)) : 0) + 2 * tables);
    std::byte* const scratch = o_.scratch.at;
    std::byte* next = scratch + slots;
    if (copied > 0) in = static_cast<const std::byte*>(std::memcpy(next, c.in, copied));
    next += padded(copied);
    if (bounces) {
        out = o_.bounced = next;
        next += padded(ragged_bytes(place::output));
    }
    if (tables > 0 && in_offsets) in_offsets = static_cast<const std::size_t*>(std::memcpy(next, in_offsets, tables));
    if (tables > 0 && out_offsets)
        out_offsets = static_cast<const std::size_t*>(std::memcpy(next + tables, out_offsets, tables));
    operation_line& own = line_of(e_.rank);
    own.fingerprint = o_.fingerprint;
    own.in = reached || c.ragged ? e_.told(in) : out_of_reach;
    own.out = e_.told(out);
    own.scratch = e_.told(scratch);
    own.in_offsets = e_.told(in_offsets);
    own.out_offsets = e_.told(out_offsets);
    own.count = c.ragged ? c.own_count : c.count;
    // This rank itself reaches its buffers wherever they are.
    o_.views[e_.rank] = {o_.sequence + 1, own.in != out_of_reach, in, out, scratch, in_offsets, out_offsets, own.count};
    o_.entered = true;
    own.progress.store(word(0, 0), std::memory_order_release);
}

// One rank whose buffers the others cannot reach: then all go by the staged execution plan.
inline bool direct_executor::agree() {
    bool reached = true;
    for (int r = 0; r < e_.size; ++r) {
        const buffer_view* v = view_of(r);
        o_.site.peer = r;
        if (!v) return false;
        reached = reached && v->reached;
    }
    if (!reached) follow(staged_plan());
    o_.agreed = true;
    return true;
}

inline const buffer_view* direct_executor::view_of(int rank) {
    buffer_view& v = o_.views[static_cast<std::size_t>(rank)];
    if (v.stamp == o_.sequence + 1) return &v;
    const operation_line& l = line_of(rank);
    if (l.progress.load(std::memory_order_acquire) < word(0, 0)) return nullptr;
    if (l.fingerprint != o_.fingerprint) fail_mismatch(e_, o_.site, rank, l.fingerprint);
    v = {o_.sequence + 1, l.in != out_of_reach, e_.here<const std::byte>(l.in), e_.here<std::byte>(l.out),
        e_.here<std::byte>(l.scratch), e_.here<const std::size_t>(l.in_offsets),
        e_.here<const std::size_t>(l.out_offsets), l.count};
    return &v;
}

inline const std::byte* direct_executor::address(const buffer_view& v, const location& l) const {
    const std::size_t skip = o_.chunk * o_.chunk_count;
    if (l.where == place::scratch)
        return v.scratch +
               (o_.scratch_chunks > 0
                       ? (static_cast<std::size_t>(l.index) * o_.scratch_chunks + o_.chunk % o_.scratch_chunks) *
                             o_.stride
                       : static_cast<std::size_t>(l.index) * o_.stride + skip * o_.request.element);
    const std::byte* base = l.where == place::input ? v.in : v.out;
    return base + (unit_in(v, l.where, l.index).first + skip) * o_.request.element;
}

// Acquire: what the peer stored before it published is visible after.
inline bool direct_executor::wait_for(const instruction& i, std::size_t chunk) {
    const int q = actual(i.peer);
    o_.site.peer = q;
    o_.site.round = i.round;
    if (line_of(q).progress.load(std::memory_order_acquire) < word(chunk, i.value)) return false;
    return view_of(q) != nullptr;
}

inline bool direct_executor::copy(const instruction& i) {
    const location& from = o_.mine->operands[static_cast<std::size_t>(i.first)];
    const int to_rank = actual(i.to.rank), from_rank = actual(from.rank);
    const buffer_view *to = view_of(to_rank), *source = view_of(from_rank);
    if (!to || !source) {
        o_.site.peer = to ? from_rank : to_rank;
        return false;
    }
    const call& c = o_.request;
    const std::size_t skip = o_.chunk * o_.chunk_count;
    std::size_t count = unit_in(*source, from.where == place::scratch ? place::input : from.where,
        from.where == place::scratch ? i.unit : from.index)
                            .count;
    if (c.ragged && unit_in(*to, i.to.where, i.to.index).count != count) {
        o_.site.peer = to_rank == e_.rank ? from_rank : to_rank;
        o_.site.round = i.round;
        fail(e_, errc::mismatch, o_.site,
            message() << "sends " << count << " elements to rank " << to_rank << ", which expects "
                      << unit_in(*to, i.to.where, i.to.index).count);
    }
    if (count <= skip) return true;
    count -= skip;
    if (count > o_.chunk_count) count = o_.chunk_count;
    const std::byte* source_at = address(*source, from);
    auto* to_at = const_cast<std::byte*>(address(*to, i.to));
    if (source_at == to_at) return true;
    const std::size_t bytes = count * c.element;
    if (to_rank != e_.rank ? streams_to(*to) : i.to.where == place::scratch ? o_.streams_staged : o_.streams_own)
        stream_bytes(to_at, source_at, bytes);
    else
        copy_bytes(to_at, source_at, bytes);
    return true;
}

inline bool direct_executor::fold(const instruction& i) {
    const call& c = o_.request;
    const std::size_t skip = o_.chunk * o_.chunk_count;
    const buffer_view& own = *view_of(e_.rank);
    const location* sources = o_.mine->operands.data() + i.first;
    std::size_t count = unit_in(own, place::input, i.unit).count;
    if (count <= skip) return true;
    count -= skip;
    if (count > o_.chunk_count) count = o_.chunk_count;
    const int first = first_operand(i);
    for (int k = 0; k < i.count; ++k) {
        const location& from = sources[(k + first) % i.count];
        const int q = actual(from.rank);
        const buffer_view* v = view_of(q);
        if (!v) {
            o_.site.peer = q;
            o_.site.round = i.round;
            return false;
        }
        o_.operands[k] = {address(*v, from), from.leaf};
    }
    auto* to = const_cast<std::byte*>(address(own, i.to));
    if (i.pushes > 0 && fold_and_push(i, to, count)) return true;
    c.op->fold(to, o_.operands.data(), i.count, count, c.op_value);
    if (i.finish && c.op->finish) c.op->finish(to, count, e_.size, c.op_value);
    return true;
}

// False where a target has not entered yet: then one after the other.
inline bool direct_executor::fold_and_push(const instruction& i, std::byte* to, std::size_t count) {
    const call& c = o_.request;
    constexpr int most = 8;
    if (i.count > most || i.pushes > most) return false;
    std::byte* targets[most];
    bool past[most];
    const instruction* pushed = &i + 1;
    for (int j = 0; j < i.pushes; ++j) {
        const buffer_view* v = view_of(actual(pushed[j].to.rank));
        if (!v) return false;
        targets[j] = const_cast<std::byte*>(address(*v, pushed[j].to));
        past[j] = p_->within == reach::scratch ? o_.streams_staged : streams_to(*v);
    }
    // The own result by way of a buffer in the nearest cache, where it is not to stay in the farther ones.
    alignas(64) std::byte near[store_policy::piece];
    bool own_past = o_.streams_own;
    for (int k = 0; k < i.count; ++k) own_past = own_past && o_.operands[k].data != to;
    std::size_t piece = store_policy::piece / c.element;
    if (piece == 0) piece = 1, own_past = false;
    operand x[most];
    for (std::size_t at = 0; at < count; at += piece) {
        const std::size_t n = count - at < piece ? count - at : piece, skip = at * c.element, bytes = n * c.element;
        for (int k = 0; k < i.count; ++k)
            x[k] = {static_cast<const std::byte*>(o_.operands[k].data) + skip, o_.operands[k].leaf};
        std::byte* const made = own_past ? near : to + skip;
        c.op->fold(made, x, i.count, n, c.op_value);
        if (i.finish && c.op->finish) c.op->finish(made, n, e_.size, c.op_value);
        for (int j = 0; j < i.pushes; ++j)
            if (past[j])
                stream_bytes_unfenced(targets[j] + skip, made, bytes);
            else
                copy_bytes(targets[j] + skip, made, bytes);
        if (own_past) stream_bytes_unfenced(to + skip, made, bytes);
    }
    fence_stream();
    o_.at += static_cast<std::size_t>(i.pushes);
    return true;
}

inline bool direct_executor::perform(const instruction& i) {
    switch (i.op) {
        case opcode::wait:
            return (o_.chunk > 0 && i.value == 0) || wait_for(i, o_.chunk);
        case opcode::publish:
            line_of(e_.rank).progress.store(word(o_.chunk, i.value), std::memory_order_release);
            return true;
        case opcode::copy:
            return copy(i);
        case opcode::fold:
            return fold(i);
        default:
            return true;  // messages: see channel.hpp
    }
}

inline bool direct_executor::advance() {
    if (o_.done) return true;
    if (e_.memory.state(e_.rank).active.load(std::memory_order_relaxed) == 0) activate(e_);
    if (!o_.entered && !learn()) return false;
    if (!o_.agreed && !agree()) return false;
    const auto &reuse_waits = o_.mine->reuse_waits, &body = o_.mine->body;
    for (; o_.chunk < o_.chunks; ++o_.chunk, o_.at = 0) {
        for (; o_.at < reuse_waits.size(); ++o_.at)
            if (o_.chunk >= o_.scratch_chunks && !wait_for(reuse_waits[o_.at], o_.chunk - o_.scratch_chunks))
                return false;
        for (; o_.at < reuse_waits.size() + body.size(); ++o_.at)
            if (!perform(body[o_.at - reuse_waits.size()])) return false;
    }
    for (; o_.exit_at < o_.mine->exit.size(); ++o_.exit_at)
        if (!wait_for(o_.mine->exit[o_.exit_at], o_.chunks - 1)) return false;
    finish();
    return true;
}

inline void direct_executor::finish() {
    confirm(e_, o_.site);
    rank_state& state = e_.memory.state(e_.rank);
    std::uint64_t completed = state.completed.load(std::memory_order_relaxed);
    e_.finished |= std::uint32_t{1} << (o_.sequence - completed);
    for (; e_.finished & 1; e_.finished >>= 1) ++completed;
    // Release: this rank's last look at the operation's slots is before.
    state.completed.store(completed, std::memory_order_release);
    if (o_.bounced) copy_bytes(o_.request.out, o_.bounced, ragged_bytes(place::output));
    if (o_.scratch.at) e_.pieces.push_back(o_.scratch);
    o_.scratch = {};
    o_.done = true;
}

#ifndef COLLS_SEPARATE
COLLS_INLINE rank_context::~rank_context() {
    previous->next = next;
    next->previous = previous;
    for (const memory_piece& piece : pieces) backend->give(piece.at, piece.bytes);
    for (operation_state* o : idle) {
        if (o->scratch.at) backend->give(o->scratch.at, o->scratch.bytes);
        delete o;
    }
}
#endif

inline operation_state* take_operation(rank_context& e) {
    if (e.idle.empty()) return new operation_state;
    operation_state* o = e.idle.back();
    e.idle.pop_back();
    return o;
}

}  // namespace colls::inline v1::detail
