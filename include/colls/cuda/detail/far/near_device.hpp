// Threads and memory on the NUMA node of a GPU.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cards/detail/nearest_card.hpp>

#include <sched.h>

#include <string>
#include <string_view>

namespace colls::inline v1::cuda::detail {

/// While it lives, its thread runs on those of its cores that are on the NUMA node of a PCI device. So memory that it
/// touches first is there, and threads that it starts are, for good. Nothing changes where the system does not tell the
/// node, or the thread may not run there.
class near_device {
public:
    /// `address`: such as 0000:1b:00.0. Costs two small files, a link, and two system calls.
    explicit near_device(std::string_view address, const std::string& sysfs = "/sys") {
        const v1::detail::rdma::pci_tree pci(sysfs);
        cpu_set_t here = pci.cores_near(pci.path_of(address));
        if (CPU_COUNT(&here) == 0 || sched_getaffinity(0, sizeof before_, &before_) != 0) return;
        CPU_AND(&here, &here, &before_);
        moved_ = CPU_COUNT(&here) > 0 && sched_setaffinity(0, sizeof here, &here) == 0;
    }
    near_device(const near_device&) = delete;
    near_device& operator=(const near_device&) = delete;
    ~near_device() {
        if (moved_) sched_setaffinity(0, sizeof before_, &before_);
    }

private:
    cpu_set_t before_;
    bool moved_ = false;
};

}  // namespace colls::inline v1::cuda::detail
