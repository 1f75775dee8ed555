// How a block meets those of its index at the other ranks: what its threads share, waiting, giving up, saying what is done.
#pragma once

#include <colls/cuda/sweep.hpp>
#include <colls/cuda/workspace.hpp>

namespace colls::inline v1::cuda::detail {

/// What arrives on a port.
struct arrival {
    std::int32_t peer = none;
    action act = action::copy;
    block_set from, to;   ///< the peer's slots, and one's own
};

/// The buffers of a rank as this one reaches them; null: not at all.
struct view {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
};

/// One pass over memory, of all threads: operands, to be folded into a place.
struct order {
    std::byte* to = nullptr;
    std::uint64_t count = 0, index = 0;   ///< elements; what the first is in its buffer
    std::int32_t operands = 1;
    std::int32_t ranks = 0;               ///< the fold is complete, of so many; else 0
    std::int32_t result = 0;              ///< it is for the output, which is not simply where slots live
};

/// What the threads of a group share.
struct blackboard {
    call now;                               ///< on a device: what is being played
    view views[max_ranks];
    arrival in[max_ports];
    std::int32_t to[2][max_ports];          ///< whom this rank sends to in a round, by turns
    std::int32_t match[2][max_ports];       ///< which block of a port's arrival is the one in hand, by turns
    operand operands[2][max_ports + 1];     ///< of an order, by turns
    order orders[2];
};

/// The first to give up says why.
template <class G>
COLLS_DEVICE_CALLED void give_up(G& g, const team& t, int block, failure why, int peer, int round, std::uint64_t mine, std::uint64_t theirs) {
    if (!g.claim(poison_of(t))) return;
    report& r = *t.status;
    r.rank = t.rank;
    r.peer = peer;
    r.round = round;
    r.block = block;
    r.mine = mine;
    r.theirs = theirs;
    g.release(&r.what, static_cast<std::uint64_t>(why));
}

/// One wait's patience: false when there is none left, or another block of the rank has given up.
template <class G>
class patience {
public:
    COLLS_DEVICE patience(G& g, const team& t) : g_(g), t_(t) {}
    COLLS_DEVICE bool turn(int block, int peer, int round, std::uint64_t fingerprint) {
        g_.pause();
        if ((++turns_ & 63u) != 0) return true;
        if (g_.relaxed(static_cast<const std::uint32_t*>(poison_of(t_))) != 0) return false;
        const std::uint64_t now = g_.now();
        if (since_ == 0) since_ = now;
        if (now - since_ < t_.patience) return true;
        give_up(g_, t_, block, failure::late, peer, round, fingerprint, 0);
        return false;
    }

private:
    G& g_;
    const team& t_;
    std::uint32_t turns_ = 0;
    std::uint64_t since_ = 0;
};

/// Until `peer` has come to `value`. One thread waits; what it has seen, the group has seen after its next barrier.
template <class G>
COLLS_DEVICE_CALLED bool wait_for(G g, const team& t, int block, int peer, std::uint64_t value, int round, std::uint64_t fingerprint) {
    const std::uint64_t* const progress = &channel_of(t, peer, block).progress;
    if (g.acquire(progress) >= value) return true;
    patience<G> p(g, t);
    do
        if (!p.turn(block, peer, round, fingerprint)) return false;
    while (g.acquire(progress) < value);
    return true;
}

}  // namespace colls::inline v1::cuda::detail
