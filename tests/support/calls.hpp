// The library's calls with schedules as run-time values, one instantiation for each (type, operator): so the compile
// time of types and operators adds to that of schedules, and is not multiplied by it.
#pragma once

#include "reference.hpp"

#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <cstdlib>
#include <span>
#include <vector>

namespace support {

constexpr colls::collective library(verb c) { return static_cast<colls::collective>(c); }

/// A schedule chosen at run time, wrapped in a schedule type, which a call takes as its argument.
template <colls::collective C>
struct chosen_schedule {
    static constexpr colls::collective implements = C;
    const colls::any_schedule* chosen = nullptr;

    int rounds(int n) const { return chosen->rounds(n); }
    int ports(int n) const { return chosen->ports(n); }
    int blocks(int n) const { return chosen->blocks(n); }
    int scratch(int n) const { return chosen->scratch(n); }
    int root(int n) const { return chosen->root(n); }
    bool supports(int n) const { return chosen->supports(n); }
    int home(int n, int slot) const { return chosen->home(n, slot); }
    int input(int rank, int n, int slot) const { return chosen->input(rank, n, slot); }
    int output(int rank, int n, int slot) const { return chosen->output(rank, n, slot); }
    colls::step at(int rank, int n, int round, int port) const {
        // The library asks for no step that a schedule does not have.
        if (rank < 0 || rank >= n || round < 0 || round >= rounds(n) || port < 0 || port >= ports(n)) std::abort();
        return chosen->at(rank, n, round, port);
    }
};

/// One rank's arguments of one call. Counts are elements.
struct arguments {
    verb collective = verb::barrier;
    bool variable = false;                        ///< the v-variant, with counts (and receive_counts for all_to_all)
    bool same = false;                            ///< the overload with one buffer, where there is one
    const colls::any_schedule* chosen = nullptr;  ///< null: automatic
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::size_t in_count = 0, out_count = 0;
    int root = 0;
    std::span<const std::size_t> counts, receive_counts;
};

// The three modes of a call, each with every collective of the library: of the blocking ones the functions.
struct blocking_way {
    using result = void;
    static result broadcast(auto&&... a) { return colls::broadcast(a...); }
    static result scatter(auto&&... a) { return colls::scatter(a...); }
    static result gather(auto&&... a) { return colls::gather(a...); }
    static result all_gather(auto&&... a) { return colls::all_gather(a...); }
    static result reduce(auto&&... a) { return colls::reduce(a...); }
    static result reduce_scatter(auto&&... a) { return colls::reduce_scatter(a...); }
    static result all_reduce(auto&&... a) { return colls::all_reduce(a...); }
    static result all_to_all(auto&&... a) { return colls::all_to_all(a...); }
    static result barrier(auto&&... a) { return colls::barrier(a...); }
    static result inclusive_scan(auto&&... a) { return colls::inclusive_scan(a...); }
    static result exclusive_scan(auto&&... a) { return colls::exclusive_scan(a...); }
    static result scatter_v(auto&&... a) { return colls::scatter_v(a...); }
    static result gather_v(auto&&... a) { return colls::gather_v(a...); }
    static result all_gather_v(auto&&... a) { return colls::all_gather_v(a...); }
    static result reduce_scatter_v(auto&&... a) { return colls::reduce_scatter_v(a...); }
    static result all_to_all_v(auto&&... a) { return colls::all_to_all_v(a...); }
};
using start_way = colls::start;
using prepare_way = colls::prepare;

/// The collectives that move T and compute nothing.
template <class Way, class T, class Comm>
typename Way::result move_call(Comm& comm, const arguments& a) {
    const std::span<const T> in(reinterpret_cast<const T*>(a.in), a.in_count);
    const std::span<T> out(reinterpret_cast<T*>(a.out), a.out_count);
    if (a.variable) {
        switch (a.collective) {
            case verb::scatter:
                return Way::scatter_v(comm, in, out, a.counts, a.root);
            case verb::gather:
                return Way::gather_v(comm, in, out, a.counts, a.root);
            case verb::all_gather:
                return Way::all_gather_v(comm, in, out, a.counts);
            default:
                return Way::all_to_all_v(comm, in, out, a.counts, a.receive_counts);
        }
    }
    const auto with = [&](auto c, auto call) -> typename Way::result {
        if (a.chosen) return call(chosen_schedule<decltype(c)::value>{a.chosen});
        return call();
    };
    using colls::collective;
    switch (a.collective) {
        case verb::broadcast:
            return with(std::integral_constant<collective, collective::broadcast>{},
                [&](auto... s) { return Way::broadcast(comm, out, a.root, s...); });
        case verb::scatter:
            return with(std::integral_constant<collective, collective::scatter>{},
                [&](auto... s) { return Way::scatter(comm, in, out, a.root, s...); });
        case verb::gather:
            return with(std::integral_constant<collective, collective::gather>{},
                [&](auto... s) { return Way::gather(comm, in, out, a.root, s...); });
        case verb::all_gather:
            return with(std::integral_constant<collective, collective::all_gather>{},
                [&](auto... s) { return Way::all_gather(comm, in, out, s...); });
        case verb::all_to_all:
            return with(std::integral_constant<collective, collective::all_to_all>{},
                [&](auto... s) { return Way::all_to_all(comm, in, out, s...); });
        default:
            return with(std::integral_constant<collective, collective::barrier>{},
                [&](auto... s) { return Way::barrier(comm, s...); });
    }
}

/// The collectives that fold T with op.
template <class Way, class T, class Op, class Comm>
typename Way::result fold_call(Comm& comm, const arguments& a, const Op& op) {
    const std::span<const T> in(reinterpret_cast<const T*>(a.in), a.in_count);
    const std::span<T> out(reinterpret_cast<T*>(a.out), a.out_count);
    if (a.variable) return Way::reduce_scatter_v(comm, in, out, a.counts, op);
    const auto with = [&](auto c, auto call) -> typename Way::result {
        if (a.chosen) return call(chosen_schedule<decltype(c)::value>{a.chosen});
        return call();
    };
    using colls::collective;
    switch (a.collective) {
        case verb::reduce:
            return with(std::integral_constant<collective, collective::reduce>{},
                [&](auto... s) { return Way::reduce(comm, in, out, op, a.root, s...); });
        case verb::reduce_scatter:
            return with(std::integral_constant<collective, collective::reduce_scatter>{},
                [&](auto... s) { return Way::reduce_scatter(comm, in, out, op, s...); });
        case verb::all_reduce:
            return with(std::integral_constant<collective, collective::all_reduce>{}, [&](auto... s) {
                return a.same ? Way::all_reduce(comm, out, op, s...) : Way::all_reduce(comm, in, out, op, s...);
            });
        default:
            break;
    }
    if constexpr (colls::detail::has_finish<Op, T>) {
        std::abort();  // the library does not compile such a scan
    } else {
        if (a.collective == verb::inclusive_scan)
            return with(std::integral_constant<collective, collective::inclusive_scan>{},
                [&](auto... s) { return Way::inclusive_scan(comm, in, out, op, s...); });
        return with(std::integral_constant<collective, collective::exclusive_scan>{},
            [&](auto... s) { return Way::exclusive_scan(comm, in, out, op, s...); });
    }
}

}  // namespace support
