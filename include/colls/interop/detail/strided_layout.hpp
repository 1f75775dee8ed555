// The layout of a tensor of any strides, in the order of its indices, and the type of its elements.
// IWYU pragma: private, include <colls/interop/strided_buffer.hpp>
#pragma once

#include <colls/detail/support/sizes.hpp>
#include <colls/dynamic.hpp>
#include <colls/error.hpp>
#include <colls/operators.hpp>

#include <cstddef>
#include <type_traits>

namespace colls::inline v1::detail {

[[noreturn, gnu::cold]] inline void refuse_tensor(const error_text& why) {
    throw error(errc::invalid_argument, why.text());
}
/// "3 x 4".
template <class Extent>
[[gnu::cold]] error_text& put_extents(error_text& text, int rank, const Extent& extent) {
    for (int d = 0; d < rank; ++d) text << (d == 0 ? "" : " x ") << static_cast<long long>(extent(d));
    return rank == 0 ? text << "1" : text;
}

/// A complex number of any library: two numbers, real and imaginary.
template <class T, class Part>
concept complex_of = std::is_class_v<T> && sizeof(T) == 2 * sizeof(Part) && requires(const T& z) {
    { z.real() } -> std::convertible_to<Part>;
    { z.imag() } -> std::convertible_to<Part>;
    requires std::is_same_v<typename T::value_type, Part>;
};

/// The element type that a dynamic call has for T: bytes where it has no code.
template <class T>
dynamic::element_type element_type_of() {
    using dynamic::type;
    if constexpr (std::is_same_v<T, bool>)
        return type::boolean;
    else if constexpr (std::is_integral_v<T>) {
        constexpr type is_signed[] = {type::int8, type::int16, type::int32, type::int64},
                       is_unsigned[] = {type::uint8, type::uint16, type::uint32, type::uint64};
        constexpr int at = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
        return std::is_signed_v<T> ? is_signed[at] : is_unsigned[at];
    } else if constexpr (std::is_same_v<T, half>)
        return type::half;
    else if constexpr (std::is_same_v<T, bfloat16>)
        return type::bfloat16;
    else if constexpr (std::is_same_v<T, float>)
        return type::float32;
    else if constexpr (std::is_same_v<T, double>)
        return type::float64;
    else if constexpr (std::is_same_v<T, long double>)
        return type::long_double;
    else if constexpr (complex_of<T, float>)
        return type::complex_float32;
    else if constexpr (complex_of<T, double>)
        return type::complex_float64;
    else
        return dynamic::element_type::bytes(sizeof(T));
}

/// The elements of a tensor: how many, and where they lie, the last index running fastest.
struct strided_layout {
    std::size_t count = 1;
    bool in_row = true;  ///< they follow each other: no layout is needed
    dynamic::data_layout layout = dynamic::data_layout::contiguous(1);
};
/// `extent(d)` and `stride(d)`, in elements, of dimensions 0 to rank - 1. Throws invalid_argument where a stride is
/// negative, or 0 where elements differ by it, or there are more elements than an address space holds.
template <class Extent, class Stride>
strided_layout layout_of(int rank, const Extent& extent, const Stride& stride) {
    strided_layout l;
    for (int d = 0; d < rank; ++d)
        if (extent(d) < 0 || __builtin_mul_overflow(l.count, extent(d), &l.count) || l.count > ~std::size_t{0} >> 1) {
            error_text text;
            put_extents(text << "colls: a tensor cannot have ", rank, extent);
            refuse_tensor(text << " elements");
        }
    if (l.count == 0) return l;
    std::size_t n = 1, step = 1;  // dimensions that are as one so far: n elements, or blocks, `step` apart
    for (int d = rank - 1; d >= 0; --d) {
        const auto size = static_cast<std::size_t>(extent(d));
        if (size == 1) continue;
        if (stride(d) <= 0) {
            error_text text;
            put_extents(text << "colls: a tensor of ", rank, extent);
            refuse_tensor(text << " elements has the stride " << static_cast<long long>(stride(d)) << " in dimension "
                               << d
                               << (stride(d) == 0 ? ", so that elements overlap: copy it"
                                                  : ", and a layout of a buffer has none below 0: copy it"));
        }
        const auto apart = static_cast<std::size_t>(stride(d));
        if (n == 1) {
            n = size, step = apart;
        } else if (apart == capped_product(n, step)) {
            n *= size;
        } else {
            l.layout = l.layout.repeated(n, step);
            l.in_row = false;
            n = size, step = apart;
        }
    }
    l.layout = l.layout.repeated(n, step);
    l.in_row = l.in_row && step == 1;
    return l;
}

}  // namespace colls::inline v1::detail
