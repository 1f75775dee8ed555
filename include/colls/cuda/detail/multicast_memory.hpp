// Multicast memory: a range of addresses behind which each device has memory of its own, which the switch reads, folds
// and writes at once (NVLS).
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// The driver has it since CUDA 12.1. Between processes handles would have to be exchanged; here one process has all
// devices.
#pragma once

#include <colls/cuda/detail/driver.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace colls::inline v1::cuda::detail {

#if CUDA_VERSION >= 12010

/// Multicast memory of several devices of this process. Throws unsupported where they have none, or a call of the
/// driver fails; then nothing stays allocated. Destroy it when no kernel accesses it any more.
class multicast_memory {
public:
    /// At least `bytes` on each device. Its content is undefined.
    multicast_memory(const std::vector<int>& devices, std::uint64_t bytes) : multicast_memory() {
        for (const int d : devices) {
            CUdevice device = 0;
            call_driver("cuDeviceGet", &device, d);
            int has = 0;
            call_driver("cuDeviceGetAttribute", &has, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device);
            if (has == 0)
                throw error(errc::unsupported, (error_text() << "device " << d << " has no multicast memory").text());
            shares_.push_back({device, d});
        }
        // Whatever is mapped or bound is a whole number of granules, of the multicast object and of each device.
        CUmulticastObjectProp object{};
        object.numDevices = static_cast<unsigned>(devices.size());
        object.size = bytes;
        std::size_t granule = 0;
        call_driver("cuMulticastGetGranularity", &granule, const_cast<const CUmulticastObjectProp*>(&object),
            CU_MULTICAST_GRANULARITY_MINIMUM);
        for (const share& s : shares_) {
            const CUmemAllocationProp memory = memory_of(s);
            std::size_t of_device = 0;
            call_driver("cuMemGetAllocationGranularity", &of_device, &memory, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
            granule = of_device > granule ? of_device : granule;  // both are powers of two
        }
        bytes_ = object.size = (bytes + granule - 1) / granule * granule;
        call_driver("cuMulticastCreate", &object_, const_cast<const CUmulticastObjectProp*>(&object));
        // Memory can be bound when all devices are there.
        for (const share& s : shares_) call_driver("cuMulticastAddDevice", object_, s.device);
        for (share& s : shares_) {
            const device_guard there(s.number);
            const CUmemAllocationProp memory = memory_of(s);
            call_driver("cuMemCreate", &s.memory, bytes_, &memory, 0ull);
            call_driver("cuMulticastBindMem", object_, std::size_t{0}, s.memory, std::size_t{0}, bytes_, 0ull);
            s.is_bound = true;
            map(s.own, s.memory, granule, {s.number});
        }
        map(all_, object_, granule, devices);
    }
    multicast_memory(const multicast_memory&) = delete;
    multicast_memory& operator=(const multicast_memory&) = delete;
    ~multicast_memory() {
        unmap(all_);
        for (const share& s : shares_) {
            unmap(s.own);
            if (s.is_bound) try_driver("cuMulticastUnbind", object_, s.device, std::size_t{0}, bytes_);
            if (s.memory != 0) try_driver("cuMemRelease", s.memory);
        }
        if (object_ != 0) try_driver("cuMemRelease", object_);
    }

    /// The memory of devices[i], for plain accesses by that device.
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

    // The destructor runs, too, if the other constructor throws behind this one.
    multicast_memory() = default;

    static CUmemAllocationProp memory_of(const share& s) {
        CUmemAllocationProp p{};
        p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        p.location.id = s.number;
        return p;
    }
    void map(mapping& m, handle what, std::size_t alignment, const std::vector<int>& devices) {
        call_driver("cuMemAddressReserve", &m.at, bytes_, alignment, CUdeviceptr{0}, 0ull);
        call_driver("cuMemMap", m.at, bytes_, std::size_t{0}, what, 0ull);
        m.is_mapped = true;
        std::vector<CUmemAccessDesc> access(devices.size());
        for (std::size_t i = 0; i < devices.size(); ++i) {
            access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            access[i].location.id = devices[i];
            access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        }
        call_driver("cuMemSetAccess", m.at, bytes_, const_cast<const CUmemAccessDesc*>(access.data()), access.size());
    }
    void unmap(const mapping& m) const noexcept {
        if (m.is_mapped) try_driver("cuMemUnmap", m.at, bytes_);
        if (m.at != 0) try_driver("cuMemAddressFree", m.at, bytes_);
    }

    std::size_t bytes_ = 0;
    handle object_ = 0;
    std::vector<share> shares_;
    mapping all_;
};

#else

class multicast_memory {
public:
    multicast_memory(const std::vector<int>&, std::uint64_t) {
        throw error(
            errc::unsupported, "multicast memory needs CUDA 12.1, and the program was compiled with an older one");
    }
    std::byte* of(std::size_t) const { return nullptr; }
    std::byte* all() const { return nullptr; }
};

#endif

}  // namespace colls::inline v1::cuda::detail
