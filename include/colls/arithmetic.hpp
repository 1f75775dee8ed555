// Integer arithmetic that schedules are written with: `mod` for rank arithmetic, logarithms for the number of rounds.
#pragma once

#include <colls/config.hpp>

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
/// Least common multiple, of positive numbers.
constexpr int lcm(int a, int b) { return a / gcd(a, b) * b; }

}  // namespace colls::inline v1
