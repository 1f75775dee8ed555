// all_reduce on a GPU, with ranks as blocks of one device: floats by two schedules, one of them the program's own, and
// bfloat16 with an epilogue. Prints "left out" and returns 77 where there is no GPU.
//
// Build: nvcc -std=c++20 --expt-relaxed-constexpr -arch=native -Iinclude examples/cuda_all_reduce.cu -o cuda_all_reduce
// Run:   ./cuda_all_reduce
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>
#include <colls/verify.hpp>

#include <cstdio>
#include <span>
#include <stdexcept>
#include <vector>

namespace {

/// A schedule of the program's own: in each round a rank sends one peer that peer's block.
struct pairwise_reduce_scatter {
    static constexpr colls::collective implements = colls::collective::reduce_scatter;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr colls::step at(int rank, int n, int round) {
        const int to = (rank + round + 1) % n, from = (rank - round - 1 + n) % n;
        return {.send = {to, colls::block(to)}, .recv = {from, colls::block(rank), colls::action::reduce}};
    }
};
using own_all_reduce = colls::compose<pairwise_reduce_scatter, colls::reversed<pairwise_reduce_scatter>>;
static_assert(colls::proven<own_all_reduce, 8>);

/// Half of the sum, at least zero, as float.
struct halved_relu {
    __device__ float operator()(float x, std::size_t) const { return x > 0 ? x / 2 : 0; }
};

constexpr int n = 4;
constexpr std::size_t count = 1'000'003;

/// The buffers of all ranks within `all`, one after the other, 16 elements apart.
template <class T>
std::vector<std::span<T>> buffers(T* all) {
    std::vector<std::span<T>> each;
    for (std::size_t r = 0; r < n; ++r) each.emplace_back(all + r * (count + 16), count);
    return each;
}
void cuda_check(cudaError_t code) {
    if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}
float input(std::size_t rank, std::size_t i) { return static_cast<float>((i * 7 + rank * 13) % 100) - 50; }

int run() {
    colls::cuda::virtual_ranks ranks(n);
    constexpr std::size_t elements = n * (count + 16);
    std::vector<float> host_in(elements), host_out(elements), sums(count);
    std::vector<__nv_bfloat16> host_narrow(elements);
    for (std::size_t r = 0; r < n; ++r)
        for (std::size_t i = 0; i < count; ++i) {
            buffers(host_in.data())[r][i] = input(r, i);
            buffers(host_narrow.data())[r][i] = __float2bfloat16(input(r, i));
            sums[i] += input(r, i);
        }
    float *in = nullptr, *out = nullptr;
    __nv_bfloat16* narrow = nullptr;
    cuda_check(cudaMalloc(&in, elements * sizeof(float)));
    cuda_check(cudaMalloc(&out, elements * sizeof(float)));
    cuda_check(cudaMalloc(&narrow, elements * sizeof(__nv_bfloat16)));
    cuda_check(cudaMemcpy(in, host_in.data(), elements * sizeof(float), cudaMemcpyHostToDevice));
    cuda_check(cudaMemcpy(narrow, host_narrow.data(), elements * sizeof(__nv_bfloat16), cudaMemcpyHostToDevice));
    int wrong = 0;
    const auto check = [&](const char* what, const auto& expected) {
        cuda_check(cudaMemcpy(host_out.data(), out, elements * sizeof(float), cudaMemcpyDeviceToHost));
        ranks.check();
        for (const auto& buffer : buffers(host_out.data()))
            for (std::size_t i = 0; i < count; ++i) wrong += buffer[i] != expected(sums[i]);
        std::printf("%s: %s\n", what, wrong == 0 ? "right" : "wrong");
    };
    const auto as_is = [](float x) { return x; };
    colls::cuda::all_reduce<colls::ring>(ranks, buffers(in), buffers(out), colls::sum, cudaStream_t{});
    check("ring", as_is);
    colls::cuda::all_reduce<own_all_reduce>(ranks, buffers(in), buffers(out), colls::sum, cudaStream_t{});
    check("the program's own schedule", as_is);
    colls::cuda::all_reduce(ranks, buffers(narrow), buffers(out), colls::sum, cudaStream_t{}, halved_relu{});
    // All inputs and sums are integers of up to 8 bits, which bfloat16 holds exactly.
    const auto halved = [](float x) { return x > 0 ? __bfloat162float(__float2bfloat16(x)) / 2 : 0.0f; };
    check("bfloat16, halved, negative values set to zero", halved);
    cudaFree(in);
    cudaFree(out);
    cudaFree(narrow);
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    try {
        return run();
    } catch (const std::exception& e) {
        return std::printf("%s\n", e.what()), 1;
    }
}
