// Statistics over ranks against the same on one vector, on every kind of group, with uneven and empty shards.
#include "catch.hpp"

#include "exact/reference.hpp"
#include "support/every_transport.hpp"

#include <colls/patterns/statistics.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

using namespace support;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

/// The shards of n ranks: of lengths 0 to 2 * average, some of them empty.
template <class T>
std::vector<std::vector<T>> cut(const std::vector<T>& all, int n, std::uint64_t seed) {
    random_source random = stream(seed, static_cast<std::uint64_t>(n));
    std::vector<std::size_t> ends;
    for (int r = 1; r < n; ++r) ends.push_back(random.one_in(4) ? 0 : random.below(all.size() + 1));
    ends.push_back(all.size());
    std::ranges::sort(ends);
    std::vector<std::vector<T>> shards;
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
        shards.emplace_back(all.begin() + static_cast<long>(begin), all.begin() + static_cast<long>(end));
        begin = end;
    }
    return shards;
}

template <class T>
std::vector<T> numbers(std::size_t count, double scale, double offset, std::uint64_t seed) {
    random_source random = stream(seed, 0);
    std::vector<T> all(count);
    for (T& v : all) v = static_cast<T>(offset + scale * (static_cast<double>(random.below(2000)) - 1000) / 1000);
    return all;
}

/// All values with their places, sorted: written without greatest_first{}.
template <class T>
std::vector<colls::located<T>> ranked(const std::vector<std::vector<T>>& shards) {
    std::vector<colls::located<T>> all;
    for (std::size_t r = 0; r < shards.size(); ++r)
        for (std::size_t i = 0; i < shards[r].size(); ++i)
            all.push_back({shards[r][i], static_cast<int>(r), static_cast<std::int64_t>(i)});
    std::ranges::stable_sort(all, [](const auto& a, const auto& b) {
        if (std::isnan(static_cast<double>(a.value))) return !std::isnan(static_cast<double>(b.value));
        return a.value > b.value;
    });
    return all;
}

template <class T>
bool same(const colls::located<T>& a, const colls::located<T>& b) {
    return a.rank == b.rank && a.index == b.index && std::memcmp(&a.value, &b.value, sizeof(T)) == 0;
}

/// Whether every rank has the same bytes.
template <class T>
bool same_everywhere(colls::communicator& comm, const T& mine) {
    std::vector<T> all(static_cast<std::size_t>(comm.size()));
    colls::all_gather(comm, std::span(&mine, 1), all);
    return std::ranges::all_of(all, [&](const T& other) { return std::memcmp(&other, &mine, sizeof mine) == 0; });
}

}  // namespace

TEST_CASE("moments_of: mean and variance are those of one rank", "[patterns]") {
    for (const int n : {1, 2, 3, 5, 7, 8})
        for (const double offset : {0.0, 1e9}) {
            const auto all = numbers<double>(1000, 1.0, offset, 1);
            const auto shards = cut(all, n, 2);
            const double mean = std::accumulate(all.begin(), all.end(), 0.0) / 1000;
            double squares = 0;
            for (const double v : all) squares += (v - mean) * (v - mean);
            on_every_transport(n, [&](colls::communicator& comm) {
                const auto m = colls::moments_of(comm, shards[static_cast<std::size_t>(comm.rank())]);
                expect(m.count == 1000, "the count");
                // A sum of 1,000 terms errs by 1,000 roundings at most, and the variance of values about 1e9 by the
                // rounding of these: 1e9 * 2^-53, against a variance of 1/3.
                expect(std::abs(m.mean() - mean) <= 1e-13 * std::abs(offset + 1), "the mean");
                expect(std::abs(m.variance() - squares / 1000) <= 1e-7 * (offset > 0 ? 1 : 1e-6), "the variance");
                expect(std::abs(m.sample_variance() - squares / 999) <= 1e-7, "the sample variance");
                expect(same_everywhere(comm, m), "the same bits on every rank");
            });
        }
}

TEST_CASE("moments_of: the mean of integers is exact, and that of nothing is NaN", "[patterns]") {
    const auto all = numbers<int>(777, 1e6, 12345, 3);
    const long total = std::accumulate(all.begin(), all.end(), 0L);
    for (const int n : {1, 3, 7}) {
        const auto shards = cut(all, n, 4);
        on_every_transport(n, [&](colls::communicator& comm) {
            const auto m = colls::moments_of(comm, shards[static_cast<std::size_t>(comm.rank())]);
            expect(m.sum == static_cast<double>(total) && m.mean() == static_cast<double>(total) / 777, "the mean");
            const auto none = colls::moments_of(comm, std::vector<float>{});
            expect(none.count == 0 && std::isnan(none.mean()) && std::isnan(none.variance()), "of no values");
            std::vector<double> one;
            if (comm.rank() == comm.size() - 1) one = {5};
            const auto single = colls::moments_of(comm, one);
            expect(single.mean() == 5 && single.variance() == 0 && std::isnan(single.sample_variance()), "of one");
            if (comm.rank() == 0) one.push_back(not_a_number);
            const auto bad = colls::moments_of(comm, one);
            expect(std::isnan(bad.mean()) && std::isnan(bad.variance()), "a NaN in one shard");
        });
    }
}

namespace {

std::uint64_t raw(double x) { return std::bit_cast<std::uint64_t>(x); }
/// Values of sizes that differ by up to 2^spread, so that the bits of a sum depend on its order.
template <class T>
std::vector<T> wide(std::size_t count, int spread, std::uint64_t seed) {
    random_source random = stream(seed, 1);
    std::vector<T> all = numbers<T>(count, 1.0, 0.1, seed);
    for (T& v : all) v = static_cast<T>(std::ldexp(v, -random.between(0, spread)));
    return all;
}

template <class T>
void check_exact_moments(const std::vector<T>& all) {
    const auto count = static_cast<double>(all.size());
    reference::bit_sum sum, squares;
    for (const T v : all) sum.add(static_cast<double>(v));
    const double total = sum.rounded<double>(), mean = total / count;
    for (const T v : all) {
        const double apart = static_cast<double>(v) - mean;
        squares.add(apart * apart);
    }
    const double deviations = squares.rounded<double>();
    for (const int n : {1, 2, 3, 5, 8})
        for (const std::uint64_t seed : {11u, 12u}) {
            const auto shards = cut(all, n, seed);
            on_every_transport(n, [&](colls::communicator& comm) {
                const auto m = colls::moments_of(comm, shards[static_cast<std::size_t>(comm.rank())], colls::exact);
                expect(m.count == static_cast<std::int64_t>(all.size()), "the count");
                expect(raw(m.sum) == raw(total) && raw(m.mean()) == raw(mean), "the bits of the mean");
                expect(raw(m.deviations) == raw(deviations), "the bits of the deviations");
            });
        }
}

template <class T>
void check_exact_softmax(const std::vector<T>& all) {
    std::vector<T> want(all);
    const T greatest = *std::ranges::max_element(all);
    reference::bit_sum sum;
    for (T& v : want) sum.add(static_cast<double>(v = std::exp(v - greatest)));
    for (T& v : want) v = static_cast<T>(v / sum.rounded<double>());
    for (const int n : {1, 2, 3, 5, 8}) {
        const auto shards = cut(all, n, 13);
        on_every_transport(n, [&](colls::communicator& comm) {
            auto mine = shards[static_cast<std::size_t>(comm.rank())];
            colls::softmax(comm, mine, colls::exact);
            std::size_t at = 0;
            for (int r = 0; r < comm.rank(); ++r) at += shards[static_cast<std::size_t>(r)].size();
            for (const T v : mine) expect(raw(v) == raw(want[at++]), "the bits of a value");
        });
    }
}

}  // namespace

TEST_CASE("moments_of with exact: the bits of one rank, however values are cut", "[patterns]") {
    const auto doubles = wide<double>(3000, 60, 9);
    // By doubles the bits do depend on the order.
    CHECK(
        std::accumulate(doubles.begin(), doubles.end(), 0.0) != std::accumulate(doubles.rbegin(), doubles.rend(), 0.0));
    check_exact_moments(doubles);
    check_exact_moments(wide<float>(3000, 30, 10));
    check_exact_moments(numbers<int>(777, 1e6, 12345, 3));
    check_exact_moments(numbers<double>(500, 1.0, 1e9, 3));
    on_every_transport(3, [](colls::communicator& comm) {
        const auto nothing = colls::moments_of(comm, std::vector<float>{}, colls::exact);
        expect(nothing.count == 0 && std::isnan(nothing.mean()) && std::isnan(nothing.variance()), "of no values");
        for (const double odd : {not_a_number, infinity}) {
            const auto m = colls::moments_of(comm, std::vector<double>{1, comm.rank() == 1 ? odd : 2}, colls::exact);
            expect(std::isnan(odd) ? std::isnan(m.mean()) : m.mean() == infinity, "the mean of what is not finite");
            expect(std::isnan(m.variance()), "and its variance");
        }
    });
}

TEST_CASE("softmax with exact: the bits of one rank, however values are cut", "[patterns]") {
    check_exact_softmax(numbers<double>(3000, 30.0, 0, 5));
    check_exact_softmax(numbers<float>(3000, 10.0, 1e4, 6));
    on_every_transport(3, [](colls::communicator& comm) {
        std::vector<double> y{1, comm.rank() == 2 ? not_a_number : 2}, low{-infinity};
        colls::softmax(comm, y, colls::exact);
        colls::softmax(comm, low, colls::exact);
        expect(std::isnan(y[0]) && std::isnan(y[1]) && std::isnan(low[0]), "NaN spoils all results");
    });
}

TEST_CASE("softmax: that of one rank, for small and for large values", "[patterns]") {
    for (const int n : {1, 2, 3, 5, 7, 8})
        for (const double offset : {0.0, 1e4, -1e4}) {
            const auto all = numbers<double>(500, 30.0, offset, 5);
            const auto shards = cut(all, n, 6);
            std::vector<double> want(all);
            long double total = 0;
            for (double& v : want) total += std::exp(v = v - *std::ranges::max_element(all));
            for (double& v : want) v = static_cast<double>(std::exp(v) / total);
            on_every_transport(n, [&](colls::communicator& comm) {
                auto mine = shards[static_cast<std::size_t>(comm.rank())];
                colls::softmax(comm, mine);
                std::size_t at = 0;
                for (int r = 0; r < comm.rank(); ++r) at += shards[static_cast<std::size_t>(r)].size();
                for (const double v : mine) {
                    expect(std::abs(v - want[at]) <= 1e-13 * want[at], "a value of the softmax");
                    ++at;
                }
                double sum = std::accumulate(mine.begin(), mine.end(), 0.0);
                colls::all_reduce(comm, std::span(&sum, 1), colls::sum);
                expect(std::abs(sum - 1) < 1e-13, "the sum is 1");
            });
        }
}

TEST_CASE("softmax: infinities and NaN give what one rank gives", "[patterns]") {
    on_every_transport(3, [](colls::communicator& comm) {
        const bool last = comm.rank() == 2;
        std::vector<float> x{1, last ? -std::numeric_limits<float>::infinity() : 1};
        colls::softmax(comm, x);
        expect(x[0] == 0.2f && x[1] == (last ? 0.0f : 0.2f), "a value of minus infinity counts nothing");
        for (const double bad : {not_a_number, infinity}) {
            std::vector<double> y{1, last ? bad : 2};
            colls::softmax(comm, y);
            expect(std::isnan(y[0]) && std::isnan(y[1]), "NaN or infinity spoils all results");
        }
        std::vector<double> low{-infinity}, nothing;
        colls::softmax(comm, low);
        expect(std::isnan(low[0]), "nothing but minus infinity");
        colls::softmax(comm, nothing);
        expect(nothing.empty(), "no values at all");
    });
}

TEST_CASE("top_k and arg_max: values and places of a sorted list, with ties", "[patterns]") {
    for (const int n : {1, 2, 3, 5, 7, 8})
        for (const std::size_t count : {0u, 1u, 7u, 300u}) {
            auto all = numbers<float>(count, 5.0, 0, 7);
            for (float& v : all) v = std::round(v);  // 11 different values: many ties
            const auto shards = cut(all, n, 8 + count);
            const auto want = ranked(shards);
            on_every_transport(n, [&](colls::communicator& comm) {
                const auto& mine = shards[static_cast<std::size_t>(comm.rank())];
                const auto check = [&](const auto& found, std::size_t k) {
                    expect(found.size() == std::min(k, want.size()), "how many");
                    for (std::size_t i = 0; i < found.size(); ++i) expect(same(found[i], want[i]), "an entry");
                };
                check(colls::top_k<1>(comm, mine), 1);
                check(colls::top_k<10>(comm, mine), 10);
                check(colls::top_k<1000>(comm, mine), 1000);  // more than there are
                const auto best = colls::arg_max(comm, mine);
                expect(want.empty() ? best.rank == colls::none : same(best, want[0]), "the greatest");
            });
        }
}

TEST_CASE("top_k and arg_max: NaN comes first, minus infinity is a value, integers work", "[patterns]") {
    on_every_transport(5, [](colls::communicator& comm) {
        std::vector<std::vector<double>> shards{
            {-infinity, 3}, {}, {not_a_number, infinity, not_a_number}, {3}, {not_a_number}};
        const auto want = ranked(shards);
        const auto found = colls::top_k<8>(comm, shards[static_cast<std::size_t>(comm.rank())]);
        expect(found.size() == 7, "how many");
        for (std::size_t i = 0; i < found.size(); ++i) expect(same(found[i], want[i]), "an entry");
        expect(found[0].rank == 2 && found[0].index == 0 && found[2].rank == 4, "NaN first, by rank and index");
        expect(found[6].value == -infinity && found[6].rank == 0, "minus infinity last");

        const auto lowest = colls::arg_max(comm, std::vector<double>{-infinity, -infinity});
        expect(lowest.rank == 0 && lowest.index == 0, "all minus infinity");
        const int low = std::numeric_limits<int>::min();
        const auto integer = colls::arg_max(comm, std::vector<int>(comm.rank() == 3 ? 2u : 0u, low));
        expect(integer.rank == 3 && integer.index == 0 && integer.value == low, "the lowest integer");
    });
}
