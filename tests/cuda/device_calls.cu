// On a GPU: calls within kernels: every collective, and blocks of a wrong form.
#include <colls/cuda/device.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/schedules/tree.hpp>
#include <colls/transports/cuda.hpp>

#include <cstdint>
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

// Every collective, twice in a kernel: the second call finds the words and counters of the first one.

using colls::collective;
using word = std::uint32_t;
constexpr int size = 3, root = 1;

template <collective what, class Schedule>
__device__ bool make(
    const colls::cuda::device::ranks<Schedule>& r, int local, const word* in, word* out, std::size_t count) {
    namespace device = colls::cuda::device;
    const colls::sum_t sum;
    if constexpr (what == collective::broadcast) {
        if (r.rank(local) == root)
            for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) out[i] = in[i];
        return device::broadcast(r, local, 0, out, count, root);
    }
    if constexpr (what == collective::scatter) return device::scatter(r, local, 0, in, out, count, root);
    if constexpr (what == collective::gather) return device::gather(r, local, 0, in, out, count, root);
    if constexpr (what == collective::all_gather) return device::all_gather(r, local, 0, in, out, count);
    if constexpr (what == collective::reduce) return device::reduce(r, local, 0, in, out, count, sum, root);
    if constexpr (what == collective::reduce_scatter) return device::reduce_scatter(r, local, 0, in, out, count, sum);
    if constexpr (what == collective::all_to_all) return device::all_to_all(r, local, 0, in, out, count);
    if constexpr (what == collective::inclusive_scan) return device::inclusive_scan(r, local, 0, in, out, count, sum);
    if constexpr (what == collective::exclusive_scan) return device::exclusive_scan(r, local, 0, in, out, count, sum);
}
/// Rank r's buffers are r * room elements behind `in` and `out`. Leaves in `out` what the second call has written.
template <collective what, class Schedule>
__global__ void __launch_bounds__(512, 1) calls(const __grid_constant__ colls::cuda::device::ranks<Schedule> r,
    const word* in, word* out, std::size_t room, std::size_t count) {
    const int local = static_cast<int>(blockIdx.x);
    const word* const from = in + static_cast<std::size_t>(r.rank(local)) * room;
    word* const to = out + static_cast<std::size_t>(r.rank(local)) * room;
    for (int time = 0; time < 2; ++time) {
        if constexpr (what == collective::barrier) {
            // What each rank wrote before a barrier the others read behind it. Behind the next one it is overwritten.
            for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i] + time;
            if (!colls::cuda::device::barrier(r, local, 0)) return;
            const int next = (r.rank(local) + 1) % size;
            const volatile word* const theirs = out + static_cast<std::size_t>(next) * room;
            bool right = true;
            for (std::size_t i = threadIdx.x; i < count; i += blockDim.x)
                right = right && theirs[i] == in[static_cast<std::size_t>(next) * room + i] + time;
            if (!colls::cuda::device::barrier(r, local, 0)) return;
            if (!__syncthreads_and(right)) return;
            for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = 77;
        } else if (!make<what>(r, local, from, to, count)) {
            return;
        }
    }
}

word input(std::size_t rank, std::size_t i) { return static_cast<word>((rank * 40503u + i) * 2654435761u); }

/// `count`: elements of all blocks together.
template <collective what, class Schedule>
void every(std::size_t count, const colls::cuda::options& o) {
    constexpr colls::collective_traits is = colls::traits_of(what);
    constexpr std::size_t ranks_here = size;
    const std::size_t room = count + 8;
    colls::cuda::virtual_ranks ranks(size, o);
    std::vector<word> in, out(ranks_here * room, 5), want;
    const auto block = [&](std::size_t r) { return colls::cuda::detail::balanced(count, ranks_here, r); };
    for (std::size_t r = 0; r < ranks_here; ++r)
        for (std::size_t i = 0; i < room; ++i) in.push_back(input(r, i));
    for (std::size_t r = 0; r < ranks_here; ++r)
        for (std::size_t i = 0; i < room; ++i) {
            const bool mine = !is.out_at_root || r == root;
            const bool there = mine && i < (is.out == colls::content::own_block ? block(r).count : count);
            word x = 5;
            if (what == collective::barrier && i < count) x = 77;
            if (there && is.out != colls::content::nothing) {
                if (is.reduces()) {
                    const std::size_t at = is.out == colls::content::own_block ? block(r).first + i : i;
                    const int end = is.contributors_at(static_cast<int>(r), size);
                    if (end > 0) x = 0;
                    for (int q = 0; q < end; ++q) x += input(static_cast<std::size_t>(q), at);
                } else if (is.result == colls::contributors::root) {
                    x = input(root, is.out == colls::content::own_block ? block(r).first + i : i);
                } else {
                    std::size_t q = 0;
                    while (i >= block(q).first + block(q).count) ++q;
                    x = input(q, i - block(q).first + (is.result == colls::contributors::each ? block(r).first : 0));
                }
            }
            want.push_back(x);
        }
    const colls::cuda::detail::device_memory there(ranks.device(), in.size() * sizeof(word), in.data()),
        result(ranks.device(), out.size() * sizeof(word), out.data());
    auto r = colls::cuda::ranks_for<Schedule>(ranks);
    auto *from = reinterpret_cast<word*>(there.data()), *to = reinterpret_cast<word*>(result.data());
    std::size_t behind = room;
    void* arguments[] = {&r, &from, &to, &behind, &count};
    check(cudaLaunchCooperativeKernel(
              reinterpret_cast<const void*>(&calls<what, Schedule>), dim3(size), dim3(96), arguments, 0, nullptr),
        "cudaLaunchCooperativeKernel");
    check(cudaMemcpy(out.data(), to, out.size() * sizeof(word), cudaMemcpyDeviceToHost), "cudaMemcpy");
    ranks.check();
    std::size_t bad = 0;
    for (std::size_t i = 0; i < out.size(); ++i) bad += out[i] != want[i];
    if (bad != 0) ++wrong, std::printf("wrong: %s of %zu elements: %zu\n", is.name, count, bad);
}
template <class Family, collective... what>
void all_of(std::size_t count, const colls::cuda::options& o) {
    (every<what, colls::schedule_for<Family, what>>(count, o), ...);
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
        // Eager, and by schedules.
        for (const std::size_t small : {std::size_t{32} << 10, std::size_t{0}})
            for (const std::size_t count : {std::size_t{6}, std::size_t{3'000}}) {
                const colls::cuda::options o{.channels = 1, .small_bytes = small};
                all_of<colls::tree<2>, collective::broadcast, collective::scatter, collective::gather,
                    collective::reduce>(count, o);
                all_of<colls::ring, collective::all_gather, collective::reduce_scatter>(count, o);
                all_of<colls::direct, collective::all_to_all, collective::barrier, collective::inclusive_scan,
                    collective::exclusive_scan>(count, o);
            }
        std::printf("%d wrong\n", wrong);
        return wrong == 0 ? 0 : 1;
    } catch (const colls::error& e) {
        return std::printf("%s\n", e.what()), 1;
    }
}
