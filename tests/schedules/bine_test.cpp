#include <colls/schedules/bine.hpp>
#include <colls/schedules/halving_doubling.hpp>
#include <colls/schedules/tree.hpp>

#include "laws.hpp"

#include <algorithm>
#include <vector>

using colls::bine;
using enum colls::collective;

static_assert(colls::proven<bine, proven_to>);

TEST_CASE("bine: provides the collectives that are documented, for powers of two") {
    CHECK(laws::collectives_of<bine>() == "broadcast all_gather reduce reduce_scatter all_reduce barrier");
    CHECK(colls::supports(bine::broadcast{}, 128));
    CHECK(!colls::supports(bine::broadcast{}, 96));
}

TEST_CASE("bine: every schedule is proven, at compile time and at run time") {
    laws::prove<bine>();
    for (const int n : {128, 256, 512}) {
        CHECK(colls::verify<bine::broadcast>(n).ok());
        CHECK(colls::verify<bine::reduce_scatter>(n).ok());
    }
}

TEST_CASE("bine: rounds and volume") {
    const auto q = [](int n) { return colls::log2_ceil(n); };
    laws::check_cost<broadcast>(bine{}, q, q);
    laws::check_cost<reduce>(bine{}, q, [](int n) { return n > 1 ? 1 : 0; });
    laws::check_cost<reduce_scatter>(bine{}, q, [](int n) { return n - 1; });
    laws::check_cost<all_gather>(bine{}, q, [](int n) { return n - 1; });
    laws::check_cost<all_reduce>(
        bine{}, [](int n) { return 2 * colls::log2_ceil(n); }, [](int n) { return 2 * (n - 1); });
}

TEST_CASE("bine: partners in a broadcast are 11, 5, 3, 1, 1 apart on 32 ranks; each rank but the root receives once") {
    const int away[] = {11, 5, 3, 1, 1};
    std::vector<int> received(32, 0);
    laws::for_each_step(bine::broadcast{}, 32, [&](int rank, int round, int, const colls::step& st) {
        received[static_cast<std::size_t>(rank)] += st.recv.peer != colls::none;
        if (st.send.peer == colls::none) return;
        const int up = colls::mod(st.send.peer - rank, 32);
        CHECK(std::min(up, 32 - up) == away[round]);
    });
    for (std::size_t r = 0; r < 32; ++r) CHECK(received[r] == (r > 0));
}

namespace {
/// Blocks that leave a group of `size` consecutive ranks, in the mean over where the first group begins.
double global_blocks(const laws::given& s, int n, int size) {
    long long all = 0;
    for (int offset = 0; offset < size; ++offset)
        laws::for_each_step(s, n, [&](int rank, int, int, const colls::step& st) {
            if (st.send.peer == colls::none) return;
            if ((rank + offset) / size != (st.send.peer + offset) / size) all += st.send.blocks.size();
        });
    return static_cast<double>(all) / size;
}
}  // namespace

TEST_CASE("bine: fewer bytes than by binomial trees and butterflies leave groups of consecutive ranks") {
    for (const int n : {64, 256})
        for (const int size : {4, 6, 8, 12, 16, 20, 24}) {
            const double tree = global_blocks(bine::broadcast{}, n, size),
                         butterfly = global_blocks(bine::reduce_scatter{}, n, size);
            INFO("n = " << n << ", groups of " << size);
            CHECK(tree < global_blocks(colls::tree<2>::broadcast{}, n, size));
            CHECK(butterfly < 0.9 * global_blocks(colls::distance_doubling::reduce_scatter{}, n, size));
            CHECK(butterfly < 0.45 * global_blocks(colls::halving_doubling::reduce_scatter{}, n, size));
        }
    CHECK(global_blocks(bine::broadcast{}, 256, 16) == Approx(37.125));
    CHECK(global_blocks(colls::tree<2>::broadcast{}, 256, 16) == Approx(47));
}

TEST_CASE("bine: does not combine in rank order; all ranks compute the same bits") {
    CHECK(laws::sizes_out_of_order(bine::reduce_scatter{}) == "8 16 32 64");
    laws::check_identical<bine>();
}
