// A small program for mutants (mutate.py): all_reduce on virtual ranks by the two executors, twice each, compared with
// the sums.
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>

#include <cstdio>
#include <span>
#include <vector>

namespace {

constexpr int n = 3;
constexpr std::size_t most = 20'011;

int wrong_of(
    colls::cuda::virtual_ranks& ranks, float* in, float* out, std::size_t count, bool by_schedule, bool in_place) {
    std::vector<std::span<float>> from, to;
    for (std::size_t r = 0; r < n; ++r) {
        from.emplace_back((in_place ? out : in) + r * most, count);
        to.emplace_back(out + r * most, count);
    }
    for (std::size_t i = 0; i < n * most; ++i) out[i] = in_place ? in[i] : -1;
    if (by_schedule)
        colls::cuda::all_reduce<colls::ring>(ranks, from, to, colls::sum, cudaStream_t{});
    else
        colls::cuda::all_reduce(ranks, from, to, colls::sum, cudaStream_t{});
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    ranks.check();
    int wrong = 0;
    for (std::size_t r = 0; r < n; ++r)
        for (std::size_t i = 0; i < most; ++i) {
            const float sum = in[i] + in[most + i] + in[2 * most + i];
            const float expected = i < count ? sum : in_place ? in[r * most + i] : -1.0f;
            wrong += out[r * most + i] != expected;
        }
    return wrong;
}

int run() {
    float *in = nullptr, *out = nullptr;
    if (cudaMallocManaged(&in, n * most * sizeof(float)) != cudaSuccess ||
        cudaMallocManaged(&out, n * most * sizeof(float)) != cudaSuccess)
        return 1;
    for (std::size_t i = 0; i < n * most; ++i) in[i] = static_cast<float>(i % 97);
    colls::cuda::virtual_ranks ranks(n);
    int wrong = 0;
    for (int round = 0; round < 2; ++round) {
        wrong += wrong_of(ranks, in, out, 1001, false, round == 1);
        wrong += wrong_of(ranks, in, out, most, true, round == 1);
    }
    std::printf("%d wrong\n", wrong);
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() {
    try {
        return run();
    } catch (const std::exception& e) {
        return std::printf("%s\n", e.what()), 1;
    }
}
