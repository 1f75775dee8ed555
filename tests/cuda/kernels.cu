// The main kernels, whose registers and size tests/cuda/compile checks. Run on a GPU it checks that they load.
#include <colls/schedules/direct.hpp>
#include <colls/schedules/hierarchical.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>

#include <cstdio>
#include <span>

namespace {

using colls::collective;
using colls::cuda::no_epilogue;
using colls::cuda::detail::eager_kernel;
using colls::cuda::detail::multicast_kernel;
using colls::cuda::detail::schedule_kernel;
using colls::cuda::detail::stored_schedule;

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

/// A user's schedule: rank 0 folds what the others send, one in each round, and sends the result to each in turn.
struct in_turn {
    static constexpr collective implements = collective::all_reduce;
    static constexpr int rounds(int n) { return 2 * (n - 1); }
    static constexpr colls::step at(int rank, int n, int round) {
        const bool folds = round < n - 1;
        const int other = 1 + round % (n - 1);
        colls::step s;
        if (rank == (folds ? other : 0)) s.send = {folds ? 0 : other, colls::block(0)};
        if (rank == (folds ? 0 : other))
            s.recv = {folds ? other : 0, colls::block(0), folds ? colls::action::reduce : colls::action::copy};
        return s;
    }
};

}  // namespace

/// Compiled only: what these calls launch is no larger than other kernels, whatever the code of their schedules is.
void by_long_schedules(colls::cuda::communicator& c, std::span<float> x, cudaStream_t stream) {
    colls::cuda::all_reduce<colls::hierarchical<colls::direct, colls::ring>>(c, x, colls::max, stream);
    colls::cuda::all_reduce<in_turn>(c, x, colls::min, stream);
}

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    for (const void* kernel : {by_steps<float>(), by_steps<__nv_bfloat16>(), by_steps<__half>(),
             by_steps<__nv_fp8_e4m3>(), small<float>(), small<__nv_bfloat16>(), small<__nv_fp8_e4m3>(),
             by_switch<float>(), by_switch<__nv_bfloat16>(), by_switch<__half>()}) {
        cudaFuncAttributes a{};
        if (cudaFuncGetAttributes(&a, kernel) != cudaSuccess) return std::printf("a kernel does not load\n"), 1;
        std::printf("%d registers, %zu bytes of local memory\n", a.numRegs, a.localSizeBytes);
    }
    return 0;
}
