// One process a GPU, on any number of hosts: gradients reduced within each host over NVLink or PCIe by kernels, between
// hosts by the library's own transport with host staging (RDMA or TCP, as COLLS_TRANSPORT says), and spread within the
// host again. That is hierarchical<direct, ring> with each level where it is fastest: what crosses the network is 1/n
// of the data a rank.
//
// Started by mpirun, srun, torchrun or anything else that colls::world() knows; see README.md and job.sbatch.
#include <colls/colls.hpp>
#include <colls/transports/cuda.hpp>
#include <colls/world.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;

void check(cudaError_t code, const char* what) { colls::cuda::detail::check(code, what); }

/// Which host this is, as a color: the least rank of the world that shares it.
int host_color(colls::communicator& world) {
    const std::vector<std::uint64_t> own = {colls::cuda::detail::host_identity()};
    std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
    colls::all_gather(world, own, all);
    int color = 0;
    while (all[static_cast<std::size_t>(color)] != own[0]) ++color;
    return color;
}

/// Gradients of a rank: summed over all of the world.
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
    colls::communicator node_, lane_;  // the ranks of this host; those of all hosts with this one's number
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
    } catch (const colls::error& e) {
        return std::fprintf(stderr, "%s\n", e.what()), 1;
    }
}
