// All_reduce by the switch between devices (NVLS): multicast memory in a kernel.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// A channel has a window of multicast memory: bytes of its own on each device, which that device reaches by plain
// accesses (window.own), and which all reach at once by multimem accesses (window.all). A chunk of the channel's slice
// takes five steps, by all blocks of the channel's index:
//     copy in    each rank copies its contribution into its own bytes
//     meet       all ranks have done so
//     reduce     rank r loads the r-th part of the window, folded over all devices by the switch, and stores the result
//                to the same place on all devices
//     meet       all parts are complete, on every device
//     copy out   each rank copies its own bytes to its output, through op.finish and the epilogue
// A part is loaded and stored by its rank only, and each vector by one thread, so that it can be overwritten in place.
// The next chunk, or the next call, needs no further meeting: a rank overwrites its own bytes when it has copied them
// out, and no other rank stores to them before the next first meeting, to which this rank comes when it has copied in.
// Only the own rank loads them by plain accesses.
//
// Order. The bytes have two addresses, and multimem accesses are relaxed at most. Between a plain access and a multimem
// access to the same bytes the memory model of PTX asks for a path of causality, and for a proxy fence of aliases on
// it. A meeting is such a path: all threads of the block meet at a barrier; some of them execute fence.proxy.alias, and
// then release, each, the rank's progress to one rank; one thread of that rank has acquired it before its block meets
// at the next barrier. Rank 0's word is among them, so there is also a path through a fence from each thread of the own
// block to each other. Between the multimem load and store of a vector there is the dependence of the data, and they
// use one address.
#pragma once

#include <colls/cuda/detail/kernel/device_thread_group.hpp>
#include <colls/cuda/detail/kernel/native_floats.hpp>
#include <colls/cuda/detail/kernel/wait_for_peer.hpp>
#include <colls/operators.hpp>
#include <colls/types.hpp>

namespace colls::inline v1::cuda::detail {

template <class T>
inline constexpr bool is_half = std::is_same_v<T, __half> || std::is_same_v<T, v1::half>;
template <class T>
inline constexpr bool is_bfloat16 = std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, v1::bfloat16>;
template <class T>
inline constexpr bool is_switch_integer = std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);
template <class Op>
inline constexpr bool is_sum = std::is_same_v<Op, sum_t> || std::is_same_v<Op, avg_t>;

/// Does the switch fold elements T by Op? It keeps no order. The rest of an average follows as a result is written.
/// Minima and maxima of floats are left out: the switch's say something else of NaN and of -0 than the operators do.
template <class T, class Op>
inline constexpr bool folds_in_switch =
    ((is_switch_integer<T> || is_half<T> || is_bfloat16<T> || std::is_same_v<T, float> || std::is_same_v<T, double>) &&
        is_sum<Op>) ||
    (is_switch_integer<T> && (std::is_same_v<Op, min_t> || std::is_same_v<Op, max_t> || std::is_same_v<Op, bit_and_t> ||
                                 std::is_same_v<Op, bit_or_t> || std::is_same_v<Op, bit_xor_t>));

// multimem needs sm_90; the host launches no kernel that was compiled for less.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define COLLS_MULTIMEM_FLOATS(type)                                                          \
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add" type " {%0, %1, %2, %3}, [%4];" \
        : "=r"(q.word[0]), "=r"(q.word[1]), "=r"(q.word[2]), "=r"(q.word[3])                 \
        : "l"(at)                                                                            \
        : "memory")
#define COLLS_MULTIMEM_INTEGERS(operation)                                                 \
    if constexpr (sizeof(T) == 4) {                                                        \
        COLLS_UNROLL                                                                       \
        for (int i = 0; i < 4; ++i)                                                        \
            asm volatile("multimem.ld_reduce.relaxed.sys.global." operation "32 %0, [%1];" \
                : "=r"(q.word[i])                                                          \
                : "l"(at + 4 * i)                                                          \
                : "memory");                                                               \
    } else {                                                                               \
        std::uint64_t two[2];                                                              \
        COLLS_UNROLL                                                                       \
        for (int i = 0; i < 2; ++i)                                                        \
            asm volatile("multimem.ld_reduce.relaxed.sys.global." operation "64 %0, [%1];" \
                : "=l"(two[i])                                                             \
                : "l"(at + 8 * i)                                                          \
                : "memory");                                                               \
        __builtin_memcpy(&q, two, sizeof q);                                               \
    }
#else
#define COLLS_MULTIMEM_FLOATS(type) __trap()
#define COLLS_MULTIMEM_INTEGERS(operation) __trap()
#endif

/// The 16 bytes at a multimem address, folded over all devices. Small floats are added in float, and rounded once.
template <class T, class Op>
COLLS_DEVICE quad load_folded(const std::byte* from) {
    [[maybe_unused]] const std::size_t at = __cvta_generic_to_global(from);
    quad q{};
    if constexpr (std::is_same_v<T, float>) {
        // Floats count as 32 bits each: what is loaded is only moved.
        float f[4] = {};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
            : "=f"(f[0]), "=f"(f[1]), "=f"(f[2]), "=f"(f[3])
            : "l"(at)
            : "memory");
#else
        __trap();
#endif
        __builtin_memcpy(&q, f, sizeof q);
    } else if constexpr (std::is_same_v<T, double>) {
        double d[2] = {};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        COLLS_UNROLL
        for (int i = 0; i < 2; ++i)
            asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f64 %0, [%1];"
                : "=d"(d[i])
                : "l"(at + 8 * i)
                : "memory");
#else
        __trap();
#endif
        __builtin_memcpy(&q, d, sizeof q);
    } else if constexpr (is_half<T>) {
        COLLS_MULTIMEM_FLOATS(".acc::f32.v4.f16x2");
    } else if constexpr (is_bfloat16<T>) {
        COLLS_MULTIMEM_FLOATS(".acc::f32.v4.bf16x2");
    } else if constexpr (is_sum<Op>) {
        COLLS_MULTIMEM_INTEGERS("add.u");  // the same bits for signed integers, which wrap
    } else if constexpr (std::is_same_v<Op, min_t> && std::is_signed_v<T>) {
        COLLS_MULTIMEM_INTEGERS("min.s");
    } else if constexpr (std::is_same_v<Op, min_t>) {
        COLLS_MULTIMEM_INTEGERS("min.u");
    } else if constexpr (std::is_same_v<Op, max_t> && std::is_signed_v<T>) {
        COLLS_MULTIMEM_INTEGERS("max.s");
    } else if constexpr (std::is_same_v<Op, max_t>) {
        COLLS_MULTIMEM_INTEGERS("max.u");
    } else if constexpr (std::is_same_v<Op, bit_and_t>) {
        COLLS_MULTIMEM_INTEGERS("and.b");
    } else if constexpr (std::is_same_v<Op, bit_or_t>) {
        COLLS_MULTIMEM_INTEGERS("or.b");
    } else {
        static_assert(std::is_same_v<Op, bit_xor_t>);
        COLLS_MULTIMEM_INTEGERS("xor.b");
    }
    return q;
}
#undef COLLS_MULTIMEM_FLOATS
#undef COLLS_MULTIMEM_INTEGERS

/// Stores 16 bytes to all devices. Of whatever type: stores of vectors are of floats only, and move bits.
COLLS_DEVICE inline void store_to_all(std::byte* to, const quad& q) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    float f[4];
    __builtin_memcpy(f, &q, sizeof f);
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
        "f"(f[0]), "f"(f[1]), "f"(f[2]), "f"(f[3])
        : "memory");
#else
    static_cast<void>(to), static_cast<void>(q);
    __trap();
#endif
}
/// Orders accesses by one address before those by another address of the same bytes.
COLLS_DEVICE inline void fence_of_aliases() {
#if defined(__CUDA_ARCH__)
    asm volatile("fence.proxy.alias;" ::: "memory");
#endif
}

/// A group's multicast memory, as a rank reaches it: see multicast_memory.hpp. Null where there is none.
struct multicast_window {
    std::byte* own = nullptr;      ///< of this rank alone, by plain accesses
    std::byte* all = nullptr;      ///< of all ranks at once, by multimem accesses; the same order of bytes
    std::uint64_t bytes_each = 0;  ///< of a channel; a multiple of 128
};

/// One call of one block. T: elements of the input; D: of the output (another type only through an epilogue).
template <class T, class D, class Op, class Epilogue, class G>
class multicast_executor {
public:
    COLLS_DEVICE multicast_executor(
        const G& g, int channel, const multicast_window& window, const Op& op, const Epilogue& epilogue)
        : g_(g), window_(window), op_(op), epilogue_(epilogue), channel_(channel) {}

    /// False: the rank has given up, and the host learns why from the report.
    COLLS_DEVICE bool run() {
        channel_state& own = channel_of(self(), self().rank, channel_);
        const bool failed_before = is_poisoned(g_);
        const std::uint32_t calls = own.schedule_calls;
        progress_ = g_.relaxed(static_cast<const std::uint64_t*>(&own.progress[self().rank]));
        if (g_.any(failed_before)) return false;
        std::byte* const window = window_.own + offset();
        if (g_.index() == 0) {
            g_.state().operands[1][0] = {window, 0};  // of each copy out
            own.schedule_calls = calls + 1;
            own.entries[calls & 1] = {call().fingerprint, call().in_where, call().out_where};
        }
        COLLS_ROLLED
        for (int c = 0; c < call().chunks; ++c) {
            const extent span = cut(call().count, static_cast<std::uint64_t>(call().channels),
                slice_of(call(), channel_), call().chunk, static_cast<std::uint64_t>(c));
            const auto count = static_cast<std::uint32_t>(span.count);  // of a chunk
            copy_in(window, span.first, count);
            if (!meet()) return false;
            if (c == 0 && !compare_entries(calls & 1)) return false;
            reduce(count);
            if (!meet()) return false;
            copy_out(span.first, count);
        }
        return true;
    }

private:
    static constexpr bool is_plain =
        std::is_same_v<T, D> && std::is_same_v<Epilogue, no_epilogue> && !has_finish<Op, accumulator<T, Op>>;

    COLLS_DEVICE const rank_handle& self() const { return g_.state().self; }
    COLLS_DEVICE const kernel_call& call() const { return g_.state().call; }
    COLLS_DEVICE int n() const { return self().sizes.ranks; }
    /// Where the channel's window begins.
    COLLS_DEVICE std::uint64_t offset() const { return static_cast<std::uint64_t>(channel_) * window_.bytes_each; }

    COLLS_DEVICE void copy_in(std::byte* window, std::uint64_t first, std::uint32_t count) {
        operand* const x = g_.state().operands[0];
        if (g_.index() == 0) x[0] = {call().in + first * sizeof(T), 0};
        g_.any(false);  // all threads have also copied out the chunk before
        fold_elements<T>(g_, reinterpret_cast<T*>(window), x, 1, true, count, op_, no_epilogue{}, 0, first);
    }
    COLLS_DEVICE void copy_out(std::uint64_t first, std::uint32_t count) {
        const operand* const x = g_.state().operands[1];
        D* const to = reinterpret_cast<D*>(call().out) + first;
        if constexpr (is_plain)
            fold_elements<T>(g_, to, x, 1, true, count, op_, no_epilogue{}, 0, first);
        else
            fold_elements<T>(g_, to, x, 1, false, count, op_, epilogue_, n(), first);
    }

    /// Folds this rank's part of the vectors that hold `count` elements. Behind the last element the last vector holds
    /// what was there before, which nobody copies out. A thread loads four vectors before it stores the first.
    COLLS_DEVICE void reduce(std::uint32_t count) {
        constexpr int depth = 4;
        const std::uint64_t vectors = (std::uint64_t{count} * sizeof(T) + sizeof(quad) - 1) / sizeof(quad);
        const extent part = balanced(vectors, static_cast<std::uint64_t>(n()), static_cast<std::uint64_t>(self().rank));
        std::byte* const at = window_.all + offset() + part.first * sizeof(quad);
        const auto mine = static_cast<std::uint32_t>(part.count), threads = static_cast<std::uint32_t>(g_.size());
        COLLS_ROLLED
        for (auto v = static_cast<std::uint32_t>(g_.index()); v < mine; v += depth * threads) {
            const batch<depth> b{v, threads, mine, v};
            quad q[depth];
            COLLS_UNROLL
            for (int d = 0; d < depth; ++d) q[d] = load_folded<T, Op>(at + std::size_t{b.load_at(d)} * sizeof(quad));
            COLLS_UNROLL
            for (int d = 0; d < depth; ++d)
                if (b.has(d)) store_to_all(at + std::size_t{b.at(d)} * sizeof(quad), q[d]);
        }
    }

    /// Waits until all ranks have come here. What their threads have done before can be seen behind, by either address.
    COLLS_DEVICE bool meet() {
        ++progress_;
        g_.any(false);
        COLLS_ROLLED
        for (int r = g_.index(); r < n(); r += g_.size()) {
            fence_of_aliases();
            g_.release(&channel_of(self(), r, channel_).progress[self().rank], progress_);
        }
        bool failed = false;
        COLLS_ROLLED
        for (int r = g_.index(); r < n() && !failed; r += g_.size())
            failed = r != self().rank && !wait_for_peers(g_, channel_, r, none, progress_, none);
        return !g_.any(failed);
    }
    /// After the first meeting of a call: do all ranks make the same one?
    COLLS_DEVICE bool compare_entries(std::uint32_t entry) {
        bool failed = false;
        COLLS_ROLLED
        for (int r = g_.index(); r < n() && !failed; r += g_.size()) {
            const std::uint64_t theirs = channel_of(self(), r, channel_).entries[entry].fingerprint;
            failed = theirs != call().fingerprint;
            if (failed) give_up(g_, channel_, failure::mismatch, r, none, theirs);
        }
        return !g_.any(failed);
    }

    mutable G g_;
    const multicast_window& window_;
    const Op& op_;
    const Epilogue& epilogue_;
    const int channel_;
    std::uint64_t progress_ = 0;
};

/// Runs the all_reduce that load_call has set by multicast memory, by the block of one channel; all threads call.
/// False: the rank has given up.
template <class T, class D, class Op, class Epilogue, class G>
    requires thread_group<G>
COLLS_DEVICE bool run_by_multicast(
    const G& g, int channel, const multicast_window& window, const Op& op, const Epilogue& epilogue) {
    return multicast_executor<T, D, Op, Epilogue, G>(g, channel, window, op, epilogue).run();
}

}  // namespace colls::inline v1::cuda::detail
