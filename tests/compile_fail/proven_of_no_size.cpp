// A schedule of 16 ranks, "proven" for groups of up to 8: nothing would be proven.
// expect: supports_no_group_size_up_to<8>
// errors: 1
#include <colls/schedules/ring.hpp>
#include <colls/verify.hpp>

struct of_sixteen {
    static constexpr colls::collective implements = colls::collective::reduce_scatter;
    static constexpr bool supports(int n) { return n == 16; }
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr colls::step at(int rank, int n, int round) {
        return colls::ring::reduce_scatter::at(rank, n, round);
    }
};
#ifdef RIGHT
static_assert(colls::proven<of_sixteen, 16>);
#else
static_assert(colls::proven<of_sixteen, 8>);
#endif
