// One process a GPU, on any number of hosts: gradients are summed over all GPUs, bucket by bucket, while a kernel still
// computes those of the next bucket. Prints "left out" and returns 77 where there is no GPU.
//
// Build: nvcc -std=c++20 --expt-relaxed-constexpr -arch=native -Iinclude examples/gpu_cluster/main.cu -o gpu_cluster
// Run:   mpirun -np 8 ./gpu_cluster [FLOATS [TIMES]], or by srun, torchrun and others: see README.md and job.sbatch.
#include <colls/colls.hpp>
#include <colls/transports/cuda.hpp>
#include <colls/world.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(cudaError_t code, const char* what) {
    if (code != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
}

/// What stands for the backward pass: gradient i of a rank is i % 100 + rank.
__global__ void compute(float* gradients, std::size_t first, std::size_t count, int rank) {
    const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += step)
        gradients[first + i] = static_cast<float>((first + i) % 100 + static_cast<std::size_t>(rank));
}

int run(std::size_t count, int times, int devices) {
    // example-begin gpu_cluster
    colls::communicator world = colls::world();
    const int device = colls::read_launch().local_rank % devices;
    check(cudaSetDevice(device), "cudaSetDevice");
    colls::cuda::communicator gpus(
        world, device, {.arena_bytes = count * sizeof(float) + (1 << 20), .share_devices = true});
    colls::cuda::memory<float> gradients = gpus.allocate<float>(count);
    cudaStream_t computing, summing;
    cudaEvent_t computed;
    check(cudaStreamCreateWithFlags(&computing, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaStreamCreateWithFlags(&summing, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaEventCreateWithFlags(&computed, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    const auto step = [&] {
        constexpr std::size_t buckets = 4;
        for (std::size_t b = 0; b < buckets; ++b) {
            const std::size_t first = b * count / buckets, size = (b + 1) * count / buckets - first;
            compute<<<8, 256, 0, computing>>>(gradients.data(), first, size, world.rank());
            check(cudaEventRecord(computed, computing), "cudaEventRecord");
            check(cudaStreamWaitEvent(summing, computed), "cudaStreamWaitEvent");
            // Within each host by kernels, and of each rank's share between the hosts: each byte crosses the network
            // once.
            colls::cuda::all_reduce<colls::hierarchical<colls::direct, colls::ring>>(
                gpus, std::span(gradients.data() + first, size), colls::sum, summing);
        }
        check(cudaStreamSynchronize(summing), "cudaStreamSynchronize");
        gpus.check();
    };
    // example-end

    step();
    std::vector<float> host(count);
    check(cudaMemcpy(host.data(), gradients.data(), count * sizeof(float), cudaMemcpyDefault), "cudaMemcpy");
    const auto n = static_cast<std::size_t>(world.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) wrong += host[i] != static_cast<float>(n * (i % 100) + n * (n - 1) / 2);

    colls::barrier(world);
    const auto before = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) step();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count() / times;
    if (world.rank() == 0)
        std::printf("%d ranks, %zu floats: %s; %.3f ms a step, %.2f GB/s of the gradients\n", world.size(), count,
            wrong == 0 ? "right" : "wrong", seconds * 1e3, static_cast<double>(count * sizeof(float)) / seconds / 1e9);
    check(cudaEventDestroy(computed), "cudaEventDestroy");
    check(cudaStreamDestroy(summing), "cudaStreamDestroy");
    check(cudaStreamDestroy(computing), "cudaStreamDestroy");
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    const std::size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : std::size_t{1} << 24;
    try {
        return run(count, argc > 2 ? std::atoi(argv[2]) : 10, devices);
    } catch (const std::exception& e) {
        return std::fprintf(stderr, "%s\n", e.what()), 1;
    }
}
