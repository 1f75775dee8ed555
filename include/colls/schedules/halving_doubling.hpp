// Two ways to halve: by rank distance, and by rank parity.
#pragma once

#include <colls/detail/support/digits.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// Recursive halving (Rabenseifner, 2004): n a power of two (folded<halving_doubling>: any n). log2 n rounds; n - 1
/// blocks a rank, the least of both. In round k rank r and rank r xor d, d = n / 2^(k+1), part their interval: each
/// hands over the half the other lives in. Far partners first, with the most data. Does not combine in rank order:
/// commutative operators. all_gather, all_reduce and barrier follow.
struct halving_doubling {
    struct reduce_scatter {
        static constexpr collective implements = collective::reduce_scatter;
        static constexpr bool supports(int n) { return is_power_of_two(n); }
        static constexpr int rounds(int n) { return log2_ceil(n); }
        static constexpr step at(int rank, int n, int round) {
            const int d = n >> (round + 1), peer = rank ^ d;
            return {.send = {peer, block_range(peer / d * d, d)},
                .recv = {peer, block_range(rank / d * d, d), action::reduce}};
        }
    };
};

/// The same rounds and volume, n a power of two, with near partners first: r and r xor 2^k in round k, so that what
/// is combined always is an interval of ranks. Keeps rank order: for operators that do not commute. To rank r falls
/// the block whose number is r with its bits reversed, which keeps all that is sent in one piece. all_gather,
/// all_reduce and barrier follow; folded<distance_doubling> keeps rank order at any n.
struct distance_doubling {
    struct reduce_scatter {
        static constexpr collective implements = collective::reduce_scatter;
        static constexpr bool supports(int n) { return is_power_of_two(n); }
        static constexpr int rounds(int n) { return log2_ceil(n); }
        static constexpr int owner(int rank, int n) { return detail::reversed_bits(rank, log2_ceil(n)); }
        static constexpr int home(int n, int slot) { return detail::reversed_bits(slot, log2_ceil(n)); }
        static constexpr step at(int rank, int n, int round) {
            const int d = n >> (round + 1), peer = rank ^ (1 << round);
            return {.send = {peer, block_range(owner(peer, n) / d * d, d)},
                .recv = {peer, block_range(owner(rank, n) / d * d, d), action::reduce}};
        }
    };
};

}  // namespace colls::inline v1
