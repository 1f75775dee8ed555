// Small messages: one hop, whatever the schedule. Every rank writes to every other one what that one needs of its data,
// as words of 8 bytes, half of each data, half a flag: a word that has the flag has the data. Results are folded in
// rank order. Everyone hears of everyone in each such call, by a first word that carries the fingerprint: so two the
// eager path, used in turn, are enough. Who writes a eager path again has heard of its owner in the call between, which
// that began after it had read the eager path.
#pragma once

#include <colls/detail/cuda/board.hpp>

namespace colls::inline v1::cuda::detail {

constexpr std::uint64_t common_multiple(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a, y = b;
    while (y != 0) {
        const std::uint64_t r = x % y;
        x = y;
        y = r;
    }
    return a / x * b;
}

template <collective what, class T, class D, class Op, class Epilogue, class G>
class letters {
public:
    COLLS_DEVICE letters(const G& g, int block, const Op& op, const Epilogue& epilogue)
        : g_(g), op_(op), epilogue_(epilogue), block_(block), n_(us().sizes.ranks) {}

    /// False where the rank has given up.
    COLLS_DEVICE bool run() {
        channel& own = channel_of(us(), us().rank, block_);
        const bool spoilt = poisoned(g_);
        flag_ = own.letters + 1;
        if (flag_ == 0) flag_ = 2;  // 0 is memory that was never written, and turns go on: even, odd
        if (g_.any(spoilt)) return false;
        if (g_.index() == 0) own.letters = flag_;
        COLLS_ROLLED
        for (int i = 0; i < n_; ++i) send((us().rank + i) % n_);
        if (g_.any(false)) return false;  // in place, what has not been sent must not be overwritten
        const bool ok = receive() && compare();
        if (g_.any(!ok)) return false;
        if (flag_ + 2 <= 4) begin_again();
        return true;
    }

private:
    COLLS_DEVICE const team& us() const { return g_.board().us; }
    COLLS_DEVICE const call& now() const { return g_.board().now; }

    // So many bytes are whole elements and whole words.
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
        if (now().offsets != nullptr) return {now().offsets[b], now().offsets[b + 1] - now().offsets[b]};
        return balanced(now().count, static_cast<std::uint64_t>(now().user_blocks), static_cast<std::uint64_t>(b));
    }
    COLLS_DEVICE extent sliced(const extent& e) const {
        const extent s =
            cut(e.count, static_cast<std::uint64_t>(now().blocks), slice_of(now(), block_), e.count + quantum, 0);
        return {e.first + s.first, s.count};
    }
    /// What `from` sends to `to`, in its input; nothing where `to` has no use for it.
    COLLS_DEVICE extent letter(int from, int to) const {
        const extent all{0, now().count};
        switch (what) {
            case collective::broadcast:
                return from == now().root ? sliced(all) : extent{};
            case collective::scatter:
                return from == now().root ? sliced(user_block(to)) : extent{};
            case collective::gather:
                return to == now().root ? sliced({0, user_block(from).count}) : extent{};
            case collective::all_gather:
                return sliced({0, user_block(from).count});
            case collective::reduce:
                return to == now().root ? sliced(all) : extent{};
            case collective::all_reduce:
                return sliced(all);
            case collective::reduce_scatter:
            case collective::all_to_all:
                return sliced(user_block(to));
            case collective::inclusive_scan:
                return from <= to ? sliced(all) : extent{};
            case collective::exclusive_scan:
                return from < to ? sliced(all) : extent{};
            default:
                return {};
        }
    }
    /// Where what `from` sends goes in this rank's output, as an element.
    COLLS_DEVICE std::uint64_t goal(int from) const {
        switch (what) {
            case collective::scatter:
            case collective::reduce_scatter:
                return sliced(user_block(us().rank)).first - user_block(us().rank).first;
            case collective::gather:
            case collective::all_gather:
            case collective::all_to_all:
                return sliced(user_block(from)).first;
            default:
                return sliced({0, now().count}).first;
        }
    }

    COLLS_DEVICE void send(int to) {
        std::uint64_t* const box = eager_slot_of(us(), to, block_, us().rank, flag_ & 1u);
        if (g_.index() == 0) g_.put(box, word(print()));
        const extent e = letter(us().rank, to);
        const T* const from = reinterpret_cast<const T*>(now().in) + e.first;
        COLLS_ROLLED
        for (std::uint64_t u = index(); u * elements < e.count; u += threads()) {
            const std::uint64_t left = e.count - u * elements, here = left < elements ? left : elements;
            values v{};
            COLLS_UNROLL
            for (std::uint64_t i = 0; i < elements; ++i)
                if (i < here) __builtin_memcpy(v.raw + i * sizeof(T), from + u * elements + i, sizeof(T));
            const unit w = __builtin_bit_cast(unit, v);
            for (std::uint64_t i = 0; i < words; ++i) g_.put(box + 1 + u * words + i, word(w.word[i]));
        }
    }
    /// A word, when it is there.
    COLLS_DEVICE bool take(int from, const std::uint64_t* at, std::uint64_t& w) {
        patience<G> p;
        while (static_cast<std::uint32_t>(w >> 32) != flag_) {
            if (!p.turn(g_, block_, from, none)) return false;
            w = g_.relaxed(at);
        }
        return true;
    }
    COLLS_DEVICE const std::uint64_t* box_of(int from) const {
        return eager_slot_of(us(), us().rank, block_, from, flag_ & 1u);
    }

    /// Flags come again after 2^32 calls: the last two wipe their eager path, or else a word of long ago would pass for
    /// a new one. Nobody writes there before it has heard of this rank in another call; the fences of both put that
    /// after the wiping.
    COLLS_DEVICE void begin_again() {
        if (flag_ > 2) {
            std::uint64_t* const box = eager_slot_of(us(), us().rank, block_, 0, flag_ & 1u);
            COLLS_ROLLED
            for (std::uint64_t i = index(); i < us().sizes.letters_of_block() / 2 / sizeof *box; i += threads())
                g_.put(box + i, 0);
        }
        g_.fence();
        g_.any(false);
    }

    /// Did everyone make the same call? Of the last threads, which have least to do. Who waits in vain for what a rank
    /// in another call has not sent finds the rank's poison word set.
    COLLS_DEVICE bool compare() {
        const std::uint32_t mine = print();
        COLLS_ROLLED
        for (int r = g_.size() - 1 - g_.index(); r < n_; r += g_.size()) {
            std::uint64_t theirs = g_.relaxed(box_of(r));
            if (!take(r, box_of(r), theirs)) return false;
            if (static_cast<std::uint32_t>(theirs) == mine) continue;
            give_up(g_, block_, failure::mismatch, r, none, static_cast<std::uint32_t>(theirs));
            return false;
        }
        return true;
    }

    COLLS_DEVICE bool receive() {
        // The sources of a result, all of as much: [first, end).
        if constexpr (reduces(what)) {
            const int end = what == collective::inclusive_scan   ? us().rank + 1
                            : what == collective::exclusive_scan ? us().rank
                                                                 : n_;
            return end == 0 || fold(0, end, letter(0, us().rank).count, end == n_ ? n_ : 0);
        } else {
            COLLS_ROLLED
            for (int r = 0; r < n_; ++r)
                if (!fold(r, r + 1, letter(r, us().rank).count, 0)) return false;
            return true;
        }
    }
    /// What ranks [first, end) sent, folded; several ranks' words are on their way at a time.
    COLLS_DEVICE bool fold(int first, int end, std::uint64_t count, int complete) {
        constexpr int most = words <= 4 ? static_cast<int>(8 / words) : 1;
        const treatment<T, D, Op, Epilogue> how{op_, epilogue_, complete};
        const std::uint64_t to = goal(first);
        COLLS_ROLLED
        for (std::uint64_t u = index(); u * elements < count; u += threads()) {
            const std::uint64_t left = count - u * elements, here = left < elements ? left : elements;
            A all[elements]{};
            COLLS_ROLLED
            for (int from = first; from < end; from += most) {
                std::uint64_t got[most][words];
                COLLS_UNROLL
                for (int j = 0; j < most; ++j)
                    if (from + j < end)
                        for (std::uint64_t i = 0; i < words; ++i)
                            got[j][i] = g_.relaxed(box_of(from + j) + 1 + u * words + i);
                COLLS_UNROLL
                for (int j = 0; j < most; ++j) {
                    if (from + j >= end) continue;
                    unit w;
                    for (std::uint64_t i = 0; i < words; ++i) {
                        if (!take(from + j, box_of(from + j) + 1 + u * words + i, got[j][i])) return false;
                        w.word[i] = static_cast<std::uint32_t>(got[j][i]);
                    }
                    const values v = __builtin_bit_cast(values, w);
                    for (std::uint64_t e = 0; e < elements; ++e) {
                        T x;
                        __builtin_memcpy(&x, v.raw + e * sizeof(T), sizeof(T));
                        const A one = how.read(x, reduces(what));
                        all[e] = from + j == first ? one : how.combine(all[e], one);
                    }
                }
            }
            for (std::uint64_t e = 0; e < here; ++e) {
                const std::uint64_t at = to + u * elements + e;
                reinterpret_cast<D*>(now().out)[at] = how.write(all[e], at);
            }
        }
        return true;
    }

    COLLS_DEVICE std::uint32_t print() const {
        return static_cast<std::uint32_t>(now().fingerprint ^ now().fingerprint >> 32);
    }
    COLLS_DEVICE std::uint64_t word(std::uint32_t data) const { return std::uint64_t{flag_} << 32 | data; }
    COLLS_DEVICE std::uint64_t index() const { return static_cast<std::uint64_t>(g_.index()); }
    COLLS_DEVICE std::uint64_t threads() const { return static_cast<std::uint64_t>(g_.size()); }

    mutable G g_;
    const Op& op_;
    const Epilogue& epilogue_;
    const int block_, n_;
    std::uint32_t flag_ = 0;
};

/// Plays the small call that the group has taken up, by one block of a rank; its longest letter must fit (see
/// letter_bytes).
template <collective what, class T, class D, class Op, class Epilogue, class G>
    requires thread_group<G>
COLLS_DEVICE bool run_small(const G& g, int block, const Op& op, const Epilogue& epilogue) {
    return letters<what, T, D, Op, Epilogue, G>(g, block, op, epilogue).run();
}

}  // namespace colls::inline v1::cuda::detail
