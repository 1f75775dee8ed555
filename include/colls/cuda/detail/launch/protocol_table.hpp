// Up to which sizes calls are eager, where the options say `automatic`. scripts/test-cuda measures this table on GPUs,
// and writes it to its folder in the form of this file.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <cstddef>
#include <cstdint>

namespace colls::inline v1::cuda::detail {

/// For groups of up to `ranks` ranks: what a rank sends to all others together in the largest eager call, in bytes.
struct protocol_limits {
    int ranks;
    std::size_t eager;
};

// Measured with virtual ranks on one H200, whose memory they share.
inline constexpr protocol_limits protocol_table[] = {{72, 2 << 20}};

constexpr std::uint64_t eager_limit(int ranks) {
    for (const protocol_limits& l : protocol_table)
        if (ranks <= l.ranks) return l.eager;
    return 0;
}

}  // namespace colls::inline v1::cuda::detail
