// On two or more devices of one process that have multicast memory (NVLS): the switch's folds of each type and
// operator, and all_reduce by them, against a serial reference: awkward counts and alignments, several chunks, in and
// out of place, memory of a pool, epilogues, calls of other protocols in between, and ranks that make different calls.
// Where devices have none: groups go without, or are refused in words where the options name the protocol. With an
// argument, `with` or `without`: it is an error if the devices have no multicast memory, or have some. With a second:
// the reason that a refused group gives.
#include "multicast.hpp"

#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace {

using multicast_test::contribution, multicast_test::options;

using colls::errc;
using colls::cuda::protocol;
using colls::cuda::detail::check;
namespace detail = colls::cuda::detail;

int failed = 0;
void expect(bool right, const std::string& what) {
    if (!right) ++failed, std::printf("wrong: %s\n", what.c_str());
}

// The switch's folds by themselves.

template <class T, class Op>
__global__ void fold(std::byte* all, std::uint32_t vectors) {
    for (std::uint32_t v = threadIdx.x; v < vectors; v += blockDim.x)
        detail::store_to_all(all + v * 16, detail::load_folded<T, Op>(all + v * 16));
}

template <class T>
float as_number(const T& x) {
    return static_cast<float>(x);
}
template <class T>
bool same(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}
/// Sums of floats in float: exact.
template <class T, class Op>
T folded(const Op& op, std::size_t ranks, std::size_t i) {
    if constexpr (std::is_integral_v<T>) {
        T x = contribution<T>(0, i);
        for (std::size_t r = 1; r < ranks; ++r) x = op(x, contribution<T>(r, i));
        return x;
    } else {
        float x = 0;
        for (std::size_t r = 0; r < ranks; ++r) x += as_number(contribution<T>(r, i));
        return static_cast<T>(x);
    }
}

template <class T, class Op>
void folds(const std::vector<int>& devices, const char* what) {
    constexpr std::size_t count = 96, vectors = count * sizeof(T) / 16;
    detail::multicast_memory memory(devices, count * sizeof(T));
    const auto each = [&](auto&& f) {
        for (std::size_t r = 0; r < devices.size(); ++r) check(cudaSetDevice(devices[r]), "cudaSetDevice"), f(r);
    };
    std::vector<T> host(count);
    each([&](std::size_t r) {
        for (std::size_t i = 0; i < count; ++i) host[i] = contribution<T>(r, i);
        check(cudaMemcpy(memory.of(r), host.data(), count * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    });
    check(cudaSetDevice(devices.back()), "cudaSetDevice");
    fold<T, Op><<<1, 32>>>(memory.all(), vectors);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    each([&](std::size_t r) {
        check(cudaMemcpy(host.data(), memory.of(r), count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
        std::size_t bad = 0;
        for (std::size_t i = 0; i < count; ++i) bad += !same(host[i], folded<T>(Op{}, devices.size(), i));
        expect(bad == 0, std::string("the fold of ") + what);
    });
}

// Calls.

class group {
public:
    group(int n, const colls::cuda::options& o) : streams_(static_cast<std::size_t>(n)) {
        std::vector<int> devices;
        for (int r = 0; r < n; ++r) devices.push_back(r);
        ranks_ = colls::cuda::communicator::of_devices(devices, o);
        for (int r = 0; r < n; ++r) {
            check(cudaSetDevice(r), "cudaSetDevice");
            check(cudaStreamCreateWithFlags(&streams_[static_cast<std::size_t>(r)], cudaStreamNonBlocking),
                "cudaStreamCreateWithFlags");
        }
    }
    group(const group&) = delete;
    ~group() {
        for (const cudaStream_t s : streams_) cudaStreamDestroy(s);
    }
    std::size_t size() const { return ranks_.size(); }
    colls::cuda::communicator& operator[](std::size_t r) { return ranks_[r]; }
    cudaStream_t stream(std::size_t r) const { return streams_[r]; }
    void finish() {
        for (std::size_t r = 0; r < size(); ++r) {
            check(cudaStreamSynchronize(streams_[r]), "cudaStreamSynchronize");
            ranks_[r].check();
        }
    }

private:
    std::vector<colls::cuda::communicator> ranks_;
    std::vector<cudaStream_t> streams_;
};

/// One buffer on a rank's device, with guards around it; `offset`: elements by which it begins after an aligned
/// address.
template <class T>
class buffer {
public:
    buffer(group& g, std::size_t rank, std::size_t count, std::size_t offset, bool of_pool)
        : g_(g), rank_(rank), count_(count), before_(16 + offset), of_pool_(of_pool), host_(before_ + count + 16) {
        std::memset(static_cast<void*>(host_.data()), 0x5a, host_.size() * sizeof(T));
        check(cudaSetDevice(g[rank].device()), "cudaSetDevice");
        void* at = nullptr;
        const std::size_t bytes = host_.size() * sizeof(T);
        check(of_pool ? cudaMallocAsync(&at, bytes, g.stream(rank)) : cudaMalloc(&at, bytes), "cudaMalloc");
        at_ = static_cast<T*>(at);
    }
    buffer(const buffer&) = delete;
    ~buffer() {
        cudaSetDevice(g_[rank_].device());
        of_pool_ ? cudaFreeAsync(at_, g_.stream(rank_)) : cudaFree(at_);
    }
    std::span<T> on_device() const { return {at_ + before_, count_}; }
    T& operator[](std::size_t i) { return host_[before_ + i]; }
    void put() {
        check(cudaMemcpyAsync(at_, host_.data(), host_.size() * sizeof(T), cudaMemcpyHostToDevice, g_.stream(rank_)),
            "cudaMemcpyAsync");
    }
    void get(const std::string& what) {
        check(cudaMemcpyAsync(host_.data(), at_, host_.size() * sizeof(T), cudaMemcpyDeviceToHost, g_.stream(rank_)),
            "cudaMemcpyAsync");
        check(cudaStreamSynchronize(g_.stream(rank_)), "cudaStreamSynchronize");
        const auto* const bytes = reinterpret_cast<const unsigned char*>(host_.data());
        const std::size_t end = (before_ + count_) * sizeof(T);
        std::size_t bad = 0;
        for (std::size_t i = 0; i < host_.size() * sizeof(T); ++i)
            bad += (i < before_ * sizeof(T) || i >= end) && bytes[i] != 0x5a;
        expect(bad == 0, what + ": bytes beside a buffer");
    }

private:
    group& g_;
    std::size_t rank_, count_, before_;
    bool of_pool_;
    std::vector<T> host_;
    T* at_ = nullptr;
};

struct halved {
    __device__ float operator()(float x, std::size_t i) const { return 0.5f * x + static_cast<float>(i % 8); }
};

/// all_reduce of `count` elements; D is another type than T in calls with the epilogue `halved` only.
template <class S = colls::direct, class T, class D = T, class Op>
void reduces(
    group& g, std::size_t count, const Op& op, bool in_place = false, std::size_t offset = 0, bool of_pool = false) {
    constexpr bool converts = !std::is_same_v<T, D>;
    const std::string what = std::to_string(g.size()) + " ranks, " + std::to_string(count) + " elements of " +
                             std::to_string(sizeof(T)) + " bytes";
    std::vector<std::unique_ptr<buffer<T>>> x;
    std::vector<std::unique_ptr<buffer<D>>> y;
    for (std::size_t r = 0; r < g.size(); ++r) {
        x.push_back(std::make_unique<buffer<T>>(g, r, count, offset, of_pool));
        y.push_back(std::make_unique<buffer<D>>(g, r, count, (offset + r) % 5, of_pool));
        for (std::size_t i = 0; i < count; ++i) (*x[r])[i] = contribution<T>(r, i);
        x[r]->put();
        y[r]->put();
    }
    for (std::size_t r = 0; r < g.size(); ++r) {
        if constexpr (converts)
            colls::cuda::all_reduce<S>(g[r], x[r]->on_device(), y[r]->on_device(), op, g.stream(r), halved{});
        else if (in_place)
            colls::cuda::all_reduce<S>(g[r], x[r]->on_device(), op, g.stream(r));
        else
            colls::cuda::all_reduce<S>(g[r], x[r]->on_device(), y[r]->on_device(), op, g.stream(r));
    }
    g.finish();
    const auto wanted = [&](std::size_t i) {
        if constexpr (converts)
            return static_cast<D>(0.5f * as_number(folded<T>(op, g.size(), i)) + static_cast<float>(i % 8));
        else if constexpr (std::is_same_v<Op, colls::avg_t>)
            return static_cast<D>(as_number(folded<T>(op, g.size(), i)) / static_cast<float>(g.size()));
        else
            return folded<T>(op, g.size(), i);
    };
    std::size_t bad = 0, changed = 0;
    for (std::size_t r = 0; r < g.size(); ++r) {
        x[r]->get(what);
        y[r]->get(what);
        for (std::size_t i = 0; i < count; ++i) {
            if constexpr (std::is_same_v<T, D>)
                bad += !same(in_place ? (*x[r])[i] : (*y[r])[i], wanted(i));
            else
                bad += !same((*y[r])[i], wanted(i));
            changed += !in_place && !same((*x[r])[i], contribution<T>(r, i));
        }
    }
    expect(bad == 0, what + ": " + std::to_string(bad) + " wrong results");
    expect(changed == 0, what + ": the input is changed");
}

template <class F>
void throws(errc code, const char* text, const char* what, const F& f) {
    try {
        f();
        expect(false, std::string(what) + ": no error");
    } catch (const colls::error& e) {
        expect(e.code() == code && std::string_view(e.what()).find(text) != std::string_view::npos,
            std::string(what) + ": " + e.what());
    }
}

void with_multicast(int n) {
    std::vector<int> devices;
    for (int d = 0; d < n; ++d) devices.push_back(d);
    folds<float, colls::sum_t>(devices, "float");
    folds<double, colls::sum_t>(devices, "double");
    folds<__half, colls::sum_t>(devices, "__half");
    folds<__nv_bfloat16, colls::sum_t>(devices, "__nv_bfloat16");
    folds<colls::half, colls::sum_t>(devices, "half");
    folds<colls::bfloat16, colls::sum_t>(devices, "bfloat16");
    folds<std::int32_t, colls::sum_t>(devices, "int32");
    folds<std::uint64_t, colls::sum_t>(devices, "uint64");
    folds<std::int32_t, colls::min_t>(devices, "int32, min");
    folds<std::uint32_t, colls::min_t>(devices, "uint32, min");
    folds<std::int64_t, colls::min_t>(devices, "int64, min");
    folds<std::uint64_t, colls::min_t>(devices, "uint64, min");
    folds<std::int32_t, colls::max_t>(devices, "int32, max");
    folds<std::uint32_t, colls::max_t>(devices, "uint32, max");
    folds<std::int64_t, colls::max_t>(devices, "int64, max");
    folds<std::uint64_t, colls::max_t>(devices, "uint64, max");
    folds<std::uint32_t, colls::bit_and_t>(devices, "uint32, and");
    folds<std::uint64_t, colls::bit_or_t>(devices, "uint64, or");
    folds<std::int32_t, colls::bit_xor_t>(devices, "int32, xor");

    for (const protocol p : {protocol::multicast, protocol::automatic}) {
        group g(n, options(p));
        for (std::size_t r = 0; r < g.size(); ++r) expect(g[r].multicast(), "the group has multicast memory");
        const bool all = p == protocol::multicast;
        for (const std::size_t count : {0, 1, 7, 1000, 4'099}) reduces<colls::direct, float>(g, count, colls::sum);
        reduces<colls::direct, float>(g, 999, colls::sum, true, 3);
        reduces<colls::direct, float, __half>(g, 1'003, colls::sum, false, 1);
        reduces<colls::direct, float>(g, 501, colls::sum, false, 0, true);
        if (!all) continue;
        reduces<colls::direct, float>(g, 30'011, colls::sum, true);
        for (const std::size_t count : {3, 30'011})
            reduces<colls::direct, std::int64_t>(g, count, colls::max, false, 1);
        reduces<colls::direct, __half>(g, 2'051, colls::avg, false, 5);
    }
    {
        // In one chunk, whose parts have several vectors for each thread.
        colls::cuda::options o = options(protocol::multicast);
        o.multicast_bytes = 64 << 10;
        o.scratch_bytes = 1 << 16;
        group g(n, o);
        for (const std::size_t count : {20'000, 30'011}) {
            reduces<colls::direct, float>(g, count, colls::sum);
            // A call by a schedule between calls by the switch, which does not have the operator.
            reduces<colls::ring, std::int64_t>(g, 1'000, colls::prod);
        }
    }
    {
        group g(n, options(protocol::multicast));
        std::vector<std::unique_ptr<buffer<float>>> x;
        for (std::size_t r = 0; r < g.size(); ++r)
            x.push_back(std::make_unique<buffer<float>>(g, r, 1'001, 0, false)), x[r]->put();
        for (std::size_t r = 0; r < g.size(); ++r)
            colls::cuda::all_reduce(g[r], x[r]->on_device().first(r == 1 ? 1'001 : 1'000), colls::sum, g.stream(r));
        int mismatches = 0;
        for (std::size_t r = 0; r < g.size(); ++r) {
            check(cudaStreamSynchronize(g.stream(r)), "cudaStreamSynchronize");
            try {
                g[r].check();
                expect(false, "a rank that has not seen that counts differ");
            } catch (const colls::error& e) {
                mismatches += e.code() == errc::mismatch;
            }
        }
        expect(mismatches > 0, "no rank has said that counts differ");
    }
}

void without_multicast(int n, const char* reason) {
    {
        colls::cuda::options o = options(protocol::automatic);
        o.scratch_bytes = 1 << 16;
        group g(n, o);
        for (std::size_t r = 0; r < g.size(); ++r) expect(!g[r].multicast(), "the group has no multicast memory");
        reduces<colls::direct, float>(g, 4'099, colls::sum);
        reduces<colls::direct, float, __half>(g, 1'003, colls::sum, false, 1);
    }
    const std::string why =
        std::string("options.protocol is multicast, and the group has no multicast memory: ") + reason;
    throws(errc::unsupported, why.c_str(), "a protocol that the devices do not have",
        [&] { group(n, options(protocol::multicast)); });
}

/// Where groups cannot have it, whatever the devices.
void elsewhere(int n) {
    throws(errc::unsupported, "only groups of several devices have it", "virtual ranks by the switch",
        [] { colls::cuda::virtual_ranks(2, options(protocol::multicast)); });
    colls::cuda::options o = options(protocol::multicast);
    o.through_host = true;
    throws(errc::unsupported, "through host memory", "the switch, and data through the host", [&] { group(n, o); });
    o.protocol = protocol::automatic;
    expect(!group(n, o)[0].multicast(), "data through the host");
    group one(1, options(protocol::multicast));
    expect(!one[0].multicast(), "a group of one rank");
    colls::cuda::options never = options(protocol::automatic);
    never.multicast = false;
    expect(!group(n, never)[0].multicast(), "multicast memory that was not asked for");
}

}  // namespace

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2)
        return std::printf("left out: there are less than two GPUs\n"), 77;
    try {
        const int n = std::min(devices, 8);
        const bool has = group(n, options(protocol::automatic))[0].multicast();
        if (argc > 1) expect(has == (std::string_view(argv[1]) == "with"), "which devices have multicast memory");
        has ? with_multicast(n) : without_multicast(n, argc > 2 ? argv[2] : "");
        elsewhere(n);
        std::printf(
            "%d devices %s multicast memory: %s\n", n, has ? "with" : "without", failed == 0 ? "right" : "wrong");
        return failed == 0 ? 0 : 1;
    } catch (const colls::error& e) {
        return std::printf("%s\n", e.what()), 1;
    }
}
