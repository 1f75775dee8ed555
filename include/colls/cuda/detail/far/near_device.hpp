// Threads and memory on the NUMA node of a GPU.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/config.hpp>

#include <sched.h>

#include <cctype>
#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>

namespace colls::inline v1::cuda::detail {

/// The cores in a list of the system's, such as "0-15,32-47".
inline cpu_set_t cores_of_list(std::istream&& list) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    std::size_t first = 0;
    for (char separator = ','; separator == ',' && list >> first;) {
        std::size_t last = first;
        if (list.peek() == '-') list.ignore() >> last;
        for (std::size_t c = first; c <= last && c < CPU_SETSIZE; ++c) CPU_SET(c, &cores);
        separator = '\0';
        list.get(separator);
    }
    return cores;
}

/// While it lives, its thread runs on those of its cores that are on the NUMA node of a PCI device. So memory that it
/// touches first is there, and threads that it starts are, for good. Nothing changes where the system does not tell the
/// node, or the thread may not run there.
class near_device {
public:
    /// `address`: such as 0000:1b:00.0. Costs two small files and two system calls.
    explicit near_device(std::string_view address, const std::string& sysfs = "/sys") {
        std::string name(address.substr(address.size() > 12 ? address.size() - 12 : 0));  // CUDA writes a long domain
        for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        int node = -1;
        std::ifstream(sysfs + "/bus/pci/devices/" + name + "/numa_node") >> node;
        if (node < 0 || sched_getaffinity(0, sizeof before_, &before_) != 0) return;
        cpu_set_t here =
            cores_of_list(std::ifstream(sysfs + "/devices/system/node/node" + std::to_string(node) + "/cpulist"));
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
