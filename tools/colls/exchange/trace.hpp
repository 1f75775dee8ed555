// Schedules as execution traces for simulators: for each rank the nodes of Chakra's schema (MLCommons).
#pragma once

#include <colls/any_schedule.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace exchange {

/// What a node is, in the numbers of the schema.
enum class node_type : unsigned char { compute = 4, send = 5, receive = 6 };

/// One operation of a rank. A node may run when all those that it names have run.
struct trace_node {
    /// In the types that feeders ask for.
    using value = std::variant<bool, std::int32_t, std::int64_t, std::uint64_t>;

    std::uint64_t id = 0;  ///< from 0, within the rank; a node names only nodes with lower numbers
    std::string name;
    node_type type = node_type::compute;
    std::set<std::uint64_t> data_deps;  ///< nodes whose result it needs
    std::set<std::uint64_t> ctrl_deps;  ///< others that must have read, or written, a slot before it is written
    std::vector<std::pair<std::string, value>> attributes;
};

/// The nodes of each rank. Sends and receives have comm_src, comm_dst, comm_tag, of which there is one for each message
/// of the schedule, and comm_size in bytes; what a rank reduces or copies itself has num_bytes, tensor_size (the bytes
/// that it reads and writes) and num_ops (one for 4 bytes, also of a copy: simulators divide by it). A rank with
/// nothing to do has one compute node of no bytes. `bytes` are those of the user's buffer.
std::vector<std::vector<trace_node>> trace_of(const colls::any_schedule& s, int n, double bytes);

/// The nodes of all ranks as one text of JSON.
std::string write_trace(const colls::any_schedule& s, int n, double bytes, const std::string& name);

/// The nodes as Chakra's execution traces (.et), which ASTRA-sim reads: the content of each rank's file.
std::vector<std::string> write_chakra(const colls::any_schedule& s, int n, double bytes, const std::string& name);

}  // namespace exchange
