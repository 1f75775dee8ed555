// A program outside of the project that sums two ranks' buffers on a GPU.
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>

#include <cstdio>
#include <span>
#include <vector>

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    float* x = nullptr;
    if (cudaMallocManaged(&x, 2000 * sizeof(float)) != cudaSuccess) return 1;
    for (int i = 0; i < 2000; ++i) x[i] = 1;
    colls::cuda::virtual_ranks ranks(2);
    const std::vector<std::span<float>> buffers = {{x, 1000}, {x + 1000, 1000}};
    colls::cuda::all_reduce<colls::ring>(ranks, buffers, colls::sum, cudaStream_t{});
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    return x[0] == 2 && x[1999] == 2 ? 0 : 1;
}
