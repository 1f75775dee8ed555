#include "block_list.hpp"

#include <algorithm>
#include <optional>

namespace exchange {

namespace {

using colls::block_set;

std::vector<int> side(const block_pairs& pairs, bool stored) {
    std::vector<int> blocks;
    for (const auto& [from, to] : pairs) blocks.push_back(stored ? to : from);
    return blocks;
}

bool is(const block_set& set, const std::vector<int>& blocks) {
    if (set.size() != static_cast<int>(blocks.size())) return false;
    for (int i = 0; i < set.size(); ++i)
        if (set[i] != blocks[static_cast<std::size_t>(i)]) return false;
    return true;
}

/// A list in its own order: runs of equal length, equally far apart, with or without a wrap at `modulus`.
std::optional<block_set> regular(const std::vector<int>& blocks, int modulus) {
    const int count = static_cast<int>(blocks.size());
    if (count == 1) return colls::block(blocks[0]);
    const bool wraps = std::ranges::any_of(blocks, [&](int b) { return b < blocks[0]; });
    const auto at = [&](int i) {
        const int b = blocks[static_cast<std::size_t>(i)];
        return wraps && b < blocks[0] ? b + modulus : b;
    };
    int run = 1;
    while (run < count && at(run) == at(run - 1) + 1) ++run;
    const block_set set{.first = blocks[0],
        .count = count,
        .run = run,
        .period = run < count ? at(run) - at(0) : run,
        .modulus = wraps ? modulus : 0};
    return is(set, blocks) ? std::optional(set) : std::nullopt;
}

std::optional<message_blocks> whole(const block_pairs& pairs, int modulus) {
    const auto sent = regular(side(pairs, false), modulus), stored = regular(side(pairs, true), modulus);
    if (!sent || !stored) return std::nullopt;
    return message_blocks{*sent, *stored};
}

}  // namespace

std::vector<message_blocks> as_block_sets(block_pairs pairs, int modulus) {
    std::ranges::sort(pairs);
    // A list that wraps begins behind one of its gaps.
    block_pairs turned = pairs;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        if (i == 0 || pairs[i].first != pairs[i - 1].first + 1)
            if (const auto one = whole(turned, modulus)) return {*one};
        std::ranges::rotate(turned, turned.begin() + 1);
    }
    // Else the longest regular part, from the front, again and again.
    std::vector<message_blocks> parts;
    for (std::size_t first = 0; first < pairs.size();) {
        std::size_t last = pairs.size();
        const auto part = [&] {
            return block_pairs(pairs.begin() + static_cast<long>(first), pairs.begin() + static_cast<long>(last));
        };
        auto found = whole(part(), modulus);
        for (; !found; found = whole(part(), modulus)) --last;
        parts.push_back(*found);
        first = last;
    }
    return parts;
}

}  // namespace exchange
