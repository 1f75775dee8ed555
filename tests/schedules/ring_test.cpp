#include <colls/schedules/ring.hpp>

#include "laws.hpp"

using colls::ring;
using enum colls::collective;

static_assert(colls::proven<ring, 16>);

TEST_CASE("ring: provides the collectives that are documented") {
    CHECK(laws::collectives_of<ring>() ==
          "broadcast all_gather reduce reduce_scatter all_reduce barrier inclusive_scan exclusive_scan");
}

TEST_CASE("ring: every schedule is proven, at compile time and at run time") { laws::prove<ring>(); }

TEST_CASE("ring: rounds and volume follow the closed formulas") {
    const laws::formula once = [](int n) { return n - 1; };
    const laws::formula twice = [](int n) { return 2 * (n - 1); };
    const laws::formula everything = [](int n) { return n > 1 ? 1 : 0; };
    laws::check_cost<reduce_scatter>(ring{}, once, once);
    laws::check_cost<all_gather>(ring{}, once, once);
    laws::check_cost<all_reduce>(ring{}, twice, twice);
    laws::check_cost<broadcast>(ring{}, once, everything);
    laws::check_cost<reduce>(ring{}, once, everything);
    laws::check_cost<inclusive_scan>(ring{}, once, everything);
    laws::check_cost<exclusive_scan>(ring{}, once, [](int n) { return n < 3 ? n - 1 : 2; });
    CHECK(laws::cost_at(ring::reduce_scatter{}, 64).scratch == 2);
    CHECK(laws::mean_hops(ring::reduce_scatter{}, 64) == 1.0);
    for (const int n : {2, 3, 10, 33}) {
        CHECK(colls::properties_of<ring::reduce_scatter>(n).volume_optimal);
        CHECK(colls::properties_of<ring::reduce_scatter>(n).symmetric);
    }
}

TEST_CASE("ring: every peer is a neighbour") {
    laws::for_each_schedule(ring{}, [](const colls::any_schedule& s) {
        laws::for_each_step(s, 10, [](int rank, int, int, const colls::step& st) {
            for (const int peer : {st.send.peer, st.recv.peer})
                CHECK((peer == colls::none || peer == (rank + 1) % 10 || peer == (rank + 9) % 10));
        });
    });
}

TEST_CASE("ring: the chain keeps rank order, the ring does not; all ranks compute the same bits") {
    CHECK(laws::keeps_order<reduce>(ring{}));
    CHECK(laws::keeps_order<inclusive_scan>(ring{}));
    CHECK(laws::keeps_order<exclusive_scan>(ring{}));
    CHECK(laws::sizes_out_of_order(ring::reduce_scatter{}) == "3 4 5 7 8 10 13 16 17 31 32 33 48 64 65 66");
    laws::check_identical<ring>();
}
