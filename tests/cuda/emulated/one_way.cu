// A program for mutants (mutate.py), like small.cu: collectives in one direction, back to back over three devices. Each
// rank overwrites what it has sent right behind the call, and makes the next one; the host waits for none of them, so
// that nothing but the calls themselves orders the ranks. Pulled, and on the eager path.
#include <colls/schedules/direct.hpp>
#include <colls/transports/cuda.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace {

using colls::cuda::protocol;
using colls::cuda::detail::check;
constexpr int n = 3, calls = 4, block = 64;
constexpr std::size_t most = 5'001;
int wrong = 0;

__device__ float value_of(int rank, std::size_t i, int call) {
    return static_cast<float>((rank + 1) * static_cast<int>(i % 7) + call);
}
__global__ void fill(float* x, std::size_t count, int rank, int call) {
    for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        x[i] = value_of(rank, i, call);
}
/// `from`: the rank whose value is expected, the sum of all for -1, that of a block's rank for -2.
__global__ void count_wrong(const float* y, std::size_t count, std::size_t first, int from, int call, int* bad) {
    for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        float expected = 0;
        if (from == -1)
            for (int r = 0; r < n; ++r) expected += value_of(r, i, call);
        else if (from == -2)
            expected = value_of(static_cast<int>(i / (count / n)), i % (count / n), call);
        else
            expected = value_of(from, first + i, call);
        if (y[i] != expected) atomicAdd(bad, 1);
    }
}

enum class kind { broadcast, scatter, gather, reduce };

struct rank_state {
    float *x = nullptr, *y = nullptr;
    int* bad = nullptr;
    cudaStream_t stream = {};
    explicit rank_state(int device) {
        check(cudaSetDevice(device), "cudaSetDevice");
        check(cudaMalloc(&x, n * most * sizeof(float)), "cudaMalloc");
        check(cudaMalloc(&y, n * most * sizeof(float)), "cudaMalloc");
        check(cudaMallocManaged(&bad, sizeof(int)), "cudaMallocManaged");
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        *bad = 0;
    }
    rank_state(const rank_state&) = delete;
    ~rank_state() {
        cudaStreamDestroy(stream);
        for (void* p : {static_cast<void*>(x), static_cast<void*>(y), static_cast<void*>(bad)}) cudaFree(p);
    }
};

/// A rank's part of a call, with what fills its input before and looks at its output behind.
void call(kind what, colls::cuda::communicator& comm, rank_state& s, std::size_t count, int number) {
    const int me = comm.rank(), root = (number + 1) / 2;  // 0, 1, 1, 2: one may go ahead
    const std::size_t all = n * count;
    const bool is_root = me == root;
    const auto of = [](float* at, std::size_t size) { return std::span<float>(at, size); };
    const auto fills = [&](std::size_t size) { fill<<<2, block, 0, s.stream>>>(s.x, size, me, number); };
    const auto expect = [&](const float* at, std::size_t size, std::size_t first, int from) {
        count_wrong<<<2, block, 0, s.stream>>>(at, size, first, from, number, s.bad);
    };
    check(cudaSetDevice(me), "cudaSetDevice");
    switch (what) {
        case kind::broadcast:
            fills(count);
            colls::cuda::broadcast(comm, of(s.x, count), root, s.stream);
            return expect(s.x, count, 0, root);
        case kind::scatter:
            fills(all);
            colls::cuda::scatter(comm, of(s.x, is_root ? all : 0), of(s.y, count), root, s.stream);
            return expect(s.y, count, static_cast<std::size_t>(me) * count, root);
        case kind::gather:
            fills(count);
            colls::cuda::gather(comm, of(s.x, count), of(s.y, is_root ? all : 0), root, s.stream);
            return expect(s.y, is_root ? all : 0, 0, -2);
        case kind::reduce:
            fills(count);
            colls::cuda::reduce(comm, of(s.x, count), of(s.y, is_root ? count : 0), colls::sum, root, s.stream);
            return expect(s.y, is_root ? count : 0, 0, -1);
    }
}

void back_to_back(protocol p, std::size_t count) {
    for (const kind what : {kind::broadcast, kind::scatter, kind::gather, kind::reduce}) {
        auto ranks = colls::cuda::communicator::of_devices({0, 1, 2}, {.channels = 2,
                                                                          .protocol = p,
                                                                          .chunk_bytes = 8 << 10,
                                                                          .scratch_bytes = 128 << 10,
                                                                          .packet_bytes = 32 << 10,
                                                                          .table_bytes = 64 << 10,
                                                                          .timeout = 4});
        rank_state of[] = {rank_state(0), rank_state(1), rank_state(2)};
        for (int i = 0; i < calls; ++i)
            for (int r = 0; r < n; ++r) call(what, ranks[static_cast<std::size_t>(r)], of[r], count, i);
        for (int r = 0; r < n; ++r) {
            check(cudaStreamSynchronize(of[r].stream), "cudaStreamSynchronize");
            ranks[static_cast<std::size_t>(r)].check();
            if (*of[r].bad == 0) continue;
            ++wrong, std::printf("wrong: collective %d, %zu elements, rank %d: %d elements\n", static_cast<int>(what),
                         count, r, *of[r].bad);
            if (std::getenv("EMULATED_MUTANT") != nullptr) std::fflush(stdout), std::_Exit(1);
        }
    }
}

}  // namespace

int main() {
    try {
        back_to_back(protocol::eager, 601);
        back_to_back(protocol::pulled, most);
        return std::printf("%d wrong\n", wrong), wrong == 0 ? 0 : 1;
    } catch (const std::exception& e) {
        return std::printf("%s\n", e.what()), 1;
    }
}
