// A group of GPUs on several hosts: a process a rank, started as for world(), with COLLS_HOST naming the hosts.
//     hosts [SEED]               collectives by several families against a serial reference: counts that do not divide,
//                                operators that do not commute, small floats, in place, epilogues, groups of parts; and
//                                messages between ranks
//     hosts replay [TIMES]       a graph of two calls, replayed
//     hosts killed RANK [MS]     rank RANK kills itself after so many milliseconds; the others must hear whose death it
//     was hosts other                rank 0 makes another call than the rest; hosts late: rank 0 makes none; hosts
//     lengths: a message is longer for its receiver
//     hosts direct [SEED]        through windows in memory of the GPUs, by RDMA if COLLS_TRANSPORT is set; else by a
//                                network that shows what has arrived when the emulator flushes
//     hosts fabric DOMAINS       the ranks are on hosts of fabrics, and in so many domains that share memory
//     hosts staged RANK          asks for such windows, which the network of rank RANK, or a device, does not reach
//     hosts unconnected RANK     rank RANK has no connections for its GPU: no rank has the group, and the host's goes
//     on
#include "../support/late_transport.hpp"
#include "messages.hpp"

#include <colls/colls.hpp>
#include <colls/cuda/explain.hpp>
#include <colls/net/detail/node/hosts_group.hpp>
#include <colls/schedules.hpp>
#include <colls/testing/detail/call_shape.hpp>
#include <colls/transports/cuda.hpp>
#include <colls/world.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

int rank_without = colls::none, rank_unconnected = colls::none;
std::atomic<int> flushes{0};

/// A network to the GPUs of the emulator.
class late_network final : public colls::detail::hosts::inter_node_transport {
public:
    late_network(const colls::detail::address&, int) {}
    std::unique_ptr<colls::extend::message_transport> over(
        std::unique_ptr<colls::extend::message_transport> control, int rank, int) override {
        if (rank == rank_without) return control;
        if (rank == rank_unconnected) throw colls::error(colls::errc::unsupported, "there is no queue pair left");
        return std::make_unique<support::late_transport>(std::move(control));
    }
    std::string try_out(std::unique_ptr<colls::extend::message_transport>, int, int, const std::vector<int>&,
        const std::vector<int>&, double) override {
        return {};
    }
    std::byte* take(std::size_t bytes) override {
        return static_cast<std::byte*>(::operator new(bytes, std::align_val_t{128}));
    }
    void give(std::byte* at, std::size_t) noexcept override { ::operator delete(at, std::align_val_t{128}); }
};

}  // namespace

/// See emulated/runtime/devices.cpp.
extern "C" void emulated_flush() {
    ++flushes;
    support::late_transport::flush_gpu();
}

namespace {

using colls::collective;
using colls::cuda::detail::check;
using colls::detail::testing::call_shape;
using word = std::uint64_t;

int wrong = 0;

std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15ull;
    return x ^ x >> 29;
}

/// Maps x -> a x + b modulo 2^32: composing them is associative and does not commute.
struct compose_maps {
    __host__ __device__ word operator()(const word& x, const word& y) const {
        const word xa = x >> 32, xb = x & 0xffffffffu, ya = y >> 32, yb = y & 0xffffffffu;
        return (xa * ya & 0xffffffffu) << 32 | ((xa * yb + xb) & 0xffffffffu);
    }
};
struct add_place {
    __device__ word operator()(word x, std::size_t i) const { return x + 3 * i; }
};

/// A buffer in memory of the group between guards, at any offset from 16 bytes.
class buffer {
public:
    buffer(colls::cuda::communicator& gpu, std::size_t count, std::size_t offset, cudaStream_t stream)
        : count_(count),
          first_(guard + offset),
          host_(count + 2 * guard + 2, filler),
          memory_(gpu.allocate<word>(host_.size())),
          stream_(stream) {}
    word& operator[](std::size_t i) { return host_[first_ + i]; }
    std::span<word> on_device() { return {memory_.data() + first_, count_}; }
    void upload() { copy(memory_.data(), host_.data()); }
    void download() { copy(host_.data(), memory_.data()); }
    bool intact() const {
        for (std::size_t i = 0; i < host_.size(); ++i)
            if ((i < first_ || i >= first_ + count_) && host_[i] != filler) return false;
        return true;
    }
    static constexpr word filler = 0x7171717171717171ull;

private:
    void copy(void* to, const void* from) {
        check(cudaMemcpyAsync(to, from, host_.size() * sizeof(word), cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
    }
    static constexpr std::size_t guard = 16;
    std::size_t count_, first_;
    std::vector<word> host_;
    colls::cuda::memory<word> memory_;
    cudaStream_t stream_;
};

class checker {
public:
    checker(colls::cuda::communicator& gpu, cudaStream_t stream, word seed) : gpu_(gpu), stream_(stream), seed_(seed) {}

    /// One call of a family: `call(in, out, shape)` makes it.
    template <class Op, class Call>
    void run(const char* name, call_shape s, const Op& op, bool in_place, word more, const Call& call) {
        s.n = gpu_.size();
        const int me = gpu_.rank();
        const word seed = mixed(seed_ ^ static_cast<word>(++calls_));
        const auto input = [&](int r, std::size_t i) {
            return mixed(seed + (static_cast<word>(r) << 40) + i) | word{1} << 32;
        };
        const std::size_t ins = s.in_count(me), outs = s.out_count(me);
        buffer in(gpu_, ins, mixed(seed + static_cast<word>(me)) % 2, stream_), out(gpu_, outs, seed % 2, stream_);
        buffer& to = in_place ? in : out;
        for (std::size_t i = 0; i < ins; ++i) in[i] = input(me, i);
        if (s.collective == collective::broadcast && me == s.root)
            for (std::size_t i = 0; i < outs; ++i) out[i] = input(me, i);
        in.upload(), out.upload();
        call(in, to, s);
        in.download(), out.download();
        check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        gpu_.check();
        for (std::size_t i = 0; i < outs; ++i) {
            const auto [first, last, at, count] = s.source_of(me, i);
            word want = first == last ? buffer::filler : input(first, at);
            for (int r = first + 1; r < last; ++r) want = op(want, input(r, at));
            if (first != last) want += more * i;
            if (to[i] == want) continue;
            std::printf("rank %d: %s: element %zu of %zu is %llx, not %llx\n", me, name, i, outs,
                static_cast<unsigned long long>(to[i]), static_cast<unsigned long long>(want));
            ++wrong;
            break;
        }
        for (std::size_t i = 0; i < ins && !in_place; ++i)
            if (in[i] != input(me, i)) {
                std::printf("rank %d: %s: its input has changed\n", me, name);
                ++wrong;
                break;
            }
        if (!in.intact() || !out.intact()) {
            std::printf("rank %d: %s: memory beside a buffer has changed\n", me, name);
            ++wrong;
        }
    }
    int calls() const { return calls_; }

private:
    colls::cuda::communicator& gpu_;
    cudaStream_t stream_;
    const word seed_;
    int calls_ = 0;
};

std::vector<std::size_t> balanced(std::size_t count, int n) {
    const auto parts = static_cast<std::size_t>(n);
    std::vector<std::size_t> all(parts, count / parts);
    for (std::size_t r = 0; r < count % parts; ++r) ++all[r];
    return all;
}

/// What is chosen for an all_reduce of four ranks is what COLLS_SCHEDULE or the file of COLLS_TUNE names (the check
/// sets EXPECT_CHOSEN), else what the table marks.
void explained(colls::cuda::communicator& gpu) {
    for (const collective what : {collective::all_reduce, collective::broadcast, collective::barrier})
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{40'000}, std::size_t{1} << 30}) {
            const int root = gpu.size() - 1;
            const std::string name = colls::cuda::chosen(gpu, what, bytes, root),
                              text = colls::cuda::explain(gpu, what, bytes, root);
            const std::size_t mark = text.find("<- chosen");
            const bool once = mark != std::string::npos && text.find("<- chosen", mark + 1) == std::string::npos;
            const std::size_t row = text.rfind('\n', mark) + 1;
            const char* const wanted = std::getenv("EXPECT_CHOSEN");
            if (once && text.compare(row + 2, name.size(), name) == 0 &&
                (wanted == nullptr || what != collective::all_reduce || gpu.size() != 4 || name == wanted))
                continue;
            std::printf("rank %d: %s is chosen, and explained:\n%s", gpu.rank(), name.c_str(), text.c_str());
            ++wrong;
        }
}

/// Broadcasts from every root, and twice from the first one, in one group of calls.
void roots_together(colls::cuda::communicator& gpu, cudaStream_t stream) {
    const int n = gpu.size();
    constexpr std::size_t count = 300;
    std::vector<colls::cuda::memory<word>> all;
    std::vector<std::vector<word>> host;
    for (int i = 0; i <= n; ++i) {
        all.push_back(gpu.allocate<word>(count));
        host.emplace_back(count, static_cast<word>(100 * gpu.rank() + i));
        check(cudaMemcpyAsync(all.back().data(), host.back().data(), count * sizeof(word), cudaMemcpyDefault, stream),
            "cudaMemcpyAsync");
    }
    auto calls = colls::cuda::begin(gpu);
    for (int i = 0; i <= n; ++i) colls::cuda::broadcast(gpu, all[static_cast<std::size_t>(i)], i % n, stream);
    calls.end();
    for (int i = 0; i <= n; ++i) {
        std::vector<word>& got = host[static_cast<std::size_t>(i)];
        check(cudaMemcpyAsync(
                  got.data(), all[static_cast<std::size_t>(i)].data(), count * sizeof(word), cudaMemcpyDefault, stream),
            "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        gpu.check();
        for (const word x : got)
            if (x != static_cast<word>(100 * (i % n) + i)) {
                std::printf("rank %d: call %d of a group of broadcasts has %llu\n", gpu.rank(), i,
                    static_cast<unsigned long long>(x));
                ++wrong;
                break;
            }
    }
}

/// Each rank's own factor is on its own contribution: by packets, and by a schedule; not in place, and in place.
void own_factors(colls::cuda::communicator& gpu, cudaStream_t stream) {
    namespace cuda = colls::cuda;
    const int n = gpu.size();
    const auto factor = colls::premul_sum(static_cast<float>(gpu.rank() + 1));
    for (const std::size_t count : {std::size_t{3}, std::size_t{40'003}}) {
        auto in = gpu.allocate<float>(count), out = gpu.allocate<float>(count);
        std::vector<float> host(count), input(count);
        for (std::size_t i = 0; i < count; ++i) input[i] = static_cast<float>(i % 11);
        const auto copy = [&](void* to, const void* from) {
            check(cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyDefault, stream), "cudaMemcpyAsync");
        };
        copy(in.data(), input.data());
        cuda::all_reduce<colls::ring>(gpu, in, out, factor, stream);
        copy(host.data(), in.data());
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        wrong += host != input;
        cuda::all_reduce<colls::ring>(gpu, in, factor, stream);
        for (const auto* result : {&in, &out}) {
            copy(host.data(), result->data());
            check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            gpu.check();
            std::size_t bad = 0;
            for (std::size_t i = 0; i < count; ++i) bad += host[i] != input[i] * static_cast<float>(n * (n + 1) / 2);
            if (bad == 0) continue;
            std::printf("rank %d: %zu of %zu sums by factors are wrong\n", gpu.rank(), bad, count);
            ++wrong;
        }
    }
}

void differential(colls::cuda::communicator& gpu, cudaStream_t stream, word seed) {
    explained(gpu);
    namespace cuda = colls::cuda;
    checker c(gpu, stream, seed);
    const int n = gpu.size();
    using two_levels = colls::hierarchical<colls::direct, colls::ring>;
    const auto add = [](word a, word b) { return a + b; };
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{97}, std::size_t{5003}}) {
        const std::vector<std::size_t> blocks = balanced(count, n);
        std::vector<std::size_t> odd(static_cast<std::size_t>(n));
        std::size_t all_odd = 0;
        for (int r = 0; r < n; ++r)
            all_odd += odd[static_cast<std::size_t>(r)] = mixed(count + static_cast<word>(r)) % (count + 1);
        const int root = static_cast<int>(count % static_cast<std::size_t>(n));
        c.run("all_reduce by two levels", {collective::all_reduce, n, 0, blocks}, add, false, 0,
            [&](auto& in, auto& out, auto&) {
                cuda::all_reduce<two_levels>(gpu, in.on_device(), out.on_device(), colls::sum, stream);
            });
        c.run("all_reduce by two levels, in place", {collective::all_reduce, n, 0, blocks}, add, true, 0,
            [&](auto& in, auto&, auto&) { cuda::all_reduce<two_levels>(gpu, in.on_device(), colls::sum, stream); });
        c.run("all_reduce, chosen", {collective::all_reduce, n, 0, blocks}, add, false, 0,
            [&](auto& in, auto& out, auto&) {
                cuda::all_reduce<colls::automatic>(gpu, in.on_device(), out.on_device(), colls::sum, stream);
            });
        c.run("reduce_scatter, chosen", {collective::reduce_scatter, n, 0, blocks}, add, false, 0,
            [&](auto& in, auto& out, auto&) {
                cuda::reduce_scatter<colls::automatic>(gpu, in.on_device(), out.on_device(), colls::sum, stream);
            });
        c.run("all_reduce in order", {collective::all_reduce, n, 0, blocks}, compose_maps{}, false, 0,
            [&](auto& in, auto& out, auto&) {
                cuda::all_reduce<colls::automatic>(gpu, in.on_device(), out.on_device(), compose_maps{}, stream);
            });
        c.run("reduce, with an epilogue", {collective::reduce, n, root, blocks}, add, false, 3,
            [&](auto& in, auto& out, auto&) {
                cuda::reduce<colls::tree<2>>(
                    gpu, in.on_device(), out.on_device(), colls::sum, root, stream, add_place{});
            });
        c.run("broadcast", {collective::broadcast, n, root, blocks}, add, false, 0,
            [&](auto&, auto& out, auto&) { cuda::broadcast<colls::automatic>(gpu, out.on_device(), root, stream); });
        c.run("all_to_all, chosen",
            {collective::all_to_all, n, 0, std::vector<std::size_t>(static_cast<std::size_t>(n * n), count / 16)}, add,
            false, 0,
            [&](auto& in, auto& out, auto&) { cuda::all_to_all(gpu, in.on_device(), out.on_device(), stream); });
        c.run("reduce, chosen", {collective::reduce, n, root, blocks}, add, false, 0, [&](auto& in, auto& out, auto&) {
            cuda::reduce(gpu, in.on_device(), out.on_device(), colls::sum, root, stream);
        });
        c.run("inclusive_scan, chosen", {collective::inclusive_scan, n, 0, blocks}, add, false, 0,
            [&](auto& in, auto& out, auto&) {
                cuda::inclusive_scan(gpu, in.on_device(), out.on_device(), colls::sum, stream);
            });
        cuda::barrier(gpu, stream);
        c.run("all_gather", {collective::all_gather, n, 0, blocks}, add, false, 0, [&](auto& in, auto& out, auto&) {
            cuda::all_gather<colls::ring>(gpu, in.on_device(), out.on_device(), stream);
        });
        c.run("all_gather_v", {collective::all_gather, n, 0, odd}, add, false, 0,
            [&](auto& in, auto& out, auto&) { cuda::all_gather_v(gpu, in.on_device(), out.on_device(), odd, stream); });
        c.run("reduce_scatter_v", {collective::reduce_scatter, n, 0, odd}, add, false, 0,
            [&](auto& in, auto& out, auto&) {
                cuda::reduce_scatter_v<colls::ring>(gpu, in.on_device(), out.on_device(), odd, colls::sum, stream);
            });
        c.run("all_to_all",
            {collective::all_to_all, n, 0, std::vector<std::size_t>(static_cast<std::size_t>(n * n), count / 16)}, add,
            false, 0, [&](auto& in, auto& out, auto&) {
                cuda::all_to_all<colls::bruck<2>>(gpu, in.on_device(), out.on_device(), stream);
            });
        c.run("exclusive_scan", {collective::exclusive_scan, n, 0, blocks}, add, false, 0,
            [&](auto& in, auto& out, auto&) {
                cuda::exclusive_scan<colls::recursive_doubling>(
                    gpu, in.on_device(), out.on_device(), colls::sum, stream);
            });
        cuda::barrier<colls::recursive_doubling>(gpu, stream);
    }
    roots_together(gpu, stream);
    own_factors(gpu, stream);
    // Small floats are folded in float, in whatever order.
    const std::size_t count = 999;
    auto halves = gpu.allocate<colls::bfloat16>(count);
    std::vector<colls::bfloat16> host(count);
    for (std::size_t i = 0; i < count; ++i)
        host[i] = colls::bfloat16(static_cast<float>(i % 8 + static_cast<std::size_t>(gpu.rank())));
    check(cudaMemcpyAsync(halves.data(), host.data(), count * 2, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    cuda::all_reduce<two_levels>(gpu, halves, colls::sum, stream);
    check(cudaMemcpyAsync(host.data(), halves.data(), count * 2, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    for (std::size_t i = 0; i < count; ++i)
        wrong += float(host[i]) !=
                 static_cast<float>(static_cast<std::size_t>(n) * (i % 8) + static_cast<std::size_t>(n * (n - 1) / 2));
    if (gpu.rank() == 0) std::printf("%d ranks: %d calls, %d wrong\n", n, c.calls(), wrong);
}

/// Random messages, within hosts and between them, in memory that the ranks of a host reach or do not.
void messages(colls::cuda::communicator& gpu, cudaStream_t stream, std::size_t seed) {
    const auto finish = [&] {
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        gpu.check();
    };
    for (std::size_t round = seed; round < seed + 4; ++round) {
        message_test::part p(gpu, stream, round, message_test::plan_of(gpu.size(), round, 50'000), round % 2 == 0);
        p.issue();
        finish();
        message_test::counted_part counted(gpu, stream, round);
        counted.issue();
        finish();
        wrong += p.wrong() + counted.wrong();
    }
    for (const std::size_t many : {65u, 300u}) {
        if (gpu.size() == 1) break;
        message_test::divided_part p(gpu, stream, many, many > 65);
        p.issue();
        finish();
        wrong += p.wrong();
    }
    if (gpu.rank() == 0) std::printf("%d ranks: messages, %d wrong so far\n", gpu.size(), wrong);
}

/// Shared buffers where all ranks reach each other: those of cudaMalloc, which no other host can map, are refused.
void share_on_fabric(colls::cuda::communicator& gpu, cudaStream_t stream) {
    constexpr std::size_t count = 5001;
    const colls::cuda::detail::device_memory plain(gpu.device(), count * sizeof(word));
    bool refused = false;
    try {
        const auto shared = gpu.share(reinterpret_cast<word*>(plain.data()), count);
    } catch (const colls::error& e) {
        refused = std::string(e.what()).find("ranks on other hosts of its fabric cannot map it") != std::string::npos;
    }
    wrong += !refused;
    colls::cuda::detail::mapped_buffer memory;
    memory.create(gpu.device(), 2 << 20);
    const auto shared = gpu.share(reinterpret_cast<word*>(memory.data()), count);
    std::vector<word> host(count, static_cast<word>(gpu.rank() + 1));
    const auto copy = [&](void* to, const void* from) {
        check(cudaMemcpyAsync(to, from, count * sizeof(word), cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    };
    copy(memory.data(), host.data());
    colls::cuda::all_reduce<colls::ring>(gpu, shared, colls::sum, stream);
    copy(host.data(), memory.data());
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    gpu.check();
    for (const word x : host) wrong += x != static_cast<word>(gpu.size() * (gpu.size() + 1) / 2);
}

void replay(colls::cuda::communicator& gpu, cudaStream_t stream, int times) {
    namespace cuda = colls::cuda;
    const std::size_t count = 3001;
    auto sums = gpu.allocate<word>(count);
    auto copy = gpu.allocate<word>(count);
    auto blocks = gpu.allocate<word>(balanced(count, gpu.size())[static_cast<std::size_t>(gpu.rank())]);
    const auto calls = [&] {
        cuda::reduce_scatter<colls::ring>(gpu, sums, blocks, colls::sum, stream);
        cuda::all_gather<colls::ring>(gpu, blocks, sums, stream);
        // A message of the sum to the next rank, which compares it.
        cuda::exchange(
            gpu, sums, (gpu.rank() + 1) % gpu.size(), copy, (gpu.rank() + gpu.size() - 1) % gpu.size(), stream);
    };
    const auto fill = [&](word x) {
        const std::vector<word> host(count, x);
        check(cudaMemcpyAsync(sums.data(), host.data(), count * sizeof(word), cudaMemcpyDefault, stream),
            "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    };
    fill(0);
    calls();
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    calls();
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&ready, graph, 0), "cudaGraphInstantiate");
    fill(1);
    word want = 1;
    for (int i = 0; i < times; ++i) {
        check(cudaGraphLaunch(ready, stream), "cudaGraphLaunch");
        want *= static_cast<word>(gpu.size());
    }
    for (auto* const at : {&sums, &copy}) {
        std::vector<word> host(count);
        check(cudaMemcpyAsync(host.data(), at->data(), count * sizeof(word), cudaMemcpyDefault, stream),
            "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        gpu.check();
        for (const word x : host) wrong += x != want;
    }
    if (gpu.rank() == 0) std::printf("%d ranks: %d replays, %d elements wrong\n", gpu.size(), times, wrong);
    check(cudaGraphExecDestroy(ready), "cudaGraphExecDestroy");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

/// Calls until it fails; the error must name that rank, if it is one. 0: it did.
template <class Call>
int expect(colls::cuda::communicator& gpu, int guilty, colls::errc one, colls::errc other, const Call& call) {
    try {
        for (int i = 0;; ++i) call(i);
    } catch (const colls::error& e) {
        std::printf("rank %d: %s\n", gpu.rank(), e.what());
        // The guilty rank may have told a third one first that the calls of the two differ.
        const std::string own = "because rank " + std::to_string(gpu.rank()) + " made a different call";
        const bool names = guilty == colls::none || e.peer() == guilty ||
                           std::string(e.what()).find("rank " + std::to_string(guilty)) != std::string::npos ||
                           std::string(e.what()).find(own) != std::string::npos;
        // A rank that others blame is told who says so.
        const bool blames_itself =
            std::string(e.what()).find("failed: rank " + std::to_string(gpu.rank()) + " ") != std::string::npos;
        return names && !blames_itself && (e.code() == one || e.code() == other) ? 0 : 1;
    }
}

int run(const std::string& mode, int a, int b) {
    colls::communicator world = colls::world();
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    const int device = colls::read_launch().local_rank % devices;
    check(cudaSetDevice(device), "cudaSetDevice");
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    // Little memory, so that calls take many chunks.
    colls::cuda::options o;
    o.channels = 2;
    o.chunk_bytes = mode == "staged" ? 32 << 10 : 4 << 10;  // by packets of a network, and longer ones
    o.far_bytes = 64 << 10;
    o.arena_bytes = 4 << 20;
    o.share_devices = true;
    o.gpu_direct = mode == "direct" || mode == "staged";
    // Rank 1, which waits for rank 0 itself, is the first to give up, however busy the machine is: the others hear of
    // it.
    if (mode == "late") o.timeout = world.rank() == 1 ? 2 : 30;
    if (mode == "unconnected") {
        if (world.rank() == a) rank_unconnected = a;
        std::string why;
        try {
            colls::cuda::communicator(world, device, o);
        } catch (const colls::error& e) {
            why = e.what();
        }
        std::printf("rank %d: %s\n", world.rank(), why.c_str());
        colls::barrier(world);
        check(cudaStreamDestroy(stream), "cudaStreamDestroy");
        const std::string says =
            "cuda::communicator: rank " + std::to_string(world.rank()) + " has no group, because rank ";
        return why.find(says) == std::string::npos;
    }
    colls::cuda::communicator gpu(world, device, o);
    auto x = gpu.allocate<word>(20'000);
    const auto sum = [&](int) {
        colls::cuda::all_reduce<colls::ring>(gpu, x, colls::sum, stream);
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        gpu.check();
    };
    using enum colls::errc;
    int result = 0;
    if (o.gpu_direct) {
        differential(gpu, stream, static_cast<word>(a));
        messages(gpu, stream, static_cast<std::size_t>(a));
        wrong += gpu.gpu_direct() != (mode == "direct");
        if (colls::detail::hosts::open_verbs == &colls::detail::hosts::open_as<late_network>)
            wrong += (flushes > 0) != (gpu.gpu_direct() && support::late_transport::is_late);
        result = wrong != 0;
    } else if (mode == "fabric") {
        const int domains = gpu.context().hosts().known() ? gpu.context().hosts().hosts() : 1;
        if (domains != a || (gpu.context().far() == nullptr) != (a == 1))
            std::printf("%d domains, not %d\n", domains, a), ++wrong;
        replay(gpu, stream, 5);
        if (domains == 1) share_on_fabric(gpu, stream);
        result = wrong != 0;
    } else if (mode == "replay") {
        replay(gpu, stream, a);
        result = wrong != 0;
    } else if (mode == "killed") {
        auto y = gpu.allocate<word>(x.size());
        result = expect(gpu, a, peer_failed, peer_failed, [&](int i) {
            if (i == 1 && world.rank() == a)  // the others have made the group, and call by now, too
                std::thread([b] {
                    std::this_thread::sleep_for(std::chrono::milliseconds(b));
                    kill(getpid(), SIGKILL);
                }).detach();
            if (i % 2 == 0) return sum(i);
            const int n = gpu.size();
            colls::cuda::exchange(gpu, x, (gpu.rank() + 1) % n, y, (gpu.rank() + n - 1) % n, stream);
            check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            gpu.check();
        });
    } else if (mode == "other") {
        // Each of the ranks whose calls differ names the other one, and the rest hear of either.
        result = expect(gpu, world.rank() == 1 ? 0 : colls::none, mismatch, mismatch, [&](int i) {
            if (i == 3 && world.rank() == 0)
                colls::cuda::all_reduce<colls::ring>(gpu, x, colls::max, stream);
            else
                sum(i);
        });
    } else if (mode == "lengths") {
        // Messages whose two ends differ: the receiver says by how much, the sender that it does.
        result = expect(gpu, 1 - world.rank(), mismatch, mismatch, [&](int) {
            const std::span<word> some(x.data(), world.rank() == 0 ? 5 : 6);
            if (world.rank() == 0)
                colls::cuda::send(gpu, some, 1, stream);
            else
                colls::cuda::recv(gpu, some, 0, stream);
            check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            gpu.check();
        });
    } else if (mode == "late") {
        if (world.rank() != 0)
            result = expect(gpu, 0, timeout, peer_failed, sum);
        else
            std::this_thread::sleep_for(std::chrono::seconds(4));
    } else {
        // Two groups in turn, and a part of one: by rows of the hosts' ranks.
        differential(gpu, stream, static_cast<word>(a));
        messages(gpu, stream, static_cast<std::size_t>(a));
        auto some = gpu.split(world.rank() % 2, world.rank());
        differential(some, stream, static_cast<word>(a) + 1);
        messages(some, stream, static_cast<std::size_t>(a) + 1);
        differential(gpu, stream, static_cast<word>(a) + 2);
        result = wrong != 0;
    }
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return result;
}

}  // namespace

int main(int argc, char** argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    const std::string mode = argc > 1 && std::strtol(argv[1], nullptr, 0) == 0 ? argv[1] : "";
    const char* const first = mode.empty() ? (argc > 1 ? argv[1] : "1") : (argc > 2 ? argv[2] : "100");
    if ((mode == "direct" || mode == "staged" || mode == "unconnected") && std::getenv("COLLS_TRANSPORT") == nullptr) {
        support::late_transport::is_strict = mode == "direct";
        if (mode == "staged") rank_without = std::atoi(first);
        const char* const how = std::getenv("EMULATED_DIRECT");
        support::late_transport::is_late = how == nullptr || std::strcmp(how, "3") != 0;
        colls::detail::hosts::open_verbs = &colls::detail::hosts::open_as<late_network>;
        setenv("COLLS_TRANSPORT", "verbs", 1);
    }
    try {
        return run(mode, std::atoi(first), argc > 3 ? std::atoi(argv[3]) : 300);
    } catch (const std::exception& e) {
        return std::fprintf(stderr, "%s\n", e.what()), 1;
    }
}
