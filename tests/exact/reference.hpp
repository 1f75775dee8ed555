// Exact sums in another way than the library's: a counter for each bit, carried at the end.
#pragma once

#include <colls/types.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace reference {

template <class T>
struct traits;
template <>
struct traits<float> {
    static constexpr int digits = 24, least = -149, most = 127;
};
template <>
struct traits<double> {
    static constexpr int digits = 53, least = -1074, most = 1023;
};
template <>
struct traits<colls::bfloat16> {
    static constexpr int digits = 8, least = -133, most = 127;
};
template <>
struct traits<colls::half> {
    static constexpr int digits = 11, least = -24, most = 15;
};

class bit_sum {
public:
    /// Adds m * 2^exponent, or what is not finite.
    void add_scaled(std::int64_t m, int exponent) {
        const int sign = m < 0 ? -1 : 1;
        for (std::uint64_t rest = static_cast<std::uint64_t>(m < 0 ? -m : m); rest != 0; rest >>= 1, ++exponent)
            if ((rest & 1) != 0) at(exponent) += sign;
    }
    void add(double x) {
        if (std::isnan(x)) {
            nan_ = true;
        } else if (std::isinf(x)) {
            (x > 0 ? plus_ : minus_) = true;
        } else {
            int exponent = 0;
            const double m = std::frexp(x, &exponent);
            add_scaled(static_cast<std::int64_t>(std::ldexp(m, 53)), exponent - 53);
        }
    }
    /// As a double that is a T, or infinite.
    template <class T>
    double rounded() const {
        using of = traits<T>;
        if (nan_ || (plus_ && minus_)) return std::numeric_limits<double>::quiet_NaN();
        if (plus_ || minus_) return plus_ ? HUGE_VAL : -HUGE_VAL;
        std::vector<std::int64_t> bits = counts_;
        bool negative = carry(bits);
        if (negative) {
            bits = counts_;
            for (std::int64_t& count : bits) count = -count;
            carry(bits);
        }
        int top = static_cast<int>(bits.size()) - 1;
        while (top >= 0 && bits[static_cast<std::size_t>(top)] == 0) --top;
        if (top < 0) return 0;
        const auto bit = [&](int i) { return i >= 0 ? static_cast<int>(bits[static_cast<std::size_t>(i)]) : 0; };
        const int last = std::max(top - of::digits + 1, of::least + offset);
        std::int64_t kept = 0;
        for (int i = top; i >= last; --i) kept = 2 * kept + bit(i);
        bool more = false;
        for (int i = last - 2; i >= 0; --i) more = more || bit(i) != 0;
        if (bit(last - 1) != 0 && (more || kept % 2 == 1)) ++kept;
        const double x = std::ldexp(static_cast<double>(kept), last - offset);
        const double beyond = std::ldexp(1.0, of::most);
        const double made = x / 2 >= beyond ? HUGE_VAL : x;
        return negative ? -made : made;
    }
    /// About.
    long double approximately() const {
        long double x = 0;
        for (std::size_t i = 0; i < counts_.size(); ++i)
            x += std::ldexp(static_cast<long double>(counts_[i]), static_cast<int>(i) - offset);
        return x;
    }

private:
    static constexpr int offset = 1300;
    std::int64_t& at(int exponent) { return counts_[static_cast<std::size_t>(exponent + offset)]; }
    /// Leaves 0 or 1 in each place. True where the number is negative: then they mean nothing.
    static bool carry(std::vector<std::int64_t>& bits) {
        std::int64_t over = 0;
        for (std::int64_t& bit : bits) {
            const std::int64_t all = bit + over;
            bit = all & 1;
            over = (all - bit) / 2;
        }
        return over < 0;
    }
    std::vector<std::int64_t> counts_ = std::vector<std::int64_t>(offset + 1300);
    bool nan_ = false, plus_ = false, minus_ = false;
};

}  // namespace reference
