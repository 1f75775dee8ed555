// Two trees, each on half the data.
#pragma once

#include <colls/algebra/striped.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

namespace detail {

/// Broadcast over a binary tree whose inner nodes are every other rank. Rank r has the label r + Shift (the root: 0).
/// The node of label x, whose lowest set bit is b, has below it on the left x - b/2 and on the right x + b/2, or
/// where there is no such rank the first of x + b/4, x + b/8, ... (left likewise); the root has the highest power of
/// two. Everything left of a node is of lower rank, all on its right of higher. The nodes with b = 2^(rounds - k) serve
/// their children in round k.
template <int Shift>
struct in_order_tree {
    static constexpr collective implements = collective::broadcast;
    static constexpr int ports(int) { return 2; }
    static constexpr int rounds(int n) { return n == 1 ? 0 : log2_ceil(n + Shift); }
    static constexpr step at(int rank, int n, int round, int port) {
        const int bit = 1 << (rounds(n) - round), label = rank == 0 ? 0 : rank + Shift;
        if (rank == 0 ? round == 0 : (label & -label) == bit) {
            const int to = child(label, bit, n, port);
            return to == none ? step{} : step{.send = {to, block(0)}};
        }
        if (rank == 0) return {};
        const int from = parent(label, n);
        const bool its_turn = from == 0 ? round == 0 : (from & -from) == bit;
        if (!its_turn || port != (label > from ? 1 : 0)) return {};
        return {.recv = {from == 0 ? 0 : from - Shift, block(0)}};
    }

private:
    static constexpr bool exists(int label, int n) { return label > Shift && label < n + Shift; }
    static constexpr int child(int label, int bit, int n, int port) {
        for (int half = bit / 2; half > 0; half /= 2) {
            const int x = port == 0 ? label - half : label + half;
            if (exists(x, n)) return x - Shift;
        }
        return none;
    }
    static constexpr int parent(int label, int n) {
        const int bit = label & -label, up = (label ^ bit) | (bit << 1);
        return exists(up, n) ? up : label ^ bit;
    }
};

}  // namespace detail

/// Two binary trees side by side, each on half the data, such that no rank but the root is an inner node of both
/// (Sanders, Speck and Träff, 2009): in a broadcast of S bytes no rank sends more than S, where a binary tree's inner
/// nodes send 2 S. ceil(log2 (n + 1)) rounds on 2 x 2 ports; for long data in chunks. Any n. Both trees are in order,
/// the second one place on, so that reduce keeps rank order at every n (with a mirrored or rotated second tree it
/// would at every other). reduce, all_reduce (reduce, then broadcast: at most 2 S sent a rank) and barrier follow.
struct double_tree {
    using broadcast = striped<detail::in_order_tree<0>, detail::in_order_tree<1>>;
};

}  // namespace colls::inline v1
