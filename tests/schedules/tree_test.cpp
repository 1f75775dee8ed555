#include <colls/schedules/tree.hpp>

#include "laws.hpp"

#include <vector>

using colls::tree;
using enum colls::collective;

static_assert(colls::proven<tree<>, proven_to>);
static_assert(colls::proven<tree<3>, proven_to>);
static_assert(colls::proven<tree<4>, proven_to>);

namespace {
template <int K>
int depth(int n) {
    int k = 0;
    for (int d = 1; d < n; d *= K) ++k;
    return k;
}
/// How many children the root has: ranks j K^k < n, 0 < j < K.
template <int K>
int children(int n) {
    int count = 0;
    for (int d = 1; d < n; d *= K)
        for (int j = 1; j < K; ++j) count += j * d < n;
    return count;
}
template <int K>
void check_costs() {
    const tree<K> f;
    const auto one = [](int n) { return n > 1 ? 1 : 0; };
    laws::check_cost<broadcast>(f, depth<K>, children<K>);
    laws::check_cost<reduce>(f, depth<K>, one);
    laws::check_cost<scatter>(f, depth<K>, [](int n) { return n - 1; });
    // A child of the root sends the blocks of the interval that it serves: the greatest such interval, cut off at n.
    laws::check_cost<gather>(f, depth<K>, [](int n) {
        int d = 1;
        while (d < n) d *= K;
        if (n == 1) return 0;
        d /= K;
        return d < n - d ? d : n - d > d / K ? n - d : d / K;
    });
    // Each rank but the root sends once upwards, and then to its own children.
    laws::check_cost<all_reduce>(f, [](int n) { return 2 * depth<K>(n); }, children<K>);
}
}  // namespace

TEST_CASE("tree: provides the collectives that are documented") {
    CHECK(laws::collectives_of<tree<>>() == "broadcast scatter gather reduce all_reduce barrier");
}

TEST_CASE("tree: every schedule is proven, at compile time and at run time") {
    laws::prove<tree<>>();
    laws::prove<tree<3>>();
    laws::prove<tree<7>>();
    laws::prove<tree<200>>();
}

TEST_CASE("tree: rounds and volume follow the closed formulas") {
    check_costs<2>();
    check_costs<3>();
    check_costs<5>();
    for (int n = 2; n <= 66; ++n) CHECK(colls::properties_of<tree<>::broadcast>(n).round_optimal);
}

TEST_CASE("tree: every rank receives once, from a lower rank; no block is received twice") {
    for (const int n : laws::awkward_sizes) {
        std::vector<int> served(static_cast<std::size_t>(n));
        laws::for_each_step(tree<3>::broadcast{}, n, [&](int rank, int, int, const colls::step& st) {
            if (st.recv.peer == colls::none) return;
            CHECK(st.recv.peer < rank);
            ++served[static_cast<std::size_t>(rank)];
        });
        for (int r = 0; r < n; ++r) CHECK(served[static_cast<std::size_t>(r)] == (r > 0 ? 1 : 0));
    }
}

TEST_CASE("tree: reduce keeps rank order; all ranks compute the same bits") {
    CHECK(laws::keeps_order<reduce>(tree<>{}));
    CHECK(laws::keeps_order<reduce>(tree<3>{}));
    CHECK(laws::keeps_order<reduce>(tree<7>{}));
    CHECK(laws::keeps_order<all_reduce>(tree<4>{}));
    laws::check_identical<tree<>>();
    laws::check_identical<tree<3>>();
}
