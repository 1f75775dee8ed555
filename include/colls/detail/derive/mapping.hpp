// What permuted<S, Mapping> asks of a Mapping.
// IWYU pragma: private, include <colls/algebra/permuted.hpp>
#pragma once

#include <colls/detail/derive/part.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1::detail {

template <class M>
concept mapping = std::is_trivially_copyable_v<M> && requires(const M& m, int i) {
    { m.role(i, i) } -> std::convertible_to<int>;
    { m.rank(i, i) } -> std::convertible_to<int>;
};

/// Whether m gives every rank a role of its own, with m.rank the inverse of m.role.
template <class M>
constexpr bool permutes(const M& m, int n) {
    for (int role = 0; role < n; ++role) {
        const int rank = m.rank(role, n);
        if (rank < 0 || rank >= n || m.role(rank, n) != role) return false;
    }
    return true;
}
/// The same for M{} at the group sizes that are checked at compile time.
template <class M>
constexpr bool permutes() {
    if constexpr (!mapping<M>) {
        return false;
    } else if constexpr (std::is_empty_v<M> && std::default_initializable<M>) {
        for (int n = least_checked; n <= most_checked; ++n)
            if (!permutes(M{}, n)) return false;
    }
    return true;
}
constexpr bool permutable(collective c) { return !is_scan(c); }

}  // namespace colls::inline v1::detail
