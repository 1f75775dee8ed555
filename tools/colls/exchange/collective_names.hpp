// The collectives as plans of other libraries spell them.
#pragma once

#include "program.hpp"

#include <string>

namespace exchange {

/// From any spelling: allreduce, AllReduce, all_reduce. Throws refused where no plan implements it.
colls::collective collective_of_plan(const std::string& name);
/// In the spelling of MSCCL and MSCCL++: allreduce. Throws refused where no plan implements it.
std::string plan_name(colls::collective c);

/// The place of chunk `index` of a rank's buffer 'i', 'o' or 's', in the numbers of the collective's blocks. Throws
/// refused, with `step` in words, where the buffer has no such chunk or there is no such buffer.
place place_of(const program& p, int rank, const std::string& buffer, int index, int scratch, const std::string& step);

}  // namespace exchange
