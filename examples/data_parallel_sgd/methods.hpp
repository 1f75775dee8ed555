// The schedules that --schedule may name: for each, the calls that the training makes and what is known of it.
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
    starter<Comm, double> start_double;     // for the check against one rank
    bool (*supports)(int n);
    colls::report (*prove)(int n);
    colls::cost (*cost)(int n);
};

template <class Comm, class Family>
constexpr method<Comm> make_method(std::string_view name) {
    using schedule = colls::schedule_for<Family, colls::collective::all_reduce>;
    return {name,
            [](Comm& comm, std::span<float> x) { return colls::start::all_reduce<Family>(comm, x, colls::sum); },
            [](Comm& comm, std::span<double> x) { return colls::start::all_reduce<Family>(comm, x, colls::sum); },
            [](int n) { return colls::supports(schedule{}, n); },
            [](int n) { return colls::verify<schedule>(n); },
            [](int n) { return colls::cost_of<schedule>(n); }};
}

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
};

}  // namespace example
