// Sums and products of sizes that a user gives, which may not be sizes of anything; classes of sizes; and how a range
// is cut into balanced parts.
// IWYU pragma: private, include <colls/blocks.hpp>
#pragma once

#include <colls/error.hpp>

#include <cstddef>
#include <cstdint>

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

struct extent {
    std::size_t first = 0, count = 0;
};

/// Part i of `parts` of a range: sizes differ by at most one, the longer ones first. An executor asks several times a
/// call; a division takes longer than a shift, and most numbers of ranks are powers of two.
constexpr extent balanced(std::size_t count, std::size_t parts, std::size_t i) {
    const bool shifts = (parts & (parts - 1)) == 0;
    const std::size_t q = shifts ? count >> __builtin_ctzll(parts) : count / parts, r = count - q * parts;
    return {i * q + (i < r ? i : r), q + (i < r ? 1 : 0)};
}

/// Sizes are told apart to an eighth of a power of two: there is one choice for all sizes of a class.
constexpr std::uint64_t size_class(std::size_t bytes) {
    if (bytes < 16) return bytes;
    const int log = 60 - __builtin_clzll(bytes);  // bytes >> log is 8 to 15
    return static_cast<std::uint64_t>(log) * 8 + (bytes >> log);
}
constexpr int class_log(std::size_t bytes) {
    int log = 0;
    while (bytes >> log >= 16) ++log;
    return log;
}
/// The smallest size of the class, from which all ranks predict for all calls of the class; and the largest.
constexpr double class_bytes(std::size_t bytes) {
    const int log = class_log(bytes);
    return static_cast<double>(bytes >> log << log);
}
constexpr std::size_t most_of_class(std::size_t bytes) {
    const int log = class_log(bytes);
    return (((bytes >> log) + 1) << log) - 1;
}

/// Throws that there is no block r of n.
[[noreturn, gnu::cold]] inline void throw_no_block(int n, int r) {
    error_text text;
    text << "colls: block_of: ";
    if (n < 1)
        text << "a buffer cannot be cut into " << n << " blocks";
    else
        text << "block " << r << " is out of range: there are blocks 0 to " << n - 1;
    throw error(errc::invalid_argument, text);
}

}  // namespace colls::inline v1::detail
