// Schedules made for one network: a search, whose result is a list of transfers.
#pragma once

#include "exchange/transfer_table.hpp"

#include <colls/simulate.hpp>

#include <cstdint>

namespace tool {

/// What to make.
struct synthesis {
    colls::collective what = colls::collective::all_gather;  ///< or reduce_scatter, all_reduce, broadcast, reduce
    int ranks = 0;                                           ///< the first ones of the network
    int cut = 1;             ///< blocks into which each rank's block is cut; of a broadcast or reduce, the buffer
    int tries = 4;           ///< searches with other random numbers, of which the shortest result is taken
    std::uint64_t seed = 1;  ///< the same seed gives the same schedule
};

/// A schedule on the first ranks of a network, whose root is rank 0. Time is cut into rounds, in which the slowest of
/// the links carries one block, or a few, and faster ones more. In each round ranks that lack blocks are given some by
/// neighbours that had them before the round, while the links of the routes between them have room: the block that the
/// fewest ranks have goes first, by the neighbour that has the fewest to offer. (Won et al., "TACOS: Topology-Aware
/// Collective Algorithm Synthesizer for Distributed Machine Learning", MICRO 2024, matches links and chunks so.) A
/// reduction is the same search on the network with all links turned round, run backwards. O(transfers x neighbours x
/// blocks / 64). The caller proves the result. Throws std::runtime_error for another collective, and where there is
/// but one rank.
exchange::transfer_table synthesised(const synthesis& of, const colls::simulation::topology& on);

/// Seconds that links need at least for `bytes` of user data, whatever the schedule, without latencies: what must
/// enter, or leave, a rank or a set of ranks that are joined by faster links than those around them, over the bandwidth
/// of the links that it has to use.
double bandwidth_bound(const synthesis& of, const colls::simulation::topology& on, double bytes);

}  // namespace tool
