// Exact sums as elements of calls on a GPU: their bytes are those that the host adds, by every schedule, for numbers of
// very different sizes, subnormals and infinities among them.
#include <colls/exact.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>

#include <cstdio>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

namespace {

using colls::exact_sum;
using colls::cuda::detail::check;
constexpr std::size_t count = 301;

template <class T>
T addend(int rank, std::size_t i) {
    if (i % 29 == 0) return rank % 2 == 0 ? std::numeric_limits<T>::infinity() : T(1);
    const T sizes[] = {T(1e30), std::numeric_limits<T>::denorm_min() * 3, T(1.5), T(-1e-20)};
    return sizes[(i + static_cast<std::size_t>(rank)) % 4] * (rank % 3 == 1 ? T(-1) : T(1.25));
}

template <class Schedule, class T>
std::size_t wrong(int n) {
    std::vector<exact_sum<T>> x, want(count);
    for (int r = 0; r < n; ++r)
        for (std::size_t i = 0; i < count; ++i) {
            x.emplace_back(addend<T>(r, i));
            want[i] += addend<T>(r, i);
        }
    const std::size_t bytes = x.size() * sizeof(exact_sum<T>);
    colls::cuda::virtual_ranks ranks(n, {.channels = 1});
    const colls::cuda::detail::device_memory memory(ranks.device(), bytes, x.data());
    const colls::cuda::detail::private_stream stream(ranks.device());
    std::vector<std::span<exact_sum<T>>> buffers;
    for (int r = 0; r < n; ++r)
        buffers.emplace_back(
            reinterpret_cast<exact_sum<T>*>(memory.data()) + static_cast<std::size_t>(r) * count, count);
    colls::cuda::all_reduce<Schedule>(ranks, buffers, colls::exact, stream.get());
    check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    ranks.check();
    check(cudaMemcpy(x.data(), memory.data(), bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::size_t bad = 0;
    for (std::size_t i = 0; i < x.size(); ++i) bad += std::memcmp(&x[i], &want[i % count], sizeof x[i]) != 0;
    return bad;
}

}  // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    try {
        std::size_t bad = 0;
        for (const int n : {2, 3, 5})
            bad += wrong<colls::direct, float>(n) + wrong<colls::ring, float>(n) + wrong<colls::ring, double>(n);
        std::printf("exact sums: %zu wrong\n", bad);
        return bad == 0 ? 0 : 1;
    } catch (const colls::error& e) {
        return std::printf("%s\n", e.what()), 1;
    }
}
