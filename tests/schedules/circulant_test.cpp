#include <colls/schedules/circulant.hpp>
#include <colls/schedules/direct.hpp>
#include <colls/schedules/ring.hpp>

#include "laws.hpp"

using colls::circulant;
using enum colls::collective;

namespace {

/// A user's own sequence: two thirds, rounded up.
struct two_thirds {
    static constexpr int next(int s) { return (2 * s + 2) / 3 == s ? s - 1 : (2 * s + 2) / 3; }
    static constexpr int count(int n) {
        int k = 0;
        for (; n > 1; n = next(n)) ++k;
        return k;
    }
    static constexpr int skip(int n, int k) {
        for (; k > 0; --k) n = next(n);
        return n;
    }
};
/// Not legal: less than half.
struct third {
    static constexpr int count(int n) { return two_thirds::count(n) > 0 ? 1 + count((n + 2) / 3) : 0; }
    static constexpr int skip(int n, int k) {
        for (; k > 0; --k) n = (n + 2) / 3;
        return n;
    }
};

static_assert(colls::proven<circulant<>, proven_to>);
static_assert(colls::proven<circulant<colls::doubling>::reduce_scatter, proven_to>);
static_assert(colls::proven<circulant<colls::linear>::reduce_scatter, proven_to>);
static_assert(colls::proven<circulant<two_thirds>::reduce_scatter, proven_to>);
static_assert(!colls::proven_at<circulant<third>::reduce_scatter, 5>);

}  // namespace

TEST_CASE("circulant: provides the collectives that are documented") {
    CHECK(laws::collectives_of<circulant<>>() == "all_gather reduce_scatter all_reduce barrier");
}

TEST_CASE("circulant: every schedule is proven, at compile time and at run time") {
    laws::prove<circulant<>>();
    laws::prove<circulant<colls::doubling>>();
    laws::prove<circulant<colls::linear>>();
    laws::prove<circulant<two_thirds>>();
}

TEST_CASE("circulant: a skip below half of the one before is rejected") {
    for (const int n : {3, 5, 16, 33}) {
        INFO("n = " << n);
        CHECK(!colls::verify(circulant<third>::reduce_scatter{}, n).ok());
    }
}

TEST_CASE("circulant: rounds and volume follow the closed formulas") {
    const auto least = [](int n) { return colls::log2_ceil(n); };
    const auto volume = [](int n) { return n - 1; };
    laws::check_cost<reduce_scatter>(circulant<>{}, least, volume);
    laws::check_cost<reduce_scatter>(circulant<colls::doubling>{}, least, volume);
    laws::check_cost<reduce_scatter>(circulant<colls::linear>{}, volume, volume);
    laws::check_cost<all_gather>(circulant<>{}, least, volume);
    laws::check_cost<all_reduce>(
        circulant<>{}, [](int n) { return 2 * colls::log2_ceil(n); }, [](int n) { return 2 * (n - 1); });
    CHECK(laws::cost_at(circulant<>::reduce_scatter{}, 64).scratch == 31);
    CHECK(laws::cost_at(circulant<colls::linear>::reduce_scatter{}, 64).scratch == 0);
    CHECK(laws::mean_hops(circulant<>::reduce_scatter{}, 64) == Approx(1365.0 / 63));
    for (int n = 2; n <= 66; ++n) {
        const colls::properties p = colls::properties_of<circulant<>::reduce_scatter>(n);
        INFO("n = " << n);
        CHECK((p.round_optimal && p.volume_optimal && p.symmetric));
    }
}

TEST_CASE("circulant: linear skips are direct on one port, in the rounds and volume of the ring") {
    for (const int n : laws::awkward_sizes) {
        INFO("n = " << n);
        CHECK(laws::same_steps(
            circulant<colls::linear>::reduce_scatter{}, colls::direct::reduce_scatter{}, n, [](int, int) { return 0; },
            [](int n_, int k) { return n_ - 2 - k; }));
        const colls::cost a = colls::traffic_of(circulant<colls::linear>::reduce_scatter{}, n),
                          b = colls::traffic_of(colls::ring::reduce_scatter{}, n);
        CHECK((a.rounds == b.rounds && a.critical_sent == b.critical_sent && a.critical_reduced == b.critical_reduced));
    }
}

TEST_CASE("circulant: does not combine in rank order; all ranks compute the same bits") {
    CHECK(laws::sizes_out_of_order(circulant<>::reduce_scatter{}) == "3 4 5 7 8 10 13 16 17 31 32 33 48 64 65 66");
    laws::check_identical<circulant<>>();
}
