// The list of schedules, each behind two function pointers: compiled once for all tests.
#include "schedules.hpp"

namespace support {

const std::vector<row>& all_schedules() {
    static const std::vector<row> list = [] {
        using namespace colls;
        std::vector<row> rows;
        add<ring>(rows, "ring");
        add<circulant<>>(rows, "circulant");
        add<halving_doubling>(rows, "halving_doubling");
        add<recursive_doubling>(rows, "recursive_doubling");
        add<circulant<linear>>(rows, "circulant<linear>");
        add<circulant<doubling>>(rows, "circulant<doubling>");
        add<distance_doubling>(rows, "distance_doubling");
        add<recursive_multiplying<3>>(rows, "recursive_multiplying<3>");
        add<one_shot>(rows, "one_shot");
        add<tree<2>>(rows, "tree<2>");
        add<tree<3>>(rows, "tree<3>");
        add<double_tree>(rows, "double_tree");
        add<direct>(rows, "direct");
        add<bruck<2>>(rows, "bruck<2>");
        add<bruck<3>>(rows, "bruck<3>");
        add<swing>(rows, "swing");
        add<pat<1>>(rows, "pat<1>");
        add<pat<2>>(rows, "pat<2>");
        add(rows, "pipelined_broadcast{1}", pipelined_broadcast{1});
        add(rows, "pipelined_broadcast{7}", pipelined_broadcast{7});
        add(rows, "hierarchical<direct, ring>{2}", hierarchical<direct, ring>{.node = 2});
        add(rows, "hierarchical<ring, circulant>{4}", hierarchical<ring, circulant<>>{.node = 4});
        add(rows, "hierarchical<bruck, bruck>{3}", hierarchical<bruck<2>, bruck<2>>{.node = 3});
        add(rows, "hierarchical<tree, tree>{4}", hierarchical<tree<2>, tree<2>>{.node = 4});
        add(rows, "hierarchical<direct, direct>{2}", hierarchical<direct, direct>{.node = 2});
        add<hierarchical<direct, hierarchical<direct, ring>>>(rows, "hierarchical<direct, hierarchical<direct, ring>>");
        add<hierarchical<hierarchical<tree<2>, direct>, direct>>(
            rows, "hierarchical<hierarchical<tree, direct>, direct>");
        add<striped<ring, permuted<ring, backwards>>>(rows, "striped<ring, backwards ring>");
        add<striped<tree<2>, permuted<tree<2>, backwards>>>(rows, "striped<tree, backwards tree>");
        add<striped<tree<3>, permuted<tree<3>, turned>>>(rows, "striped<tree, turned tree>");
        add<striped<direct, permuted<direct, backwards>, direct>>(rows, "striped<direct, backwards direct, direct>");
        add<permuted<circulant<>, shifted>>(rows, "permuted<circulant, shifted>");
        add<folded<halving_doubling>>(rows, "folded<halving_doubling>");
        add<folded<recursive_doubling>>(rows, "folded<recursive_doubling>");
        add<folded<distance_doubling>>(rows, "folded<distance_doubling>");
        add<folded<recursive_multiplying<4>>>(rows, "folded<recursive_multiplying<4>>");
        add<folded<swing>>(rows, "folded<swing>");
        add<pairwise_reduce_scatter>(rows, "user's pairwise");
        add<reversed<pairwise_reduce_scatter>>(rows, "user's pairwise, reversed");
        add<compose<pairwise_reduce_scatter, reversed<pairwise_reduce_scatter>>>(rows, "user's pairwise, composed");
        add(rows, "user's chain{3}", chain_broadcast{3});
        add(rows, "user's chain{3}, reversed", reversed<chain_broadcast>{chain_broadcast{3}});
        add<relay_all_reduce>(rows, "user's relay");
        add<neighbour_exchange>(rows, "user's neighbour exchange");
        return rows;
    }();
    return list;
}

}  // namespace support
