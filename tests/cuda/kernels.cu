// The main kernels, whose registers and size tests/cuda/compile checks. Run on a GPU it checks that they load.
#include <colls/family.hpp>
#include <colls/schedules/direct.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>

#include <cstdio>

namespace {

using colls::collective;
using colls::cuda::no_epilogue;
using colls::cuda::detail::eager_kernel;
using colls::cuda::detail::multicast_kernel;
using colls::cuda::detail::schedule_kernel;
using colls::cuda::detail::stored_schedule;

template <class F, class T>
const void* large() {
    return reinterpret_cast<const void*>(
        &schedule_kernel<colls::schedule_for<F, collective::all_reduce>, T, T, colls::sum_t, no_epilogue>);
}
/// What `automatic` runs where it is not direct.
template <class T>
const void* by_steps() {
    return reinterpret_cast<const void*>(
        &schedule_kernel<stored_schedule<collective::all_reduce>, T, T, colls::sum_t, no_epilogue>);
}
template <class T>
const void* by_switch() {
    return reinterpret_cast<const void*>(&multicast_kernel<T, T, colls::sum_t, no_epilogue>);
}
template <class T>
const void* small() {
    return reinterpret_cast<const void*>(&eager_kernel<collective::all_reduce, T, T, colls::sum_t, no_epilogue>);
}

}  // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    for (const void* kernel :
        {large<colls::ring, float>(), large<colls::direct, float>(), large<colls::direct, __nv_bfloat16>(),
            large<colls::direct, __half>(), large<colls::direct, __nv_fp8_e4m3>(), by_steps<float>(),
            by_steps<__nv_bfloat16>(), small<float>(), small<__nv_bfloat16>(), small<__nv_fp8_e4m3>(),
            by_switch<float>(), by_switch<__nv_bfloat16>(), by_switch<__half>()}) {
        cudaFuncAttributes a{};
        if (cudaFuncGetAttributes(&a, kernel) != cudaSuccess) return std::printf("a kernel does not load\n"), 1;
        std::printf("%d registers, %zu bytes of local memory\n", a.numRegs, a.localSizeBytes);
    }
    return 0;
}
