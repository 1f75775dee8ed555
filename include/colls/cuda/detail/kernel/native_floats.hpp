// CUDA's own small floats: folded in float, and rounded once a fold.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/kernel/fold_elements.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace colls::inline v1::cuda::detail {

template <>
struct fold_type<__half> {
    using type = float;
};
template <>
struct fold_type<__nv_bfloat16> {
    using type = float;
};
template <>
struct fold_type<__nv_fp8_e4m3> {
    using type = float;
};
template <>
struct fold_type<__nv_fp8_e5m2> {
    using type = float;
};

/// Vectors of fp8, of which one instruction converts two. The bits are those of single conversions.
template <class To, class From, __nv_fp8_interpretation_t format>
struct fp8_conversion {
    template <std::uint32_t N>
    COLLS_DEVICE static void read(const vector<From, N>& from, float (&to)[N]) {
        COLLS_UNROLL
        for (std::uint32_t l = 0; l < N; l += 2) {
            __nv_fp8x2_storage_t bits;
            if constexpr (N == 16)
                bits = static_cast<__nv_fp8x2_storage_t>(from.word[l / 4] >> l % 4 * 8);
            else
                __builtin_memcpy(&bits, &from.of[l], sizeof bits);
            const float2 two = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(bits, format)));
            to[l] = two.x;
            to[l + 1] = two.y;
        }
    }
    template <std::uint32_t N>
    COLLS_DEVICE static vector<To, N> written(const float (&from)[N]) {
        vector<To, N> to{};
        COLLS_UNROLL
        for (std::uint32_t l = 0; l < N; l += 2) {
            const __nv_fp8x2_storage_t bits =
                __nv_cvt_float2_to_fp8x2(make_float2(from[l], from[l + 1]), __NV_SATFINITE, format);
            if constexpr (N == 16)
                to.word[l / 4] |= std::uint32_t{bits} << l % 4 * 8;
            else
                __builtin_memcpy(&to.of[l], &bits, sizeof bits);
        }
        return to;
    }
};
template <>
struct vector_conversion<float, __nv_fp8_e4m3> : fp8_conversion<float, __nv_fp8_e4m3, __NV_E4M3> {};
template <>
struct vector_conversion<__nv_fp8_e4m3, float> : fp8_conversion<__nv_fp8_e4m3, float, __NV_E4M3> {};
template <>
struct vector_conversion<float, __nv_fp8_e5m2> : fp8_conversion<float, __nv_fp8_e5m2, __NV_E5M2> {};
template <>
struct vector_conversion<__nv_fp8_e5m2, float> : fp8_conversion<__nv_fp8_e5m2, float, __NV_E5M2> {};

}  // namespace colls::inline v1::cuda::detail
