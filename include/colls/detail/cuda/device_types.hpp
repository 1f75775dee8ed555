// CUDA's own small floats: folded in float, rounded once a fold.
#pragma once

#include <colls/detail/cuda/sweep.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace colls::inline v1::cuda::detail {

template <>
struct widened<__half> {
    using type = float;
};
template <>
struct widened<__nv_bfloat16> {
    using type = float;
};
template <>
struct widened<__nv_fp8_e4m3> {
    using type = float;
};
template <>
struct widened<__nv_fp8_e5m2> {
    using type = float;
};

}  // namespace colls::inline v1::cuda::detail
