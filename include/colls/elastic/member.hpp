// A group whose members come and go at the boundaries of a program's steps: elastic::member.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/elastic/endpoint.hpp>
#include <colls/elastic/store.hpp>

#include <cstdint>
#include <vector>

namespace colls::inline v1::elastic {

/// How many members a group has, and how long they wait.
struct options {
    /// Fewer members do not go on: update() waits for newcomers, until the deadline.
    int min = 1;
    /// No newcomers are admitted beyond that.
    int max = 1 << 20;
    /// Seconds for which a newcomer waits to be admitted, and update() for `min` members. 0: COLLS_TIMEOUT.
    double timeout = 0;
    /// Seconds for which members wait for newcomers that they have admitted to join. At most half of COLLS_TIMEOUT.
    double admission_timeout = 5;
    /// Seconds for which members that leave dead ones behind wait for one that neither comes nor dies, before they
    /// leave it behind, too; more than any of them computes between two calls. 0: as a call waits (COLLS_TIMEOUT). So a
    /// member that is stopped costs the others the deadline of a call, and this. Equal on all members.
    double patience = 0;
};

/// A process's membership in a group that changes. Members meet at step boundaries, in update(): there newcomers are
/// admitted, and those that have died or leave are left behind. Each change makes a new epoch, with a communicator of
/// its own; all members see the same sequence of epochs.
///
///     elastic::member m(endpoint::open(), handles);
///     for (std::uint64_t step = 0; step < steps; ++step) {
///         try {
///             all_reduce(m.comm(), gradients, sum);
///         } catch (const error&) {}
///         if (m.update(step)) step = m.done_by_all();    // and send the newcomers the state
///     }
///
/// How it works: a boundary at which nothing changes is an all_reduce of 24 bytes, and a look at the own socket. A
/// group that is broken is shrunk first (communicator::shrink), so that what it promises holds here: over memory any
/// number of members may die, over messages (TCP, RDMA) a majority has to be left, and one that was left out by mistake
/// gets an error. Newcomers are admitted by detail/admission.hpp.
class member {
public:
    /// `handles`: where to find the group. If this endpoint's own handle is among them, all of them found the group,
    /// with ranks in the order of the list, as by join: each calls this with the same list. Else it knocks at all of
    /// them, and returns when the members have admitted it, at one of their boundaries; only one of the listed need be
    /// a member. Throws colls::error, as join: timeout where it is not admitted, peer_failed where nobody that is
    /// listed is there any more.
    member(endpoint&& own, std::span<const std::string> handles, const options& how = {});
    /// The same by a store, which has the list of the members under the key `name`, and must outlive this. Where it has
    /// none yet, or only processes that have ended, this one founds the group alone; others come as newcomers, and
    /// options::min makes update() wait for them. Each change is written there before update() returns: so of two
    /// groups of that name at most one goes on. Where a group over messages has lost its majority, the first member
    /// that replaces the list goes on alone, and the others knock at it.
    member(endpoint&& own, store& door, std::string_view name, const options& how = {});
    member(member&& other) noexcept : state_(other.state_) { other.state_ = nullptr; }
    member& operator=(member&& other) noexcept {
        state* const mine = state_;
        state_ = other.state_, other.state_ = mine;
        return *this;
    }
    ~member();

    /// The group of this epoch. update() replaces it where it returns true. Memory that was allocated from an earlier
    /// one stays valid, but it is an ordinary buffer for this one.
    communicator& comm();
    /// Counts the changes; 1 is the founders' first group. Equal for all members.
    std::uint64_t epoch() const;
    /// The handles of this epoch's members, by rank: where newcomers may knock.
    const std::vector<std::string>& handles() const;
    /// The handles of those that have come with the latest change.
    const std::vector<std::string>& came() const;
    /// Those of the ones that have gone with it.
    const std::vector<std::string>& gone() const;

    /// A step boundary, or what follows an error of a call on comm(): true where the epoch has changed. Collective
    /// among the members. `done` is a number of the program, such as of the last step that it has finished: done_by_all
    /// and done_by_any become its minimum and maximum among the members that go on (newcomers get the same values).
    /// Throws colls::error where this member cannot go on: it was left out, no majority is left, or `min` are not
    /// reached by the deadline. Costs an all_reduce of 24 bytes where nothing has changed.
    bool update(std::uint64_t done = 0);
    /// The least number that a member gave to the update of the latest change.
    std::uint64_t done_by_all() const;
    /// The greatest one.
    std::uint64_t done_by_any() const;

    /// This member goes: like update, collective; the others get true from theirs. comm() then has no group. (One that
    /// ends without it has died, for the others.)
    void leave(std::uint64_t done = 0);

private:
    struct state;
    state& there() const;
    state* state_ = nullptr;
};

}  // namespace colls::inline v1::elastic
