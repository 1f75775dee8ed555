// Memory that one device, or one process, lets another reach.
#include "runtime.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace emulated {

namespace {

/// The content of a cudaIpcMemHandle_t: the file that the owner's process has open, and its name, because the
/// descriptor's number may be used again. Nothing is left when processes end.
struct ipc_handle {
    int process, file, device, number;
    std::size_t bytes;
};
static_assert(sizeof(ipc_handle) <= sizeof(cudaIpcMemHandle_t));

struct books {
    std::mutex mutex;
    std::set<std::pair<int, int>> peers;  ///< (device, the other device whose memory it reaches)
    struct opened {
        std::size_t mapped = 0;
        int times = 0;
    };
    std::map<const void*, opened> open;
    std::map<std::pair<int, int>, void*> by_owner;  ///< by process, and number of the allocation
};
books& all() {
    static books* const b = new books;
    return *b;
}

/// The number in the name of device memory's file (devices.cpp); -1: it is no such file.
int number_of_file(int file) {
    char name[64] = {};
    const std::string path = "/proc/self/fd/" + std::to_string(file);
    int number = -1;
    if (readlink(path.c_str(), name, sizeof name - 1) < 0 || std::sscanf(name, "/memfd:emulated-%d", &number) != 1)
        return -1;
    return number;
}

bool devices_are_connected() { return setting("EMULATED_PEERS", 1) != 0 && !are_slices(); }

/// Memory of the runtime's pools stays with its device; that of cudaMalloc is reached once peer access is enabled; that
/// of cuMemCreate by the devices that cuMemSetAccess names.
bool may_access(int device, const allocation& a) {
    if (a.device == device || a.kind == memory_kind::pinned || a.kind == memory_kind::managed) return true;
    if (const auto mapping = access_to_mapping(device, a.address)) return *mapping;
    if (is_pool_memory(reinterpret_cast<const void*>(a.address))) return false;
    if (a.kind == memory_kind::mapped) return devices_are_connected();
    books& b = all();
    const std::lock_guard lock(b.mutex);
    return b.peers.contains({device, a.device});
}
[[gnu::constructor(102)]] void rule() { set_access_rule(&may_access); }

}  // namespace

}  // namespace emulated

using namespace emulated;

extern "C" {

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    EMULATED_CALL("cudaDeviceCanAccessPeer");
    if (!is_device(device) || !is_device(peer)) return fail(cudaErrorInvalidDevice);
    *can = device != peer && devices_are_connected();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr what, int device, int peer) {
    EMULATED_CALL("cudaDeviceGetP2PAttribute");
    if (!is_device(device) || !is_device(peer) || device == peer) return fail(cudaErrorInvalidDevice);
    if (what != cudaDevP2PAttrAccessSupported && what != cudaDevP2PAttrNativeAtomicSupported)
        return fail(cudaErrorInvalidValue);
    *value = devices_are_connected();
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    EMULATED_CALL("cudaDeviceEnablePeerAccess");
    const int device = current_device();
    if (!is_device(peer) || peer == device) return fail(cudaErrorInvalidDevice);
    if (flags != 0) return fail(cudaErrorInvalidValue);
    if (!devices_are_connected()) return fail(cudaErrorPeerAccessUnsupported);
    books& b = all();
    const std::lock_guard lock(b.mutex);
    if (!b.peers.insert({device, peer}).second) return fail(cudaErrorPeerAccessAlreadyEnabled);
    forget_access();
    return cudaSuccess;
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    EMULATED_CALL("cudaDeviceDisablePeerAccess");
    books& b = all();
    const std::lock_guard lock(b.mutex);
    if (b.peers.erase({current_device(), peer}) == 0) return fail(cudaErrorPeerAccessNotEnabled);
    forget_access();
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* at) {
    EMULATED_CALL("cudaIpcGetMemHandle");
    const auto a = find_allocation(at);
    if (!a || a->kind != memory_kind::device) return fail(cudaErrorInvalidValue);
    const int file = file_of(reinterpret_cast<const void*>(a->address));
    if (file < 0) return fail(cudaErrorInvalidValue);  // memory of a pool
    *handle = {};
    const ipc_handle h{getpid(), file, physical_device(a->device), number_of_file(file), a->bytes};
    std::memcpy(handle, &h, sizeof h);
    share_allocation(at);
    return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** at, cudaIpcMemHandle_t handle, unsigned) {
    EMULATED_CALL("cudaIpcOpenMemHandle");
    ipc_handle h{};
    std::memcpy(&h, &handle, sizeof h);
    if (h.process == getpid()) return fail(cudaErrorDeviceUninitialized);  // as the runtime: not within one process
    if (h.device != physical_device(current_device()) && !devices_are_connected())
        return fail(cudaErrorPeerAccessUnsupported);
    books& b = all();
    const std::lock_guard lock(b.mutex);
    if (void* const known = b.by_owner[{h.process, h.number}]; known != nullptr) {
        ++b.open[known].times;
        *at = known;
        return cudaSuccess;
    }
    const std::string path = "/proc/" + std::to_string(h.process) + "/fd/" + std::to_string(h.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0 || number_of_file(file) != h.number) {
        if (file >= 0) close(file);
        return fail(cudaErrorInvalidResourceHandle);  // it has been freed
    }
    const std::size_t mapped = (h.bytes + 4095) / 4096 * 4096;
    void* const memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return fail(cudaErrorMapBufferObjectFailed);
    add_allocation(memory, h.bytes, h.device, memory_kind::mapped);
    share_allocation(memory);
    b.open[memory] = {mapped, 1};
    b.by_owner[{h.process, h.number}] = memory;
    count_live("memory of another process", 1);
    *at = memory;
    return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* at) {
    EMULATED_CALL("cudaIpcCloseMemHandle");
    books& b = all();
    std::unique_lock lock(b.mutex);
    auto i = b.open.find(at);
    if (i == b.open.end()) return fail(cudaErrorInvalidValue);
    if (i->second.times == 1) {  // it may be opened, or closed, meanwhile
        lock.unlock();
        for (int d = 0; d < device_count(); ++d) wait_for_device(d, "cudaIpcCloseMemHandle");
        lock.lock();
        i = b.open.find(at);
        if (i == b.open.end()) return fail(cudaErrorInvalidValue);
    }
    if (--i->second.times > 0) return cudaSuccess;
    std::erase_if(b.by_owner, [&](const auto& x) { return x.second == at; });
    remove_allocation(at);
    unmap_for_good(at, i->second.mapped);
    b.open.erase(i);
    count_live("memory of another process", -1);
    return cudaSuccess;
}

}  // extern "C"
