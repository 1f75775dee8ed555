// The eager path of kernels, for small and middle messages: one hop, whatever the schedule; of a longer all_reduce two.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// Each rank writes into its eager slot at each other rank what that rank needs of its data, by packets. Results are
// folded in rank order. In two hops rank p folds part p of the data, and writes the result into its slots again, behind
// the packets of the first hop.
#pragma once

#include <colls/cuda/detail/kernel/packet_moves.hpp>

namespace colls::inline v1::cuda::detail {

/// Does an eager all_reduce of n ranks and this many bytes take two hops? Each rank sends 2 S (n - 1) / n bytes in them
/// instead of S (n - 1), and waits once more, for as long as about 256 KB take.
constexpr bool takes_two_hops(std::uint64_t bytes, int n) {
    return n > 2 && bytes / static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>((n - 1) * (n - 2)) > 256 << 10;
}
/// Bytes that a rank sends each other one in all hops, of a call with this many in one hop.
constexpr std::uint64_t eager_message(std::uint64_t bytes, int n, int hops) {
    const auto parts = static_cast<std::uint64_t>(n);
    return hops == 1 ? bytes : divided(bytes + parts - 1, parts).whole * 2;
}
/// The room that they take in an eager slot, at most: those of each hop are whole units.
template <class T>
constexpr std::uint64_t eager_room(std::uint64_t bytes, int n, int hops) {
    return eager_message(bytes, n, hops) + static_cast<std::uint64_t>(hops) * packet_unit<T>;
}
/// The most hops that an eager call can take.
constexpr int most_hops(collective what, int n) { return what == collective::all_reduce && n > 2 ? 2 : 1; }
/// Does a rank send each other one a block of its own?
constexpr bool sends_blocks(collective what) { return owned(what) || what == collective::all_to_all; }

/// One eager call of one block. T: elements of the input; D: of the output (another type only through an epilogue).
template <collective what, class T, class D, class Op, class Epilogue, class G>
class eager_executor : packet_moves<what, T, Op, G> {
    using moves = packet_moves<what, T, Op, G>;

public:
    COLLS_DEVICE eager_executor(const G& g, int channel, const Op& op, const Epilogue& epilogue)
        : moves(g, channel, op), epilogue_(epilogue), n_(self().sizes.ranks) {}

    /// False: the rank has given up, and the host learns why from the report.
    COLLS_DEVICE bool run() {
        channel_state& own = channel_of(self(), self().rank, channel_);
        const bool failed_before = is_poisoned(g_);
        flag_ = flag_after(own.eager_calls);
        if (g_.any(failed_before)) return false;
        if (g_.index() == 0) own.eager_calls = flag_;
        COLLS_ROLLED
        for (int r = g_.index(); r < n_; r += g_.size())
            g_.put(slot(r, self().rank), flagged(flag_, short_fingerprint(call())));
        for_all_ranks([this](int to, const team<G>& t) {
            const extent e = message(self().rank, to);
            packet* const at = packets_from(to, self().rank);
            give(t, reinterpret_cast<const T*>(call().in) + e.first, has_leaves, static_cast<std::uint32_t>(e.count),
                [&](std::uint32_t u, const auto& v, std::uint64_t) { this->send(at + u * packets, v); });
        });
        if (g_.any(false)) return false;  // in place: all input is sent before any result is written
        const bool ok =
            receive() && compare_calls(g_, channel_, flag_, [this](int from) { return slot(self().rank, from); });
        if (g_.any(!ok)) return false;
        // Behind the barrier the block's state may be that of the next call already, unless this one has another.
        if (is_near_wraparound(flag_))
            clear_before_wraparound(g_, flag_, eager_slot_of(self(), self().rank, channel_, 0, flag_ & 1u),
                self().sizes.eager_bytes_of_channel() / 2 / sizeof(std::uint64_t));
        return true;
    }

private:
    using moves::g_, moves::op_, moves::channel_, moves::flag_, moves::elements, moves::packets, moves::has_leaves,
        moves::give, moves::send, moves::units_of;
    using values = typename moves::values;
    static constexpr collective_traits is = traits_of(what);
    static constexpr bool is_plain = std::is_same_v<Epilogue, no_epilogue> && std::is_same_v<T, D>;

    COLLS_DEVICE const rank_handle& self() const { return g_.state().self; }
    COLLS_DEVICE const kernel_call& call() const { return g_.state().call; }
    COLLS_DEVICE bool in_two_hops() const { return what == collective::all_reduce && call().chunks == 2; }

    /// Where `from` writes to rank `to`: its first word; its packets.
    COLLS_DEVICE std::uint64_t* slot(int to, int from) const {
        return eager_slot_of(self(), to, channel_, from, flag_ & 1u);
    }
    COLLS_DEVICE packet* packets_from(int to, int from) const { return reinterpret_cast<packet*>(slot(to, from)) + 1; }

    COLLS_DEVICE extent user_block(int b) const {
        if (call().offsets != nullptr) return {call().offsets[b], call().offsets[b + 1] - call().offsets[b]};
        return balanced(call().count, static_cast<std::uint64_t>(call().user_blocks), static_cast<std::uint64_t>(b));
    }
    /// The slice of this channel.
    COLLS_DEVICE extent sliced(const extent& e) const {
        const extent s =
            cut(e.count, static_cast<std::uint64_t>(call().channels), slice_of(call(), channel_), e.count + quantum, 0);
        return {e.first + s.first, s.count};
    }
    /// The elements of its input that `from` sends to `to`; none where `to` needs none.
    COLLS_DEVICE extent message(int from, int to) const {
        const bool needs = (!is.in_at_root || from == call().root) && (!is.out_at_root || to == call().root) &&
                           (is.result != contributors::up_to || from <= to) &&
                           (is.result != contributors::before || from < to);
        if (!needs || is.in == content::nothing) return {};
        if constexpr (is.in == content::own_block) return sliced({0, user_block(from).count});
        if constexpr (is.in == content::all_blocks) return sliced(user_block(to));
        return in_two_hops() ? part(to) : sliced({0, call().count});
    }
    /// In two hops: the part of the slice that a rank folds. Whole units, as far as they are there.
    COLLS_DEVICE extent part(int rank) const {
        const extent all = sliced({0, call().count});
        const std::uint64_t each = part_units() * elements, first = static_cast<std::uint64_t>(rank) * each,
                            left = first < all.count ? all.count - first : 0;
        return {all.first + first, left < each ? left : each};
    }
    COLLS_DEVICE std::uint32_t part_units() const {
        const auto n = static_cast<std::uint32_t>(n_);
        return (units_of(sliced({0, call().count}).count) + n - 1) / n;
    }
    /// Index in this rank's output of what `from` sends.
    COLLS_DEVICE std::uint64_t output_index(int from) const {
        if constexpr (is.out == content::own_block)
            return sliced(user_block(self().rank)).first - user_block(self().rank).first;
        if constexpr (is.out == content::all_blocks) return sliced(user_block(from)).first;
        return sliced({0, call().count}).first;
    }

    /// Calls run(rank, team) for all ranks, from this one on, each with some of the threads.
    template <class Run>
    COLLS_DEVICE void for_all_ranks(const Run& run) {
        const auto parts = static_cast<std::uint32_t>(in_two_hops() ? n_ : call().user_blocks);
        const std::uint64_t in_channel = divided(call().count, static_cast<std::uint64_t>(call().channels)).whole;
        const std::uint32_t each = static_cast<std::uint32_t>(in_channel) / parts;
        const thread_shares shares = shared_out(n_, each, g_.size(), moves::at_once * elements);
        const int mine = g_.index() / shares.size;
        if (mine >= shares.teams) return;
        const team<G> t(g_, g_.index() - mine * shares.size, shares.size);
        COLLS_ROLLED
        for (int i = mine; i < n_; i += shares.teams) run((self().rank + i) % n_, t);
    }

    /// Writes elements to the output, from element `to` on; `complete`: see memory_pass::ranks.
    template <class X>
    COLLS_DEVICE void write(std::uint64_t to, const X& all, std::uint64_t here, int complete) {
        const element_operations<T, D, Op, Epilogue> element{op_, epilogue_, complete};
        D* const out = reinterpret_cast<D*>(call().out) + to;
        if constexpr (std::is_same_v<T, D>) {
            values v{};
            for (std::uint64_t e = 0; e < elements; ++e)
                if (e < here) v.set(e, element.write(all[e], to + e));
            moves::store(out, v, here);
        } else {
            for (std::uint64_t e = 0; e < here; ++e) out[e] = element.write(all[e], to + e);
        }
    }
    /// Takes what a rank has sent to the output, from element `to` on, `ahead` units behind the beginning.
    COLLS_DEVICE bool take(const team<G>& t, int from, std::uint32_t ahead, std::uint64_t to, std::uint64_t count) {
        return moves::take(t, packets_from(self().rank, from) + ahead * packets, from,
            static_cast<std::uint32_t>(count), [&](std::uint32_t u, const values& v, std::uint64_t here) {
                if constexpr (is_plain) {
                    moves::store(reinterpret_cast<T*>(call().out) + to + u * elements, v, here);
                } else {
                    typename moves::A all[elements];
                    for (std::uint64_t e = 0; e < elements; ++e) all[e] = converted<typename moves::A>(v.element(e));
                    write(to + u * elements, all, here, 0);
                }
            });
    }
    /// Sends the result of this rank's part to all ranks.
    template <class X>
    COLLS_DEVICE void send_on(std::uint32_t u, const X& all) {
        const no_epilogue no{};
        const element_operations<T, T, Op, no_epilogue> element{op_, no, n_};
        values v;
        for (std::uint64_t e = 0; e < elements; ++e) v.set(e, element.write(all[e], 0));
        const std::uint32_t ahead = part_units();
        COLLS_ROLLED
        for (int r = 0; r < n_; ++r) send(packets_from((self().rank + r) % n_, self().rank) + (ahead + u) * packets, v);
    }

    /// Receives from all ranks and writes the result. False: this rank has given up.
    COLLS_DEVICE bool receive() {
        if constexpr (reduces(what)) {
            const int end = what == collective::inclusive_scan   ? self().rank + 1
                            : what == collective::exclusive_scan ? self().rank
                                                                 : n_;
            const std::uint64_t to = output_index(0);
            const bool twice = in_two_hops();
            if (end == 0) return true;
            const bool ok = moves::template fold<2 * moves::at_once>(
                {g_, g_.index(), g_.size()}, 0, end, static_cast<std::uint32_t>(message(0, self().rank).count),
                [this](int r) { return packets_from(self().rank, r); },
                [&](std::uint32_t u, const auto& all, std::uint64_t here) {
                    if (twice)
                        this->send_on(u, all);
                    else
                        this->write(to + u * elements, all, here, end == n_ ? n_ : 0);
                });
            if (!ok || !twice) return ok;
        }
        bool ok = true;
        if constexpr (!reduces(what) || what == collective::all_reduce)
            for_all_ranks([&](int from, const team<G>& t) {
                const extent e = message(self().rank, from);
                ok = ok && (in_two_hops() ? take(t, from, part_units(), e.first, e.count)
                                          : take(t, from, 0, output_index(from), message(from, self().rank).count));
            });
        return ok;
    }

    const Epilogue& epilogue_;
    const int n_;
};

/// Runs the call that load_call has set on the eager path, by the block of one channel; all threads call. A channel's
/// longest message must fit workspace_layout::eager_bytes. False: the rank has given up.
template <collective what, class T, class D, class Op, class Epilogue, class G>
    requires thread_group<G>
COLLS_DEVICE bool run_eager(const G& g, int channel, const Op& op, const Epilogue& epilogue) {
    return eager_executor<what, T, D, Op, Epilogue, G>(g, channel, op, epilogue).run();
}

}  // namespace colls::inline v1::cuda::detail
