#include <colls/algebra/folded.hpp>
#include <colls/schedules/halving_doubling.hpp>

#include "laws.hpp"

using colls::distance_doubling;
using colls::halving_doubling;
using enum colls::collective;

static_assert(colls::proven<halving_doubling, proven_to>);
static_assert(colls::proven<distance_doubling, proven_to>);
static_assert(colls::proven<colls::folded<halving_doubling>, proven_to>);
static_assert(colls::proven<colls::folded<distance_doubling>, proven_to>);

namespace {
template <class Family>
void check_costs() {
    const auto q = [](int n) { return colls::log2_ceil(n); };
    const auto volume = [](int n) { return n - 1; };
    laws::check_cost<reduce_scatter>(Family{}, q, volume);
    laws::check_cost<all_gather>(Family{}, q, volume);
    laws::check_cost<all_reduce>(
        Family{}, [](int n) { return 2 * colls::log2_ceil(n); }, [](int n) { return 2 * (n - 1); });
    for (const int n : {2, 16, 64}) {
        const colls::properties p = colls::properties_of<typename Family::reduce_scatter>(n);
        CHECK((p.round_optimal && p.volume_optimal));
    }
}
}  // namespace

TEST_CASE("halving: provides the collectives that are documented, for powers of two") {
    CHECK(laws::collectives_of<halving_doubling>() == "all_gather reduce_scatter all_reduce barrier");
    CHECK(laws::collectives_of<distance_doubling>() == "all_gather reduce_scatter all_reduce barrier");
    for (int n = -1; n <= 130; ++n) {
        const bool power = n == 1 || n == 2 || n == 4 || n == 8 || n == 16 || n == 32 || n == 64 || n == 128;
        CHECK(colls::supports(halving_doubling::reduce_scatter{}, n) == power);
        CHECK(colls::supports(distance_doubling::reduce_scatter{}, n) == power);
    }
}

TEST_CASE("halving: every schedule is proven, at compile time and at run time") {
    laws::prove<halving_doubling>();
    laws::prove<distance_doubling>();
    laws::prove<colls::folded<halving_doubling>>();
    laws::prove<colls::folded<distance_doubling>>();
}

TEST_CASE("halving: rounds and volume follow the closed formulas") {
    check_costs<halving_doubling>();
    check_costs<distance_doubling>();
    CHECK(laws::cost_at(halving_doubling::reduce_scatter{}, 64).scratch == 31);
    CHECK(laws::mean_hops(halving_doubling::reduce_scatter{}, 64) == Approx(1365.0 / 63));
    CHECK(laws::mean_hops(distance_doubling::reduce_scatter{}, 64) == Approx(192.0 / 63));
}

TEST_CASE("halving: folded at 48 ranks") {
    const auto s = colls::schedule_of<all_reduce>(colls::folded<halving_doubling>{});
    const colls::cost c = colls::traffic_of(s, 48);
    CHECK(c.rounds == 12);
    // With 32 blocks: 2.94 times the data sent by the busiest rank, 3.94 on the critical path.
    CHECK(static_cast<double>(c.blocks_sent) / c.blocks == Approx(2.94).margin(0.005));
    CHECK(static_cast<double>(c.critical_sent) / c.blocks == Approx(3.94).margin(0.005));
}

TEST_CASE(
    "halving: distance doubling keeps rank order, folded at any size; halving does not; all ranks compute the same "
    "bits") {
    CHECK(laws::keeps_order<reduce_scatter>(distance_doubling{}));
    CHECK(laws::keeps_order<all_reduce>(distance_doubling{}));
    CHECK(laws::keeps_order<all_reduce>(colls::folded<distance_doubling>{}));
    CHECK(laws::keeps_order<reduce_scatter>(colls::folded<distance_doubling>{}));
    CHECK(laws::sizes_out_of_order(halving_doubling::reduce_scatter{}) == "4 8 16 32 64");
    laws::check_identical<halving_doubling>();
    laws::check_identical<distance_doubling>();
}
