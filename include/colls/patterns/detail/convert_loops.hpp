// Converts arrays of float to elements with an accumulator of floats, and back, in one pass over memory.
// IWYU pragma: private, include <colls/patterns/compressed.hpp>
//
// Compiled for the baseline and for AVX2, as the reduce loops are: both give the same bits.
#pragma once

#include <colls/detail/support/for_processor.hpp>
#include <colls/operators.hpp>

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace colls::inline v1::detail {

/// E holds floats: converts to and from float, or a struct of several.
template <class E>
concept holds_floats = std::is_trivially_copyable_v<E> && requires(const E& e, const accumulator_of<E, sum_t>& a) {
    static_cast<E>(a);
    static_cast<accumulator_of<E, sum_t>>(e);
    requires std::is_same_v<accumulator_of<E, sum_t>, float> ||
                 (std::is_class_v<accumulator_of<E, sum_t>> && sizeof(a) % sizeof(float) == 0);
};

/// A tile of floats on the stack, and the elements that hold it.
template <class E>
struct float_tile {
    using A = accumulator_of<E, sum_t>;
    static constexpr std::size_t values_each = sizeof(A) / sizeof(float);
    static constexpr std::size_t elements = std::is_same_v<A, float> ? 64 : 1, size = elements * values_each;
    alignas(64) float values[size];

    static constexpr std::size_t elements_of(std::size_t count) { return (count + values_each - 1) / values_each; }
    [[gnu::always_inline]] void store(E* to) const {
        if constexpr (std::is_same_v<A, float>) {
            for (std::size_t i = 0; i < size; ++i) to[i] = static_cast<E>(values[i]);
        } else {
            A a;
            std::memcpy(&a, values, sizeof a);
            *to = static_cast<E>(a);
        }
    }
    [[gnu::always_inline]] void load(const E* from) {
        if constexpr (std::is_same_v<A, float>) {
            for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<float>(from[i]);
        } else {
            const A a = static_cast<A>(*from);
            std::memcpy(values, &a, sizeof a);
        }
    }
};

/// A whole tile: to = x + residual, and residual = what the conversion lost. What is not finite leaves no residual.
template <class E, bool keeps>
[[gnu::always_inline]] inline void compress_tile(const float* x, [[maybe_unused]] float* residual, E* to) {
    using tile = float_tile<E>;
    tile given;
    for (std::size_t i = 0; i < tile::size; ++i) given.values[i] = x[i];
    if constexpr (keeps)
        for (std::size_t i = 0; i < tile::size; ++i) given.values[i] += residual[i];
    given.store(to);
    if constexpr (keeps) {
        tile held;
        held.load(to);
        for (std::size_t i = 0; i < tile::size; ++i) {
            const unsigned bits = bits_of(given.values[i] - held.values[i]);
            residual[i] = float_of(less(bits & 0x7fffffffu, 0x7f800000u) ? bits : 0u);
        }
    }
}
template <class E, bool keeps>
[[gnu::always_inline]] inline void compress_loop(const float* x, float* residual, std::size_t count, E* to) {
    using tile = float_tile<E>;
    const std::size_t whole = count / tile::size * tile::size, rest = count - whole;
    for (std::size_t at = 0; at < whole; at += tile::size, to += tile::elements)
        compress_tile<E, keeps>(x + at, keeps ? residual + at : nullptr, to);
    if (rest == 0) return;
    float padded[tile::size] = {}, lost[tile::size] = {};
    E last[tile::elements];
    std::memcpy(padded, x + whole, rest * sizeof(float));
    if constexpr (keeps) std::memcpy(lost, residual + whole, rest * sizeof(float));
    compress_tile<E, keeps>(padded, lost, last);
    if constexpr (keeps) std::memcpy(residual + whole, lost, rest * sizeof(float));
    std::memcpy(static_cast<void*>(to), last, tile::elements_of(rest) * sizeof(E));
}
template <class E>
[[gnu::always_inline]] inline void compress_either(const float* x, float* residual, std::size_t count, E* to) {
    if (residual == nullptr)
        compress_loop<E, false>(x, residual, count, to);
    else
        compress_loop<E, true>(x, residual, count, to);
}
template <class E>
[[gnu::always_inline]] inline void decompress_loop(const E* from, std::size_t count, float* x) {
    using tile = float_tile<E>;
    const std::size_t whole = count / tile::size * tile::size, rest = count - whole;
    tile held;
    for (std::size_t at = 0; at < whole; at += tile::size, from += tile::elements) {
        held.load(from);
        for (std::size_t i = 0; i < tile::size; ++i) x[at + i] = held.values[i];
    }
    if (rest == 0) return;
    E last[tile::elements] = {};
    std::memcpy(static_cast<void*>(last), from, tile::elements_of(rest) * sizeof(E));
    held.load(last);
    std::memcpy(x + whole, held.values, rest * sizeof(float));
}

/// Writes the `count` floats of x, each with the residual of its place added, to as many elements as hold them; a
/// last one that is not full is filled up with zeros. residual may be null: then none is added or kept.
template <holds_floats E>
void compress_array(const float* x, float* residual, std::size_t count, E* to) {
    for_processor<&compress_either<E>>::run(x, residual, count, to);
}
/// The reverse: reads `count` floats.
template <holds_floats E>
void decompress_array(const E* from, std::size_t count, float* x) {
    for_processor<&decompress_loop<E>>::run(from, count, x);
}

}  // namespace colls::inline v1::detail
