// Two ranks are mapped to one role.
// expect: colls: permuted<S, Mapping>: rank\(role, n\) and role\(rank, n\) are not inverse permutations
// errors: 1
#include <colls/algebra.hpp>
#include <colls/schedules/ring.hpp>

struct halved {
    static constexpr int role(int rank, int) { return rank / 2; }
    static constexpr int rank(int role, int) { return role * 2; }
};
#ifdef RIGHT
using mapping = colls::mirror;
#else
using mapping = halved;
#endif
constexpr colls::permuted<colls::ring::broadcast, mapping> turned{};
