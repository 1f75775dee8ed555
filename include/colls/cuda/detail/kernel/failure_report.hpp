// How a kernel says that it failed: a poison word for the kernels of other ranks, a report for the host. How the host
// tells a kernel to give up: an order, which is a poison word too.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <cstdint>

namespace colls::inline v1::cuda::detail {

/// Why a rank gave up: a peer did not come within the timeout, or made another call. Or, by its host's order: a rank
/// has called abort, its process has ended, it failed while it prepared a call, it refused a call and did not make it
/// afterwards, it has left the group, or the host group by which the ranks joined is broken. Or a kernel has made a
/// call with blocks that are not in one dimension, have more than 512 threads, or not a multiple of 32.
enum class failure : std::uint32_t {
    nothing,
    late,
    mismatch,
    aborted,
    died,
    failed,
    refused,
    host_broken,
    wrong_block,
    left
};

/// A rank's poison word: 0 while the rank is well, else why it gave up and which rank is to blame (or none).
constexpr std::uint32_t poison_word(failure why, int peer) {
    return static_cast<std::uint32_t>(why) << 16 | (static_cast<std::uint32_t>(peer) & 0xffffu);
}
constexpr failure reason_in(std::uint32_t word) { return static_cast<failure>(word >> 16); }
constexpr int peer_in(std::uint32_t word) { return static_cast<std::int16_t>(word & 0xffffu); }

/// What a rank that gave up tells the host, and what the host orders it; in pinned host memory.
struct failure_report {
    std::uint64_t what;                                  ///< a `failure`; written last, with release order
    std::int32_t rank, peer, round, block;               ///< round: none before the first one and in the eager path
    std::int32_t told_by;                                ///< the rank that had given up before for this reason, or none
    std::uint64_t own_fingerprint, fingerprint_of_peer;  ///< of a mismatch that this rank found itself
    /// Written by the host, read by kernels that wait: 0, or a poison word for whose reason they give up.
    alignas(128) std::uint32_t order;
};

}  // namespace colls::inline v1::cuda::detail
