// Calls within a kernel: what follows a row-parallel matrix product in a transformer, in one kernel. A block works on
// one row at a time: it makes an all_reduce of the partial products, with an epilogue that adds the residual and sums
// the squares, then scales the row (RMSNorm). Prints "left out" and returns 77 where there is no GPU.
//
// Build: nvcc -std=c++20 --expt-relaxed-constexpr -arch=native -Iinclude examples/cuda_fused_rmsnorm.cu -o
// fused_rmsnorm Run:   ./fused_rmsnorm
#include <colls/cuda/device.hpp>
#include <colls/transports/cuda.hpp>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using colls::cuda::device::ranks;
using schedule = colls::one_shot::all_reduce;

constexpr int n = 4, rows = 96, width = 4096;
constexpr float epsilon = 1e-5f;

void check(cudaError_t code, const char* what) {
    if (code != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
}

/// Adds the residual, and the square of the result to the thread's `squares`.
struct add_residual {
    const __nv_bfloat16* residual;
    float* squares;
    __device__ __nv_bfloat16 operator()(float x, std::size_t i) const {
        const float y = x + __bfloat162float(residual[i]);
        *squares += y * y;
        return __float2bfloat16(y);
    }
};

__device__ float sum_of_block(float x) {
    __shared__ float of_warp[32];
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : 0.0f;
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    __syncthreads();
    return x;
}

/// The buffers of all ranks, one after the other: partial products, the residual stream, the normalised rows.
struct tensors {
    const __nv_bfloat16* partial;
    __nv_bfloat16* residual;
    __nv_bfloat16* normal;
    const float* weight;
};

__global__ void __launch_bounds__(512, 1) fused(const __grid_constant__ ranks<schedule> r, tensors all) {
    const int local = static_cast<int>(blockIdx.x) % r.locals, channel = static_cast<int>(blockIdx.x) / r.locals;
    const std::size_t of_rank = static_cast<std::size_t>(r.rank(local)) * rows * width;
    for (int row = channel; row < rows; row += static_cast<int>(gridDim.x) / r.locals) {
        const std::size_t at = of_rank + static_cast<std::size_t>(row) * width;
        float squares = 0;
        // Updates the residual stream in place: the epilogue reads an element before it is written.
        if (!colls::cuda::device::all_reduce(r, local, channel, all.partial + at, all.residual + at, width,
                colls::sum_t{}, add_residual{all.residual + at, &squares}))
            return;
        const float scale = rsqrtf(sum_of_block(squares) / width + epsilon);
        for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(blockDim.x))
            all.normal[at + i] = __float2bfloat16(__bfloat162float(all.residual[at + i]) * scale * all.weight[i]);
    }
}

/// A copy of host data in device memory, which is freed by cudaFree.
template <class T>
T* device_copy(const std::vector<T>& data) {
    T* at = nullptr;
    check(cudaMalloc(&at, data.size() * sizeof(T)), "cudaMalloc");
    check(cudaMemcpy(at, data.data(), data.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    return at;
}

float partial(std::size_t rank, std::size_t i) { return static_cast<float>((i * 5 + rank * 11) % 64) / 32 - 1; }
float residual(std::size_t i) { return static_cast<float>(i % 17) / 8 - 1; }

int run() {
    constexpr std::size_t elements = std::size_t{rows} * width;
    colls::cuda::virtual_ranks group(n);
    std::vector<__nv_bfloat16> in(n * elements), stream_of_residuals(n * elements), normal(n * elements);
    std::vector<float> weight(width);
    for (std::size_t rank = 0; rank < n; ++rank)
        for (std::size_t i = 0; i < elements; ++i) {
            in[rank * elements + i] = __float2bfloat16(partial(rank, i));
            stream_of_residuals[rank * elements + i] = __float2bfloat16(residual(i));
        }
    for (std::size_t i = 0; i < width; ++i) weight[i] = 1 + static_cast<float>(i % 3);
    tensors t{device_copy(in), device_copy(stream_of_residuals), device_copy(normal), device_copy(weight)};

    auto r = colls::cuda::ranks_for<schedule>(group);
    void* arguments[] = {&r, &t};
    check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&fused),
              dim3(static_cast<unsigned>(r.locals * r.channels)), dim3(512), arguments, 0, nullptr),
        "cudaLaunchCooperativeKernel");
    check(cudaMemcpy(normal.data(), t.normal, normal.size() * sizeof(__nv_bfloat16), cudaMemcpyDeviceToHost),
        "the kernel");
    group.check();

    int wrong = 0;
    for (std::size_t row = 0; row < rows; ++row) {
        std::vector<float> sum(width);
        double squares = 0;
        for (std::size_t i = 0; i < width; ++i) {
            for (std::size_t rank = 0; rank < n; ++rank) sum[i] += partial(rank, row * width + i);
            sum[i] += residual(row * width + i);
            squares += static_cast<double>(sum[i]) * sum[i];
        }
        const double scale = 1 / std::sqrt(squares / width + epsilon);
        for (std::size_t rank = 0; rank < n; ++rank)
            for (std::size_t i = 0; i < width; ++i) {
                const double want = sum[i] * scale * weight[i],
                             got = __bfloat162float(normal[rank * elements + row * width + i]);
                wrong += std::abs(got - want) > 0.02 * std::abs(want) + 1e-3;
            }
    }
    std::printf("%d ranks, %d rows of %d: all_reduce + residual + RMSNorm in one kernel: %s\n", n, rows, width,
        wrong == 0 ? "right" : "wrong");
    for (const void* p : {static_cast<const void*>(t.partial), static_cast<const void*>(t.residual),
             static_cast<const void*>(t.normal), static_cast<const void*>(t.weight)})
        cudaFree(const_cast<void*>(p));
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
