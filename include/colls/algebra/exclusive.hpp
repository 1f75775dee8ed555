// exclusive<S>: the exclusive scan that follows from an inclusive one.
#pragma once

#include <colls/detail/derive/part.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// The exclusive scan that follows from the inclusive scan S: each rank passes its contribution to the next rank, then
/// ranks 1 to n - 1 run S among themselves on what they received. Needs no slots but those of S.
///
/// Law:  rounds(n) = 1 + rounds(S, n - 1), messages(n) = n - 1 + messages(S, n - 1);
///       combines in rank order where S does.
template <class S>
struct exclusive : detail::part<S> {
    static_assert(schedule<S>, "colls: exclusive<S>: S must be a schedule");
    static_assert(!schedule<S> || implemented_by<S> == collective::inclusive_scan,
        "colls: exclusive<S>: S must implement inclusive_scan");
    /// The inclusive scan S.
    constexpr decltype(auto) inclusive() const { return detail::part<S>::get(); }

    static constexpr collective implements = collective::exclusive_scan;
    constexpr bool supports(int n) const { return n == 1 || colls::supports(inclusive(), n - 1); }
    constexpr int rounds(int n) const { return n == 1 ? 0 : 1 + inclusive().rounds(n - 1); }
    constexpr int blocks(int n) const { return n == 1 ? 1 : blocks_of(inclusive(), n - 1); }
    constexpr int scratch(int n) const { return n == 1 ? 0 : scratch_of(inclusive(), n - 1); }
    constexpr int ports(int n) const { return n == 1 ? 1 : ports_of(inclusive(), n - 1); }

    constexpr step at(int rank, int n, int round, int port) const {
        if (round == 0) {
            step s;
            if (port > 0) return s;
            const block_set all = block_range(0, blocks(n));
            if (rank + 1 < n) s.send = {rank + 1, all};
            if (rank > 0) s.recv = {rank - 1, all};
            return s;
        }
        if (rank == 0) return {};
        const auto next = [](int role) { return role + 1; };
        return detail::moved(step_of(inclusive(), rank - 1, n - 1, round - 1, port), next, detail::same_blocks{});
    }
};

template <class S>
exclusive(S) -> exclusive<S>;

}  // namespace colls::inline v1
