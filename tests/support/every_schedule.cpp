// Every schedule of the library, each behind two function pointers: compiled once for all tests.
#include "every_schedule.hpp"

namespace support {

const std::vector<named_schedule>& every_schedule() {
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
