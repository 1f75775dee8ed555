// For which GPU a thread makes connections: a transport with several network cards takes one that is near it.
// IWYU pragma: private
#pragma once

#include <colls/config.hpp>

namespace colls::inline v1::detail {

/// The GPU's PCI address; null: of none.
inline constinit thread_local const char* gpu_of_connections = nullptr;

/// While it lives, its thread makes connections for that GPU.
class connections_for_gpu {
public:
    explicit connections_for_gpu(const char* pci) { gpu_of_connections = pci; }
    connections_for_gpu(const connections_for_gpu&) = delete;
    connections_for_gpu& operator=(const connections_for_gpu&) = delete;
    ~connections_for_gpu() { gpu_of_connections = nullptr; }
};

}  // namespace colls::inline v1::detail
