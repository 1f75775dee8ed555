// On GPUs: times of all_reduce by each protocol, beside NCCL where it is there, as one table; a verdict; and the table
// of protocols for `automatic`. With several GPUs a rank each, else virtual ranks of one GPU, where NCCL has nothing to
// compare with. Times are of calls one after the other, with their launches, medians of 5 batches; the faster of our
// protocols is compared.
//
// protocols [MOST [TABLE]]: buffers of up to MOST bytes (64 MB); below 1 MB it is a trial, with a few calls. TABLE: the
// file to write, in the form of cuda/detail/launch/protocol_table.hpp. COLLS_NCCL: libnccl.so.2, where it is not found.
#include <colls/transports/cuda.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace {

using colls::cuda::protocol;
using colls::cuda::detail::check;

std::size_t most = std::size_t{64} << 20;
bool is_trial() { return most < (1 << 20); }

/// What this program uses of NCCL, by its names.
class nccl {
public:
    nccl() {
        const char* const chosen = std::getenv("COLLS_NCCL");
        void* const library = dlopen(chosen != nullptr && *chosen != '\0' ? chosen : "libnccl.so.2", RTLD_NOW);
        if (library == nullptr) return;
        const auto find = [&](auto& f, const char* name) {
            f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(library, name));
            return f != nullptr;
        };
        found_ = find(init_all, "ncclCommInitAll") && find(destroy, "ncclCommDestroy") &&
                 find(all_reduce, "ncclAllReduce") && find(begin, "ncclGroupStart") && find(end, "ncclGroupEnd");
    }
    explicit operator bool() const { return found_; }
    static void expect(int code, const char* name) {
        if (code != 0)
            throw colls::error(
                colls::errc::peer_failed, (std::string(name) + " failed: " + std::to_string(code)).c_str());
    }
    static constexpr int float32 = 7, sum = 0;
    int (*init_all)(void** comms, int count, const int* devices) = nullptr;
    int (*destroy)(void* comm) = nullptr;
    int (*all_reduce)(
        const void* in, void* out, std::size_t count, int type, int op, void* comm, cudaStream_t) = nullptr;
    int (*begin)() = nullptr;
    int (*end)() = nullptr;

private:
    bool found_ = false;
};

/// n ranks: of n devices, or virtual ones of device 0. Buffers of `most` bytes, a stream for each device.
class bed {
public:
    bed(int n, bool of_devices) : n_(n), of_devices_(of_devices) {
        for (int d = 0; d < (of_devices ? n : 1); ++d) {
            const colls::cuda::detail::device_guard guard(d);
            streams_.push_back(std::make_unique<colls::cuda::detail::private_stream>(d));
            devices_.push_back(d);
        }
        for (int r = 0; r < n; ++r) {
            const int d = of_devices ? r : 0;
            const std::vector<float> ones(most / sizeof(float), 1.0f);
            in_.emplace_back(d, most, ones.data());
            out_.emplace_back(d, most);
        }
    }
    /// Seconds of one all_reduce of `bytes` by a protocol. NaN where the result is wrong.
    double time(protocol p, std::size_t bytes) {
        const colls::cuda::options o{.protocol = p, .packet_bytes = 4 << 20};
        const std::size_t count = bytes / sizeof(float);
        if (!of_devices_) {
            colls::cuda::virtual_ranks ranks(n_, o);
            std::vector<std::span<float>> in, out;
            for (std::size_t r = 0; r < in_.size(); ++r)
                in.push_back(part(in_[r], count)), out.push_back(part(out_[r], count));
            const double t =
                seconds([&] { colls::cuda::all_reduce(ranks, in, out, colls::sum, streams_[0]->get()); }, bytes);
            ranks.check();
            return is_right(count) ? t : std::nan("");
        }
        auto ranks = colls::cuda::communicator::of_devices(devices_, o);
        const double t = seconds(
            [&] {
                for (std::size_t r = 0; r < ranks.size(); ++r)
                    colls::cuda::all_reduce(
                        ranks[r], part(in_[r], count), part(out_[r], count), colls::sum, streams_[r]->get());
            },
            bytes);
        for (auto& r : ranks) r.check();
        return is_right(count) ? t : std::nan("");
    }
    /// The same by NCCL.
    double time(const nccl& other, std::size_t bytes) {
        std::vector<void*> comms(devices_.size());
        nccl::expect(other.init_all(comms.data(), n_, devices_.data()), "ncclCommInitAll");
        const std::size_t count = bytes / sizeof(float);
        const double t = seconds(
            [&] {
                nccl::expect(other.begin(), "ncclGroupStart");
                for (std::size_t r = 0; r < comms.size(); ++r)
                    nccl::expect(other.all_reduce(in_[r].data(), out_[r].data(), count, nccl::float32, nccl::sum,
                                     comms[r], streams_[r]->get()),
                        "ncclAllReduce");
                nccl::expect(other.end(), "ncclGroupEnd");
            },
            bytes);
        for (void* c : comms) nccl::expect(other.destroy(c), "ncclCommDestroy");
        return is_right(count) ? t : std::nan("");
    }

private:
    static std::span<float> part(const colls::cuda::detail::device_memory& m, std::size_t count) {
        return {reinterpret_cast<float*>(m.data()), count};
    }
    void synchronise() const {
        for (std::size_t d = 0; d < streams_.size(); ++d) {
            const colls::cuda::detail::device_guard guard(devices_[d]);
            check(cudaStreamSynchronize(streams_[d]->get()), "cudaStreamSynchronize");
        }
    }
    template <class F>
    double seconds(const F& f, std::size_t bytes) {
        for (std::size_t r = 0; r < out_.size(); ++r) {
            const colls::cuda::detail::device_guard guard(out_[r].device());
            check(cudaMemset(out_[r].data(), 0, bytes), "cudaMemset");
            check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        }
        const int times = is_trial() ? 1 : bytes < (1 << 20) ? 50 : 10;
        f();
        synchronise();
        std::vector<double> all;
        for (int batch = 0; batch < (is_trial() ? 1 : 5); ++batch) {
            const auto begin = std::chrono::steady_clock::now();
            for (int i = 0; i < times; ++i) f();
            synchronise();
            all.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / times);
        }
        std::sort(all.begin(), all.end());
        return all[all.size() / 2];
    }
    bool is_right(std::size_t count) const {
        std::vector<float> got(count);
        for (const auto& o : out_) {
            check(cudaMemcpy(got.data(), o.data(), count * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
            for (const float x : got)
                if (x != static_cast<float>(n_)) return false;
        }
        return true;
    }

    const int n_;
    const bool of_devices_;
    std::vector<int> devices_;
    std::vector<std::unique_ptr<colls::cuda::detail::private_stream>> streams_;
    std::vector<colls::cuda::detail::device_memory> in_, out_;
};

/// A row of the table of protocols: the largest sizes up to which a protocol was the fastest.
struct limits {
    int ranks;
    std::size_t eager;  ///< what a rank sends in the largest eager call
};

void write_table(const char* file, const std::vector<limits>& all, const char* device) {
    std::FILE* const f = std::fopen(file, "w");
    if (f == nullptr) throw colls::error(colls::errc::invalid_argument, (std::string("cannot write ") + file).c_str());
    std::fprintf(f,
        "// Up to which sizes calls are eager, where the options say `automatic`. Measured by scripts/test-cuda\n"
        "// on %s.\n"
        "// IWYU pragma: private, include <colls/transports/cuda.hpp>\n"
        "#pragma once\n\n"
        "#include <cstddef>\n"
        "#include <cstdint>\n\n"
        "namespace colls::inline v1::cuda::detail {\n\n"
        "/// For groups of up to `ranks` ranks: what a rank sends to all others together in the largest eager call, in "
        "bytes.\n"
        "struct protocol_limits {\n    int ranks;\n    std::size_t eager;\n};\n\n"
        "inline constexpr protocol_limits protocol_table[] = {",
        device);
    for (std::size_t i = 0; i < all.size(); ++i)
        std::fprintf(f, "%s{%d, %zu}", i == 0 ? "" : ", ", i + 1 == all.size() ? colls::cuda::max_ranks : all[i].ranks,
            all[i].eager);
    std::fprintf(f,
        "};\n\n"
        "constexpr std::uint64_t eager_limit(int ranks) {\n"
        "    for (const protocol_limits& l : protocol_table)\n"
        "        if (ranks <= l.ranks) return l.eager;\n"
        "    return 0;\n"
        "}\n\n"
        "}  // namespace colls::inline v1::cuda::detail\n");
    if (std::fclose(f) != 0)
        throw colls::error(colls::errc::invalid_argument, (std::string("cannot write ") + file).c_str());
}

int hops_of(std::size_t bytes, int n) { return colls::cuda::detail::takes_two_hops(bytes, n) ? 2 : 1; }

int run(int devices, const char* file) {
    const nccl other;
    const bool of_devices = devices > 1;
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    std::printf("all_reduce of float, %s; times in us; %s\n",
        of_devices ? "a GPU for each rank" : "virtual ranks of one GPU",
        !other       ? "NCCL is not installed"
        : of_devices ? "beside NCCL"
                     : "NCCL has no virtual ranks");
    std::printf("%3s %12s %10s %10s %10s %10s\n", "n", "size (B)", "eager", "pulled", "NCCL", "NCCL/best");
    std::vector<limits> table;
    double logarithms = 0;
    int compared = 0, wrong = 0;
    for (const int n : {2, 4, 8}) {
        if ((of_devices && n > devices) || (is_trial() && n > 2)) break;
        bed b(n, of_devices);
        limits l{n, 0};
        bool eager_wins = true;
        for (std::size_t bytes = 1 << 10; bytes <= most; bytes *= 4) {
            const double eager = bytes <= (4 << 20) ? b.time(protocol::eager, bytes) : INFINITY,
                         pulled = b.time(protocol::pulled, bytes),
                         theirs = other && of_devices ? b.time(other, bytes) : INFINITY;
            const auto cell = [](double t) {
                char text[32];
                if (std::isinf(t))
                    std::snprintf(text, sizeof text, "-");
                else if (std::isnan(t))
                    std::snprintf(text, sizeof text, "wrong");
                else
                    std::snprintf(text, sizeof text, "%.1f", t * 1e6);
                return std::string(text);
            };
            for (const double t : {eager, pulled, theirs}) wrong += std::isnan(t);
            const double ours = std::min(eager, pulled);
            std::string ratio = "-";
            if (std::isfinite(theirs) && std::isfinite(ours)) {
                ratio = std::to_string(theirs / ours).substr(0, 4);
                logarithms += std::log(theirs / ours);
                ++compared;
            }
            std::printf("%3d %12zu %10s %10s %10s %8s\n", n, bytes, cell(eager).c_str(), cell(pulled).c_str(),
                cell(theirs).c_str(), ratio.c_str());
            eager_wins = eager_wins && eager <= pulled;
            if (eager_wins)
                l.eager =
                    colls::cuda::detail::eager_message(bytes, n, hops_of(bytes, n)) * static_cast<std::size_t>(n - 1);
        }
        table.push_back(l);
        std::printf("automatic with %d ranks: eager where a rank sends up to %zu bytes\n", n, l.eager);
    }
    if (file != nullptr && !of_devices) {
        std::printf("no table is written: times of virtual ranks say nothing about several GPUs\n");
    } else if (file != nullptr && !table.empty()) {
        write_table(file, table, properties.name);
        std::printf("written: %s\n", file);
    }
    if (wrong != 0)
        std::printf("verdict: wrong results in %d cells\n", wrong);
    else if (compared != 0)
        std::printf("verdict: right, and %.2f times as fast as NCCL (geometric mean of %d sizes)\n",
            std::exp(logarithms / compared), compared);
    else
        std::printf("verdict: right; not compared with NCCL\n");
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1) most = std::max<std::size_t>(std::strtoull(argv[1], nullptr, 0), 1 << 10);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    try {
        return run(devices, argc > 2 ? argv[2] : nullptr);
    } catch (const colls::error& e) {
        return std::printf("%s\n", e.what()), 1;
    }
}
