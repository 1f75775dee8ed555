// Where the slots of a schedule lie in a rank's buffers, and which of them a pass folds: what the executors of
// schedules share.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/detail/cuda/block_state.hpp>
#include <colls/detail/cuda/partition.hpp>

namespace colls::inline v1::cuda::detail {

// The same functions of partition.hpp and schedule.hpp, not inlined.
COLLS_DEVICE_CALLED inline extent cut_of(
    std::uint64_t count, std::uint64_t slices, std::uint64_t i, std::uint64_t chunk, std::uint64_t c) {
    return cut(count, slices, i, chunk, c);
}
COLLS_DEVICE_CALLED inline int element_of(const block_set& blocks, int i) { return blocks[i]; }
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
    static constexpr bool input_is_own_block = what == collective::gather || what == collective::all_gather;
    static constexpr bool output_is_own_block = what == collective::scatter || what == collective::reduce_scatter;
    static constexpr bool output_is_readable = is_plain && what != collective::all_to_all;

    // Rooted schedules are written for root 0: a role is a rank relative to the root.
    COLLS_DEVICE static int rank_of(G& g, int role) {
        return rooted(what) ? mod(role + g.state().schedule.shift, g.state().self.sizes.ranks) : role;
    }
    COLLS_DEVICE static const slot_info& info(G& g, int role, int slot) {
        return g.state().call.slots[role * g.state().call.width + slot];
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
        return output_is_readable && s.out.block != none && g.state().buffers[role].out != nullptr;
    }
    /// Finds the ports that receive into the slot; false: one before `port` does, and its pass has done them all.
    COLLS_DEVICE static bool match(G& g, unsigned parity, int slot, int port) {
        std::int32_t* const found = g.state().matches[parity];
        COLLS_ROLLED
        for (int p = g.index(); p < g.state().schedule.ports; p += g.size()) {
            const arrival& in = g.state().arrivals[p];
            int j = in.peer == none ? 0 : in.to.size();
            COLLS_ROLLED
            while (--j >= 0)
                if (element_of(in.to, j) == slot) break;
            found[p] = j;
        }
        g.any(false);
        COLLS_ROLLED
        for (int p = 0; p < port; ++p)
            if (found[p] >= 0) return false;
        return true;
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
    /// Finds the operands of a slot, in the order of fold_position: what the ports that `match` has found receive, and,
    /// if `own`, this rank's value, which comes after one that it sends to itself. Calls place(at, port, role) for
    /// each, by the threads in turn: operand number `at`; port `ports` stands for the own value. Returns their number.
    template <class Place>
    COLLS_DEVICE static int place_operands(G& g, unsigned parity, bool own, const Place& place) {
        const schedule_facts& facts = g.state().schedule;
        const std::int32_t* const found = g.state().matches[parity];
        const int self = fold_position(g, rank_of(g, facts.me));
        int count = own ? 1 : 0;
        COLLS_ROLLED
        for (int p = 0; p < facts.ports; ++p) count += facts.ports == 1 || found[p] >= 0;
        COLLS_ROLLED
        for (int p = g.index(); p <= facts.ports; p += g.size()) {
            const bool is_own = p == facts.ports;
            if (is_own ? !own : facts.ports > 1 && found[p] < 0) continue;
            const int role = is_own ? facts.me : g.state().arrivals[p].peer, from = fold_position(g, rank_of(g, role));
            int at = own && !is_own && self < from ? 1 : 0;
            COLLS_ROLLED
            for (int other = 0; other < facts.ports; ++other) {
                if (other == p || (facts.ports > 1 && found[other] < 0)) continue;
                const int there = fold_position(g, rank_of(g, g.state().arrivals[other].peer));
                at += there < from || (there == from && other < p);
            }
            place(at, p, role);
        }
        return count;
    }
};

}  // namespace colls::inline v1::cuda::detail
