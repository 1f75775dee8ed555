// The one pass over memory that kernels are made of: folds operands, element by element, into a destination.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// It alone deals with alignment, heads and tails.
#pragma once

#include <colls/cuda/epilogue.hpp>
#include <colls/detail/cuda/thread_group.hpp>
#include <colls/operators.hpp>

#include <type_traits>

namespace colls::inline v1::cuda::detail {

/// What folds of T are computed in. Small floats: float; see device_types.hpp for CUDA's own.
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
    std::int32_t raw = 0;  ///< elements as a rank contributed them: op.leaf has not been applied
};

/// N elements that are loaded and stored by one access.
template <class T, std::uint32_t N>
struct alignas(N * sizeof(T) <= 16 ? N * sizeof(T) : alignof(T)) pack {
    T of[N];
};

/// Elements of one vector access, the same number for loads of T and stores of D; 1: access by elements.
template <class T, class D>
constexpr std::uint32_t lanes_of() {
    constexpr std::size_t widest = sizeof(T) > sizeof(D) ? sizeof(T) : sizeof(D);
    constexpr auto even = [](std::size_t x) { return (x & (x - 1)) == 0; };
    return even(sizeof(T)) && even(sizeof(D)) && widest < 16 ? static_cast<std::uint32_t>(16 / widest) : 1;
}

template <class T, std::uint32_t N, class G>
COLLS_DEVICE pack<T, N> load_pack(G& g, const T* from) {
    if constexpr (sizeof(pack<T, N>) == 16) {
        return __builtin_bit_cast(pack<T, N>, g.load(reinterpret_cast<const quad*>(from)));
    } else {
        pack<T, N> p;
        __builtin_memcpy(&p, __builtin_assume_aligned(from, sizeof p), sizeof p);
        return p;
    }
}
template <class T, std::uint32_t N, class G>
COLLS_DEVICE void store_pack(G& g, T* to, const pack<T, N>& p) {
    if constexpr (sizeof p == 16)
        g.store(reinterpret_cast<quad*>(to), __builtin_bit_cast(quad, p));
    else
        __builtin_memcpy(__builtin_assume_aligned(to, sizeof p), &p, sizeof p);
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
            if (raw) a = kept_apart(converted<A>(op.leaf(a)));
        return a;
    }
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
};

/// dst[i] = ((x[0][i] op x[1][i]) op x[2][i]) ... for i < count, by all threads of the group. Operands: k. `dst` is the
/// address of an operand, or overlaps none. `ranks`: see element_operations. `index`: of dst[0], for the epilogue.
/// Where all pointers have the same offset from 16 bytes, in elements, vector accesses follow a head and precede a tail
/// of single elements; else all accesses are of single elements.
template <class T, class D, class Op, class E, class G>
COLLS_DEVICE void fold_elements(G g, D* dst, const operand* x, int k, std::uint32_t count, const Op& op,
    const E& epilogue, int ranks, std::uint64_t index) {
    const element_operations<T, D, Op, E> element{op, epilogue, ranks};
    using A = accumulator<T, Op>;
    constexpr std::uint32_t lanes = lanes_of<T, D>();
    const auto thread = static_cast<std::uint32_t>(g.index()), threads = static_cast<std::uint32_t>(g.size());
    std::uint32_t head = count, vectors = 0;
    if constexpr (lanes > 1) {
        const auto target = reinterpret_cast<std::uintptr_t>(dst);
        const auto phase = static_cast<std::uint32_t>(target / sizeof(D) % lanes);
        bool alike = target % sizeof(D) == 0;
        COLLS_ROLLED
        for (int j = 0; j < k; ++j) {
            const auto from = reinterpret_cast<std::uintptr_t>(x[j].data);
            alike = alike && from % sizeof(T) == 0 && from / sizeof(T) % lanes == phase;
        }
        const std::uint32_t before = (lanes - phase) % lanes;
        if (alike && before < count) {
            head = before;
            vectors = (count - head) / lanes;
        }
    }
    const std::uint32_t body = vectors * lanes;
    COLLS_ROLLED
    for (std::uint32_t j = thread; j < count - body; j += threads) {
        const std::uint32_t i = j < head ? j : j + body;
        A a = element.read(static_cast<const T*>(x[0].data)[i], x[0].raw != 0);
        COLLS_ROLLED
        for (int o = 1; o < k; ++o)
            a = element.combine(a, element.read(static_cast<const T*>(x[o].data)[i], x[o].raw != 0));
        dst[i] = element.write(a, index + i);
    }
    if constexpr (lanes > 1) {
        constexpr std::uint32_t depth = lanes <= 4   ? 4
                                        : lanes <= 8 ? 3
                                                     : 1;  // vector accesses of a thread in flight for each operand
        COLLS_ROLLED
        for (std::uint32_t v = thread; v < vectors; v += depth * threads) {
            // Initialised: registers that some threads leave unset would be kept across everything called between
            // passes.
            A a[depth][lanes]{};
            COLLS_ROLLED
            for (int o = 0; o < k; ++o) {
                const T* const from = static_cast<const T*>(x[o].data) + head;
                const bool raw = x[o].raw != 0;
                pack<T, lanes> got[depth] = {};
                COLLS_UNROLL
                for (std::uint32_t d = 0; d < depth; ++d)
                    if (const std::uint32_t at = v + d * threads; at < vectors)
                        got[d] = load_pack<T, lanes>(g, from + std::size_t{at} * lanes);
                COLLS_UNROLL
                for (std::uint32_t d = 0; d < depth; ++d)
                    if (v + d * threads < vectors) {
                        COLLS_UNROLL
                        for (std::uint32_t l = 0; l < lanes; ++l) {
                            const A one = element.read(got[d].of[l], raw);
                            a[d][l] = o == 0 ? one : element.combine(a[d][l], one);
                        }
                    }
            }
            COLLS_UNROLL
            for (std::uint32_t d = 0; d < depth; ++d)
                if (const std::uint32_t at = v + d * threads; at < vectors) {
                    pack<D, lanes> made;
                    COLLS_UNROLL
                    for (std::uint32_t l = 0; l < lanes; ++l)
                        made.of[l] = element.write(a[d][l], index + head + at * lanes + l);
                    store_pack<D, lanes>(g, dst + head + std::size_t{at} * lanes, made);
                }
        }
    }
}

}  // namespace colls::inline v1::cuda::detail
