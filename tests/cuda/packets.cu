// On a GPU: eager calls, which move packets of data and flag, on 1 to 8 virtual ranks, against a serial reference.
// Counts change from call to call, so that words of earlier calls lie where packets arrive; in one of two groups there
// is so little room that an all_reduce takes two hops. Where there are several devices, also with a rank on each. With
// an argument: of that many ranks only, on devices where there are several; with a second: of no more than that many
// elements.
#include <colls/transports/cuda.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

namespace {

using colls::cuda::protocol;
using colls::cuda::detail::check;

static_assert(protocol::packets == protocol::eager);

constexpr std::size_t most = 40'003;  // elements of a buffer

/// Maps x -> a x + b modulo 2^16: composing them does not commute.
struct compose_maps {
    __host__ __device__ std::uint32_t operator()(std::uint32_t x, std::uint32_t y) const {
        return (x >> 16) * (y >> 16) << 16 | (((x >> 16) * (y & 0xffffu) + (x & 0xffffu)) & 0xffffu);
    }
};
struct halved {
    __device__ float operator()(float x, std::size_t i) const { return 0.5f * x + static_cast<float>(i % 8); }
};

/// One buffer a rank, in device memory, with a copy on the host.
template <class T>
class buffers {
public:
    explicit buffers(int n) : n_(static_cast<std::size_t>(n)), host_(n_ * most) {
        check(cudaMalloc(&all_, host_.size() * sizeof(T)), "cudaMalloc");
    }
    buffers(const buffers&) = delete;
    ~buffers() { cudaFree(all_); }
    std::size_t size() const { return n_; }
    T& at(std::size_t r, std::size_t i) { return host_[r * most + i]; }
    /// `count` elements of each rank, from `offset` on.
    std::vector<std::span<T>> each(std::size_t offset, std::size_t count) const {
        std::vector<std::span<T>> b;
        for (std::size_t r = 0; r < n_; ++r) b.emplace_back(all_ + r * most + offset, count);
        return b;
    }
    void to_device() {
        check(cudaMemcpy(all_, host_.data(), host_.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    void to_host() {
        check(cudaMemcpy(host_.data(), all_, host_.size() * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    }

private:
    std::size_t n_;
    std::vector<T> host_;
    T* all_ = nullptr;
};

int wrong = 0, calls = 0;
void expect(bool right, const char* what, int n, std::size_t count) {
    ++calls;
    if (right) return;
    ++wrong;
    std::printf("wrong: %s, %d ranks, %zu elements\n", what, n, count);
}

/// Sums of floats of very different size, in the order of ranks, which shows in their bits.
void sums(colls::cuda::virtual_ranks& g, std::size_t count, std::size_t offset) {
    const int n = g.size();
    buffers<float> in(n), out(n);
    for (std::size_t r = 0; r < in.size(); ++r)
        for (std::size_t i = 0; i < most; ++i) {
            const auto x = static_cast<std::uint32_t>((i + 1) * 2654435761u + r * 40503u + 17u * count);
            in.at(r, i) = static_cast<float>(x % 2048) * static_cast<float>(1u << (x >> 11) % 24);
            out.at(r, i) = -7;
        }
    in.to_device(), out.to_device();
    colls::cuda::all_reduce(g, in.each(offset, count), out.each(3 - offset, count), colls::sum, cudaStream_t{});
    out.to_host();
    g.check();
    bool right = true;
    for (std::size_t r = 0; r < in.size(); ++r)
        for (std::size_t i = 0; i < most; ++i) {
            float sum = -7;
            if (i >= 3 - offset && i < 3 - offset + count) {
                sum = in.at(0, i - 3 + 2 * offset);
                for (std::size_t q = 1; q < in.size(); ++q) sum += in.at(q, i - 3 + 2 * offset);
            }
            right = right && out.at(r, i) == sum;
        }
    expect(right, "all_reduce", n, count);
}

/// In place, by an operator that does not commute.
void scan(colls::cuda::virtual_ranks& g, std::size_t count) {
    const int n = g.size();
    buffers<std::uint32_t> x(n);
    const auto input = [](std::size_t r, std::size_t i) {
        return static_cast<std::uint32_t>((i + 3) * 2654435761u ^ r * 40503u) | 1u << 16;
    };
    for (std::size_t r = 0; r < x.size(); ++r)
        for (std::size_t i = 0; i < most; ++i) x.at(r, i) = input(r, i);
    x.to_device();
    colls::cuda::inclusive_scan(g, x.each(1, count), x.each(1, count), compose_maps{}, cudaStream_t{});
    x.to_host();
    g.check();
    bool right = true;
    for (std::size_t i = 0; i < most; ++i) {
        std::uint32_t all = 0;
        for (std::size_t r = 0; r < x.size(); ++r) {
            all = r == 0 ? input(r, i) : compose_maps{}(all, input(r, i));
            right = right && x.at(r, i) == (i >= 1 && i < 1 + count ? all : input(r, i));
        }
    }
    expect(right, "inclusive_scan in place", n, count);
}

/// Blocks of bytes of very different length, one of them empty.
void uneven_blocks(colls::cuda::virtual_ranks& g, std::size_t count) {
    const int n = g.size();
    buffers<unsigned char> in(n), out(n);
    std::vector<std::size_t> counts(in.size()), begin(in.size());
    std::size_t left = count;
    for (std::size_t r = 0; r < in.size(); ++r) {
        counts[r] = r + 1 == in.size() ? left : r == 1 ? 0 : left / 3;
        begin[r] = count - left;
        left -= counts[r];
    }
    for (std::size_t r = 0; r < in.size(); ++r)
        for (std::size_t i = 0; i < most; ++i)
            in.at(r, i) = static_cast<unsigned char>(i * 31 + r * 7 + count), out.at(r, i) = 0;
    in.to_device(), out.to_device();
    auto from = in.each(0, most);
    for (std::size_t r = 0; r < in.size(); ++r) from[r] = from[r].subspan(r % 3, counts[r]);
    colls::cuda::all_gather_v(g, from, out.each(2, count), counts, cudaStream_t{});
    out.to_host();
    g.check();
    bool right = true;
    for (std::size_t r = 0; r < in.size(); ++r)
        for (std::size_t q = 0; q < in.size(); ++q)
            for (std::size_t i = 0; i < counts[q]; ++i)
                right = right && out.at(r, 2 + begin[q] + i) == in.at(q, q % 3 + i);
    expect(right, "all_gather_v", n, count);
}

/// A sum of bfloat16, folded in float, to float through an epilogue. Exact in bfloat16, to which two hops round it.
void with_epilogue(colls::cuda::virtual_ranks& g, std::size_t count) {
    const int n = g.size();
    buffers<__nv_bfloat16> in(n);
    buffers<float> out(n);
    for (std::size_t r = 0; r < in.size(); ++r)
        for (std::size_t i = 0; i < most; ++i)
            in.at(r, i) = __nv_bfloat16(static_cast<float>((i + 3 * r) % 16)), out.at(r, i) = -7;
    in.to_device(), out.to_device();
    colls::cuda::all_reduce(g, in.each(1, count), out.each(0, count), colls::sum, cudaStream_t{}, halved{});
    out.to_host();
    g.check();
    bool right = true;
    for (std::size_t r = 0; r < in.size(); ++r)
        for (std::size_t i = 0; i < most; ++i) {
            float sum = 0;
            for (std::size_t q = 0; q < in.size(); ++q)
                sum += i + 1 < most ? static_cast<float>((i + 1 + 3 * q) % 16) : 0;
            right = right && out.at(r, i) == (i < count ? 0.5f * sum + static_cast<float>(i % 8) : -7);
        }
    expect(right, "all_reduce of bfloat16 with an epilogue", n, count);
}

/// Calls on several devices, one after the other on each, without a meeting in between: a rank may be in the next call
/// while another still receives.
void on_devices(int n) {
    std::vector<int> devices;
    for (int d = 0; d < n; ++d) devices.push_back(d);
    auto ranks =
        colls::cuda::communicator::of_devices(devices, {.channels = 2, .protocol = protocol::eager, .timeout = 60});
    constexpr std::size_t times = 12, most_here = 3001;
    const auto size = static_cast<std::size_t>(n);
    const auto input = [&](std::size_t call, std::size_t r, std::size_t i) {
        return static_cast<float>((call * 31 + r * 17 + i * 7) % 1013);
    };
    const auto count_of = [](std::size_t call) { return most_here - call % 3 * 997; };
    std::vector<colls::cuda::detail::device_memory> in, out;
    for (std::size_t r = 0; r < size; ++r) {
        std::vector<float> host;
        for (std::size_t c = 0; c < times; ++c)
            for (std::size_t i = 0; i < most_here; ++i) host.push_back(input(c, r, i));
        in.emplace_back(devices[r], host.size() * sizeof(float), host.data());
        out.emplace_back(devices[r], host.size() * sizeof(float));
    }
    const auto part = [&](const colls::cuda::detail::device_memory& m, std::size_t c) {
        return std::span<float>(reinterpret_cast<float*>(m.data()) + c * most_here, count_of(c));
    };
    std::vector<std::unique_ptr<colls::cuda::detail::private_stream>> stream;
    for (std::size_t r = 0; r < size; ++r) {
        const colls::cuda::detail::device_guard guard(devices[r]);
        stream.push_back(std::make_unique<colls::cuda::detail::private_stream>(devices[r]));
    }
    for (std::size_t c = 0; c < times; ++c)
        for (std::size_t r = 0; r < size; ++r)
            if (c % 2 == 0)
                colls::cuda::all_reduce(ranks[r], part(in[r], c), part(out[r], c), colls::sum, stream[r]->get());
            else
                colls::cuda::broadcast(ranks[r], part(in[r], c), static_cast<int>(c) % n, stream[r]->get());
    for (std::size_t r = 0; r < size; ++r) {
        const colls::cuda::detail::device_guard guard(devices[r]);
        check(cudaStreamSynchronize(stream[r]->get()), "cudaStreamSynchronize");
        ranks[r].check();
        std::vector<float> all(times * most_here), sent = all;
        check(cudaMemcpy(all.data(), out[r].data(), out[r].size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
        check(cudaMemcpy(sent.data(), in[r].data(), in[r].size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
        for (std::size_t c = 0; c < times; ++c) {
            bool right = true;
            for (std::size_t i = 0; i < count_of(c); ++i) {
                float sum = 0;
                for (std::size_t q = 0; q < size; ++q) sum += input(c, q, i);
                right = right &&
                        (c % 2 == 0 ? all[c * most_here + i] == sum : sent[c * most_here + i] == input(c, c % size, i));
            }
            expect(right, c % 2 == 0 ? "all_reduce on devices" : "broadcast on devices", n, count_of(c));
        }
    }
    std::printf("%d devices: %d calls so far, %d wrong\n", n, calls, wrong);
}

int run(int only, std::size_t largest, int devices) {
    if (devices > 1 && only <= devices) on_devices(only != 0 ? only : devices);
    if (devices > 1 && only != 0) return wrong == 0 ? 0 : 1;
    for (int n = 1; n <= 8; ++n) {
        if (only != 0 && n != only) continue;
        // In the second group a message of a channel has at most 1.6 KB.
        for (const std::size_t packet_bytes : {std::size_t{4} << 20, static_cast<std::size_t>(2 * n * 3328)}) {
            colls::cuda::virtual_ranks g(n, {.protocol = protocol::eager, .packet_bytes = packet_bytes});
            std::size_t turn = 0;
            for (const std::size_t count : {std::size_t{1}, std::size_t{n - 1u}, std::size_t{n + 1u}, std::size_t{1021},
                     std::size_t{16'384}, std::size_t{39'989}}) {
                if (count > largest) break;
                sums(g, count, turn++ % 4);
                scan(g, count);
                uneven_blocks(g, count);
                with_epilogue(g, count);
            }
        }
        std::printf("%d ranks: %d calls so far, %d wrong\n", n, calls, wrong);
    }
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    try {
        return run(argc > 1 ? std::atoi(argv[1]) : 0, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : most, devices);
    } catch (const colls::error& e) {
        return std::printf("%s\n", e.what()), 1;
    }
}
