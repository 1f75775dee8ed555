// The schedules that --schedule may name: for each, the exchange that the training makes, its proof and its cost.
#pragma once

#include <colls/colls.hpp>
#include <colls/patterns/gradient_buckets.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

template <class T>
using exchange_of = colls::gradient_buckets<T>;
template <class T>
using make_exchange = exchange_of<T> (*)(
    colls::communicator&, std::vector<std::span<T>> gradients, std::size_t bucket_bytes);

struct method {
    std::string_view name;
    make_exchange<float> exchange;
    make_exchange<double> exchange_double;  // for the check against one rank
    bool (*supports)(int n);
    colls::report (*prove)(int n);
    colls::cost (*cost)(int n);
};

/// The sum over the ranks by a schedule, or by the library's choice.
template <class T, class... Schedule>
exchange_of<T> sum_by(colls::communicator& comm, std::vector<std::span<T>> gradients, std::size_t bucket_bytes) {
    return {comm, std::move(gradients), colls::sum, {.bucket_bytes = bucket_bytes}, Schedule{}...};
}

template <class Family>
constexpr method make_method(std::string_view name) {
    using schedule = colls::schedule_for<Family, colls::collective::all_reduce>;
    return {name, sum_by<float, schedule>, sum_by<double, schedule>,
        [](int n) { return colls::supports(schedule{}, n); }, [](int n) { return colls::verify<schedule>(n); },
        [](int n) { return colls::cost_of<schedule>(n); }};
}

/// A schedule of this program's own: in each round a rank sends one peer that peer's block.
struct pairwise_reduce_scatter {
    static constexpr colls::collective implements = colls::collective::reduce_scatter;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr colls::step at(int rank, int n, int round) {
        const int to = (rank + round + 1) % n, from = (rank - round - 1 + n) % n;
        return {.send = {to, colls::block(to)}, .recv = {from, colls::block(rank), colls::action::reduce}};
    }
};
static_assert(colls::proven<pairwise_reduce_scatter, 16>);
using own_pairwise = colls::compose<pairwise_reduce_scatter, colls::reversed<pairwise_reduce_scatter>>;

/// The library's choice.
inline constexpr method automatic{"automatic", sum_by<float>, sum_by<double>, nullptr, nullptr, nullptr};

inline constexpr std::array methods{
    make_method<colls::ring>("ring"),
    make_method<colls::circulant<>>("circulant"),
    make_method<colls::halving_doubling>("halving_doubling"),
    make_method<colls::recursive_doubling>("recursive_doubling"),
    make_method<colls::swing>("swing"),
    make_method<colls::tree<2>>("tree<2>"),
    make_method<colls::double_tree>("double_tree"),
    make_method<colls::direct>("direct"),
    make_method<own_pairwise>("own pairwise"),
};

}  // namespace example
