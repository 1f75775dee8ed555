// Every schedule of the library, collective by collective, for the tests of proof and cost: no executor is needed.
#pragma once

#include <colls/algebra.hpp>
#include <colls/any_schedule.hpp>
#include <colls/schedules/bruck.hpp>
#include <colls/schedules/circulant.hpp>
#include <colls/schedules/direct.hpp>
#include <colls/schedules/double_tree.hpp>
#include <colls/schedules/halving_doubling.hpp>
#include <colls/schedules/hierarchical.hpp>
#include <colls/schedules/pat.hpp>
#include <colls/schedules/pipelined_broadcast.hpp>
#include <colls/schedules/recursive_doubling.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/schedules/swing.hpp>
#include <colls/schedules/tree.hpp>

#include <string>
#include <utility>
#include <vector>

namespace support {

struct named_schedule {
    std::string name;  ///< family and collective
    colls::any_schedule schedule;
};

template <class F, int... C>
void add_each(
    std::vector<named_schedule>& list, const std::string& name, const F& f, std::integer_sequence<int, C...>) {
    const auto add = [&]<int c>(std::integral_constant<int, c>) {
        constexpr auto what = static_cast<colls::collective>(c);
        if constexpr (colls::provides<F, what>)
            list.push_back({name + " " + colls::name_of(what), colls::any_schedule(colls::schedule_of<what>(f))});
    };
    (add(std::integral_constant<int, C>{}), ...);
}
/// Every collective that f provides.
template <class F>
void add_family(std::vector<named_schedule>& list, const std::string& name, const F& f = F{}) {
    add_each(list, name, f, std::make_integer_sequence<int, colls::collective_count>{});
}

struct backwards {
    static constexpr int role(int rank, int n) { return n - 1 - rank; }
    static constexpr int rank(int role, int n) { return n - 1 - role; }
};

/// All of them. Compiled once, in every_schedule.cpp.
const std::vector<named_schedule>& every_schedule();

}  // namespace support
