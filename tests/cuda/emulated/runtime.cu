// Rules of the CUDA runtime that its stand-in keeps: what orders a kernel after another one, grids that share a device,
// captures and threads, launches of one graph in two streams, handles of memory that has been freed, host memory behind
// device memory. (check runs it with EMULATED_SMS=4 and two devices.)
#include "emulator.hpp"

#include <cuda.h>
#include <cuda_runtime.h>

#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

int wrong = 0;

void expect(bool right, const char* what) {
    if (!right) ++wrong, std::printf("wrong: %s\n", what);
}
void expect(cudaError_t got, cudaError_t expected, const char* what) {
    if (got != expected) ++wrong, std::printf("wrong: %s: %s\n", what, cudaGetErrorName(got));
    cudaGetLastError();
}
void check(cudaError_t code) { expect(code, cudaSuccess, "a call that should succeed"); }

__global__ void wait_for(volatile int* word) {
    while (*word == 0) {}
}
__global__ void count_blocks(int* blocks) {
    if (threadIdx.x == 0) atomicAdd(blocks, 1);
}
/// No two of them may run at once.
__global__ void add_one(int* x) { *x = *x + 1; }

struct two_streams {
    two_streams() {
        for (auto& s : at) check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    }
    ~two_streams() {
        for (auto& s : at) check(cudaStreamDestroy(s));
    }
    cudaStream_t at[2] = {};
};

/// One of four multiprocessors is free for a grid of six blocks: they run one after the other.
void grids_that_share_a_device() {
    const two_streams streams;
    int *words = nullptr, *blocks = nullptr;
    check(cudaMallocManaged(&words, sizeof(int)));
    check(cudaMallocManaged(&blocks, sizeof(int)));
    *words = *blocks = 0;
    void* arguments[] = {&words};
    check(cudaLaunchCooperativeKernel(
        reinterpret_cast<const void*>(&wait_for), dim3(3), dim3(32), arguments, 0, streams.at[0]));
    count_blocks<<<6, 32, 0, streams.at[1]>>>(blocks);
    check(cudaStreamSynchronize(streams.at[1]));
    expect(*blocks == 6, "blocks that run as multiprocessors become free");
    expect(cudaStreamQuery(streams.at[0]), cudaErrorNotReady, "the other grid still runs");
    std::atomic_ref<int>(*words).store(1);
    check(cudaDeviceSynchronize());
    check(cudaFree(words));
    check(cudaFree(blocks));
}

void capture_that_another_thread_ends() {
    const two_streams streams;
    for (const auto mode :
        {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
        check(cudaStreamBeginCapture(streams.at[0], mode));
        const bool may = mode == cudaStreamCaptureModeRelaxed;
        cudaGraph_t graph = nullptr;
        std::thread([&] {
            expect(cudaStreamEndCapture(streams.at[0], &graph), may ? cudaSuccess : cudaErrorStreamCaptureWrongThread,
                "a capture that another thread ends");
        }).join();
        if (!may) check(cudaStreamEndCapture(streams.at[0], &graph));
        check(cudaGraphDestroy(graph));
    }
    expect(cudaGraphDestroy(nullptr), cudaErrorInvalidValue, "no graph is destroyed");
    expect(cudaGraphExecDestroy(nullptr), cudaErrorInvalidValue, "no executable graph is destroyed");
}

void graph_in_two_streams() {
    const two_streams streams;
    int* x = nullptr;
    check(cudaMallocManaged(&x, sizeof(int)));
    *x = 0;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    check(cudaStreamBeginCapture(streams.at[0], cudaStreamCaptureModeThreadLocal));
    add_one<<<1, 1, 0, streams.at[0]>>>(x);
    add_one<<<1, 1, 0, streams.at[0]>>>(x);
    check(cudaStreamEndCapture(streams.at[0], &graph));
    check(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 40; ++i) check(cudaGraphLaunch(exec, streams.at[i % 2]));
    check(cudaDeviceSynchronize());
    expect(*x == 80, "launches of one graph in two streams");
    check(cudaGraphExecDestroy(exec));
    check(cudaGraphDestroy(graph));
    check(cudaFree(x));
}

/// Memory that one kernel writes or reads in a stream, and then another one in another stream, however the host orders
/// the two.
struct two_kernels : two_streams {
    two_kernels() {
        check(cudaMallocManaged(&x, sizeof(int)));
        check(cudaEventCreate(&event));
        check(cudaEventRecord(event, at[0]));
    }
    ~two_kernels() {
        check(cudaDeviceSynchronize());
        check(cudaEventDestroy(event));
        check(cudaFree(x));
    }
    void first() { add_one<<<1, 1, 0, at[0]>>>(x); }
    void second() { add_one<<<1, 1, 0, at[1]>>>(x); }
    /// In fact the first kernel ends meanwhile; the host has not waited for it.
    static void pass_time() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
    int* x = nullptr;
    cudaEvent_t event = nullptr;
};
struct order_of_kernels {
    const char* name;
    bool is_one;
    void (*run)(two_kernels&);
};
const order_of_kernels orders[] = {
    {"time", false, [](two_kernels& k) { k.first(), k.pass_time(), k.second(); }},
    {"a stream", true, [](two_kernels& k) { k.first(), k.first(); }},
    {"cudaStreamSynchronize", true,
        [](two_kernels& k) { k.first(), check(cudaStreamSynchronize(k.at[0])), k.second(); }},
    {"another stream's end", false,
        [](two_kernels& k) { k.first(), k.pass_time(), check(cudaStreamSynchronize(k.at[1])), k.second(); }},
    {"cudaDeviceSynchronize", true, [](two_kernels& k) { k.first(), check(cudaDeviceSynchronize()), k.second(); }},
    {"the end of another device", false,
        [](two_kernels& k) {
            k.first(), k.pass_time();
            check(cudaSetDevice(1)), check(cudaDeviceSynchronize()), check(cudaSetDevice(0));
            k.second();
        }},
    {"cudaStreamQuery", true,
        [](two_kernels& k) {
            k.first();
            while (cudaStreamQuery(k.at[0]) == cudaErrorNotReady) k.pass_time();
            k.second();
        }},
    {"an event", true,
        [](two_kernels& k) {
            k.first();
            check(cudaEventRecord(k.event, k.at[0])), check(cudaStreamWaitEvent(k.at[1], k.event, 0));
            k.second();
        }},
    {"an event that was before", false,
        [](two_kernels& k) { k.first(), k.pass_time(), check(cudaStreamWaitEvent(k.at[1], k.event, 0)), k.second(); }},
    {"cudaEventSynchronize", true,
        [](two_kernels& k) {
            k.first();
            check(cudaEventRecord(k.event, k.at[0])), check(cudaEventSynchronize(k.event));
            k.second();
        }},
    {"the host's wait for an event that was before", false,
        [](two_kernels& k) { k.first(), k.pass_time(), check(cudaEventSynchronize(k.event)), k.second(); }},
    {"the legacy stream", false, [](two_kernels& k) { k.first(), k.pass_time(), add_one<<<1, 1>>>(k.x); }},
};

struct handles {
    cudaIpcMemHandle_t freed, live;
};

/// Another process: hands out memory that it has freed, and memory that it has not.
void own_memory(int to, int until) {
    handles h;
    int* at = nullptr;
    check(cudaMalloc(&at, sizeof(int)));
    check(cudaIpcGetMemHandle(&h.freed, at));
    check(cudaFree(at));
    check(cudaMalloc(&at, sizeof(int)));
    check(cudaIpcGetMemHandle(&h.live, at));
    const int value = 77;
    check(cudaMemcpy(at, &value, sizeof value, cudaMemcpyHostToDevice));
    char byte = 0;
    if (write(to, &h, sizeof h) != sizeof h || read(until, &byte, 1) != 1) ++wrong;
    check(cudaFree(at));
}

void memory_of_another_process(const handles& h) {
    void* at = nullptr;
    expect(cudaIpcOpenMemHandle(&at, h.freed, cudaIpcMemLazyEnablePeerAccess), cudaErrorInvalidResourceHandle,
        "a handle of memory that has been freed");
    check(cudaIpcOpenMemHandle(&at, h.live, cudaIpcMemLazyEnablePeerAccess));
    int value = 0;
    check(cudaMemcpy(&value, at, sizeof value, cudaMemcpyDeviceToHost));
    expect(value == 77, "memory of another process");
    check(cudaIpcCloseMemHandle(at));
    expect(cudaIpcCloseMemHandle(at), cudaErrorInvalidValue, "memory that is closed already");
    const auto open_and_close = [&h] {
        for (int i = 0; i < 300; ++i) {
            void* mine = nullptr;
            int read = 0;
            check(cudaIpcOpenMemHandle(&mine, h.live, cudaIpcMemLazyEnablePeerAccess));
            check(cudaMemcpy(&read, mine, sizeof read, cudaMemcpyDeviceToHost));
            expect(read == 77, "memory that another thread closes too");
            check(cudaIpcCloseMemHandle(mine));
        }
    };
    std::thread other(open_and_close);
    open_and_close();
    other.join();
}

template <class... X>
CUresult driver(const char* name, X... x) {
    void* f = nullptr;
    check(cudaGetDriverEntryPointByVersion(name, &f, 12010, cudaEnableDefault, nullptr));
    return f == nullptr ? CUDA_ERROR_NOT_FOUND : reinterpret_cast<CUresult (*)(X...)>(f)(x...);
}

/// A process that sees the two devices the other way round.
void devices_that_are_visible() {
    setenv("CUDA_VISIBLE_DEVICES", "1,0,7", 1);
    int devices = 0, number = -1;
    char name[32] = {};
    check(cudaGetDeviceCount(&devices));
    check(cudaDeviceGetPCIBusId(name, sizeof name, 0));
    check(cudaDeviceGetByPCIBusId(&number, "0000:01:00.0"));
    expect(devices == 2 && std::strcmp(name, "0000:02:00.0") == 0 && number == 1, "devices by CUDA_VISIBLE_DEVICES");
    cudaDeviceProp p{};
    check(cudaGetDeviceProperties(&p, 0));
    CUuuid uuid{};
    expect(driver("cuDeviceGetUuid", &uuid, CUdevice{0}) == CUDA_SUCCESS &&
               std::memcmp(&uuid, &p.uuid, sizeof uuid) == 0 && p.uuid.bytes[15] == 1,
        "a UUID by the device's number on the machine");
}

/// Runs f in a process of its own, which uses the runtime for the first time.
template <class F>
pid_t process(const F& f) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child != 0) return child;
    f();
    expect(emulated_gave_all_back(), "everything is given back");
    std::fflush(nullptr);
    _exit(wrong == 0 ? 0 : 1);
}
void expect_success(pid_t child, const char* what) {
    int status = 0;
    expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, what);
}

/// Each in a process of its own, which stops where it finds a race.
void what_orders_kernels() {
    for (const order_of_kernels& o : orders) {
        const pid_t child = process([&o] {
            wrong = 0;
            if (!o.is_one && std::freopen("/dev/null", "w", stderr) == nullptr) ++wrong;
            two_kernels k;
            o.run(k);
        });
        int status = 0;
        const bool ended = waitpid(child, &status, 0) == child && WIFEXITED(status);
        expect(ended && WEXITSTATUS(status) == (o.is_one ? 0 : 70), o.name);
    }
}

/// Freed device memory, then host memory of the same size: the host may have the addresses again, and copies there.
void host_memory_after_device_memory() {
    constexpr std::size_t bytes = std::size_t{1} << 20;
    void* kept = nullptr;
    check(cudaMalloc(&kept, bytes));
    for (int i = 0; i < 20; ++i) {
        void* freed = nullptr;
        check(cudaMalloc(&freed, bytes));
        check(cudaFree(freed));
        const std::vector<char> ones(bytes, 1);
        std::vector<char> copied(bytes, 0);
        check(cudaMemcpy(kept, ones.data(), bytes, cudaMemcpyHostToDevice));
        check(cudaMemcpy(copied.data(), kept, bytes, cudaMemcpyDeviceToHost));
        expect(copied == ones, "a copy to host memory");
    }
    check(cudaFree(kept));
}

cudaMemoryType find(CUdeviceptr at) {
    cudaPointerAttributes p{};
    check(cudaPointerGetAttributes(&p, reinterpret_cast<const void*>(at)));
    return p.type;
}

/// Multicast objects: whole granules; all devices before any memory; memory of its devices only, once each.
void multicast_objects() {
    const auto expect_code = [](CUresult got, CUresult expected, const char* what) {
        if (got != expected) ++wrong, std::printf("wrong: %s: %d\n", what, static_cast<int>(got));
    };
    const auto done = [&](CUresult got) { expect_code(got, CUDA_SUCCESS, "a call of the driver that should succeed"); };
    CUmulticastObjectProp p{};
    p.numDevices = 2;
    p.size = 1;
    const CUmulticastObjectProp* const object_of = &p;
    std::size_t granule = 0;
    done(driver("cuMulticastGetGranularity", &granule, object_of, CU_MULTICAST_GRANULARITY_MINIMUM));
    CUmemGenericAllocationHandle object = 0, memory[2] = {}, more = 0;
    p.size = granule / 2;
    expect_code(driver("cuMulticastCreate", &object, object_of), CUDA_ERROR_INVALID_VALUE, "half a granule");
    p.size = granule;
    p.numDevices = 3;
    expect_code(
        driver("cuMulticastCreate", &object, object_of), CUDA_ERROR_INVALID_VALUE, "more devices than there are");
    p.numDevices = 2;
    done(driver("cuMulticastCreate", &object, object_of));
    CUmemAllocationProp of{};
    of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    of.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    const CUmemAllocationProp* const memory_of = &of;
    for (int d = 0; d < 2; ++d) {
        of.location.id = d;
        done(driver("cuMemCreate", &memory[d], granule, memory_of, 0ull));
    }
    expect_code(driver("cuMemCreate", &more, granule - 1, memory_of, 0ull), CUDA_ERROR_INVALID_VALUE,
        "memory that is no whole granule");
    const auto bind = [&](int d, std::size_t bytes) {
        return driver("cuMulticastBindMem", object, std::size_t{0}, memory[d], std::size_t{0}, bytes, 0ull);
    };
    done(driver("cuMulticastAddDevice", object, CUdevice{0}));
    expect_code(bind(0, granule), CUDA_ERROR_ILLEGAL_STATE, "memory before all devices are there");
    expect_code(driver("cuMulticastAddDevice", object, CUdevice{0}), CUDA_ERROR_INVALID_DEVICE, "a device twice");
    done(driver("cuMulticastAddDevice", object, CUdevice{1}));
    expect_code(bind(0, granule / 2), CUDA_ERROR_INVALID_VALUE, "a part of a granule");
    expect_code(bind(0, 2 * granule), CUDA_ERROR_INVALID_VALUE, "more memory than the object has");
    for (int d = 0; d < 2; ++d) done(bind(d, granule));
    expect_code(bind(0, granule), CUDA_ERROR_INVALID_DEVICE, "memory of a device twice");
    CUdeviceptr at = 0;
    done(driver("cuMemAddressReserve", &at, granule, granule, CUdeviceptr{0}, 0ull));
    expect_code(driver("cuMemMap", at, granule / 2, std::size_t{0}, memory[0], 0ull), CUDA_ERROR_INVALID_VALUE,
        "half a granule mapped");
    done(driver("cuMemMap", at, granule, std::size_t{0}, memory[0], 0ull));
    expect_code(driver("cuMemAddressFree", at, granule), CUDA_ERROR_INVALID_VALUE, "addresses that are mapped");
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUmemAccessDesc* const by = &access;
    const int word = 7;
    expect(find(at) == cudaMemoryTypeUnregistered, "memory that no device may access yet");
    done(driver("cuMemSetAccess", at, granule, by, std::size_t{1}));
    expect(find(at) == cudaMemoryTypeDevice, "memory that a device may access");
    check(cudaMemcpy(reinterpret_cast<void*>(at), &word, sizeof word, cudaMemcpyHostToDevice));
    done(driver("cuMemUnmap", at, granule));
    done(driver("cuMemAddressFree", at, granule));
    done(driver("cuMulticastUnbind", object, CUdevice{0}, std::size_t{0}, granule));
    expect_code(driver("cuMulticastUnbind", object, CUdevice{0}, std::size_t{0}, granule), CUDA_ERROR_INVALID_DEVICE,
        "memory unbound twice");
    // What is bound still, to device 1, is given back with the object.
    for (const auto h : {memory[0], memory[1], object}) done(driver("cuMemRelease", h));
    expect_code(driver("cuMemRelease", object), CUDA_ERROR_INVALID_VALUE, "a handle that is released twice");
}

}  // namespace

int main() {
    int there[2], back[2];
    if (pipe(there) != 0 || pipe(back) != 0) return 1;
    const pid_t owner = process([&] { own_memory(there[1], back[0]); });
    expect_success(process([] { devices_that_are_visible(); }), "a process that sees some devices");
    what_orders_kernels();
    handles h;
    if (read(there[0], &h, sizeof h) != sizeof h) return 1;
    memory_of_another_process(h);
    if (write(back[1], "", 1) != 1) return 1;
    expect_success(owner, "the process that owns memory");
    grids_that_share_a_device();
    capture_that_another_thread_ends();
    graph_in_two_streams();
    host_memory_after_device_memory();
    multicast_objects();
    std::printf("%d wrong\n", wrong);
    return wrong == 0 ? 0 : 1;
}
