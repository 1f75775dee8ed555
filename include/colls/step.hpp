// What one rank does on one port in one round: which blocks it sends to which peer, and receives from which. Blocks are
// ordered sets in O(1) memory; and the integer arithmetic that schedules are written with.
#pragma once

#include <colls/config.hpp>
#include <colls/detail/schedule/precondition.hpp>

namespace colls::inline v1 {

/// a mod n in [0, n), for any sign of a.
constexpr int mod(int a, int n) {
    const int r = a % n;
    return r < 0 ? r + n : r;
}
/// The least k with 2^k >= n (0 for n = 1).
constexpr int log2_ceil(int n) {
    int k = 0;
    while ((1LL << k) < n) ++k;
    return k;
}
/// Whether n is 1, 2, 4, ...
constexpr bool is_power_of_two(int n) { return n > 0 && (n & (n - 1)) == 0; }
/// Greatest common divisor, of positive numbers.
constexpr int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }
/// Least common multiple, of positive numbers; 0 where a is 0.
constexpr int lcm(int a, int b) { return a == 0 ? 0 : a / gcd(a, b) * b; }

/// An ordered set of blocks in O(1) memory. Element i < count stands for `grain` consecutive blocks from
///     base + (first + (i / run) * period + i % run * grain) mod modulus        (modulus 0: no wrap)
/// and the whole is repeated `reps` times, `stride` apart. A cyclic interval (run 1, period 1) is what ring, halving,
/// circulant and trees send; run and period express Bruck and PAT; `grain` results from cutting each block into several
/// (refined), `reps` and `stride` from a level of a hierarchy (repeated). Every fourth block from 1 on, of 16:
/// `{.first = 1, .count = 4, .period = 4}` has blocks 1, 5, 9, 13.
struct block_set {
    int base = 0;     ///< added to every block number
    int first = 0;    ///< where element 0 begins, within the modulus
    int count = 0;    ///< elements, each of `grain` blocks
    int run = 1;      ///< elements that follow each other without a gap
    int period = 1;   ///< from the beginning of a run to that of the next
    int modulus = 0;  ///< at which numbers wrap; 0: they do not
    int grain = 1;    ///< consecutive blocks of an element
    int reps = 1;     ///< how often the whole is repeated
    int stride = 0;   ///< from a repetition to the next

    /// How many blocks it has.
    constexpr int size() const { return count * grain * reps; }
    /// True where it has none.
    constexpr bool empty() const { return count <= 0 || reps <= 0 || grain <= 0; }

    /// The j-th block, 0 <= j < size().
    constexpr int operator[](int j) const {
        const int rep = j / (count * grain), in_rep = j - rep * count * grain, i = in_rep / grain, of_run = i / run;
        int at = first + of_run * period + (i - of_run * run) * grain;
        if (modulus > 0) at = mod(at, modulus);
        return base + at + in_rep - i * grain + rep * stride;
    }

    /// The same data with every block cut into u: block x becomes blocks x·u ... x·u + u - 1.
    constexpr block_set refined(int u) const {
        return {base * u, first * u, count, run, period * u, modulus * u, grain * u, reps, stride * u};
    }
    /// Every block number increased by b.
    constexpr block_set offset(int b) const {
        block_set s = *this;
        s.base += b;
        return s;
    }
    /// The set `times` times, copies `apart` blocks apart. If the set already repeats, the copies must continue that
    /// repetition (apart = reps * stride); otherwise this is an error.
    constexpr block_set repeated(int times, int apart) const {
        if (times == 1) return *this;
        block_set s = *this;
        if (reps == 1)
            s.stride = apart;
        else if (apart != reps * stride)
            detail::precondition_failed("block_set::repeated: the repetitions do not continue each other");
        s.reps = reps * times;
        return s;
    }
    friend constexpr bool operator==(const block_set&, const block_set&) = default;
};

/// One block.
constexpr block_set block(int b) { return {.first = b, .count = 1}; }
/// Blocks first, first + 1, ..., first + count - 1.
constexpr block_set block_range(int first, int count) { return {.first = first, .count = count}; }
/// The cyclic interval of `count` blocks from `first`, modulo `modulus`.
constexpr block_set block_range(int first, int count, int modulus) {
    return {.first = mod(first, modulus), .count = count, .modulus = modulus};
}

/// What a receive does with the data that arrives: replace the block, or combine with it.
enum class action : unsigned char { copy, reduce };

/// No rank: a transfer without a peer does not take place, and a block without a home belongs to no rank.
inline constexpr int none = -1;

/// What a rank sends on one port.
struct send_part {
    int peer = none;     ///< the rank that receives it; none: nothing is sent
    block_set blocks{};  ///< the sender's blocks, in the order in which they go
};
/// What a rank receives on one port.
struct receive_part {
    int peer = none;                             ///< the rank that sends it; none: nothing is received
    block_set blocks{};                          ///< the receiver's blocks, in the order in which they arrive
    colls::action action = colls::action::copy;  ///< what becomes of a block's former value
};
/// At most one send and one receive. The i-th block sent is the i-th block received, whatever their numbers. A peer
/// equal to the rank itself is a local transfer: it is sent and received on the same port, and where it reduces, the
/// incoming operand is the left one.
struct step {
    send_part send{};     ///< what leaves
    receive_part recv{};  ///< what arrives
};

}  // namespace colls::inline v1
