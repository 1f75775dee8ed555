#include <colls/algebra/folded.hpp>
#include <colls/schedules/swing.hpp>

#include "laws.hpp"

using colls::swing;
using enum colls::collective;

static_assert(colls::proven<swing, proven_to>);
static_assert(colls::proven<colls::folded<swing>, proven_to>);

TEST_CASE("swing: provides the collectives that are documented, for powers of two") {
    CHECK(laws::collectives_of<swing>() == "all_gather reduce_scatter all_reduce barrier");
    CHECK(colls::supports(swing::reduce_scatter{}, 128));
    CHECK(!colls::supports(swing::reduce_scatter{}, 96));
}

TEST_CASE("swing: every schedule is proven, at compile time and at run time") {
    laws::prove<swing>();
    laws::prove<colls::folded<swing>>();
    for (const int n : {128, 256, 512}) CHECK(colls::verify<swing::reduce_scatter>(n).ok());
}

TEST_CASE("swing: rounds, volume and distance") {
    const auto q = [](int n) { return colls::log2_ceil(n); };
    const auto volume = [](int n) { return n - 1; };
    laws::check_cost<reduce_scatter>(swing{}, q, volume);
    laws::check_cost<all_gather>(swing{}, q, volume);
    laws::check_cost<all_reduce>(
        swing{}, [](int n) { return 2 * colls::log2_ceil(n); }, [](int n) { return 2 * (n - 1); });
    CHECK(laws::mean_hops(swing::reduce_scatter{}, 64) == Approx(135.0 / 63));
}

TEST_CASE("swing: partners are 1, -1, 3, -5, 11, -21, 43 away from even ranks") {
    const int away[] = {1, -1, 3, -5, 11, -21, 43};
    laws::for_each_step(swing::reduce_scatter{}, 128, [&](int rank, int round, int, const colls::step& st) {
        const int to = rank % 2 == 0 ? rank + away[round] : rank - away[round];
        CHECK(st.send.peer == colls::mod(to, 128));
        CHECK(st.recv.peer == st.send.peer);
    });
}

TEST_CASE("swing: home and owner are inverse") {
    for (int n = 1; n <= 4096; n *= 2) {
        int wrong = 0;
        for (int r = 0; r < n; ++r) wrong += swing::reduce_scatter::home(n, swing::reduce_scatter::owner(r, n)) != r;
        INFO("n = " << n);
        CHECK(wrong == 0);
    }
}

TEST_CASE("swing: does not combine in rank order; all ranks compute the same bits") {
    CHECK(laws::sizes_out_of_order(swing::reduce_scatter{}) == "8 16 32 64");
    laws::check_identical<swing>();
}
