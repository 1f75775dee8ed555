// How a block meets those of its index at the other ranks: what its threads share, waiting, giving up, saying what is
// done.
#pragma once

#include <colls/detail/cuda/sweep.hpp>
#include <colls/detail/cuda/workspace.hpp>

namespace colls::inline v1::cuda::detail {

/// What arrives on a port.
struct arrival {
    std::int32_t peer = none;
    action act = action::copy;
    block_set from, to;  ///< the peer's slots, and one's own
};

/// The buffers of a rank as this one reaches them; null: not at all.
struct view {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
};

/// One pass over memory, of all threads: operands, to be folded into a place.
struct order {
    std::byte* to = nullptr;
    std::uint64_t index = 0;  ///< what the first element is in its buffer
    std::uint32_t count = 0;  ///< elements
    std::int32_t operands = 1;
    std::int32_t ranks = 0;   ///< the fold is complete, of so many; else 0
    std::int32_t result = 0;  ///< it is for the output, which is not simply where slots live
};

/// What the threads of a group share.
struct blackboard {
    team us;   ///< who plays,
    call now;  ///< and what
    view views[max_ranks];
    arrival in[max_ports];
    std::int32_t to[2][max_ports];       ///< whom this rank sends to in a round, by turns
    std::int32_t match[2][max_ports];    ///< which block of a port's arrival is the one in hand, by turns
    operand operands[2][max_ports + 1];  ///< of an order, by turns
    order orders[2];
};

/// Before a call, by all threads.
template <class G>
COLLS_DEVICE void take_up(G& g, const team& t, const call& c) {
    if (g.index() == 0) {
        g.board().us = t;
        g.board().now = c;
    }
    g.any(false);
}

/// What this rank's blocks stop at, when one has given up.
template <class G>
COLLS_DEVICE bool poisoned(G& g) {
    const team& t = g.board().us;
    return g.relaxed(static_cast<const std::uint32_t*>(poison_of(t, t.rank))) != 0;
}
/// The first to give up says why.
template <class G>
COLLS_DEVICE_CALLED void give_up(
    G g, int block, failure why, int peer, int round, std::uint64_t theirs, int told_by = none) {
    const team& t = g.board().us;
    if (!g.claim(poison_of(t, t.rank), blame(why, peer))) return;
    report& r = *t.status;
    r.rank = t.rank;
    r.peer = peer;
    r.round = round;
    r.block = block;
    r.told_by = told_by;
    r.mine = g.board().now.fingerprint;
    r.theirs = theirs;
    g.release(&r.what, static_cast<std::uint64_t>(why));
}
/// Gives up where `peer` has.
template <class G>
COLLS_DEVICE_CALLED bool follow(G g, int block, int peer, int round) {
    const std::uint32_t word = g.relaxed(static_cast<const std::uint32_t*>(poison_of(g.board().us, peer)));
    if (word != 0) give_up(g, block, blamed_for(word), blamed(word), round, 0, peer);
    return word != 0;
}

/// One wait's backoff: false when there is none left, or the peer or another block of the rank has given up.
template <class G>
class patience {
public:
    COLLS_DEVICE bool turn(G& g, int block, int peer, int round) {
        g.pause();
        if ((++turns_ & 63u) != 0) return true;
        if (poisoned(g) || follow(g, block, peer, round)) return false;
        const std::uint64_t now = g.now();
        if (since_ == 0) since_ = now;
        if (now - since_ < g.board().us.patience) return true;
        give_up(g, block, failure::late, peer, round, 0);
        return false;
    }

private:
    std::uint32_t turns_ = 0;
    std::uint64_t since_ = 0;
};

/// Until `peer` has come to `value`. One thread waits; what it has seen, the group has seen after its next barrier.
template <class G>
COLLS_DEVICE_CALLED bool wait_for(G g, int block, int peer, std::uint64_t value, int round) {
    const std::uint64_t* const progress = &channel_of(g.board().us, peer, block).progress;
    patience<G> p;
    while (g.acquire(progress) < value)
        if (!p.turn(g, block, peer, round)) return false;
    return true;
}

}  // namespace colls::inline v1::cuda::detail
