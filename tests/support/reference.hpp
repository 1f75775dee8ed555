// The serial reference: the result of each collective at each rank, by plain loops in rank order over all inputs.
#pragma once

#include "guarded.hpp"
#include "kinds.hpp"

#include <colls/testing/detail/call_shape.hpp>

#include <cstring>
#include <vector>

namespace support {

using verb = colls::collective;
using colls::name_of;
using colls::reduces;
using colls::rooted;
/// Cut into one block a rank: the collectives that have a v-variant.
inline bool has_blocks(verb c) { return colls::owned(c) || c == verb::all_to_all; }

/// The balanced partition of `total` into n blocks.
inline std::vector<std::size_t> balanced(std::size_t total, int n) {
    const auto parts = static_cast<std::size_t>(n);
    std::vector<std::size_t> counts(parts, total / parts);
    for (std::size_t b = 0; b < total % parts; ++b) ++counts[b];
    return counts;
}

/// One collective call, as all ranks together see it.
struct shape : colls::detail::testing::call_shape {};
using byte_list = std::vector<std::byte>;

/// What each rank's out must hold, given each rank's in. For `bounded` kinds of the reducing collectives: the fold in
/// rank order, to be judged by kind::far.
inline std::vector<byte_list> expected(const shape& s, const kind& k, const std::vector<byte_list>& in) {
    std::vector<byte_list> out(s.size());
    const std::size_t size = k.size;
    byte_list fold;  // of the inputs of ranks 0 .. folded - 1
    int folded = 0;
    const auto fold_to = [&](int ranks) {
        for (; folded < ranks; ++folded) {
            byte_list own = in[static_cast<std::size_t>(folded)];
            if (k.before) k.before(own.data(), s.total());
            if (folded == 0)
                fold = std::move(own);
            else
                k.fold(fold.data(), own.data(), s.total());
        }
    };
    for (int r = 0; r < s.n; ++r) {
        byte_list& own = out[static_cast<std::size_t>(r)];
        own.resize(s.out_count(r) * size);
        for (std::size_t i = 0; i < s.out_count(r);) {
            const auto [first, last, at, count] = s.source_of(r, i);
            if (reduces(s.collective)) fold_to(last);
            const byte_list& from = reduces(s.collective) ? fold : in[static_cast<std::size_t>(first)];
            if (first < last) std::memcpy(own.data() + i * size, from.data() + at * size, count * size);
            i += count;
        }
        if (reduces(s.collective) && k.after && s.writes(r)) k.after(own.data(), s.out_count(r), s.contributors_at(r));
    }
    return out;
}

}  // namespace support
