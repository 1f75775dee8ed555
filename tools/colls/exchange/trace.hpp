// Schedules as execution traces for simulators: the nodes of Chakra's schema (MLCommons; ASTRA-sim reads it), as JSON.
#pragma once

#include <colls/any_schedule.hpp>

#include <string>

namespace exchange {

/// For each rank a list of nodes: COMM_SEND_NODE and COMM_RECV_NODE with comm_src, comm_dst, comm_tag and comm_size,
/// and COMP_NODE for what the rank reduces or copies itself; `data_deps` name the nodes whose result one needs,
/// `ctrl_deps` those that must have read a slot before it is written. `bytes` are those of the user's buffer. ASTRA-sim
/// wants one protobuf file for each rank: chakra's converter for JSON, or a few lines of Python, write them from this.
std::string write_trace(const colls::any_schedule& s, int n, double bytes, const std::string& name);

}  // namespace exchange
