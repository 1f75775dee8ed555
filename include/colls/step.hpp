// What one rank does on one port in one round.
#pragma once

#include <colls/block_set.hpp>

namespace colls::inline v1 {

/// What a receive does with the data that arrives: replace the block, or combine with it.
enum class action : unsigned char { copy, reduce };

/// No rank: a transfer without a peer does not take place, and a block without a home belongs to no rank.
inline constexpr int none = -1;

/// What a rank sends on one port.
struct send_part {
    int peer = none;     ///< the rank that receives it; none: nothing is sent
    block_set blocks{};  ///< the sender's blocks, in the order in which they go
};
/// What a rank receives on one port.
struct receive_part {
    int peer = none;                             ///< the rank that sends it; none: nothing is received
    block_set blocks{};                          ///< the receiver's blocks, in the order in which they arrive
    colls::action action = colls::action::copy;  ///< what becomes of a block's former value
};
/// At most one send and one receive. The i-th block sent is the i-th block received, whatever their numbers. A peer
/// equal to the rank itself is a local transfer: it is sent and received on the same port, and where it reduces, the
/// incoming operand is the left one.
struct step {
    send_part send{};     ///< what leaves
    receive_part recv{};  ///< what arrives
};

}  // namespace colls::inline v1
