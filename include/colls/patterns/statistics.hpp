// Mean, variance, softmax, argmax and top-k of values that are spread over the ranks of a group.
//
// Every function is collective: each rank gives its shard, of any length, even 0, and has the result. The order of
// values is that of the ranks, then that within a shard. L is log2(n), rounded up.
//
// With colls::exact as the last argument, moments_of and softmax give bits that depend on nothing but the values: not
// on the number of ranks, nor on which rank holds which. top_k and arg_max always do, but for the places that they
// name.
#pragma once

#include <colls/collectives.hpp>
#include <colls/exact/exact_sum.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <queue>
#include <span>
#include <type_traits>
#include <vector>

namespace colls::inline v1 {

/// Number, sum and squared deviations of some values: what two sets of values need to become one.
struct moments {
    std::int64_t count = 0;  ///< how many values
    double sum = 0;          ///< of the values
    double deviations = 0;   ///< the sum over the values of (value - mean)^2

    /// NaN where there is no value.
    double mean() const { return sum / static_cast<double>(count); }
    /// The variance of the values themselves: divided by their number. NaN where there is none.
    double variance() const { return deviations / static_cast<double>(count); }
    /// The estimate from a sample: divided by one less. NaN where there are less than two.
    double sample_variance() const {
        return count > 1 ? deviations / static_cast<double>(count - 1) : std::numeric_limits<double>::quiet_NaN();
    }
};

/// The moments of two sets together (Chan, Golub and LeVeque 1979). An operator for the calls.
struct merge_moments {
    static constexpr bool commutative = true;
    moments operator()(const moments& a, const moments& b) const {
        if (a.count == 0) return b;
        if (b.count == 0) return a;
        const double m = static_cast<double>(a.count), n = static_cast<double>(b.count);
        const double apart = b.mean() - a.mean();
        return {a.count + b.count, a.sum + b.sum, a.deviations + b.deviations + apart * apart * (m * n / (m + n))};
    }
};

/// The moments of the values of all ranks.
///
/// @param x  this rank's shard: a contiguous range of numbers, which are added as double
/// @return   the same on every rank. The sum, and so the mean, is exact where all partial sums are (as of integers
///           below 2^53); else it differs from a serial sum by rounding. A NaN anywhere gives NaN for mean and
///           variance, an infinity a variance of NaN.
///
/// Throws what all_reduce throws. Cost: one all_reduce of 24 bytes: L rounds, 24 L bytes.
template <class Comm, class X>
moments moments_of(Comm& comm, const X& x) {
    const std::span values(x);
    moments m{.count = static_cast<std::int64_t>(values.size())};
    for (const auto v : values) m.sum += static_cast<double>(v);
    const double mean = m.mean();
    for (const auto v : values) m.deviations += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
    all_reduce(comm, std::span(&m, 1), merge_moments{});
    return m;
}

/// The same with bits that depend on nothing but the values.
///
/// The sum is that of the values as double, rounded once; each (value - mean)^2 is rounded, and their sum is rounded
/// once. Cost: two all_reduces, of 560 and of 280 bytes.
template <class Comm, class X>
moments moments_of(Comm& comm, const X& x, const exact_t&) {
    const std::span values(x);
    const auto value = [&](std::size_t i) { return static_cast<double>(values[i]); };
    std::array<exact_sum<double>, 2> sums{exact_sum<double>(static_cast<double>(values.size())), {}};
    sums[1].add_each(values.size(), value);
    all_reduce(comm, sums, exact);
    moments m{.count = static_cast<std::int64_t>(sums[0].value()), .sum = sums[1].value()};
    const double mean = m.mean();
    exact_sum<double> deviations;
    deviations.add_each(values.size(), [&](std::size_t i) { return (value(i) - mean) * (value(i) - mean); });
    all_reduce(comm, std::span(&deviations, 1), exact);
    m.deviations = deviations.value();
    return m;
}

/// Replaces x[i] by exp(x[i]) / (the sum of exp(x[j]) over all values of all ranks), for values of any size: the
/// greatest is subtracted first, and the sum is taken as double.
///
/// @param x   this rank's shard: a contiguous range of float or double
/// @param op  how the sum is taken: colls::sum, or colls::exact
///
/// NaN, or positive infinity, in a shard makes all results NaN, and so do values that are all negative infinity.
/// By colls::sum, results differ from those of one rank by the rounding of the sum. Throws what all_reduce throws.
/// Cost: two all_reduces of one number: 2 L rounds, 16 L bytes; by colls::exact the second is of 280 bytes.
template <class Comm, class X, class Op = sum_t>
void softmax(Comm& comm, X&& x, const Op& op = {}) {
    constexpr bool is_exact = std::is_same_v<Op, exact_t>;
    static_assert(is_exact || std::is_same_v<Op, sum_t>, "colls: softmax takes colls::sum or colls::exact");
    const std::span values(x);
    using T = typename decltype(values)::value_type;
    static_assert(std::is_floating_point_v<T>, "colls: softmax takes float or double");
    T greatest = -std::numeric_limits<T>::infinity();
    for (const T v : values) greatest = max(greatest, v);
    all_reduce(comm, std::span(&greatest, 1), max);
    for (T& v : values) v = std::exp(v - greatest);
    std::conditional_t<is_exact, exact_sum<double>, double> sum_of_all{};
    if constexpr (is_exact)
        sum_of_all.add_each(values.size(), [&](std::size_t i) { return static_cast<double>(values[i]); });
    else
        for (const T v : values) sum_of_all += v;
    all_reduce(comm, std::span(&sum_of_all, 1), op);
    const double total(sum_of_all);
    for (T& v : values) v = static_cast<T>(v / total);
}

/// A value and where it lies: element `index` of rank `rank`'s shard. A rank of `none`: no value.
template <class T>
struct located {
    T value{};               ///< the value
    int rank = none;         ///< that has it
    std::int64_t index = 0;  ///< in its shard
    friend bool operator==(const located&, const located&) = default;
};

/// The order of top_k: NaN first, then the greater value, then the lower rank, then the lower index. No value is last.
struct greatest_first {
    template <class T>
    bool operator()(const located<T>& a, const located<T>& b) const {
        if (a.rank == none || b.rank == none) return a.rank != none && b.rank == none;
        const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        if (a_nan != b_nan) return a_nan;
        if (!a_nan && a.value != b.value) return b.value < a.value;
        return a.rank != b.rank ? a.rank < b.rank : a.index < b.index;
    }
};

/// The first K of two lists, in the order of `greatest_first`. An operator for the calls: associative and commutative
/// without rounding, as no two values are equal in that order.
struct merge_top_k {
    static constexpr bool commutative = true;
    template <class T, std::size_t K>
    std::array<located<T>, K> operator()(const std::array<located<T>, K>& a, const std::array<located<T>, K>& b) const {
        std::array<located<T>, K> out;
        std::size_t from_a = 0, from_b = 0;
        for (auto& entry : out) entry = greatest_first{}(b[from_b], a[from_a]) ? b[from_b++] : a[from_a++];
        return out;
    }
};

/// The K greatest values of all ranks, and where they lie.
///
/// @param x  this rank's shard: a contiguous range of numbers
/// @return   the same on every rank: K entries in the order of `greatest_first` (ties: the lowest rank, then the lowest
///           index; NaN counts as greater than any number), or all values where there are fewer than K
///
/// Exactly what one rank would find. Throws what all_reduce throws. Cost: one all_reduce of one element of K
/// located<T>: L rounds, K L sizeof(located<T>) bytes, where a gather of lists brings its root K (n - 1).
template <std::size_t K, class Comm, class X>
auto top_k(Comm& comm, const X& x) {
    static_assert(K > 0, "colls: top_k<0> asks for nothing");
    const std::span values(x);
    using T = typename decltype(values)::value_type;
    std::priority_queue<located<T>, std::vector<located<T>>, greatest_first> best;  // on top the last of those kept
    for (std::size_t i = 0; i < values.size(); ++i) {
        const located<T> entry{values[i], comm.rank(), static_cast<std::int64_t>(i)};
        if (best.size() == K && !greatest_first{}(entry, best.top())) continue;
        if (best.size() == K) best.pop();
        best.push(entry);
    }
    std::array<located<T>, K> list{};
    for (std::size_t i = best.size(); i-- > 0; best.pop()) list[i] = best.top();
    all_reduce(comm, std::span(&list, 1), merge_top_k{});
    std::vector<located<T>> found;
    for (const auto& entry : list)
        if (entry.rank != none) found.push_back(entry);
    return found;
}

/// The greatest value of all ranks, and where it lies: top_k of 1. Its rank is `none` where no rank has a value.
template <class Comm, class X>
auto arg_max(Comm& comm, const X& x) {
    auto found = top_k<1>(comm, x);
    return found.empty() ? typename decltype(found)::value_type{} : found.front();
}

}  // namespace colls::inline v1
