// When the kernel copies between processes instead of both copying through shared memory, and in which sizes.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <cstddef>

namespace colls::inline v1::detail {

/// Sizes in bytes. They were measured: docs/measurements/tried.md.
struct single_copy_policy {
    /// The least size of a block.
    static constexpr std::size_t from = std::size_t{24} << 10;
    /// The least size of a block of parted_broadcast.
    static constexpr std::size_t parted_from = std::size_t{16} << 10;
    /// What a call of the kernel takes, and its pages beside copying them (seconds, seconds a byte).
    static constexpr double call_seconds = 1.2e-6, byte_seconds = 2.5e-11;
    /// A unit's chunk.
    static constexpr std::size_t chunk = std::size_t{512} << 10;
};

}  // namespace colls::inline v1::detail
