// When stores bypass the caches, and the sizes in which data moves through shared memory.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <cstddef>

namespace colls::inline v1::detail {

/// Sizes, in bytes, at which the direct executor changes how it stores. They were measured: docs/performance.md.
struct store_policy {
    /// From this size of the whole buffer on, pushes into memory that this rank has not just read are streamed.
    static constexpr std::size_t stream_from = std::size_t{2} << 20;
    /// From this size of the whole buffer on, a rank's own result is streamed, too.
    static constexpr std::size_t stream_own_from = std::size_t{4} << 20;
    /// From this size of the whole buffer on, copies into scratch memory for others to read are streamed.
    static constexpr std::size_t stream_staged_from = std::size_t{32} << 20;
    /// What is folded and then pushed at a time: a third of a first-level cache.
    static constexpr std::size_t piece = 16 << 10;
    /// Staged plans: the chunks of all units together, and the number of chunks whose scratch slots are apart.
    static constexpr std::size_t staged_chunk = std::size_t{256} << 10;
    static constexpr std::size_t staged_chunks = 3;
    /// The same for a broadcast, whose root copies a chunk while the receivers copy the one before.
    static constexpr std::size_t staged_broadcast_chunk = std::size_t{32} << 10;
    static constexpr std::size_t staged_broadcast_chunks = 8;
};

}  // namespace colls::inline v1::detail
