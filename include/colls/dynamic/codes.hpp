// The element types and operators of dynamic.hpp, by code.
#pragma once

#include <colls/config.hpp>

namespace colls::inline v1 {
namespace dynamic {

/// An element type. The type of C++ that the typed call has is named where it is not obvious.
enum class type : unsigned char {
    int8,
    int16,
    int32,
    int64,  ///< std::int64_t, which is long where that has 64 bits: a typed call with long long is another call
    uint8,
    uint16,
    uint32,
    uint64,
    half,               ///< colls::half
    bfloat16,           ///< colls::bfloat16
    float32,            ///< float
    float64,            ///< double
    long_double,        ///< long double
    complex_float32,    ///< std::complex<float>
    complex_float64,    ///< std::complex<double>
    boolean,            ///< bool: each byte is 0 or 1
    float32_index,      ///< value_index<float>, for minloc and maxloc: a value, and its position as an int
    float64_index,      ///< value_index<double>
    int16_index,        ///< value_index<short>
    int32_index,        ///< value_index<int>
    int64_index,        ///< value_index<long>
    long_double_index,  ///< value_index<long double>
    bytes               ///< one byte, std::byte; element_type::bytes(k) is k of them
};

/// An operator. Those of operators.hpp, of which premul_sum takes a factor (reduction::premul_sum).
enum class op : unsigned char {
    sum,          ///< of integers, wrapping; of floating-point and complex numbers; of bool: or
    prod,         ///< as sum; of bool: and
    min,          ///< of integers and floating-point numbers; of bool: and
    max,          ///< of integers and floating-point numbers; of bool: or
    avg,          ///< of all numbers but bool; not in scans
    premul_sum,   ///< of all numbers but bool
    logical_and,  ///< of integers and bool
    logical_or,
    logical_xor,
    bit_and,  ///< of integers, bool and bytes
    bit_or,
    bit_xor,
    minloc,  ///< of the types ..._index
    maxloc,
    exact,    ///< colls::exact (exact.hpp), of half, bfloat16, float32 and float64: blocking calls but scans
    function  ///< a vector function (reduction::function), of every type
};

}  // namespace dynamic
}  // namespace colls::inline v1
