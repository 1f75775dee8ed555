// Runs a schedule in a kernel: a block of each rank works on its channel's slice of every user block.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// The same code serves every schedule, collective, type and operator, on a device and, for tests, on the host.
//
// All transfers are pulled: in round k a rank reads the slots that its peers had at the start of the round, and writes
// its own memory only. A rank's progress is one counter that only grows. With R rounds, chunk c begins at v = base + 1
// + c (2R + 1), and the counter says
//     v + 2k      the rank's slots of the start of round k can be read
//     v + 2k + 1  the rank has read all that it reads in round k (published only if round k overwrites what it sends)
// Before a rank reads or writes anything in round k, it waits until the peers that it reads from, and those that read
// from it in round k - 1, have published v + 2k. By induction on k no peer is still reading what the rank writes. Every
// wait names an earlier round than the one it is made in, so the least unfinished round can always go on. If a round
// receives into slots that it also sends, received data lands in scratch memory, and moves to its slots when the
// readers have published v + 2k + 1.
//
// Between hosts all transfers are posted (far_memory.hpp): at the start of a round a rank copies what it sends there
// into a window, so that nobody waits for the reader, and the arrival of what it receives counts as the sender's v +
// 2k.
#pragma once

#include <colls/cuda/detail/kernel/schedule_slots.hpp>
#include <colls/cuda/detail/kernel/wait_for_peer.hpp>

namespace colls::inline v1::cuda::detail {

/// One call of one block. T: elements of the input; D: of the output (another type only through an epilogue).
template <class Schedule, class T, class D, class Op, class Epilogue, class G>
class schedule_executor : schedule_slots<Schedule, T, D, Op, Epilogue, G> {
    using slots = schedule_slots<Schedule, T, D, Op, Epilogue, G>;

public:
    COLLS_DEVICE schedule_executor(const G& g, int channel, const Schedule& s, const Op& op, const Epilogue& epilogue)
        : g_(g), s_(s), op_(op), epilogue_(epilogue), channel_(channel) {}

    /// False: the rank has given up, and the host learns why from the report. Control and data alternate, each at one
    /// place in the code, so that a kernel stays small and both can use all registers.
    COLLS_DEVICE bool run() {
        start();
        COLLS_ROLLED
        while (next_batch())
            slots::run_batch(g_, parity_, [this](int b, const team<G>& t) {
                run_pass(t, state().passes[parity_][b], state().operands[parity_] + b * (ports() + 1));
            });
        return !failed_;
    }

private:
    using location = typename slots::location;
    using slots::what, slots::is_plain, slots::rank_of, slots::info, slots::input, slots::output, slots::scratch,
        slots::first_element, slots::lives_in_output;

    COLLS_DEVICE block_state& state() const { return g_.state(); }
    COLLS_DEVICE const rank_handle& self() const { return state().self; }
    COLLS_DEVICE const kernel_call& call() const { return state().call; }
    COLLS_DEVICE int channel() const { return anew(channel_); }
    COLLS_DEVICE int n() const { return self().sizes.ranks; }
    COLLS_DEVICE int me() const { return state().schedule.me; }
    COLLS_DEVICE int rounds() const { return state().schedule.rounds; }
    COLLS_DEVICE int ports() const { return state().schedule.ports; }
    /// The progress that announces the start of this round.
    COLLS_DEVICE std::uint64_t value() const {
        return state().schedule.base + std::uint64_t{chunk_} * static_cast<std::uint32_t>(2 * rounds() + 1) +
               static_cast<std::uint32_t>(2 * round_);
    }

    COLLS_DEVICE int rank_of(int role) const { return rank_of(g_, role); }
    COLLS_DEVICE extent span_of(const slot_info& s) const { return slots::span_of(g_, s, channel(), chunk_); }
    COLLS_DEVICE const slot_info& info(int role, int slot) const { return info(g_, role, slot); }

    /// The scratch slot in which data for a slot lands in a round that overwrites what it sends.
    COLLS_DEVICE static int landing_slot(G& g, int slot) { return g.state().call.width + slot; }

    /// The phases of a chunk: stage copies input that others cannot reach to scratch memory; receive, once a round,
    /// pulls what arrives; or land, which pulls it into landing slots, and move_landed, which moves it from there to
    /// its slots; deliver writes results that are not in the output yet; post copies what other hosts receive into a
    /// window.
    enum class phase : int { stage, deliver, post, move_landed, receive, land };

    /// Where a slot of a role is read in a phase: as it was at the start of the round, or as it has landed.
    COLLS_DEVICE static location source_location(
        G& g, int channel, phase during, int round, int role, int slot, const slot_info& s) {
        if (during == phase::move_landed) return scratch(g, channel, role, landing_slot(g, slot), s);
        const kernel_call& call = g.state().call;
        const peer_buffers& theirs = slots::buffers_of(g, role);
        const bool own = role == g.state().schedule.me;
        if (round <= s.first_receive) {
            const std::byte* const in = own ? call.in : theirs.in;
            return in != nullptr || own ? input(in, s) : scratch(g, channel, role, slot, s);
        }
        return lives_in_output(g, role, s) ? output(own ? call.out : theirs.out, s)
                                           : scratch(g, channel, role, slot, s);
    }
    COLLS_DEVICE_CALLED static operand source(
        G g, int channel, phase during, int round, int role, int slot, std::uint64_t skip) {
        const slot_info& s = info(g, role, slot);
        const location at = source_location(g, channel, during, round, role, slot, s);
        // What others contribute they have changed as they staged it.
        return {at.base + first_element(g, at, s.parts, skip) * sizeof(T),
            role == g.state().schedule.me && during != phase::move_landed && round <= s.first_receive};
    }
    COLLS_DEVICE operand source(int role, int slot, std::uint64_t skip) const {
        return source(g_, channel(), phase_, round_, role, slot, skip);
    }

    // Synchronisation.

    /// Tells all ranks this rank's progress, after a barrier: all threads have finished what it announces.
    COLLS_DEVICE void publish(std::uint64_t value) {
        g_.any(false);
        COLLS_ROLLED
        for (int r = g_.index(); r < n(); r += g_.size())
            if (!is_far(self(), r))
                g_.release(&channel_of(self(), r, channel()).progress[place_of(self(), self().rank)], value);
    }
    /// The rank to wait for: none where it is this one.
    COLLS_DEVICE int other_rank(int role) const { return role == none || role == me() ? none : rank_of(role); }
    /// The rank, if it is on another host.
    COLLS_DEVICE static int far_rank(G& g, int role) {
        if (g.state().self.far.base == nullptr || role == none || role == g.state().schedule.me) return none;
        const int rank = rank_of(g, role);
        return is_far(g.state().self, rank) ? rank : none;
    }
    /// Waits until all ranks have published `first`, with their entries: checks that they make the same call, and
    /// learns where their buffers are.
    COLLS_DEVICE bool exchange_entries(std::uint64_t first) {
        bool failed = false;
        COLLS_ROLLED
        for (int r = g_.index(); r < n() && !failed; r += g_.size()) {
            const int q = rank_of(r);
            if (is_far(self(), q)) continue;
            failed = r != me() && !wait_for_peers(g_, channel(), q, none, first, none);
            if (failed) break;
            const entry_record e = channel_of(self(), q, channel()).entries[state().schedule.entry];
            failed = e.fingerprint != call().fingerprint;
            if (failed)
                give_up(g_, channel(), failure::mismatch, q, none, e.fingerprint);
            else
                slots::buffers_of(g_, r) = {resolved(self(), q, e.in), resolved(self(), q, e.out)};
        }
        failed_ = g_.any(failed);
        return !failed_;
    }

    // Between hosts.

    /// How many blocks a port sends to another host, or receives from there.
    COLLS_DEVICE static int far_blocks(G& g, bool receives, int port) {
        if (what == collective::barrier) return 0;
        if (!receives) return slots::blocks_of(g, true, port).size();
        return g.state().far_from[port] == none ? 0 : slots::blocks_of(g, false, port).size();
    }
    /// The place in the window of a port's first block.
    COLLS_DEVICE_CALLED static int far_place(G g, bool receives, int port) {
        int before = 0;
        COLLS_ROLLED
        for (int p = 0; p < port; ++p) before += far_blocks(g, receives, p);
        return before;
    }
    /// Where in a window a slot's data at one of its places are.
    COLLS_DEVICE static std::uint64_t in_window(G& g, int place, const slot_info& s) {
        const location at{nullptr, s.data, slots::buffer_kind::scratch_slot};
        return static_cast<std::uint64_t>(place) * slot_bytes(g.state().call.chunk, sizeof(T)) +
               first_element(g, at, s.parts, 0) * sizeof(T);
    }
    /// In a window of the post that is being written, or was written last.
    COLLS_DEVICE_CALLED static std::byte* in_window(
        G g, int channel, bool receives, std::uint64_t post, int place, const slot_info& s) {
        return g.state().self.far.window(channel, post, receives) + in_window(g, place, s);
    }
    COLLS_DEVICE static std::uint64_t& posts(G& g, int channel) {
        const rank_handle& self = g.state().self;
        return channel_of(self, self.rank, channel).far_posts;
    }
    /// Lists a slot's data of a chunk as a piece of the post's message. Returns where in the window they are; null
    /// where the slot stands for no block.
    COLLS_DEVICE_CALLED static std::byte* list_piece(
        G g, int channel, std::uint32_t chunk, bool receives, int place, const slot_info& s) {
        const far_memory& far = g.state().self.far;
        const std::uint64_t number = posts(g, channel);
        far_piece& piece = far.pieces(channel, number, receives)[place];
        piece = {};
        if (s.data.block == none) return nullptr;
        const std::uint64_t at = in_window(g, place, s);
        piece = {static_cast<std::uint32_t>(at),
            static_cast<std::uint32_t>(slots::span_of(g, s, channel, chunk).count * sizeof(T))};
        return far.window(channel, number, receives) + at;
    }
    /// Finds what this rank sends to other hosts in a round, and receives from there. False: nothing.
    COLLS_DEVICE_CALLED static bool has_far_messages(G g, const Schedule& schedule, int round) {
        block_state& state = g.state();
        bool some = false;
        COLLS_ROLLED
        for (int p = g.index(); p < state.schedule.ports; p += g.size()) {
            const step mine = step_at(schedule, state.schedule.me, state.self.sizes.ranks, round, p);
            state.far_to[p] = far_rank(g, mine.send.peer);
            state.far_from[p] = far_rank(g, mine.recv.peer);
            state.departures[p] = state.far_to[p] == none ? block_set{} : mine.send.blocks;
            state.arrivals[p].to = mine.recv.blocks;
            some = some || state.far_to[p] != none || state.far_from[p] != none;
        }
        return g.any(some);
    }
    /// Posts what is in the window, and where in the other one messages land.
    COLLS_DEVICE_CALLED static void post(G g, int channel, int round, std::uint32_t chunk, std::uint64_t value) {
        block_state& state = g.state();
        const far_memory& far = state.self.far;
        const int ports = state.schedule.ports;
        const std::uint64_t number = posts(g, channel);
        const auto post = [&]() -> far_post& { return far.post(anew(channel), anew(number)); };
        COLLS_ROLLED
        for (int i = g.index(); i < 2 * ports; i += g.size()) {
            const bool receives = i >= ports;
            const int p = receives ? i - ports : i;
            (receives ? post().receives : post().sends)[p] = far_message{
                receives ? state.far_from[p] : state.far_to[p], far_place(g, receives, p), far_blocks(g, receives, p)};
        }
        const int all = far_place(g, true, ports);
        COLLS_ROLLED
        for (int i = g.index(); i < all; i += g.size()) {
            int p = 0, at = i;
            COLLS_ROLLED
            for (int size; at >= (size = far_blocks(g, true, p)); ++p) at -= size;
            const slot_info& s = info(g, state.schedule.me, element_of(state.arrivals[p].to, at));
            list_piece(g, channel, chunk, true, i, s);
        }
        g.any(false);  // the window and the lists are complete
        if (g.index() != 0) return;
        far_post& made = post();
        made.value = value;
        made.fingerprint = state.call.fingerprint;
        made.round = round;
        made.ports = ports;
        posts(g, channel) = number + 1;
        g.release(far.posted(channel), number + 1);
    }

    // Data.

    static constexpr bool has_leaves = reduces(what) && has_leaf<Op, accumulator<T, Op>>;
    /// Others read this rank's input in scratch memory: they do not reach it, or the operator changes it before.
    COLLS_DEVICE bool stages() const { return has_leaves || call().in_where.region == shared_address::hidden; }

    COLLS_DEVICE void run_pass(const team<G>& t, const memory_pass& o, const operand* x) {
        if constexpr (!is_plain)
            if (o.is_result != 0) {
                D* const target = reinterpret_cast<D*>(o.to);
                if constexpr (reduces(what))
                    return fold_elements<T>(t, target, x, o.operands, false, o.count, op_, epilogue_, o.ranks, o.index);
                else
                    return fold_elements<T>(t, target, x, 1, false, o.count, no_operator{}, epilogue_, 0, o.index);
            }
        T* const target = reinterpret_cast<T*>(o.to);
        if constexpr (reduces(what)) {
            const bool copies = o.operands == 1 && o.ranks == 0 && !(has_leaves && x[0].raw != 0);
            if (copies && x[0].data == target) return;
            fold_elements<T>(t, target, x, o.operands, copies, o.count, op_, no_epilogue{}, o.ranks, o.index);
        } else if (x[0].data != target) {
            fold_elements<T>(t, target, x, 1, true, o.count, no_operator{}, no_epilogue{}, 0, o.index);
        }
    }

    // Control: which passes are next.

    COLLS_DEVICE void start() {
        channel_state& own = channel_of(self(), self().rank, channel());
        const bool failed_before = is_poisoned(g_);
        const std::uint32_t calls = own.schedule_calls;
        const int slots_of_all = n() * call().width;
        const bool are_near = slots_of_all <= max_near_slots;
        COLLS_ROLLED
        for (int i = are_near ? g_.index() : slots_of_all; i < slots_of_all; i += g_.size())
            state().near_slots[i] = call().slots[i];
        if (g_.index() == 0) {
            schedule_facts& facts = state().schedule;
            facts.slots = are_near ? state().near_slots : call().slots;
            facts.shift = rooted(what) ? call().root - root_of(s_, n()) : 0;
            facts.me = rooted(what) ? mod(self().rank - facts.shift, n()) : self().rank;
            facts.rounds = s_.rounds(n());
            facts.ports = ports_of(s_, n());
            facts.passes = slots::passes_at_once(facts.ports);
            facts.blocks = divided(call().count, static_cast<std::uint64_t>(call().user_blocks));
            facts.base =
                g_.relaxed(static_cast<const std::uint64_t*>(&own.progress[place_of(self(), self().rank)])) + 1;
            facts.entry = static_cast<std::int32_t>(calls & 1);
        }
        failed_ = g_.any(failed_before);
        if (g_.index() == 0 && !failed_) {
            own.schedule_calls = calls + 1;
            own.entries[calls & 1] = {call().fingerprint,
                has_leaves ? shared_address{0, shared_address::hidden, 0} : call().in_where, call().out_where};
        }
        round_ = 0;
        begin(phase::stage);
    }
    COLLS_DEVICE void begin(phase p) {
        phase_ = p;
        next_ = 0;
    }

    /// How many slots this phase goes through.
    COLLS_DEVICE int all() const {
        if (what == collective::barrier) return 0;
        if (arrives() || phase_ == phase::post) return slots::carried(g_, phase_ == phase::post);
        return (phase_ == phase::deliver ? slots::delivers(g_) : stages()) ? call().width : 0;
    }
    /// Prepares the next batch of passes in the block's state; false: the call is over, or has failed.
    COLLS_DEVICE bool next_batch() {
        COLLS_ROLLED
        while (!failed_) {
            const int left = next_ == 0 ? all() : state().batches[parity_].left;
            if (left > 0) {
                parity_ ^= 1u;
                next_ += slots::prepare(
                    g_, parity_, left, sizeof(T) < 64 ? 64 / sizeof(T) : 1, arrives(), pulls(),
                    [this](int b) { describe(b); }, [this](int b, int p, int at) { place(b, p, at); });
                return true;
            }
            if (!advance()) return false;
        }
        return false;
    }

    /// Goes on to the next phase; false: the call is over, or has failed. Threads may still run the last pass.
    COLLS_DEVICE bool advance() {
        if (phase_ == phase::deliver) {
            g_.any(false);  // all threads have read scratch memory, which the next chunk overwrites
            if (++chunk_ >= static_cast<std::uint32_t>(call().chunks)) {
                failed_ = g_.any(must_give_up(g_, channel(), n(), rounds(), [](int r) { return r; }));
                return false;
            }
            round_ = 0;
            begin(phase::stage);
            return true;
        }
        const bool first = phase_ == phase::stage, move_landed = phase_ == phase::land;
        if (phase_ == phase::post)
            post(g_, channel(), round_, chunk_, value());
        else if (!first && !move_landed)
            ++round_;
        const std::uint64_t reached = value() + move_landed;
        const bool receives = !move_landed && round_ < rounds();
        if (phase_ != phase::post) {
            publish(reached);
            if (first && chunk_ == 0 && !exchange_entries(reached)) return false;
            if (receives && self().far.base != nullptr && has_far_messages(g_, s_, round_)) {
                begin(phase::post);
                failed_ = g_.any(g_.index() == 0 && !wait_for_window(g_, channel(), round_));
                return !failed_;
            }
        }
        const bool lands = synchronise(receives, move_landed ? round_ : round_ - 1, reached);
        begin(move_landed ? phase::move_landed : !receives ? phase::deliver : lands ? phase::land : phase::receive);
        return !failed_;
    }
    /// Waits until the peers that read from this rank in round `read`, and if `reads` those that it reads from in this
    /// round, have published `value`. Returns whether what it receives in this round lands in scratch memory first.
    COLLS_DEVICE bool synchronise(bool reads, int read, std::uint64_t value) {
        bool failed = false;
        const int over = what == collective::barrier || !reads ? int{overwrites_nothing}
                                                               : call().overwrites[me() * rounds() + round_];
        // By the last threads, since the first ones are publishing.
        COLLS_ROLLED
        for (int p = g_.size() - 1 - g_.index(); p < ports(); p += g_.size()) {
            const int reader = read < 0 ? none : state().receivers[read & 1][p];
            int from = none;
            if (reads) {
                const step mine = step_at(s_, me(), n(), round_, p);
                from = mine.recv.peer;
                arrival& in = state().arrivals[p];
                in = {from, mine.recv.action, {}, {}};
                if (from != none) {
                    in.to = mine.recv.blocks;
                    in.from = step_at(s_, from, n(), round_, p).send.blocks;
                }
                state().receivers[round_ & 1][p] = mine.send.peer;
            }
            const int near_reader = far_rank(g_, reader) == none ? other_rank(reader) : none;
            failed = failed || !wait_for_peers(g_, channel(), other_rank(from), near_reader, value, round_);
        }
        failed_ = g_.any(failed);
        return over == overwrites_slots ||
               (over == overwrites_input && (owned(what) || call().in == call().out || stages()));
    }

    /// Does this phase go through what the ports receive, and not through all slots?
    COLLS_DEVICE bool arrives() const { return phase_ >= phase::move_landed; }
    COLLS_DEVICE bool pulls() const { return phase_ >= phase::receive; }
    /// Is there anything to do for this slot in this phase?
    COLLS_DEVICE bool is_needed(const slot_info& s) const {
        if (s.data.block == none) return false;
        if (phase_ == phase::stage) return s.in.block != none && s.is_sent != 0;
        if (phase_ == phase::post) return true;
        return phase_ != phase::deliver || slots::is_to_deliver(g_, s);
    }
    COLLS_DEVICE void describe(int b) {
        memory_pass& o = state().passes[parity_][b];
        o.slot = next_ + b;
        if (arrives() || phase_ == phase::post) slots::set_block(g_, o, phase_ == phase::post, next_ + b);
        const slot_info& s = info(me(), o.slot);
        o.is_needed = is_needed(s);
        std::byte* in_post = nullptr;
        if (phase_ == phase::post) in_post = list_piece(g_, channel(), chunk_, false, next_ + b, s);
        if (o.is_needed == 0) return;
        const extent span = span_of(s);
        o.skip = span.first;
        o.count = static_cast<std::uint32_t>(span.count);  // a chunk's elements fit 32 bits
        const bool lands = phase_ == phase::land,
                   is_result = phase_ == phase::deliver || (arrives() && !lands && s.result_round == round_);
        const location to = phase_ != phase::stage && !lands && (is_result || lives_in_output(g_, me(), s))
                                ? output(call().out, s)
                                : scratch(g_, channel(), me(), lands ? landing_slot(g_, o.slot) : o.slot, s);
        const bool complete =
            pulls() ? s.complete_round == round_ : phase_ == phase::deliver && reduces(what) && n() == 1;
        o.index = first_element(g_, to, s.parts, o.skip);
        o.to = const_cast<std::byte*>(to.base) + o.index * (is_result ? sizeof(D) : sizeof(T));
        if (phase_ == phase::post) o.to = in_post;
        o.ranks = complete ? n() : 0;
        o.is_result = is_result;
        o.folds_own = pulls() && slots::folds_own(g_, s, o.port, round_);
    }
    COLLS_DEVICE void place(int b, int p, int at) {
        const memory_pass& o = state().passes[parity_][b];
        int role = me(), slot = o.slot;
        if (pulls() && p != ports()) {
            const arrival& in = state().arrivals[p];
            const int i = ports() == 1 ? o.at : state().matches[b * ports() + p];
            role = in.peer;
            if (far_rank(g_, role) != none) {
                state().operands[parity_][b * (ports() + 1) + at] = {
                    in_window(
                        g_, channel(), true, posts(g_, channel()) - 1, far_place(g_, true, p) + i, info(me(), slot)),
                    false};
                return;
            }
            slot = element_of(in.from, i);
        }
        state().operands[parity_][b * (ports() + 1) + at] = source(role, slot, o.skip);
    }

    mutable G g_;
    const Schedule& s_;
    const Op& op_;
    const Epilogue& epilogue_;
    const int channel_;
    int round_ = 0;
    int next_ = 0;  // of this phase's slots: the next batch's first
    unsigned parity_ = 0;
    phase phase_ = phase::stage;
    int failed_ = false;  // int: bool takes more code
    std::uint32_t chunk_ = 0;
};

/// Runs the call that load_call has set, by the block of one channel; all threads call. False: the rank has given up.
template <class T, class D, class Schedule, class Op, class Epilogue, class G>
    requires thread_group<G>
COLLS_DEVICE bool run_schedule(const G& g, int channel, const Schedule& s, const Op& op, const Epilogue& epilogue) {
    return schedule_executor<Schedule, T, D, Op, Epilogue, G>(g, channel, s, op, epilogue).run();
}

}  // namespace colls::inline v1::cuda::detail
