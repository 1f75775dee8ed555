// A program for mutants (mutate.py): every barrier, fence, release and acquire of the kernels matters to it somewhere,
// or is in equivalent_mutants.txt. all_reduce by two schedules with an epilogue, pulled, on the eager path in
// one hop and in two, by the switch, and within a kernel; with several chunks, in place, at the wraparound of the eager
// path's flags; back to back over devices, where nothing but the calls orders the ranks; ranks in different calls; a
// rank that gives up while another one reads its data; two blocks that give up at once. Needs two devices.
#include <colls/cuda/device.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using colls::errc;
using colls::cuda::detail::check;
using one_shot = colls::one_shot::all_reduce;
constexpr std::size_t most = 10'007, few = 301;
int wrong = 0;

void expect(bool right, const char* what, const char* text = "") {
    if (right) return;
    ++wrong, std::printf("wrong: %s: %s\n", what, text);
    if (std::getenv("EMULATED_MUTANT") != nullptr) std::fflush(stdout), std::_Exit(1);  // one finds a mutant
}

template <class T>
struct managed {
    explicit managed(std::size_t count) { check(cudaMallocManaged(&at, count * sizeof(T)), "cudaMallocManaged"); }
    managed(const managed&) = delete;
    ~managed() { cudaFree(at); }
    T* at = nullptr;
};

/// Holds a kernel at one place: says that it is there, and waits. In memory of the host, which writes during a kernel.
struct gate {
    volatile int* words = nullptr;  ///< [0]: reached; [1]: open
    __device__ void pass() const {
        words[0] = 1;
        const auto begin = colls::cuda::detail::device_thread_group::now();
        while (words[1] == 0 && colls::cuda::detail::device_thread_group::now() - begin < 10'000'000'000) {}
    }
};
/// Passes the gate at the first element.
struct held_result {
    gate at;
    __device__ float operator()(float x, std::size_t i) const {
        if (i == 0 && at.words != nullptr) at.pass();
        return x;
    }
};
/// Passes the gate at a negative element.
struct held_sum {
    gate at;
    __host__ __device__ float operator()(float a, float b) const {
#ifdef __CUDA_ARCH__
        if (a < 0 && at.words != nullptr) at.pass();
#endif
        return a + b;
    }
};

/// Makes the calls that follow the last ones before their flags repeat.
void go_to_wraparound(colls::cuda::detail::local_ranks& ranks) {
    using colls::cuda::detail::channel_state;
    using colls::cuda::detail::rank_handle;
    const auto n = static_cast<std::size_t>(ranks.size());
    rank_handle h;
    std::vector<std::byte*> workspaces(n);
    check(cudaMemcpy(&h, ranks.handles(), sizeof h, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(cudaMemcpy(workspaces.data(), h.workspaces, n * sizeof(std::byte*), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (std::byte* const w : workspaces)
        for (int c = 0; c < ranks.sizes().channels; ++c) {
            auto* const state = reinterpret_cast<channel_state*>(w + h.sizes.channels_begin) + c;
            const std::uint32_t calls = 0xfffffffb;
            check(cudaMemcpy(&state->eager_calls, &calls, sizeof calls, cudaMemcpyHostToDevice), "cudaMemcpy");
        }
}

// ---- three ranks of one device

constexpr int n = 3;
using colls::cuda::protocol;
const colls::cuda::options small_group{.channels = 2,
    .middle_bytes = 0,
    .chunk_bytes = 8 << 10,
    .scratch_bytes = 128 << 10,
    .packet_bytes = 32 << 10,
    .table_bytes = 64 << 10,
    .timeout = 4};
colls::cuda::options by(protocol p, colls::cuda::options o) {
    o.protocol = p;
    return o;
}

struct buffers {
    managed<float> in{n * most}, out{n * most};
};

template <class S>
void sums(colls::cuda::virtual_ranks& ranks, buffers& b, std::size_t count, bool in_place) {
    std::vector<std::span<float>> from, to;
    for (std::size_t r = 0; r < n; ++r) {
        from.emplace_back((in_place ? b.out.at : b.in.at) + r * most, count);
        to.emplace_back(b.out.at + r * most, count);
    }
    for (std::size_t i = 0; i < n * most; ++i) {
        b.in.at[i] = static_cast<float>(i % 97);
        b.out.at[i] = in_place ? b.in.at[i] : -1;
    }
    colls::cuda::all_reduce<S>(ranks, from, to, colls::sum, cudaStream_t{}, held_result{});
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    ranks.check();
    const float* const in = b.in.at;
    std::size_t bad = 0;
    for (std::size_t r = 0; r < n; ++r)
        for (std::size_t i = 0; i < most; ++i) {
            const float sum = in[i] + in[most + i] + in[2 * most + i];
            bad += b.out.at[r * most + i] != (i < count ? sum : in_place ? in[r * most + i] : -1.0f);
        }
    expect(bad == 0, "a sum", std::to_string(count).c_str());
}

void sums_on_one_device() {
    buffers b;
    colls::cuda::virtual_ranks ranks(n, small_group);  // calls that are not small are pulled
    for (const bool in_place : {false, true}) {
        sums<colls::direct>(ranks, b, few, in_place);
        sums<colls::ring>(ranks, b, most, in_place);
        sums<colls::direct>(ranks, b, most, in_place);
    }
    go_to_wraparound(ranks.context());
    for (int i = 0; i < 8; ++i) sums<colls::direct>(ranks, b, few, false);
}

/// A message of a channel has at most 2.6 KB.
void sums_in_two_hops() {
    constexpr std::size_t count = 1600;
    buffers b;
    colls::cuda::virtual_ranks ranks(n, by(protocol::eager, small_group));
    for (const bool in_place : {false, true}) sums<colls::direct>(ranks, b, count, in_place);
    go_to_wraparound(ranks.context());
    for (int i = 0; i < 8; ++i) sums<colls::direct>(ranks, b, count, false);
}

// ---- calls within a kernel

__device__ float value_of(int rank, std::size_t i, int call) {
    return static_cast<float>((rank + 1) * static_cast<int>(i % 7) + call);
}

/// Call after call, on data that each thread has written for another one, and then reads another thread's sums.
/// answers[local] counts threads that heard that the call was right, bad elements that are not.
__global__ void __launch_bounds__(512, 1)
    calls_of_blocks(const __grid_constant__ colls::cuda::device::ranks<one_shot> r, float* in, float* out,
        std::size_t count, int difference, int calls, held_sum op, int* answers, int* bad) {
    const int local = static_cast<int>(blockIdx.x), rank = r.rank(local);
    const std::size_t own = count + static_cast<std::size_t>(rank * difference);
    float *const x = in + static_cast<std::size_t>(local) * most, *const y =
                                                                      out + static_cast<std::size_t>(local) * most;
    for (int call = 0; call < calls; ++call) {
        for (std::size_t i = threadIdx.x; i < own && difference == 0 && calls > 1; i += blockDim.x)
            x[own - 1 - i] = value_of(rank, own - 1 - i, call);
        const bool ok = colls::cuda::device::all_reduce(r, local, 0, x, y, own, op);
        if (ok) atomicAdd(answers + local, 1);
        for (std::size_t i = threadIdx.x; i < own && ok && calls > 1; i += blockDim.x) {
            float sum = 0;
            for (int q = 0; q < r.size(); ++q) sum += value_of(q, own - 1 - i, call);
            if (y[own - 1 - i] != sum) atomicAdd(bad, 1);
        }
    }
}

constexpr int block = 64;

struct kernel_call {
    managed<float> x{n * most}, y{n * most};
    managed<int> answers{n + 1};

    template <class Comm>
    void launch(Comm& comm, std::size_t count, int difference, int calls, bool in_place, gate at, cudaStream_t stream) {
        auto r = colls::cuda::ranks_for<one_shot>(comm);
        held_sum op{at};
        int* bad = answers.at + n;
        std::memset(answers.at, 0, (n + 1) * sizeof(int));
        void* arguments[] = {&r, &x.at, in_place ? &x.at : &y.at, &count, &difference, &calls, &op, &answers.at, &bad};
        const auto& kernel = calls_of_blocks;
        check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&kernel), dim3(static_cast<unsigned>(r.locals)),
                  dim3(block), arguments, 0, stream),
            "cudaLaunchCooperativeKernel");
    }
};

void sums_within_a_kernel() {
    colls::cuda::virtual_ranks ranks(n, small_group);
    go_to_wraparound(ranks.context());
    kernel_call k;
    for (const auto& [count, calls] : {std::pair{few, 9}, std::pair{most / 2, 2}}) {
        k.launch(ranks, count, 0, calls, true, {}, {});
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        ranks.check();
        for (int r = 0; r < n; ++r) expect(k.answers.at[r] == calls * block, "the answers of calls within a kernel");
        expect(k.answers.at[n] == 0, "sums within a kernel");
    }
}

// ---- two devices

struct pair_of_devices {
    explicit pair_of_devices(protocol p, double timeout = 0.05, int channels = 1)
        : ranks(group_of(p, timeout, channels)) {
        for (int r = 0; r < 2; ++r) {
            check(cudaSetDevice(r), "cudaSetDevice");
            check(cudaStreamCreateWithFlags(&stream[r], cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        }
        check(cudaHostAlloc(&words, 2 * sizeof(int), cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
        words[0] = words[1] = 0;
        for (auto& k : of_rank) std::memset(k.answers.at, 0, sizeof(int));
    }
    pair_of_devices(const pair_of_devices&) = delete;
    ~pair_of_devices() {
        for (const cudaStream_t s : stream) cudaStreamDestroy(s);
        cudaFreeHost(words);
    }
    static std::vector<colls::cuda::communicator> group_of(protocol p, double timeout, int channels) {
        return colls::cuda::communicator::of_devices({0, 1}, by(p, {.channels = channels,
                                                                       .small_bytes = few * 4,
                                                                       .multicast_bytes = 2 << 10,
                                                                       .scratch_bytes = 128 << 10,
                                                                       .table_bytes = 64 << 10,
                                                                       .timeout = timeout}));
    }
    std::vector<colls::cuda::communicator> ranks;
    cudaStream_t stream[2] = {};
    int* words = nullptr;
    kernel_call of_rank[2];

    /// The call of rank r: by S, or by the one in a kernel.
    template <class S>
    void call(std::size_t r, std::size_t count, int difference, gate at) {
        check(cudaSetDevice(static_cast<int>(r)), "cudaSetDevice");
        if constexpr (std::is_same_v<S, one_shot>)
            return of_rank[r].launch(ranks[r], count, difference, 1, false, at, stream[r]);
        else
            colls::cuda::all_reduce<S>(ranks[r],
                std::span<float>(of_rank[r].x.at, count + r * static_cast<std::size_t>(difference)), colls::sum,
                stream[r], held_result{at});
    }
    /// Waits until check() throws, without waiting for the kernel.
    void expect_error(std::size_t r, const std::vector<errc>& codes, const char* what) {
        while (true) try {
                const bool is_last = cudaStreamQuery(stream[r]) == cudaSuccess;
                ranks[r].check();
                if (is_last) return expect(false, what, "no error");
                std::this_thread::sleep_for(std::chrono::microseconds(20));
            } catch (const colls::error& e) {
                const bool known = std::find(codes.begin(), codes.end(), e.code()) != codes.end();
                return expect(known && e.peer() == static_cast<int>(1 - r), what, e.what());
            }
    }
    /// All threads of calls in kernels have heard of the failure.
    void expect_answers(std::size_t r) {
        check(cudaStreamSynchronize(stream[r]), "cudaStreamSynchronize");
        expect(of_rank[r].answers.at[0] == 0, "the answers of calls within a kernel that fails");
    }
};

/// By the switch: one chunk, and several; call after call.
void sums_by_multicast() {
    pair_of_devices two(protocol::multicast, 4);
    for (const std::size_t count : {few, most, few}) {
        const auto input = [](std::size_t r, std::size_t i) { return static_cast<float>((i + 31 * r) % 97); };
        for (const std::size_t r : {0, 1})
            for (std::size_t i = 0; i < most; ++i) two.of_rank[r].x.at[i] = input(r, i);
        for (const std::size_t r : {0, 1}) two.call<colls::direct>(r, count, 0, {});
        std::size_t bad = 0;
        for (const std::size_t r : {0, 1}) check(cudaStreamSynchronize(two.stream[r]), "cudaStreamSynchronize");
        for (const std::size_t r : {0, 1}) {
            two.ranks[r].check();
            for (std::size_t i = 0; i < most; ++i)
                bad += two.of_rank[r].x.at[i] != (i < count ? input(0, i) + input(1, i) : input(r, i));
        }
        expect(bad == 0, "a sum by the switch", std::to_string(count).c_str());
    }
}

__global__ void fill(float* x, std::size_t count, int rank, int call) {
    for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        x[i] = value_of(rank, i, call);
}
__global__ void count_wrong(const float* y, std::size_t count, int call, int* bad) {
    for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        if (y[i] != value_of(0, i, call) + value_of(1, i, call)) atomicAdd(bad, 1);
}

/// Each rank overwrites its buffers right behind a call, and makes the next one; no rank waits for the other.
template <class S>
void calls_back_to_back(protocol p, std::size_t count) {
    pair_of_devices two(p, 4, 2);
    int call = 0;
    const auto make_calls = [&](int times, std::size_t most_elements) {
        for (const int end = call + times; call < end; ++call)
            for (const std::size_t r : {0, 1}) {
                kernel_call& k = two.of_rank[r];
                const cudaStream_t s = two.stream[r];
                const std::size_t elements = most_elements - static_cast<std::size_t>(call % 2);
                check(cudaSetDevice(static_cast<int>(r)), "cudaSetDevice");
                fill<<<2, block, 0, s>>>(k.x.at, elements, static_cast<int>(r), call);
                colls::cuda::all_reduce<S>(two.ranks[r], std::span<const float>(k.x.at, elements),
                    std::span<float>(k.y.at, elements), colls::sum, s, held_result{});
                count_wrong<<<2, block, 0, s>>>(k.y.at, elements, call, k.answers.at);
            }
    };
    const auto finish = [&] {
        for (const std::size_t r : {0, 1}) {
            check(cudaStreamSynchronize(two.stream[r]), "cudaStreamSynchronize");
            two.ranks[r].check();
            expect(two.of_rank[r].answers.at[0] == 0, "calls back to back", std::to_string(count).c_str());
        }
    };
    make_calls(6, count);
    finish();
    if (p != protocol::eager) return;
    // What the first calls have left behind the shorter ones has the flags of those after the wraparound.
    check(cudaSetDevice(0), "cudaSetDevice");
    go_to_wraparound(two.ranks[0].context());
    make_calls(4, count / 2);
    make_calls(4, count);
    finish();
}

/// The same within kernels, eager and pulled; the eager ones go past the wraparound.
void calls_within_kernels_back_to_back() {
    pair_of_devices two(protocol::pulled, 4);
    for (const std::size_t count : {few, few / 2, most / 2, most / 2 - 1}) {
        check(cudaSetDevice(0), "cudaSetDevice");
        if (count < few) go_to_wraparound(two.ranks[0].context());
        const int calls = count < few ? 8 : 3;
        for (const std::size_t r : {0, 1}) {
            check(cudaSetDevice(static_cast<int>(r)), "cudaSetDevice");
            two.of_rank[r].launch(two.ranks[r], count, 0, calls, false, {}, two.stream[r]);
        }
        for (const std::size_t r : {0, 1}) {
            check(cudaStreamSynchronize(two.stream[r]), "cudaStreamSynchronize");
            two.ranks[r].check();
            expect(two.of_rank[r].answers.at[0] == calls * block, "the answers of calls within kernels");
            expect(two.of_rank[r].answers.at[n] == 0, "sums within kernels");
        }
    }
}

/// All blocks of rank 0 wait for a rank that makes no call; they give up at once, and one of them says why.
template <class S>
void blocks_that_give_up(std::size_t count) {
    pair_of_devices two(protocol::pulled, 0.001, 2);
    two.call<S>(0, count, 0, {});
    two.expect_error(0, {errc::timeout}, "two blocks that wait in vain");
    two.expect_answers(0);
}

/// Both ranks find that they are in different calls. (The later may hear first that the other has given up.)
template <class S>
void calls_that_differ(protocol p, std::size_t count) {
    pair_of_devices two(p);
    for (const std::size_t r : {0, 1}) two.call<S>(r, count, 1, {});
    for (const std::size_t r : {0, 1}) two.expect_error(r, {errc::mismatch, errc::timeout}, "calls that differ");
    for (const std::size_t r : {0, 1}) two.expect_answers(r);
}

/// Rank 1 reads what rank 0 has prepared for its last round, and is held there; rank 0 waits for it, and gives up. Its
/// caller may then write its buffers, so that rank 1's call must fail, though it needs nothing more of rank 0.
template <class S>
void peer_that_gives_up() {
    pair_of_devices two(protocol::pulled);
    for (const std::size_t r : {0, 1})
        for (std::size_t i = 0; i < most; ++i) two.of_rank[r].x.at[i] = i == 0 && r == 0 ? -1 : 1;
    for (const std::size_t r : {0, 1}) two.call<S>(r, most, 0, r == 1 ? gate{two.words} : gate{});
    two.expect_error(0, {errc::timeout}, "a rank that waits for one that is held");
    two.expect_answers(0);
    for (std::size_t i = 0; i < most; ++i) two.of_rank[0].x.at[i] = -7;
    std::atomic_ref<int>(two.words[1]).store(1);
    two.expect_answers(1);
    two.expect_error(1, {errc::timeout}, "a rank that has read data of one that gave up");
}

void run() {
    sums_on_one_device();
    sums_in_two_hops();
    sums_within_a_kernel();
    sums_by_multicast();
    for (const protocol p : {protocol::pulled, protocol::eager}) {
        const std::size_t count = p == protocol::eager ? few : most;
        calls_back_to_back<colls::ring>(p, count);
        calls_back_to_back<colls::direct>(p, count);
    }
    calls_back_to_back<colls::direct>(protocol::multicast, most);
    calls_within_kernels_back_to_back();
    for (int times = 0; times < 12; ++times) blocks_that_give_up<colls::direct>(most);
    calls_that_differ<colls::direct>(protocol::multicast, most);
    calls_that_differ<colls::ring>(protocol::pulled, most);
    calls_that_differ<colls::direct>(protocol::pulled, most);
    calls_that_differ<colls::direct>(protocol::eager, few);
    calls_that_differ<one_shot>(protocol::pulled, most - 1);
    calls_that_differ<one_shot>(protocol::pulled, few - 1);
    for (int times = 0; times < 3; ++times) {
        peer_that_gives_up<colls::ring>();
        peer_that_gives_up<colls::direct>();
        peer_that_gives_up<one_shot>();
    }
}

}  // namespace

int main() {
    try {
        run();
        return std::printf("%d wrong\n", wrong), wrong == 0 ? 0 : 1;
    } catch (const std::exception& e) {
        return std::printf("%s\n", e.what()), 1;
    }
}
