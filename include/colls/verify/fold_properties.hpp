// How a schedule computes its results from the contributions of ranks.
#pragma once

#include <colls/config.hpp>

#include <cstdint>

namespace colls::inline v1 {

/// What the fold expressions of a schedule's results have in common, at one group size.
///
/// The fold expression of an element of a result is a tree. Its leaves are ranks, and each inner node is what one rank
/// folds in one round: all operands that arrive for a slot and the own value, in ascending rank order. Types that
/// accumulate in a wider one, such as bfloat16, are rounded once a node. So equal expressions give equal bits, and a
/// fold of three operands is not the same as two folds of two.
struct fold_properties {
    /// All elements of a result have one expression, and so have all ranks' results (scans: of each rank its own). So
    /// the bits of a result do not depend on where in a buffer an element lies, on the count, or on how data are cut
    /// into calls. True where nothing is reduced.
    bool one_expression = false;
    /// That expression is one fold of all contributions, in ascending rank order: what `direct` and the path of small
    /// messages compute. Schedules for which this holds all give the same bits.
    bool single_fold = false;
    /// Folds on the longest path from a contribution to a result: how often a value is rounded at most.
    int depth = 0;
    /// A hash of the one expression (scans: of the expressions of all ranks); 0 where there are several, or none.
    std::uint64_t hash = 0;
};

}  // namespace colls::inline v1
