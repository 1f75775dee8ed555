// How the members of a group go over to another one, all of them or none, whichever die meanwhile: the decision of each
// member, without its calls.
//
// The old group S goes on to exist until the new one, N, has been confirmed. N has members of S, and newcomers.
//   join     the members of N try to form it
//   vote     the members of S: has it been formed? One that hears "yes" has decided for N
//   confirm  the members of N: one that returns from it knows that all of S have decided, and leaves S
//   settle   after an error in one of the last two: the living members of S agree, by its shrink, on which they are,
//            and tell each other whether one has decided. If none has, they stay in what is left of S
//   spread   else all of these have decided, and meet once more in what is left of S: one that returns from that knows
//            it, and goes over to N, which is then shrunk; after an error they settle again
// Whoever has not decided finds all living ones that have in `settle`, since nobody leaves S before all have decided.
// So no two members end differently. A newcomer that has not confirmed is no member, and a member that leaves with the
// change goes after the vote, whatever it was. Over messages, where a shrink needs a majority of S, one that has
// decided may find the others gone, since they have confirmed: then it goes over. And a majority of N may need the
// newcomers: one that has not confirmed takes part in N's shrink, and is a member where it meets one there.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

namespace colls::inline v1::detail::endpoints {

class admission {
public:
    enum class next { vote, confirm, settle, stay, spread, go_over, go_over_and_shrink, fail };

    next voted(bool formed) {
        decided_ = formed;
        return formed ? next::confirm : next::stay;
    }
    /// What this member tells the others of S.
    bool has_decided() const { return decided_; }
    next settled(bool one_has_decided) {
        decided_ = one_has_decided;
        return one_has_decided ? next::spread : next::stay;
    }
    /// The shrink of S was refused, since too few of S are left there.
    next no_majority() const { return decided_ ? next::go_over_and_shrink : next::fail; }

private:
    bool decided_ = false;
};

}  // namespace colls::inline v1::detail::endpoints
