// Calls of the CUDA runtime that fail: each that a small program makes, the first, the second, and so on, in one rank
// or in all. Every rank must then end with an error that says which rank, what, and where, and give everything back.
// And processes that are killed at such a call, and that see other devices than the rest. Nothing waits for a timeout.
#include "emulator.hpp"

#include <colls/colls.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/transports/cuda.hpp>
#include <colls/transports/shm.hpp>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using colls::errc;
using colls::cuda::detail::check;
constexpr int n = 3;
constexpr std::size_t count = 3'001;
const colls::cuda::options small_group{.channels = 1,
    .small_bytes = 1 << 10,
    .scratch_bytes = 64 << 10,
    .arena_bytes = 64 << 10,
    .table_bytes = 16 << 10,
    .timeout = 60};

/// What became of a rank: in memory that all processes share.
struct outcome {
    enum { none, right, error, other } what;
    errc code;
    int rank, peer;
    bool fails, gave_all_back;  ///< it has reached the call that fails
    char text[600];
};
outcome* outcomes = nullptr;

void note(outcome& o, const std::exception& e) {
    const auto* const of_library = dynamic_cast<const colls::error*>(&e);
    o.what = of_library != nullptr ? outcome::error : outcome::other;
    if (of_library != nullptr) o.code = of_library->code(), o.rank = of_library->rank(), o.peer = of_library->peer();
    std::snprintf(o.text, sizeof o.text, "%s", e.what());
}

struct stream {
    stream() { check(cudaStreamCreateWithFlags(&at, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
    stream(const stream&) = delete;
    ~stream() { cudaStreamDestroy(at); }
    cudaStream_t at = nullptr;
};

/// A call on a buffer of ones, eager or by the ring.
void sum(colls::cuda::communicator& gpu, float* at, std::size_t elements, cudaStream_t on) {
    const std::vector<float> ones(elements, 1.0f);
    check(cudaMemcpyAsync(at, ones.data(), elements * sizeof(float), cudaMemcpyHostToDevice, on), "cudaMemcpyAsync",
        gpu.rank());
    colls::cuda::all_reduce<colls::ring>(gpu, std::span<float>(at, elements), colls::sum, on);
}
void finish(colls::cuda::communicator& gpu, float* at, std::size_t elements, cudaStream_t on) {
    std::vector<float> got(elements);
    check(cudaStreamSynchronize(on), "cudaStreamSynchronize", gpu.rank());
    gpu.check();
    check(cudaMemcpy(got.data(), at, elements * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy", gpu.rank());
    for (const float x : got)
        if (x != static_cast<float>(gpu.size())) throw std::runtime_error("a wrong sum");
}

// ---- the programs

/// The device that the process of each rank sees, as number 0; null: all.
const char* alone[n] = {};

/// One process a rank, each with a device of its own.
void rank_of_processes(colls::communicator& host) {
    if (alone[host.rank()] != nullptr) setenv("CUDA_VISIBLE_DEVICES", alone[host.rank()], 1);
    colls::cuda::communicator gpu(host, alone[host.rank()] != nullptr ? 0 : host.rank(), small_group);
    const auto x = gpu.allocate<float>(count);
    check(cudaSetDevice(gpu.device()), "cudaSetDevice");
    const stream s;
    for (const std::size_t elements : {std::size_t{5}, count}) {
        sum(gpu, x.data(), elements, s.at);
        finish(gpu, x.data(), elements, s.at);
    }
}
/// Rank 0 aborts before all call.
void rank_that_hears_of_an_abort(colls::communicator& host) {
    colls::cuda::communicator gpu(host, host.rank(), small_group);
    const auto x = gpu.allocate<float>(count);
    check(cudaSetDevice(gpu.device()), "cudaSetDevice");
    const stream s;
    if (host.rank() == 0) gpu.abort("enough");
    colls::barrier(host);
    sum(gpu, x.data(), 5, s.at);
    finish(gpu, x.data(), 5, s.at);
}
/// Memory of cuMemCreate, of two handles.
struct mapped_memory {
    static constexpr std::size_t granule = 2 << 20;
    explicit mapped_memory(int device, CUmemAllocationHandleType type) {
        using namespace colls::cuda::detail;
        call_driver("cuMemAddressReserve", &at, 2 * granule, std::size_t{0}, CUdeviceptr{0}, 0ull);
        CUmemAllocationProp p{};
        p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        p.location.id = device;
        p.requestedHandleTypes = type;
        for (; mapped < 2 * granule; mapped += granule) {
            held_handle memory;
            call_driver("cuMemCreate", &memory.h, granule, const_cast<const CUmemAllocationProp*>(&p), 0ull);
            call_driver("cuMemMap", at + mapped, granule, std::size_t{0}, memory.h, 0ull);
        }
        CUmemAccessDesc access{};
        access.location = p.location;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        call_driver("cuMemSetAccess", at, mapped, const_cast<const CUmemAccessDesc*>(&access), std::size_t{1});
    }
    mapped_memory(const mapped_memory&) = delete;
    ~mapped_memory() {
        colls::cuda::detail::try_driver("cuMemUnmap", at, mapped);
        colls::cuda::detail::try_driver("cuMemAddressFree", at, 2 * granule);
    }
    float* middle() const { return reinterpret_cast<float*>(at + granule - 64); }
    CUdeviceptr at = 0;
    std::size_t mapped = 0;
};
/// The same with buffers of the program.
void rank_that_shares(colls::communicator& host) {
    colls::cuda::communicator gpu(host, host.rank(), small_group);
    check(cudaSetDevice(gpu.device()), "cudaSetDevice");
    const colls::cuda::detail::device_memory plain(gpu.device(), count * sizeof(float));
    const mapped_memory by_file(gpu.device(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        by_fabric(gpu.device(), colls::cuda::detail::fabric_handles);
    const stream s;
    for (float* const x : {reinterpret_cast<float*>(plain.data()), by_file.middle(), by_fabric.middle()}) {
        const auto shared = gpu.share(x, count);
        sum(gpu, x, count, s.at);
        finish(gpu, x, count, s.at);
    }
}
void (*program_of_rank)(colls::communicator&) = &rank_of_processes;

/// One process for all ranks, each on a device: makes the calls of all before it waits.
void ranks_of_devices() {
    std::vector<colls::cuda::communicator> gpus = colls::cuda::communicator::of_devices({0, 1, 2}, small_group);
    std::vector<colls::cuda::memory<float>> x;
    std::vector<std::unique_ptr<stream>> s;
    for (auto& gpu : gpus) {
        x.push_back(gpu.allocate<float>(count));
        check(cudaSetDevice(gpu.device()), "cudaSetDevice");
        s.push_back(std::make_unique<stream>());
    }
    for (const std::size_t elements : {std::size_t{5}, count}) {
        std::exception_ptr first;
        const auto each = [&](const auto& f) {
            for (std::size_t r = 0; r < gpus.size(); ++r) try {
                    check(cudaSetDevice(gpus[r].device()), "cudaSetDevice");
                    f(gpus[r], x[r].data(), elements, s[r]->at);
                } catch (const std::exception& e) {
                    note(outcomes[r], e);
                    if (!first) first = std::current_exception();
                }
        };
        each(sum);
        const bool fails = first != nullptr;
        each(finish);
        if (!first) continue;
        for (std::size_t r = 0; r < gpus.size() && fails; ++r)  // a rank that has called waits for one that could not
            if (outcomes[r].what != outcome::error) throw std::runtime_error("a rank without an error beside one with");
        std::rethrow_exception(first);
    }
}
void ranks_of_one_device() {
    colls::cuda::virtual_ranks gpu(n, small_group);
    const colls::cuda::detail::device_memory memory(0, n * count * sizeof(float));
    const stream s;
    for (const std::size_t elements : {std::size_t{5}, count}) {
        std::vector<std::span<float>> x;
        for (int r = 0; r < n; ++r)
            x.emplace_back(reinterpret_cast<float*>(memory.data()) + static_cast<std::size_t>(r) * count, elements);
        colls::cuda::all_reduce<colls::ring>(gpu, x, colls::sum, s.at);
        check(cudaStreamSynchronize(s.at), "cudaStreamSynchronize");
        gpu.check();
    }
}

// ---- cases

int wrong = 0, cases = 0, errors = 0;

void expect(bool right, const std::string& what) {
    if (!right) ++wrong, std::printf("wrong: %s\n", what.c_str()), std::fflush(stdout);
}

/// Runs f in a process of its own, which begins with no memory of the runtime; returns its status. A process that does
/// not end in two minutes is killed.
int in_process(const std::function<void()>& f) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        alarm(120);
        f();
        std::fflush(nullptr);
        _exit(0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child) return -1;
    // All processes of the case have ended before it: none is left to this one.
    expect(waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD, "a process is left");
    return status;
}

/// The rank whose calls fail, or all ranks.
constexpr int all_ranks = -1;

std::string text_of(const char* call, int k, int who) {
    return "call " + std::to_string(k) + " of " + call + " in " +
           (who == all_ranks ? "all ranks" : "rank " + std::to_string(who)) + ": ";
}

/// Runs a rank, notes what becomes of it.
void observe(outcome& o, const std::function<void()>& f) {
    try {
        f();
        o.what = outcome::right;
    } catch (const std::exception& e) {
        note(o, e);
    }
    o.gave_all_back = emulated_gave_all_back();
}

/// Three processes, of which those of `who` have `setting` in their environment.
int run_processes(int who, const char* name, const std::string& setting) {
    std::memset(static_cast<void*>(outcomes), 0, n * sizeof(outcome));
    return in_process([&] {
        try {
            colls::processes::run(n, [&](auto& host) {
                outcome& o = outcomes[host.rank()];
                if (who == all_ranks || host.rank() == who) setenv(name, setting.c_str(), 1);
                observe(o, [&] { program_of_rank(host); });
                o.fails = (who == all_ranks || host.rank() == who) && emulated_made_fail();
            });
        } catch (const colls::error& e) {  // names a process that was killed
            std::printf("%s\n", e.what());
        }
    });
}

/// Data between processes that do not reach each other's memory go through the host, if the program can form a group
/// for that: where the library is compiled apart, any program can.
bool goes_far() { return colls::detail::bootstrap_of_program.load() != nullptr; }

/// Returns whether a rank has reached call k.
bool processes(const char* call, int k, int who, bool must_fail) {
    must_fail = must_fail && !(goes_far() && std::string_view(call).starts_with("cudaIpc"));
    const int status = run_processes(who, "EMULATED_FAIL", std::string(call) + ":" + std::to_string(k));
    const std::string what = text_of(call, k, who);
    expect(status == 0, what + "the program ends with status " + std::to_string(status));
    bool reached = false, all_right = true, all_errors = true;
    for (int r = 0; r < n; ++r) reached |= outcomes[r].fails;
    for (int r = 0; r < n; ++r) {
        const outcome& o = outcomes[r];
        const std::string of_rank =
            what + "rank " + std::to_string(r) + ": " + (o.what == outcome::none ? "nothing is known" : o.text);
        all_right &= o.what == outcome::right;
        all_errors &= o.what == outcome::error;
        expect(o.gave_all_back, of_rank + ": it has not given everything back");
        expect(o.what == outcome::right || o.what == outcome::error, of_rank);
        if (o.what != outcome::error) continue;
        ++errors;
        expect(o.code != errc::timeout, of_rank + ": it has waited for the timeout");
        const bool own = o.fails;
        expect(own ? std::strstr(o.text, call) != nullptr : o.peer == who || who == all_ranks,
            of_rank + ": does not say what, or which rank");
        expect(o.rank == r || o.rank == colls::none, of_rank + ": it is another rank's error");
    }
    expect(reached ? all_errors || (all_right && !must_fail) : all_right,
        what + "some ranks have an error, others have none, or it is not reached");
    return reached;
}

/// The same within one process.
bool one_process(const char* call, int k, void (*program)(), bool must_fail) {
    std::memset(static_cast<void*>(outcomes), 0, (n + 1) * sizeof(outcome));
    outcome& o = outcomes[n];
    const std::string what = text_of(call, k, 0) + (program == &ranks_of_devices ? "devices: " : "virtual ranks: ");
    const int status = in_process([&] {
        setenv("EMULATED_FAIL", (std::string(call) + ":" + std::to_string(k)).c_str(), 1);
        observe(o, program);
        o.fails = emulated_made_fail();
    });
    expect(status == 0, what + "the program ends with status " + std::to_string(status));
    expect(o.gave_all_back, what + o.text + ": it has not given everything back");
    errors += o.what == outcome::error;
    expect(o.fails ? o.what == outcome::error || (o.what == outcome::right && !must_fail) : o.what == outcome::right,
        what + o.text);
    if (o.what == outcome::error)
        expect(o.code != errc::timeout && std::strstr(o.text, call) != nullptr, what + o.text);
    return o.fails;
}

/// The last rank's process is killed at its k-th call; returns whether it has reached it.
bool death(const char* call, int k) {
    constexpr int last = n - 1;
    run_processes(last, "EMULATED_FAIL", std::string(call) + ":" + std::to_string(k) + "!");
    const bool dead = outcomes[last].what == outcome::none;
    for (int r = 0; r < n; ++r) {
        const outcome& o = outcomes[r];
        const std::string what = "killed at " + text_of(call, k, last) + "rank " + std::to_string(r) + ": " + o.text;
        if (r == last && dead) continue;
        // What it has done before it died may have been enough.
        expect(o.what == outcome::right ||
                   (dead && o.what == outcome::error && o.peer == last && o.code == errc::peer_failed),
            what);
        errors += o.what == outcome::error;
    }
    return dead;
}

/// The last rank's process sees these devices; it names its third.
void other_devices(const char* visible, bool may, const char* text) {
    const int status = run_processes(n - 1, "CUDA_VISIBLE_DEVICES", visible);
    expect(status == 0, std::string("devices ") + visible + ": the program ends with status " + std::to_string(status));
    for (int r = 0; r < n; ++r) {
        const outcome& o = outcomes[r];
        const bool right =
            may ? o.what == outcome::right : o.what == outcome::error && std::strstr(o.text, text) != nullptr;
        expect(right && o.gave_all_back,
            std::string("devices ") + visible + ": rank " + std::to_string(r) + ": " + o.text);
    }
}

/// Each process sees one device, of those that are slices or not.
void one_device_each(const char* a, const char* b, const char* c, bool slices, bool may, const char* text) {
    const char* const seen[n] = {a, b, c};
    std::copy_n(seen, n, alone);
    const int status = run_processes(all_ranks, "EMULATED_MIG", slices ? "1" : "0");
    for (int r = 0; r < n; ++r) {
        const outcome& o = outcomes[r];
        expect(status == 0 && o.what == (may ? outcome::right : outcome::error) &&
                   std::strstr(o.text, text) != nullptr && o.gave_all_back,
            std::string("processes that see one device each: rank ") + std::to_string(r) + ": " + o.text);
        alone[r] = nullptr;
    }
}

/// No device reaches another one's memory: processes make a group if they can form one without it, devices of one
/// process go through the host.
void no_peer_access() {
    int status = run_processes(all_ranks, "EMULATED_PEERS", "0");
    for (int r = 0; r < n; ++r) {
        const outcome& o = outcomes[r];
        const bool refused = o.what == outcome::error && o.code == errc::peer_failed &&
                             std::strstr(o.text, "no peer access between them");
        expect(status == 0 && o.gave_all_back && (goes_far() ? o.what == outcome::right : refused),
            std::string("no peer access: ") + o.text);
    }
    status = in_process([] {
        setenv("EMULATED_PEERS", "0", 1);
        observe(outcomes[n], &ranks_of_devices);
    });
    expect(status == 0 && outcomes[n].what == outcome::right && outcomes[n].gave_all_back,
        std::string("devices without peer access: ") + outcomes[n].text);
}

/// Calls f with first, first + 1, ... until it returns false.
void for_each_call(const char* call, const std::function<bool(int)>& f, int first = 1) {
    int k = first;
    while (wrong < 20 && f(k)) ++k;
    cases += k - first;
    std::printf(" %s %d", call, k - first);
}

/// The runtime of the last rank fails from its k-th change of the capture mode on, as it does once a kernel of the
/// program has crashed: the rank hears of an abort all the same.
void aborts() {
    program_of_rank = &rank_that_hears_of_an_abort;
    for_each_call("an abort, and cudaThreadExchangeStreamCaptureMode", [](int k) {
        const std::string fault = "cudaThreadExchangeStreamCaptureMode:" + std::to_string(k) + "+";
        const int status = run_processes(n - 1, "EMULATED_FAIL", fault);
        for (int r = 0; r < n; ++r)
            expect(status == 0 && outcomes[r].what == outcome::error && outcomes[r].gave_all_back,
                "an abort, and " + fault + ": rank " + std::to_string(r) + ": " + outcomes[r].text);
        return outcomes[n - 1].fails;
    });
    program_of_rank = &rank_of_processes;
}

void run() {
    // The error must come where the call is needed; others may be done without.
    constexpr const char *needed[] = {"cudaMalloc", "cudaHostAlloc", "cudaStreamCreateWithFlags", "cudaLaunchKernelExC",
        "cudaIpcGetMemHandle", "cudaIpcOpenMemHandle", "cudaFuncGetAttributes", "cudaGetDeviceCount",
        "cuDeviceGetUuid"},
                         *others[] = {"cudaMemcpyAsync", "cudaMemsetAsync", "cudaDeviceCanAccessPeer",
                             "cudaPointerGetAttributes", "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
                             "cudaDeviceGetAttribute", "cudaGetDriverEntryPointByVersion",
                             "cudaThreadExchangeStreamCaptureMode", "cudaStreamIsCapturing", "cudaStreamGetDevice"};
    std::printf("calls that fail in a process:");
    for (const char* const c : needed) for_each_call(c, [c](int k) { return processes(c, k, n - 1, true); });
    for (const char* const c : others) for_each_call(c, [c](int k) { return processes(c, k, 0, false); });
    std::printf("\nin all processes:");
    for (const char* const c : {"cudaMalloc", "cudaIpcOpenMemHandle", "cudaLaunchKernelExC"})
        for_each_call(c, [c](int k) { return processes(c, k, all_ranks, true); });
    std::printf("\nof several devices:");
    for (const char* const c : {"cudaMalloc", "cudaHostAlloc", "cudaStreamCreateWithFlags",
             "cudaDeviceEnablePeerAccess", "cudaLaunchKernelExC"})
        for_each_call(c, [c](int k) { return one_process(c, k, &ranks_of_devices, true); });
    std::printf("\nof one device:");
    for (const char* const c : {"cudaMalloc", "cudaHostAlloc", "cudaStreamCreateWithFlags", "cudaLaunchKernelExC"})
        for_each_call(c, [c](int k) { return one_process(c, k, &ranks_of_one_device, true); });
    std::printf("\na process is killed at:");
    for (const char* const c :
        {"cudaMalloc", "cudaIpcOpenMemHandle", "cudaLaunchKernelExC", "cudaStreamSynchronize", "cudaIpcCloseMemHandle"})
        for_each_call(c, [c](int k) { return death(c, k); });
    program_of_rank = &rank_that_shares;
    std::printf("\nof buffers that are shared, in a process:");
    for (const char* const c :
        {"cudaIpcGetMemHandle", "cudaIpcOpenMemHandle", "cuMemRetainAllocationHandle",
            "cuMemGetAllocationPropertiesFromHandle", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"})
        for_each_call(c, [c](int k) { return processes(c, k, n - 1, true); });
    // Behind those of the program itself.
    for (const auto& [c, own] : {std::pair("cuMemAddressReserve", 2), {"cuMemMap", 4}, {"cuMemSetAccess", 2}})
        for_each_call(c, [c = c](int k) { return processes(c, k, n - 1, true); }, own + 1);
    for_each_call("cudaMemcpyAsync", [](int k) { return processes("cudaMemcpyAsync", k, 0, false); });
    std::printf("\na process is killed at:");
    for (const char* const c : {"cudaIpcOpenMemHandle", "cuMemExportToShareableHandle",
             "cuMemImportFromShareableHandle", "cuMemUnmap", "cudaIpcCloseMemHandle"})
        for_each_call(c, [c](int k) { return death(c, k); });
    aborts();
    std::printf("\n");
    no_peer_access();
    other_devices("0,1", false, "names device 2, and its process sees 2");
    other_devices("0,1,2,3", true, "");
    other_devices("1,0,3", true, "");
    other_devices("2,1,0", false, "ranks 0 and 2 name the same device, 0000:01:00.0 (number 0 and 2)");
    one_device_each("2", "0", "1", false, true, "");
    one_device_each("2", "0", "2", false, false, "ranks 0 and 2 name the same device, 0000:03:00.0 (number 0 and 0)");
    one_device_each("0", "1", "2", true, goes_far(), goes_far() ? "" : "a MIG slice reaches no other GPU instance");
    one_device_each("1", "0", "1", true, false, "ranks 0 and 2 name the same device, 0000:01:00.0");
}

}  // namespace

int main() {
    setenv("COLLS_TIMEOUT", "60", 1);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    void* const shared =
        mmap(nullptr, (n + 1) * sizeof(outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    outcomes = static_cast<outcome*>(shared);
    run();
    std::printf("%d cases, %d errors on ranks, %d wrong\n", cases, errors, wrong);
    return wrong == 0 && errors > 100 ? 0 : 1;
}
