// Launches: which kernel, and when there is room for its blocks.
//
// A multiprocessor holds one block at a time (EMULATED_OCCUPANCY: more). All blocks of a cooperative grid run together,
// so it waits until there is room for all of them beside the grids that run; other grids start each block as soon as
// there is room for it. Grids that wait for each other's blocks to
// come stand still, as on a device, and that is reported.
#include "runtime.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <vector>

namespace emulated {

namespace {

int blocks_a_multiprocessor(const kernel& k, unsigned threads) {
    static const int most = std::max(1, setting("EMULATED_OCCUPANCY", 1));
    if (threads == 0 || static_cast<int>(threads) > k.max_threads || threads > 1024) return 0;
    return std::min(most, static_cast<int>(2048 / threads));
}

/// What runs on the devices.
struct occupation {
    struct grid {
        const kernel* of;
        int blocks;  ///< that it holds now
        int device;
    };
    std::mutex mutex;
    std::condition_variable changed;
    std::list<grid> running;
    int blocks_on(int device) const {
        int n = 0;
        for (const grid& g : running) n += g.device == device ? g.blocks : 0;
        return n;
    }
    bool is_idle(int device) const {
        for (const grid& g : running)
            if (g.device == device) return false;
        return true;
    }
    std::string names_on(int device) const {
        std::string text;
        for (const grid& g : running)
            if (g.device == device)
                text +=
                    (text.empty() ? "" : ", ") + std::string(g.of->name) + " (" + std::to_string(g.blocks) + " blocks)";
        return text.empty() ? "no kernel" : text;
    }
};
occupation& all() {
    static occupation* const o = new occupation;
    return *o;
}

std::chrono::duration<double> patience_of_launches() { return std::chrono::duration<double>(15 * patience()); }

/// Room for a grid, while it runs: for `blocks` blocks from the beginning on, and for more as there is room.
class residency : public block_room {
public:
    residency(const kernel& k, int device, int blocks, int room) : room_(room), unused_(blocks) {
        occupation& o = all();
        std::unique_lock lock(o.mutex);
        if (!o.changed.wait_for(lock, patience_of_launches(), [&] { return o.blocks_on(device) + blocks <= room; }))
            stop("deadlock: " + std::string(k.name) + " has waited for room for " + std::to_string(blocks) +
                 " blocks on device " + std::to_string(device) + ", which holds " + std::to_string(room) +
                 " and runs " + o.names_on(device));
        grid_ = o.running.insert(o.running.end(), {&k, blocks, device});
    }
    residency(const residency&) = delete;
    residency& operator=(const residency&) = delete;
    bool take() override {
        occupation& o = all();
        const std::lock_guard lock(o.mutex);
        if (unused_ > 0) return --unused_, true;
        if (o.blocks_on(grid_->device) >= room_) return false;
        ++grid_->blocks;
        return true;
    }
    void give() override {
        occupation& o = all();
        const std::lock_guard lock(o.mutex);
        --grid_->blocks;
        o.changed.notify_all();
    }
    ~residency() override {
        occupation& o = all();
        const std::lock_guard lock(o.mutex);
        o.running.erase(grid_);
        o.changed.notify_all();
    }

private:
    std::list<occupation::grid>::iterator grid_;
    const int room_;
    int unused_;  ///< blocks that have room and have not begun
};

/// Functions of the host and the names of their kernels; likewise variables. Filled before main.
struct symbols {
    std::map<const void*, std::string> kernels, variables;
};
symbols& known() {
    static symbols* const s = new symbols;
    return *s;
}

const kernel* kernel_of(const void* host) {
    const auto i = known().kernels.find(host);
    return i == known().kernels.end() ? nullptr : find_kernel(i->second);
}

struct configuration {
    dim3 grid, block;
    std::size_t shared;
    cudaStream_t stream;
};
thread_local std::vector<configuration> configurations;

cudaError_t launch(
    const void* f, dim3 grid, dim3 block, void** args, std::size_t shared, cudaStream_t handle, bool cooperative) {
    const kernel* const k = kernel_of(f);
    if (k == nullptr) return cudaErrorInvalidDeviceFunction;
    const dim g{grid.x, grid.y, grid.z}, b{block.x, block.y, block.z};
    if (g.count() == 0 || b.count() == 0 || b.count() > 1024) return cudaErrorInvalidConfiguration;
    if (static_cast<int>(b.count()) > k->max_threads) return cudaErrorLaunchOutOfResources;
    if (shared + static_cast<std::size_t>(k->shared_bytes) > (std::size_t{227} << 10)) return cudaErrorInvalidValue;
    const auto s = stream_of(handle);
    if (!s) return cudaErrorInvalidResourceHandle;
    const int device = device_of(*s),
              room = multiprocessors() * blocks_a_multiprocessor(*k, static_cast<unsigned>(b.count()));
    if (cooperative && g.count() > static_cast<std::size_t>(room)) return cudaErrorCooperativeLaunchTooLarge;
    if (device != current_device()) return cudaErrorInvalidResourceHandle;
    // Arguments are copied when the kernel is launched.
    auto kept = std::make_shared<std::vector<std::vector<unsigned char>>>();
    for (std::size_t i = 0; i < k->parameters.size(); ++i) {
        const auto* const from = static_cast<const unsigned char*>(args[i]);
        kept->emplace_back(from, from + k->parameters[i]);
    }
    return enqueue(handle, [=] {
        residency here(*k, device, cooperative ? static_cast<int>(g.count()) : 1, room);
        std::vector<unsigned char*> arguments;
        for (auto& a : *kept) arguments.push_back(a.data());
        order& now = order_of_work();
        now = run_grid(*k, arguments.data(), g, b, shared, device, now, cooperative ? nullptr : &here);
    });
}

}  // namespace

std::string running_kernels(int device) {
    occupation& o = all();
    const std::lock_guard lock(o.mutex);
    return o.names_on(device);
}

void wait_for_kernels(int device, const char* call) {
    occupation& o = all();
    std::unique_lock lock(o.mutex);
    if (o.changed.wait_for(lock, std::chrono::duration<double>(patience()), [&] { return o.is_idle(device); })) return;
    stop("deadlock: " + std::string(call) + " has waited for the kernels of device " + std::to_string(device) + ": " +
         o.names_on(device) + ". Do they wait for the thread that makes this call?");
}

}  // namespace emulated

using namespace emulated;

extern "C" {

// What nvcc's host code calls before main, and for f<<<...>>>(...).
void** __cudaRegisterFatBinary(void*) {
    static void* handle = nullptr;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterFunction(
    void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
    known().kernels[host] = name;
}
void __cudaRegisterVar(void**, char* host, char*, const char* name, int, std::size_t, int, int) {
    known().variables[host] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, void* stream) {
    configurations.push_back({grid, block, shared, static_cast<cudaStream_t>(stream)});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
    if (configurations.empty()) return fail(cudaErrorInvalidConfiguration);
    const configuration c = configurations.back();
    configurations.pop_back();
    *grid = c.grid;
    *block = c.block;
    *shared = c.shared;
    *static_cast<cudaStream_t*>(stream) = c.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* k, const void* host) {
    *k = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void** args, std::size_t shared, cudaStream_t s) {
    EMULATED_CALL("cudaLaunchKernel");
    return fail(launch(k, grid, block, args, shared, s, false));
}

cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** args, std::size_t shared, cudaStream_t s) {
    EMULATED_CALL("cudaLaunchKernel");
    return fail(launch(f, grid, block, args, shared, s, false));
}
cudaError_t cudaLaunchCooperativeKernel(
    const void* f, dim3 grid, dim3 block, void** args, std::size_t shared, cudaStream_t s) {
    EMULATED_CALL("cudaLaunchCooperativeKernel");
    return fail(launch(f, grid, block, args, shared, s, true));
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** args) {
    EMULATED_CALL("cudaLaunchKernelExC");
    bool cooperative = false;
    for (unsigned i = 0; i < c->numAttrs; ++i) switch (c->attrs[i].id) {
            case cudaLaunchAttributeCooperative:
                cooperative = c->attrs[i].val.cooperative != 0;
                break;
            case cudaLaunchAttributeMemSyncDomain:  // which traffic a fence waits for: of no consequence to results
            case cudaLaunchAttributePriority:
            case cudaLaunchAttributeIgnore:
                break;
            default:
                stop("cudaLaunchKernelExC: attribute " + std::to_string(static_cast<int>(c->attrs[i].id)) +
                     " is not emulated: add it to launches.cpp");
        }
    return fail(launch(f, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream, cooperative));
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* f) {
    EMULATED_CALL("cudaFuncGetAttributes");
    const kernel* const k = kernel_of(f);
    if (k == nullptr) return fail(cudaErrorInvalidDeviceFunction);
    *a = {};
    a->maxThreadsPerBlock = k->max_threads;
    a->sharedSizeBytes = static_cast<std::size_t>(k->shared_bytes);
    a->numRegs = 64;
    a->ptxVersion = a->binaryVersion = 90;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* f, cudaFuncAttribute, int) {
    EMULATED_CALL("cudaFuncSetAttribute");
    return kernel_of(f) != nullptr ? cudaSuccess : fail(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void* f, int threads, std::size_t) {
    EMULATED_CALL("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    const kernel* const k = kernel_of(f);
    if (k == nullptr) return fail(cudaErrorInvalidDeviceFunction);
    *n = blocks_a_multiprocessor(*k, static_cast<unsigned>(threads));
    return cudaSuccess;
}
cudaError_t cudaGetSymbolAddress(void** at, const void* symbol) {
    EMULATED_CALL("cudaGetSymbolAddress");
    const auto i = known().variables.find(symbol);
    *at = i == known().variables.end() ? nullptr : find_variable(i->second, current_device());
    return *at != nullptr ? cudaSuccess : fail(cudaErrorInvalidSymbol);
}

}  // extern "C"
