// On a GPU: calls within kernels by blocks of the right and of a wrong form.
#include <colls/cuda/device.hpp>
#include <colls/transports/cuda.hpp>

#include <cstdio>
#include <vector>

namespace {

using colls::cuda::detail::check;
using schedule = colls::one_shot::all_reduce;
constexpr int n = 2;

__global__ void __launch_bounds__(512, 1)
    sums(const __grid_constant__ colls::cuda::device::ranks<schedule> r, float* x, std::size_t count) {
    const int local = static_cast<int>(blockIdx.x);
    colls::cuda::device::all_reduce(r, local, 0, x + local * count, x + local * count, count, colls::sum_t{});
}

int wrong = 0;

/// Sums of ones by blocks of that form; `right`: is it one that calls take?
void call(dim3 block, std::size_t count, bool right) {
    colls::cuda::virtual_ranks ranks(n, {.channels = 1});
    std::vector<float> host(n * count, 1.0f);
    const colls::cuda::detail::device_memory there(ranks.device(), host.size() * sizeof(float), host.data());
    auto r = colls::cuda::ranks_for<schedule>(ranks);
    auto* x = reinterpret_cast<float*>(there.data());
    void* arguments[] = {&r, &x, &count};
    check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&sums), dim3(n), block, arguments, 0, nullptr),
        "cudaLaunchCooperativeKernel");
    check(cudaMemcpy(host.data(), x, host.size() * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
    bool refused = false;
    try {
        ranks.check();
    } catch (const colls::error& e) {
        refused = e.code() == colls::errc::invalid_argument;
        std::printf("%s\n", e.what());
    }
    std::size_t bad = 0;
    for (const float y : host) bad += y != (right ? n : 1);
    if (refused == right || bad != 0)
        ++wrong, std::printf("wrong: blocks of %u x %u x %u, %zu elements\n", block.x, block.y, block.z, count);
}

}  // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    try {
        for (const std::size_t count : {std::size_t{5}, std::size_t{20'000}}) {
            call(dim3(64), count, true);
            call(dim3(512), count, true);
            call(dim3(16, 4), count, false);
            call(dim3(48), count, false);
        }
        return wrong == 0 ? 0 : 1;
    } catch (const colls::error& e) {
        return std::printf("%s\n", e.what()), 1;
    }
}
