// striped<S...>: the data split over independent schedules that run side by side.
#pragma once

#include <colls/detail/derive/lanes.hpp>
#include <colls/family.hpp>

namespace colls::inline v1 {

/// Schedules of one collective that run side by side, each on its own part of the data: a ring in either direction, two
/// trees, one network card a lane. Slots are numbered lane by lane, each lane's blocks cut to the least common multiple
/// of all lanes; ports are numbered lane by lane; a lane that has finished idles. striped of families is a family that
/// provides what all of them provide.
///
/// Law:  ports = sum of the lanes' ports, rounds = max of the lanes' rounds,
///       bytes moved = mean of what each lane would move for the whole data.
template <class... S>
struct striped : detail::lane_pack<S...> {
    static_assert(sizeof...(S) > 0, "colls: striped<S...>: there must be at least one lane");
    static_assert(detail::same_collective<S...>, "colls: striped<S...>: all lanes must implement one collective");
    static_assert(detail::same_root<S...>(), "colls: striped<S...>: all lanes must have the same root");

    using detail::lane_pack<S...>::lane_pack;  ///< of one lane for each s, which it copies
    constexpr const detail::lane_pack<S...>& lanes() const { return *this; }

    /// How many lanes there are.
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

/// The family of stripes over the schedules of families.
template <class... S>
    requires(!(schedule<S> && ...))
struct striped<S...> : detail::lane_pack<S...> {
    static_assert(
        ((schedule<S> || family<S>) && ...), "colls: striped<S...>: every lane must be a schedule or a family");

    using detail::lane_pack<S...>::lane_pack;  ///< of one lane for each s, which it copies
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

template <class... S>
struct detail::reverse_trait<striped<S...>> {
    static constexpr bool possible = (reversible<S> && ...);
    using type = striped<reverse_of<S>...>;
    static constexpr type apply(const striped<S...>& s) { return s.lanes().reversed_after(); }
};

}  // namespace colls::inline v1
