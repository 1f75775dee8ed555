// The one pass over memory that kernels are made of: folds operands, element by element, into a destination.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// It alone deals with alignment, heads and tails.
#pragma once

#include <colls/cuda/detail/kernel/thread_group.hpp>
#include <colls/cuda/epilogue.hpp>
#include <colls/operators.hpp>

#include <type_traits>

namespace colls::inline v1::cuda::detail {

/// What folds of T are computed in. Small floats: float; see native_floats.hpp for CUDA's own.
template <class T>
struct fold_type {
    using type = T;
};
template <class Format>
struct fold_type<v1::detail::small_float<Format>> {
    using type = float;
};

/// In place of an operator where elements are copied.
struct no_operator {};

template <class Op, class A>
concept has_leaf = requires(const Op& op, const A& a) {
    { op.leaf(a) } -> std::convertible_to<A>;
};
template <class Op, class A>
concept has_finish = requires(const Op& op, const A& a, int n) {
    { op.finish(a, n) } -> std::convertible_to<A>;
};

template <class T, class Op>
constexpr auto accumulator_of() {
    if constexpr (std::is_same_v<Op, no_operator>)
        return std::type_identity<T>{};
    else if constexpr (v1::detail::is_pure<Op>() && operator_on<Op, typename fold_type<T>::type>)
        return std::type_identity<typename fold_type<T>::type>{};
    else
        return std::type_identity<T>{};
}
/// The type in which Op folds elements of type T.
template <class T, class Op>
using accumulator = typename decltype(accumulator_of<T, Op>())::type;

template <class To, class From>
COLLS_DEVICE constexpr To converted(const From& x) {
    if constexpr (std::is_same_v<To, From>)
        return x;
    else
        return static_cast<To>(x);
}

struct operand {
    const void* data = nullptr;
    std::int32_t raw = 0;  ///< elements as this rank contributed them: op.leaf has not been applied
};

/// N elements that are loaded and stored by one access.
template <class T, std::uint32_t N>
struct alignas(N * sizeof(T) <= 16 ? N * sizeof(T) : alignof(T)) pack {
    T of[N];
};

/// N elements as they are kept between a load and a store: 16 bytes as words, which the compiler does not take apart.
template <class T, std::uint32_t N>
using vector = std::conditional_t<sizeof(pack<T, N>) == 16, quad, pack<T, N>>;

/// Converts the elements of a vector. See native_floats.hpp for types that are converted by pairs.
template <class To, class From>
struct vector_conversion {
    template <std::uint32_t N>
    COLLS_DEVICE static void read(const vector<From, N>& from, To (&to)[N]) {
        const auto all = __builtin_bit_cast(pack<From, N>, from);
        COLLS_UNROLL
        for (std::uint32_t l = 0; l < N; ++l) to[l] = converted<To>(all.of[l]);
    }
    template <std::uint32_t N>
    COLLS_DEVICE static vector<To, N> written(const From (&from)[N]) {
        pack<To, N> all;
        COLLS_UNROLL
        for (std::uint32_t l = 0; l < N; ++l) all.of[l] = converted<To>(from[l]);
        return __builtin_bit_cast(vector<To, N>, all);
    }
};

/// Elements of one vector access, the same number for loads of T and stores of D; 1: access by elements.
template <class T, class D>
constexpr std::uint32_t lanes_of() {
    constexpr std::size_t widest = sizeof(T) > sizeof(D) ? sizeof(T) : sizeof(D);
    constexpr auto even = [](std::size_t x) { return (x & (x - 1)) == 0; };
    return even(sizeof(T)) && even(sizeof(D)) && widest < 16 ? static_cast<std::uint32_t>(16 / widest) : 1;
}

/// Bits [shift, shift + 32) of high:low; shift < 32.
COLLS_DEVICE inline std::uint32_t funnel_shift(std::uint32_t low, std::uint32_t high, std::uint32_t shift) {
#if defined(__CUDA_ARCH__)
    return __funnelshift_r(low, high, shift);
#else
    return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) >> shift);
#endif
}

/// The 16 bytes that begin `phase` bytes after `a`, which `b` follows; phase < 16, a multiple of `alignment`.
template <std::size_t alignment>
COLLS_DEVICE quad shifted_quad(const quad& a, const quad& b, std::uint32_t phase) {
    std::uint32_t w[8];
    __builtin_memcpy(w, &a, sizeof a);
    __builtin_memcpy(w + 4, &b, sizeof b);
    COLLS_UNROLL
    for (int i = 0; i < 6; ++i) w[i] = (phase & 8u) != 0 ? w[i + 2] : w[i];
    if constexpr (alignment < 8) {
        COLLS_UNROLL
        for (int i = 0; i < 5; ++i) w[i] = (phase & 4u) != 0 ? w[i + 1] : w[i];
    }
    if constexpr (alignment < 4) {
        COLLS_UNROLL
        for (int i = 0; i < 4; ++i) w[i] = funnel_shift(w[i], w[i + 1], phase % 4 * 8);
    }
    return {{w[0], w[1], w[2], w[3]}};
}

/// The vectors that a thread works on at once: `depth` of them, from `first` on, `apart`. In place of one that is not
/// there it loads `instead`, which is its own, so that no load depends on a condition: the compiler does not issue
/// those together.
template <int depth>
struct batch {
    std::uint32_t first, apart, vectors, instead;
    COLLS_DEVICE std::uint32_t at(int d) const { return first + static_cast<std::uint32_t>(d) * apart; }
    COLLS_DEVICE bool has(int d) const { return at(d) < vectors; }
    COLLS_DEVICE std::uint32_t load_at(int d) const { return has(d) ? at(d) : instead; }
};

/// Loads a batch of the vectors that begin at `from`, which is aligned to a vector.
template <class V, int depth, class G>
COLLS_DEVICE void load_batch(G& g, V (&to)[std::size_t{depth}], const std::byte* from, const batch<depth>& b) {
    COLLS_UNROLL
    for (int d = 0; d < depth; ++d) {
        const std::byte* const at = from + std::size_t{b.load_at(d)} * sizeof(V);
        if constexpr (sizeof(V) == 16)
            to[d] = g.load(reinterpret_cast<const quad*>(at));
        else
            __builtin_memcpy(&to[d], __builtin_assume_aligned(at, sizeof(V)), sizeof(V));
    }
}
/// The same where `from` is aligned to an element T only. Vectors of 16 bytes are taken out of the two lines of 16
/// bytes that hold them. At either end of the vectors 16 bytes more of the operand follow, so that a line holds nothing
/// else: the bytes beside an operand may be written meanwhile, or be no memory.
template <class T, class V, int depth, class G>
COLLS_DEVICE void load_shifted_batch(G& g, V (&to)[std::size_t{depth}], const std::byte* from, const batch<depth>& b) {
    if constexpr (sizeof(V) == 16) {
        const auto phase = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from) % 16);
        const quad* const lines = reinterpret_cast<const quad*>(from - phase);
        // An operand that is aligned may be the destination, whose next line another thread writes.
        const quad* const next = lines + (phase != 0 ? 1 : 0);
        quad low[std::size_t{depth}], high[std::size_t{depth}];
        COLLS_UNROLL
        for (int d = 0; d < depth; ++d) {
            low[d] = g.load(lines + b.load_at(d));
            high[d] = g.load(next + b.load_at(d));
        }
        COLLS_UNROLL
        for (int d = 0; d < depth; ++d) to[d] = shifted_quad<alignof(T)>(low[d], high[d], phase);
    } else {
        COLLS_UNROLL
        for (int d = 0; d < depth; ++d) {
            const T* const at = reinterpret_cast<const T*>(from + std::size_t{b.load_at(d)} * sizeof(V));
            COLLS_UNROLL
            for (std::uint32_t l = 0; l < sizeof(V) / sizeof(T); ++l) to[d].of[l] = at[l];
        }
    }
}

template <class V, class G>
COLLS_DEVICE void store_vector(G& g, std::byte* to, const V& v) {
    if constexpr (sizeof(V) == 16)
        g.store(reinterpret_cast<quad*>(to), v);
    else
        __builtin_memcpy(__builtin_assume_aligned(to, sizeof(V)), &v, sizeof(V));
}

/// A range of elements, cut in a head of single elements, vectors that are aligned to their size, and a tail.
struct aligned_range {
    std::uint32_t head, vectors;
};
/// Cuts `count` elements of `size` bytes at `to`; `lanes` elements are a vector.
COLLS_DEVICE inline aligned_range aligned_at(
    const void* to, std::uint32_t count, std::uint32_t size, std::uint32_t lanes) {
    const auto bytes = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(to) % (lanes * size));
    const std::uint32_t head = (lanes - bytes / size) % lanes;
    return bytes % size != 0 || head >= count ? aligned_range{count, 0} : aligned_range{head, (count - head) / lanes};
}

/// Keeps the compiler from fusing the product that made `a` with a sum that follows: every pass gives the same bits,
/// and the same as on the host.
template <class A>
COLLS_DEVICE A kept_apart(A a) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<A, float>) asm volatile("" : "+f"(a));
    if constexpr (std::is_same_v<A, double>) asm volatile("" : "+d"(a));
#elif defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
    if constexpr (std::is_floating_point_v<A>) return __builtin_assoc_barrier(a);
#endif
    return a;
}

/// What is done to one element: read (converted, op.leaf), combined with others, written (op.finish, epilogue).
template <class T, class D, class Op, class E>
struct element_operations {
    using A = accumulator<T, Op>;
    const Op& op;
    const E& epilogue;
    int ranks;  ///< of how many ranks the fold is complete; 0: not complete, no op.finish

    COLLS_DEVICE A read(const T& x, bool raw) const {
        A a = converted<A>(x);
        if constexpr (has_leaf<Op, A>)
            if (raw) a = contributed(a);
        return a;
    }
    template <std::uint32_t N>
    COLLS_DEVICE void read(const vector<T, N>& x, bool raw, A (&to)[N]) const {
        vector_conversion<A, T>::template read<N>(x, to);
        if constexpr (has_leaf<Op, A>) {
            COLLS_UNROLL
            for (std::uint32_t l = 0; l < N; ++l)
                if (raw) to[l] = contributed(to[l]);
        }
    }
    /// What the operator makes of this rank's contribution, rounded as what other ranks get of it.
    COLLS_DEVICE A contributed(const A& a) const { return converted<A>(kept_apart(converted<T>(op.leaf(a)))); }
    COLLS_DEVICE A combine(const A& a, const A& b) const {
        if constexpr (std::is_same_v<Op, no_operator>)
            return b;
        else
            return converted<A>(op(a, b));
    }
    COLLS_DEVICE D write(A a, std::uint64_t index) const {
        if constexpr (has_finish<Op, A>)
            if (ranks != 0) a = op.finish(converted<A>(converted<T>(a)), ranks);  // rounded before, as on the host
        if constexpr (std::is_same_v<E, no_epilogue>)
            return converted<D>(a);
        else
            return converted<D>(epilogue(a, static_cast<std::size_t>(index)));
    }
    template <std::uint32_t N>
    COLLS_DEVICE vector<D, N> write(const A (&a)[N], std::uint64_t index) const {
        if constexpr (has_finish<Op, A> || !std::is_same_v<E, no_epilogue>) {
            pack<D, N> made;
            COLLS_UNROLL
            for (std::uint32_t l = 0; l < N; ++l) made.of[l] = write(a[l], index + l);
            return __builtin_bit_cast(vector<D, N>, made);
        } else {
            return vector_conversion<D, A>::template written<N>(a);
        }
    }
};

/// fold_elements on the vectors of an aligned_range; `shifted`: some operand is not aligned where `dst` is.
///
/// A thread loads two batches before it uses either: of two operands, which it then folds one after the other, or, in a
/// copy, of one operand.
template <class T, class D, class Op, class E, class G>
COLLS_DEVICE void fold_vectors(G& g, D* dst, const operand* x, int k, bool copies, const aligned_range& range,
    bool shifted, const element_operations<T, D, Op, E>& element, std::uint64_t index) {
    using A = accumulator<T, Op>;
    constexpr std::uint32_t lanes = lanes_of<T, D>();
    constexpr int depth = lanes * sizeof(A) <= 16 ? 4 : 2;
    using in = vector<T, lanes>;
    using out = vector<D, lanes>;
    const auto thread = static_cast<std::uint32_t>(g.index()), threads = static_cast<std::uint32_t>(g.size());
    std::byte* const to = reinterpret_cast<std::byte*>(dst + range.head);
    const std::uint32_t step = depth * threads, second = copies ? step : 0;
    COLLS_ROLLED
    for (std::uint32_t v = thread; v < range.vectors; v += step + second) {
        const auto batch_from = [&](std::uint32_t first) {
            return batch<depth>{anew(first), threads, range.vectors, v};
        };
        A a[std::size_t{depth}][lanes];
        const auto combine = [&](const in(&from)[std::size_t{depth}], bool raw, bool first) {
            COLLS_UNROLL
            for (int d = 0; d < depth; ++d) {
                A one[lanes];
                element.template read<lanes>(from[d], raw, one);
                if (first) {
                    COLLS_UNROLL
                    for (std::uint32_t l = 0; l < lanes; ++l) a[d][l] = one[l];
                } else {
                    COLLS_UNROLL
                    for (std::uint32_t l = 0; l < lanes; ++l) a[d][l] = element.combine(a[d][l], one[l]);
                }
            }
        };
        const auto store = [&](const in(&from)[std::size_t{depth}], const batch<depth>& at) {
            COLLS_UNROLL
            for (int d = 0; d < depth; ++d)
                if (at.has(d)) store_vector(g, to + std::size_t{at.at(d)} * sizeof(in), from[d]);
        };
        // If the number of operands is odd, the first comes alone. It is loaded twice: code for one batch would be as
        // long again.
        COLLS_ROLLED
        for (int o = copies ? 0 : -(k % 2); o < k; o += 2) {
            const int former = o < 0 ? 0 : o, latter = copies ? o : o + 1;
            const auto from = [&](int which) {
                return static_cast<const std::byte*>(x[which].data) + range.head * sizeof(T);
            };
            in one[std::size_t{depth}], two[std::size_t{depth}];
            if (shifted) {
                // A loop, since its code is long.
                COLLS_ROLLED
                for (int i = 0; i < 2; ++i) {
                    load_shifted_batch<T>(g, two, from(i == 0 ? former : latter), batch_from(i == 0 ? v : v + second));
                    COLLS_UNROLL
                    for (int d = 0; d < depth; ++d)
                        if (i == 0) one[d] = two[d];
                }
            } else {
                load_batch(g, one, from(former), batch_from(v));
                load_batch(g, two, from(latter), batch_from(v + second));
            }
            if constexpr (std::is_same_v<T, D> && std::is_same_v<E, no_epilogue>)
                if (copies) {
                    store(one, batch_from(v));
                    store(two, batch_from(v + second));
                    break;
                }
            COLLS_ROLLED
            for (int j = former; j <= latter; ++j) {
                combine(one, x[j].raw != 0, j == 0);
                COLLS_UNROLL
                for (int d = 0; d < depth; ++d) one[d] = two[d];
            }
        }
        if (copies) continue;
        const batch<depth> b = batch_from(v);
        COLLS_UNROLL
        for (int d = 0; d < depth; ++d)
            if (b.has(d))
                store_vector(g, to + std::size_t{b.at(d)} * sizeof(out),
                    element.template write<lanes>(a[d], index + range.head + b.at(d) * lanes));
    }
}

/// dst[i] = ((x[0][i] op x[1][i]) op x[2][i]) ... for i < count, by all threads of the group. Operands: k. `dst` is the
/// address of an operand, or overlaps none. `copies`: the one operand as it is, and no op. `ranks`: see
/// element_operations. `index`: of dst[0], for the epilogue. Vector accesses, aligned at `dst`, follow a head and
/// precede a tail of single elements.
template <class T, class D, class Op, class E, class G>
COLLS_DEVICE void fold_elements(G g, D* dst, const operand* x, int k, bool copies, std::uint32_t count, const Op& op,
    const E& epilogue, int ranks, std::uint64_t index) {
    const element_operations<T, D, Op, E> element{op, epilogue, ranks};
    using A = accumulator<T, Op>;
    constexpr std::uint32_t lanes = lanes_of<T, D>();
    const auto thread = static_cast<std::uint32_t>(g.index()), threads = static_cast<std::uint32_t>(g.size());
    aligned_range range{count, 0};
    if constexpr (lanes > 1) {
        range = aligned_at(dst, count, sizeof(D), lanes);
        std::uintptr_t all = 0;
        COLLS_ROLLED
        for (int o = 0; o < k; ++o) all |= reinterpret_cast<std::uintptr_t>(x[o].data) + range.head * sizeof(T);
        const bool shifted = all % sizeof(pack<T, lanes>) != 0;
        if (shifted)
            range = range.vectors > 2 ? aligned_range{range.head + lanes, range.vectors - 2} : aligned_range{count, 0};
        fold_vectors(g, dst, x, k, copies, range, shifted, element, index);
    }
    const std::uint32_t body = range.vectors * lanes;
    COLLS_ROLLED
    for (std::uint32_t j = thread; j < count - body; j += threads) {
        const std::uint32_t i = j < range.head ? j : j + body;
        if constexpr (std::is_same_v<T, D> && std::is_same_v<E, no_epilogue>)
            if (copies) {
                dst[i] = static_cast<const T*>(x[0].data)[i];
                continue;
            }
        A a = element.read(static_cast<const T*>(x[0].data)[i], x[0].raw != 0);
        COLLS_ROLLED
        for (int o = 1; o < k; ++o)
            a = element.combine(a, element.read(static_cast<const T*>(x[o].data)[i], x[o].raw != 0));
        dst[i] = element.write(a, index + i);
    }
}

}  // namespace colls::inline v1::cuda::detail
