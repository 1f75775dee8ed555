// Which schedules are symmetric under translation by construction, read from their types.
// IWYU pragma: private, include <proof/local_proof.hpp>
#pragma once

#include <colls/algebra/compose.hpp>
#include <colls/algebra/reversed.hpp>
#include <colls/detail/derive/translation.hpp>

#include <type_traits>

namespace colls::inline v1::detail {

/// S states the steps of rank 0 alone: its `at` (and `input`, `output`) are those of by_translation, not hidden by
/// members of its own.
template <class S>
constexpr bool stated_at_rank_0() {
    if constexpr (requires { S::motion; }) {
        using base = by_translation<S, S::motion>;
        using without_port = step (*)(int, int, int);
        using with_port = step (*)(int, int, int, int);
        using contents = int (*)(int, int, int);
        if constexpr (!std::is_base_of_v<base, S>) return false;
        bool same = true;
        if constexpr (steps_with_port<S> && steps_with_port<base>)
            same = static_cast<with_port>(&S::at) == static_cast<with_port>(&base::at);
        else if constexpr (!steps_with_port<S> && steps_without_port<base>)
            same = static_cast<without_port>(&S::at) == static_cast<without_port>(&base::at);
        else
            return false;
        if constexpr (requires(int i) { base::input(i, i, i) + base::output(i, i, i); })
            return same && static_cast<contents>(&S::input) == static_cast<contents>(&base::input) &&
                   static_cast<contents>(&S::output) == static_cast<contents>(&base::output);
        else  // what slots hold is the default, which names ranks by slots that must follow the rank
            return same && !requires(const S& s, int i) { s.input(i, i, i); } && !requires(const S& s, int i) {
                s.output(i, i, i);
            } && (S::implements != collective::all_to_all || S::motion == slot_motion::follows_rank);
    } else {
        return false;
    }
}

/// `holds`: each rank does what rank 0 does, translated, whatever the group size; `motion`: what becomes of slots;
/// `at(s, n)`: the same of a combination whose parts must fit at n.
template <class S>
struct translation_of {
    static constexpr bool holds = stated_at_rank_0<S>();
    static constexpr slot_motion motion = [] {
        if constexpr (holds)
            return S::motion;
        else
            return slot_motion::stays;
    }();
    static constexpr bool at(const S&, int) { return holds; }
};
// reversed: rank r's step is made of rank r's step alone, its halves exchanged.
template <class S>
struct translation_of<reversal<S>> {
    static constexpr bool holds = translation_of<S>::holds;
    static constexpr slot_motion motion = translation_of<S>::motion;
    static constexpr bool at(const reversal<S>& s, int n) { return translation_of<S>::at(s.inner(), n); }
};
// compose: rank r's step is rank r's step of one part, its blocks cut. Where both parts have as many blocks, none is.
template <class A, class B>
    requires(schedule<A> && schedule<B>)
struct translation_of<compose<A, B>> {
    static constexpr bool holds =
        translation_of<A>::holds && translation_of<B>::holds && translation_of<A>::motion == translation_of<B>::motion;
    static constexpr slot_motion motion = translation_of<A>::motion;
    static constexpr bool at(const compose<A, B>& s, int n) {
        return translation_of<A>::at(s.first(), n) && translation_of<B>::at(s.second(), n) &&
               blocks_of(s.first(), n) == blocks_of(s.second(), n);
    }
};

}  // namespace colls::inline v1::detail
