// The driver's functions for memory, addresses and mappings apart from each other, and for multicast memory. What
// cudaGetDriverEntryPoint hands out of them.
//
// A handle of memory is mapped once, whole, and before the multicast object that it is bound to; other uses stop the
// program, as they are not emulated. Memory is a file, which another process maps, too; so is what processes know of a
// multicast object.
#include "runtime.hpp"

#include <cuda.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace emulated {

namespace {

constexpr std::size_t granule = std::size_t{2} << 20;

/// What all processes know of a multicast object; it begins with zeros.
struct shared_team {
    struct member {
        std::atomic<int> is_added;
        std::atomic<int> process;  ///< whose memory is bound; 0: none
        int file;                  ///< of that memory
        ino_t number;
    };
    unsigned devices;
    std::size_t bytes;
    member of[64];  ///< by the number of the device on the machine

    unsigned added() const {
        unsigned n = 0;
        for (const member& m : of) n += m.is_added.load() != 0;
        return n;
    }
};
/// Memory of another process that a multicast object maps.
struct foreign_memory {
    void* at;
    std::size_t bytes;
};

/// Memory of a device, or a multicast object.
struct object {
    std::size_t bytes = 0;
    int device = -1;        ///< of memory: its number on the machine, if it is imported
    int file = -1;          ///< of memory, or of the team
    bool imported = false;  ///< from another process
    CUmemAllocationProp properties{};
    shared_team* team = nullptr;              ///< of a multicast object; null: memory
    std::map<int, unsigned long long> bound;  ///< memory of this process's devices
    std::vector<foreign_memory> foreign;
    int uses = 0;     ///< mappings and bindings, which outlive its handle
    int holders = 1;  ///< handles that the program has not released
    bool was_mapped = false;
    CUdeviceptr at = 0;  ///< where it is mapped; 0: nowhere
};
struct mapping {
    unsigned long long of = 0;
    std::set<int> access;
};
const char* kind_of(const object& o) {
    return o.team       ? "multicast objects"
           : o.imported ? "memory of cuMemImportFromShareableHandle"
                        : "memory of cuMemCreate";
}
/// The content of a CUmemFabricHandle: see ipc_handle of sharing.cpp.
struct fabric_handle {
    int process, file;
    ino_t number;
};
static_assert(sizeof(fabric_handle) <= 64);

struct books {
    std::mutex mutex;
    unsigned long long last = 0;
    std::map<unsigned long long, object> objects;
    std::map<CUdeviceptr, std::size_t> reserved;
    std::map<CUdeviceptr, mapping> mapped;

    object* find(unsigned long long handle) {
        const auto i = objects.find(handle);
        return i == objects.end() ? nullptr : &i->second;
    }
    /// The object of a handle that the program still holds.
    object* held(unsigned long long handle) {
        object* const o = find(handle);
        return o == nullptr || o->holders == 0 ? nullptr : o;
    }
    /// The mappings that make up a range; none if it is not made of whole ones.
    std::vector<CUdeviceptr> pieces(CUdeviceptr at, std::size_t bytes) {
        std::vector<CUdeviceptr> found;
        for (const CUdeviceptr end = at + bytes; at < end;) {
            const auto i = mapped.find(at);
            const std::size_t whole = i == mapped.end() ? 0 : find(i->second.of)->bytes;
            if (whole == 0 || whole > end - at) return {};
            found.push_back(at);
            at += whole;
        }
        return found;
    }
    void end_if_unused(unsigned long long handle) {
        const object& o = objects[handle];
        if (o.holders > 0 || o.uses > 0) return;
        count_live(kind_of(o), -1);
        const std::map<int, unsigned long long> bound = o.bound;  // what it still binds is unbound with it
        if (o.team) {
            for (const auto& [device, memory] : bound) o.team->of[physical_device(device)].process = 0;
            munmap(o.team, sizeof *o.team);
        }
        if (o.file >= 0) close(o.file);
        objects.erase(handle);
        for (const auto& [device, memory] : bound) {
            --objects[memory].uses;
            end_if_unused(memory);
        }
    }
};
books& all() {
    static books* const b = new books;
    return *b;
}

#define EMULATED_DRIVER_CALL(name)      \
    static_assert(is_known_call(name)); \
    if (injected(name) != cudaSuccess) return CUDA_ERROR_UNKNOWN;

bool has_multicast() { return setting("EMULATED_MULTICAST", 1) != 0; }
bool has_fabric() { return setting("EMULATED_FABRIC", 1) != 0; }
constexpr unsigned exportable = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
bool is_whole(std::size_t bytes) { return bytes > 0 && bytes % granule == 0; }
/// The memory that another process has opened as that number; -1: it is closed, or another one.
int opened_of(int process, int file, ino_t number) {
    const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
    const int own = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct stat s{};
    if (own >= 0 && (fstat(own, &s) != 0 || s.st_ino != number)) return close(own), -1;
    return own;
}
/// A multicast object's file, mapped. Null where that fails.
shared_team* team_in(int file) {
    void* const at = mmap(nullptr, sizeof(shared_team), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return at == MAP_FAILED ? nullptr : static_cast<shared_team*>(at);
}
/// As calls do that change the memory map.
void wait_for_all_kernels(const char* call) {
    for (int d = 0; d < device_count(); ++d) wait_for_kernels(d, call);
}

CUresult device_get(CUdevice* device, int number) {
    EMULATED_DRIVER_CALL("cuDeviceGet")
    if (!is_device(number)) return CUDA_ERROR_INVALID_DEVICE;
    *device = number;
    return CUDA_SUCCESS;
}
CUresult device_get_uuid(CUuuid* uuid, CUdevice device) {
    EMULATED_DRIVER_CALL("cuDeviceGetUuid")
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *uuid = uuid_of(device);
    return CUDA_SUCCESS;
}
CUresult device_get_attribute(int* value, CUdevice_attribute what, CUdevice device) {
    EMULATED_DRIVER_CALL("cuDeviceGetAttribute")
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (what != CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)
        stop("cuDeviceGetAttribute: attribute " + std::to_string(static_cast<int>(what)) +
             " is not emulated: add it to virtual_memory.cpp");
    *value = has_multicast();
    return CUDA_SUCCESS;
}

CUresult multicast_granularity(std::size_t* bytes, const CUmulticastObjectProp* p, CUmulticastGranularity_flags) {
    EMULATED_DRIVER_CALL("cuMulticastGetGranularity")
    if (!has_multicast()) return CUDA_ERROR_NOT_SUPPORTED;
    if (p->numDevices == 0 || p->size == 0) return CUDA_ERROR_INVALID_VALUE;
    *bytes = granule;
    return CUDA_SUCCESS;
}
CUresult multicast_create(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* p) {
    EMULATED_DRIVER_CALL("cuMulticastCreate")
    if (!has_multicast()) return CUDA_ERROR_NOT_SUPPORTED;
    if (p->numDevices == 0 || static_cast<int>(p->numDevices) > setting("EMULATED_DEVICES", 1) || !is_whole(p->size) ||
        p->flags != 0 || (p->handleTypes & ~exportable) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    object o;
    o.file = memfd_create("emulated-multicast", MFD_CLOEXEC);
    if (o.file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (ftruncate(o.file, sizeof(shared_team)) != 0 || !(o.team = team_in(o.file)))
        return close(o.file), CUDA_ERROR_OUT_OF_MEMORY;
    o.bytes = o.team->bytes = p->size;
    o.team->devices = p->numDevices;
    o.properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(p->handleTypes);
    books& b = all();
    const std::lock_guard lock(b.mutex);
    b.objects[*handle = ++b.last] = o;
    count_live("multicast objects", 1);
    return CUDA_SUCCESS;
}
CUresult multicast_add_device(CUmemGenericAllocationHandle handle, CUdevice device) {
    EMULATED_DRIVER_CALL("cuMulticastAddDevice")
    books& b = all();
    const std::lock_guard lock(b.mutex);
    object* const o = b.held(handle);
    if (o == nullptr || !o->team || o->team->added() == o->team->devices) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device) || o->team->of[physical_device(device)].is_added.exchange(1) != 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return CUDA_SUCCESS;
}
CUresult multicast_bind(CUmemGenericAllocationHandle handle, std::size_t offset, CUmemGenericAllocationHandle memory,
    std::size_t memory_offset, std::size_t bytes, unsigned long long flags) {
    EMULATED_DRIVER_CALL("cuMulticastBindMem")
    books& b = all();
    const std::lock_guard lock(b.mutex);
    object *const o = b.held(handle), *const m = b.held(memory);
    if (o == nullptr || m == nullptr || !o->team || m->team || m->imported || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (offset % granule != 0 || memory_offset % granule != 0 || !is_whole(bytes) || offset + bytes > o->bytes ||
        memory_offset + bytes > m->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (o->team->added() < o->team->devices) return CUDA_ERROR_ILLEGAL_STATE;  // all devices come first
    shared_team::member& there = o->team->of[physical_device(m->device)];
    if (there.is_added == 0 || there.process != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (offset != 0 || memory_offset != 0 || bytes != o->bytes || bytes != m->bytes)
        stop("cuMulticastBindMem: to bind a part of an object is not emulated");
    o->bound[m->device] = memory;
    struct stat s{};
    fstat(m->file, &s);
    there.file = m->file;
    there.number = s.st_ino;
    there.process = getpid();
    ++m->uses;
    return CUDA_SUCCESS;
}
CUresult multicast_unbind(CUmemGenericAllocationHandle handle, CUdevice device, std::size_t offset, std::size_t bytes) {
    EMULATED_DRIVER_CALL("cuMulticastUnbind")
    books& b = all();
    const std::lock_guard lock(b.mutex);
    object* const o = b.held(handle);
    if (o == nullptr || offset != 0 || bytes != o->bytes) return CUDA_ERROR_INVALID_VALUE;
    const auto i = o->bound.find(device);
    if (i == o->bound.end()) return CUDA_ERROR_INVALID_DEVICE;
    if (o->at != 0) stop("cuMulticastUnbind: the multicast object is mapped: that is not emulated");
    const unsigned long long memory = i->second;
    o->bound.erase(i);
    o->team->of[physical_device(device)].process = 0;
    --b.find(memory)->uses;
    b.end_if_unused(memory);
    return CUDA_SUCCESS;
}

CUresult memory_granularity(std::size_t* bytes, const CUmemAllocationProp* p, CUmemAllocationGranularity_flags) {
    EMULATED_DRIVER_CALL("cuMemGetAllocationGranularity")
    if (p->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    *bytes = granule;
    return CUDA_SUCCESS;
}
CUresult memory_create(
    CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* p, unsigned long long flags) {
    EMULATED_DRIVER_CALL("cuMemCreate")
    if (p->type != CU_MEM_ALLOCATION_TYPE_PINNED || p->location.type != CU_MEM_LOCATION_TYPE_DEVICE || flags != 0 ||
        !is_whole(bytes) || (p->requestedHandleTypes & ~exportable) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if ((p->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && !has_fabric()) return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_device(p->location.id)) return CUDA_ERROR_INVALID_DEVICE;
    const int file =
        memfd_create(("emulated-memory-" + std::to_string(physical_device(p->location.id))).c_str(), MFD_CLOEXEC);
    if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (ftruncate(file, static_cast<off_t>(bytes)) != 0) return close(file), CUDA_ERROR_OUT_OF_MEMORY;
    books& b = all();
    const std::lock_guard lock(b.mutex);
    object& o = b.objects[*handle = ++b.last];
    o.bytes = bytes;
    o.device = p->location.id;
    o.file = file;
    o.properties = *p;
    count_live(kind_of(o), 1);
    return CUDA_SUCCESS;
}
CUresult memory_retain(CUmemGenericAllocationHandle* handle, void* at) {
    EMULATED_DRIVER_CALL("cuMemRetainAllocationHandle")
    books& b = all();
    const std::lock_guard lock(b.mutex);
    const auto address = reinterpret_cast<CUdeviceptr>(at);
    auto i = b.mapped.upper_bound(address);
    if (i == b.mapped.begin()) return CUDA_ERROR_INVALID_VALUE;
    object& o = *b.find((--i)->second.of);
    if (address - i->first >= o.bytes) return CUDA_ERROR_INVALID_VALUE;
    ++o.holders;
    *handle = i->second.of;
    return CUDA_SUCCESS;
}
CUresult memory_properties(CUmemAllocationProp* p, CUmemGenericAllocationHandle handle) {
    EMULATED_DRIVER_CALL("cuMemGetAllocationPropertiesFromHandle")
    books& b = all();
    const std::lock_guard lock(b.mutex);
    const object* const o = b.held(handle);
    if (o == nullptr || o->team) return CUDA_ERROR_INVALID_VALUE;
    *p = o->properties;
    return CUDA_SUCCESS;
}
CUresult memory_export(
    void* to, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags) {
    EMULATED_DRIVER_CALL("cuMemExportToShareableHandle")
    books& b = all();
    const std::lock_guard lock(b.mutex);
    const object* const o = b.held(handle);
    if (o == nullptr || flags != 0 || (type != 1 && type != CU_MEM_HANDLE_TYPE_FABRIC) ||
        (o->properties.requestedHandleTypes & type) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        struct stat s{};
        fstat(o->file, &s);
        const fabric_handle h{getpid(), o->file, s.st_ino};
        std::memset(to, 0, 64);
        std::memcpy(to, &h, sizeof h);
    } else {
        const int file = fcntl(o->file, F_DUPFD_CLOEXEC, 0);
        if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
        std::memcpy(to, &file, sizeof file);
    }
    if (o->at != 0) share_allocation(reinterpret_cast<void*>(o->at));
    return CUDA_SUCCESS;
}
CUresult memory_import(CUmemGenericAllocationHandle* handle, void* from, CUmemAllocationHandleType type) {
    EMULATED_DRIVER_CALL("cuMemImportFromShareableHandle")
    int file = -1;
    struct stat s{};
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        fabric_handle h{};
        std::memcpy(&h, from, sizeof h);
        file = opened_of(h.process, h.file, h.number);
    } else if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        file = fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(from)), F_DUPFD_CLOEXEC, 0);
    }
    char name[64] = {};
    object o;
    if (file < 0 || fstat(file, &s) != 0 ||
        readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), name, sizeof name - 1) < 0 ||
        (std::string_view(name).starts_with("/memfd:emulated-multicast")
                ? !(o.team = team_in(file))
                : std::sscanf(name, "/memfd:emulated-memory-%d", &o.device) != 1)) {
        if (file >= 0) close(file);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    o.bytes = o.team ? o.team->bytes : static_cast<std::size_t>(s.st_size);
    o.file = file;
    o.imported = true;
    o.properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    books& b = all();
    const std::lock_guard lock(b.mutex);
    b.objects[*handle = ++b.last] = o;
    count_live(kind_of(o), 1);
    return CUDA_SUCCESS;
}
CUresult memory_release(CUmemGenericAllocationHandle handle) {
    EMULATED_DRIVER_CALL("cuMemRelease")
    books& b = all();
    const std::lock_guard lock(b.mutex);
    object* const o = b.held(handle);
    if (o == nullptr) return CUDA_ERROR_INVALID_VALUE;
    --o->holders;
    b.end_if_unused(handle);
    return CUDA_SUCCESS;
}

CUresult address_reserve(
    CUdeviceptr* at, std::size_t bytes, std::size_t alignment, CUdeviceptr wanted, unsigned long long flags) {
    EMULATED_DRIVER_CALL("cuMemAddressReserve")
    if (!is_whole(bytes) || wanted != 0 || flags != 0 || (alignment & (alignment - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < granule) alignment = granule;
    void* const range = mmap(nullptr, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *at = (reinterpret_cast<CUdeviceptr>(range) + alignment - 1) / alignment * alignment;
    books& b = all();
    const std::lock_guard lock(b.mutex);
    b.reserved[*at] = bytes;
    count_live("reserved addresses", 1);
    return CUDA_SUCCESS;
}
CUresult address_free(CUdeviceptr at, std::size_t bytes) {
    EMULATED_DRIVER_CALL("cuMemAddressFree")
    books& b = all();
    const std::lock_guard lock(b.mutex);
    const auto i = b.reserved.find(at);
    const auto first = b.mapped.lower_bound(at);
    if (i == b.reserved.end() || i->second != bytes || (first != b.mapped.end() && first->first < at + bytes))
        return CUDA_ERROR_INVALID_VALUE;
    b.reserved.erase(i);  // the addresses are kept: see unmap_for_good
    count_live("reserved addresses", -1);
    return CUDA_SUCCESS;
}
CUresult memory_map(CUdeviceptr at, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags) {
    EMULATED_DRIVER_CALL("cuMemMap")
    wait_for_all_kernels("cuMemMap");
    books& b = all();
    const std::lock_guard lock(b.mutex);
    object* const o = b.held(handle);
    auto i = b.reserved.upper_bound(at);
    if (o == nullptr || i == b.reserved.begin() || flags != 0 || !is_whole(bytes) || at % granule != 0 ||
        offset % granule != 0 || offset + bytes > o->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (at + bytes > (--i)->first + i->second) return CUDA_ERROR_INVALID_VALUE;
    const auto next = b.mapped.lower_bound(at);
    if (next != b.mapped.end() && next->first < at + bytes) return CUDA_ERROR_INVALID_VALUE;
    if (next != b.mapped.begin() && std::prev(next)->first + b.find(std::prev(next)->second.of)->bytes > at)
        return CUDA_ERROR_INVALID_VALUE;
    if (o->was_mapped || offset != 0 || bytes != o->bytes)
        stop("cuMemMap: to map an object twice, or a part of it, is not emulated");
    if (o->team) {
        for (const shared_team::member& m : o->team->of)
            if (m.is_added != 0 && m.process == 0)
                stop("cuMemMap: a multicast object that has no memory on each device is not emulated");
        for (const auto& [device, memory] : o->bound)
            if (b.find(memory)->at == 0)
                stop("cuMemMap: a multicast object whose memory is not mapped before is not emulated");
    }
    o->at = at;
    o->was_mapped = true;
    ++o->uses;
    b.mapped[at].of = handle;
    return CUDA_SUCCESS;
}
/// Maps the memory that other processes have bound; adds it to `copies`.
CUresult map_foreign(object& o, std::vector<void*>& copies) {
    const std::vector<void*> own = copies;
    for (int d = 0; d < static_cast<int>(std::size(o.team->of)); ++d) {
        const shared_team::member& m = o.team->of[d];
        if (m.process == 0 || m.process == getpid()) continue;
        const int file = opened_of(m.process, m.file, m.number);
        void* const at = mmap(nullptr, o.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (file >= 0) close(file);
        if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
        add_allocation(at, o.bytes, d, memory_kind::mapped);
        share_allocation(at);
        o.foreign.push_back({at, o.bytes});
        copies.push_back(at);
    }
    if (!o.foreign.empty())
        for (void* const at : own) share_allocation(at);
    return CUDA_SUCCESS;
}
CUresult memory_set_access(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count) {
    EMULATED_DRIVER_CALL("cuMemSetAccess")
    wait_for_all_kernels("cuMemSetAccess");
    books& b = all();
    std::set<int> devices;
    for (std::size_t k = 0; k < count; ++k) {
        const CUmemAccessDesc& a = access[k];
        if (a.location.type != CU_MEM_LOCATION_TYPE_DEVICE || !is_device(a.location.id))
            return CUDA_ERROR_INVALID_DEVICE;
        if (a.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) stop("cuMemSetAccess: these rights are not emulated");
        devices.insert(a.location.id);
    }
    {
        const std::lock_guard lock(b.mutex);
        const std::vector<CUdeviceptr> pieces = b.pieces(at, bytes);
        if (pieces.empty() || count == 0) return CUDA_ERROR_INVALID_VALUE;
        for (const CUdeviceptr piece : pieces) {
            mapping& m = b.mapped[piece];
            object& o = *b.find(m.of);
            if (!m.access.empty()) stop("cuMemSetAccess: a second one for the same range is not emulated");
            void* const memory = reinterpret_cast<void*>(piece);
            if (o.team) {
                for (const int d : devices)
                    if (o.team->of[physical_device(d)].is_added == 0) return CUDA_ERROR_INVALID_DEVICE;
                std::vector<void*> copies;
                for (const auto& [device, bound] : o.bound)
                    copies.push_back(reinterpret_cast<void*>(b.find(bound)->at));
                if (const CUresult e = map_foreign(o, copies); e != CUDA_SUCCESS) return e;
                add_multicast(memory, o.bytes, copies);
            } else {
                if (!o.imported && !devices.contains(o.device))
                    stop("cuMemSetAccess: memory that its own device may not access is not emulated");
                if (mmap(memory, o.bytes, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED, o.file, 0) == MAP_FAILED)
                    return CUDA_ERROR_OUT_OF_MEMORY;
                if (!o.imported) std::memset(memory, 0xcd, o.bytes);
                add_allocation(memory, o.bytes, o.device, o.imported ? memory_kind::mapped : memory_kind::device);
                if (o.imported) share_allocation(memory);
            }
            m.access = devices;
        }
    }
    forget_access();
    return CUDA_SUCCESS;
}
CUresult memory_unmap(CUdeviceptr at, std::size_t bytes) {
    EMULATED_DRIVER_CALL("cuMemUnmap")
    wait_for_all_kernels("cuMemUnmap");
    books& b = all();
    const std::lock_guard lock(b.mutex);
    const std::vector<CUdeviceptr> pieces = b.pieces(at, bytes);
    if (pieces.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (const CUdeviceptr piece : pieces) {
        const auto i = b.mapped.find(piece);
        const unsigned long long handle = i->second.of;
        object& o = *b.find(handle);
        if (!i->second.access.empty()) remove_allocation(reinterpret_cast<void*>(piece));
        unmap_for_good(reinterpret_cast<void*>(piece), o.bytes);
        for (const foreign_memory& f : o.foreign) {
            remove_allocation(f.at);
            unmap_for_good(f.at, f.bytes);
        }
        o.foreign.clear();
        b.mapped.erase(i);
        o.at = 0;
        --o.uses;
        b.end_if_unused(handle);
    }
    return CUDA_SUCCESS;
}

#undef EMULATED_DRIVER_CALL

}  // namespace

std::optional<bool> access_to_mapping(int device, std::uintptr_t at) {
    books& b = all();
    const std::lock_guard lock(b.mutex);
    const auto i = b.mapped.find(at);
    if (i == b.mapped.end()) return std::nullopt;
    return i->second.access.contains(device);
}

void* virtual_memory_function(std::string_view name) {
    static const std::map<std::string_view, void*> functions = {
        {"cuDeviceGet", reinterpret_cast<void*>(&device_get)},
        {"cuDeviceGetAttribute", reinterpret_cast<void*>(&device_get_attribute)},
        {"cuDeviceGetUuid", reinterpret_cast<void*>(&device_get_uuid)},
        {"cuMulticastGetGranularity", reinterpret_cast<void*>(&multicast_granularity)},
        {"cuMulticastCreate", reinterpret_cast<void*>(&multicast_create)},
        {"cuMulticastAddDevice", reinterpret_cast<void*>(&multicast_add_device)},
        {"cuMulticastBindMem", reinterpret_cast<void*>(&multicast_bind)},
        {"cuMulticastUnbind", reinterpret_cast<void*>(&multicast_unbind)},
        {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&memory_granularity)},
        {"cuMemCreate", reinterpret_cast<void*>(&memory_create)},
        {"cuMemRelease", reinterpret_cast<void*>(&memory_release)},
        {"cuMemAddressReserve", reinterpret_cast<void*>(&address_reserve)},
        {"cuMemAddressFree", reinterpret_cast<void*>(&address_free)},
        {"cuMemRetainAllocationHandle", reinterpret_cast<void*>(&memory_retain)},
        {"cuMemGetAllocationPropertiesFromHandle", reinterpret_cast<void*>(&memory_properties)},
        {"cuMemExportToShareableHandle", reinterpret_cast<void*>(&memory_export)},
        {"cuMemImportFromShareableHandle", reinterpret_cast<void*>(&memory_import)},
        {"cuMemMap", reinterpret_cast<void*>(&memory_map)},
        {"cuMemSetAccess", reinterpret_cast<void*>(&memory_set_access)},
        {"cuMemUnmap", reinterpret_cast<void*>(&memory_unmap)},
    };
    const auto i = functions.find(name);
    return i == functions.end() ? nullptr : i->second;
}

}  // namespace emulated
