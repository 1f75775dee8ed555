// permuted<S, Mapping>: a schedule with its ranks renumbered.
#pragma once

#include <colls/detail/derive/mapping.hpp>
#include <colls/detail/derive/part.hpp>
#include <colls/detail/derive/reversal.hpp>
#include <colls/family.hpp>

namespace colls::inline v1 {

/// The ranks in reverse: rank r plays role n - 1 - r.
struct mirror {
    constexpr int role(int rank, int n) const { return n - 1 - rank; }
    constexpr int rank(int role, int n) const { return n - 1 - role; }
};
/// The ranks rotated by K: rank r plays role r - K mod n.
template <int K = 1>
struct shift {
    constexpr int role(int rank, int n) const { return mod(rank - K, n); }
    constexpr int rank(int role, int n) const { return mod(role + K % n, n); }
};

/// S with rank `rank(role, n)` of the group in the part of S's rank `role`; `role(rank, n)` is the inverse. Used to
/// place a schedule on the links of a machine, or for a second lane next to S. A rooted S then has root rank(root);
/// homes, and the input and output of all_to_all, are mapped as well. `mirror` and `shift<K>` are mappings; a user's
/// own is any trivially copyable type with these two members, and may carry state. permuted of a family is the family
/// of its schedules, each permuted. A scan depends on the order of ranks: to permute it is a compile error.
///
/// Law:  rounds, ports and bytes moved are those of S;
///       at(r, n, round) = S.at(role(r, n), n, round), with each peer p replaced by rank(p, n).
template <class S, class Mapping>
struct permuted : detail::part<S, 0>, detail::part<Mapping, 1> {
    static_assert(detail::mapping<Mapping>,
        "colls: permuted<S, Mapping>: a Mapping has role(rank, n) and its inverse rank(role, n)");
    static_assert(!detail::mapping<Mapping> || detail::permutes<Mapping>(),
        "colls: permuted<S, Mapping>: rank(role, n) and role(rank, n) are not inverse permutations");
    static_assert(detail::permutable(implemented_by<S>),
        "colls: permuted<S, Mapping>: a scan goes in the order of ranks and cannot be permuted");
    constexpr decltype(auto) inner() const { return detail::part<S, 0>::get(); }
    constexpr decltype(auto) mapping() const { return detail::part<Mapping, 1>::get(); }

    static constexpr collective implements = implemented_by<S>;
    constexpr int rounds(int n) const { return inner().rounds(n); }
    constexpr int blocks(int n) const { return blocks_of(inner(), n); }
    constexpr int ports(int n) const { return ports_of(inner(), n); }
    constexpr int scratch(int n) const { return scratch_of(inner(), n); }
    constexpr bool supports(int n) const {
        if (!colls::supports(inner(), n)) return false;
        if constexpr (std::is_empty_v<Mapping>)
            return true;
        else
            return detail::permutes(mapping(), n);
    }
    constexpr int root(int n) const { return mapping().rank(root_of(inner(), n), n); }
    constexpr int home(int n, int slot) const {
        const int role = home_of(inner(), n, slot);
        return role == none ? none : mapping().rank(role, n);
    }
    constexpr int input(int rank, int n, int slot) const {
        return mapping().rank(input_of(inner(), mapping().role(rank, n), n, slot), n);
    }
    constexpr int output(int rank, int n, int slot) const {
        return mapping().rank(output_of(inner(), mapping().role(rank, n), n, slot), n);
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const auto rank_of = [&](int role) { return mapping().rank(role, n); };
        return detail::moved(step_of(inner(), mapping().role(rank, n), n, round, port), rank_of, detail::same_blocks{});
    }
};

/// The family of a family's schedules, permuted.
template <class F, class Mapping>
    requires(!schedule<F>)
struct permuted<F, Mapping> : detail::part<F, 0>, detail::part<Mapping, 1> {
    static_assert(family<F>, "colls: permuted<S, Mapping>: S is neither a schedule nor a family");
    constexpr decltype(auto) inner() const { return detail::part<F, 0>::get(); }
    constexpr decltype(auto) mapping() const { return detail::part<Mapping, 1>::get(); }

    template <collective C>
        requires(provides<F, C> && detail::permutable(C))
    constexpr auto make() const {
        return permuted<schedule_for<F, C>, Mapping>{schedule_of<C>(inner()), mapping()};
    }
};

template <class S, class Mapping>
permuted(S, Mapping) -> permuted<S, Mapping>;

template <class S, class M>
struct detail::reverse_trait<permuted<S, M>> {
    static constexpr bool possible = reversible<S>;
    using type = permuted<reverse_of<S>, M>;
    static constexpr type apply(const permuted<S, M>& p) { return {reverse(p.inner()), p.mapping()}; }
};

}  // namespace colls::inline v1
