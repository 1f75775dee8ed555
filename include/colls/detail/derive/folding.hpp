// A schedule for some group sizes, played by a part of the ranks: what folded<S> is.
// IWYU pragma: private, include <colls/algebra/folded.hpp>
#pragma once

#include <colls/detail/derive/ownership.hpp>
#include <colls/detail/derive/part.hpp>
#include <colls/detail/derive/reversal.hpp>
#include <colls/family.hpp>

namespace colls::inline v1::detail {

constexpr bool folds_directly(collective c) {
    return c == collective::all_reduce || c == collective::reduce_scatter || c == collective::broadcast ||
           c == collective::reduce || c == collective::scatter || c == collective::barrier;
}
/// gather and all_gather are folded as the reverse of their dual.
constexpr bool folds_in_reverse(collective c) { return traits_of(c).in == content::own_block; }

/// The first 2e of n = p + e ranks form pairs. p ranks play S, in rank order: the left (even) rank of each pair, and
/// the ranks without a partner.
struct fold {
    int p, e;
    constexpr int operator()(int role) const { return role < e ? 2 * role : role + e; }
    constexpr int role(int rank) const { return rank >= 2 * e ? rank - e : rank % 2 == 0 ? rank / 2 : none; }
    constexpr bool paired(int rank) const { return rank < 2 * e; }
    static constexpr bool left(int rank) { return rank % 2 == 0; }
};

/// n if s supports it, else the largest power of two below that it does.
template <class S>
constexpr fold fold_for(const S& s, int n) {
    if (supports(s, n)) return {n, 0};
    int p = 1;
    while (p <= n / 2) p *= 2;
    while (p > 0 && !supports(s, p)) p /= 2;
    return {p, n - p};
}
/// Whether s folds at n: there are partners for all that do not play, and no scratch slots where blocks are cut.
template <class S>
constexpr bool folds_at(const S& s, int n) {
    const fold f = fold_for(s, n);
    return f.e <= f.p && (f.e == 0 || !owned(collective_of(s)) || scratch_of(s, f.p) == 0);
}

template <class S>
struct folding : part<S> {
    static_assert(folds_directly(implemented_by<S>),
        "colls: folded<S>: all_to_all, scans, and what is made of a schedule that cannot be reversed, do not "
        "fold");
    constexpr decltype(auto) inner() const { return part<S>::get(); }

    static constexpr collective implements = implemented_by<S>;
    /// Whether the right rank of a pair, which takes no part in S, first passes its contribution to the left.
    static constexpr bool folds_first = reduces(implements) || implements == collective::barrier;
    /// Whether it receives a result at the end.
    static constexpr bool unfolds = implements != collective::reduce;
    /// Where blocks have owners, each is cut in two: one half is for a pair's left rank, one for its right; a rank
    /// without a partner keeps both.
    static constexpr int cut = owned(implements) ? 2 : 1;

    constexpr fold fold_of(int n) const { return fold_for(inner(), n); }
    constexpr bool supports(int n) const { return n >= 1 && folds_at(inner(), n); }
    constexpr int rounds(int n) const {
        const fold f = fold_of(n);
        return inner().rounds(f.p) + (f.e == 0 ? 0 : (folds_first ? 1 : 0) + (unfolds ? 1 : 0));
    }
    constexpr int blocks(int n) const {
        const fold f = fold_of(n);
        return blocks_of(inner(), f.p) * (f.e == 0 ? 1 : cut);
    }
    constexpr int ports(int n) const {
        const fold f = fold_of(n);
        return larger(ports_of(inner(), f.p), f.e == 0 ? 1 : most_stretches(inner(), f.p));
    }
    constexpr int scratch(int n) const { return scratch_of(inner(), fold_of(n).p); }
    constexpr int root(int n) const {
        const fold f = fold_of(n);
        return f(root_of(inner(), f.p));
    }
    constexpr int home(int n, int slot) const {
        const fold f = fold_of(n);
        if (f.e == 0) return home_of(inner(), n, slot);
        const int role = home_of(inner(), f.p, slot / cut);
        if (role == none) return none;
        return role < f.e ? f(role) + slot % cut : f(role);
    }

    constexpr step at(int rank, int n, int round, int port) const {
        const fold f = fold_of(n);
        if (f.e == 0) return port < ports_of(inner(), n) ? step_of(inner(), rank, n, round, port) : step{};
        const int before = folds_first ? 1 : 0;
        if (round < before) {
            if (!f.paired(rank) || port > 0) return {};
            if (!fold::left(rank)) return {.send = {rank - 1, all(f)}};
            return {.recv = {rank + 1, all(f), reduces(implements) ? action::reduce : action::copy}};
        }
        if (round < before + inner().rounds(f.p)) {
            const int role = f.role(rank);
            if (role == none || port >= ports_of(inner(), f.p)) return {};
            return moved(step_of(inner(), role, f.p, round - before, port), f, recut{cut, 0});
        }
        if (!f.paired(rank)) return {};
        const block_set out = handed_out(f, rank / 2, port);
        if (implements == collective::barrier ? port > 0 : out.empty()) return {};
        if (fold::left(rank)) return {.send = {rank + 1, out}};
        return {.recv = {rank - 1, out}};
    }

private:
    constexpr block_set all(fold f) const {
        return implements == collective::barrier ? block_set{} : block_range(0, blocks_of(inner(), f.p) * cut);
    }
    /// What the left rank of a pair sends to its partner at the end: the second half of each block it owns, or all.
    constexpr block_set handed_out(fold f, int role, int port) const {
        if constexpr (cut == 1) {
            return port == 0 ? all(f) : block_set{};
        } else {
            const stretch s = owned_stretch(inner(), role, f.p, port);
            return {.first = 2 * s.first + 1, .count = s.count, .period = 2};
        }
    }
};

template <class S>
struct reverse_trait<folding<S>> {
    // For these, the schedule inside is reversed and folded again. Reversed step by step, a broadcast made of scatter
    // and all_gather would reduce twice: its all_gather sends the root what it already has.
    static constexpr bool inside = folding<S>::implements == collective::all_reduce ||
                                   folding<S>::implements == collective::broadcast ||
                                   folding<S>::implements == collective::reduce;
    static constexpr bool possible = inside ? reversible<S> : has_dual(implemented_by<S>);
    using type = std::conditional_t<inside, folding<reverse_of<S>>, reversal<folding<S>>>;
    static constexpr type apply(const folding<S>& f) {
        if constexpr (inside)
            return {reverse(f.inner())};
        else
            return {f};
    }
};

/// Whether a schedule S for C can be folded.
template <collective C, class S>
constexpr bool foldable() {
    return folds_directly(C) || (folds_in_reverse(C) && reversible<S>);
}

template <class S>
constexpr auto fold_value(const S& s);

template <class F>
struct folded_family : part<F> {
    static_assert(family<F>, "colls: folded<S>: S is neither a schedule nor a family");
    constexpr decltype(auto) inner() const { return part<F>::get(); }

    template <collective C>
        requires(provides<F, C> && foldable<C, schedule_for<F, C>>())
    constexpr auto make() const {
        return fold_value(schedule_of<C>(inner()));
    }
};

/// folded<S> of a value.
template <class S>
constexpr auto fold_value(const S& s) {
    if constexpr (!schedule<S>) {
        return folded_family<S>{s};
    } else if constexpr (folds_in_reverse(implemented_by<S>) && reversible<S>) {
        return reverse(folding<reverse_of<S>>{reverse(s)});
    } else {
        return folding<S>{s};
    }
}

}  // namespace colls::inline v1::detail
