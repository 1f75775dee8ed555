// On two or more devices of one process: collectives and messages between them, on memory that the devices reach and on
// memory that they do not (of a pool, of cuMemCreate), on some ranks or all; more counts of blocks than tables; what is
// refused.
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace {

using colls::errc;
using colls::cuda::detail::check, colls::cuda::detail::call_driver, colls::cuda::detail::try_driver;
int failed = 0;

void expect(bool right, const char* what, const char* text = "") {
    if (!right) ++failed, std::printf("wrong: %s: %s\n", what, text);
}

/// Memory of cuMemCreate to which its device alone has access, as PyTorch's expandable segments are.
class mapped_memory {
public:
    mapped_memory(int device, std::size_t bytes) {
        CUmemAllocationProp p{};
        p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        p.location.id = device;
        std::size_t granule = 0;
        call_driver("cuMemGetAllocationGranularity", &granule, const_cast<const CUmemAllocationProp*>(&p),
            CU_MEM_ALLOC_GRANULARITY_MINIMUM);
        bytes_ = (bytes + granule - 1) / granule * granule;
        call_driver("cuMemCreate", &memory_, bytes_, const_cast<const CUmemAllocationProp*>(&p), 0ull);
        call_driver("cuMemAddressReserve", &at_, bytes_, granule, CUdeviceptr{0}, 0ull);
        call_driver("cuMemMap", at_, bytes_, std::size_t{0}, memory_, 0ull);
        const CUmemAccessDesc access{p.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        call_driver("cuMemSetAccess", at_, bytes_, &access, std::size_t{1});
    }
    mapped_memory(const mapped_memory&) = delete;
    ~mapped_memory() {
        try_driver("cuMemUnmap", at_, bytes_);
        try_driver("cuMemAddressFree", at_, bytes_);
        try_driver("cuMemRelease", memory_);
    }
    void* data() const { return reinterpret_cast<void*>(at_); }

private:
    std::size_t bytes_ = 0;
    CUmemGenericAllocationHandle memory_ = 0;
    CUdeviceptr at_ = 0;
};

/// Memory of cudaMalloc, of the device's pool, of cuMemCreate.
enum class kind { plain, pool, mapped };
kind plain(std::size_t) { return kind::plain; }
kind of_pool(std::size_t) { return kind::pool; }
kind of_pool_on_odd_ranks(std::size_t r) { return r % 2 == 1 ? kind::pool : kind::plain; }

/// One buffer of floats on a device, with guards around it.
class buffer {
public:
    buffer(int device, std::size_t count, kind k, cudaStream_t stream)
        : device_(device), kind_(k), stream_(stream), host_(count + 2 * guard, -1.0f) {
        check(cudaSetDevice(device), "cudaSetDevice");
        void* at = nullptr;
        const std::size_t bytes = host_.size() * sizeof(float);
        if (k == kind::plain) check(cudaMalloc(&at, bytes), "cudaMalloc");
        if (k == kind::pool) check(cudaMallocAsync(&at, bytes, stream), "cudaMallocAsync");
        if (k == kind::mapped) at = mapped_.emplace(device, bytes).data();
        at_ = static_cast<float*>(at);
    }
    buffer(const buffer&) = delete;
    ~buffer() {
        cudaSetDevice(device_);
        if (kind_ == kind::plain) cudaFree(at_);
        if (kind_ == kind::pool) cudaFreeAsync(at_, stream_);
    }
    std::span<float> on_device() const { return {at_ + guard, host_.size() - 2 * guard}; }
    /// On the host: what `put` copies to the device, and what `get` has copied from there.
    std::span<float> on_host() { return std::span<float>(host_).subspan(guard, host_.size() - 2 * guard); }
    void put() {
        check(cudaMemcpyAsync(at_, host_.data(), host_.size() * sizeof(float), cudaMemcpyHostToDevice, stream_),
            "cudaMemcpyAsync");
    }
    void get() {
        check(cudaMemcpyAsync(host_.data(), at_, host_.size() * sizeof(float), cudaMemcpyDeviceToHost, stream_),
            "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        for (std::size_t i = 0; i < guard; ++i)
            expect(host_[i] == -1 && host_[host_.size() - 1 - i] == -1, "memory beside a buffer");
    }

private:
    static constexpr std::size_t guard = 5;
    int device_;
    kind kind_;
    cudaStream_t stream_;
    std::vector<float> host_;
    std::optional<mapped_memory> mapped_;
    float* at_ = nullptr;
};

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

float input(std::size_t rank, std::size_t i) { return static_cast<float>((i * 7 + rank * 13) % 50); }

using kind_of_rank = kind(std::size_t rank);

/// Buffers of all ranks.
std::vector<std::unique_ptr<buffer>> buffers(group& g, std::size_t count, kind_of_rank kind_of) {
    std::vector<std::unique_ptr<buffer>> all;
    for (std::size_t r = 0; r < g.size(); ++r) {
        all.push_back(std::make_unique<buffer>(g[r].device(), count, kind_of(r), g.stream(r)));
        for (std::size_t i = 0; i < count; ++i) all[r]->on_host()[i] = input(r, i);
        all[r]->put();
    }
    return all;
}

struct halved {
    __device__ float operator()(float x, std::size_t) const { return 0.5f * x; }
};

/// all_reduce in place and out of place, reduce_scatter and all_gather in place, an exclusive scan, calls with a root;
/// several calls and messages at once.
void collectives(group& g, std::size_t count, const char* what, kind_of_rank kind_of) {
    const std::size_t n = g.size();
    const auto sum = [&](std::size_t end, std::size_t i) {
        float all = 0;
        for (std::size_t r = 0; r < end; ++r) all += input(r, i);
        return all;
    };
    const auto each = [&](auto&& f) {
        for (std::size_t r = 0; r < n; ++r) f(r);
        g.finish();
    };
    const auto verify = [&](auto& all, const char* which, auto&& wanted) {
        std::size_t bad = 0;
        for (std::size_t r = 0; r < n; ++r) {
            all[r]->get();
            for (std::size_t i = 0; i < all[r]->on_host().size(); ++i) bad += all[r]->on_host()[i] != wanted(r, i);
        }
        expect(bad == 0, what, which);
    };
    const auto block = [&](std::size_t r) { return colls::cuda::detail::balanced(count, n, r); };
    {
        auto x = buffers(g, count, kind_of);
        each([&](std::size_t r) {
            colls::cuda::all_reduce<colls::ring>(g[r], x[r]->on_device(), colls::sum, g.stream(r));
        });
        verify(x, "all_reduce in place", [&](std::size_t, std::size_t i) { return sum(n, i); });
    }
    {
        // One buffer is of any kind.
        auto x = buffers(g, count, plain), y = buffers(g, count, kind_of), z = buffers(g, count, plain);
        each([&](std::size_t r) {
            colls::cuda::all_reduce<colls::ring>(g[r], x[r]->on_device(), y[r]->on_device(), colls::sum, g.stream(r));
        });
        verify(x, "the input of all_reduce", input);
        verify(y, "all_reduce", [&](std::size_t, std::size_t i) { return sum(n, i); });
        each([&](std::size_t r) {
            colls::cuda::all_reduce(g[r], y[r]->on_device(), z[r]->on_device(), colls::sum, g.stream(r), halved{});
        });
        verify(z, "all_reduce with an epilogue",
            [&](std::size_t, std::size_t i) { return 0.5f * static_cast<float>(n) * sum(n, i); });
    }
    {
        auto x = buffers(g, count, kind_of), y = buffers(g, count, kind_of);
        each([&](std::size_t r) {
            colls::cuda::reduce(g[r], x[r]->on_device(), y[r]->on_device(), colls::sum, 1, g.stream(r));
            colls::cuda::broadcast(g[r], y[r]->on_device(), 1, g.stream(r));
        });
        verify(y, "reduce and broadcast", [&](std::size_t, std::size_t i) { return sum(n, i); });
    }
    {
        auto x = buffers(g, count, kind_of), y = buffers(g, count, plain), z = buffers(g, count, kind_of);
        each([&](std::size_t r) {
            auto all = colls::cuda::begin(g[r]);
            colls::cuda::all_reduce<colls::ring>(g[r], x[r]->on_device(), y[r]->on_device(), colls::sum, g.stream(r));
            colls::cuda::all_reduce<colls::ring>(g[r], z[r]->on_device(), colls::sum, g.stream(r));
            all.end();
        });
        verify(y, "the first of two calls", [&](std::size_t, std::size_t i) { return sum(n, i); });
        verify(z, "the second of two calls", [&](std::size_t, std::size_t i) { return sum(n, i); });
        each([&](std::size_t r) {
            const int me = static_cast<int>(r), all = static_cast<int>(n);
            colls::cuda::exchange(
                g[r], x[r]->on_device(), (me + 1) % all, z[r]->on_device(), (me + all - 1) % all, g.stream(r));
        });
        verify(z, "a message", [&](std::size_t r, std::size_t i) { return input((r + n - 1) % n, i); });
    }
    {
        auto x = buffers(g, count, kind_of);
        const auto own = [&](std::size_t r) { return x[r]->on_device().subspan(block(r).first, block(r).count); };
        each([&](std::size_t r) {
            colls::cuda::reduce_scatter(g[r], x[r]->on_device(), own(r), colls::sum, g.stream(r));
        });
        each([&](std::size_t r) { colls::cuda::all_gather(g[r], own(r), x[r]->on_device(), g.stream(r)); });
        verify(x, "reduce_scatter and all_gather in place", [&](std::size_t, std::size_t i) { return sum(n, i); });
    }
    {
        auto x = buffers(g, count, kind_of), y = buffers(g, count, kind_of);
        each([&](std::size_t r) {
            colls::cuda::exclusive_scan(g[r], x[r]->on_device(), y[r]->on_device(), colls::sum, g.stream(r));
        });
        verify(y, "exclusive_scan", [&](std::size_t r, std::size_t i) { return r == 0 ? input(0, i) : sum(r, i); });
    }
    std::printf("%zu devices, %zu elements, %s: %s\n", n, count, what, failed == 0 ? "right" : "wrong");
}

/// all_gather_v with other counts in each call.
void changing_counts(group& g) {
    const std::size_t n = g.size(), most = 40;
    auto x = buffers(g, most, plain);
    auto y = buffers(g, n * most, plain);
    for (std::size_t call = 0; call < 40; ++call) {
        std::vector<std::size_t> counts;
        std::size_t all = 0;
        for (std::size_t r = 0; r < n; ++r) all += counts.emplace_back((call * (r + 3)) % most);
        for (std::size_t r = 0; r < n; ++r)
            colls::cuda::all_gather_v(
                g[r], x[r]->on_device().first(counts[r]), y[r]->on_device().first(all), counts, g.stream(r));
        g.finish();
        std::size_t bad = 0;
        for (std::size_t r = 0; r < n; ++r) {
            y[r]->get();
            std::size_t at = 0;
            for (std::size_t from = 0; from < n; ++from)
                for (std::size_t i = 0; i < counts[from]; ++i) bad += y[r]->on_host()[at++] != input(from, i);
        }
        expect(bad == 0, "counts that change with each call");
    }
}

template <class F>
void expect_error(errc code, const char* what, const char* part, const F& f) {
    try {
        f();
        expect(false, what, "no error");
    } catch (const colls::error& e) {
        expect(e.code() == code && std::strstr(e.what(), part) != nullptr, what, e.what());
    }
}

void refusals(int n) {
    {
        group g(n, {.channels = 2, .small_bytes = 0, .middle_bytes = 0, .scratch_bytes = 128});
        auto x = buffers(g, 2000, of_pool);
        expect_error(errc::unsupported, "scratch memory without room for a slot", "options.scratch_bytes has no room",
            [&] { colls::cuda::all_reduce<colls::ring>(g[0], x[0]->on_device(), colls::sum, g.stream(0)); });
    }
    group g(n, {.channels = 2, .small_bytes = 0, .middle_bytes = 0, .table_bytes = 64});
    auto x = buffers(g, 2000, plain);
    expect_error(errc::unsupported, "tables that do not fit", "options.table_bytes, 64",
        [&] { colls::cuda::all_reduce<colls::ring>(g[0], x[0]->on_device(), colls::sum, g.stream(0)); });
}

/// Two groups where all streams of a device share a queue (CUDA_DEVICE_MAX_CONNECTIONS=1): refused on two streams at a
/// time, not on one, nor one after the other.
int one_queue(int n) {
    const colls::cuda::options o{.channels = 2, .scratch_bytes = 64 << 10};
    group a(n, o), b(n, o);
    auto x = buffers(a, 50, plain), y = buffers(b, 50, plain);
    const auto call = [&](group& g, auto& data, std::size_t r, cudaStream_t stream) {
        colls::cuda::all_reduce(g[r], data[r]->on_device(), colls::sum, stream);
    };
    call(a, x, 0, a.stream(0));
    expect_error(errc::unsupported, "two groups on two streams of one queue", "CUDA_DEVICE_MAX_CONNECTIONS is 1",
        [&] { call(b, y, 0, b.stream(0)); });
    call(b, y, 0, a.stream(0));
    for (std::size_t r = 1; r < a.size(); ++r) call(a, x, r, a.stream(r)), call(b, y, r, a.stream(r));
    a.finish();
    for (std::size_t r = 0; r < b.size(); ++r) call(b, y, r, b.stream(r));
    b.finish();
    std::printf("one queue: %s\n", failed == 0 ? "right" : "wrong");
    return failed == 0 ? 0 : 1;
}

/// Three groups of which the devices hold two at a time.
void residency(int n) {
    const int channels = colls::cuda::detail::multiprocessors(0) / 2;
    const colls::cuda::options o{.channels = channels, .small_bytes = 0, .middle_bytes = 0, .scratch_bytes = 64 << 10};
    const std::size_t count = static_cast<std::size_t>(channels) * (16 << 10) / sizeof(float);
    group a(n, o), b(n, o), c(n, o);
    group d(n, {.channels = channels + 1, .small_bytes = 0, .middle_bytes = 0, .scratch_bytes = 64 << 10});
    auto x = buffers(a, count, plain), y = buffers(b, count, plain), z = buffers(c, count, plain);
    auto few = buffers(d, 1, plain), many = buffers(d, 2 * count, plain);
    const auto call = [&](group& g, auto& data, std::size_t r) {
        colls::cuda::all_reduce<colls::ring>(g[r], data[r]->on_device(), colls::sum, g.stream(r));
    };
    call(a, x, 0);
    // A group of two launches, of which the first one would fit: none is made, or later calls would not match.
    expect_error(errc::unsupported, "a group of calls that does not fit", "so that they fit the device together", [&] {
        auto together = colls::cuda::begin(d[0]);
        colls::cuda::all_reduce<colls::ring>(d[0], few[0]->on_device(), colls::sum, d.stream(0));
        colls::cuda::all_reduce<colls::ring>(d[0], many[0]->on_device(), colls::sum, d.stream(0));
        together.end();
    });
    for (std::size_t r = 1; r < a.size(); ++r) call(a, x, r);
    a.finish();
    for (std::size_t r = 0; r < d.size(); ++r) call(d, many, r);
    d.finish();
    call(a, x, 0);
    call(b, y, 0);
    expect_error(
        errc::unsupported, "a third group at the same time", "also has calls of other groups", [&] { call(c, z, 0); });
    for (std::size_t r = 1; r < a.size(); ++r) call(b, y, r), call(a, x, r);
    a.finish();
    b.finish();
    for (std::size_t r = 0; r < c.size(); ++r) call(c, z, r);
    c.finish();
    z[0]->get();
    float sum = 0;
    for (std::size_t r = 0; r < c.size(); ++r) sum += input(r, 7);
    expect(z[0]->on_host()[7] == sum, "the third group afterwards");
    std::printf("blocks of several groups: %s\n", failed == 0 ? "right" : "wrong");
}

/// The groups of a program that trains in three dimensions: each of four devices is in a tensor, a pipeline and a data
/// group, with the default options. Tensor and pipeline calls share a stream; those of data have their own. Devices
/// make the calls of the two streams in different orders, none waits in between, and all must run.
void three_dimensions() {
    using colls::cuda::communicator;
    constexpr int devices = 4, rounds = 6;
    constexpr std::size_t count = 40'000;  // by schedules, on all channels
    struct kind_of_groups {
        int pairs[2][2];
    };
    constexpr kind_of_groups kinds[] = {{{{0, 1}, {2, 3}}}, {{{0, 3}, {1, 2}}}, {{{0, 2}, {1, 3}}}};
    colls::cuda::options o{.small_bytes = 0, .middle_bytes = 0};
    std::vector<communicator> groups;  // [kind][device], in the order in which they are made
    std::vector<int> of(3 * devices);
    for (int k = 0; k < 3; ++k)
        for (const auto& pair : kinds[k].pairs) {
            of[static_cast<std::size_t>(k * devices + pair[0])] = static_cast<int>(groups.size());
            of[static_cast<std::size_t>(k * devices + pair[1])] = static_cast<int>(groups.size()) + 1;
            for (communicator& c : communicator::of_devices({pair[0], pair[1]}, o)) groups.push_back(std::move(c));
        }
    cudaStream_t streams[devices][2];
    std::vector<std::unique_ptr<buffer>> x, y;  // of the two streams
    for (int d = 0; d < devices; ++d) {
        check(cudaSetDevice(d), "cudaSetDevice");
        for (cudaStream_t& s : streams[d]) check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "a stream");
        for (auto* all : {&x, &y}) {
            all->push_back(std::make_unique<buffer>(d, count, kind::plain, streams[d][all == &y]));
            for (std::size_t i = 0; i < count; ++i) all->back()->on_host()[i] = static_cast<float>(i % 3 + 1) * (d + 1);
            all->back()->put();
        }
    }
    const auto call = [&](int kind_number, int d) {
        const bool is_data = kind_number == 2;
        auto& data = (is_data ? y : x)[static_cast<std::size_t>(d)];
        communicator& c = groups[static_cast<std::size_t>(of[static_cast<std::size_t>(kind_number * devices + d)])];
        colls::cuda::all_reduce(c, data->on_device(), colls::max, streams[d][is_data]);
    };
    for (int i = 0; i < rounds; ++i)
        for (int d = 0; d < devices; ++d) {
            if (d % 2 == 0) call(2, d);
            call(0, d);
            call(1, d);
            if (d % 2 == 1) call(2, d);
        }
    std::size_t bad = 0;
    for (int d = 0; d < devices; ++d) {
        auto &mine = x[static_cast<std::size_t>(d)], &data = y[static_cast<std::size_t>(d)];
        mine->get(), data->get();
        for (std::size_t i = 0; i < count; ++i) {
            const auto unit = static_cast<float>(i % 3 + 1);
            bad += mine->on_host()[i] != 4 * unit;  // by pairs and then across them: of all devices
            bad += data->on_host()[i] != (d % 2 == 0 ? 3 : 4) * unit;
        }
    }
    for (const communicator& c : groups) c.check();
    expect(bad == 0, "tensor, pipeline and data groups on two streams");
    x.clear(), y.clear();
    for (auto& each : streams)
        for (const cudaStream_t s : each) cudaStreamDestroy(s);
    std::printf("six groups on two streams: %s\n", failed == 0 ? "right" : "wrong");
}

int run(int n) {
    using colls::cuda::detail::is_of_cuda_malloc;
    {
        // A buffer is several times as large as all scratch memory of a rank.
        group g(n, {.channels = 2, .small_bytes = 64, .middle_bytes = 0, .scratch_bytes = 8 << 10});
        const auto pool = buffers(g, 8, of_pool), usual = buffers(g, 8, plain);
        expect(is_of_cuda_malloc(usual[0]->on_device().data()), "memory of cudaMalloc");
        expect(!is_of_cuda_malloc(pool[0]->on_device().data()), "memory of a pool");
        for (const std::size_t count : {std::size_t{3}, std::size_t{10'007}}) {
            collectives(g, count, "memory of cudaMalloc", plain);
            collectives(g, count, "memory of a pool", of_pool);
            collectives(g, count, "memory of a pool on some ranks", of_pool_on_odd_ranks);
        }
        collectives(g, 5'003, "memory of cuMemCreate on a rank",
            [](std::size_t r) { return r == 1 ? kind::mapped : kind::plain; });
        changing_counts(g);
    }
    {
        group g(n, {.channels = 2, .small_bytes = 64, .scratch_bytes = 32 << 10});
        collectives(g, 1'003, "memory of a pool, by packets", of_pool_on_odd_ranks);
    }
    {
        group g(n, {.channels = 2, .small_bytes = 64, .middle_bytes = 0, .chunk_bytes = 4096, .through_host = true});
        expect(g[0].through_host(), "a group through host memory");
        for (const std::size_t count : {std::size_t{3}, std::size_t{10'007}})
            collectives(g, count, "through host memory", of_pool_on_odd_ranks);
        changing_counts(g);
        const auto x = buffers(g, 50, plain);
        g[1].abort("enough");
        colls::cuda::all_reduce<colls::ring>(g[0], x[0]->on_device(), colls::sum, g.stream(0));
        expect_error(errc::peer_failed, "abort through host memory", "rank 1 aborted: enough", [&] {
            check(cudaStreamSynchronize(g.stream(0)), "cudaStreamSynchronize");
            g[0].check();
        });
    }
    refusals(n);
    residency(n);
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    if (devices >= 4) three_dimensions();
    return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const bool of_queues = argc > 1 && std::strcmp(argv[1], "one_queue") == 0;
    if (of_queues) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2)
        return std::printf("left out: there are not two GPUs\n"), 77;
    try {
        return of_queues ? one_queue(std::min(devices, 3)) : run(std::min(devices, 3));
    } catch (const colls::error& e) {
        return std::printf("%s\n", e.what()), 1;
    }
}
