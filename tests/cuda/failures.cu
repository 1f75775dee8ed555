// On a GPU, processes that share it: what the others hear, and soon, when a rank dies, aborts, runs out of memory in a
// call or while it joins, or refuses a call. With a timeout of 60 s, which no test waits for.
#include "devices.hpp"

#include <colls/colls.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>
#include <colls/transports/shm.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

/// The allocation of this thread that fails; none while it is negative.
thread_local int allocations_left = -1;

}  // namespace

#ifndef __CUDA_ARCH__  // operators of a device are another matter; inlined alone, one would look like a mismatch to g++
void* operator new(std::size_t bytes) {
    if (allocations_left == 0) {
        allocations_left = -1;
        throw std::bad_alloc();
    }
    if (allocations_left > 0) --allocations_left;
    if (void* const at = std::malloc(bytes == 0 ? 1 : bytes)) return at;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept { std::free(at); }
#endif

namespace {

using colls::errc;
using colls::cuda::detail::check;
constexpr std::size_t count = 20'000;

/// Expectations of all processes that held, and those that did not.
struct outcome {
    std::atomic<int> right{0}, wrong{0}, here{0};
};
outcome* all_processes = nullptr;

void expect(bool condition, const char* what, const char* text = "") {
    (condition ? all_processes->right : all_processes->wrong).fetch_add(1);
    if (!condition) std::printf("wrong: %s: %s\n", what, text), std::fflush(stdout);
}
/// f() throws an error with that code and peer, whose text has all of `parts` in it.
template <class F>
void expect_error(errc code, int peer, const char* what, const std::vector<const char*>& parts, const F& f) {
    try {
        f();
    } catch (const colls::error& e) {
        bool all = e.code() == code && e.peer() == peer;
        for (const char* const part : parts) all = all && std::strstr(e.what(), part) != nullptr;
        expect(all, what, e.what());
        return;
    }
    expect(false, what, "no error");
}

struct rank_buffer {
    explicit rank_buffer(colls::cuda::communicator& gpu) : memory(gpu.allocate<float>(count)) {
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    rank_buffer(const rank_buffer&) = delete;
    ~rank_buffer() { cudaStreamDestroy(stream); }
    void sum(colls::cuda::communicator& gpu, std::size_t elements = count) {
        colls::cuda::all_reduce<colls::ring>(gpu, std::span<float>(memory.data(), elements), colls::sum, stream);
    }
    void finish(colls::cuda::communicator& gpu) {
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        gpu.check();
    }
    colls::cuda::memory<float> memory;
    cudaStream_t stream = nullptr;
};

const colls::cuda::options small_group{.channels = 2, .arena_bytes = 1 << 20, .share_devices = true, .timeout = 60};

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
/// Returns when all processes have called it as often: what breaks a group then ends no call that came before.
void meet() {
    static int times = 0;
    all_processes->here.fetch_add(1);
    ++times;
    for (int i = 0; i < 60'000 && all_processes->here < 3 * times; ++i) pause(1e-3);
}

void abort_by_a_thread(colls::communicator& host) {
    colls::cuda::communicator gpu(host, 0, small_group);
    rank_buffer x(gpu);
    const auto parts = std::vector<const char*>{"rank 0 aborted", "no more time"};
    if (gpu.rank() == 0) {
        std::thread watchdog([&] {
            pause(0.1);
            gpu.abort("no more time");
        });
        expect_error(errc::peer_failed, gpu.rank() == 0 ? -1 : 0, "abort ends this rank's wait", parts, [&] {
            x.sum(gpu);
            x.finish(gpu);
        });
        watchdog.join();
    }
    colls::barrier(host);
    if (gpu.rank() != 0)
        expect_error(errc::peer_failed, 0, "abort ends another rank's wait", parts, [&] {
            x.sum(gpu);
            x.finish(gpu);
        });
    expect_error(errc::peer_failed, gpu.rank() == 0 ? -1 : 0, "calls after abort", parts, [&] { x.sum(gpu); });
}

/// The last rank's memory ends at its first allocation in a call, at its second, and so on.
void no_memory_in_a_call(colls::communicator& host) {
    bool over = false;
    int cases = 0;
    for (; !over; ++cases) {
        colls::cuda::communicator gpu(host, 0, small_group);
        rank_buffer x(gpu);
        const int last = gpu.size() - 1;
        int failed = 0;
        if (gpu.rank() == last) {
            try {
                allocations_left = cases;
                x.sum(gpu);
                failed = allocations_left < 0;  // within the CUDA runtime, which did without
                allocations_left = -1;
                if (!failed) x.finish(gpu);
            } catch (const std::bad_alloc&) {
                failed = 1;
                expect_error(
                    errc::peer_failed, -1, "calls after a bad_alloc", {"out of host memory"}, [&] { gpu.check(); });
            }
            allocations_left = -1;
        }
        std::vector<int> own{failed}, all(static_cast<std::size_t>(gpu.size()));
        if (gpu.rank() == last) {
            colls::all_gather(host, own, all);
        } else {
            const auto call = [&] {
                x.sum(gpu);
                x.finish(gpu);
            };
            std::string text;
            int peer = -2;
            try {
                call();
            } catch (const colls::error& e) {
                text = e.what();
                peer = e.peer();
            }
            colls::all_gather(host, own, all);
            const bool named = text.find("rank " + std::to_string(last) + " failed while it prepared") != text.npos &&
                               text.find("out of host memory") != text.npos && peer == last;
            expect(all.back() ? named : text.empty(), "a peer's bad_alloc in a call", text.c_str());
        }
        over = all.back() == 0;
    }
    if (host.rank() == 0) std::printf("a bad_alloc at %d places of a call\n", cases - 1);
    expect(cases > 3, "a call allocates");
}

/// As before, while the group is made.
void no_memory_while_joining(colls::communicator& host) {
    bool over = false;
    int cases = 0;
    for (; !over; ++cases) {
        colls::communicator part = host.split(0, host.rank());
        const int last = part.size() - 1;
        bool failed = false;
        std::string text;
        int peer = -2;
        try {
            if (part.rank() == last) allocations_left = cases;
            const colls::cuda::communicator gpu(part, 0, small_group);
            allocations_left = -1;
        } catch (const std::exception& e) {
            allocations_left = -1;
            failed = true;
            text = e.what();
            if (const auto* const of_library = dynamic_cast<const colls::error*>(&e)) peer = of_library->peer();
        }
        std::vector<int> own{failed}, all(static_cast<std::size_t>(part.size()));
        colls::all_gather(host, own, all);
        over = all.back() == 0;
        bool same = true;
        for (const int f : all) same = same && f == all.back();
        expect(same, "a bad_alloc while a group is made ends it on all ranks", text.c_str());
        if (failed && part.rank() != last)
            expect(peer == last && text.find("memory") != text.npos, "a peer's bad_alloc while a group is made",
                text.c_str());
    }
    if (host.rank() == 0) std::printf("a bad_alloc at %d places of making a group\n", cases - 1);
    expect(cases > 10, "making a group allocates");
}

void refusals(colls::communicator& host) {
    colls::cuda::communicator gpu(host, 0, small_group);
    rank_buffer x(gpu);
    const auto wrong_call = [&] {
        try {
            colls::cuda::all_reduce<colls::ring>(gpu, std::span<float>(x.memory.data(), 7),
                std::span<float>(x.memory.data() + 16, 6), colls::sum, x.stream);
        } catch (const colls::error& e) {
            expect(e.code() == errc::invalid_argument, "a call with wrong arguments", e.what());
        }
    };
    const int last = gpu.size() - 1;
    if (gpu.rank() == last) wrong_call();
    x.sum(gpu);
    x.finish(gpu);
    expect(true, "a call that is made right after it was refused");
    wrong_call();
    pause(1.2);
    x.sum(gpu);
    x.finish(gpu);
    expect(true, "a call after all ranks refused one");
    if (gpu.rank() == last)
        wrong_call();
    else
        expect_error(
            errc::peer_failed, last, "a call that a peer has refused", {"refused this call", "input and output"}, [&] {
                x.sum(gpu);
                x.finish(gpu);
            });
    colls::barrier(host);
}

/// Memory of no elements, which gives back what it has taken; and of more than there can be.
void sizes(colls::communicator& host) {
    colls::cuda::communicator gpu(host, 0, small_group);
    const std::size_t all = gpu.context().reachable().exported.bytes, too_many = std::size_t{1} << 62;
    for (std::size_t i = 0; i <= all / 256; ++i) gpu.allocate<float>(0);
    const auto x = gpu.allocate<char>(all - 4096);
    expect(x.size() == all - 4096, "all memory after memory of no elements");
    expect_error(errc::unsupported, -1, "2^64 bytes", {"is used up"}, [&] { gpu.allocate<float>(too_many); });
    expect_error(
        errc::unsupported, -1, "2^64 - 1 bytes", {"is used up"}, [&] { gpu.allocate<char>(4 * too_many - 1); });
    expect_error(errc::invalid_argument, gpu.rank(), "a buffer of 2^64 bytes", {"more bytes than any memory"},
        [&] { gpu.share(reinterpret_cast<float*>(x.data()), too_many); });
}

/// A rank refuses a call, and then makes those of a graph, of which its host does not hear: a peer that has waited for
/// them for more than a second still finds them.
void refusal_before_a_graph(colls::communicator& host) {
    colls::cuda::communicator gpu(host, 0, small_group);
    rank_buffer x(gpu);
    x.sum(gpu);
    x.finish(gpu);
    check(cudaStreamBeginCapture(x.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    x.sum(gpu);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    check(cudaStreamEndCapture(x.stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
    if (gpu.rank() == gpu.size() - 1) {
        expect_error(errc::invalid_argument, -1, "a root that there is not", {"out of range"},
            [&] { colls::cuda::broadcast(gpu, x.memory, 3, x.stream); });
        pause(2);
    }
    check(cudaGraphLaunch(replay, x.stream), "cudaGraphLaunch");
    x.finish(gpu);
    expect(true, "a graph that is replayed after a refused call");
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
}

/// The last rank leaves, also after a call that it has not made up for: the others hear which, and why.
void leaves(colls::communicator& host) {
    for (const bool refuses : {false, true}) {
        colls::cuda::communicator gpu(host, 0, small_group);
        rank_buffer x(gpu);
        const int last = gpu.size() - 1;
        x.sum(gpu);
        x.finish(gpu);
        if (gpu.rank() != last) {
            expect_error(errc::peer_failed, last, "a call after a peer has left",
                {"rank 2", refuses ? "refused this call" : "has left the group before this call"}, [&] {
                    x.sum(gpu);
                    x.finish(gpu);
                });
        } else if (refuses) {
            expect_error(errc::invalid_argument, -1, "a root that there is not", {"out of range"},
                [&] { colls::cuda::broadcast(gpu, x.memory, 3, x.stream); });
        }
    }
}

void wrong_devices(colls::communicator& host, int devices) {
    const int last = host.size() - 1;
    const char* const text = "names device";
    expect_error(host.rank() == last ? errc::unsupported : errc::peer_failed, last, "a device that one rank lacks",
        {text, "could not join"},
        [&] { colls::cuda::communicator(host, host.rank() == last ? devices : 0, small_group); });
    using options = colls::cuda::options;
    for (void (*const change)(options&) : {+[](options& o) { o.scratch_bytes *= 2; },
             +[](options& o) { o.packet_bytes *= 2; }, +[](options& o) { o.small_bytes *= 2; },
             +[](options& o) { o.middle_bytes *= 2; }, +[](options& o) { o.chunk_bytes *= 2; },
             +[](options& o) { o.far_channels *= 2; }, +[](options& o) { o.far_bytes *= 2; },
             +[](options& o) { o.multicast = true; }, +[](options& o) { o.gpu_direct = true; },
             +[](options& o) { o.protocol = colls::cuda::protocol::pulled; }}) {
        auto other = small_group;
        if (host.rank() == last) change(other);
        try {
            colls::cuda::communicator(host, 0, other);
            expect(false, "options that differ");
        } catch (const colls::error& e) {
            expect(e.code() == errc::invalid_argument && std::strstr(e.what(), "different options"),
                "options that differ", e.what());
        }
    }
    auto alone = small_group;
    alone.share_devices = false;
    expect_error(errc::invalid_argument, host.rank(), "ranks that name one device by mistake",
        {"name the same device", "share_devices"},
        [&] { colls::cuda::communicator(host, std::min({host.rank(), devices - 1, 1}), alone); });
}

/// The last rank's process sees no device.
void no_device(colls::communicator& host) {
    const int last = host.size() - 1;
    if (host.rank() == last) setenv("CUDA_VISIBLE_DEVICES", "", 1);  // before this process uses CUDA
    expect_error(host.rank() == last ? errc::unsupported : errc::peer_failed, last, "a rank without a device",
        {"because rank 2 could not join", "cudaGetDeviceCount"},
        [&] { colls::cuda::communicator(host, 0, small_group); });
}

/// The last rank dies while the others wait for it in a kernel. Leaves the process.
void death(colls::communicator& host) {
    colls::cuda::communicator gpu(host, 0, small_group);
    rank_buffer x(gpu);
    const int last = gpu.size() - 1;
    x.sum(gpu, 3);
    x.finish(gpu);
    meet();
    if (gpu.rank() == last) {
        pause(0.1);
        raise(SIGKILL);
    }
    expect_error(errc::peer_failed, last, "a process that dies", {"rank 2"}, [&] {
        x.sum(gpu);
        x.finish(gpu);
    });
}

/// Static objects: a forked child that exits runs their destructors, and the rank goes on as if there had been none.
void forked_child(colls::communicator& host) {
    static std::optional<colls::cuda::communicator> gpu;
    static std::optional<rank_buffer> x;
    static std::optional<colls::cuda::shared_buffer<float>> shared;
    gpu.emplace(host, 0, small_group);
    x.emplace(*gpu);
    float* own = nullptr;
    check(cudaMalloc(&own, count * sizeof(float)), "cudaMalloc");
    shared.emplace(gpu->share(own, count));
    std::fflush(stdout);
    for (const bool calls : {false, true}) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            if (!calls) exit(0);
            expect_error(errc::invalid_argument, -1, "a call of a forked child", {"forked from the rank"},
                [&] { x->sum(*gpu); });
            gpu->abort("a forked child");
            { static auto calls_of_child = colls::cuda::begin(*gpu); }
            exit(0);
        }
        int status = -1;
        expect(waitpid(child, &status, 0) == child && status == 0, "a forked child ends");
    }
    x->sum(*gpu);
    x->finish(*gpu);
    expect(true, "a call after the child");
    const int last = gpu->size() - 1;
    meet();
    if (gpu->rank() == last) {
        pause(0.1);
        raise(SIGKILL);
    }
    expect_error(errc::peer_failed, last, "a process that dies after the child", {"rank 2"}, [&] {
        x->sum(*gpu);
        x->finish(*gpu);
    });
    _exit(0);
}

/// Runs f as 3 processes. `least`: expectations, of all. `dies`: one of the processes does.
template <class F>
int processes(int least, bool dies, const char* what, const F& f) {
    all_processes->right = all_processes->wrong = all_processes->here = 0;
    std::string error;
    try {
        colls::processes::run(3, [&](auto& comm) { f(comm); });
    } catch (const colls::error& e) {
        error = e.what();
    }
    const int right = all_processes->right, wrong = all_processes->wrong;
    const bool ok = wrong == 0 && right >= least && error.empty() != dies;
    std::printf("%s: %s: %d right, %d wrong; %s\n", what, ok ? "right" : "wrong", right, wrong,
        error.empty() ? "no process failed" : error.c_str());
    return ok ? 0 : 1;
}

}  // namespace

int main() {
    setenv("COLLS_TIMEOUT", "60", 1);
    const int devices = devices_of_machine();
    if (devices == 0) return std::printf("left out: there is no GPU\n"), 77;
    void* const shared = mmap(nullptr, sizeof(outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return std::printf("no memory\n"), 1;
    all_processes = new (shared) outcome;
    int failed = processes(2, true, "a process that dies", [](auto& host) { death(host); });
    failed += processes(14, true, "a forked child", [](auto& host) { forked_child(host); });
    failed += processes(6, false, "abort", [](auto& host) { abort_by_a_thread(host); });
    failed += processes(13, false, "refused calls", [](auto& host) { refusals(host); });
    failed += processes(12, false, "sizes", [](auto& host) { sizes(host); });
    failed += processes(4, false, "refused before a graph", [](auto& host) { refusal_before_a_graph(host); });
    failed += processes(5, false, "a rank that leaves", [](auto& host) { leaves(host); });
    failed += processes(33, false, "devices and options", [devices](auto& host) { wrong_devices(host, devices); });
    failed += processes(3, false, "a rank without a device", [](auto& host) { no_device(host); });
    failed += processes(10, false, "no memory in a call", [](auto& host) { no_memory_in_a_call(host); });
    failed += processes(30, false, "no memory while joining", [](auto& host) { no_memory_while_joining(host); });
    return failed == 0 ? 0 : 1;
}
