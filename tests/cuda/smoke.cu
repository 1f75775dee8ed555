// The first minute on a GPU: what the machine is; does a kernel run; do two grids that wait for each other; do the
// orderings hold that the library relies on; what launches and small, middle and large calls cost, beside a copy.
// Each step is a process of its own with a budget, so that one that hangs costs only itself. A name of a step as
// argument: only that one.
#include "devices.hpp"
#include "timing.hpp"

#include <colls/cuda/detail/kernel/device_thread_group.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using colls::cuda::detail::check;
using colls::cuda::detail::device_memory;
using colls::cuda::detail::pinned_memory;
using colls::cuda::detail::private_stream;
using colls::cuda::detail::quad;
using group = colls::cuda::detail::device_thread_group;
using packet = colls::cuda::detail::packet;

constexpr int threads = 256;
constexpr std::uint64_t patience_ns = 5'000'000'000;

int failures = 0;

/// One line of the report.
void found(const char* what, bool good, const std::string& text) {
    std::printf("%-10s %-34s %s\n", good ? "ok" : "WRONG", what, text.c_str());
    std::fflush(stdout);
    failures += !good;
}

/// What the blocks of a litmus test share. Words that are polled have a line of their own.
struct alignas(128) line {
    std::uint64_t word;
};
struct outcome {
    unsigned long long wrong, late, seen;
};

__device__ bool wait_for(const line* at, std::uint64_t least) {
    const std::uint64_t begin = group::now();
    while (!group::reached(&at->word, &at->word, least))
        if (group::now() - begin > patience_ns) return false;
    return true;
}

/// Which pair of blocks this one is of, and is it the first of the pair? `side`: 0: neighbours are a pair; 1, 2: the
/// other block is of another grid, on another device.
struct role {
    int pair;
    bool first;
};
__device__ role role_of(int side) {
    const int block = static_cast<int>(blockIdx.x);
    return side == 0 ? role{block / 2, block % 2 == 0} : role{block, side == 1};
}

/// Message passing as `pulled` does it: all threads of a block store, one releases; one of the other block acquires,
/// and all load what the other's first-level cache holds from the round before.
__global__ void __launch_bounds__(threads)
    message_passing(quad* data, int quads, line* flags, line* acknowledged, int rounds, outcome* o, int side) {
    const auto [pair, first] = role_of(side);
    const int me = static_cast<int>(threadIdx.x);
    quad* const mine = data + static_cast<std::size_t>(pair) * static_cast<std::size_t>(quads);
    for (int i = 1; i <= rounds; ++i) {
        const auto x = static_cast<std::uint32_t>(i);
        bool late = false;
        if (first) {
            for (int q = me; q < quads; q += threads) group::store(mine + q, {{x, x, x, x}});
            __syncthreads();
            if (me == 0) {
                group::release(&flags[pair].word, x);
                late = !wait_for(acknowledged + pair, x);
            }
        } else {
            if (me == 0) late = !wait_for(flags + pair, x);
            __syncthreads();
            for (int q = me; q < quads; q += threads) {
                const quad got = group::load(mine + q);
                for (int w = 0; w < 4; ++w)
                    if (got.word[w] != x) atomicAdd(&o->wrong, 1ull);
            }
            group::fence();
            __syncthreads();
            if (me == 0) group::release(&acknowledged[pair].word, x);
        }
        if (late) atomicAdd(&o->late, 1ull);
        if (__syncthreads_or(late)) return;
    }
}

/// Packets there and back: a word that has the flag has the data.
__global__ void __launch_bounds__(threads) packets(packet* there, packet* back, int rounds, outcome* o, int side) {
    const auto [pair, first] = role_of(side);
    const auto at = static_cast<std::size_t>(pair) * threads + threadIdx.x;
    packet *const out = (first ? there : back) + at, *const in = (first ? back : there) + at;
    for (int i = 1; i <= rounds; ++i) {
        const auto flag = static_cast<std::uint64_t>(i);
        const std::uint64_t mine = flag << 32 | (flag * 2654435761u + at) % 0xffffffffu;
        if (first) group::put(out, {{mine, mine + 1}});
        const std::uint64_t begin = group::now();
        packet p = group::relaxed(in);
        while ((p.word[0] >> 32) != flag || (p.word[1] >> 32) != flag) {
            if (((p.word[0] >> 32) == flag) != ((p.word[1] >> 32) == flag)) atomicAdd(&o->seen, 1ull);
            if (group::now() - begin > patience_ns) {
                atomicAdd(&o->late, 1ull);
                return;
            }
            p = group::relaxed(in);
        }
        if (p.word[0] != mine || p.word[1] != mine + 1) atomicAdd(&o->wrong, 1ull);
        if (!first) group::put(out, {{mine, mine + 1}});
    }
}

/// Thread t of both blocks of a pair: x = i, fence, read y, and the same the other way round. `stores` says which.
///   store buffering: neither sees the other's store
///   load buffering:  both see the other's store, which each makes after its load
__global__ void __launch_bounds__(threads)
    buffering(bool stores, line* x, line* y, line* seen, line* meetings, int rounds, outcome* o, int side) {
    const auto [pair, first] = role_of(side);
    const int me = static_cast<int>(threadIdx.x);
    const auto at = static_cast<std::size_t>(pair) * threads + static_cast<std::size_t>(me);
    line *const own = (first ? x : y) + at, *const other = (first ? y : x) + at;
    const auto meet = [&](std::uint64_t n) {
        bool late = false;
        __syncthreads();
        if (me == 0) {
            group::release(&meetings[2 * pair + !first].word, n);
            late = !wait_for(meetings + 2 * pair + first, n);
            if (late) atomicAdd(&o->late, 1ull);
        }
        return __syncthreads_or(late) != 0;
    };
    for (int i = 1; i <= rounds; ++i) {
        const auto n = static_cast<std::uint64_t>(i);
        if (meet(2 * n - 1)) return;
        std::uint64_t got = 0;
        if (stores) {
            group::put(&own->word, n);
            group::fence();
            got = group::relaxed(&other->word);
        } else {
            got = group::relaxed(&other->word);
            group::fence();
            group::put(&own->word, n);
        }
        if (!first) group::put(&seen[at].word, got);
        if (meet(2 * n)) return;
        if (first) {
            const std::uint64_t theirs = group::relaxed(&seen[at].word);
            const bool mine_seen = got == n, theirs_seen = theirs == n;
            if (stores ? !mine_seen && !theirs_seen : mine_seen && theirs_seen) atomicAdd(&o->wrong, 1ull);
            if (mine_seen != theirs_seen) atomicAdd(&o->seen, 1ull);
        }
    }
}

/// A release sequence: block 0 stores and releases 3 i - 2; block 1 adds one, relaxed; block 2 acquires 3 i - 1.
__global__ void __launch_bounds__(threads) release_sequence(quad* data, int quads, line* flag, int rounds, outcome* o) {
    const int me = static_cast<int>(threadIdx.x);
    auto* const word = reinterpret_cast<unsigned long long*>(&flag->word);
    for (int i = 1; i <= rounds; ++i) {
        const auto x = static_cast<std::uint32_t>(i);
        const std::uint64_t base = 3 * static_cast<std::uint64_t>(i);
        bool late = false;
        if (blockIdx.x == 0) {
            for (int q = me; q < quads; q += threads) group::store(data + q, {{x, x, x, x}});
            __syncthreads();
            if (me == 0) {
                group::release(&flag->word, base - 2);
                late = !wait_for(flag, base);
            }
        } else if (blockIdx.x == 1) {
            if (me == 0) {
                const std::uint64_t begin = group::now();
                while (!late && group::relaxed(&flag->word) < base - 2) late = group::now() - begin > patience_ns;
                if (!late) atomicAdd_system(word, 1ull);
                late = late || !wait_for(flag, base);
            }
        } else {
            if (me == 0) late = !wait_for(flag, base - 1);
            __syncthreads();
            for (int q = me; q < quads; q += threads)
                if (group::load(data + q).word[3] != x) atomicAdd(&o->wrong, 1ull);
            group::fence();
            __syncthreads();
            if (me == 0) group::release(&flag->word, base);
        }
        if (late) atomicAdd(&o->late, 1ull);
        if (__syncthreads_or(late)) return;
    }
}

/// Half of the blocks of two grids that wait for each other.
__global__ void meet_other_grid(line* mine, line* other, outcome* o) {
    if (threadIdx.x != 0) return;
    group::release(&mine[blockIdx.x].word, 1);
    if (!wait_for(other + blockIdx.x, 1)) atomicAdd(&o->late, 1ull);
}

__global__ void fill(std::uint32_t* data, std::size_t count, std::uint32_t x) {
    for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) data[i] = x;
}
__global__ void release_word(line* flag, std::uint64_t x) {
    if (threadIdx.x == 0) group::release(&flag->word, x);
}
/// Waits for rounds of fill and release_word on another stream, and checks what fill has written.
__global__ void __launch_bounds__(threads)
    watch(const std::uint32_t* data, std::size_t count, line* flag, line* done, int rounds, outcome* o) {
    for (int i = 1; i <= rounds; ++i) {
        bool late = false;
        if (threadIdx.x == 0) late = !wait_for(flag, static_cast<std::uint64_t>(i));
        if (late) atomicAdd(&o->late, 1ull);
        if (__syncthreads_or(late)) return;
        const auto* const quads = reinterpret_cast<const quad*>(data);
        for (std::size_t q = threadIdx.x; q < count / 4; q += threads)
            if (group::load(quads + q).word[0] != static_cast<std::uint32_t>(i)) atomicAdd(&o->wrong, 1ull);
        group::fence();
        __syncthreads();
        if (threadIdx.x == 0) group::release(&done->word, static_cast<std::uint64_t>(i));
    }
}
/// Answers a host thread: data in pinned memory both ways.
__global__ void __launch_bounds__(threads)
    answer_host(quad* data, int quads, line* to_device, line* to_host, int rounds, outcome* o) {
    for (int i = 1; i <= rounds; ++i) {
        bool late = false;
        if (threadIdx.x == 0) late = !wait_for(to_device, static_cast<std::uint64_t>(i));
        if (late) atomicAdd(&o->late, 1ull);
        if (__syncthreads_or(late)) return;
        const auto x = static_cast<std::uint32_t>(i);
        for (int q = static_cast<int>(threadIdx.x); q < quads; q += threads) {
            if (group::load(data + q).word[1] != x) atomicAdd(&o->wrong, 1ull);
            group::store(data + q, {{x + 1, x + 1, x + 1, x + 1}});
        }
        __syncthreads();
        if (threadIdx.x == 0) group::release(&to_host->word, static_cast<std::uint64_t>(i));
    }
}
__global__ void nothing() {}
__global__ void lazy_one() {}
__global__ void lazy_two() {}
__global__ void lazy_three() {}
__global__ void mark(std::uint32_t* at) { *at = 42; }

std::string formatted(const char* form, auto... x) {
    char text[400];
    std::snprintf(text, sizeof text, form, x...);
    return text;
}
outcome read(const device_memory& m) {
    outcome o;
    check(cudaMemcpy(&o, m.data(), sizeof o, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return o;
}
template <class T>
T* in(const device_memory& m) {
    return reinterpret_cast<T*>(m.data());
}

void machine() {
    int driver = 0, runtime = 0, devices = 0;
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    found("driver, runtime", driver >= runtime,
        formatted("CUDA %d.%d, %d.%d", driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10));
    for (int d = 0; d < devices; ++d) {
        cudaDeviceProp p{};
        check(cudaGetDeviceProperties(&p, d), "cudaGetDeviceProperties");
        int clock = 0, atomics = 0, domains = 0;
        cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, d);
        cudaDeviceGetAttribute(&atomics, cudaDevAttrHostNativeAtomicSupported, d);
        cudaDeviceGetAttribute(&domains, cudaDevAttrMemSyncDomainCount, d);
        found("device", p.cooperativeLaunch != 0,
            formatted(
                "%d: %s, %d.%d, %d SMs, %zu MiB, L2 %d MiB, %d MHz, sync domains %d, IPC %d, native atomics to host %d",
                d, p.name, p.major, p.minor, p.multiProcessorCount, p.totalGlobalMem >> 20, p.l2CacheSize >> 20,
                clock / 1000, domains, p.ipcEventSupported, atomics));
        for (int e = 0; e < devices; ++e) {
            int access = 0, native = 0;
            if (e == d) continue;
            cudaDeviceGetP2PAttribute(&access, cudaDevP2PAttrAccessSupported, d, e);
            cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, d, e);
            std::printf(
                "           device %d reaches %d: %s, native atomics: %d\n", d, e, access != 0 ? "yes" : "no", native);
        }
    }
    const device_memory word(0, 4);
    mark<<<1, 1>>>(in<std::uint32_t>(word));
    std::uint32_t got = 0;
    check(cudaMemcpy(&got, word.data(), 4, cudaMemcpyDeviceToHost), "a kernel");
    found("a kernel", got == 42, formatted("wrote %u", got));
}

void launch(const void* kernel, int blocks, void** arguments, cudaStream_t stream, bool cooperative = true,
    bool remote = false, int size = threads) {
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeMemSyncDomain;
    attributes[0].val.memSyncDomain = remote ? cudaLaunchMemSyncDomainRemote : cudaLaunchMemSyncDomainDefault;
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(size));
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = cooperative ? 2 : 1;
    check(cudaLaunchKernelExC(&config, kernel, arguments), "cudaLaunchKernelExC");
}

void grids() {
    const device_memory o(0, sizeof(outcome)), lines(0, 256 * sizeof(line));
    const private_stream one(0), two(0);
    line *a = in<line>(lines), *b = a + 128;
    outcome* result = in<outcome>(o);
    void *first[] = {&a, &b, &result}, *second[] = {&b, &a, &result};
    launch(reinterpret_cast<const void*>(&meet_other_grid), 64, first, one.get());
    launch(reinterpret_cast<const void*>(&meet_other_grid), 64, second, two.get());
    check(cudaDeviceSynchronize(), "two grids");
    const outcome seen = read(o);
    found("two grids that wait for each other", seen.late == 0, formatted("%llu of 128 blocks late", seen.late));
}

/// Loads a kernel: by its first launch, it would wait for kernels that wait for it.
template <class... K>
void load(K... kernels) {
    cudaFuncAttributes unused{};
    (check(cudaFuncGetAttributes(&unused, reinterpret_cast<const void*>(kernels)), "cudaFuncGetAttributes"), ...);
}

/// How long a host call takes while a kernel waits on the device, which is told to end after 300 ms.
template <class F>
double beside_a_kernel(const F& f) {
    const private_stream stream(0);
    pinned_memory host(2 * sizeof(line));
    auto* const lines = reinterpret_cast<line*>(host.data());
    const device_memory o(0, sizeof(outcome));
    line *flag = lines, *mine = lines + 1;
    outcome* result = in<outcome>(o);
    void* arguments[] = {&mine, &flag, &result};
    launch(reinterpret_cast<const void*>(&meet_other_grid), 1, arguments, stream.get(), false, false, 32);
    while (std::atomic_ref<std::uint64_t>(mine->word).load(std::memory_order_acquire) == 0) {}
    std::thread end([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        std::atomic_ref<std::uint64_t>(flag->word).store(1, std::memory_order_release);
    });
    const auto begin = std::chrono::steady_clock::now();
    f();
    const double t = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    end.join();
    check(cudaDeviceSynchronize(), "meet_other_grid");
    return t;
}

/// What the runtime lets a host thread do meanwhile: beside a kernel that waits, and while a stream is captured. Says
/// only what it is: the library relies on none that is refused here.
void facts() {
    load(meet_other_grid);
    const private_stream stream(0), other(0);
    const auto row = [](const char* what, double t) {
        found("beside a kernel that waits 300 ms", true,
            formatted("%-52s %9.3f ms%s", what, t * 1e3, t > 0.2 ? ": WAITS for it" : ""));
    };
    row("first launch of a kernel on another stream", beside_a_kernel([&] { lazy_one<<<1, 1, 0, other.get()>>>(); }));
    row("cudaFuncGetAttributes of a kernel not loaded", beside_a_kernel([&] { load(lazy_two); }));
    row("the same, again", beside_a_kernel([&] { load(lazy_two); }));
    row("launch of a kernel that is loaded", beside_a_kernel([&] { lazy_two<<<1, 1, 0, other.get()>>>(); }));
    row("cudaMalloc, 1 MiB", beside_a_kernel([&] {
        const void* leak = nullptr;
        check(cudaMalloc(const_cast<void**>(&leak), 1 << 20), "cudaMalloc");
    }));
    row("cudaMalloc, 1 GiB", beside_a_kernel([&] {
        const void* leak = nullptr;
        check(cudaMalloc(const_cast<void**>(&leak), 1 << 30), "cudaMalloc");
    }));
    void* memory = nullptr;
    check(cudaMalloc(&memory, 1 << 20), "cudaMalloc");
    row("cudaMemcpyAsync from pageable memory, other stream", beside_a_kernel([&] {
        std::vector<char> x(1 << 20);
        check(cudaMemcpyAsync(memory, x.data(), x.size(), cudaMemcpyHostToDevice, other.get()), "cudaMemcpyAsync");
        check(cudaStreamSynchronize(other.get()), "cudaStreamSynchronize");
    }));
    row("cudaHostAlloc, 1 MiB", beside_a_kernel([&] {
        void* leak = nullptr;
        check(cudaHostAlloc(&leak, 1 << 20, cudaHostAllocPortable), "cudaHostAlloc");
    }));
    row("cudaStreamCreateWithFlags", beside_a_kernel([&] { new private_stream(0); }));
    row("cudaFree", beside_a_kernel([&] { check(cudaFree(memory), "cudaFree"); }));
    row("cudaEventCreate", beside_a_kernel([&] {
        cudaEvent_t leak = nullptr;
        check(cudaEventCreate(&leak), "cudaEventCreate");
    }));

    check(cudaMalloc(&memory, 1 << 20), "cudaMalloc");
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "cudaEventCreate");
    check(cudaEventRecord(event, other.get()), "cudaEventRecord");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    int device = 0;
    cudaStreamCaptureStatus status{};
    cudaPointerAttributes pointer{};
    cudaFuncAttributes function{};
    int blocks = 0;
    const std::pair<const char*, std::function<cudaError_t()>> calls[] = {
        {"cudaStreamGetDevice, this stream", [&] { return cudaStreamGetDevice(stream.get(), &device); }},
        {"cudaStreamGetDevice, another stream", [&] { return cudaStreamGetDevice(other.get(), &device); }},
        {"cudaStreamIsCapturing, the legacy stream", [&] { return cudaStreamIsCapturing(nullptr, &status); }},
        {"cudaPointerGetAttributes", [&] { return cudaPointerGetAttributes(&pointer, memory); }},
        {"cudaFuncGetAttributes",
            [&] { return cudaFuncGetAttributes(&function, reinterpret_cast<const void*>(&lazy_three)); }},
        {"cudaOccupancyMaxActiveBlocks...",
            [&] {
                return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                    &blocks, reinterpret_cast<const void*>(&nothing), 32, 0);
            }},
        {"cudaEventQuery, another stream", [&] { return cudaEventQuery(event); }},
        {"cudaStreamSynchronize, another stream", [&] { return cudaStreamSynchronize(other.get()); }},
        {"cudaMalloc",
            [&] {
                void* leak = nullptr;
                return cudaMalloc(&leak, 4096);
            }},
    };
    for (const bool relaxes : {false, true})
        for (const auto& [name, call] : calls) {
            check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
            cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
            if (relaxes) cudaThreadExchangeStreamCaptureMode(&mode);
            const cudaError_t code = call();
            cudaGetLastError();
            if (relaxes) cudaThreadExchangeStreamCaptureMode(&mode);
            cudaGraph_t graph = nullptr;
            const cudaError_t end = cudaStreamEndCapture(stream.get(), &graph);
            cudaGetLastError();
            if (graph != nullptr) cudaGraphDestroy(graph);
            found(relaxes ? "in a capture, relaxed" : "in a capture, global", true,
                formatted("%-42s %s; the capture is %s", name, cudaGetErrorName(code),
                    end == cudaSuccess ? "whole" : cudaGetErrorName(end)));
        }
}

void litmus() {
    const private_stream stream(0), other(0);
    load(message_passing, packets, buffering, release_sequence, watch, fill, release_word, answer_host);
    const int pairs = 32;
    int side = 0;
    for (const bool remote : {false, true}) {
        const char* const where = remote ? "remote" : "default";
        {
            const device_memory o(0, sizeof(outcome)), data(0, pairs * 2048 * sizeof(quad)),
                flags(0, 2 * pairs * sizeof(line));
            quad* q = in<quad>(data);
            int quads = 2048, rounds = 2000;
            line *f = in<line>(flags), *a = f + pairs;
            outcome* result = in<outcome>(o);
            void* arguments[] = {&q, &quads, &f, &a, &rounds, &result, &side};
            launch(reinterpret_cast<const void*>(&message_passing), 2 * pairs, arguments, stream.get(), true, remote);
            check(cudaDeviceSynchronize(), "message passing");
            const outcome seen = read(o);
            found("message passing", seen.wrong + seen.late == 0,
                formatted("%s domain: %llu stale words, %llu late, of %d x %d rounds of 32 KiB", where, seen.wrong,
                    seen.late, pairs, rounds));
        }
        {
            const device_memory o(0, sizeof(outcome)), all(0, 2 * pairs * threads * sizeof(packet));
            packet *there = in<packet>(all), *back = there + pairs * threads;
            int rounds = 20000;
            outcome* result = in<outcome>(o);
            void* arguments[] = {&there, &back, &rounds, &result, &side};
            const auto begin = std::chrono::steady_clock::now();
            launch(reinterpret_cast<const void*>(&packets), 2 * pairs, arguments, stream.get(), true, remote);
            check(cudaDeviceSynchronize(), "packets");
            const double t = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
            const outcome seen = read(o);
            found("packets", seen.wrong + seen.late == 0,
                formatted("%s domain: %llu wrong, %llu late, %llu halves; %.2f us there and back, 64 blocks at once",
                    where, seen.wrong, seen.late, seen.seen, t * 1e6 / rounds));
        }
        for (bool stores : {true, false}) {
            const device_memory o(0, sizeof(outcome)), lines(0, 3 * pairs * threads * sizeof(line)),
                meetings(0, 2 * pairs * sizeof(line));
            line *x = in<line>(lines), *y = x + pairs * threads, *z = y + pairs * threads, *m = in<line>(meetings);
            int rounds = 5000;
            outcome* result = in<outcome>(o);
            void* arguments[] = {&stores, &x, &y, &z, &m, &rounds, &result, &side};
            launch(reinterpret_cast<const void*>(&buffering), 2 * pairs, arguments, stream.get(), true, remote);
            check(cudaDeviceSynchronize(), "buffering");
            const outcome seen = read(o);
            found(stores ? "store buffering" : "load buffering", seen.wrong + seen.late == 0,
                formatted("%s domain: %llu forbidden, %llu late, %llu seen by one only", where, seen.wrong, seen.late,
                    seen.seen));
        }
        {
            const device_memory o(0, sizeof(outcome)), data(0, 2048 * sizeof(quad)), flags(0, sizeof(line));
            quad* q = in<quad>(data);
            int quads = 2048, rounds = 5000;
            line* f = in<line>(flags);
            outcome* result = in<outcome>(o);
            void* arguments[] = {&q, &quads, &f, &rounds, &result};
            launch(reinterpret_cast<const void*>(&release_sequence), 3, arguments, stream.get(), true, remote);
            check(cudaDeviceSynchronize(), "release sequence");
            const outcome seen = read(o);
            found("release sequence", seen.wrong + seen.late == 0,
                formatted("%s domain: %llu stale words, %llu late", where, seen.wrong, seen.late));
        }
        {
            // A kernel of the default domain writes; one behind it on its stream, of this domain, releases.
            const std::size_t words = 256 << 10;
            const device_memory o(0, sizeof(outcome)), data(0, words * 4), lines(0, 2 * sizeof(line));
            std::uint32_t* d = in<std::uint32_t>(data);
            std::size_t count = words;
            line *flag = in<line>(lines), *done = flag + 1;
            int rounds = 300;
            outcome* result = in<outcome>(o);
            void* watching[] = {&d, &count, &flag, &done, &rounds, &result};
            launch(reinterpret_cast<const void*>(&watch), 1, watching, other.get(), false, remote);
            for (int i = 1; i <= rounds; ++i) {
                auto x = static_cast<std::uint32_t>(i);
                auto value = static_cast<std::uint64_t>(i);
                fill<<<128, threads, 0, stream.get()>>>(d, words, x);
                void* releasing[] = {&flag, &value};
                launch(reinterpret_cast<const void*>(&release_word), 1, releasing, stream.get(), false, remote);
                check(cudaStreamSynchronize(stream.get()), "release_word");
                const auto begin = std::chrono::steady_clock::now();
                std::uint64_t at = 0;
                while (at < value && std::chrono::steady_clock::now() - begin < std::chrono::seconds(2)) {
                    check(
                        cudaMemcpyAsync(&at, &done->word, 8, cudaMemcpyDeviceToHost, stream.get()), "cudaMemcpyAsync");
                    check(cudaStreamSynchronize(stream.get()), "watch");
                }
            }
            check(cudaDeviceSynchronize(), "watch");
            const outcome seen = read(o);
            found("kernel, then release on its stream", seen.wrong + seen.late == 0,
                formatted("%s domain: %llu stale words, %llu late", where, seen.wrong, seen.late));
        }
        {
            int quads = 256, rounds = 20000;
            pinned_memory host(sizeof(quad) * 256 + 2 * sizeof(line));
            const device_memory o(0, sizeof(outcome));
            auto* q = reinterpret_cast<quad*>(host.data());
            auto *to_device = reinterpret_cast<line*>(host.data() + sizeof(quad) * 256), *to_host = to_device + 1;
            outcome* result = in<outcome>(o);
            void* arguments[] = {&q, &quads, &to_device, &to_host, &rounds, &result};
            launch(reinterpret_cast<const void*>(&answer_host), 1, arguments, stream.get(), false, remote);
            unsigned long long wrong = 0, late = 0;
            const auto begin = std::chrono::steady_clock::now();
            for (int i = 1; i <= rounds && late == 0; ++i) {
                for (int k = 0; k < quads; ++k) q[k].word[1] = static_cast<std::uint32_t>(i);
                std::atomic_ref<std::uint64_t>(to_device->word)
                    .store(static_cast<std::uint64_t>(i), std::memory_order_release);
                const auto since = std::chrono::steady_clock::now();
                while (std::atomic_ref<std::uint64_t>(to_host->word).load(std::memory_order_acquire) <
                       static_cast<std::uint64_t>(i))
                    if (std::chrono::steady_clock::now() - since > std::chrono::seconds(5)) {
                        ++late;
                        break;
                    }
                for (int k = 0; k < quads; ++k) wrong += q[k].word[2] != static_cast<std::uint32_t>(i + 1);
            }
            const double t = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
            check(cudaDeviceSynchronize(), "answer_host");
            const outcome seen = read(o);
            found("host and kernel, pinned memory", wrong + late + seen.wrong + seen.late == 0,
                formatted("%s domain: %llu and %llu stale words, %llu late; %.2f us there and back with 4 KiB each way",
                    where, wrong, seen.wrong, late + seen.late, t * 1e6 / rounds));
        }
    }
}

/// The same between device 0 and each other one: a grid on either. Data lies where its writer is, counters and packets
/// where their reader is, as in a group of several devices.
void between_devices() {
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    if (devices < 2) return found("between devices", true, "left out: there is one");
    const int pairs = 16, quads = 2048;
    for (int d = 1; d < devices; ++d) {
        int there = 0, back = 0;
        check(cudaDeviceCanAccessPeer(&there, 0, d), "cudaDeviceCanAccessPeer");
        check(cudaDeviceCanAccessPeer(&back, d, 0), "cudaDeviceCanAccessPeer");
        if (there == 0 || back == 0) {
            found("between devices", true, formatted("0 and %d: no peer access", d));
            continue;
        }
        for (const auto& [own, other] : {std::pair{0, d}, std::pair{d, 0}}) {
            const colls::cuda::detail::device_guard guard(own);
            check(cudaDeviceEnablePeerAccess(other, 0), "cudaDeviceEnablePeerAccess");
            load(message_passing, packets, buffering);
        }
        const private_stream streams[] = {private_stream(0), private_stream(d)};
        // Runs a kernel on both devices with the same arguments but the last two; returns what both have seen.
        const auto run = [&](const void* kernel, std::vector<void*> arguments) {
            const device_memory outcomes[] = {device_memory(0, sizeof(outcome)), device_memory(d, sizeof(outcome))};
            for (int side = 1; side <= 2; ++side) {
                const colls::cuda::detail::device_guard guard(side == 1 ? 0 : d);
                outcome* result = in<outcome>(outcomes[side - 1]);
                std::vector<void*> all = arguments;
                all.push_back(&result);
                all.push_back(&side);
                launch(kernel, pairs, all.data(), streams[side - 1].get(), true, true);
            }
            outcome seen{};
            for (int side = 1; side <= 2; ++side) {
                const colls::cuda::detail::device_guard guard(side == 1 ? 0 : d);
                check(cudaDeviceSynchronize(), "a litmus test between devices");
                const outcome one = read(outcomes[side - 1]);
                seen.wrong += one.wrong, seen.late += one.late, seen.seen += one.seen;
            }
            return seen;
        };
        {
            const device_memory data(0, pairs * quads * sizeof(quad)), flags(d, pairs * sizeof(line)),
                acknowledged(0, pairs * sizeof(line));
            quad* q = in<quad>(data);
            int length = quads, rounds = 1000;
            line *f = in<line>(flags), *a = in<line>(acknowledged);
            const outcome seen = run(reinterpret_cast<const void*>(&message_passing), {&q, &length, &f, &a, &rounds});
            found("message passing", seen.wrong + seen.late == 0,
                formatted("0 to %d: %llu stale words, %llu late", d, seen.wrong, seen.late));
        }
        {
            const device_memory first(d, pairs * threads * sizeof(packet)), second(0, pairs * threads * sizeof(packet));
            packet *to = in<packet>(first), *from = in<packet>(second);
            int rounds = 10000;
            const auto begin = std::chrono::steady_clock::now();
            const outcome seen = run(reinterpret_cast<const void*>(&packets), {&to, &from, &rounds});
            const double t = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
            found("packets", seen.wrong + seen.late == 0,
                formatted("0 and %d: %llu wrong, %llu late, %llu halves; %.2f us there and back", d, seen.wrong,
                    seen.late, seen.seen, t * 1e6 / rounds));
        }
        for (bool stores : {true, false}) {
            const device_memory one(0, pairs * threads * sizeof(line)), two(d, pairs * threads * sizeof(line)),
                shown(0, pairs * threads * sizeof(line)), meetings(0, 2 * pairs * sizeof(line));
            line *x = in<line>(one), *y = in<line>(two), *z = in<line>(shown), *m = in<line>(meetings);
            int rounds = 2000;
            const outcome seen = run(reinterpret_cast<const void*>(&buffering), {&stores, &x, &y, &z, &m, &rounds});
            found(stores ? "store buffering" : "load buffering", seen.wrong + seen.late == 0,
                formatted(
                    "0 and %d: %llu forbidden, %llu late, %llu seen by one only", d, seen.wrong, seen.late, seen.seen));
        }
    }
}

/// What two processes tell each other: one value each, in order.
template <class X>
X told(int socket, const X& own) {
    X theirs{};
    if (send(socket, &own, sizeof own, MSG_NOSIGNAL) != sizeof own ||
        recv(socket, &theirs, sizeof theirs, MSG_WAITALL) != sizeof theirs)
        throw colls::error(colls::errc::peer_failed, "the other process has ended");
    return theirs;
}

/// One of two processes: the same between them, in memory of the one and then of the other, through CUDA IPC. On one
/// device their kernels take turns, so that each wait is a slice of time.
void between_processes_as(int self, int socket) {
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    const int device = self % devices;
    check(cudaSetDevice(device), "cudaSetDevice");
    load(message_passing, packets, buffering);
    constexpr int pairs = 4, quads = 512;
    int rounds = devices > 1 ? 1000 : 20, length = quads, side = self + 1;
    struct shared_words {
        quad data[pairs * quads];
        packet there[pairs * threads], back[pairs * threads];
        line flags[pairs], acknowledged[pairs], x[2][pairs * threads], y[2][pairs * threads], seen[2][pairs * threads],
            meetings[2][2 * pairs];
    };
    const private_stream stream(device);
    for (int owner = 0; owner < 2; ++owner) {
        const device_memory own(device, sizeof(shared_words) + (2 << 20)), result(device, sizeof(outcome));
        check(cudaMemset(own.data(), 0, own.size()), "cudaMemset");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        cudaIpcMemHandle_t mine{};
        check(cudaIpcGetMemHandle(&mine, own.data()), "cudaIpcGetMemHandle");
        const cudaIpcMemHandle_t theirs = told(socket, mine);
        void* at = own.data();
        if (owner != self)
            check(cudaIpcOpenMemHandle(&at, theirs, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
        auto* const w = static_cast<shared_words*>(at);
        const auto run = [&](const char* what, const void* kernel, std::vector<void*> arguments) {
            outcome* o = in<outcome>(result);
            arguments.push_back(&o);
            arguments.push_back(&side);
            launch(kernel, pairs, arguments.data(), stream.get(), true, true);
            check(cudaDeviceSynchronize(), "a litmus test between processes");
            const outcome here = read(result), other = told(socket, here);
            check(cudaMemset(result.data(), 0, sizeof(outcome)), "cudaMemset");
            if (self == 0)
                found(what, here.wrong + here.late + other.wrong + other.late == 0,
                    formatted("processes, memory of %d: %llu wrong, %llu late, %d rounds", owner,
                        here.wrong + other.wrong, here.late + other.late, rounds));
        };
        {
            quad* q = w->data;
            line *f = w->flags, *a = w->acknowledged;
            run("message passing", reinterpret_cast<const void*>(&message_passing), {&q, &length, &f, &a, &rounds});
            packet *to = w->there, *from = w->back;
            run("packets", reinterpret_cast<const void*>(&packets), {&to, &from, &rounds});
            for (bool stores : {true, false}) {
                line *x = w->x[stores], *y = w->y[stores], *z = w->seen[stores], *m = w->meetings[stores];
                run(stores ? "store buffering" : "load buffering", reinterpret_cast<const void*>(&buffering),
                    {&stores, &x, &y, &z, &m, &rounds});
            }
        }
        told(socket, 0);
        if (owner != self) check(cudaIpcCloseMemHandle(at), "cudaIpcCloseMemHandle");
        told(socket, 0);
    }
}
void between_processes() {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return found("processes", false, "no socketpair");
    const pid_t parent = getpid(), other = fork();
    const int self = other == 0;
    close(sockets[!self]);
    if (self == 1) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
    }
    try {
        between_processes_as(self, sockets[self]);
    } catch (const std::exception& e) {
        found("processes", false, formatted("process %d: %s", self, e.what()));
    }
    close(sockets[self]);
    if (self == 1) _exit(failures != 0);
    int status = 0;
    waitpid(other, &status, 0);
    if (status != 0) found("processes", false, "the second one failed");
}

void launches() {
    const private_stream stream(0);
    const cudaStream_t s = stream.get();
    const auto kernel = reinterpret_cast<const void*>(&nothing);
    const auto row = [&](const char* name, int blocks, bool cooperative, bool remote, int size) {
        const auto [t, host] = times_of(s, 500, [&] { launch(kernel, blocks, nullptr, s, cooperative, remote, size); });
        found("launch", true, formatted("%-34s %7.2f us each, %6.2f of the host", name, t * 1e6, host * 1e6));
    };
    row("1 block", 1, false, false, 32);
    row("1 block, cooperative", 1, true, false, 32);
    row("1 block, cooperative, remote", 1, true, true, 32);
    row("64 blocks of 512", 64, false, false, 512);
    row("64 blocks of 512, cooperative", 64, true, false, 512);
    row("128 blocks of 512, cooperative", 128, true, true, 512);
    std::vector<double> all;
    for (int i = 0; i < 200; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        launch(kernel, 1, nullptr, s, false, false, 32);
        cudaStreamSynchronize(s);
        all.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(all.begin(), all.end());
    found("launch and synchronise", true, formatted("%.2f us", all[100] * 1e6));
}

/// Seconds of one of `count` calls that a graph replays: without the host's part.
template <class F>
double time_in_graph(cudaStream_t s, int count, const F& call) {
    cudaGraph_t graph;
    cudaGraphExec_t replays;
    check(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < count; ++i) call();
    check(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&replays, graph, 0), "cudaGraphInstantiate");
    const double t = times_of(s, 5, [&] { check(cudaGraphLaunch(replays, s), "cudaGraphLaunch"); }).stream / count;
    cudaGraphExecDestroy(replays);
    cudaGraphDestroy(graph);
    return t;
}

void calls() {
    using colls::cuda::protocol;
    const private_stream stream(0);
    const cudaStream_t s = stream.get();
    const std::size_t most = 64 << 20;
    for (const int n : {2, 4, 8}) {
        const device_memory from(0, most * static_cast<std::size_t>(n)), to(0, most * static_cast<std::size_t>(n));
        const auto parts = [&](const device_memory& m, std::size_t bytes) {
            std::vector<std::span<float>> all;
            for (std::size_t r = 0; r < static_cast<std::size_t>(n); ++r)
                all.emplace_back(in<float>(m) + r * (most / 4), bytes / 4);
            return all;
        };
        struct point {
            protocol by;
            const char* name;
            std::size_t bytes;
        };
        for (const point& p : {point{protocol::eager, "eager", 8}, point{protocol::eager, "eager", 1 << 10},
                 point{protocol::eager, "eager", 32 << 10}, point{protocol::eager, "eager", 256 << 10},
                 point{protocol::eager, "eager", 1 << 20}, point{protocol::pulled, "pulled", 32 << 10},
                 point{protocol::pulled, "pulled", 256 << 10}, point{protocol::pulled, "pulled", 1 << 20},
                 point{protocol::pulled, "pulled", 4 << 20}, point{protocol::pulled, "pulled", most}}) {
            colls::cuda::virtual_ranks ranks(n, {.protocol = p.by, .packet_bytes = 4 << 20});
            const auto x = parts(from, p.bytes), y = parts(to, p.bytes);
            const auto call = [&] { colls::cuda::all_reduce(ranks, x, y, colls::sum, s); };
            const auto [t, host] = times_of(s, p.bytes < (1 << 20) ? 100 : 20, call);
            const double replayed = time_in_graph(s, 20, call);
            ranks.check();
            const double copy = times_of(s, 20, [&] {
                for (std::size_t r = 0; r < x.size(); ++r)
                    check(cudaMemcpyAsync(y[r].data(), x[r].data(), p.bytes, cudaMemcpyDeviceToDevice, s),
                        "cudaMemcpyAsync");
            }).stream;
            found("all_reduce", true,
                formatted("%d ranks, %-8s %9zu B: %9.2f us, %6.2f of the host; in a graph %9.2f us; %d copies of it "
                          "%9.2f us; bytes in and out over time %7.1f GB/s",
                    n, p.name, p.bytes, t * 1e6, host * 1e6, replayed * 1e6, n, copy * 1e6,
                    2e-9 * n * static_cast<double>(p.bytes) / t));
        }
    }
}

struct step {
    const char* name;
    unsigned budget;
    void (*run)();
};
constexpr step steps[] = {{"machine", 20, machine}, {"grids", 20, grids}, {"facts", 20, facts}, {"litmus", 60, litmus},
    {"devices", 60, between_devices}, {"processes", 30, between_processes}, {"launches", 20, launches},
    {"calls", 60, calls}};

}  // namespace

int main(int argc, char** argv) {
    if (devices_of_machine() == 0) return std::printf("left out: there is no GPU\n"), 77;
    int failed = 0;
    for (const step& s : steps) {
        if (argc > 1 && std::strcmp(argv[1], s.name) != 0) continue;
        const auto begin = std::chrono::steady_clock::now();
        const pid_t child = fork();
        if (child == 0) {
            alarm(s.budget);
            try {
                s.run();
            } catch (const std::exception& e) {
                found(s.name, false, e.what());
            }
            std::fflush(stdout);
            _exit(failures != 0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        failed += !good;
        std::printf("-- %s: %s, %.1f s\n", s.name,
            good                  ? "passed"
            : WIFSIGNALED(status) ? (WTERMSIG(status) == SIGALRM ? "over its budget" : "died")
                                  : "failed",
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        std::fflush(stdout);
    }
    return failed != 0;
}
