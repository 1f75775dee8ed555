// Tensors by DLPack in memory of a GPU, in a call of each kind: the spans that interop::device_elements gives are
// buffers, at their byte offset, and nothing beside them is written.
#include <colls/interop/dlpack.hpp>
#include <colls/transports/cuda.hpp>

#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

namespace {

namespace dlpack = colls::interop::dlpack;
using colls::cuda::detail::check;
constexpr int ranks = 3, rows = 5, columns = 7, room = 64;  // elements of a rank's memory

/// All ranks' memory after an all_reduce of their tensors, which begin at element 2.
std::size_t wrong() {
    std::vector<float> x(ranks * room), want;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    want = x;
    for (int r = 0; r < ranks; ++r)
        for (std::size_t i = 2; i < 2 + rows * columns; ++i) {
            want[r * room + i] = 0;
            for (int s = 0; s < ranks; ++s) want[r * room + i] += x[s * room + i];
        }
    colls::cuda::virtual_ranks group(ranks, {.channels = 1});
    const colls::cuda::detail::device_memory memory(group.device(), x.size() * sizeof(float), x.data());
    const colls::cuda::detail::private_stream stream(group.device());
    std::int64_t shape[] = {rows, columns};
    std::vector<std::span<float>> buffers;
    for (int r = 0; r < ranks; ++r) {
        const dlpack::tensor t{reinterpret_cast<float*>(memory.data()) + r * room,
            {dlpack::device_type::cuda, group.device()}, 2, dlpack::type_of<float>, shape, nullptr, 2 * sizeof(float)};
        buffers.push_back(colls::interop::device_elements<float>(t, group.device()));
        try {
            (void)colls::interop::device_elements<float>(t, group.device() + 1);
            return 1;
        } catch (const colls::error&) {}
    }
    colls::cuda::all_reduce(group, buffers, colls::sum, stream.get());
    check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    group.check();
    check(cudaMemcpy(x.data(), memory.data(), x.size() * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::size_t bad = 0;
    for (std::size_t i = 0; i < x.size(); ++i) bad += x[i] != want[i];
    return bad;
}

}  // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    try {
        const std::size_t bad = wrong();
        std::printf("%zu elements are wrong\n", bad);
        return bad == 0 ? 0 : 1;
    } catch (const std::exception& e) {
        std::printf("%s\n", e.what());
        return 1;
    }
}
