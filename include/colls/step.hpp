// What one rank does on one port in one round.
#pragma once

#include <colls/block_set.hpp>

namespace colls::inline v1 {

/// What a receive does with the data that arrives: replace the block, or combine with it.
enum class action : unsigned char { copy, reduce };

/// No rank: a transfer without a peer does not take place, and a block without a home belongs to no rank.
inline constexpr int none = -1;

struct send_part {
    int peer = none;
    block_set blocks{};
};
struct receive_part {
    int peer = none;
    block_set blocks{};
    colls::action action = colls::action::copy;
};
/// At most one send and one receive. The i-th block sent is the i-th block received, whatever their numbers. A peer
/// equal to the rank itself is a local transfer: it is sent and received on the same port, and where it reduces, the
/// incoming operand is the left one.
struct step {
    send_part send{};
    receive_part recv{};
};

}  // namespace colls::inline v1
