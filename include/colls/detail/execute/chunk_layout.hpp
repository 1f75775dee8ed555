// How the units of an operation are cut into chunks, which go through the rounds of its plan one after the other.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <cstddef>

namespace colls::inline v1::detail {

/// Bytes rounded up to whole cache lines: regions of scratch memory begin at one.
constexpr std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Every rank of a group computes the same layout; a rank that may not know the lengths of others' units has one chunk.
struct chunk_layout {
    static constexpr std::size_t whole_unit = ~std::size_t{0} / 2;
    static constexpr std::size_t any_number = ~std::size_t{0};

    std::size_t count = whole_unit;  ///< elements of a unit in one chunk
    std::size_t chunks = 1;
    std::size_t slot_bytes = 0;  ///< of a scratch slot, which holds a chunk of a unit, or a whole one

    /// Units of `longest` elements or fewer in chunks of `bytes` bytes, but at least one element each, and in no more
    /// chunks than `most`. Leaves slot_bytes as it is.
    constexpr void cut(std::size_t longest, std::size_t element, std::size_t bytes, std::size_t most) {
        count = whole_unit;
        chunks = 1;
        if (longest == 0) return;
        if (longest * element <= bytes && longest <= most) {  // as most short calls are: without a division
            count = longest;
            return;
        }
        count = bytes / element > 0 ? bytes / element : 1;
        if (longest / most >= count) count = longest / most + 1;
        chunks = (longest + count - 1) / count;
    }
    /// One chunk, whatever the lengths of the units.
    constexpr void keep_whole() {
        count = whole_unit;
        chunks = 1;
    }
};

}  // namespace colls::inline v1::detail
