// Runs a schedule in a kernel by packets, for calls between small and large: data is pushed, with its flags.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// Whatever a rank receives in a round and port has packets of its own in the receiver's workspace, so that no send
// waits. A round has two steps: all sends, of slots as they are at its start; then all receives, which fold packets
// with own slots and write to own slots. The block's barrier is between them. Ranks read nothing of another rank's
// memory, so nothing has to be staged, and a call ends without another meeting.
#pragma once

#include <colls/cuda/detail/packet_moves.hpp>
#include <colls/cuda/detail/schedule_slots.hpp>

namespace colls::inline v1::cuda::detail {

/// One call of one block. T: elements of the input; D: of the output (another type only through an epilogue).
template <class Schedule, class T, class D, class Op, class Epilogue, class G>
class packet_executor : schedule_slots<Schedule, T, D, Op, Epilogue, G>,
                        packet_moves<implemented_by<Schedule>, T, Op, G> {
    using slots = schedule_slots<Schedule, T, D, Op, Epilogue, G>;
    using moves = packet_moves<implemented_by<Schedule>, T, Op, G>;

public:
    COLLS_DEVICE packet_executor(const G& g, int channel, const Schedule& s, const Op& op, const Epilogue& epilogue)
        : moves(g, channel, op), s_(s), epilogue_(epilogue) {
        round_ = 0;
    }

    /// False: the rank has given up, and the host learns why from the report.
    COLLS_DEVICE bool run() {
        start();
        COLLS_ROLLED
        while (next_batch())
            slots::run_batch(g_, parity_, [this](int b, const team<G>& t) {
                const int first = b * (ports() + 1);
                if (!failed_here_)
                    failed_here_ = !run_pass(t, state().passes[parity_][b], state().operands[parity_] + first,
                        state().senders[parity_] + first);
            });
        // Behind the last barrier the block's state may be that of the next call already, unless this one has another.
        if (!failed_ && is_near_wraparound(flag_))
            clear_before_wraparound(g_, flag_, first_word(me_rank(), 0), packet_words());
        return !failed_;
    }

private:
    using location = typename slots::location;
    using slots::what, slots::is_plain, slots::rank_of, slots::info, slots::input, slots::output, slots::scratch,
        slots::first_element, slots::lives_in_output;

    using moves::g_, moves::op_, moves::channel_, moves::round_, moves::flag_, moves::elements, moves::packets,
        moves::has_leaves, moves::give, moves::take, moves::store, moves::send;

    COLLS_DEVICE block_state& state() const { return g_.state(); }
    COLLS_DEVICE const rank_handle& self() const { return state().self; }
    COLLS_DEVICE const kernel_call& call() const { return state().call; }
    COLLS_DEVICE int n() const { return self().sizes.ranks; }
    COLLS_DEVICE int me() const { return state().schedule.me; }
    COLLS_DEVICE int me_rank() const { return self().rank; }
    COLLS_DEVICE int rounds() const { return state().schedule.rounds; }
    COLLS_DEVICE int ports() const { return state().schedule.ports; }
    COLLS_DEVICE extent span_of(const slot_info& s) const { return slots::span_of(g_, s, channel_, 0); }

    // Packets.

    COLLS_DEVICE std::uint64_t packet_words() const { return self().sizes.packet_bytes / 2 / sizeof(std::uint64_t); }
    /// Where rank `from` writes the first word of this call to rank `to`.
    COLLS_DEVICE std::uint64_t* first_word(int to, int from) const {
        return reinterpret_cast<std::uint64_t*>(packets_of_channel(self(), to, channel_, flag_ & 1u)) + from;
    }
    /// The packets to rank `to` that are number `i` of a round and port.
    COLLS_DEVICE_CALLED static packet* transfer(
        G g, int channel, std::uint32_t flag, int round, int to, int port, int i) {
        const block_state& state = g.state();
        const kernel_call& call = state.call;
        const std::int32_t first = call.transfers[round],
                           most = (call.transfers[round + 1] - first) / state.schedule.ports;
        return reinterpret_cast<packet*>(packets_of_channel(state.self, to, channel, flag & 1u) +
                                         workspace_layout::first_words_bytes(state.self.sizes.ranks)) +
               static_cast<std::uint64_t>(first + port * most + i) * (call.chunk * sizeof(T) / 8);
    }
    COLLS_DEVICE packet* transfer(int to, int port, int i) const {
        return transfer(g_, channel_, flag_, round_, to, port, i);
    }

    // Data.

    struct operands {
        const operand* x;
        const std::int32_t* senders;
        COLLS_DEVICE int sender(int o) const { return senders[o]; }
        COLLS_DEVICE const packet* packets(int o) const { return static_cast<const packet*>(x[o].data); }
        COLLS_DEVICE const T* own(int o) const { return static_cast<const T*>(x[o].data); }
        COLLS_DEVICE bool is_raw(int o) const { return x[o].raw != 0; }
    };
    /// Folds the operands of a pass into its elements. False: the rank has given up.
    template <class To, class Operator, class E>
    COLLS_DEVICE bool fold(const team<G>& t, const memory_pass& o, const operands& x,
        const element_operations<T, To, Operator, E>& element, std::uint64_t first) {
        To* const to = reinterpret_cast<To*>(o.to);
        const packet* const idle = reinterpret_cast<const packet*>(first_word(me_rank(), 0));
        return moves::template fold<moves::at_once>(t, o.operands, o.count, idle, element, x,
            [&](std::uint32_t u, const auto& all, std::uint64_t here) {
                for (std::uint64_t e = 0; e < here; ++e)
                    to[u * elements + e] = element.write(all[e], first + u * elements + e);
            });
    }

    COLLS_DEVICE bool run_pass(const team<G>& t, const memory_pass& o, const operand* x, const std::int32_t* senders) {
        if constexpr (!is_plain)
            if (o.is_result != 0)
                return fold(
                    t, o, {x, senders}, element_operations<T, D, Op, Epilogue>{op_, epilogue_, o.ranks}, o.index);
        if (!reduces(what) || (o.operands == 1 && o.ranks == 0)) {
            if (senders[0] != none)
                return take(t, reinterpret_cast<T*>(o.to), static_cast<const packet*>(x[0].data), senders[0], o.count);
            if (x[0].data != o.to || (has_leaves && x[0].raw != 0))
                give(t, static_cast<const T*>(x[0].data), x[0].raw != 0, o.count,
                    [&](std::uint32_t u, const auto& v, std::uint64_t here) {
                        if (phase_ == phase::send)
                            this->send(reinterpret_cast<packet*>(o.to) + u * packets, v);
                        else
                            this->store(reinterpret_cast<T*>(o.to) + u * elements, v, here);
                    });
            return true;
        }
        if constexpr (reduces(what)) {
            const no_epilogue no{};
            return fold(t, o, {x, senders}, element_operations<T, T, Op, no_epilogue>{op_, no, o.ranks}, 0);
        }
        return true;
    }

    // Control: which passes are next.

    /// Of a round: send, then receive. At the end: deliver writes results that are not in the output yet.
    enum class phase : int { send, receive, deliver };

    COLLS_DEVICE void start() {
        channel_state& own = channel_of(self(), me_rank(), channel_);
        const bool failed_before = is_poisoned(g_);
        flag_ = flag_after(own.packet_calls);
        if (g_.index() == 0) {
            schedule_facts& facts = state().schedule;
            facts.shift = rooted(what) ? call().root - root_of(s_, n()) : 0;
            facts.me = rooted(what) ? mod(me_rank() - facts.shift, n()) : me_rank();
            facts.rounds = s_.rounds(n());
            facts.ports = ports_of(s_, n());
            facts.passes = slots::passes_at_once(facts.ports);
            facts.blocks = divided(call().count, static_cast<std::uint64_t>(call().user_blocks));
            state().buffers[facts.me] = {call().in, call().out};
        }
        failed_ = g_.any(failed_before);
        if (failed_) return;
        if (g_.index() == 0) own.packet_calls = flag_;
        COLLS_ROLLED
        for (int r = g_.index(); r < n(); r += g_.size())
            g_.put(first_word(r, me_rank()), flagged(flag_, short_fingerprint(call())));
        begin_round();
    }
    COLLS_DEVICE void begin(phase p) {
        phase_ = p;
        next_ = 0;
    }
    /// Looks up what this rank sends and receives in the round.
    COLLS_DEVICE void begin_round() {
        COLLS_ROLLED
        for (int p = g_.index(); p < ports(); p += g_.size()) {
            const step mine = step_at(s_, me(), n(), round_, p);
            const int from = mine.recv.peer;
            arrival& in = state().arrivals[p];
            in = {from, mine.recv.action, {}, {}};
            if (from != none) in.to = mine.recv.blocks;
            state().departures[p] = mine.send.peer == none ? block_set{} : mine.send.blocks;
            state().receivers[0][p] = mine.send.peer;
        }
        failed_ = g_.any(failed_here_);
        begin(phase::send);
    }

    /// How many slots this phase goes through.
    COLLS_DEVICE int all() const {
        if (phase_ != phase::deliver) return slots::carried(g_, phase_ == phase::send);
        return slots::delivers(g_) ? call().width : 0;
    }
    /// Prepares the next batch of passes in the block's state; false: the call is over, or has failed.
    COLLS_DEVICE bool next_batch() {
        COLLS_ROLLED
        while (!failed_) {
            const int left = next_ == 0 ? all() : state().batches[parity_].left;
            if (left > 0) {
                parity_ ^= 1u;
                const bool receives = phase_ == phase::receive;
                const int made = slots::prepare(
                    g_, parity_, left, 2 * elements, receives, receives, failed_here_, [this](int b) { describe(b); },
                    [this](int b, int p, int at) { place(b, p, at); });
                next_ += made;
                failed_ = made == 0;
                return !failed_;
            }
            if (!advance()) return false;
        }
        return false;
    }
    /// Goes on to the next phase; false: the call is over, or has failed.
    COLLS_DEVICE bool advance() {
        // A phase that has prepared no pass has had no barrier: threads may be looking for its first one.
        if (next_ == 0 || phase_ == phase::deliver) failed_ = g_.any(failed_here_);
        if (failed_ || phase_ == phase::deliver) return false;
        if (phase_ == phase::send) {
            // While the first packets are under way. No rank sends in the next call but one before all have come here
            // in the next one, so its packets are not overwritten before they are read.
            if (round_ == 0)
                failed_ = g_.any(failed_here_ || !compare_calls(g_, channel_, flag_,
                                                     [this](int r) { return first_word(me_rank(), r); }));
            begin(phase::receive);
        } else if (++round_ < rounds()) {
            begin_round();
        } else {
            begin(phase::deliver);
        }
        return !failed_;
    }

    /// Is there anything to do for this slot in this phase?
    COLLS_DEVICE bool is_needed(const slot_info& s) const {
        if (s.data.block == none) return false;
        return phase_ != phase::deliver || slots::is_to_deliver(g_, s);
    }
    COLLS_DEVICE void describe(int b) {
        memory_pass& o = state().passes[parity_][b];
        const bool sends = phase_ == phase::send, receives = phase_ == phase::receive;
        o.slot = next_ + b;
        if (phase_ != phase::deliver) slots::set_block(g_, o, sends, next_ + b);
        const slot_info& s = info(g_, me(), o.slot);
        o.is_needed = is_needed(s);
        if (o.is_needed == 0) return;
        const extent span = span_of(s);
        o.skip = span.first;
        o.count = static_cast<std::uint32_t>(span.count);  // a slot's elements fit 32 bits
        o.ranks = o.is_result = o.folds_own = 0;
        if (sends) {
            o.to = reinterpret_cast<std::byte*>(transfer(rank_of(g_, state().receivers[0][o.port]), o.port, o.at));
            return;
        }
        const bool is_result = !receives || s.result_round == round_;
        const location to =
            is_result || lives_in_output(g_, me(), s) ? output(call().out, s) : scratch(g_, channel_, me(), o.slot, s);
        o.index = first_element(g_, to, s.parts, span.first);
        o.to = const_cast<std::byte*>(to.base) + o.index * (is_result ? sizeof(D) : sizeof(T));
        o.ranks = (receives ? s.complete_round == round_ : reduces(what) && n() == 1) ? n() : 0;
        o.is_result = is_result;
        o.folds_own = receives && slots::folds_own(g_, s, o.port, round_);
    }
    COLLS_DEVICE void place(int b, int p, int at) {
        const memory_pass& o = state().passes[parity_][b];
        const int place = b * (ports() + 1) + at;
        if (phase_ == phase::receive && p != ports()) {
            const int i = ports() == 1 ? o.at : state().matches[b * ports() + p];
            state().operands[parity_][place] = {transfer(me_rank(), p, i), 0};
            state().senders[parity_][place] = rank_of(g_, state().arrivals[p].peer);
        } else {
            state().operands[parity_][place] = own_slot(o.slot, o.skip);
            state().senders[parity_][place] = none;
        }
    }
    /// A slot of this rank as it was at the start of the round; at the end, as it is.
    COLLS_DEVICE operand own_slot(int slot, std::uint64_t skip) const {
        const slot_info& s = info(g_, me(), slot);
        const bool raw = round_ <= s.first_receive;
        const location at = raw                            ? input(call().in, s)
                            : lives_in_output(g_, me(), s) ? output(call().out, s)
                                                           : scratch(g_, channel_, me(), slot, s);
        return {at.base + first_element(g_, at, s.parts, skip) * sizeof(T), raw};
    }

    const Schedule& s_;
    const Epilogue& epilogue_;
    int next_ = 0;  // of this phase's slots: the next batch's first
    unsigned parity_ = 0;
    phase phase_ = phase::send;
    int failed_ = false, failed_here_ = false;  // of the block, as of its last barrier; of this thread
};

/// Runs the call that load_call has set by packets, by the block of one channel; all threads call. The call has one
/// chunk, and its transfers fit workspace_layout::packet_bytes. False: the rank has given up.
template <class T, class D, class Schedule, class Op, class Epilogue, class G>
    requires thread_group<G>
COLLS_DEVICE bool run_by_packets(const G& g, int channel, const Schedule& s, const Op& op, const Epilogue& epilogue) {
    return packet_executor<Schedule, T, D, Op, Epilogue, G>(g, channel, s, op, epilogue).run();
}

}  // namespace colls::inline v1::cuda::detail
