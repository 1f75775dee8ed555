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

inline const std::vector<named_schedule>& every_schedule() {
    static const std::vector<named_schedule> all = [] {
        using namespace colls;
        std::vector<named_schedule> l;
        add_family<ring>(l, "ring");
        add_family<circulant<>>(l, "circulant");
        add_family<circulant<doubling>>(l, "circulant<doubling>");
        add_family<circulant<linear>>(l, "circulant<linear>");
        add_family<halving_doubling>(l, "halving_doubling");
        add_family<recursive_doubling>(l, "recursive_doubling");
        add_family<recursive_multiplying<3>>(l, "recursive_multiplying<3>");
        add_family<tree<2>>(l, "tree<2>");
        add_family<tree<4>>(l, "tree<4>");
        add_family<double_tree>(l, "double_tree");
        add_family<direct>(l, "direct");
        add_family<one_shot>(l, "one_shot");
        add_family<bruck<2>>(l, "bruck<2>");
        add_family<bruck<4>>(l, "bruck<4>");
        add_family<swing>(l, "swing");
        add_family<pat<1>>(l, "pat<1>");
        add_family<pat<4>>(l, "pat<4>");
        add_family(l, "pipelined_broadcast{1}", pipelined_broadcast{1});
        add_family(l, "pipelined_broadcast{6}", pipelined_broadcast{6});
        add_family(l, "hierarchical<direct, ring>{4}", hierarchical<direct, ring>{.node = 4});
        add_family(l, "hierarchical<bruck, bruck>{3}", hierarchical<bruck<2>, bruck<2>>{.node = 3});
        add_family(l, "hierarchical<tree, tree>{2}", hierarchical<tree<2>, tree<2>>{.node = 2});
        add_family<striped<ring, permuted<ring, backwards>>>(l, "striped<ring, backwards ring>");
        add_family<permuted<circulant<>, backwards>>(l, "permuted<circulant, backwards>");
        add_family<folded<halving_doubling>>(l, "folded<halving_doubling>");
        add_family<folded<recursive_doubling>>(l, "folded<recursive_doubling>");
        add_family<folded<swing>>(l, "folded<swing>");
        return l;
    }();
    return all;
}

}  // namespace support
