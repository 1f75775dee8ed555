// Execution plans of MSCCL++ (JSON).
//
// The facts of the format (microsoft/mscclpp, src/core/executor/execution_plan.cc, python/mscclpp/language): a gpu has
// thread blocks with operations, channels to other gpus (the k-th channel from a to b belongs to the k-th one from b to
// a), and remote buffers. An operation names channels and remote buffers by their position in its thread block's
// lists. put stores into a remote buffer, get reads from one, re, rre, res and rres reduce local and remote chunks into
// the first destination and store it into the others; signal and wait count on a channel; those on packets (ppkt, upkt,
// repkt, respkt, ...) wait for the packets that they read.
//
// One-sided operations have no rounds. A put is a message that its sender writes at once, a get one that its receiver
// reads at once; what orders them is that the k-th wait on a channel comes after the k-th signal there. So a plan is a
// graph of steps as any other, and rounds follow as for those.
#pragma once

#include "program.hpp"

#include <colls/any_schedule.hpp>

#include <functional>
#include <string>

namespace exchange {

/// Reads a plan, and hands it on: as it is imported, and then with chunks of other sizes, in words. Thread blocks that
/// share operations, and the iterations of pipelines, divide chunks by their sizes; a plan is right if it is right with
/// all of these. Throws refuted or refused.
void read_mscclpp(const std::string& text, const std::function<void(program, const std::string&)>& each);

/// A schedule on n ranks as such a plan, in place, of one thread block a gpu: every rank reads from the others what it
/// receives. Throws refused where it cannot be one.
std::string write_mscclpp(const colls::any_schedule& s, int n, const std::string& name);

}  // namespace exchange
