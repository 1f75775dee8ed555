// Times of calls on a stream.
#pragma once

#include <colls/cuda/detail/runtime.hpp>

#include <algorithm>
#include <chrono>
#include <vector>

/// Seconds of one call: on the stream, between events, and of the host.
struct call_times {
    double stream, host;
};

/// Times of `f()`, which enqueues on the stream: medians of 7 batches of `times`.
template <class F>
call_times times_of(cudaStream_t stream, int times, const F& f) {
    using colls::cuda::detail::check;
    cudaEvent_t begin = nullptr, end = nullptr;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    for (int i = 0; i < 3; ++i) f();
    check(cudaStreamSynchronize(stream), "warming up");
    std::vector<double> all, host;
    for (int batch = 0; batch < 7; ++batch) {
        check(cudaEventRecord(begin, stream), "cudaEventRecord");
        const auto since = std::chrono::steady_clock::now();
        for (int i = 0; i < times; ++i) f();
        host.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count() / times);
        check(cudaEventRecord(end, stream), "cudaEventRecord");
        check(cudaEventSynchronize(end), "cudaEventSynchronize");
        float ms = 0;
        check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
        all.push_back(ms / 1e3 / times);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    std::sort(all.begin(), all.end());
    std::sort(host.begin(), host.end());
    return {all[3], host[3]};
}
