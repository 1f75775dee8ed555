// Waiting for peers within a kernel, and giving up.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// A wait ends when the peer has come far enough, when the timeout is over, when the peer or another block of this rank
// has given up, or when the host orders it.
#pragma once

#include <colls/cuda/detail/kernel/block_state.hpp>

namespace colls::inline v1::cuda::detail {

/// How long a rank that has refused a call, for wrong arguments, may take to make it with right ones.
inline constexpr std::uint64_t time_to_correct_ns = std::uint64_t{1} << 30;

/// Has a block of this rank given up?
template <class G>
COLLS_DEVICE bool is_poisoned(G& g) {
    const rank_handle& t = g.state().self;
    return g.relaxed(static_cast<const std::uint32_t*>(poison_of(t, t.rank))) != 0;
}
/// Poisons this rank and writes its report, unless another block has done so before. `told_by`: see failure_report.
template <class G>
COLLS_DEVICE_CALLED void give_up(
    G g, int channel, failure why, int peer, int round, std::uint64_t theirs, int told_by = none) {
    const rank_handle& t = g.state().self;
    if (!g.claim(poison_of(t, t.rank), poison_word(why, peer))) return;
    failure_report& r = *t.status;
    r.rank = t.rank;
    r.peer = peer;
    r.round = round;
    r.block = channel;
    r.told_by = told_by;
    r.own_fingerprint = g.state().call.fingerprint;
    r.fingerprint_of_peer = theirs;
    g.release(&r.what, static_cast<std::uint64_t>(why));
}
/// Gives up for the reason of `peer` if `peer` has given up or, where this rank has waited for long, has refused the
/// call; or, where `asks_host`, if the host has ordered it. Returns whether this rank has given up. (One function for
/// all three keeps kernels small.)
template <class G>
COLLS_DEVICE_CALLED bool is_told_to_end(G g, int channel, int peer, int round, bool long_wait, bool asks_host) {
    const rank_handle& self = g.state().self;
    const auto read = [&](const void* at) { return g.relaxed(static_cast<const std::uint32_t*>(at)); };
    if (read(poison_of(self, self.rank)) != 0) return true;  // by another block of this rank
    std::uint32_t word = read(poison_of(self, peer));
    int told_by = peer;
    if (word == 0 && long_wait) word = read(refusal_of(self, peer));
    if (word == 0 && asks_host) {
        word = read(&self.status->order);
        told_by = none;
    }
    if (word != 0) give_up(g, channel, reason_in(word), peer_in(word), round, 0, told_by);
    return word != 0;
}

/// At the end of a call, by all threads: had one of `count` ranks given up when the last read was over? What was read
/// from it is not valid then, since its caller may overwrite its buffers. `peer_of(i)`: the i-th of them. Returns
/// whether this rank has given up, as this thread sees it.
template <class G, class Peer>
COLLS_DEVICE bool must_give_up(G& g, int channel, int count, int round, Peer peer_of) {
    bool failed = false;
    if (g.index() < count) g.fence();  // all threads have read what they read: they have met since
    COLLS_ROLLED
    for (int i = g.index(); i < count; i += g.size())
        failed = is_told_to_end(g, channel, peer_of(i), round, false, false) || failed;
    return failed;
}

/// The pauses of one wait for a peer.
template <class G>
class backoff {
public:
    /// Between two looks at what is waited for. False: the wait has failed, and this rank has given up.
    COLLS_DEVICE bool pause(G& g, int channel, int peer, int round) {
        return pause(g, channel, peer, round, pauses_, since_);
    }
    /// The same, of a wait whose state, 0 and 0 at its beginning, is kept elsewhere.
    COLLS_DEVICE static bool pause(
        G& g, int channel, int peer, int round, std::uint32_t& pauses, std::uint64_t& since) {
        g.pause();
        if ((++pauses & 63u) != 0) return true;  // reading the clock and poison words takes longer than a look
        since = after_a_look(g, channel, peer, round, pauses, since);
        return since != 0;
    }

private:
    /// Since when it waits; 0: the wait has failed.
    COLLS_DEVICE_CALLED static std::uint64_t after_a_look(
        G g, int channel, int peer, int round, std::uint32_t pauses, std::uint64_t since) {
        const std::uint64_t now = g.now();
        if (since == 0) since = now;
        const std::uint64_t waited = now - since;
        // The order is in host memory: looked at once in about a millisecond.
        if (is_told_to_end(g, channel, peer, round, waited >= time_to_correct_ns, (pauses & 1023u) == 0)) return 0;
        if (waited < g.state().self.timeout_ns) return since;
        give_up(g, channel, failure::late, peer, round, 0);
        return 0;
    }
    std::uint32_t pauses_ = 0;
    std::uint64_t since_ = 0;
};

/// Waits until both counters are at least `value`; `one`, `two`: the peers to blame. False: this rank has given up.
template <class G>
COLLS_DEVICE_CALLED bool wait_until(G g, int channel, const std::uint64_t* first, const std::uint64_t* second,
    std::uint64_t value, int one, int two, int round) {
    backoff<G> pauses;
    while (!g.reached(first, second, value))
        if (!pauses.pause(g, channel, g.relaxed(first) < value ? one : two, round)) return false;
    return true;
}
/// Waits until the progress of both peers is at least `value`; none: of no rank. False: this rank has given up. By one
/// thread: after their next barrier, the other threads of the block see what it has seen.
template <class G>
COLLS_DEVICE_CALLED bool wait_for_peers(G g, int channel, int one, int two, std::uint64_t value, int round) {
    const rank_handle& self = g.state().self;
    if (one == none) one = two;
    if (one == none) return true;
    if (two == none) two = one;
    return wait_until(
        g, channel, progress_of(self, channel, one), progress_of(self, channel, two), value, one, two, round);
}
/// Waits until all messages of the post before the last have left and arrived: the next one may be written where it is.
/// False: this rank has given up. By one thread.
template <class G>
COLLS_DEVICE_CALLED bool wait_for_window(G g, int channel, int round) {
    const rank_handle& self = g.state().self;
    const std::uint64_t posts = channel_of(self, self.rank, channel).far_posts;
    if (posts < 2) return true;
    const far_post& before = self.far.post(channel, posts);
    int peer = self.rank;  // one that may be to blame
    COLLS_ROLLED
    for (int p = 0; p < before.ports; ++p)
        if (before.sends[p].peer != none) peer = before.sends[p].peer;
    const std::uint64_t* const done = self.far.done(channel);
    return wait_until(g, channel, done, done, posts - 1, peer, peer, round);
}

}  // namespace colls::inline v1::cuda::detail
