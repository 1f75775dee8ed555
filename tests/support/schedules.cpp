// The list of schedules, compiled once for all tests.
#include "schedules.hpp"

#include <colls/detail/choose/choose.hpp>

#include <cstddef>
#include <utility>

namespace support {

namespace {

template <class F, int... C>
void add_each(std::vector<row>& rows, const std::string& name, const F& f, std::integer_sequence<int, C...>) {
    const auto add_one = [&]<int c>(std::integral_constant<int, c>) {
        constexpr auto collective = static_cast<colls::collective>(c);
        if constexpr (colls::provides<F, collective>)
            rows.push_back({name, static_cast<verb>(c), colls::any_schedule(colls::schedule_of<collective>(f))});
    };
    (add_one(std::integral_constant<int, C>{}), ...);
}
/// Every collective that f, a family or a schedule, provides.
template <class F>
void add(std::vector<row>& rows, const std::string& name, const F& f = F{}) {
    add_each(rows, name, f, std::make_integer_sequence<int, colls::collective_count>{});
}

std::vector<row> library_schedules() {
    using namespace colls;
    std::vector<row> rows;
    add<ring>(rows, "ring");
    add<circulant<>>(rows, "circulant");
    add<halving_doubling>(rows, "halving_doubling");
    add<recursive_doubling>(rows, "recursive_doubling");
    add<circulant<linear>>(rows, "circulant<linear>");
    add<circulant<doubling>>(rows, "circulant<doubling>");
    add<recursive_multiplying<3>>(rows, "recursive_multiplying<3>");
    add<one_shot>(rows, "one_shot");
    add<fan_in>(rows, "fan_in");
    add<tree<2>>(rows, "tree<2>");
    add<tree<3>>(rows, "tree<3>");
    add<double_tree>(rows, "double_tree");
    add<direct>(rows, "direct");
    add<bruck<2>>(rows, "bruck<2>");
    add<bruck<3>>(rows, "bruck<3>");
    add<swing>(rows, "swing");
    add<bine>(rows, "bine");
    add<pat<1>>(rows, "pat<1>");
    add<pat<2>>(rows, "pat<2>");
    add(rows, "pipelined_broadcast{1}", pipelined_broadcast{1});
    add(rows, "pipelined_broadcast{7}", pipelined_broadcast{7});
    add<detail::parted_broadcast>(rows, "parted_broadcast");
    add(rows, "hierarchical<direct, ring>{2}", hierarchical<direct, ring>{.node = 2});
    add(rows, "hierarchical<bruck, bruck>{3}", hierarchical<bruck<2>, bruck<2>>{.node = 3});
    add(rows, "hierarchical<tree, tree>{4}", hierarchical<tree<2>, tree<2>>{.node = 4});
    add<striped<ring, permuted<ring, backwards>>>(rows, "striped<ring, backwards ring>");
    add<permuted<circulant<>, shifted>>(rows, "permuted<circulant, shifted>");
    add<folded<halving_doubling>>(rows, "folded<halving_doubling>");
    add<folded<recursive_doubling>>(rows, "folded<recursive_doubling>");
    add<folded<swing>>(rows, "folded<swing>");
    return rows;
}

void add_further(std::vector<row>& rows) {
    using namespace colls;
    add<distance_doubling>(rows, "distance_doubling");
    add(rows, "hierarchical<ring, circulant>{4}", hierarchical<ring, circulant<>>{.node = 4});
    add(rows, "hierarchical<direct, direct>{2}", hierarchical<direct, direct>{.node = 2});
    add<hierarchical<direct, hierarchical<direct, ring>>>(rows, "hierarchical<direct, hierarchical<direct, ring>>");
    add<hierarchical<hierarchical<tree<2>, direct>, direct>>(rows, "hierarchical<hierarchical<tree, direct>, direct>");
    add<striped<tree<2>, permuted<tree<2>, backwards>>>(rows, "striped<tree, backwards tree>");
    add<striped<tree<3>, permuted<tree<3>, turned>>>(rows, "striped<tree, turned tree>");
    add<striped<direct, permuted<direct, backwards>, direct>>(rows, "striped<direct, backwards direct, direct>");
    add<folded<distance_doubling>>(rows, "folded<distance_doubling>");
    add<folded<recursive_multiplying<4>>>(rows, "folded<recursive_multiplying<4>>");
    add<pairwise_reduce_scatter>(rows, "user's pairwise");
    add<reversed<pairwise_reduce_scatter>>(rows, "user's pairwise, reversed");
    add<compose<pairwise_reduce_scatter, reversed<pairwise_reduce_scatter>>>(rows, "user's pairwise, composed");
    add(rows, "user's chain{3}", chain_broadcast{3});
    add(rows, "user's chain{3}, reversed", reversed<chain_broadcast>{chain_broadcast{3}});
    add<relay_all_reduce>(rows, "user's relay");
    add<neighbour_exchange>(rows, "user's neighbour exchange");
}

}  // namespace

const std::vector<row>& all_schedules() {
    static const std::vector<row> list = [] {
        std::vector<row> rows = library_schedules();
        add_further(rows);
        return rows;
    }();
    return list;
}

const std::vector<named_schedule>& every_schedule() {
    static const std::vector<named_schedule> list = [] {
        std::vector<named_schedule> named;
        for (const row& r : library_schedules())
            named.push_back({r.name + " " + name_of(static_cast<colls::collective>(r.collective)), r.schedule});
        return named;
    }();
    return list;
}

}  // namespace support
