#include <colls/schedules/pat.hpp>

#include "laws.hpp"

#include <algorithm>

using colls::pat;
using enum colls::collective;

static_assert(colls::proven<pat<>, proven_to>);
static_assert(colls::proven<pat<2>::all_gather, proven_to>);
static_assert(colls::proven<pat<4>::all_gather, proven_to>);

namespace {
template <int A>
void check_costs() {
    // log2 A + P/A - 1 with P the least power of two not below n, A at most P; there are no rounds for offsets from n
    // on.
    const laws::formula rounds = [](int n) {
        int p = 1, a = A, log = 0;
        while (p < n) p *= 2;
        if (a > p) a = p;
        while (1 << log < a) ++log;
        return log + (a == 1 ? n : p / a) - 1;
    };
    const laws::formula volume = [](int n) { return n - 1; };
    laws::check_cost<all_gather>(pat<A>{}, rounds, volume);
    laws::check_cost<reduce_scatter>(pat<A>{}, rounds, volume);
    laws::check_cost<all_reduce>(pat<A>{}, [&](int n) { return 2 * rounds(n); }, [](int n) { return 2 * (n - 1); });
    int least = A, most = 1;
    for (const int n : laws::awkward_sizes)
        laws::for_each_step(typename pat<A>::all_gather{}, n, [&](int, int, int, const colls::step& st) {
            least = std::min(least, st.send.blocks.size());
            most = std::max(most, st.send.blocks.size());
        });
    CHECK(least == 1);
    CHECK(most == std::min(A, 64));  // of 128 offsets, every other one
    CHECK(laws::mean_hops(typename pat<A>::all_gather{}, 64) == Approx(192.0 / 63));
}
}  // namespace

TEST_CASE("pat: provides the collectives that are documented") {
    CHECK(laws::collectives_of<pat<>>() == "all_gather reduce_scatter all_reduce barrier");
}

TEST_CASE("pat: every schedule is proven, at compile time and at run time") {
    laws::prove<pat<>>();
    laws::prove<pat<2>>();
    laws::prove<pat<4>>();
    laws::prove<pat<8>>();
    laws::prove<pat<256>>();
}

TEST_CASE("pat: rounds, volume and blocks a message follow the closed formulas") {
    check_costs<1>();
    check_costs<2>();
    check_costs<4>();
    check_costs<32>();
    check_costs<1024>();
    CHECK(laws::cost_at(colls::schedule_of<reduce_scatter>(pat<1>{}), 64).scratch == 3);
    CHECK(colls::schedule_of<all_gather>(pat<256>{}).rounds(129) == 8);
}

TEST_CASE("pat: does not combine in rank order; all ranks compute the same bits") {
    CHECK(!laws::keeps_order<reduce_scatter>(pat<>{}));
    laws::check_identical<pat<>>();
    laws::check_identical<pat<4>>();
}
