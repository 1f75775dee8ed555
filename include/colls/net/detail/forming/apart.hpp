// How other parts of the library form groups of processes: on one host, or for threads of their own, on connections
// that no other thread uses.
// IWYU pragma: private
#pragma once

#include <colls/bootstrap/member_exchange.hpp>
#include <colls/communicator.hpp>

#include <atomic>

namespace colls::inline v1::detail {

/// bootstrap(), in programs that have it: those that call world() or bootstrap(), or link the library.
using group_maker = communicator (*)(int rank, int size, member_exchange&);
inline constinit std::atomic<group_maker> bootstrap_of_program{nullptr};
void bring_bootstrap();

/// The group over shared memory where all members are on one host; of no group, on all ranks alike, where they are not,
/// or one of them cannot have the memory, or `wanted` is false, or COLLS_TRANSPORT is tcp. Errors as of bootstrap.
communicator group_of_one_host(int rank, int size, member_exchange& exchange, bool wanted);

/// For which GPU a thread makes connections, its PCI address: a transport with several network cards takes one that is
/// near it. Null: for none.
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
