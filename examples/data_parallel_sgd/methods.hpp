// The schedules that --schedule may name: for each, the calls that the training makes, its proof and its cost.
#pragma once

#include "exchange.hpp"

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace example {

template <class Comm>
struct method {
    std::string_view name;
    starter<Comm, float> start;
    starter<Comm, double> start_double;  // for the check against one rank
    bool (*supports)(int n);
    colls::report (*prove)(int n);
    colls::cost (*cost)(int n);
};

template <class Comm, class Family>
constexpr method<Comm> make_method(std::string_view name) {
    using schedule = colls::schedule_for<Family, colls::collective::all_reduce>;
    return {name, [](Comm& comm, std::span<float> x) { return colls::start::all_reduce<Family>(comm, x, colls::sum); },
        [](Comm& comm, std::span<double> x) { return colls::start::all_reduce<Family>(comm, x, colls::sum); },
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
template <class Comm>
inline constexpr method<Comm> automatic{"automatic",
    [](Comm& comm, std::span<float> x) { return colls::start::all_reduce(comm, x, colls::sum); },
    [](Comm& comm, std::span<double> x) { return colls::start::all_reduce(comm, x, colls::sum); }, nullptr, nullptr,
    nullptr};

template <class Comm>
inline constexpr std::array methods{
    make_method<Comm, colls::ring>("ring"),
    make_method<Comm, colls::circulant<>>("circulant"),
    make_method<Comm, colls::halving_doubling>("halving_doubling"),
    make_method<Comm, colls::recursive_doubling>("recursive_doubling"),
    make_method<Comm, colls::swing>("swing"),
    make_method<Comm, colls::tree<2>>("tree<2>"),
    make_method<Comm, colls::double_tree>("double_tree"),
    make_method<Comm, colls::direct>("direct"),
    make_method<Comm, own_pairwise>("own pairwise"),
};

}  // namespace example
