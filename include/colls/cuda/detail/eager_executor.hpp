// The eager path of kernels, for small messages: one hop, whatever the schedule.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// Each rank writes into its eager slot at each other rank what that rank needs of its data, in words that hold data and
// flag: see flagged_words.hpp. Results are folded in rank order.
#pragma once

#include <colls/cuda/detail/flagged_words.hpp>
#include <colls/cuda/detail/partition.hpp>

namespace colls::inline v1::cuda::detail {

/// One eager call of one block. T: elements of the input; D: of the output (another type only through an epilogue).
template <collective what, class T, class D, class Op, class Epilogue, class G>
class eager_executor {
public:
    COLLS_DEVICE eager_executor(const G& g, int channel, const Op& op, const Epilogue& epilogue)
        : g_(g), op_(op), epilogue_(epilogue), channel_(channel), n_(self().sizes.ranks) {}

    /// False: the rank has given up, and the host learns why from the report.
    COLLS_DEVICE bool run() {
        channel_state& own = channel_of(self(), self().rank, channel_);
        const bool failed_before = is_poisoned(g_);
        flag_ = flag_after(own.eager_calls);
        if (g_.any(failed_before)) return false;
        if (g_.index() == 0) own.eager_calls = flag_;
        COLLS_ROLLED
        for (int i = 0; i < n_; ++i) send((self().rank + i) % n_);
        if (g_.any(false)) return false;  // in place: all input is sent before any result is written
        const bool ok = receive() && compare_calls(g_, channel_, flag_, [this](int from) { return slot_from(from); });
        if (g_.any(!ok)) return false;
        // Behind the barrier the block's state may be that of the next call already, unless this one has another.
        if (is_near_wraparound(flag_))
            clear_before_wraparound(g_, flag_, eager_slot_of(self(), self().rank, channel_, 0, flag_ & 1u),
                self().sizes.eager_bytes_of_channel() / 2 / sizeof(std::uint64_t));
        return true;
    }

private:
    COLLS_DEVICE const rank_handle& self() const { return g_.state().self; }
    COLLS_DEVICE const kernel_call& call() const { return g_.state().call; }

    static constexpr collective_traits is = traits_of(what);
    // A unit is the least number of bytes that is whole elements and whole words.
    static constexpr std::uint64_t bytes = common_multiple(4, sizeof(T)), words = bytes / 4,
                                   elements = bytes / sizeof(T);
    using A = accumulator<T, Op>;
    struct unit {
        std::uint32_t word[words];
    };
    struct values {
        unsigned char raw[bytes];
    };

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
        return sliced({0, call().count});
    }
    /// Index in this rank's output of what `from` sends.
    COLLS_DEVICE std::uint64_t output_index(int from) const {
        if constexpr (is.out == content::own_block)
            return sliced(user_block(self().rank)).first - user_block(self().rank).first;
        if constexpr (is.out == content::all_blocks) return sliced(user_block(from)).first;
        return sliced({0, call().count}).first;
    }

    COLLS_DEVICE void send(int to) {
        std::uint64_t* const slot = eager_slot_of(self(), to, channel_, self().rank, flag_ & 1u);
        if (g_.index() == 0) g_.put(slot, flagged(flag_, short_fingerprint(call())));
        const extent e = message(self().rank, to);
        const T* const from = reinterpret_cast<const T*>(call().in) + e.first;
        COLLS_ROLLED
        for (std::uint64_t u = index(); u * elements < e.count; u += threads()) {
            const std::uint64_t left = e.count - u * elements, here = left < elements ? left : elements;
            values v{};
            COLLS_UNROLL
            for (std::uint64_t i = 0; i < elements; ++i)
                if (i < here) {
                    if constexpr (reduces(what) && has_leaf<Op, A>) {
                        const no_epilogue no{};
                        const element_operations<T, T, Op, no_epilogue> element{op_, no, 0};
                        const T x = converted<T>(element.read(from[u * elements + i], true));
                        __builtin_memcpy(v.raw + i * sizeof(T), &x, sizeof(T));
                    } else {
                        __builtin_memcpy(v.raw + i * sizeof(T), from + u * elements + i, sizeof(T));
                    }
                }
            const unit w = __builtin_bit_cast(unit, v);
            for (std::uint64_t i = 0; i < words; ++i) g_.put(slot + 1 + u * words + i, flagged(flag_, w.word[i]));
        }
    }
    COLLS_DEVICE const std::uint64_t* slot_from(int from) const {
        return eager_slot_of(self(), self().rank, channel_, from, flag_ & 1u);
    }

    /// Receives from all ranks and writes the result.
    COLLS_DEVICE bool receive() {
        if constexpr (reduces(what)) {
            const int end = what == collective::inclusive_scan   ? self().rank + 1
                            : what == collective::exclusive_scan ? self().rank
                                                                 : n_;
            return end == 0 || fold(0, end, message(0, self().rank).count, end == n_ ? n_ : 0);
        } else {
            COLLS_ROLLED
            for (int r = 0; r < n_; ++r)
                if (!fold(r, r + 1, message(r, self().rank).count, 0)) return false;
            return true;
        }
    }
    /// Folds what ranks [first, end) sent, `count` elements each. `complete`: see memory_pass::ranks. Loads words of
    /// several ranks before it waits for any of them.
    COLLS_DEVICE bool fold(int first, int end, std::uint64_t count, int complete) {
        constexpr int most = words <= 4 ? static_cast<int>(8 / words) : 1;
        const element_operations<T, D, Op, Epilogue> element{op_, epilogue_, complete};
        const std::uint64_t to = output_index(first);
        COLLS_ROLLED
        for (std::uint64_t u = index(); u * elements < count; u += threads()) {
            const std::uint64_t left = count - u * elements, here = left < elements ? left : elements;
            A all[elements]{};
            COLLS_ROLLED
            for (int from = first; from < end; from += most) {
                std::uint64_t got[std::size_t{most}][words];
                COLLS_UNROLL
                for (int j = 0; j < most; ++j)
                    if (from + j < end)
                        for (std::uint64_t i = 0; i < words; ++i)
                            got[j][i] = g_.relaxed(slot_from(from + j) + 1 + u * words + i);
                COLLS_UNROLL
                for (int j = 0; j < most; ++j) {
                    if (from + j >= end) continue;
                    unit w;
                    for (std::uint64_t i = 0; i < words; ++i) {
                        if (!wait_for_word(
                                g_, channel_, from + j, flag_, slot_from(from + j) + 1 + u * words + i, got[j][i]))
                            return false;
                        w.word[i] = static_cast<std::uint32_t>(got[j][i]);
                    }
                    const values v = __builtin_bit_cast(values, w);
                    for (std::uint64_t e = 0; e < elements; ++e) {
                        T x;
                        __builtin_memcpy(&x, v.raw + e * sizeof(T), sizeof(T));
                        const A one = element.read(x, false);
                        all[e] = from + j == first ? one : element.combine(all[e], one);
                    }
                }
            }
            for (std::uint64_t e = 0; e < here; ++e) {
                const std::uint64_t at = to + u * elements + e;
                reinterpret_cast<D*>(call().out)[at] = element.write(all[e], at);
            }
        }
        return true;
    }

    COLLS_DEVICE std::uint64_t index() const { return static_cast<std::uint64_t>(g_.index()); }
    COLLS_DEVICE std::uint64_t threads() const { return static_cast<std::uint64_t>(g_.size()); }

    mutable G g_;
    const Op& op_;
    const Epilogue& epilogue_;
    const int channel_, n_;
    std::uint32_t flag_ = 0;
};

/// Runs the call that load_call has set on the eager path, by the block of one channel; all threads call. A channel's
/// longest message must fit workspace_layout::eager_bytes. False: the rank has given up.
template <collective what, class T, class D, class Op, class Epilogue, class G>
    requires thread_group<G>
COLLS_DEVICE bool run_eager(const G& g, int channel, const Op& op, const Epilogue& epilogue) {
    return eager_executor<what, T, D, Op, Epilogue, G>(g, channel, op, epilogue).run();
}

}  // namespace colls::inline v1::cuda::detail
