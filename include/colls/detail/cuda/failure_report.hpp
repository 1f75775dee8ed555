// How a kernel says that it failed: a poison word for the kernels of other ranks, a report for the host.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <cstdint>

namespace colls::inline v1::cuda::detail {

/// Why a kernel gave up: a peer did not come within the timeout, or made another call.
enum class failure : std::uint32_t { nothing, late, mismatch };

/// A rank's poison word: 0 while the rank is well, else why it gave up and which peer is to blame.
constexpr std::uint32_t poison_word(failure why, int peer) {
    return static_cast<std::uint32_t>(why) << 16 | static_cast<std::uint32_t>(peer);
}
constexpr failure reason_in(std::uint32_t word) { return static_cast<failure>(word >> 16); }
constexpr int peer_in(std::uint32_t word) { return static_cast<int>(word & 0xffffu); }

/// What a rank that gave up tells the host, in pinned host memory.
struct failure_report {
    std::uint64_t what;                                  ///< a `failure`; written last, with release order
    std::int32_t rank, peer, round, block;               ///< round: none before the first one and in the eager path
    std::int32_t told_by;                                ///< the rank that had given up before for this reason, or none
    std::uint64_t own_fingerprint, fingerprint_of_peer;  ///< of a mismatch that this rank found itself
};

}  // namespace colls::inline v1::cuda::detail
