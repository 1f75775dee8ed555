// Swing: short distances on a torus.
#pragma once

#include <colls/detail/schedule/digits.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// Recursive halving with short distances on rings and tori. In round k an even rank r exchanges with r + rho(k), an
/// odd rank with r - rho(k), rho(k) = (1 - (-2)^(k+1)) / 3 = 1, -1, 3, -5, 11, ... On a ring of 64 ranks a block
/// travels 2.1 hops a message, against 3 with near partners first and 22 with far partners first.
///
///   implements    reduce_scatter; derived: all_gather, all_reduce, barrier
///   group sizes   powers of two (folded<swing>: any)
///   rounds        log2 n, the fewest (all_reduce twice as many)
///   blocks sent   n - 1 by each rank, the least (all_reduce 2 (n - 1))
///   scratch       n / 2 - 1 partial results
///   order         not rank order: commutative operators
///   source        De Sensi, Bonato, Saam and Hoefler, 2024, arXiv 2401.09356
///
/// Slots are ordered by nu, the bit-reversed Gray code of the rank written in base -2: the ranks that a partner reaches
/// in later rounds share the leading bits of nu, so that what a rank sends is one interval of slots.
struct swing {
    struct reduce_scatter {
        static constexpr collective implements = collective::reduce_scatter;
        static constexpr bool supports(int n) { return is_power_of_two(n); }
        static constexpr int rounds(int n) { return log2_ceil(n); }
        static constexpr int owner(int rank, int n) { return nu(rank, n); }
        static constexpr int home(int n, int slot) { return rank_at(slot, n); }
        static constexpr step at(int rank, int n, int round) {
            const int away = rho(round), peer = mod(rank % 2 == 0 ? rank + away : rank - away, n), d = n >> (round + 1);
            return {.send = {peer, block_range(nu(peer, n) / d * d, d)},
                .recv = {peer, block_range(nu(rank, n) / d * d, d), action::reduce}};
        }
    };

private:
    static constexpr int rho(int k) {
        const long long power = 1LL << (k + 1);
        return static_cast<int>((k % 2 == 0 ? 1 + power : 1 - power) / 3);
    }

    // v in base -2 is (v + mask) xor mask, where mask has every odd bit set. Only the last log2 n digits count.
    static constexpr unsigned mask = 0xAAAAAAAAu;
    static constexpr int nu(int rank, int n) {
        const unsigned v = static_cast<unsigned>(rank % 2 == 0 ? -rank : rank);
        const unsigned digits = ((v + mask) ^ mask) & static_cast<unsigned>(n - 1), gray = digits ^ (digits >> 1);
        return detail::reversed_bits(static_cast<int>(gray), log2_ceil(n));
    }
    static constexpr int rank_at(int slot, int n) {
        unsigned digits = static_cast<unsigned>(detail::reversed_bits(slot, log2_ceil(n)));
        for (int shift = 1; shift < 32; shift *= 2) digits ^= digits >> shift;
        const unsigned v = (digits ^ mask) - mask;
        return static_cast<int>((v % 2 == 0 ? 0u - v : v) & static_cast<unsigned>(n - 1));
    }
};

}  // namespace colls::inline v1
