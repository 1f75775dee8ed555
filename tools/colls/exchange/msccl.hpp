// Plans in MSCCL's XML, which msccl-tools write, and MSCCL and RCCL run.
//
// The facts of the format (Azure/msccl-tools, msccl/language/ir.py; microsoft/msccl, src/graph/connect.cc and
// src/collectives/device/msccl_interpreter.h): an <algo> has a <gpu> for each rank, a gpu thread blocks, a thread block
// at most one rank that it sends to and one that it receives from, on a channel, and steps that run in order. The k-th
// send from a rank to another on a channel meets the k-th receive there. A step may wait for another thread block's
// step (depid, deps), which says that it is done only if it has hasdep. Types: s send, r receive, rcs receive, copy and
// send, rrc receive, reduce and copy, rrs receive, reduce and send without storing it, rrcs all three, cpy local copy,
// re local reduction, nop none.
#pragma once

#include "program.hpp"

#include <colls/any_schedule.hpp>

#include <string>

namespace exchange {

/// Reads a plan. Throws refuted or refused, or std::runtime_error where it is no such XML.
program read_msccl(const std::string& xml);

/// How a plan is written.
struct msccl_options {
    std::string name;
    bool out_of_place = false;  ///< input and output are different buffers
};
/// A schedule on n ranks as such a plan. Throws refused where it cannot be one.
std::string write_msccl(const colls::any_schedule& s, int n, const msccl_options& how);

}  // namespace exchange
