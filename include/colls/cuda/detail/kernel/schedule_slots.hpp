// Where the slots of a schedule lie in a rank's buffers, and which of them a pass folds: what the executors of
// schedules share.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// Passes are prepared in batches, by as many threads as they have operands, since to prepare one takes thousands of
// cycles, most of them waiting for memory. The threads that a short pass does not keep busy make another one meanwhile.
#pragma once

#include <colls/cuda/detail/kernel/block_state.hpp>
#include <colls/cuda/detail/kernel/partition.hpp>

namespace colls::inline v1::cuda::detail {

// The same functions of partition.hpp and schedule.hpp, not inlined.
COLLS_DEVICE_CALLED inline extent cut_of(
    std::uint64_t count, std::uint64_t slices, std::uint64_t i, std::uint64_t chunk, std::uint64_t c) {
    return cut(count, slices, i, chunk, c);
}
COLLS_DEVICE_CALLED inline int element_of(const block_set& blocks, int i) {
    // Without divisions for the first one, since a round of a ring has no other.
    int at = blocks.first, in_rep = 0;
    if (i != 0) {
        const auto u = [](int x) { return static_cast<unsigned>(x); };
        const unsigned each = u(blocks.count) * u(blocks.grain), rep = u(i) / each, of_rep = u(i) - rep * each,
                       e = of_rep / u(blocks.grain), run = e / u(blocks.run);
        at += static_cast<int>(run) * blocks.period + static_cast<int>((e - run * u(blocks.run)) * u(blocks.grain));
        in_rep = static_cast<int>(of_rep - e * u(blocks.grain)) + static_cast<int>(rep) * blocks.stride;
    }
    if (blocks.modulus > 0 && (at < 0 || at >= blocks.modulus)) at = mod(at, blocks.modulus);
    return blocks.base + at + in_rep;
}
template <class S>
COLLS_DEVICE_CALLED step step_at(const S& s, int rank, int n, int round, int port) {
    return step_of(s, rank, n, round, port);
}

/// Functions only, without an object: one whose address a function takes is kept in memory, and not in registers. T:
/// elements of the input; D: of the output; G: the thread group.
template <class Schedule, class T, class D, class Op, class Epilogue, class G>
class schedule_slots {
protected:
    static constexpr collective what = implemented_by<Schedule>;
    static constexpr bool is_plain = std::is_same_v<Epilogue, no_epilogue> && std::is_same_v<T, D>;
    static constexpr bool input_is_own_block = traits_of(what).in == content::own_block;
    static constexpr bool output_is_own_block = traits_of(what).out == content::own_block;
    static constexpr bool output_is_readable = is_plain && what != collective::all_to_all;

    // Rooted schedules are written for root 0: a role is a rank relative to the root.
    COLLS_DEVICE static int rank_of(G& g, int role) {
        return rooted(what) ? mod(role + g.state().schedule.shift, g.state().self.sizes.ranks) : role;
    }
    COLLS_DEVICE static const slot_info& info(G& g, int role, int slot) {
        return g.state().schedule.slots[role * g.state().call.width + slot];
    }

    /// The buffers of a role on this host.
    COLLS_DEVICE static peer_buffers& buffers_of(G& g, int role) {
        const rank_handle& self = g.state().self;
        return g.state().buffers[self.far.base == nullptr ? role : place_of(self, rank_of(g, role))];
    }

    // Locations of slots.

    COLLS_DEVICE static extent unit(G& g, const block_part& p, int parts) {
        const kernel_call& call = g.state().call;
        return unit_of(g.state().schedule.blocks, call.offsets,
            owned(what) && rooted(what) ? rank_of(g, p.block) : p.block, p.part, parts);
    }
    /// The part of a slot that a channel works on in a chunk, relative to the slot's unit.
    COLLS_DEVICE_CALLED static extent span_of(G g, const slot_info& s, int channel, std::uint32_t chunk) {
        const kernel_call& call = g.state().call;
        return cut_of(unit(g, s.data, s.parts).count, static_cast<std::uint64_t>(call.channels),
            slice_of(call, channel), call.chunk, chunk);
    }
    /// A buffer that holds all user blocks, one that holds the rank's own block only, or a scratch slot, which begins
    /// at the alignment that the data has in the user's buffer.
    enum class buffer_kind : unsigned char { all_blocks, own_block, scratch_slot };
    struct location {
        const std::byte* base;
        block_part data;
        buffer_kind kind;
    };
    COLLS_DEVICE_CALLED static std::uint64_t first_element(G g, location at, int parts, std::uint64_t skip) {
        const std::uint64_t first = unit(g, at.data, parts).first;
        if (at.kind == buffer_kind::scratch_slot) return first % quantum;
        return first + skip - (at.kind == buffer_kind::own_block ? unit(g, {at.data.block, 0}, 1).first : 0);
    }
    COLLS_DEVICE static location input(const std::byte* buffer, const slot_info& s) {
        return {buffer, s.in, input_is_own_block ? buffer_kind::own_block : buffer_kind::all_blocks};
    }
    COLLS_DEVICE static location output(const std::byte* buffer, const slot_info& s) {
        return {buffer, s.out, output_is_own_block ? buffer_kind::own_block : buffer_kind::all_blocks};
    }
    COLLS_DEVICE_CALLED static location scratch(G g, int channel, int role, int slot, const slot_info& s) {
        const block_state& state = g.state();
        return {scratch_of_channel(state.self, rank_of(g, role), channel) +
                    static_cast<std::uint64_t>(slot) * slot_bytes(state.call.chunk, sizeof(T)),
            s.data, buffer_kind::scratch_slot};
    }
    /// From its first receive on, the slot is in the output, where others can read it; else in scratch memory.
    COLLS_DEVICE static bool lives_in_output(G& g, int role, const slot_info& s) {
        return output_is_readable && s.out.block != none && buffers_of(g, role).out != nullptr;
    }
    /// Can a result be elsewhere than in the output at the end?
    COLLS_DEVICE static bool delivers(G& g) {
        const block_state& state = g.state();
        return !output_is_readable || state.call.keeps_input != 0 || buffers_of(g, state.schedule.me).out == nullptr;
    }

    /// Is the result of this rank's slot elsewhere than in the output at the end?
    COLLS_DEVICE static bool is_to_deliver(G& g, const slot_info& s) {
        const schedule_facts& facts = g.state().schedule;
        return s.out.block != none && s.result_round == none &&
               (s.first_receive >= facts.rounds ? s.in.block != none : !lives_in_output(g, facts.me, s));
    }
    /// Is this rank's value an operand of what the port receives into the slot?
    COLLS_DEVICE static bool folds_own(G& g, const slot_info& s, int port, int round) {
        return g.state().arrivals[port].act == action::reduce && (s.in.block != none || round > s.first_receive);
    }

    // Batches.

    /// What a port receives in this round, or sends.
    COLLS_DEVICE static const block_set& blocks_of(G& g, bool sends, int port) {
        return sends ? g.state().departures[port] : g.state().arrivals[port].to;
    }
    /// How many blocks all ports carry in this round.
    COLLS_DEVICE_CALLED static int carried(G g, bool sends) {
        int all = 0;
        COLLS_ROLLED
        for (int p = 0; p < g.state().schedule.ports; ++p) all += blocks_of(g, sends, p).size();
        return all;
    }
    /// Makes a pass that of block number i of them.
    COLLS_DEVICE_CALLED static void set_block(G g, memory_pass& o, bool sends, int i) {
        int p = 0;
        COLLS_ROLLED
        for (int size; i >= (size = blocks_of(g, sends, p).size()); ++p) i -= size;
        o.slot = element_of(blocks_of(g, sends, p), i);
        o.port = p;
        o.at = i;
    }
    /// How many passes a batch has, at most.
    COLLS_DEVICE static int passes_at_once(int ports) {
        const int most = max_operands / (ports + 1);
        return most < max_passes ? most : max_passes;
    }
    /// Prepares the next passes of the `left` of a phase, by all threads; returns how many: describe(b) sets what a
    /// pass is, by the last threads; place(b, p), for each port and in place p of `ports` for the own value, an
    /// operand. `arrives`: they are of what the ports receive; the first port that receives into a slot has the pass,
    /// which does them all. `pulls`: they take it from the ports; else each has one operand.
    template <class Describe, class Place>
    COLLS_DEVICE static int prepare(G& g, unsigned parity, int left, std::uint32_t at_once, bool arrives, bool pulls,
        const Describe& describe, const Place& place) {
        const int ports = g.state().schedule.ports, most = g.state().schedule.passes, batch = left < most ? left : most;
        memory_pass* const passes = g.state().passes[parity];
        COLLS_ROLLED
        for (int b = g.size() - 1 - g.index(); b < batch; b += g.size()) describe(b);
        g.any(false);
        if (arrives && ports > 1) {
            COLLS_ROLLED
            for (int i = g.index(); i < batch * ports; i += g.size()) {
                const int b = i / ports, slot = passes[b].slot;
                const block_set& in = blocks_of(g, false, i - b * ports);
                int j = in.size();
                COLLS_ROLLED
                while (--j >= 0)
                    if (element_of(in, j) == slot) break;
                g.state().matches[i] = j;
            }
            g.any(false);
        }
        if (g.index() == g.size() - 1)
            g.state().batches[parity] = shared_among(passes, batch, left - batch, g.size(), at_once);
        // Without a way out before the end: the threads of a warp that have an operand meet at its call.
        COLLS_ROLLED
        for (int i = g.index(); i < batch * (ports + 1); i += g.size()) {
            const int b = i / (ports + 1), p = i - b * (ports + 1);
            memory_pass& o = passes[b];
            bool is_needed = o.is_needed != 0;
            if (arrives) {
                COLLS_ROLLED
                for (int other = 0; other < o.port; ++other) is_needed = is_needed && !matches(g, b, other);
            }
            place_of_operand x{p == ports ? 0 : -1, 1};
            if (pulls) x = operand_place(g, b, o.folds_own != 0, p);
            if (pulls && g.state().arrivals[o.port].act != action::reduce) x.all = 1;
            if (p == ports) o.operands = is_needed ? x.all : 0;
            if (is_needed && x.at >= 0) place(b, p, x.at);
        }
        g.any(false);
        return batch;
    }
    /// Does port p receive into the slot of pass b?
    COLLS_DEVICE static bool matches(G& g, int b, int p) {
        const int ports = g.state().schedule.ports;
        return ports == 1 || g.state().matches[b * ports + p] >= 0;
    }
    /// Shares the threads among a batch whose passes are described. `at_once`: elements that keep a thread busy.
    COLLS_DEVICE static pass_batch shared_among(
        const memory_pass* passes, int batch, int left, int threads, std::uint32_t at_once) {
        std::uint32_t longest = 0;
        COLLS_ROLLED
        for (int b = 0; b < batch && batch > 1; ++b)
            if (passes[b].is_needed != 0 && passes[b].count > longest) longest = passes[b].count;
        return {shared_out(batch, longest, threads, at_once), batch, left};
    }
    /// Calls run(b, team) for each pass of a batch that has something to do.
    template <class Run>
    COLLS_DEVICE static void run_batch(G& g, unsigned parity, const Run& run) {
        const block_state& state = g.state();
        const pass_batch& batch = state.batches[parity];
        int b = 0, first = 0;
        if (batch.teams > 1) {
            b = g.index() / batch.size;
            if (b >= batch.teams) return;
            first = b * batch.size;
        }
        const team<G> t(g, g.index() - first, batch.size);
        COLLS_ROLLED
        for (; b < batch.passes; b += batch.teams)
            if (state.passes[parity][b].operands != 0) run(b, t);
    }
    /// Any order of operands gives the same bits.
    static constexpr bool is_exact_in_any_order() {
        if constexpr (reduces(what))
            return std::is_integral_v<accumulator<T, Op>> && v1::detail::is_pure<Op>() &&
                   is_commutative<Op, accumulator<T, Op>>;
        else
            return false;
    }
    /// Where the operand of a rank is in the order of a fold: in ascending order of ranks, from this rank on where that
    /// gives the same bits, so that not all ranks read from the same one at first.
    COLLS_DEVICE static int fold_position(G& g, int rank) {
        const rank_handle& self = g.state().self;
        return !is_exact_in_any_order() ? rank : rank - self.rank + (rank < self.rank ? self.sizes.ranks : 0);
    }
    /// Where an operand of pass b is among them all, negative where it is not there; and how many they are.
    struct place_of_operand {
        int at, all;
    };
    /// The place of what port p receives, in the order of fold_position. Port `ports` stands for this rank's value,
    /// which is there if `own`, and comes after one that the rank sends to itself.
    COLLS_DEVICE_CALLED static place_of_operand operand_place(G g, int b, bool own, int p) {
        const schedule_facts& facts = g.state().schedule;
        const auto position = [&](int port) {
            return fold_position(
                g, port == facts.ports ? g.state().self.rank : rank_of(g, g.state().arrivals[port].peer));
        };
        const int mine = position(p);
        int before = 0, all = 0;
        bool is_there = false;
        COLLS_ROLLED
        for (int other = 0; other <= facts.ports; ++other) {
            if (other == facts.ports ? !own : !matches(g, b, other)) continue;
            ++all;
            is_there = is_there || other == p;
            const int there = position(other);
            before += there < mine || (there == mine && other < p);
        }
        return {is_there ? before : -1, all};
    }
};

}  // namespace colls::inline v1::cuda::detail
