// The XML file in which NCCL describes a host (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE), as a network.
#pragma once

#include <colls/simulate.hpp>

#include <string>

namespace tool {

/// What the file does not say.
struct nccl_hosts {
    int count = 1;               ///< of equal hosts
    double latency = 0;          ///< seconds, of each link within a host
    double network_latency = 0;  ///< seconds, of a link between a network card and its switch
    double between_cpus = 10e9;  ///< bytes a second, between the processors of a host
};

/// The GPUs of all hosts are the ranks, ordered by host and by `dev`. Links are those of PCIe, NVLink, xGMI, C2C and
/// between processors, with the bandwidths of NCCL and RCCL; the i-th network cards of all hosts share a switch. What
/// the file describes and is not known here is named on stderr. Throws std::runtime_error that says what is wrong.
colls::simulation::topology nccl_topology(const std::string& xml, const nccl_hosts& hosts);

}  // namespace tool
