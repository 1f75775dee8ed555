// On a GPU: times of all_reduce with virtual ranks, compared with the memory bound 2·n·S / (bandwidth of a
// device-to-device copy in the same run), and of 16 bytes, compared with a synchronisation of the same grid. The
// columns are those of nccl-tests; "% bound" is the memory bound over the time. Calls use several inputs alternately,
// so that the second-level cache does not hold them. Argument: the largest buffer in bytes (256 MB); below 1 MB each
// cell has a few calls only, to see that they work.
#include "timing.hpp"

#include <colls/cuda/device.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>

#include <cooperative_groups.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

namespace {

using colls::cuda::detail::check;
using one_shot = colls::one_shot::all_reduce;

template <class F>
double seconds(cudaStream_t stream, int times, const F& f) {
    return times_of(stream, times, f).stream;
}

std::size_t most = std::size_t{256} << 20;  // bytes of a buffer
bool is_trial() { return most < (1 << 20); }
constexpr int threads = 256;
__global__ void __launch_bounds__(threads, 1) grid_syncs(int rounds) {
    for (int i = 0; i < rounds; ++i) cooperative_groups::this_grid().sync();
}
__global__ void __launch_bounds__(threads, 1)
    small_sums(const __grid_constant__ colls::cuda::device::ranks<one_shot> r, float* x, int rounds) {
    const int local = static_cast<int>(blockIdx.x);
    for (int i = 0; i < rounds; ++i)
        if (!colls::cuda::device::all_reduce(r, local, 0, x + 4 * local, x + 4 * local, 4, colls::max_t{})) return;
}

template <class S>
void table(int n, const char* name, double bandwidth, cudaStream_t stream, float* in, float* out, std::size_t room,
    std::size_t least = 16, std::size_t chunk = colls::cuda::options{}.chunk_bytes) {
    colls::cuda::virtual_ranks ranks(n, {.chunk_bytes = chunk});
    for (std::size_t bytes = least; bytes <= most; bytes *= 4) {
        const std::size_t count = bytes / sizeof(float), set = static_cast<std::size_t>(n) * count,
                          sets = std::max<std::size_t>(room / set, 1);
        std::size_t turn = 0;
        const auto each = [&](float* all) {
            std::vector<std::span<float>> b;
            for (std::size_t r = 0; r < static_cast<std::size_t>(n); ++r)
                b.emplace_back(all + turn % sets * set + r * count, count);
            return b;
        };
        const double t = seconds(stream,
            is_trial()          ? 1
            : bytes < (1 << 20) ? 50
                                : 10,
            [&] {
                colls::cuda::all_reduce<S>(ranks, each(in), each(out), colls::sum, stream);
                ++turn;
            });
        ranks.check();
        const double algorithm = static_cast<double>(bytes) / t,
                     bound = 2.0 * n * static_cast<double>(bytes) / bandwidth;
        std::printf("%3d %-10s %12zu %12zu %8s %6s %10.1f %8.2f %8.2f %8.1f\n", n, name, bytes, count, "float", "sum",
            t * 1e6, algorithm / 1e9, algorithm * 2 * (n - 1) / n / 1e9, 100 * bound / t);
    }
}

int run() {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    const std::size_t room = 8 * most / sizeof(float);
    int rounds = is_trial() ? 10 : 1000;
    const colls::cuda::detail::device_memory in(0, room * sizeof(float)), out(0, room * sizeof(float));
    auto *const a = reinterpret_cast<float*>(in.data()), *const b = reinterpret_cast<float*>(out.data());
    check(cudaMemset(a, 0x3f, room * sizeof(float)), "cudaMemset");
    const double copy = seconds(stream, 5, [&] {
        check(cudaMemcpyAsync(b, a, room * sizeof(float), cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
    });
    const double bandwidth = 2.0 * static_cast<double>(room * sizeof(float)) / copy;
    std::printf("copy device to device: %.0f GB/s, read and written\n\n", bandwidth / 1e9);
    for (const int n : {2, 4, 8}) {
        colls::cuda::virtual_ranks ranks(n, {.channels = 1});
        auto r = colls::cuda::ranks_for<one_shot>(ranks);
        float* x = a;
        void *arguments[] = {&r, &x, &rounds}, *count[] = {&rounds};
        const auto launch = [&](const void* kernel, void** args) {
            check(cudaLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(n)), dim3(threads), args, 0, stream),
                "cudaLaunchCooperativeKernel");
        };
        const double sync =
            seconds(stream, 1, [&] { launch(reinterpret_cast<const void*>(&grid_syncs), count); }) / rounds;
        const double sum =
            seconds(stream, 1, [&] { launch(reinterpret_cast<const void*>(&small_sums), arguments); }) / rounds;
        ranks.check();
        std::printf("%d ranks: 16 bytes %.2f us, a synchronisation of the same grid %.2f us: %.2f times that\n", n,
            sum * 1e6, sync * 1e6, sum / sync);
    }
    std::printf("\n%3s %-10s %12s %12s %8s %6s %10s %8s %8s %8s\n", "n", "schedule", "size (B)", "count", "type",
        "redop", "time (us)", "algbw", "busbw", "% bound");
    // The size of chunks: with smaller ones results are read from the cache, with larger ones there are fewer waits.
    for (const int n : {2, 8}) {
        table<colls::direct>(n, "chunk 32K", bandwidth, stream, a, b, room, most, 32 << 10);
        table<colls::direct>(n, "chunk 64K", bandwidth, stream, a, b, room, most, 64 << 10);
        table<colls::direct>(n, "chunk 256K", bandwidth, stream, a, b, room, most, 256 << 10);
        table<colls::direct>(n, "chunk 1M", bandwidth, stream, a, b, room, most, 1 << 20);
    }
    for (const int n : {2, 4, 8}) {
        table<colls::direct>(n, "direct", bandwidth, stream, a, b, room);
        table<colls::ring>(n, "ring", bandwidth, stream, a, b, room);
    }
    cudaStreamDestroy(stream);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1) most = std::max<std::size_t>(std::strtoull(argv[1], nullptr, 0), 16);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    try {
        return run();
    } catch (const colls::error& e) {
        return std::printf("%s\n", e.what()), 1;
    }
}
