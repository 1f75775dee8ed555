#include <colls/schedules/bruck.hpp>
#include <colls/schedules/circulant.hpp>

#include "laws.hpp"

using colls::bruck;
using enum colls::collective;

static_assert(colls::proven<bruck<>, proven_to>);
static_assert(colls::proven<bruck<3>, proven_to>);
static_assert(colls::proven<bruck<4>, proven_to>);

namespace {
template <int K>
int places(int n) {
    int k = 0;
    for (int d = 1; d < n; d *= K) ++k;
    return k;
}
/// Digits z != 0 at any place that some number below n has.
template <int K>
int digits(int n) {
    int count = 0;
    for (int d = 1; d < n; d *= K)
        for (int z = 1; z < K; ++z) count += z * d < n;
    return count;
}
/// All digits other than 0 of all numbers below n.
template <int K>
int digit_sum(int n) {
    int count = 0;
    for (int i = 0; i < n; ++i)
        for (int rest = i; rest > 0; rest /= K) count += rest % K != 0;
    return count;
}
template <int K>
void check_costs() {
    const bruck<K> f;
    const laws::formula volume = [](int n) { return n - 1; };
    laws::check_cost<all_gather>(f, places<K>, volume);
    laws::check_cost<reduce_scatter>(f, places<K>, volume);
    laws::check_cost<all_reduce>(f, [](int n) { return 2 * places<K>(n); }, [](int n) { return 2 * (n - 1); });
    laws::check_cost<all_to_all>(f, digits<K>, digit_sum<K>);
    bool fewer = true;
    for (int n = 1; n <= laws::largest; ++n)
        fewer = fewer && colls::schedule_of<all_to_all>(f).rounds(n) <= (K - 1) * places<K>(n);
    CHECK(fewer);
}
}  // namespace

TEST_CASE("bruck: provides the collectives that are documented") {
    CHECK(laws::collectives_of<bruck<>>() == "all_gather reduce_scatter all_reduce all_to_all barrier");
}

TEST_CASE("bruck: every schedule is proven, at compile time and at run time") {
    laws::prove<bruck<>>();
    laws::prove<bruck<3>>();
    laws::prove<bruck<4>>();
    laws::prove<bruck<5>>();
    laws::prove<bruck<8>>();
    laws::prove<bruck<200>>();
}

TEST_CASE("bruck: rounds and volume follow the closed formulas") {
    check_costs<2>();
    check_costs<3>();
    check_costs<4>();
    check_costs<7>();
    check_costs<200>();
    CHECK(laws::cost_at(bruck<2>::all_to_all{}, 64).blocks_sent == 192);
    CHECK(laws::cost_at(bruck<4>::all_to_all{}, 64).blocks_sent == 144);
    CHECK(laws::cost_at(bruck<8>::all_to_all{}, 64).blocks_sent == 112);
    CHECK(laws::cost_at(bruck<64>::all_to_all{}, 64).blocks_sent == 63);
}

TEST_CASE("bruck: radix 2 is the circulant all_gather over powers of two") {
    const auto a = bruck<2>::all_gather{};
    const auto b = colls::schedule_of<all_gather>(colls::circulant<colls::doubling>{});
    for (const int n : laws::awkward_sizes) {
        INFO("n = " << n);
        CHECK(laws::same_steps(a, b, n, [](int, int k) { return k; }, [](int, int) { return 0; }));
    }
}

TEST_CASE("bruck: with a radix of at least n, all_to_all is the pairwise exchange") {
    laws::for_each_step(bruck<200>::all_to_all{}, 33, [](int rank, int round, int, const colls::step& st) {
        CHECK(st.send.peer == (rank + round + 1) % 33);
        CHECK(st.send.blocks.size() == 1);
        CHECK(bruck<200>::all_to_all::input(rank, 33, st.send.blocks[0]) == st.send.peer);
    });
}

TEST_CASE("bruck: does not combine in rank order; all ranks compute the same bits") {
    CHECK(!laws::keeps_order<reduce_scatter>(bruck<>{}));
    laws::check_identical<bruck<>>();
    laws::check_identical<bruck<3>>();
}
