// Powers of a radix, for schedules that follow the digits of a rank.
// IWYU pragma: private, include <colls/schedules.hpp>
#pragma once

#include <colls/config.hpp>

namespace colls::inline v1::detail {

/// The least k with radix^k >= n (0 for n = 1).
constexpr int log_ceil(int radix, int n) {
    int k = 0;
    for (long long p = 1; p < n; p *= radix) ++k;
    return k;
}
constexpr int power(int radix, int k) {
    int p = 1;
    for (; k > 0; --k) p *= radix;
    return p;
}
constexpr bool is_power(int radix, int n) {
    while (n > 1 && n % radix == 0) n /= radix;
    return n == 1;
}
/// A round for each digit of radix K, on a port for each other value of the digit.
template <int K>
struct by_digits {
    static constexpr int ports(int) { return K - 1; }
    static constexpr int rounds(int n) { return log_ceil(K, n); }
};
/// The last `bits` binary digits of x, in reverse order.
constexpr int reversed_bits(int x, int bits) {
    int y = 0;
    for (; bits > 0; --bits, x >>= 1) y = y << 1 | (x & 1);
    return y;
}

}  // namespace colls::inline v1::detail
