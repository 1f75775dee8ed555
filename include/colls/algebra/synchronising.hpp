// synchronising<S>: the barrier that follows from a schedule after which every rank depends on every other.
#pragma once

#include <colls/detail/derive/part.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// S without its blocks: a barrier. S implements all_reduce, reduce_scatter, all_gather or all_to_all: in each of these
/// every rank depends on every other, directly or through others.
///
/// Law:  rounds, ports and messages are those of S; no blocks are sent.
template <class S>
struct synchronising : detail::part<S> {
    static_assert(schedule<S>, "colls: synchronising<S>: S must be a schedule");
    static_assert(!schedule<S> || implemented_by<S> == collective::all_reduce ||
                      implemented_by<S> == collective::reduce_scatter || implemented_by<S> == collective::all_gather ||
                      implemented_by<S> == collective::all_to_all,
        "colls: synchronising<S>: S must implement all_reduce, reduce_scatter, all_gather or all_to_all: in "
        "no other collective does every rank hear of every rank");
    constexpr decltype(auto) inner() const { return detail::part<S>::get(); }

    static constexpr collective implements = collective::barrier;
    constexpr int rounds(int n) const { return inner().rounds(n); }
    constexpr int ports(int n) const { return ports_of(inner(), n); }
    constexpr bool supports(int n) const { return colls::supports(inner(), n); }
    constexpr step at(int rank, int n, int round, int port) const {
        const step s = step_of(inner(), rank, n, round, port);
        return {.send = {.peer = s.send.peer}, .recv = {.peer = s.recv.peer}};
    }
};

template <class S>
synchronising(S) -> synchronising<S>;

}  // namespace colls::inline v1
