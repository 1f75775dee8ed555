#include <colls/schedules/double_tree.hpp>

#include "laws.hpp"

#include <cstddef>
#include <vector>

using colls::double_tree;
using enum colls::collective;

static_assert(colls::proven<double_tree, proven_to>);

TEST_CASE("double tree: provides the collectives that are documented") {
    CHECK(laws::collectives_of<double_tree>() == "broadcast reduce all_reduce barrier");
}

TEST_CASE("double tree: every schedule is proven, at compile time and at run time") {
    laws::prove<double_tree>();
    laws::prove<colls::double_tree::in_order_tree<0>>();
    laws::prove<colls::double_tree::in_order_tree<1>>();
}

TEST_CASE("double tree: rounds and volume follow the closed formulas") {
    const auto depth = [](int n) { return n == 1 ? 0 : colls::log2_ceil(n + 1); };
    // Blocks are halves of the data.
    laws::check_cost<broadcast>(double_tree{}, depth, [](int n) { return n > 1 ? 2 : 0; });
    laws::check_cost<reduce>(double_tree{}, depth, [](int n) { return n > 1 ? 2 : 0; });
    laws::check_cost<all_reduce>(
        double_tree{}, [&](int n) { return 2 * depth(n); }, [](int n) { return n == 1  ? 0
                                                                               : n < 4 ? n
                                                                                       : 4; });
    CHECK(colls::blocks_of(double_tree::broadcast{}, 10) == 2);
    laws::check_cost<broadcast>(
        colls::double_tree::in_order_tree<0>{}, [](int n) { return colls::log2_ceil(n); },
        [](int n) { return n < 4 ? n > 1 : 2; });
}

TEST_CASE("double tree: binary, and no rank but the root inner in both trees") {
    for (int n = 2; n <= 300; ++n) {
        std::vector<int> children[2], parents[2];
        for (int lane = 0; lane < 2; ++lane) {
            children[lane].resize(static_cast<std::size_t>(n));
            parents[lane].resize(static_cast<std::size_t>(n));
        }
        laws::for_each_step(double_tree::broadcast{}, n, [&](int rank, int, int port, const colls::step& st) {
            const auto r = static_cast<std::size_t>(rank);
            if (st.send.peer != colls::none) ++children[port / 2][r];
            if (st.recv.peer != colls::none) ++parents[port / 2][r];
        });
        bool right = true;
        for (std::size_t r = 0; r < static_cast<std::size_t>(n); ++r)
            for (int lane = 0; lane < 2; ++lane)
                right = right && parents[lane][r] == (r > 0 ? 1 : 0) && children[lane][r] <= (r > 0 ? 2 : 1) &&
                        (r == 0 || children[0][r] == 0 || children[1][r] == 0);
        INFO("n = " << n);
        CHECK(right);
    }
}

TEST_CASE("double tree: keeps rank order at every size; all ranks compute the same bits") {
    for (int n = 1; n <= 66; ++n) {
        INFO("n = " << n);
        CHECK(colls::properties_of(colls::schedule_of<reduce>(double_tree{}), n).order_preserving);
        CHECK(colls::properties_of(colls::schedule_of<all_reduce>(double_tree{}), n).order_preserving);
    }
    laws::check_identical<double_tree>();
}
