// compose<A, B>: one schedule after another.
#pragma once

#include <colls/algebra/reversed.hpp>

namespace colls::inline v1 {

namespace detail {

struct recipe {
    collective first, second, result;
};
inline constexpr recipe recipes[] = {
    {collective::reduce_scatter, collective::all_gather, collective::all_reduce},
    {collective::reduce, collective::broadcast, collective::all_reduce},
    {collective::scatter, collective::all_gather, collective::broadcast},
    {collective::reduce_scatter, collective::gather, collective::reduce},
    {collective::reduce, collective::scatter, collective::reduce_scatter},
    {collective::gather, collective::broadcast, collective::all_gather},
    {collective::barrier, collective::barrier, collective::barrier},
};
inline constexpr int recipe_count = sizeof(recipes) / sizeof(recipes[0]);

/// The recipe that begins with a and goes on with b, or none.
constexpr int recipe_of(collective a, collective b) {
    for (int i = 0; i < recipe_count; ++i)
        if (recipes[i].first == a && recipes[i].second == b) return i;
    return none;
}

/// Whether B finds at n what A leaves: every block at the rank where B expects it, and none lost between them.
template <class A, class B>
constexpr bool owners_agree(const A& a, const B& b, int n) {
    if constexpr (owned(implemented_by<A>) && owned(implemented_by<B>)) {
        const int ba = blocks_of(a, n), bb = blocks_of(b, n), common = lcm(ba, bb);
        for (int slot = 0; slot < common; ++slot) {
            const int home = home_of(a, n, slot / cut_to(common, ba));
            if (home == none || home != home_of(b, n, slot / cut_to(common, bb))) return false;
        }
    }
    if constexpr (rooted(implemented_by<A>) && rooted(implemented_by<B>)) return root_of(a, n) == root_of(b, n);
    return true;
}
template <class A, class B>
constexpr bool owners_agree() {
    if constexpr (std::default_initializable<A> && std::default_initializable<B>) {
        const A a{};
        const B b{};
        for (int n = least_checked; n <= most_checked; ++n)
            if (supports(a, n) && supports(b, n) && !owners_agree(a, b, n)) return false;
    }
    return true;
}

/// True where compose<A, B> of two schedules makes sense.
template <class A, class B>
constexpr bool composable() {
    if constexpr (!schedule<A> || !schedule<B>)
        return false;
    else if constexpr (recipe_of(implemented_by<A>, implemented_by<B>) == none)
        return false;
    else
        return owners_agree<A, B>();
}

}  // namespace detail

/// A, then B. Two schedules that together implement
///     all_reduce (reduce_scatter + all_gather, reduce + broadcast), broadcast (scatter + all_gather),
///     reduce (reduce_scatter + gather), reduce_scatter (reduce + scatter), all_gather (gather + broadcast),
///     barrier (barrier + barrier);
/// anything else, or two that disagree on who owns a block (or is the root) between them, is a compile error. Blocks
/// are cut to the least common multiple. Two families make a family: each takes its half of the recipe.
/// Law: rounds, and bytes moved, are those of A plus those of B; ports the greater of both; legal where both are.
template <class A, class B>
struct compose : detail::part<A, 0>, detail::part<B, 1> {
    static constexpr int recipe = detail::recipe_of(implemented_by<A>, implemented_by<B>);
    static_assert(recipe != none,
        "colls: compose<A, B>: no collective is made of what A implements followed by what B "
        "implements");
    static_assert(recipe == none || detail::owners_agree<A, B>(),
        "colls: compose<A, B>: A and B disagree on the owners: a block that A leaves at one rank, B expects "
        "at another");

    constexpr decltype(auto) first() const { return detail::part<A, 0>::get(); }
    constexpr decltype(auto) second() const { return detail::part<B, 1>::get(); }

    static constexpr collective implements = detail::recipes[recipe == none ? 0 : recipe].result;
    constexpr int rounds(int n) const { return first().rounds(n) + second().rounds(n); }
    constexpr int blocks(int n) const { return lcm(blocks_of(first(), n), blocks_of(second(), n)); }
    constexpr int ports(int n) const {
        const int a = ports_of(first(), n), b = ports_of(second(), n);
        return a > b ? a : b;
    }
    /// Scratch slots lie behind the blocks of each part; the part that has fewer blocks would overlap the other's.
    constexpr bool supports(int n) const {
        if (!colls::supports(first(), n) || !colls::supports(second(), n)) return false;
        if (scratch_of(first(), n) != 0 || scratch_of(second(), n) != 0) return false;
        // Where the parts carry state, the check at compile time saw only their defaults.
        if constexpr (!std::is_empty_v<A> || !std::is_empty_v<B>) return detail::owners_agree(first(), second(), n);
        return true;
    }
    constexpr int root(int n) const {
        if constexpr (rooted(implemented_by<A>))
            return root_of(first(), n);
        else
            return root_of(second(), n);
    }
    constexpr int home(int n, int slot) const {
        const int common = blocks(n);
        if constexpr (implements == collective::reduce_scatter)
            return home_of(second(), n, slot / detail::cut_to(common, blocks_of(second(), n)));
        else
            return home_of(first(), n, slot / detail::cut_to(common, blocks_of(first(), n)));
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const int turn = first().rounds(n);
        return round < turn ? played(first(), rank, n, round, port) : played(second(), rank, n, round - turn, port);
    }

private:
    template <class S>
    constexpr step played(const S& s, int rank, int n, int round, int port) const {
        if (port >= ports_of(s, n)) return {};
        return detail::moved(step_of(s, rank, n, round, port), detail::same_ranks{},
            detail::recut{detail::cut_to(blocks(n), blocks_of(s, n))});
    }
};

template <class A, class B>
compose(A, B) -> compose<A, B>;

namespace detail {

/// The first recipe for C whose halves A and B provide and whose schedules compose, or none.
template <class A, class B, collective C, int I = 0>
constexpr int family_recipe() {
    if constexpr (I == recipe_count) {
        return none;
    } else {
        constexpr recipe r = recipes[I];
        if constexpr (r.result == C && provides<A, r.first> && provides<B, r.second>) {
            if constexpr (composable<schedule_for<A, r.first>, schedule_for<B, r.second>>()) return I;
        }
        return family_recipe<A, B, C, I + 1>();
    }
}

template <class S>
concept schedule_or_family = schedule<S> || family<S>;

template <class A, class B>
struct reverse_trait<compose<A, B>> {
    static constexpr bool possible = reversible<A> && reversible<B>;
    using type = compose<reversed<B>, reversed<A>>;
    static constexpr type apply(const compose<A, B>& c) { return {reversed_of(c.second()), reversed_of(c.first())}; }
};

}  // namespace detail

template <class A, class B>
    requires(!schedule<A> || !schedule<B>)
struct compose<A, B> : detail::part<A, 0>, detail::part<B, 1> {
    static_assert(detail::schedule_or_family<A> && detail::schedule_or_family<B>,
        "colls: compose<A, B>: A and B must be schedules or families");
    constexpr decltype(auto) first() const { return detail::part<A, 0>::get(); }
    constexpr decltype(auto) second() const { return detail::part<B, 1>::get(); }

    template <collective C>
        requires(detail::family_recipe<A, B, C>() != none)
    constexpr auto make() const {
        constexpr detail::recipe r = detail::recipes[detail::family_recipe<A, B, C>()];
        return compose<schedule_for<A, r.first>, schedule_for<B, r.second>>{
            schedule_of<r.first>(first()), schedule_of<r.second>(second())};
    }
};

}  // namespace colls::inline v1
