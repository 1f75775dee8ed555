// compose<A, B>: one schedule after another.
#pragma once

#include <colls/detail/derive/recipes.hpp>
#include <colls/detail/derive/reversal.hpp>
#include <colls/family.hpp>

namespace colls::inline v1 {

/// Runs A, then B. A and B are schedules that together implement
///     all_reduce (reduce_scatter + all_gather, reduce + broadcast), broadcast (scatter + all_gather),
///     reduce (reduce_scatter + gather), reduce_scatter (reduce + scatter), all_gather (gather + broadcast),
///     barrier (barrier + barrier);
/// any other pair is a compile error, and so is a pair that disagrees on which rank owns a block, or is the root,
/// between them. Blocks are cut to the least common multiple of both. compose of two families is the family of the
/// compositions of their schedules.
///
/// Law:  rounds = rounds(A) + rounds(B), bytes moved = those of A + those of B, ports = max(ports(A), ports(B));
///       supports(n) = A supports n and B supports n, neither uses scratch slots there, and their owners agree.
template <class A, class B>
struct compose : detail::part<A, 0>, detail::part<B, 1> {
    /// Which pair of collectives this is, for the library.
    static constexpr int recipe = detail::recipe_of(implemented_by<A>, implemented_by<B>);
    static_assert(recipe != none,
        "colls: compose<A, B>: no collective is made of what A implements followed by what B "
        "implements");
    static_assert(recipe == none || detail::owners_agree<A, B>(),
        "colls: compose<A, B>: A and B disagree on the owners: a block that A leaves at one rank, B expects "
        "at another");

    /// The schedule that runs first.
    constexpr decltype(auto) first() const { return detail::part<A, 0>::get(); }
    /// The schedule that runs then.
    constexpr decltype(auto) second() const { return detail::part<B, 1>::get(); }

    static constexpr collective implements = detail::recipes[recipe == none ? 0 : recipe].result;
    constexpr int rounds(int n) const { return first().rounds(n) + second().rounds(n); }
    constexpr int blocks(int n) const { return lcm(blocks_of(first(), n), blocks_of(second(), n)); }
    constexpr int ports(int n) const { return detail::larger(ports_of(first(), n), ports_of(second(), n)); }
    /// No scratch: the scratch slots of the part with fewer blocks would overlap blocks of the other.
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
        const int change = first().rounds(n);
        return round < change ? embedded(first(), rank, n, round, port)
                              : embedded(second(), rank, n, round - change, port);
    }

private:
    template <class S>
    constexpr step embedded(const S& s, int rank, int n, int round, int port) const {
        if (port >= ports_of(s, n)) return {};
        const int cut = detail::cut_to(blocks(n), blocks_of(s, n));
        if (cut == 1) return step_of(s, rank, n, round, port);
        return detail::moved(step_of(s, rank, n, round, port), detail::same_ranks{}, detail::recut{cut});
    }
};

template <class A, class B>
compose(A, B) -> compose<A, B>;

/// The family of the compositions of two families' schedules (or of a family's and a schedule).
template <class A, class B>
    requires(!schedule<A> || !schedule<B>)
struct compose<A, B> : detail::part<A, 0>, detail::part<B, 1> {
    static_assert((schedule<A> || family<A>) && (schedule<B> || family<B>),
        "colls: compose<A, B>: A and B must be schedules or families");
    /// The family whose schedules run first.
    constexpr decltype(auto) first() const { return detail::part<A, 0>::get(); }
    /// The family whose schedules run then.
    constexpr decltype(auto) second() const { return detail::part<B, 1>::get(); }

    template <collective C>
        requires(detail::family_recipe<A, B, C>() != none)
    constexpr auto make() const {
        constexpr detail::recipe r = detail::recipes[detail::family_recipe<A, B, C>()];
        return compose<schedule_for<A, r.first>, schedule_for<B, r.second>>{
            schedule_of<r.first>(first()), schedule_of<r.second>(second())};
    }
};

template <class A, class B>
struct detail::reverse_trait<compose<A, B>> {
    static constexpr bool possible = reversible<A> && reversible<B>;
    using type = compose<reverse_of<B>, reverse_of<A>>;
    static constexpr type apply(const compose<A, B>& c) { return {reverse(c.second()), reverse(c.first())}; }
};

}  // namespace colls::inline v1
