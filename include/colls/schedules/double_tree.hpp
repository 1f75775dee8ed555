// Two trees, each on half of the data.
#pragma once

#include <colls/algebra/striped.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// Two binary trees side by side, each on half of the data, such that no rank but the root is an inner node of both. In
/// a broadcast of S bytes no rank then sends more than S, where the inner nodes of one binary tree send 2 S. For long
/// data, which executors pipeline by chunks.
///
///   implements    broadcast; derived: reduce, all_reduce, barrier
///   group sizes   any
///   rounds        ceil(log2 (n + 1)) on 2 x 2 ports (all_reduce twice as many)
///   blocks sent   at most the whole buffer by any rank (all_reduce twice the buffer)
///   scratch       reduce: one partial result
///   order         rank order at every n: both trees are in order, the second shifted by one rank (with a mirrored or
///                 rotated second tree rank order would hold at every other n only)
///   source        Sanders, Speck and Träff, 2009
struct double_tree {
    /// Broadcast over a binary tree whose inner nodes are every other rank. Rank r has label r + Shift, the root label
    /// 0. The node of label x, whose lowest set bit is b, has the children x - b/2 on the left and x + b/2 on the
    /// right, or if there is none the first rank of x + b/4, x + b/8, ... (left likewise); the root has the
    /// child of the highest power of two. All ranks left of a node are lower, all on its right higher. In round k the
    /// nodes with b = 2^(rounds - k) send to their children.
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
            const bool active = from == 0 ? round == 0 : (from & -from) == bit;
            if (!active || port != (label > from ? 1 : 0)) return {};
            return {.recv = {from == 0 ? 0 : from - Shift, block(0)}};
        }

    private:
        static constexpr bool exists(int label, int n) { return label > Shift && label < n + Shift; }
        static constexpr int child(int label, int bit, int n, int port) {
            for (int reach = bit / 2; reach > 0; reach /= 2) {
                const int x = port == 0 ? label - reach : label + reach;
                if (exists(x, n)) return x - Shift;
            }
            return none;
        }
        static constexpr int parent(int label, int n) {
            const int bit = label & -label, up = (label ^ bit) | (bit << 1);
            return exists(up, n) ? up : label ^ bit;
        }
    };

    using broadcast = striped<in_order_tree<0>, in_order_tree<1>>;
};

}  // namespace colls::inline v1
