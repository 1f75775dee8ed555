// The lanes of striped<S...>, and what they must have in common.
// IWYU pragma: private, include <colls/algebra/striped.hpp>
#pragma once

#include <colls/detail/derive/part.hpp>
#include <colls/detail/derive/reversal.hpp>
#include <colls/family.hpp>

namespace colls::inline v1 {

template <class... S>
struct striped;

}  // namespace colls::inline v1

namespace colls::inline v1::detail {

/// The lanes of a striped: each member asks the first lane, then the rest. `cut` is the number of blocks that each
/// lane's blocks are cut into.
template <class... S>
struct lane_pack;

template <>
struct lane_pack<> {
    constexpr int rounds(int) const { return 0; }
    constexpr int blocks(int) const { return 1; }
    constexpr int ports(int) const { return 0; }
    constexpr bool supports(int) const { return true; }
    constexpr bool rooted_at(int, int) const { return true; }
    constexpr step at(int, int, int, int, int, int) const { return {}; }
    constexpr int home(int, int, int) const { return none; }
    constexpr int input(int, int, int, int) const { return none; }
    constexpr int output(int, int, int, int) const { return none; }
    template <class... Done>
    constexpr striped<Done...> reversed_after(const Done&... done) const {
        return striped<Done...>(done...);
    }
    template <collective C, class... Done>
    constexpr striped<Done...> made_after(const Done&... done) const {
        return striped<Done...>(done...);
    }
};

template <class S, class... Rest>
struct lane_pack<S, Rest...> : part<S, sizeof...(Rest)>, lane_pack<Rest...> {
    using first_lane = S;
    constexpr decltype(auto) lane() const { return part<S, sizeof...(Rest)>::get(); }
    constexpr const lane_pack<Rest...>& rest() const { return *this; }

    constexpr lane_pack() = default;
    constexpr explicit lane_pack(const S& s, const Rest&... r)
        : part<S, sizeof...(Rest)>(s), lane_pack<Rest...>(r...) {}

    constexpr int rounds(int n) const { return larger(lane().rounds(n), rest().rounds(n)); }
    constexpr int blocks(int n) const { return lcm(blocks_of(lane(), n), rest().blocks(n)); }
    constexpr int ports(int n) const { return ports_of(lane(), n) + rest().ports(n); }
    constexpr bool supports(int n) const {
        return colls::supports(lane(), n) && scratch_of(lane(), n) == 0 && rest().supports(n);
    }
    constexpr bool rooted_at(int root, int n) const { return root_of(lane(), n) == root && rest().rooted_at(root, n); }

    constexpr step at(int rank, int n, int round, int port, int cut, int base) const {
        const int mine = ports_of(lane(), n);
        if (port >= mine) return rest().at(rank, n, round, port - mine, cut, base + cut);
        if (round >= lane().rounds(n)) return {};
        return moved(
            step_of(lane(), rank, n, round, port), same_ranks{}, recut{cut_to(cut, blocks_of(lane(), n)), base});
    }
    constexpr int home(int n, int slot, int cut) const {
        if (slot >= cut) return rest().home(n, slot - cut, cut);
        return home_of(lane(), n, slot / cut_to(cut, blocks_of(lane(), n)));
    }
    constexpr int input(int rank, int n, int slot, int cut) const {
        if (slot >= cut) return rest().input(rank, n, slot - cut, cut);
        return input_of(lane(), rank, n, slot / cut_to(cut, blocks_of(lane(), n)));
    }
    constexpr int output(int rank, int n, int slot, int cut) const {
        if (slot >= cut) return rest().output(rank, n, slot - cut, cut);
        return output_of(lane(), rank, n, slot / cut_to(cut, blocks_of(lane(), n)));
    }
    template <class... Done>
    constexpr auto reversed_after(const Done&... done) const {
        return rest().reversed_after(done..., reverse(lane()));
    }
    template <collective C, class... Done>
    constexpr auto made_after(const Done&... done) const {
        return rest().template made_after<C>(done..., schedule_of<C>(lane()));
    }
};

template <class First, class... S>
inline constexpr bool same_collective = ((implemented_by<S> == implemented_by<First>) && ...);
template <class... S>
constexpr bool same_root(const lane_pack<S...>& lanes, int n) {
    return lanes.rooted_at(root_of(lanes.lane(), n), n);
}
template <class... S>
constexpr bool same_root() {
    if constexpr ((rooted(implemented_by<S>) && ...) && (std::default_initializable<S> && ...)) {
        const lane_pack<S...> lanes{};
        for (int n = least_checked; n <= most_checked; ++n)
            if (lanes.supports(n) && !same_root(lanes, n)) return false;
    }
    return true;
}
/// Whether striped<S...> of schedules is one.
template <class... S>
constexpr bool stripable() {
    if constexpr ((schedule<S> && ...))
        return same_collective<S...> && same_root<S...>();
    else
        return false;
}

}  // namespace colls::inline v1::detail
