#include <colls/algebra/folded.hpp>
#include <colls/schedules/recursive_doubling.hpp>

#include "laws.hpp"

using colls::recursive_doubling;
using colls::recursive_multiplying;
using enum colls::collective;

static_assert(colls::proven<recursive_doubling, proven_to>);
static_assert(colls::proven<recursive_multiplying<3>, proven_to>);
static_assert(colls::proven<recursive_multiplying<4>, proven_to>);
static_assert(colls::proven<colls::folded<recursive_doubling>, proven_to>);
static_assert(
    colls::supports(recursive_doubling::all_reduce{}, 64) && !colls::supports(recursive_doubling::all_reduce{}, 48));
static_assert(colls::supports(recursive_multiplying<3>::all_reduce{}, 81) &&
              !colls::supports(recursive_multiplying<3>::all_reduce{}, 64));

namespace {
/// Ranks j K^k < n, 0 < j < K: how many others a rank meets in all.
template <int K>
int meetings(int n) {
    int count = 0;
    for (int d = 1; d < n; d *= K)
        for (int j = 1; j < K; ++j) count += j * d < n;
    return count;
}
template <int K>
int rounds(int n) {
    int k = 0;
    for (int d = 1; d < n; d *= K) ++k;
    return k;
}

template <int K>
void check_costs() {
    const recursive_multiplying<K> f;
    const auto none_sent = [](int) { return 0; };
    laws::check_cost<all_reduce>(f, rounds<K>, [](int n) { return (K - 1) * rounds<K>(n); });
    laws::check_cost<inclusive_scan>(f, rounds<K>, meetings<K>);
    laws::check_cost<exclusive_scan>(
        f, [](int n) { return n == 1 ? 0 : 1 + rounds<K>(n - 1); },
        [](int n) { return n < 3 ? n - 1 : 1 + meetings<K>(n - 1); });
    laws::check_cost<barrier>(f, rounds<K>, none_sent);
}
}  // namespace

TEST_CASE("recursive doubling: provides the collectives that are documented") {
    CHECK(laws::collectives_of<recursive_doubling>() == "all_reduce barrier inclusive_scan exclusive_scan");
}

TEST_CASE("recursive doubling: every schedule is proven, at compile time and at run time") {
    laws::prove<recursive_doubling>();
    laws::prove<recursive_multiplying<3>>();
    laws::prove<recursive_multiplying<5>>();
    laws::prove<recursive_multiplying<64>>();
    laws::prove<colls::folded<recursive_doubling>>();
    for (const int n : {27, 81}) CHECK(colls::verify<recursive_multiplying<3>::all_reduce>(n).ok());
}

TEST_CASE("recursive doubling: rounds and volume follow the closed formulas") {
    check_costs<2>();
    check_costs<3>();
    check_costs<4>();
    check_costs<16>();
    // n = 48: 5 rounds among 32, and one on either side.
    CHECK(laws::cost_at(colls::schedule_of<all_reduce>(colls::folded<recursive_doubling>{}), 48).rounds == 7);
}

TEST_CASE("recursive doubling: combines in rank order in every collective; all ranks compute the same bits") {
    const auto in_order = [](const colls::any_schedule& s) { CHECK(laws::sizes_out_of_order(s) == ""); };
    laws::for_each_schedule(recursive_doubling{}, in_order);
    laws::for_each_schedule(recursive_multiplying<3>{}, in_order);
    CHECK(laws::keeps_order<all_reduce>(colls::folded<recursive_doubling>{}));
    laws::check_identical<recursive_doubling>();
    laws::check_identical<recursive_multiplying<4>>();
    CHECK(colls::properties_of<recursive_multiplying<3>::all_reduce>(27).order_preserving);
    CHECK(colls::properties_of<recursive_multiplying<3>::all_reduce>(27).rank_identical);
}
