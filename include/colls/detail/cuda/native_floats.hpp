// CUDA's own small floats: folded in float, and rounded once a fold.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/detail/cuda/fold_elements.hpp>

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

}  // namespace colls::inline v1::cuda::detail
