// The expression by which a slot's value was computed from the contributions of ranks.
// IWYU pragma: private, include <colls/verify.hpp>
//
// A tree: its leaves are ranks, and each inner node is one fold, with its operands in their order. A fold of k operands
// is one node, not k - 1 nested ones: types that accumulate in float are rounded once a fold.
#pragma once

#include <colls/schedule.hpp>

#include <cstdint>

namespace colls::inline v1::detail {

struct expression {
    std::uint64_t hash = 0;  ///< of the tree
    int lo = 0, hi = none;   ///< ranks of its first and last leaf; hi = none: leaves are not in ascending rank order
    int depth = 0;           ///< folds on the longest path from a leaf to the root
};

constexpr std::uint64_t mixed(std::uint64_t h, std::uint64_t more) {
    h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9u + (more ^ (more >> 32)) * 0x94D049BB133111EBu;
    return h ^ (h >> 31);
}
constexpr expression leaf(int rank) {
    return {(static_cast<std::uint64_t>(rank) + 1) * 0x9E3779B97F4A7C15u, rank, rank, 0};
}
/// A fold is made of its first operand, further ones, and folded() at the end.
constexpr expression first_operand(const expression& e) { return {mixed(1, e.hash), e.lo, e.hi, e.depth}; }
constexpr expression with_operand(const expression& node, const expression& e) {
    return {mixed(node.hash, e.hash), node.lo, node.hi != none && e.hi != none && node.hi < e.lo ? e.hi : none,
        e.depth > node.depth ? e.depth : node.depth};
}
constexpr expression folded(const expression& node) { return {mixed(node.hash, 2), node.lo, node.hi, node.depth + 1}; }

/// One fold of the ranks from `first` to `end` - 1.
constexpr expression single_fold_of(int first, int end) {
    if (end - first == 1) return leaf(first);
    expression node = first_operand(leaf(first));
    for (int r = first + 1; r < end; ++r) node = with_operand(node, leaf(r));
    return folded(node);
}

}  // namespace colls::inline v1::detail
