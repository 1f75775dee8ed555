// Multicast memory: a range of addresses behind which each device has memory of its own, which the switch reads, folds
// and writes at once (NVLS).
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// The driver has it since CUDA 12.1.
#pragma once

#include <colls/cuda/detail/driver.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace colls::inline v1::cuda::detail {

#if CUDA_VERSION >= 12010

/// Multicast memory of several devices, each of one process, of which this one has `own`. The processes take its steps
/// together: no process begins one before all have ended the previous one. All throw unsupported where devices have
/// none, or a call of the driver fails. Destroy it when no kernel of any process accesses it any more.
class multicast_memory {
public:
    /// `all`: the number of devices.
    multicast_memory(std::size_t all, const std::vector<int>& own) : devices_(own) {
        properties_.numDevices = static_cast<unsigned>(all);
        if (all > own.size()) properties_.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        for (const int d : own) {
            CUdevice device = 0;
            call_driver("cuDeviceGet", &device, d);
            int has = 0;
            call_driver("cuDeviceGetAttribute", &has, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device);
            if (has == 0)
                throw error(errc::unsupported, (error_text() << "device " << d << " has no multicast memory").text());
            shares_.push_back({device, d});
        }
    }
    /// At least `bytes` on each device, all of this process. Its content is undefined.
    multicast_memory(const std::vector<int>& devices, std::uint64_t bytes) : multicast_memory(devices.size(), devices) {
        create(bytes, granule(bytes));
        add();
        bind();
        map();
    }
    multicast_memory(const multicast_memory&) = delete;
    multicast_memory& operator=(const multicast_memory&) = delete;
    ~multicast_memory() {
        unmap(all_);
        for (const share& s : shares_) {
            unmap(s.own);
            if (s.is_bound) try_driver("cuMulticastUnbind", object_, s.device, std::size_t{0}, bytes());
            if (s.memory != 0) try_driver("cuMemRelease", s.memory);
        }
        if (object_ != 0) try_driver("cuMemRelease", object_);
    }

    /// What is mapped or bound is a whole number of granules, of the multicast object and of each device: of the
    /// greatest one in all processes.
    std::size_t granule(std::uint64_t bytes) {
        properties_.size = bytes;
        std::size_t most = 0;
        call_driver("cuMulticastGetGranularity", &most, const_cast<const CUmulticastObjectProp*>(&properties_),
            CU_MULTICAST_GRANULARITY_MINIMUM);
        for (const share& s : shares_) {
            const CUmemAllocationProp memory = memory_of(s);
            std::size_t of_device = 0;
            call_driver("cuMemGetAllocationGranularity", &of_device, &memory, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
            most = of_device > most ? of_device : most;  // all are powers of two
        }
        return most;
    }
    /// In one process.
    void create(std::uint64_t bytes, std::size_t granule) {
        set_size(bytes, granule);
        call_driver("cuMulticastCreate", &object_, const_cast<const CUmulticastObjectProp*>(&properties_));
    }
    /// A descriptor by which the other processes take what this one has created.
    int exported() const {
        int file = -1;
        call_driver("cuMemExportToShareableHandle", static_cast<void*>(&file), object_,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull);
        return file;
    }
    void import(int file, std::uint64_t bytes, std::size_t granule) {
        set_size(bytes, granule);
        call_driver("cuMemImportFromShareableHandle", &object_, reinterpret_cast<void*>(std::intptr_t{file}),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    }
    /// Memory can be bound when all devices are there.
    void add() {
        for (const share& s : shares_) call_driver("cuMulticastAddDevice", object_, s.device);
    }
    void bind() {
        for (share& s : shares_) {
            const device_guard there(s.number);
            const CUmemAllocationProp memory = memory_of(s);
            call_driver("cuMemCreate", &s.memory, bytes(), &memory, 0ull);
            call_driver("cuMulticastBindMem", object_, std::size_t{0}, s.memory, std::size_t{0}, bytes(), 0ull);
            s.is_bound = true;
            map_to(s.own, s.memory, {s.number});
        }
    }
    void map() { map_to(all_, object_, devices_); }

    /// The memory of own[i], for plain accesses by that device.
    std::byte* of(std::size_t i) const { return reinterpret_cast<std::byte*>(shares_[i].own.at); }
    /// The memory of all devices, for multimem accesses.
    std::byte* all() const { return reinterpret_cast<std::byte*>(all_.at); }

private:
    using handle = CUmemGenericAllocationHandle;
    struct mapping {
        CUdeviceptr at = 0;
        bool is_mapped = false;
    };
    struct share {
        CUdevice device = 0;
        int number = 0;  ///< as the runtime knows it
        handle memory = 0;
        mapping own{};
        bool is_bound = false;
    };

    std::size_t bytes() const { return properties_.size; }
    void set_size(std::uint64_t bytes, std::size_t granule) {
        granule_ = granule;
        properties_.size = (bytes + granule - 1) / granule * granule;
    }
    static CUmemAllocationProp memory_of(const share& s) {
        CUmemAllocationProp p{};
        p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        p.location.id = s.number;
        return p;
    }
    void map_to(mapping& m, handle what, const std::vector<int>& devices) {
        call_driver("cuMemAddressReserve", &m.at, bytes(), granule_, CUdeviceptr{0}, 0ull);
        call_driver("cuMemMap", m.at, bytes(), std::size_t{0}, what, 0ull);
        m.is_mapped = true;
        std::vector<CUmemAccessDesc> access(devices.size());
        for (std::size_t i = 0; i < devices.size(); ++i) {
            access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            access[i].location.id = devices[i];
            access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        }
        call_driver("cuMemSetAccess", m.at, bytes(), const_cast<const CUmemAccessDesc*>(access.data()), access.size());
    }
    void unmap(const mapping& m) const noexcept {
        if (m.is_mapped) try_driver("cuMemUnmap", m.at, bytes());
        if (m.at != 0) try_driver("cuMemAddressFree", m.at, bytes());
    }

    const std::vector<int> devices_;
    CUmulticastObjectProp properties_{};
    handle object_ = 0;
    std::size_t granule_ = 0;
    std::vector<share> shares_;
    mapping all_;
};

#else

class multicast_memory {
public:
    multicast_memory(std::size_t, const std::vector<int>&) {
        throw error(
            errc::unsupported, "multicast memory needs CUDA 12.1, and the program was compiled with an older one");
    }
    multicast_memory(const std::vector<int>& devices, std::uint64_t) : multicast_memory(devices.size(), devices) {}
    std::size_t granule(std::uint64_t) const { return 0; }
    void create(std::uint64_t, std::size_t) const {}
    int exported() const { return -1; }
    void import(int, std::uint64_t, std::size_t) const {}
    void add() const {}
    void bind() const {}
    void map() const {}
    std::byte* of(std::size_t) const { return nullptr; }
    std::byte* all() const { return nullptr; }
};

#endif

}  // namespace colls::inline v1::cuda::detail
