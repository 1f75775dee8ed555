// expect: colls: circulant<Skips>: Skips has static int count
#include <colls/schedules/circulant.hpp>

struct skips {
    static constexpr int skip(int n, int k) { return colls::halving::skip(n, k); }
#ifdef RIGHT
    static constexpr int count(int n) { return colls::log2_ceil(n); }
#endif
};
template struct colls::circulant<skips>;
