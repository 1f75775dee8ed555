// Numbers that are drawn by what they are for, so that they do not depend on the order of calls.
// IWYU pragma: private, include <colls/simulate.hpp>
#pragma once

#include <colls/detail/support/hash.hpp>

#include <cstdint>

namespace colls::inline v1::detail {

/// Above 0, at most 1, evenly distributed.
inline double drawn(std::uint64_t seed, int rank, int round, std::uint64_t which = 0) {
    std::uint64_t h = hash_mix(hash_mix(seed, static_cast<std::uint64_t>(rank)), static_cast<std::uint64_t>(round));
    h = hash_mix(hash_mix(h, which), 0x2545f4914f6cdd1dull);
    return static_cast<double>((h >> 11) + 1) * 0x1p-53;
}

}  // namespace colls::inline v1::detail
