// On one or more devices of one process: messages between ranks, calls with counts of each rank, groups of calls, a
// graph of them, and what is refused or found wrong.
#include "messages.hpp"

#include <colls/schedules/ring.hpp>

namespace {

using colls::errc;
using colls::cuda::communicator;
using message_test::check;
int failed = 0;

class group {
public:
    group(int n, const colls::cuda::options& o) {
        std::vector<int> devices(static_cast<std::size_t>(n));
        std::iota(devices.begin(), devices.end(), 0);
        ranks = communicator::of_devices(devices, o);
        for (int r = 0; r < n; ++r) {
            check(cudaSetDevice(r), "cudaSetDevice");
            cudaStream_t s;
            check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
            streams.push_back(s);
        }
    }
    group(const group&) = delete;
    ~group() {
        for (const cudaStream_t s : streams) cudaStreamDestroy(s);
    }
    std::size_t size() const { return ranks.size(); }
    void finish() {
        for (const cudaStream_t s : streams) check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        for (const communicator& c : ranks) c.check();
    }
    std::vector<communicator> ranks;
    std::vector<cudaStream_t> streams;
};

void random_messages(int n, const colls::cuda::options& o, std::size_t most, const char* what) {
    group g(n, o);
    for (std::size_t round = 0; round < 8; ++round) {
        const auto plan = message_test::plan_of(n, round, most);
        std::vector<std::unique_ptr<message_test::part>> parts;
        for (std::size_t r = 0; r < g.size(); ++r)
            parts.push_back(
                std::make_unique<message_test::part>(g.ranks[r], g.streams[r], round, plan, round % 2 == 0));
        for (auto& p : parts) p->issue();
        g.finish();
        for (auto& p : parts) failed += p->wrong();
        std::vector<std::unique_ptr<message_test::counted_part>> counted;
        for (std::size_t r = 0; r < g.size(); ++r)
            counted.push_back(std::make_unique<message_test::counted_part>(g.ranks[r], g.streams[r], round));
        for (auto& p : counted) p->issue();
        g.finish();
        for (auto& p : counted) failed += p->wrong();
    }
    std::printf("%d ranks, %s: messages and calls with counts: %d wrong so far\n", n, what, failed);
}

/// Groups of more messages than a launch brings with it, which ranks divide in different ways.
void divided_groups(int n, const colls::cuda::options& o) {
    group g(n, o);
    for (const std::size_t many : {65u, 300u}) {
        std::vector<std::unique_ptr<message_test::divided_part>> parts;
        for (std::size_t r = 0; r < g.size(); ++r)
            parts.push_back(std::make_unique<message_test::divided_part>(g.ranks[r], g.streams[r], many, many > 65));
        for (auto& p : parts) p->issue();
        g.finish();
        for (auto& p : parts) failed += p->wrong();
    }
    std::printf("%d ranks: groups that ranks divide differently: %d wrong so far\n", n, failed);
}

/// Groups of collective calls, of many sizes, eager and pulled; with messages; replayed as a graph.
void groups_of_calls(int n, colls::cuda::protocol p) {
    colls::cuda::options o;
    o.channels = 3;
    o.protocol = p;
    o.small_bytes = 1 << 10;
    group g(n, o);
    std::vector<std::size_t> sizes = {1, 5, 700, 0, 40'000, 3, 90, 20'001, 17};
    while (sizes.size() < 20) sizes.push_back(sizes.size());
    struct buffers {
        std::vector<colls::cuda::memory<int>> sums;
        colls::cuda::memory<float> maximum;
        colls::cuda::memory<int> left, right;
    };
    std::vector<buffers> all;
    for (communicator& c : g.ranks) {
        all.push_back({{}, c.allocate<float>(100), c.allocate<int>(77), c.allocate<int>(77)});
        for (const std::size_t s : sizes) all.back().sums.push_back(c.allocate<int>(s));
    }
    const auto fill = [&](auto& at, std::size_t count, auto value) {
        std::vector<decltype(value)> host(count, value);
        check(cudaMemcpy(at.data(), host.data(), count * sizeof value, cudaMemcpyDefault), "cudaMemcpy");
    };
    const auto expect = [&](const auto& at, std::size_t count, auto value, const char* what) {
        std::vector<decltype(value)> host(count);
        check(cudaMemcpy(host.data(), at.data(), count * sizeof value, cudaMemcpyDefault), "cudaMemcpy");
        for (const auto x : host)
            if (x != value) {
                std::printf("%s of %zu elements: not as it should be\n", what, count);
                ++failed;
                return;
            }
    };
    const auto reset = [&] {
        for (std::size_t r = 0; r < g.size(); ++r) {
            for (std::size_t i = 0; i < sizes.size(); ++i) fill(all[r].sums[i], sizes[i], static_cast<int>(r + i));
            fill(all[r].maximum, 100, static_cast<float>(r));
            fill(all[r].left, 77, static_cast<int>(r));
            fill(all[r].right, 77, -1);
        }
    };
    const auto call = [&](std::size_t r) {
        communicator& c = g.ranks[r];
        auto calls = colls::cuda::begin(c);
        for (auto& sum : all[r].sums) colls::cuda::all_reduce<colls::ring>(c, sum, colls::sum, g.streams[r]);
        colls::cuda::all_reduce(c, all[r].maximum, colls::max, g.streams[r]);
        // Each element alone, which are more messages than a launch brings with it.
        for (std::size_t i = 0; i < 77; ++i)
            colls::cuda::exchange(c, std::span<int>(all[r].left.data() + i, 1), (c.rank() + 1) % n,
                std::span<int>(all[r].right.data() + i, 1), (c.rank() + n - 1) % n, g.streams[r]);
        calls.end();
    };
    const auto verify = [&](const char* what) {
        g.finish();
        for (std::size_t r = 0; r < g.size(); ++r) {
            for (std::size_t i = 0; i < sizes.size(); ++i)
                expect(all[r].sums[i], sizes[i], n * (n - 1) / 2 + n * static_cast<int>(i), what);
            expect(all[r].maximum, 100, static_cast<float>(n - 1), what);
            expect(all[r].right, 77, (static_cast<int>(r) + n - 1) % n, what);
        }
    };
    reset();
    for (std::size_t r = 0; r < g.size(); ++r) call(r);
    verify("a group of calls");
    std::vector<cudaGraphExec_t> graphs;
    for (std::size_t r = 0; r < g.size(); ++r) {
        cudaGraph_t graph;
        cudaGraphExec_t ready;
        check(cudaSetDevice(static_cast<int>(r)), "cudaSetDevice");
        check(cudaStreamBeginCapture(g.streams[r], cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        call(r);
        check(cudaStreamEndCapture(g.streams[r], &graph), "cudaStreamEndCapture");
        check(cudaGraphInstantiate(&ready, graph, 0), "cudaGraphInstantiate");
        check(cudaGraphDestroy(graph), "cudaGraphDestroy");
        graphs.push_back(ready);
    }
    for (int time = 0; time < 3; ++time) {
        reset();
        for (std::size_t r = 0; r < g.size(); ++r) check(cudaGraphLaunch(graphs[r], g.streams[r]), "cudaGraphLaunch");
        verify("a replayed group of calls");
    }
    for (const cudaGraphExec_t e : graphs) check(cudaGraphExecDestroy(e), "cudaGraphExecDestroy");
}

/// An operator and an epilogue with members, which the calls of a group do not share.
struct add_and {
    static constexpr bool commutative = true;
    int more;
    __host__ __device__ int operator()(int a, int b) const { return a + b + more; }
};
struct multiplied {
    int by;
    __host__ __device__ int operator()(int a, std::size_t) const { return a * by; }
};
/// Groups of calls that are alike but for what one launch cannot tell apart: operators, epilogues, blocks of given
/// sizes.
void groups_of_unlike_calls(int n) {
    group g(n, {.channels = 4});
    struct buffers {
        colls::cuda::memory<int> own, all[5], ints;
        colls::cuda::memory<float> floats;
    };
    std::vector<buffers> of;
    const auto first = [](int r) { return r * (r + 1) / 2; };  // blocks of r + 1 elements
    const auto whole = static_cast<std::size_t>(first(n));
    std::vector<int> counts, reverse;
    for (int r = 0; r < n; ++r) counts.push_back(r + 1), reverse.push_back(n - r);
    for (int r = 0; r < n; ++r) {
        communicator& c = g.ranks[static_cast<std::size_t>(r)];
        const auto take = [&] { return c.allocate<int>(whole); };
        of.push_back({take(), {take(), take(), take(), take(), take()}, c.allocate<int>(1), c.allocate<float>(1)});
        const int one = 1;
        const float half = 0.5f;
        check(cudaMemcpy(of.back().ints.data(), &one, sizeof one, cudaMemcpyDefault), "cudaMemcpy");
        check(cudaMemcpy(of.back().floats.data(), &half, sizeof half, cudaMemcpyDefault), "cudaMemcpy");
        const std::vector<int> host(whole, r + 1);
        check(cudaMemcpy(of.back().own.data(), host.data(), whole * sizeof(int), cudaMemcpyDefault), "cudaMemcpy");
    }
    const auto issue = [&](std::size_t r, const auto& add_calls) {
        auto calls = colls::cuda::begin(g.ranks[r]);
        add_calls(g.ranks[r], of[r], g.streams[r]);
        calls.end();
    };
    const auto expect = [&](int i, const char* what, const auto& value) {
        for (std::size_t r = 0; r < g.size(); ++r) {
            std::vector<int> host(whole);
            check(cudaMemcpy(host.data(), of[r].all[i].data(), whole * sizeof(int), cudaMemcpyDefault), "cudaMemcpy");
            for (std::size_t e = 0; e < whole; ++e)
                if (const int want = value(static_cast<int>(e)); host[e] != want) {
                    std::printf("%s, call %d of a group: %d, and should be %d\n", what, i, host[e], want);
                    ++failed;
                    return;
                }
        }
    };
    const int sum = n * (n + 1) / 2;
    for (std::size_t r = 0; r < g.size(); ++r)
        issue(r, [](communicator& c, buffers& b, cudaStream_t s) {
            for (const int i : {0, 1, 2}) colls::cuda::all_reduce(c, b.own, b.all[i], add_and{100 * i}, s);
            for (const int i : {3, 4}) colls::cuda::all_reduce(c, b.own, b.all[i], colls::sum, s, multiplied{i});
            colls::cuda::all_reduce(c, b.ints, colls::sum, s);
            colls::cuda::all_reduce(c, b.floats, colls::sum, s);
        });
    g.finish();
    for (const buffers& b : of) {
        int ints = 0;
        float floats = 0;
        check(cudaMemcpy(&ints, b.ints.data(), sizeof ints, cudaMemcpyDefault), "cudaMemcpy");
        check(cudaMemcpy(&floats, b.floats.data(), sizeof floats, cudaMemcpyDefault), "cudaMemcpy");
        if (ints != n || floats != 0.5f * static_cast<float>(n))
            ++failed, std::printf("sums of two types in a group: %d, %g\n", ints, static_cast<double>(floats));
    }
    for (int i = 0; i < 5; ++i)
        expect(i, i < 3 ? "operators with members" : "epilogues with members",
            [&](int) { return i < 3 ? sum + 100 * i * (n - 1) : sum * i; });
    for (std::size_t r = 0; r < g.size(); ++r)
        issue(r, [&](communicator& c, buffers& b, cudaStream_t s) {
            const auto block = [&](int size) { return std::span<int>(b.own.data(), static_cast<std::size_t>(size)); };
            const int up = counts[static_cast<std::size_t>(c.rank())],
                      down = reverse[static_cast<std::size_t>(c.rank())];
            const std::span<int> even(b.all[4].data(), static_cast<std::size_t>(n));
            colls::cuda::all_gather(c, block(1), even, s);
            colls::cuda::all_gather_v(c, block(up), b.all[0], counts, s);
            colls::cuda::all_gather_v(c, block(down), b.all[1], reverse, s);
            colls::cuda::all_gather(c, block(1), std::span<int>(b.all[3].data(), static_cast<std::size_t>(n)), s);
            colls::cuda::all_gather_v(c, block(up), b.all[2], counts, s);
        });
    g.finish();
    const auto owner = [&](int e, bool reversed) {
        int r = 0;
        for (int end = 0; r < n && (end += reversed ? n - r : r + 1) <= e; ++r) {}
        return r + 1;
    };
    for (const int i : {0, 1, 2}) expect(i, "blocks of given sizes", [&](int e) { return owner(e, i == 1); });
    for (const int i : {3, 4}) expect(i, "balanced blocks beside them", [&](int e) { return e < n ? e + 1 : sum * i; });
}

template <class F>
void refused(const std::string& text, const F& f, errc code = errc::invalid_argument) {
    try {
        f();
    } catch (const colls::error& e) {
        if (e.code() == code && std::string(e.what()).find(text) != std::string::npos) return;
        std::printf("not as expected: %s\n", e.what());
        ++failed;
        return;
    }
    std::printf("not refused: %s\n", text.c_str());
    ++failed;
}

/// Many calls on ranks of one device: a launch has room for 32 buffers. Groups that the device has no room for.
void groups_of_virtual_ranks() {
    constexpr int n = 4, calls = 12;
    colls::cuda::virtual_ranks ranks(n, {.channels = 2});
    const std::vector<int> host(n * calls, 1);
    const colls::cuda::detail::device_memory memory(ranks.device(), host.size() * sizeof(int), host.data());
    int* const at = reinterpret_cast<int*>(memory.data());
    auto group = colls::cuda::begin(ranks);
    for (int i = 0; i < calls; ++i) {
        std::vector<std::span<int>> each;
        for (int r = 0; r < n; ++r) each.push_back({at + i * n + r, 1});
        colls::cuda::all_reduce(ranks, each, colls::sum, cudaStream_t{});
    }
    group.end();
    std::vector<int> got(host.size());
    check(cudaMemcpy(got.data(), at, got.size() * sizeof(int), cudaMemcpyDefault), "cudaMemcpy");
    ranks.check();
    if (got != std::vector<int>(host.size(), n)) ++failed, std::printf("a group of virtual ranks is wrong\n");
    refused("all_reduce on rank 2: its buffers differ in size from those of rank 1", [&] {
        std::vector<std::span<int>> each;
        for (std::size_t r = 0; r < n; ++r) each.push_back({at + 4 * r, r < 2 ? 3u : 4u});
        colls::cuda::all_reduce(ranks, each, colls::sum, cudaStream_t{});
    });
    const int blocks = colls::cuda::detail::multiprocessors(ranks.device());
    const auto make = [](int size, int channels) {
        return colls::cuda::virtual_ranks(size, {.channels = channels, .scratch_bytes = 4096});
    };
    if (make(1, blocks).size() != 1 || make(2, 1).size() != 2) ++failed, std::printf("not a group that fits\n");
    refused("a group has 1 to", [&] { make(1, blocks + 1); }, errc::unsupported);
    refused("a group has 1 to", [&] { make(33, 1); }, errc::unsupported);
    refused("a group has 1 to", [&] { make(std::min(33, blocks + 1), 0); }, errc::unsupported);
    refused("a group has 1 to", [&] { make(0, 1); });
}

void refusals(int n) {
    group g(n, {.channels = 2});
    communicator& c = g.ranks[0];
    const cudaStream_t s = g.streams[0];
    auto x = c.allocate<int>(100), y = c.allocate<int>(100);
    try {
        (void)c.split(0, 0);
        std::printf("not refused: a split of devices\n"), ++failed;
    } catch (const colls::error& e) {
        failed += e.code() != errc::unsupported;
    }
    {
        group small(n, {.channels = 2, .scratch_bytes = 7168});
        const auto to_itself = [&](std::size_t times) {
            auto calls = colls::cuda::begin(small.ranks[0]);
            for (std::size_t i = 0; i < times; ++i)
                colls::cuda::exchange(
                    small.ranks[0], std::span<int>(x.data(), 1), 0, std::span<int>(y.data(), 1), 0, small.streams[0]);
            calls.end();
        };
        try {
            to_itself(150);
            std::printf("not refused: a list that scratch memory has no room for\n"), ++failed;
        } catch (const colls::error& e) {
            const char* const text = "options.scratch_bytes has no room for 7296 bytes, the list of 300 messages";
            if (e.code() != errc::unsupported || std::string(e.what()).find(text) == std::string::npos)
                std::printf("not as expected: %s\n", e.what()), ++failed;
        }
        to_itself(149);  // which fills it
        small.finish();
    }
    const std::string behind =
        std::to_string(n) + " is out of range: this group has ranks 0 to " + std::to_string(n - 1);
    refused("rank " + behind, [&] { colls::cuda::send(c, x, n, s); });
    refused("rank -1 is out of range", [&] { colls::cuda::recv(c, x, -1, s); });
    refused("it has 1 messages to itself, and receives 0", [&] { colls::cuda::send(c, x, 0, s); });
    refused("input and output overlap", [&] { colls::cuda::exchange(c, x, 0, x, 0, s); });
    const auto part = [&](std::size_t first, std::size_t count) { return std::span<int>(x.data() + first, count); };
    refused("input and output overlap", [&] { colls::cuda::exchange(c, part(0, 50), 0, part(49, 50), 0, s); });
    refused("input and output overlap", [&] { colls::cuda::exchange(c, part(49, 50), 0, part(0, 50), 0, s); });
    std::vector<int> host(100);
    std::iota(host.begin(), host.end(), 0);
    check(cudaMemcpy(x.data(), host.data(), 400, cudaMemcpyDefault), "cudaMemcpy");
    colls::cuda::exchange(c, part(0, 50), 0, part(50, 50), 0, s);           // side by side
    colls::cuda::exchange(c, std::span<int>(), 0, std::span<int>(), 0, s);  // and without a byte
    check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    check(cudaMemcpy(host.data(), x.data(), 400, cudaMemcpyDefault), "cudaMemcpy");
    for (int i = 0; i < 100; ++i) failed += host[static_cast<std::size_t>(i)] != i % 50;
    int* managed = nullptr;
    check(cudaMallocManaged(&managed, 8), "cudaMallocManaged");
    managed[0] = 7;
    colls::cuda::exchange(c, std::span<int>(managed, 1), 0, std::span<int>(managed + 1, 1), 0, s);
    check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    failed += managed[1] != 7;
    check(cudaFree(managed), "cudaFree");
    refused("host memory", [&] { colls::cuda::send(c, host, 0, s); });
    std::vector<int> counts(static_cast<std::size_t>(n), 0);
    counts[0] = 50;
    refused("input and output overlap",
        [&] { colls::cuda::all_to_all_v(c, part(0, 50), part(49, 50), counts, counts, s); });
    // Not in place: the root's block is one element behind its place.
    refused("input and output overlap", [&] { colls::cuda::gather_v(c, part(1, 50), part(0, 50), counts, 0, s); });
    refused("the root's own block has 49 elements, and its count is 50",
        [&] { colls::cuda::gather_v(c, part(50, 49), part(0, 50), counts, 0, s); });
    {
        std::vector<int> fewer = counts;
        fewer[0] = 49;
        refused("the block for itself has two sizes",
            [&] { colls::cuda::all_to_all_v(c, part(0, 50), part(50, 49), counts, fewer, s); });
    }
    counts[0] = 100;
    refused(n == 1 ? "leave 1 elements" : "have 1 entries",
        [&] { colls::cuda::all_to_all_v(c, x, y, std::vector<int>{n == 1 ? 99 : 100}, counts, s); });
    refused("that of rank 0 is -1, and a count is not negative",
        [&] { colls::cuda::gather_v(c, x, y, std::vector<int>(static_cast<std::size_t>(n), -1), 0, s); });
    const std::vector<std::uint64_t> wraps(static_cast<std::size_t>(n), (std::uint64_t{1} << 63) + 50);
    refused("that of rank 0 is 2^63 or more", [&] { colls::cuda::all_to_all_v(c, x, y, wraps, counts, s); });
    const std::vector<long long> negative(static_cast<std::size_t>(n), -7);
    refused("all_gather on rank 0: the counts of what is reduced or gathered: that of rank 0 is -7",
        [&] { colls::cuda::all_gather_v(c, x, y, negative, s); });
    refused("reduce_scatter on rank 0: the counts of what is reduced or gathered: that of rank 0 is 2^63 or more",
        [&] { colls::cuda::reduce_scatter_v(c, x, y, wraps, colls::sum, s); });
    refused("the sent buffer is a null pointer",
        [&] { colls::cuda::send(c, std::span<int>(static_cast<int*>(nullptr), 5), 0, s); });
    refused("the sent buffer has more bytes than any memory",
        [&] { colls::cuda::send(c, std::span<int>(x.data(), (std::size_t{1} << 62) + 25), 0, s); });
    refused("the sent buffer has 404 bytes, and 400 are left of the memory",
        [&] { colls::cuda::send(c, std::span<int>(x.data(), 101), 0, s); });
    refused("the input buffer has 200 bytes, and 196 are left of the memory",
        [&] { colls::cuda::all_reduce(c, std::span<int>(x.data() + 51, 50), colls::sum, s); });
    counts[0] = 99;
    refused("leave 1 elements of the buffer over", [&] { colls::cuda::scatter_v(c, x, y, counts, 0, s); });
    refused("root " + behind, [&] { colls::cuda::scatter_v(c, x, y, counts, n, s); });
    refused("root " + behind, [&] { colls::cuda::broadcast(c, x, n, s); });
    {
        auto once = c.allocate<int>(3);
        const auto z = std::move(once);
        if (once.data() != nullptr || once.size() != 0 || z.size() != 3)
            ++failed, std::printf("a moved buffer is wrong\n");
    }
    {
        auto calls = colls::cuda::begin(c);
        refused("has begun before", [&] { (void)colls::cuda::begin(c); });
        cudaStream_t other;
        check(cudaSetDevice(0), "cudaSetDevice");
        check(cudaStreamCreate(&other), "cudaStreamCreate");
        colls::cuda::exchange(c, x, 0, y, 0, s);
        refused("its stream is another one", [&] { colls::cuda::exchange(c, x, 0, y, 0, other); });
        check(cudaStreamDestroy(other), "cudaStreamDestroy");
    }
    // Not ended, its exchange is not made; a later one is.
    colls::cuda::exchange(c, x, 0, y, 0, s);
    check(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    c.check();
}

/// What two ranks make of messages of different lengths, and of one that never comes.
void mistakes() {
    const auto expect = [](group& g, std::size_t r, errc code, const char* text) {
        try {
            check(cudaStreamSynchronize(g.streams[r]), "cudaStreamSynchronize");
            g.ranks[r].check();
        } catch (const colls::error& e) {
            std::printf("%s\n", e.what());
            if (e.code() == code && std::string(e.what()).find(text) != std::string::npos) return;
        }
        std::printf("rank %zu: not found: %s\n", r, text);
        ++failed;
    };
    {
        group g(2, {.channels = 2});
        auto x = g.ranks[0].allocate<int>(100), y = g.ranks[1].allocate<int>(101);
        colls::cuda::send(g.ranks[0], x, 1, g.streams[0]);
        colls::cuda::recv(g.ranks[1], y, 0, g.streams[1]);
        expect(g, 1, errc::mismatch, "rank 0 made a different call");
        expect(g, 0, errc::mismatch, "rank 1 gave up");
    }
    {
        // Rank 0 makes two calls of four elements in one group, rank 1 one after the other.
        group g(2, {.channels = 4});
        std::vector<colls::cuda::memory<int>> x, y;
        for (communicator& c : g.ranks) x.push_back(c.allocate<int>(4)), y.push_back(c.allocate<int>(4));
        for (const std::size_t r : {0u, 1u}) {
            auto calls = colls::cuda::begin(g.ranks[r]);
            colls::cuda::all_reduce(g.ranks[r], x[r], colls::sum, g.streams[r]);
            if (r == 1) calls.end();
            colls::cuda::all_reduce(g.ranks[r], y[r], colls::sum, g.streams[r]);
            calls.end();
        }
        expect(g, 0, errc::mismatch, "made a different call");
        expect(g, 1, errc::mismatch, "made a different call");
    }
    {
        group g(2, {.channels = 2, .timeout = 2});
        auto y = g.ranks[1].allocate<int>(101);
        colls::cuda::recv(g.ranks[1], y, 0, g.streams[1]);
        expect(g, 1, errc::timeout, "rank 0 did not come within 2 s");
    }
}

}  // namespace

int main() {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    try {
        colls::cuda::options few;
        few.channels = 3;
        few.scratch_bytes = 32 << 10;
        random_messages(devices, few, 9'000, "short");
        few.channels = 2;
        random_messages(devices, few, 200'000, "long");
        few.through_host = true;
        if (devices > 1) random_messages(devices, few, 60'000, "through the host");
        if (devices > 1) divided_groups(devices, few);
        few.through_host = false;
        for (int n = 2; n <= devices && n <= 3; ++n) divided_groups(n, few);
        for (const auto p :
            {colls::cuda::protocol::automatic, colls::cuda::protocol::eager, colls::cuda::protocol::pulled})
            groups_of_calls(devices, p);
        groups_of_unlike_calls(devices);
        groups_of_virtual_ranks();
        refusals(devices);
        if (devices > 1) mistakes();
    } catch (const std::exception& e) {
        return std::fprintf(stderr, "%s\n", e.what()), 1;
    }
    std::printf("%s\n", failed == 0 ? "all right" : "something is wrong");
    return failed != 0;
}
