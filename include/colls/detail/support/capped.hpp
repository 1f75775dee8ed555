// Sums and products of sizes that a user gives, which may not be sizes of anything.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/config.hpp>

#include <cstddef>

namespace colls::inline v1::detail {

/// No memory is longer, in whatever unit it is counted.
inline constexpr std::size_t longest_memory = ~std::size_t{0} >> 1;
/// A number below 0 that became a size.
constexpr bool is_negative(std::size_t size) { return size > longest_memory; }
/// More than that. A sum or product of which a part is so large is so itself.
inline constexpr std::size_t beyond_memory = ~std::size_t{0};

constexpr std::size_t capped_sum(std::size_t a, std::size_t b) {
    return a > longest_memory || b > longest_memory - a ? beyond_memory : a + b;
}
constexpr std::size_t capped_product(std::size_t a, std::size_t b) {
    std::size_t made = 0;
    return __builtin_mul_overflow(a, b, &made) || made > longest_memory ? beyond_memory : made;
}

}  // namespace colls::inline v1::detail
