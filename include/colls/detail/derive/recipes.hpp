// Which two collectives, one after the other, make up a third, and whether two schedules for them fit together.
// IWYU pragma: private, include <colls/algebra/compose.hpp>
#pragma once

#include <colls/detail/derive/part.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1::detail {

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

/// The recipe whose first part is a and whose second is b, or none.
constexpr int recipe_of(collective a, collective b) {
    for (int i = 0; i < recipe_count; ++i)
        if (recipes[i].first == a && recipes[i].second == b) return i;
    return none;
}

/// Whether b finds at n what a leaves: every block at the rank where b expects it, and none lost between them.
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
/// The same for default values, at the group sizes that are checked at compile time.
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

/// Whether compose<A, B> of two schedules is one.
template <class A, class B>
constexpr bool composable() {
    if constexpr (!schedule<A> || !schedule<B>)
        return false;
    else if constexpr (recipe_of(implemented_by<A>, implemented_by<B>) == none)
        return false;
    else
        return owners_agree<A, B>();
}

}  // namespace colls::inline v1::detail
