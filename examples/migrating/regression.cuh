// Linear regression by gradient descent on several GPUs of one process: what regression_nccl.cu and regression.cu have
// in common, everything but the communication.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

namespace regression {

constexpr int features = 64, rows = 1000, steps = 40, at_most = 4;
constexpr float rate = 0.5f;

inline void check(cudaError_t code) {
    if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

/// Entry (row, column) of the data of all GPUs, between -1 and 1.
__host__ __device__ inline float entry(int row, int column) {
    unsigned mixed = (static_cast<unsigned>(row) * 65537u + static_cast<unsigned>(column)) * 2654435761u;
    mixed ^= mixed >> 15;
    return static_cast<float>((mixed * 2246822519u) >> 16) / 32768.0f - 1;
}
/// What the regression shall find.
__host__ __device__ inline float true_weight(int column) { return static_cast<float>(column % 7) - 3; }

/// The gradient of the mean squared error of rows first, first + 1, ..., a thread a feature; and the error itself.
static __global__ void differentiate(const float* weights, float* gradient, float* error, int first) {
    __shared__ float residual;
    float sum = 0, squares = 0;
    for (int row = first; row < first + rows; ++row) {
        __syncthreads();
        if (threadIdx.x == 0) residual = 0;
        __syncthreads();
        const float x = entry(row, static_cast<int>(threadIdx.x));
        atomicAdd(&residual, x * (weights[threadIdx.x] - true_weight(static_cast<int>(threadIdx.x))));
        __syncthreads();
        sum += residual * x;
        squares += residual * residual;
    }
    gradient[threadIdx.x] = 2 * sum / rows;
    if (threadIdx.x == 0) *error = squares / rows;
}
static __global__ void descend(float* weights, const float* gradient) {
    weights[threadIdx.x] -= rate * gradient[threadIdx.x];
}

/// One GPU: its stream, weights, gradient, and the errors of all GPUs. Weights start at 0 on the first GPU, and are of
/// no value elsewhere until they are received.
struct gpu {
    int device;
    cudaStream_t stream{};
    float *weights = nullptr, *gradient = nullptr, *error = nullptr, *errors = nullptr;

    explicit gpu(int number, int count) : device(number) {
        check(cudaSetDevice(device));
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        check(cudaMalloc(&weights, features * sizeof(float)));
        check(cudaMalloc(&gradient, features * sizeof(float)));
        check(cudaMalloc(&error, sizeof(float)));
        check(cudaMalloc(&errors, static_cast<std::size_t>(count) * sizeof(float)));
        check(cudaMemset(weights, device == 0 ? 0 : 0xff, features * sizeof(float)));
        check(cudaDeviceSynchronize());
    }
    gpu(const gpu&) = delete;
    ~gpu() {
        cudaSetDevice(device);
        for (float* memory : {weights, gradient, error, errors}) cudaFree(memory);
        cudaStreamDestroy(stream);
    }
    void differentiate_here() {
        check(cudaSetDevice(device));
        differentiate<<<1, features, 0, stream>>>(weights, gradient, error, device * rows);
    }
    void descend_here() {
        check(cudaSetDevice(device));
        descend<<<1, features, 0, stream>>>(weights, gradient);
    }
    /// Prints what this GPU knows; true where it has found the weights.
    bool report(int count) {
        std::vector<float> found(features), all(static_cast<std::size_t>(count));
        check(cudaSetDevice(device));
        check(cudaStreamSynchronize(stream));
        check(cudaMemcpy(found.data(), weights, features * sizeof(float), cudaMemcpyDeviceToHost));
        check(cudaMemcpy(all.data(), errors, all.size() * sizeof(float), cudaMemcpyDeviceToHost));
        float worst = 0;
        for (int i = 0; i < features; ++i)
            worst = std::fmax(worst, std::fabs(found[static_cast<std::size_t>(i)] - true_weight(i)));
        std::printf("GPU %d: weights are off by %.4f at most; last errors", device, worst);
        for (const float e : all) std::printf(" %.4f", e);
        std::printf("\n");
        return worst < 0.01f;
    }
};

inline int gpus() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
    return count < at_most ? count : at_most;
}

}  // namespace regression
