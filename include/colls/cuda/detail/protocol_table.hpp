// Up to which sizes calls take which protocol, where the options say `automatic`. scripts/test-cuda measures this table
// on a GPU, and writes it to its folder in the form of this file.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <cstddef>

namespace colls::inline v1::cuda::detail {

/// For groups of up to `ranks` ranks: the largest message of the eager path, and the largest buffer that moves by
/// packets, in bytes; each no more than what the options allow.
struct protocol_limits {
    int ranks;
    std::size_t eager, packets;
};

// Packets: measured with virtual ranks on one H100, where a fence and a load cost less than over a link, so that
// packets gain more between devices. Groups of more than 8 ranks are not measured: they take none of themselves.
inline constexpr protocol_limits protocol_table[] = {
    {2, 32 << 10, 1 << 20}, {8, 32 << 10, 256 << 10}, {72, 32 << 10, 0}};

/// Does an eager all_reduce of n ranks and so many bytes take two hops? They send 2 S (n - 1) / n bytes each instead of
/// S (n - 1), and take a trip more, in which a link moves about 256 KB.
constexpr bool takes_two_hops(std::size_t bytes, int n) {
    return n > 2 && bytes / static_cast<std::size_t>(n) * static_cast<std::size_t>((n - 1) * (n - 2)) > 256 << 10;
}

constexpr protocol_limits limits_of(int ranks) {
    for (const protocol_limits& l : protocol_table)
        if (ranks <= l.ranks) return l;
    return {ranks, 0, 0};
}

}  // namespace colls::inline v1::cuda::detail
