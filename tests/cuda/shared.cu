// Buffers of users, shared between the processes of a group: memory of cudaMalloc and of cuMemCreate, by descriptors
// and by handles of the fabric, of several handles; buffers of different lengths, one by one and together; what is
// refused; ranks that do not agree. Calls on them, also within kernels, copy nothing to scratch memory. With an
// argument: the number of ranks (2); with `late` behind it: a rank that does not come; with `hosts`: the first two
// ranks on a host of their own; with `unmapped`, on the emulator: a rank that cannot map a buffer. On a real GPU ranks
// share it by time slices.
#include "devices.hpp"

#include <colls/colls.hpp>
#include <colls/cuda/device.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>
#include <colls/transports/shm.hpp>
#include <colls/world.hpp>

#include <dirent.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The emulator says whether this process has given everything back.
[[gnu::weak]] bool emulated_gave_all_back();

namespace {

using colls::errc;
using colls::cuda::detail::call_driver;
using colls::cuda::detail::check;
namespace detail = colls::cuda::detail;

[[noreturn]] void wrong(const std::string& what) {
    throw colls::error(errc::invalid_argument, ("wrong: " + what).c_str());
}

constexpr std::size_t granule = 2 << 20, many = 300'007;
std::atomic<bool>* rank_0_ends = nullptr;  // in memory of all processes
constexpr unsigned file = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, fabric = detail::fabric_handles;

/// Memory of cuMemCreate: several handles, mapped to one range of addresses.
class mapped {
public:
    mapped(int device, const std::vector<std::size_t>& granules, unsigned types) : mapped() {
        const detail::device_guard there(device);
        for (const std::size_t g : granules) bytes_ += g * granule;
        call_driver("cuMemAddressReserve", &at_, bytes_, std::size_t{0}, CUdeviceptr{0}, 0ull);
        CUmemAllocationProp p{};
        p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        p.location.id = device;
        p.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(types);
        for (const std::size_t g : granules) {
            detail::held_handle memory;
            call_driver("cuMemCreate", &memory.h, g * granule, const_cast<const CUmemAllocationProp*>(&p), 0ull);
            call_driver("cuMemMap", at_ + mapped_, g * granule, std::size_t{0}, memory.h, 0ull);
            mapped_ += g * granule;
        }
        CUmemAccessDesc access{};
        access.location = p.location;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        call_driver("cuMemSetAccess", at_, bytes_, const_cast<const CUmemAccessDesc*>(&access), std::size_t{1});
    }
    mapped(const mapped&) = delete;
    ~mapped() {
        if (mapped_ != 0) detail::try_driver("cuMemUnmap", at_, mapped_);
        if (at_ != 0) detail::try_driver("cuMemAddressFree", at_, bytes_);
    }
    float* at(std::size_t byte) const { return reinterpret_cast<float*>(at_ + byte); }

private:
    mapped() = default;  // its destructor runs, too, if the other constructor throws behind it

    CUdeviceptr at_ = 0;
    std::size_t bytes_ = 0, mapped_ = 0;
};

using in_kernel = colls::schedule_for<colls::ring, colls::collective::all_gather>;
__global__ void __launch_bounds__(512, 1)
    gather_in_kernel(const __grid_constant__ colls::cuda::device::ranks<in_kernel> r, float* x, std::size_t block) {
    colls::cuda::device::all_gather(
        r, 0, 0, x + static_cast<std::size_t>(r.rank(0)) * block, x, block * static_cast<std::size_t>(r.size()));
}

int descriptors() {
    int n = 0;
    DIR* const d = opendir("/proc/self/fd");
    while (readdir(d) != nullptr) ++n;
    closedir(d);
    return n;
}

class rank_test {
public:
    explicit rank_test(colls::communicator& host, int device)
        : host_(host),
          device_(device),
          gpu_(host, device, {.channels = 2, .scratch_bytes = 64 << 10, .arena_bytes = 2 << 20, .share_devices = true}),
          ranks_in_kernel_(colls::cuda::ranks_for<in_kernel>(gpu_)),
          stream_(device),
          rank_(static_cast<std::size_t>(host.rank())),
          n_(static_cast<std::size_t>(host.size())) {}

    void run() {
        const detail::device_memory plain(device_, 3 * many * sizeof(float));
        float* const in_plain = reinterpret_cast<float*>(plain.data());
        control(in_plain);
        {
            // Buffers of different lengths, which begin in the middle of their memory; calls on a part of them.
            auto first = gpu_.share(in_plain + 17, 2 * many + rank_ * 100);
            const auto all = std::move(first);
            if (first.data() != nullptr || first.size() != 0 || all.data() != in_plain + 17) wrong("a moved buffer");
            tested("memory of cudaMalloc", in_plain + 17 + 5);
            messages(in_plain + 16, nullptr);  // of which one element is before it, or behind it
            messages(in_plain + 17 + 2 * many + rank_ * 100 - many / 2 + 1, nullptr);
        }
        control(in_plain);
        arena();
        joined_wrongly();
        const mapped by_file(device_, {1, 2, 1}, file);
        {
            const auto all = gpu_.share(by_file.at(granule / 2), (granule * 7 / 2) / sizeof(float));
            tested("handles of cuMemCreate by descriptors", by_file.at(granule - 400));
            tested("their middle", by_file.at(granule + 1024));
        }
        {  // one of several that are shared together; ended in another order
            std::optional first = gpu_.share(in_plain, many);
            std::optional second = gpu_.share(by_file.at(granule), many);
            std::optional none = gpu_.share<float>(nullptr, 0);
            tested("the first of two", in_plain);
            tested("the second of two", by_file.at(granule));
            first.reset();
            tested("the second alone", by_file.at(granule));
            std::optional again = gpu_.share(rank_ == 0 ? in_plain + many : by_file.at(3 * granule - 8), many);
            tested("another kind on each rank", rank_ == 0 ? in_plain + many : by_file.at(3 * granule - 8));
            none.reset();
            again.reset();
            tested("still the second", by_file.at(granule));
        }
        {
            const auto all = rank_ == 1 ? gpu_.share<float>(nullptr, 0) : gpu_.share(in_plain, many);
            use(in_plain, rank_ != 1, "a rank that shares nothing");
        }
        {  // the memory is this rank's again when no other rank can read it
            std::optional shared = gpu_.share(in_plain, many);
            colls::barrier(host_);
            if (rank_ == 0) usleep(500'000), *rank_0_ends = true;
            shared.reset();
            if (!*rank_0_ends) wrong("an end that waits for no other rank");
        }
        with_fabric();
        refused(in_plain, by_file);
        agreed(in_plain);
    }
    /// Ranks on several hosts, of which those of one host reach each other's buffers.
    void on_hosts() {
        const detail::device_memory plain(device_, (many + 100) * sizeof(float));
        float* const at = reinterpret_cast<float*>(plain.data()) + 21;
        const mapped by_file(device_, {1, 1}, file);
        for (float* const x : {at, by_file.at(granule - 44), rank_ == 2 ? at : by_file.at(granule - 8)}) {
            const auto shared = gpu_.share(x - 7, many + 7);
            sums(x, "several hosts");
            if (gpu_.context().address_for_peers(x, many, false).region != detail::shared_address::shared)
                wrong("a buffer that ranks of the host do not reach");
        }
        if (rank_ == 0) std::printf("several hosts: right\n");
    }
    /// Rank 1 cannot map what rank 0 shares: all hear it, and the next buffer is shared as ever.
    void unmapped() {
        const mapped by_file(device_, {1, 1}, file);
        const std::string text = text_of(rank_ == 1 ? errc::unsupported : errc::peer_failed,
            "a buffer that is not mapped", [&] { gpu_.share(by_file.at(0), many); });
        if (text.find("rank 1 could not share: it cannot map the buffer of rank 0") == std::string::npos) wrong(text);
        const auto shared = gpu_.share(by_file.at(0), many);
        tested("after a rank that could not map one", by_file.at(0));
    }
    /// The other ranks are waited for, but not for ever.
    void late() {
        const detail::device_memory plain(device_, 4096);
        if (rank_ != 0) return static_cast<void>(usleep(6'000'000));
        host_.set_timeout(std::chrono::seconds(2));
        try {
            gpu_.share(plain.data(), 4096);
        } catch (const colls::error& e) {
            if (e.code() != errc::timeout) wrong(e.what());
            return static_cast<void>(std::printf("a rank that does not come: %s\n", e.what()));
        }
        wrong("a rank that does not come");
    }

private:
    /// Text of the error that `call` throws.
    template <class F>
    std::string text_of(errc code, const char* what, const F& call) {
        try {
            call();
        } catch (const colls::error& e) {
            if (e.code() != code) wrong(std::string(what) + ": " + e.what());
            return e.what();
        }
        wrong(std::string("not refused: ") + what);
    }
    /// The group's own memory: others reach it to its last byte; it is given out once, and as a whole again.
    void arena() {
        const std::size_t all = gpu_.context().reachable().exported.bytes;
        if (all < 2 << 20 || ((gpu_.context().sizes().bytes() + 255) / 256 * 256 + all) % granule != 0)
            wrong("the size of the arena");
        for (const bool again : {false, true}) {
            const auto used_up = [&](std::size_t bytes) {
                const std::string text = text_of(errc::unsupported, "too much", [&] { gpu_.allocate<char>(bytes); });
                if (text.find("the arena of " + std::to_string(all) + " bytes is used up") == std::string::npos)
                    wrong(text);
            };
            used_up(all + 1);
            auto first = gpu_.allocate<char>(all);
            const auto x = std::move(first);  // whose memory is given back once
            if (first.data() != nullptr || first.size() != 0 || x.size() != all) wrong("a moved buffer");
            used_up(1);
            float* const end = reinterpret_cast<float*>(x.data() + all);
            tested(again ? "memory of the group, again" : "memory of the group", end - many);
            if (again) sums(reinterpret_cast<float*>(x.data()), "memory of the group");
        }
    }
    /// What ranks may not join with: all hear of it, and which rank is to blame.
    void joined_wrongly() {
        const auto join = [&](int device, int far_channels) {
            const colls::cuda::communicator c(host_, device,
                {.channels = 1, .scratch_bytes = 4096, .share_devices = true, .far_channels = far_channels});
        };
        const bool guilty = rank_ == 1;
        const std::string text = text_of(
            guilty ? errc::unsupported : errc::peer_failed, "no such device", [&] { join(guilty ? -1 : device_, 4); });
        if (text.find("rank 1 names device -1") == std::string::npos) wrong(text);
        for (const int channels : {0, 65}) {
            const std::string why = text_of(guilty ? errc::invalid_argument : errc::peer_failed, "far channels",
                [&] { join(device_, guilty ? channels : 4); });
            if (why.find("must be 1 to 64") == std::string::npos) wrong(why);
        }
        for (const int channels : {1, 64}) join(device_, channels);
    }

    void with_fabric() {
        std::optional<mapped> memory;
        char here = 1;
        try {
            memory.emplace(device_, std::vector<std::size_t>{1, 1}, fabric | (rank_ == 0 ? file : 0));
        } catch (const colls::error& e) {
            if (rank_ == 0) std::printf("left out: handles of the fabric: %s\n", e.what());
            here = 0;
        }
        std::vector<char> all(n_);
        colls::all_gather(host_, std::span(&here, 1), all);
        for (const char c : all)
            if (c == 0) return;
        const auto shared = gpu_.share(memory->at(0), 2 * granule / sizeof(float));
        tested("handles of cuMemCreate by the fabric", memory->at(granule / 2 + 12));
    }
    /// Ranks that fail alone, and all together: nothing is left, and the group is as before.
    void refused(float* plain, const mapped& by_file) {
        const mapped without(device_, {1}, 0);
        float* pool = nullptr;
        check(cudaMallocAsync(&pool, 4096, stream_.get()), "cudaMallocAsync");
        float on_host[16];
        const int before = descriptors();
        // What rank 0 gives is refused; the others share memory that they may, by descriptors, too.
        const auto refuse = [&](errc code, float* at, std::size_t count, const char* text, bool by_all = false) {
            try {
                const auto b = gpu_.share(rank_ == 0 ? at : by_file.at(0), rank_ == 0 ? count : granule);
            } catch (const colls::error& e) {
                if (e.code() != (rank_ == 0 || by_all ? code : errc::peer_failed) || (!by_all && e.peer() != 0) ||
                    std::string_view(e.what()).find(text) == std::string_view::npos)
                    wrong(std::string("refused otherwise: ") + e.what());
                if (rank_ == 1) std::printf("refused: %s\n", e.what());
                return;
            }
            wrong(std::string("not refused: ") + text);
        };
        refuse(errc::unsupported, pool, 16, "memory of a pool, from cudaMallocAsync, has no handle");
        refuse(errc::unsupported, without.at(0), 16, "allocate it with requestedHandleTypes");
        refuse(errc::invalid_argument, on_host, 16, "is host memory");
        refuse(errc::invalid_argument, plain, 64 << 20, "are left of the memory that is allocated there");
        refuse(errc::invalid_argument, by_file.at(granule), granule, "longer than the memory that is allocated");
        check(cudaFreeAsync(pool, stream_.get()), "cudaFreeAsync");
        {
            std::vector<colls::cuda::shared_buffer<float>> all;
            for (int i = 0; i < 16; ++i) all.push_back(gpu_.share(plain + 512 * i, 512));
            refuse(errc::unsupported, plain, 16, "16 buffers are shared already", true);
            while (!all.empty()) all.pop_back();
        }
        if (descriptors() != before) wrong("descriptors are left");
        {
            const auto again = gpu_.share(by_file.at(0), 2 * granule / sizeof(float));
            tested("after refusals", by_file.at(4));
        }
        std::vector<colls::cuda::communicator> alone =
            colls::cuda::communicator::of_devices({device_}, {.channels = 1});
        if (alone[0].share(plain, many).size() != many) wrong("sharing in one process");
        try {
            alone[0].share(by_file.at(0), 16);
        } catch (const colls::error& e) {
            if (e.code() == errc::unsupported) return;
        }
        wrong("memory of cuMemCreate in one process");
    }
    /// One rank ends a buffer while the others share one: the group is broken.
    void agreed(float* plain) {
        std::optional first = gpu_.share(plain, 512);
        if (rank_ == 0) {
            first.reset();
            try {
                gpu_.check();
            } catch (const colls::error& e) {
                return static_cast<void>(std::printf("ranks that do not agree: %s\n", e.what()));
            }
            wrong("an end that did not meet another one");
        }
        try {
            const auto other = gpu_.share(plain + 512, 512);
        } catch (const colls::error& e) {
            if (e.code() == errc::mismatch && e.peer() == 0) return;
            wrong(e.what());
        }
        wrong("a share that did not meet another one");
    }

    // Calls.

    void tested(const char* what, float* at) {
        use(at, true, what);
        sums(at, what);
        messages(at, what);
        if (rank_ == 0) std::printf("%s: right\n", what);
    }
    /// Memory that is not shared goes through scratch memory: what the other checks look for is there to be found.
    void control(float* at) {
        use(at, false, "memory that is not shared");
        messages(at, nullptr);
    }
    void put(float* at, const std::vector<float>& from) {
        check(cudaMemcpyAsync(at, from.data(), from.size() * sizeof(float), cudaMemcpyHostToDevice, stream_.get()),
            "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    }
    std::vector<float> got(const float* at, std::size_t count) {
        std::vector<float> to(count);
        check(cudaMemcpyAsync(to.data(), at, count * sizeof(float), cudaMemcpyDeviceToHost, stream_.get()),
            "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
        gpu_.check();
        return to;
    }
    static float value(std::size_t rank, std::size_t i) { return static_cast<float>(i % 1009 + rank * 2000); }

    /// All_gathers in place, which copy to scratch memory if and only if the buffer is out of reach.
    void use(float* at, bool reached, const std::string& what) {
        std::size_t block = many / n_;
        gathers(at, block, reached, what, [&] {
            colls::cuda::all_gather<colls::ring>(gpu_, std::span<const float>(at + rank_ * block, block),
                std::span<float>(at, block * n_), stream_.get());
        });
        gathers(at, block, reached, what + ", within a kernel", [&] {
            auto r = ranks_in_kernel_;  // made before anything was shared
            void* arguments[] = {&r, &at, &block};
            check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&gather_in_kernel), dim3(1), dim3(512),
                      arguments, 0, stream_.get()),
                "cudaLaunchCooperativeKernel");
        });
    }
    template <class Call>
    void gathers(float* at, std::size_t block, bool reached, const std::string& what, const Call& call) {
        std::vector<float> own(block * n_, -1);
        for (std::size_t i = 0; i < block; ++i) own[rank_ * block + i] = value(rank_, i);
        put(at, own);
        mark_scratch();
        call();
        const std::vector<float> all = got(at, block * n_);
        for (std::size_t i = 0; i < all.size(); ++i)
            if (all[i] != value(i / block, i % block)) wrong("all_gather: " + what);
        expect_scratch(reached, what);
    }
    void sums(float* at, const std::string& what) {
        std::vector<float> mine(many);
        for (std::size_t i = 0; i < many; ++i) mine[i] = value(rank_, i);
        put(at, mine);
        colls::cuda::all_reduce<colls::ring>(gpu_, std::span<float>(at, many), colls::sum, stream_.get());
        const std::vector<float> all = got(at, many);
        for (std::size_t i = 0; i < many; ++i)
            if (all[i] != static_cast<float>(i % 1009 * n_ + n_ * (n_ - 1) / 2 * 2000)) wrong("all_reduce: " + what);
    }
    /// Each rank sends the first half of its buffer to the next one; null: the buffer is not shared.
    void messages(float* at, const char* what) {
        const std::size_t half = many / 2;
        std::vector<float> mine(2 * half, -1);
        for (std::size_t i = 0; i < half; ++i) mine[i] = value(rank_, i);
        put(at, mine);
        mark_scratch();
        const int next = static_cast<int>((rank_ + 1) % n_), before = static_cast<int>((rank_ + n_ - 1) % n_);
        colls::cuda::exchange(
            gpu_, std::span<const float>(at, half), next, std::span<float>(at + half, half), before, stream_.get());
        const std::vector<float> all = got(at, 2 * half);
        for (std::size_t i = 0; i < half; ++i)
            if (all[half + i] != value(static_cast<std::size_t>(before), i)) wrong("messages");
        expect_scratch(what != nullptr, std::string("messages: ") + (what != nullptr ? what : "not shared"));
    }

    std::byte* scratch(std::size_t& bytes) {
        detail::rank_handle h;
        check(cudaMemcpy(&h, gpu_.context().handles(), sizeof h, cudaMemcpyDeviceToHost), "cudaMemcpy");
        std::byte* workspace = nullptr;
        check(cudaMemcpy(&workspace, h.workspaces + h.rank, sizeof workspace, cudaMemcpyDeviceToHost), "cudaMemcpy");
        bytes = h.sizes.bytes() - h.sizes.scratch_begin();
        return workspace + h.sizes.scratch_begin();
    }
    void mark_scratch() {
        std::size_t bytes = 0;
        std::byte* const at = scratch(bytes);
        check(cudaMemset(at, 0x5a, bytes), "cudaMemset");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        colls::barrier(host_);
    }
    void expect_scratch(bool unused, const std::string& what) {
        std::size_t bytes = 0;
        const std::byte* const at = scratch(bytes);
        std::vector<std::byte> now(bytes);
        check(cudaMemcpy(now.data(), at, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
        bool is = true;
        for (const std::byte b : now) is = is && b == std::byte{0x5a};
        if (is != unused) wrong(what + (unused ? ": scratch memory was used" : ": scratch memory was not used"));
        colls::barrier(host_);
    }

    colls::communicator& host_;
    const int device_;
    colls::cuda::communicator gpu_;
    colls::cuda::device::ranks<in_kernel> ranks_in_kernel_;
    detail::private_stream stream_;
    const std::size_t rank_, n_;
};

}  // namespace

int main(int argc, char** argv) {
    const int devices = devices_of_machine(), n = argc > 1 ? std::atoi(argv[1]) : 2;
    const std::string_view how = argc > 2 ? argv[2] : "";
    const bool late = how == "late", hosts = how == "hosts", unmapped = how == "unmapped";
    if (devices == 0) return std::printf("left out: there is no GPU\n"), 77;
    void* const memory = mmap(nullptr, sizeof *rank_0_ends, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return std::printf("no memory\n"), 1;
    rank_0_ends = new (memory) std::atomic<bool>(false);
    try {
        colls::processes::run(n, [&](auto& comm) {
            if (unmapped && comm.rank() == 1) setenv("EMULATED_FAIL", "cuMemImportFromShareableHandle:1", 1);
            check(cudaSetDevice(comm.rank() % devices), "cudaSetDevice");
            if (hosts) setenv("COLLS_HOST", comm.rank() < 2 ? "a" : "b", 1);
            {
                rank_test test(comm, comm.rank() % devices);
                late ? test.late() : hosts ? test.on_hosts() : unmapped ? test.unmapped() : test.run();
            }
            if (!late && emulated_gave_all_back != nullptr && !emulated_gave_all_back()) wrong("something is left");
        });
    } catch (const std::exception& e) {
        return std::printf("%s\n", e.what()), 1;
    }
    return 0;
}
