// One process a GPU, on any number of hosts: an all_reduce of gradients over all GPUs. A reduce_scatter within each
// host, by kernels over NVLink or PCIe; an all_reduce between hosts, by the library's host transport (RDMA or TCP, as
// COLLS_TRANSPORT says) through host memory; an all_gather within each host. With n GPUs a host, each rank sends 1/n of
// the data across the network. Prints "left out" and returns 77 where there is no GPU.
//
// Build: nvcc -std=c++20 --expt-relaxed-constexpr -arch=native -Iinclude examples/gpu_cluster/main.cu -o gpu_cluster
// Run:   mpirun -np 8 ./gpu_cluster [FLOATS [TIMES]], or by srun, torchrun and others: see README.md and job.sbatch.
#include <colls/colls.hpp>
#include <colls/transports/cuda.hpp>
#include <colls/world.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;

void check(cudaError_t code, const char* what) {
    if (code != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
}

/// The color of this rank's host: the lowest rank of the world on the same host. Linux gives a host an id at each boot;
/// COLLS_HOST names it otherwise, as for the library.
int host_color(colls::communicator& world) {
    std::string id;
    if (const char* const name = std::getenv("COLLS_HOST"))
        id = name;
    else
        std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
    const std::vector<std::size_t> own = {std::hash<std::string>{}(id)};
    std::vector<std::size_t> all(static_cast<std::size_t>(world.size()));
    colls::all_gather(world, own, all);
    int color = 0;
    while (all[static_cast<std::size_t>(color)] != own[0]) ++color;
    return color;
}

/// The gradients of a rank, which run() sums over all ranks of the world.
class exchange {
public:
    exchange(colls::communicator& world, std::size_t count)
        : node_(world.split(host_color(world), world.rank())),
          lane_(world.split(node_.rank(), world.rank())),
          device_(pick(node_.rank())),
          gpu_(node_, device_, {.arena_bytes = 2 * count * sizeof(float) + (1 << 20)}),
          gradients_(gpu_.allocate<float>(count)),
          block_(gpu_.allocate<float>(share(count))),
          count_(count) {
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        check(cudaHostAlloc(&staged_, block_.size() * sizeof(float) + 1, cudaHostAllocDefault), "cudaHostAlloc");
    }
    exchange(const exchange&) = delete;
    ~exchange() {
        cudaStreamSynchronize(stream_);
        cudaFreeHost(staged_);
        cudaStreamDestroy(stream_);
    }
    float* data() const { return gradients_.data(); }
    int ranks_of_host() const { return node_.size(); }
    cudaStream_t stream() const { return stream_; }

    void run() {
        colls::cuda::reduce_scatter(gpu_, gradients_, block_, colls::sum, stream_);
        const std::size_t bytes = block_.size() * sizeof(float);
        if (lane_.size() > 1) {
            check(cudaMemcpyAsync(staged_, block_.data(), bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
            check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
            colls::all_reduce<colls::ring>(lane_, std::span<float>(staged_, block_.size()), colls::sum);
            check(cudaMemcpyAsync(block_.data(), staged_, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
        }
        colls::cuda::all_gather(gpu_, block_, gradients_, stream_);
    }
    void finish() {
        check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        gpu_.check();
    }

private:
    static int pick(int rank_of_host) {
        int devices = 0;
        check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
        check(cudaSetDevice(rank_of_host % devices), "cudaSetDevice");
        return rank_of_host % devices;
    }
    std::size_t share(std::size_t count) const {
        const auto n = static_cast<std::size_t>(node_.size()), r = static_cast<std::size_t>(node_.rank());
        return count / n + (r < count % n);
    }
    colls::communicator node_, lane_;  // the ranks of this host; the ranks of all hosts with the same number in theirs
    int device_;
    colls::cuda::communicator gpu_;
    colls::cuda::memory<float> gradients_, block_;
    std::size_t count_;
    cudaStream_t stream_ = nullptr;
    float* staged_ = nullptr;
};

int run(std::size_t count, int times) {
    colls::communicator world = colls::world();
    exchange e(world, count);
    std::vector<float> host(count);
    for (std::size_t i = 0; i < count; ++i)
        host[i] = static_cast<float>(i % 100 + static_cast<std::size_t>(world.rank()));
    check(cudaMemcpyAsync(e.data(), host.data(), count * sizeof(float), cudaMemcpyHostToDevice, e.stream()),
        "cudaMemcpyAsync");
    e.run();
    check(cudaMemcpyAsync(host.data(), e.data(), count * sizeof(float), cudaMemcpyDeviceToHost, e.stream()),
        "cudaMemcpyAsync");
    e.finish();
    const auto n = static_cast<std::size_t>(world.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) wrong += host[i] != static_cast<float>(n * (i % 100) + n * (n - 1) / 2);

    colls::barrier(world);
    const auto before = clock_type::now();
    for (int i = 0; i < times; ++i) e.run();
    e.finish();
    const double seconds = std::chrono::duration<double>(clock_type::now() - before).count() / times;
    if (world.rank() == 0)
        std::printf("%d ranks, %d a host, %zu floats: %s; %.3f ms a step, %.2f GB/s of the gradients\n", world.size(),
            e.ranks_of_host(), count, wrong == 0 ? "right" : "wrong", seconds * 1e3,
            static_cast<double>(count * sizeof(float)) / seconds / 1e9);
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    const std::size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : std::size_t{1} << 24;
    try {
        return run(count, argc > 2 ? std::atoi(argv[2]) : 10);
    } catch (const std::exception& e) {
        return std::fprintf(stderr, "%s\n", e.what()), 1;
    }
}
