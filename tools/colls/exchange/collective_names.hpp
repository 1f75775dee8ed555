// The collectives as plans of other libraries spell them.
#pragma once

#include "program.hpp"

#include <colls/any_schedule.hpp>

#include <string>

namespace exchange {

/// From any spelling: allreduce, AllReduce, all_reduce. Throws refused where no plan implements it.
colls::collective collective_of_plan(const std::string& name);
/// In the spelling of MSCCL and MSCCL++: allreduce. Throws refused where no plan implements it.
std::string plan_name(colls::collective c);

/// The place of chunk `index` of a rank's buffer 'i', 'o' or 's', in the numbers of the collective's blocks. Throws
/// refused, with `step` in words, where the buffer has no such chunk or there is no such buffer.
place place_of(const program& p, int rank, const std::string& buffer, int index, int scratch, const std::string& step);

/// Whether a schedule's slots are numbered as a plan's chunks are, so that the user's buffer can be worked on. Throws
/// refused where blocks are not divided equally among the ranks.
bool slots_are_chunks(const colls::any_schedule& s, int n);
/// The buffer in which they are then: 'i' or 'o'.
char buffer_of_slots(colls::collective c);

}  // namespace exchange
