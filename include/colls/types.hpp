// More element types than arithmetic ones: bfloat16 (8 exponent bits, 7 of fraction), half (IEEE 754 binary16, 5 and
// 10), and value_index for minloc and maxloc. std::complex and users' own trivially copyable types need no header.
//
// Conversions to the small floats from wider types round to nearest, ties to even, once; subnormals and infinities are
// kept, and a NaN stays a NaN (quiet, its upper payload kept).
#pragma once

#include <colls/detail/reduce/small_float.hpp>

namespace colls::inline v1 {

/// bfloat16: the upper half of a float. 2 bytes, trivially copyable; `.bits`, `from_bits(b)`, explicit from numbers,
/// implicit to float; arithmetic rounds after each operation (a reduction by a library operator rounds once a fold).
using bfloat16 = detail::small_float<detail::bfloat16_format>;
/// IEEE 754 binary16, otherwise as bfloat16. Finite up to 65504.
using half = detail::small_float<detail::half_format>;

/// A value with its position, for minloc and maxloc.
template <class T, class I = int>
struct value_index {
    T value;  ///< what is compared
    I index;  ///< where it is; of equal values the lower index wins
    friend constexpr bool operator==(const value_index&, const value_index&) = default;
};

}  // namespace colls::inline v1
