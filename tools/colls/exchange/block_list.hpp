// Lists of block numbers as block sets, which hold a regular list in constant memory.
#pragma once

#include <colls/step.hpp>

#include <utility>
#include <vector>

namespace exchange {

/// The blocks of one message: of its sender, and of its receiver in the same order.
using block_pairs = std::vector<std::pair<int, int>>;

/// Two block sets of equal size: what the sender sends, and where the receiver puts it.
struct message_blocks {
    colls::block_set sent, stored;
};

/// The same transfers, in any order, by few pairs of block sets: one where both sides are regular.
std::vector<message_blocks> as_block_sets(block_pairs pairs, int modulus);

}  // namespace exchange
