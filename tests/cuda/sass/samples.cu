// Kernels that tests/cuda/sass/check must pass or refuse: see tests/cuda/sass/test.
#include <cuda_runtime.h>

namespace {

__device__ float4 sum(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

/// A load that stays where it is written.
__device__ float4 load(const float4* from) {
    float4 x;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
        : "l"(from)
        : "memory");
    return x;
}

/// `depth` loads without a condition, then their use.
template <int depth>
__device__ void together(float4* to, const float4* from, unsigned n, unsigned apart) {
#pragma unroll 1
    for (unsigned v = threadIdx.x; v < n; v += depth * apart) {
        float4 got[depth];
#pragma unroll
        for (int d = 0; d < depth; ++d) got[d] = load(from + v + d * apart);
#pragma unroll
        for (int d = 0; d < depth; ++d) to[v + d * apart] = sum(got[d], got[d]);
    }
}

}  // namespace

extern "C" __global__ void eight_of_float(float4* to, const float4* from, unsigned n, unsigned apart) {
    together<8>(to, from, n, apart);
}
extern "C" __global__ void four_of_float(float4* to, const float4* from, unsigned n, unsigned apart) {
    together<4>(to, from, n, apart);
}
/// Packets by accesses without order: the compiler may cut them.
extern "C" __global__ void weak_eager_kernel_of_float(float4* to, const float4* from, unsigned n, unsigned apart) {
    together<4>(to, from, n, apart);
}
extern "C" __global__ void conditional_of_float(float4* to, const float4* from, unsigned n, unsigned apart) {
#pragma unroll 1
    for (unsigned v = threadIdx.x; v < n; v += 8 * apart) {
        float4 got[8] = {};
#pragma unroll
        for (int d = 0; d < 8; ++d)
            if (v + d * apart < n) got[d] = from[v + d * apart];
#pragma unroll
        for (int d = 0; d < 8; ++d)
            if (v + d * apart < n) to[v + d * apart] = sum(got[d], got[d]);
    }
}
/// Each load's address depends on the load before.
extern "C" __global__ void chained_of_float(float4* to, const float4* from, unsigned n) {
    float4 all = {};
#pragma unroll 1
    for (unsigned v = threadIdx.x; v < n; v += 512) {
#pragma unroll
        for (int d = 0; d < 8; ++d) all = sum(all, from[static_cast<unsigned>(all.x) + v]);
    }
    to[threadIdx.x] = all;
}
/// An array at a position that the compiler does not know is in local memory.
extern "C" __global__ void local_of_float(float4* to, const float4* from, const unsigned* which, unsigned n) {
#pragma unroll 1
    for (unsigned v = threadIdx.x; v < n; v += 512) {
        float4 got[32];
#pragma unroll
        for (int d = 0; d < 8; ++d) got[d] = load(from + v + 512 * d);
#pragma unroll 1
        for (unsigned i = 0; i < n; ++i) got[which[i]] = got[i];
        to[v] = got[which[v]];
    }
}
