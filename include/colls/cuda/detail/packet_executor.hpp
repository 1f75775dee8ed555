// Runs a schedule in a kernel by packets, for calls between small and large: data is pushed, with its flags.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// A packet is 16 bytes, moved by one store and one load: two words that hold data and flag each (flagged_words.hpp). No
// fence and no counter orders anything between ranks. In the memory model of PTX a store or load of a vector is one of
// each of its elements, in any order; each word is such an element, and is checked by its own flag. So nothing is
// assumed of the order of the two words, nor of the packets.
//
// Whatever a rank receives in a round and port has packets of its own in the receiver's workspace, so that no send
// waits. A round has two steps: all sends, of slots as they are at its start; then all receives, which fold packets
// with own slots and write to own slots. The block's barrier is between them. Ranks read nothing of another rank's
// memory, so nothing has to be staged, and a call ends without another meeting.
#pragma once

#include <colls/cuda/detail/flagged_words.hpp>
#include <colls/cuda/detail/schedule_slots.hpp>

namespace colls::inline v1::cuda::detail {

/// One call of one block. T: elements of the input; D: of the output (another type only through an epilogue).
template <class Schedule, class T, class D, class Op, class Epilogue, class G>
class packet_executor : schedule_slots<Schedule, T, D, Op, Epilogue, G> {
    using slots = schedule_slots<Schedule, T, D, Op, Epilogue, G>;

public:
    COLLS_DEVICE packet_executor(const G& g, int channel, const Schedule& s, const Op& op, const Epilogue& epilogue)
        : g_(g), s_(s), op_(op), epilogue_(epilogue), channel_(channel) {}

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

    // A unit is the least number of bytes that is whole elements and whole packets.
    static constexpr std::uint64_t bytes = common_multiple(8, sizeof(T)), packets = bytes / 8,
                                   elements = bytes / sizeof(T);
    using A = accumulator<T, Op>;
    struct values {
        alignas(bytes % 16 == 0 ? 16 : 8) unsigned char raw[bytes];
    };

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

    static constexpr std::uint64_t bytes_at_once = sizeof(T) < 8 ? 8 : alignof(T);
    COLLS_DEVICE static bool is_aligned(const void* at) {
        return reinterpret_cast<std::uintptr_t>(at) % bytes_at_once == 0;
    }
    /// A unit's elements at `from`, of which `here` are there. `is_whole`: it is aligned, and all of them are.
    template <bool is_whole>
    COLLS_DEVICE static values loaded(const T* from, std::uint64_t here) {
        values v{};
        if constexpr (is_whole) {
            __builtin_memcpy(v.raw, __builtin_assume_aligned(static_cast<const void*>(from), bytes_at_once), bytes);
        } else {
            COLLS_UNROLL
            for (std::uint64_t i = 0; i < elements; ++i)
                if (i < here) __builtin_memcpy(v.raw + i * sizeof(T), from + i, sizeof(T));
        }
        return v;
    }
    COLLS_DEVICE static void store(T* to, const values& v, std::uint64_t here) {
        if (here == elements && is_aligned(to)) {
            __builtin_memcpy(__builtin_assume_aligned(static_cast<void*>(to), bytes_at_once), v.raw, bytes);
        } else if constexpr (packets == 1) {
            std::uint64_t left;
            __builtin_memcpy(&left, v.raw, sizeof left);
            COLLS_ROLLED
            for (std::uint64_t i = 0; i < here; ++i, left >>= 8 * sizeof(T) % 64)
                __builtin_memcpy(static_cast<void*>(to + i), &left, sizeof(T));
        } else {
            COLLS_UNROLL
            for (std::uint64_t i = 0; i < elements; ++i)
                if (i < here) __builtin_memcpy(static_cast<void*>(to + i), v.raw + i * sizeof(T), sizeof(T));
        }
    }
    /// Loads `most` units of packets, again until each of them has its flags, all at once: no load is under a
    /// condition. Rank from[j] sends those at at[j]; none: they are not needed. False: this rank has given up.
    template <std::size_t most>
    COLLS_DEVICE bool receive(values (&to)[most], const packet* const (&at)[most], const int (&from)[most]) {
        packet got[most][packets];
        backoff<G> pauses;
        for (;;) {
            int missing = none;
            COLLS_UNROLL
            for (int j = 0; j < int{most}; ++j)
                for (std::uint64_t i = 0; i < packets; ++i) got[j][i] = g_.relaxed(at[j] + i);
            COLLS_UNROLL
            for (int j = 0; j < int{most}; ++j)
                for (std::uint64_t i = 0; i < packets; ++i)
                    if (!has_flag(got[j][i].word[0], flag_) || !has_flag(got[j][i].word[1], flag_))
                        missing = from[j] == none ? missing : from[j];
            if (missing == none) break;
            if (!pauses.pause(g_, channel_, missing, round_)) return false;
        }
        COLLS_UNROLL
        for (int j = 0; j < int{most}; ++j) {
            std::uint32_t data[2 * packets];
            for (std::uint64_t i = 0; i < packets; ++i) {
                data[2 * i] = static_cast<std::uint32_t>(got[j][i].word[0]);
                data[2 * i + 1] = static_cast<std::uint32_t>(got[j][i].word[1]);
            }
            __builtin_memcpy(to[j].raw, data, sizeof data);
        }
        return true;
    }

    /// Units of `count` elements that a thread works on at once: number j is at(j), `threads` behind the one before,
    /// as far as they are before `end`. In place of one that is not there stands the first.
    struct thread_units {
        std::uint32_t u, threads, end, count;
        COLLS_DEVICE bool has(int j) const { return u + static_cast<std::uint32_t>(j) * threads < end; }
        COLLS_DEVICE std::uint32_t at(int j) const { return has(j) ? u + static_cast<std::uint32_t>(j) * threads : u; }
        COLLS_DEVICE std::uint64_t here(int j) const {
            const std::uint64_t left = count - at(j) * elements;
            return left < elements ? left : elements;
        }
    };
    /// Copies packets of rank `sender` to elements. False: the rank has given up.
    COLLS_DEVICE bool take(const team<G>& t, T* to, const packet* from, int sender, std::uint32_t count) {
        constexpr int most = packets > 2 ? 1 : elements > 4 ? 2 : 4;
        const auto threads = static_cast<std::uint32_t>(t.size()), units = units_of(count);
        COLLS_ROLLED
        for (auto u = static_cast<std::uint32_t>(t.index()); u < units; u += most * threads) {
            const thread_units mine{u, threads, units, count};
            values v[std::size_t{most}];
            const packet* at[std::size_t{most}];
            int senders[std::size_t{most}];
            COLLS_UNROLL
            for (int j = 0; j < most; ++j) {
                at[j] = from + mine.at(j) * packets;
                senders[j] = sender;
            }
            if (!receive(v, at, senders)) return false;
            COLLS_UNROLL
            for (int j = 0; j < most; ++j)
                if (mine.has(j)) store(to + mine.at(j) * elements, v[j], mine.here(j));
        }
        return true;
    }
    /// Copies own elements to packets, where it sends, else to elements; `raw`: as this rank contributes them.
    COLLS_DEVICE void give(const team<G>& t, bool sends, std::byte* to, const T* from, bool raw, std::uint32_t count) {
        const std::uint32_t whole = is_aligned(from) ? count / static_cast<std::uint32_t>(elements) : 0;
        give_units<packets == 1 ? 4 : 1, true>(t, sends, to, from, raw, 0, whole, count);
        give_units<1, false>(t, sends, to, from, raw, whole, units_of(count), count);
    }
    /// Units [first, end) of them. `are_whole`: they are aligned, and all elements are there.
    template <int most, bool are_whole>
    COLLS_DEVICE void give_units(const team<G>& t, bool sends, std::byte* to, const T* from, bool raw,
        std::uint32_t first, std::uint32_t end, std::uint32_t count) {
        const auto threads = static_cast<std::uint32_t>(t.size());
        COLLS_ROLLED
        for (std::uint32_t u = first + static_cast<std::uint32_t>(t.index()); u < end; u += most * threads) {
            const thread_units mine{u, threads, end, count};
            values v[std::size_t{most}];
            COLLS_UNROLL
            for (int j = 0; j < most; ++j) v[j] = loaded<are_whole>(from + mine.at(j) * elements, mine.here(j));
            if constexpr (has_leaves)
                if (raw) {
                    const no_epilogue no{};
                    const element_operations<T, T, Op, no_epilogue> element{op_, no, 0};
                    COLLS_UNROLL
                    for (int j = 0; j < most; ++j)
                        for (std::uint64_t e = 0; e < elements; ++e) {
                            T y;
                            __builtin_memcpy(&y, v[j].raw + e * sizeof(T), sizeof(T));
                            y = converted<T>(element.read(y, true));
                            __builtin_memcpy(v[j].raw + e * sizeof(T), &y, sizeof(T));
                        }
                }
            COLLS_UNROLL
            for (int j = 0; j < most; ++j) {
                if (!mine.has(j)) continue;
                if (!sends) {
                    store(reinterpret_cast<T*>(to) + mine.at(j) * elements, v[j], mine.here(j));
                    continue;
                }
                std::uint32_t data[2 * packets];
                __builtin_memcpy(data, v[j].raw, sizeof data);
                for (std::uint64_t i = 0; i < packets; ++i)
                    g_.put(reinterpret_cast<packet*>(to) + mine.at(j) * packets + i,
                        packet{flagged(flag_, data[2 * i]), flagged(flag_, data[2 * i + 1])});
            }
        }
    }
    COLLS_DEVICE static std::uint32_t units_of(std::uint32_t count) {
        return static_cast<std::uint32_t>((count + elements - 1) / elements);
    }

    /// Folds k operands, packets of senders[j] or own elements where that is none, into the elements at `to`. Loads
    /// packets of several operands at once. False: the rank has given up.
    template <class To, class Operator, class E>
    COLLS_DEVICE bool fold(const team<G>& t, std::byte* to, const operand* x, const std::int32_t* senders, int k,
        std::uint32_t count, const element_operations<T, To, Operator, E>& element, std::uint64_t first) {
        constexpr int most = packets > 2 ? 1 : elements > 4 ? 2 : 4;
        // Loaded in place of packets that are not needed.
        const packet* const idle = reinterpret_cast<const packet*>(first_word(me_rank(), 0));
        const std::uint32_t units = units_of(count);
        COLLS_ROLLED
        for (auto u = static_cast<std::uint32_t>(t.index()); u < units; u += static_cast<std::uint32_t>(t.size())) {
            const std::uint64_t left = count - u * elements, here = left < elements ? left : elements;
            accumulator<T, Operator> all[elements]{};
            COLLS_ROLLED
            for (int o = 0; o < k; o += most) {
                int own = none, from[std::size_t{most}];
                const packet* at[std::size_t{most}];
                values v{}, got[std::size_t{most}];
                COLLS_UNROLL
                for (int j = 0; j < most; ++j) {
                    const bool is_there = o + j < k;
                    from[j] = is_there ? senders[o + j] : none;
                    at[j] = from[j] == none ? idle : static_cast<const packet*>(x[o + j].data) + u * packets;
                    if (is_there && from[j] == none) own = o + j;
                }
                if (own != none) v = loaded<false>(static_cast<const T*>(x[own].data) + u * elements, here);
                if (!receive(got, at, from)) return false;
                COLLS_UNROLL
                for (int j = 0; j < most; ++j) {
                    if (o + j >= k) continue;
                    const values one = o + j == own ? v : got[j];
                    for (std::uint64_t e = 0; e < elements; ++e) {
                        T y;
                        __builtin_memcpy(&y, one.raw + e * sizeof(T), sizeof(T));
                        const auto a = element.read(y, x[o + j].raw != 0);
                        all[e] = o + j == 0 ? a : element.combine(all[e], a);
                    }
                }
            }
            for (std::uint64_t e = 0; e < here; ++e)
                reinterpret_cast<To*>(to)[u * elements + e] = element.write(all[e], first + u * elements + e);
        }
        return true;
    }

    static constexpr bool has_leaves = reduces(what) && has_leaf<Op, A>;

    COLLS_DEVICE bool run_pass(const team<G>& t, const memory_pass& o, const operand* x, const std::int32_t* senders) {
        if constexpr (!is_plain)
            if (o.is_result != 0)
                return fold(t, o.to, x, senders, o.operands, o.count,
                    element_operations<T, D, Op, Epilogue>{op_, epilogue_, o.ranks}, o.index);
        if (!reduces(what) || (o.operands == 1 && o.ranks == 0)) {
            if (senders[0] != none)
                return take(t, reinterpret_cast<T*>(o.to), static_cast<const packet*>(x[0].data), senders[0], o.count);
            if (x[0].data != o.to || (has_leaves && x[0].raw != 0))
                give(t, phase_ == phase::send, o.to, static_cast<const T*>(x[0].data), x[0].raw != 0, o.count);
            return true;
        }
        if constexpr (reduces(what)) {
            const no_epilogue no{};
            return fold(t, o.to, x, senders, o.operands, o.count,
                element_operations<T, T, Op, no_epilogue>{op_, no, o.ranks}, 0);
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

    mutable G g_;
    const Schedule& s_;
    const Op& op_;
    const Epilogue& epilogue_;
    const int channel_;
    int round_ = 0;
    int next_ = 0;  // of this phase's slots: the next batch's first
    unsigned parity_ = 0;
    phase phase_ = phase::send;
    int failed_ = false, failed_here_ = false;  // of the block, as of its last barrier; of this thread
    std::uint32_t flag_ = 0;
};

/// Runs the call that load_call has set by packets, by the block of one channel; all threads call. The call has one
/// chunk, and its transfers fit workspace_layout::packet_bytes. False: the rank has given up.
template <class T, class D, class Schedule, class Op, class Epilogue, class G>
    requires thread_group<G>
COLLS_DEVICE bool run_by_packets(const G& g, int channel, const Schedule& s, const Op& op, const Epilogue& epilogue) {
    return packet_executor<Schedule, T, D, Op, Epilogue, G>(g, channel, s, op, epilogue).run();
}

}  // namespace colls::inline v1::cuda::detail
