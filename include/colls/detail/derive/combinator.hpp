// What the combinators share: the lookup in a family (defined in family.hpp), and how a step is moved about.
#pragma once

#include <colls/schedule.hpp>

#include <utility>

namespace colls::inline v1 {

namespace detail {
/// How family F (or a schedule) comes by collective C: `exists`, and `make(f)`. Defined in family.hpp.
template <class F, collective C>
struct derivation;
}  // namespace detail

/// True where F, a family or a schedule, implements collective C, be it by derivation.
template <class F, collective C>
inline constexpr bool provides = detail::derivation<std::remove_cvref_t<F>, C>::exists;

/// The schedule with which f implements C: f itself where f is such a schedule; else what f.make<C>() gives; else the
/// nested type named like C; else derived from what f names, by the algebra (see family.hpp).
template <collective C, class F>
constexpr auto schedule_of(const F& f) {
    static_assert(provides<F, C>,
        "colls: schedule_of<C>(f): f names no schedule for this collective, and none can be "
        "derived from those it names");
    return detail::derivation<F, C>::make(f);
}

/// Its type.
template <class F, collective C>
using schedule_for = decltype(schedule_of<C>(std::declval<const std::remove_cvref_t<F>&>()));

namespace detail {
template <class F, int... C>
constexpr bool provides_any(std::integer_sequence<int, C...>) {
    return (provides<F, static_cast<collective>(C)> || ...);
}
template <class F>
constexpr bool names_schedules() {
    if constexpr (schedule<F> || !std::is_trivially_copyable_v<F>)
        return false;
    else
        return provides_any<F>(std::make_integer_sequence<int, collective_count>{});
}
}  // namespace detail

/// A family: a type that is no schedule itself and names some, as nested types called like the collectives
/// (`struct ring { struct reduce_scatter {...}; };`) or through `template <collective C> constexpr auto make() const`.
template <class F>
concept family = detail::names_schedules<std::remove_cvref_t<F>>();

namespace detail {

/// Says in words what S lacks where a call or a proof is given it. False: what follows is not compiled.
template <class S>
constexpr bool expect_schedule_or_family() {
    constexpr bool is = schedule<S> || family<S>;
    static_assert(is,
        "colls: this is no schedule: it needs `implements`, `rounds(n)`, and `at(rank, n, round)` or `at(rank, n, "
        "round, port)` "
        "that returns a colls::step, const or static, in a trivially copyable type; or it is a family, which names "
        "such types");
    return is;
}

/// A part of a combinator, as a base class of it: takes no room where the part has no state. (Not a member with
/// [[no_unique_address]]: nvcc 13.0 cannot pass a type with such members to a kernel.) I tells parts of one type apart.
template <class T, int I = 0>
struct part {
    T value{};
    constexpr part() = default;
    constexpr part(const T& v) : value(v) {}
    constexpr const T& get() const { return value; }
};
template <class T, int I>
    requires(std::is_empty_v<T> && std::default_initializable<T>)
struct part<T, I> {
    constexpr part() = default;
    constexpr part(const T&) {}
    constexpr T get() const { return {}; }
};

/// The step with its peers renamed by `rank_of` and its blocks rewritten by `block_of`.
template <class RankOf, class BlocksOf>
constexpr step moved(step s, const RankOf& rank_of, const BlocksOf& blocks_of) {
    if (s.send.peer != none) s.send = {rank_of(s.send.peer), blocks_of(s.send.blocks)};
    if (s.recv.peer != none) s.recv = {rank_of(s.recv.peer), blocks_of(s.recv.blocks), s.recv.action};
    return s;
}
struct same_ranks {
    constexpr int operator()(int rank) const { return rank; }
};
struct same_blocks {
    constexpr block_set operator()(const block_set& b) const { return b; }
};
/// Blocks cut in `cut`, then moved by `by`.
struct recut {
    int cut = 1, by = 0;
    constexpr block_set operator()(const block_set& b) const { return b.refined(cut).offset(by); }
};

/// A stretch of consecutive slots.
struct stretch {
    int first = 0, count = 0;
};
/// The k-th longest-possible stretch of slots that s leaves to `rank` (to its root, if s is not owned); empty past the
/// last. What one rank owns need not be evenly spaced (mirrored lanes are not), but it always is a few stretches.
template <class S>
constexpr stretch owned_stretch(const S& s, int rank, int n, int k) {
    const int b = blocks_of(s, n);
    if constexpr (!owned(implemented_by<S>)) {
        return {0, k == 0 && rank == root_of(s, n) ? b : 0};
    } else {
        for (int slot = 0; slot < b; ++slot) {
            if (home_of(s, n, slot) != rank) continue;
            const int first = slot;
            while (slot < b && home_of(s, n, slot) == rank) ++slot;
            if (k-- == 0) return {first, slot - first};
        }
        return {};
    }
}
/// The stretch that holds `slot`.
template <class S>
constexpr stretch stretch_around(const S& s, int n, int slot) {
    const int home = home_of(s, n, slot), b = blocks_of(s, n);
    int first = slot, last = slot;
    while (first > 0 && home_of(s, n, first - 1) == home) --first;
    while (last + 1 < b && home_of(s, n, last + 1) == home) ++last;
    return {first, last - first + 1};
}
/// The most stretches that any rank owns.
template <class S>
constexpr int most_stretches(const S& s, int n) {
    if (!owned(implemented_by<S>) || blocks_of(s, n) == n) return 1;
    int most = 1;
    for (int rank = 0; rank < n; ++rank)
        while (owned_stretch(s, rank, n, most).count > 0) ++most;
    return most;
}

/// How often blocks must be cut so that a schedule of `blocks` blocks runs on `common` of them.
constexpr int cut_to(int common, int blocks) { return blocks > 0 ? common / blocks : 1; }

/// The group sizes at which laws between two schedules are checked when their composition is compiled.
inline constexpr int least_checked = 2, most_checked = 8;

}  // namespace detail
}  // namespace colls::inline v1
