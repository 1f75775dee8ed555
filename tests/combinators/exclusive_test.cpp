// exclusive<S>: its law, with scans of several blocks, ports and of restricted sizes.
#include <colls/algebra/exclusive.hpp>
#include <colls/algebra/striped.hpp>
#include <colls/schedules/recursive_doubling.hpp>
#include <colls/schedules/ring.hpp>

#include "schedules/laws.hpp"

using colls::exclusive;
using enum colls::collective;

namespace {

/// Legal for odd n only.
struct odd_scan : colls::ring::inclusive_scan {
    static constexpr bool supports(int n) { return n % 2 == 1; }
};
using two_lanes = colls::striped<colls::ring::inclusive_scan, colls::recursive_multiplying<3>::inclusive_scan>;

template <class S>
void check_law() {
    const S s;
    const exclusive<S> e;
    laws::prove(e);
    CHECK(laws::sizes_out_of_order(e) == "");
    for (int n = 2; n <= laws::largest; ++n) {
        INFO("n = " << n);
        CHECK(colls::supports(e, n) == colls::supports(s, n - 1));
        if (!colls::supports(e, n)) continue;
        CHECK(e.rounds(n) == 1 + s.rounds(n - 1));
        CHECK(colls::blocks_of(e, n) == colls::blocks_of(s, n - 1));
        CHECK(colls::ports_of(e, n) == colls::ports_of(s, n - 1));
        // Rank 1 sends as much as rank 0 of S, and its whole buffer once more; at n = 2 there is no scan.
        CHECK(colls::traffic_of(e, n).blocks_sent ==
              colls::blocks_of(s, n - 1) + colls::traffic_of(s, n - 1).blocks_sent);
    }
    CHECK(e.rounds(1) == 0);
    CHECK(colls::supports(e, 1));
}

}  // namespace

static_assert(colls::implemented_by<exclusive<odd_scan>> == exclusive_scan);
static_assert(colls::proven<exclusive<two_lanes>, proven_to>);
static_assert(colls::proven<exclusive<odd_scan>, proven_to>);

TEST_CASE("exclusive: takes one round more than the inclusive scan of n - 1 ranks") {
    check_law<colls::ring::inclusive_scan>();
    check_law<colls::recursive_doubling::inclusive_scan>();
    check_law<two_lanes>();
    check_law<odd_scan>();
}
