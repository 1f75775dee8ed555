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
        colls::cuda::exchange(c, all[r].left, (c.rank() + 1) % n, all[r].right, (c.rank() + n - 1) % n, g.streams[r]);
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

template <class F>
void refused(const char* text, const F& f) {
    try {
        f();
    } catch (const colls::error& e) {
        if (e.code() == errc::invalid_argument && std::string(e.what()).find(text) != std::string::npos) return;
        std::printf("not as expected: %s\n", e.what());
        ++failed;
        return;
    }
    std::printf("not refused: %s\n", text);
    ++failed;
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
    refused("rank 99 is out of range", [&] { colls::cuda::send(c, x, 99, s); });
    refused("rank -1 is out of range", [&] { colls::cuda::recv(c, x, -1, s); });
    refused("it has 1 messages to itself, and receives 0", [&] { colls::cuda::send(c, x, 0, s); });
    refused("input and output overlap", [&] { colls::cuda::exchange(c, x, 0, x, 0, s); });
    std::vector<int> host(100);
    refused("host memory", [&] { colls::cuda::send(c, host, 0, s); });
    std::vector<int> counts(static_cast<std::size_t>(n), 0);
    counts[0] = 100;
    refused(n == 1 ? "leave 1 elements" : "have 1 entries",
        [&] { colls::cuda::all_to_all_v(c, x, y, std::vector<int>{n == 1 ? 99 : 100}, counts, s); });
    refused(
        "negative", [&] { colls::cuda::gather_v(c, x, y, std::vector<int>(static_cast<std::size_t>(n), -1), 0, s); });
    counts[0] = 99;
    refused("leave 1 elements of the buffer over", [&] { colls::cuda::scatter_v(c, x, y, counts, 0, s); });
    refused("root 77 is out of range", [&] { colls::cuda::scatter_v(c, x, y, counts, 77, s); });
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
        for (const auto p :
            {colls::cuda::protocol::automatic, colls::cuda::protocol::eager, colls::cuda::protocol::pulled})
            groups_of_calls(devices, p);
        refusals(devices);
        if (devices > 1) mistakes();
    } catch (const std::exception& e) {
        return std::fprintf(stderr, "%s\n", e.what()), 1;
    }
    std::printf("%s\n", failed == 0 ? "all right" : "something is wrong");
    return failed != 0;
}
