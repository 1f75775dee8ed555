#include <colls/schedules/direct.hpp>

#include "laws.hpp"

using colls::direct;
using colls::fan_in;
using colls::one_shot;
using enum colls::collective;

static_assert(colls::proven<direct, proven_to>);
static_assert(colls::proven<one_shot, proven_to>);
static_assert(colls::proven<fan_in, proven_to>);

TEST_CASE("direct: provides the collectives that are documented") {
    CHECK(laws::collectives_of<direct>() ==
          "broadcast scatter gather all_gather reduce reduce_scatter all_reduce "
          "all_to_all barrier inclusive_scan exclusive_scan");
    CHECK(laws::collectives_of<one_shot>() == "all_reduce barrier");
    CHECK(laws::collectives_of<fan_in>() == "all_reduce barrier");
}

TEST_CASE("direct: every schedule is proven, at compile time and at run time") {
    laws::prove<direct>();
    laws::prove<one_shot>();
    laws::prove<fan_in>();
}

TEST_CASE("direct: rounds and volume follow the closed formulas") {
    const auto one = [](int n) { return n > 1 ? 1 : 0; };
    const auto two = [](int n) { return n > 1 ? 2 : 0; };
    const auto rest = [](int n) { return n - 1; };
    laws::check_cost<reduce_scatter>(direct{}, one, rest);
    laws::check_cost<all_gather>(direct{}, one, rest);
    laws::check_cost<all_reduce>(direct{}, two, [](int n) { return 2 * (n - 1); });
    laws::check_cost<all_to_all>(direct{}, one, rest);
    laws::check_cost<broadcast>(direct{}, one, rest);
    laws::check_cost<reduce>(direct{}, one, one);
    laws::check_cost<scatter>(direct{}, one, rest);
    laws::check_cost<gather>(direct{}, one, one);
    laws::check_cost<inclusive_scan>(direct{}, one, rest);
    laws::check_cost<exclusive_scan>(direct{}, [](int n) { return n < 3 ? n - 1 : 2; }, rest);
    laws::check_cost<barrier>(direct{}, one, [](int) { return 0; });
    laws::check_cost<all_reduce>(one_shot{}, one, rest);
    laws::check_cost<all_reduce>(
        fan_in{}, [](int n) { return n > 1 ? 1 + colls::log2_ceil(n) : 0; }, [](int n) { return colls::log2_ceil(n); });
    CHECK(laws::cost_at(fan_in::all_reduce{}, 10).messages == 18);
    CHECK(laws::cost_at(fan_in::all_reduce{}, 10).all_reduced == 9);
    CHECK(colls::blocks_of(one_shot::all_reduce{}, 10) == 1);
    CHECK(laws::cost_at(direct::reduce_scatter{}, 64).scratch == 0);
}

TEST_CASE("direct: combines in rank order in every collective; all ranks compute the same bits") {
    laws::for_each_schedule(direct{}, [](const colls::any_schedule& s) { CHECK(laws::sizes_out_of_order(s) == ""); });
    CHECK(laws::keeps_order<all_reduce>(one_shot{}));
    CHECK(laws::keeps_order<all_reduce>(fan_in{}));
    laws::check_identical<direct>();
    laws::check_identical<one_shot>();
    laws::check_identical<fan_in>();
}
