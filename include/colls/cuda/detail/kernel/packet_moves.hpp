// Moves between elements and packets.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// A packet is 16 bytes, moved by one store and one load: two words that hold data and flag each (flagged_words.hpp). No
// fence and no counter orders anything between ranks. In the memory model of PTX a store or load of a vector is one of
// each of its elements, in any order; each word is such an element, and is checked by its own flag. So nothing is
// assumed of the order of the two words, nor of the packets.
#pragma once

#include <colls/cuda/detail/kernel/flagged_words.hpp>
#include <colls/cuda/detail/kernel/fold_elements.hpp>

namespace colls::inline v1::cuda::detail {

/// The least number of bytes that is whole elements and whole packets: a unit.
template <class T>
inline constexpr std::uint64_t packet_unit = common_multiple(8, sizeof(T));

/// What a block does with packets in one call. T: elements of the input.
template <collective what, class T, class Op, class G>
class packet_moves {
protected:
    COLLS_DEVICE packet_moves(const G& g, int channel, const Op& op) : g_(g), op_(op), channel_(channel) {}

    // Sizes of a unit.
    static constexpr std::uint64_t bytes = packet_unit<T>, packets = bytes / 8, elements = bytes / sizeof(T);
    /// Units that a thread loads at once.
    static constexpr int at_once = packets > 2 ? 1 : elements > 4 ? 2 : 4;
    using A = accumulator<T, Op>;
    static constexpr bool has_leaves = reduces(what) && has_leaf<Op, A>;
    struct values {
        alignas(bytes % 16 == 0 ? 16 : 8) unsigned char raw[bytes];
        COLLS_DEVICE T element(std::uint64_t i) const {
            T x;
            __builtin_memcpy(&x, raw + i * sizeof(T), sizeof(T));
            return x;
        }
        COLLS_DEVICE void set(std::uint64_t i, const T& x) { __builtin_memcpy(raw + i * sizeof(T), &x, sizeof(T)); }
    };
    COLLS_DEVICE static std::uint32_t units_of(std::uint64_t count) {
        return static_cast<std::uint32_t>((count + elements - 1) / elements);
    }

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
    /// Loads `most` units of packets, again until each of them has its flags, all at once. Rank from[j] sends those at
    /// at[j]. False: this rank has given up.
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
                    if (!has_flag(got[j][i].word[0], flag_) || !has_flag(got[j][i].word[1], flag_)) missing = from[j];
            if (missing == none) break;
            if (!pauses.pause(g_, channel_, missing, none)) return false;
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
    COLLS_DEVICE void send(packet* to, const values& v) {
        std::uint32_t data[2 * packets];
        __builtin_memcpy(data, v.raw, sizeof data);
        for (std::uint64_t i = 0; i < packets; ++i)
            g_.put(to + i, packet{flagged(flag_, data[2 * i]), flagged(flag_, data[2 * i + 1])});
    }
    /// Receives `count` elements in the packets of rank `sender` at `from`, and calls out(u, values, here) for each
    /// unit. False: the rank has given up.
    template <class Out>
    COLLS_DEVICE bool take(const team<G>& t, const packet* from, int sender, std::uint32_t count, const Out& out) {
        const auto threads = static_cast<std::uint32_t>(t.size()), units = units_of(count);
        COLLS_ROLLED
        for (auto u = static_cast<std::uint32_t>(t.index()); u < units; u += at_once * threads) {
            const thread_units mine{u, threads, units, count};
            values v[std::size_t{at_once}];
            const packet* at[std::size_t{at_once}];
            int senders[std::size_t{at_once}];
            COLLS_UNROLL
            for (int j = 0; j < at_once; ++j) {
                at[j] = from + mine.at(j) * packets;
                senders[j] = sender;
            }
            if (!receive(v, at, senders)) return false;
            COLLS_UNROLL
            for (int j = 0; j < at_once; ++j)
                if (mine.has(j)) out(mine.at(j), v[j], mine.here(j));
        }
        return true;
    }
    /// Loads `count` own elements at `from`, and calls out(u, values, here) for each unit u of them, of which `here`
    /// elements are there; `raw`: as this rank contributes them.
    template <class Out>
    COLLS_DEVICE void give(const team<G>& t, const T* from, bool raw, std::uint32_t count, const Out& out) {
        const std::uint32_t whole = is_aligned(from) ? count / static_cast<std::uint32_t>(elements) : 0;
        give_units<packets == 1 ? 4 : 1, true>(t, from, raw, 0, whole, count, out);
        give_units<1, false>(t, from, raw, whole, units_of(count), count, out);
    }
    /// Units [first, end) of them. `are_whole`: they are aligned, and all elements are there.
    template <int most, bool are_whole, class Out>
    COLLS_DEVICE void give_units(const team<G>& t, const T* from, bool raw, std::uint32_t first, std::uint32_t end,
        std::uint32_t count, const Out& out) {
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
                        for (std::uint64_t e = 0; e < elements; ++e)
                            v[j].set(e, converted<T>(element.read(v[j].element(e), true)));
                }
            COLLS_UNROLL
            for (int j = 0; j < most; ++j)
                if (mine.has(j)) out(mine.at(j), v[j], mine.here(j));
        }
    }

    /// Folds `count` elements that k ranks from `first` on have sent, and calls out(u, fold, here) for each unit;
    /// from(r): the packets of rank r. Loads packets of `most` ranks at once. False: this rank has given up.
    template <int most, class From, class Out>
    COLLS_DEVICE bool fold(const team<G>& t, int first, int k, std::uint32_t count, const From& from, const Out& out) {
        const no_epilogue no{};
        const element_operations<T, T, Op, no_epilogue> element{op_, no, 0};
        const std::uint32_t units = units_of(count);
        COLLS_ROLLED
        for (auto u = static_cast<std::uint32_t>(t.index()); u < units; u += static_cast<std::uint32_t>(t.size())) {
            const std::uint64_t left = count - u * elements, here = left < elements ? left : elements;
            A all[elements]{};
            COLLS_ROLLED
            for (int o = 0; o < k; o += most) {
                int senders[std::size_t{most}];
                const packet* at[std::size_t{most}];
                values got[std::size_t{most}];
                COLLS_UNROLL
                for (int j = 0; j < most; ++j) {
                    // In place of one that is not there stands the first, so that no load is under a condition.
                    senders[j] = first + (o + j < k ? o + j : 0);
                    at[j] = from(senders[j]) + u * packets;
                }
                if (!receive(got, at, senders)) return false;
                COLLS_UNROLL
                for (int j = 0; j < most; ++j) {
                    if (o + j >= k) continue;
                    for (std::uint64_t e = 0; e < elements; ++e) {
                        const A a = element.read(got[j].element(e), false);
                        all[e] = o + j == 0 ? a : element.combine(all[e], a);
                    }
                }
            }
            out(u, all, here);
        }
        return true;
    }

    mutable G g_;
    const Op& op_;
    const int channel_;
    std::uint32_t flag_ = 0;
};

}  // namespace colls::inline v1::cuda::detail
