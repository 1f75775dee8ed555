// striped<S...>: the data split over independent schedules that run side by side.
#pragma once

#include <colls/algebra/reversed.hpp>

namespace colls::inline v1 {

template <class... S>
struct striped;

namespace detail {

/// The lanes of a striped; every member asks the first lane, then the others. `cut` is the number of blocks that each
/// lane's are cut into.
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

    constexpr int rounds(int n) const {
        const int mine = lane().rounds(n), others = rest().rounds(n);
        return mine > others ? mine : others;
    }
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
        return rest().reversed_after(done..., reversed_of(lane()));
    }
    template <collective C, class... Done>
    constexpr auto made_after(const Done&... done) const {
        return rest().template made_after<C>(done..., schedule_of<C>(lane()));
    }
};

template <class... S>
constexpr bool same_collective() {
    constexpr collective all[] = {implemented_by<S>...};
    for (const collective c : all)
        if (c != all[0]) return false;
    return true;
}
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
/// True where striped<S...> of schedules makes sense.
template <class... S>
constexpr bool stripable() {
    if constexpr ((schedule<S> && ...))
        return same_collective<S...>() && same_root<S...>();
    else
        return false;
}

}  // namespace detail

/// Schedules of one collective, each on its own part of the data (a ring in either direction, two trees, one network
/// card each). Slots are lane by lane, each lane's blocks cut to the least common multiple of all; ports are numbered
/// lane by lane; a lane that has finished idles. Of families: a family that provides what all of them do.
/// Law: ports add, and bytes moved are the mean of the lanes'; rounds are those of the longest lane.
template <class... S>
struct striped : detail::lane_pack<S...> {
    static_assert(sizeof...(S) > 0, "colls: striped<S...>: there must be at least one lane");
    static_assert(detail::same_collective<S...>(), "colls: striped<S...>: all lanes must implement one collective");
    static_assert(detail::same_root<S...>(), "colls: striped<S...>: all lanes must have the same root");

    constexpr striped() = default;
    constexpr explicit striped(const S&... s) : detail::lane_pack<S...>(s...) {}
    constexpr const detail::lane_pack<S...>& lanes() const { return *this; }

    static constexpr int lane_count = sizeof...(S);
    static constexpr collective implements = implemented_by<typename detail::lane_pack<S...>::first_lane>;
    constexpr int rounds(int n) const { return lanes().rounds(n); }
    constexpr int blocks(int n) const { return lane_count * lanes().blocks(n); }
    constexpr int ports(int n) const { return lanes().ports(n); }
    constexpr bool supports(int n) const {
        return lanes().supports(n) && (!rooted(implements) || detail::same_root(lanes(), n));
    }
    constexpr int root(int n) const { return root_of(lanes().lane(), n); }
    constexpr int home(int n, int slot) const { return lanes().home(n, slot, lanes().blocks(n)); }
    constexpr int input(int rank, int n, int slot) const { return lanes().input(rank, n, slot, lanes().blocks(n)); }
    constexpr int output(int rank, int n, int slot) const { return lanes().output(rank, n, slot, lanes().blocks(n)); }
    constexpr step at(int rank, int n, int round, int port) const {
        return lanes().at(rank, n, round, port, lanes().blocks(n), 0);
    }
};

template <class... S>
    requires(!(schedule<S> && ...))
struct striped<S...> : detail::lane_pack<S...> {
    static_assert(
        ((schedule<S> || family<S>) && ...), "colls: striped<S...>: every lane must be a schedule or a family");

    constexpr striped() = default;
    constexpr explicit striped(const S&... s) : detail::lane_pack<S...>(s...) {}
    constexpr const detail::lane_pack<S...>& lanes() const { return *this; }

    template <collective C>
        requires(provides<S, C> && ...)
    constexpr auto make() const
        requires(detail::stripable<schedule_for<S, C>...>())
    {
        return lanes().template made_after<C>();
    }
};

template <class... S>
striped(const S&...) -> striped<S...>;

namespace detail {
template <class... S>
struct reverse_trait<striped<S...>> {
    static constexpr bool possible = (reversible<S> && ...);
    using type = striped<reversed<S>...>;
    static constexpr type apply(const striped<S...>& s) { return s.lanes().reversed_after(); }
};
}  // namespace detail
}  // namespace colls::inline v1
