// The parts of exact sums, compiled with options (check) in a namespace UNIT. Their inline functions are the program's:
// of two units' copies a linker keeps the first.
#include "unit.hpp"

#include <colls/exact/detail/addend_sums.hpp>
#include <colls/exact/exact_sum.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace {

template <class T>
void sum_of(const void* addends, int ranks, std::size_t count, const sums& made) {
    const std::size_t all = static_cast<std::size_t>(ranks) * count;
    std::vector<T> x(all), out(count);
    std::memcpy(x.data(), addends, all * sizeof(T));
    std::vector<colls::detail::operand> rows;
    for (std::size_t at = 0; at < all; at += count) rows.push_back({x.data() + at});
    colls::detail::sum_addends<T>(out.data(), rows.data(), ranks, count, nullptr);
    std::memcpy(made.at_hand, out.data(), count * sizeof(T));

    std::vector<colls::detail::level_of<T>> levels(count), own(count);
    std::vector<std::int64_t> total(2 * count), lanes(2 * count);
    for (int r = 0; r < ranks; ++r) {
        colls::detail::find_levels(x.data() + static_cast<std::size_t>(r) * count, count, own.data());
        for (std::size_t i = 0; i < count; ++i) levels[i] = std::max(levels[i], own[i]);
    }
    for (int r = 0; r < ranks; ++r) {
        colls::detail::fill_lanes(
            x.data() + static_cast<std::size_t>(r) * count, count, levels.data(), lanes.data(), lanes.data() + count);
        for (std::size_t i = 0; i < 2 * count; ++i) total[i] += lanes[i];
    }
    colls::detail::round_lanes(levels.data(), total.data(), total.data() + count, count, ranks, out.data());
    std::memcpy(made.by_integers, out.data(), count * sizeof(T));

    colls::exact_sum<T> sum;
    sum.add(x);
    const T value = sum.value();
    std::memcpy(made.of_array, &value, sizeof value);
}

}  // namespace

namespace UNIT {

void sum(kind k, const void* x, int ranks, std::size_t count, const sums& made) {
    if (k == floats) sum_of<float>(x, ranks, count, made);
    if (k == doubles) sum_of<double>(x, ranks, count, made);
    if (k == bfloat16s) sum_of<colls::bfloat16>(x, ranks, count, made);
    if (k == halfs) sum_of<colls::half>(x, ranks, count, made);
}
void multiply(const float* a, const float* b, std::size_t count, double* one_by_one, double* together) {
    colls::exact_sum<double> singly, sum;
    for (std::size_t i = 0; i < count; ++i) singly.add_product(a[i], b[i]);
    sum.add_products({a, count}, {b, count});
    *one_by_one = singly.value();
    *together = sum.value();
}

}  // namespace UNIT
