// Times the reduce loop and the copies: bytes read and written a second, by element type, operator, number of operands
// and size. `pushing` stores into memory that a second core reads: that core rewrites an operand before each fold, so
// that cache lines move between the cores, and the time ends when it has read the result.
#include <colls/detail/reduce/fold.hpp>
#include <colls/detail/support/copy.hpp>

#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

using namespace colls::detail;

namespace {

struct release {
    void operator()(void* p) const { std::free(p); }
};
using buffer = std::unique_ptr<char, release>;
buffer make_buffer(std::size_t bytes) {
    const std::size_t whole = (bytes + 4095) / 4096 * 4096;
    buffer b(static_cast<char*>(std::aligned_alloc(4096, whole)));
    std::memset(b.get(), 0, whole);
    return b;
}

constexpr auto user_sum = [](float a, float b) { return a + b; };

/// Arguments: bytes of an operand, number of operands.
template <class T, class Op>
void fold(benchmark::State& state) {
    const auto bytes = static_cast<std::size_t>(state.range(0));
    const int k = static_cast<int>(state.range(1));
    const Op op = [] {
        if constexpr (std::is_constructible_v<Op, float>)
            return Op(0.5f);
        else
            return Op{};
    }();
    std::vector<buffer> memory;
    std::vector<operand> x;
    for (int j = 0; j <= k; ++j) {
        memory.push_back(make_buffer(bytes));
        if (j < k) x.push_back({memory.back().get()});
    }
    for (auto _ : state) {
        op_table_for<T, Op>.fold(memory.back().get(), x.data(), k, bytes / sizeof(T), &op);
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes) * (k + 1));
}
void sizes(benchmark::internal::Benchmark* b) {
    for (const int bytes : {256, 8 << 10, 64 << 10, 1 << 20})
        for (const int k : {2, 3, 4, 8}) b->Args({bytes, k});
}
#define FOLD(...) BENCHMARK(fold<__VA_ARGS__>)->Apply(sizes)
FOLD(float, colls::sum_t);
FOLD(double, colls::sum_t);
FOLD(int, colls::sum_t);
FOLD(unsigned char, colls::max_t);
FOLD(float, colls::min_t);
FOLD(colls::bfloat16, colls::sum_t);
FOLD(colls::half, colls::sum_t);
FOLD(float, decltype(user_sum));

void pin([[maybe_unused]] unsigned core) {
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
#endif
}

enum class push { fold_then_copy, fold_then_stream, copy, stream };

/// Argument: bytes.
template <push how>
void pushing(benchmark::State& state) {
    if (std::thread::hardware_concurrency() < 2) return state.SkipWithError("needs two cores");
    const auto bytes = static_cast<std::size_t>(state.range(0));
    const buffer own = make_buffer(bytes), result = make_buffer(bytes), other = make_buffer(bytes),
                 there = make_buffer(bytes);
    std::atomic<int> turn{0};
    std::thread peer([&] {
        pin(1);
        for (int t = 1;; t += 2) {
            int now;
            while ((now = turn.load()) != t)
                if (now < 0) return;
            if (t % 4 == 1)
                std::memset(other.get(), t >> 1 & 1, bytes);
            else
                for (std::size_t i = 0; i < bytes; i += 64) benchmark::DoNotOptimize(*(there.get() + i));
            turn.store(t + 1);
        }
    });
    pin(0);
    int t = 0;
    const operand x[] = {{own.get()}, {other.get()}};
    const auto& table = op_table_for<float, colls::sum_t>;
    for (auto _ : state) {
        std::memset(own.get(), t & 1, bytes);
        const auto let_peer = [&] {
            turn.store(t + 1);
            while (turn.load() != t + 2) {}
            t += 2;
        };
        let_peer();
        const auto begin = std::chrono::steady_clock::now();
        constexpr bool folds = how == push::fold_then_copy || how == push::fold_then_stream;
        if constexpr (folds) table.fold(result.get(), x, 2, bytes / 4, &colls::sum);
        const char* const from = folds ? result.get() : own.get();
        if constexpr (how == push::fold_then_copy || how == push::copy)
            copy_bytes(there.get(), from, bytes);
        else
            stream_bytes(there.get(), from, bytes);
        let_peer();
        state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    turn.store(-1);
    peer.join();
}
void push_sizes(benchmark::internal::Benchmark* b) {
    for (const int bytes : {16 << 10, 64 << 10, 256 << 10, 1 << 20})
        b->Arg(bytes)->UseManualTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(pushing<push::copy>)->Apply(push_sizes);
BENCHMARK(pushing<push::stream>)->Apply(push_sizes);
BENCHMARK(pushing<push::fold_then_copy>)->Apply(push_sizes);
BENCHMARK(pushing<push::fold_then_stream>)->Apply(push_sizes);

}  // namespace

BENCHMARK_MAIN();
