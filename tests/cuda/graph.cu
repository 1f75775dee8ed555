// On a GPU: calls captured into a graph and replayed 10,000 times; two groups on two streams at the same time; small
// floats; bad arguments. With an argument: that many replays.
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

namespace {

using colls::cuda::detail::check;
constexpr int n = 4;
int failed = 0;

void expect(bool right, const char* what) {
    if (!right) ++failed, std::printf("wrong: %s\n", what);
}
template <class F>
void expect_error(colls::errc code, const char* what, const F& f) {
    try {
        f();
        expect(false, what);
    } catch (const colls::error& e) {
        expect(e.code() == code, what);
        std::printf("%s: %s\n", what, e.what());
    }
}

/// A buffer of T for each rank, in device memory, and a copy of all of them on the host.
template <class T = float>
struct data {
    explicit data(std::size_t count) : count_of_rank(count), host(n * count) {
        check(cudaMalloc(&all, n * count * sizeof(T)), "cudaMalloc");
        for (std::size_t r = 0; r < n; ++r) each.emplace_back(all + r * count, count);
    }
    data(const data&) = delete;
    ~data() { cudaFree(all); }
    /// On the host.
    T& at(std::size_t rank, std::size_t i) { return host[rank * count_of_rank + i]; }
    void to_device() { check(cudaMemcpy(all, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "copy"); }
    void to_host() { check(cudaMemcpy(host.data(), all, host.size() * sizeof(T), cudaMemcpyDeviceToHost), "copy"); }
    std::size_t count_of_rank;
    T* all = nullptr;
    std::vector<std::span<T>> each;
    std::vector<T> host;
};

/// Replays an all_reduce that averages in place: the first replay makes all ranks equal, the others change nothing.
void replay(int times, std::size_t count) {
    colls::cuda::virtual_ranks ranks(n, {.channels = 8});
    data<> d(count);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t program = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    colls::cuda::all_reduce<colls::ring>(ranks, d.each, colls::avg, stream);
    colls::cuda::barrier(ranks, stream);
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&program, graph, 0), "cudaGraphInstantiate");
    for (std::size_t r = 0; r < n; ++r)
        for (std::size_t i = 0; i < count; ++i) d.at(r, i) = static_cast<float>(4 * (i % 64) + 8 * r);
    d.to_device();
    for (int i = 0; i < times; ++i) check(cudaGraphLaunch(program, stream), "cudaGraphLaunch");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    ranks.check();
    d.to_host();
    std::size_t bad = 0;
    for (std::size_t r = 0; r < n; ++r)
        for (std::size_t i = 0; i < count; ++i) bad += d.at(r, i) != static_cast<float>(4 * (i % 64) + 12);
    expect(bad == 0, "replays of a graph");
    std::printf("%d replays, %zu elements: %s\n", times, count, bad == 0 ? "right" : "wrong");
    cudaGraphExecDestroy(program);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}

void two_streams() {
    colls::cuda::virtual_ranks a(2, {.channels = 16}), b(2, {.channels = 16});
    data<> x(100'000), y(100'000);
    const std::vector<std::span<float>> in_a(x.each.begin(), x.each.begin() + 2),
        in_b(y.each.begin(), y.each.begin() + 2);
    std::fill(x.host.begin(), x.host.end(), 1.0f);
    std::fill(y.host.begin(), y.host.end(), 3.0f);
    x.to_device();
    y.to_device();
    cudaStream_t s = nullptr, t = nullptr;
    check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (int i = 0; i < 10; ++i) {
        colls::cuda::all_reduce<colls::ring>(a, in_a, colls::sum, s);
        colls::cuda::all_reduce<colls::ring>(b, in_b, colls::sum, t);
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    a.check();
    b.check();
    x.to_host();
    y.to_host();
    expect(x.host[0] == 1024 && x.host[199'999] == 1024 && y.host[0] == 3072 && y.host[199'999] == 3072,
        "two groups on two streams");
    cudaStreamDestroy(s);
    cudaStreamDestroy(t);
}

/// Sums of zeros and ones, which all types hold exactly.
template <class T>
void small_floats(const char* name) {
    colls::cuda::virtual_ranks ranks(n);
    for (const std::size_t count : {std::size_t{5}, std::size_t{100'003}}) {
        data<T> d(count);
        for (std::size_t r = 0; r < n; ++r)
            for (std::size_t i = 0; i < count; ++i) d.at(r, i) = T(static_cast<float>((i / (r + 1)) % 2));
        d.to_device();
        colls::cuda::all_reduce<colls::ring>(ranks, d.each, colls::sum, cudaStream_t{});
        d.to_host();
        ranks.check();
        std::size_t bad = 0;
        for (std::size_t i = 0; i < count; ++i) {
            float sum = 0;
            for (std::size_t r = 0; r < n; ++r) sum += static_cast<float>((i / (r + 1)) % 2);
            for (std::size_t r = 0; r < n; ++r) bad += static_cast<float>(d.at(r, i)) != sum;
        }
        expect(bad == 0, name);
    }
}

void bad_arguments() {
    using colls::errc;
    colls::cuda::virtual_ranks ranks(2);
    std::vector<float> host(64);
    data<> d(64);
    const std::vector<std::span<float>> on_host = {std::span<float>(host), std::span<float>(host)},
                                        right = {d.each[0], d.each[1]}, uneven = {d.each[0], d.each[1].first(32)},
                                        one = {d.each[0]};
    expect_error(errc::invalid_argument, "host memory",
        [&] { colls::cuda::all_reduce(ranks, on_host, colls::sum, cudaStream_t{}); });
    expect_error(errc::invalid_argument, "buffers of two sizes",
        [&] { colls::cuda::all_reduce(ranks, uneven, colls::sum, cudaStream_t{}); });
    expect_error(errc::invalid_argument, "too few buffers",
        [&] { colls::cuda::all_reduce(ranks, one, colls::sum, cudaStream_t{}); });
    expect_error(
        errc::invalid_argument, "no such root", [&] { colls::cuda::broadcast(ranks, right, 2, cudaStream_t{}); });
    expect_error(
        errc::unsupported, "more ranks than fit", [&] { colls::cuda::virtual_ranks(8, {.channels = 10'000}); });
    const std::vector<std::span<float>> shifted = {std::span<float>(d.all + 1, 63), std::span<float>(d.all + 65, 63)},
                                        plain = {d.each[0].first(63), d.each[1].first(63)};
    expect_error(errc::invalid_argument, "an output that overlaps the input",
        [&] { colls::cuda::all_reduce(ranks, plain, shifted, colls::sum, cudaStream_t{}); });
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    expect_error(
        errc::unsupported, "a device that is not there", [&] { colls::cuda::communicator::of_devices({0, devices}); });
    expect_error(errc::invalid_argument, "a device twice", [&] { colls::cuda::communicator::of_devices({0, 0}); });
    if (devices < 2) {
        std::printf("left out: a stream of another device (there is one)\n");
        return;
    }
    check(cudaSetDevice(1), "cudaSetDevice");
    cudaStream_t elsewhere = nullptr;
    check(cudaStreamCreate(&elsewhere), "cudaStreamCreate");
    check(cudaSetDevice(0), "cudaSetDevice");
    expect_error(errc::invalid_argument, "a stream of another device",
        [&] { colls::cuda::all_reduce(ranks, right, colls::sum, elsewhere); });
    cudaStreamDestroy(elsewhere);
}

}  // namespace

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    const int times = argc > 1 ? std::atoi(argv[1]) : 10'000;
    try {
        replay(times, 4);
        replay(times, 100'000);
        two_streams();
        small_floats<__half>("half");
        small_floats<__nv_bfloat16>("bfloat16");
        small_floats<__nv_fp8_e4m3>("fp8 e4m3");
        small_floats<__nv_fp8_e5m2>("fp8 e5m2");
        bad_arguments();
    } catch (const colls::error& e) {
        return std::printf("%s\n", e.what()), 1;
    }
    return failed == 0 ? 0 : 1;
}
