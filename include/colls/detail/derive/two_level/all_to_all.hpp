// Two-level all_to_all.
// IWYU pragma: private, include <colls/schedules/hierarchical.hpp>
#pragma once

#include <colls/detail/derive/two_level/level.hpp>

namespace colls::inline v1::detail {

/// all_to_all: inside each node, where the data for one place of every node is one block; then across the nodes, where
/// one message carries the blocks of all places. Slots are ordered by place, then by node.
template <class Intra, class Inter>
struct two_level_all_to_all : two_level_pair<Intra, Inter> {
    using pair = two_level_pair<Intra, Inter>;
    using pair::implements, pair::inter, pair::intra, pair::node;
    /// The blocks of the level across nodes, in each of `times` superblocks of `apart` blocks.
    struct repeated_in {
        int times, apart;
        constexpr block_set operator()(const block_set& b) const { return b.repeated(times, apart); }
    };

    constexpr bool supports(int n) const {
        const node_grid g(n, node);
        if (!pair::supports(n)) return false;
        // A block set repeats at one distance only: an inter level whose own repetition ends elsewhere does not fit.
        const int apart = blocks_of(inter(), g.count);
        for (int round = 0; round < inter().rounds(g.count); ++round)
            for (int port = 0; port < ports_of(inter(), g.count); ++port) {
                const block_set b = step_of(inter(), 0, g.count, round, port).send.blocks;
                if (b.reps > 1 && b.reps * b.stride != apart) return false;
            }
        return true;
    }
    constexpr int input(int rank, int n, int slot) const {
        const node_grid g(n, node);
        const int cut = blocks_of(inter(), g.count);
        return g.rank_at(input_of(inter(), g.node_of(rank), g.count, slot % cut),
            input_of(intra(), g.place_of(rank), g.size, slot / cut));
    }
    constexpr int output(int rank, int n, int slot) const {
        const node_grid g(n, node);
        const int cut = blocks_of(inter(), g.count);
        return g.rank_at(output_of(inter(), g.node_of(rank), g.count, slot % cut),
            output_of(intra(), g.place_of(rank), g.size, slot / cut));
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const node_grid g(n, node);
        const int k = g.node_of(rank), x = g.place_of(rank), change = intra().rounds(g.size);
        const int cut = blocks_of(inter(), g.count);
        if (round < change) return embedded(level{intra(), g.size, x, g.inside(k)}, round, port, recut{cut, 0});
        return embedded(level{inter(), g.count, k, g.across(x)}, round - change, port,
            repeated_in{blocks_of(intra(), g.size), cut});
    }
};

}  // namespace colls::inline v1::detail
