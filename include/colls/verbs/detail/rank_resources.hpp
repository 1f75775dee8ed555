// What the connections of one rank over verbs share: registered memory, sizes, and counts.
// IWYU pragma: private, include <colls/transports/verbs.hpp>
#pragma once

#include <colls/net/detail/connection/piece_queue.hpp>
#include <colls/verbs/detail/memory_registry.hpp>
#include <colls/verbs/detail/protocol.hpp>

#include <memory>
#include <vector>

namespace colls::inline v1::detail::rdma {

/// Bytes that a rank has copied between callers' memory and slots.
struct copied_bytes {
    std::uint64_t out = 0, in = 0;
};

struct rank_resources {
    rank_resources(std::shared_ptr<memory_registry> r, const verbs_shape& s, message_transport::listener*& l)
        : registry(std::move(r)), shape(s), layout(s), listening(l) {}
    rank_resources(const rank_resources&) = delete;
    rank_resources& operator=(const rank_resources&) = delete;
    ~rank_resources() {
        for (const region& r : gpu_memory) registry->drop(r);
    }

    const std::shared_ptr<memory_registry> registry;
    const verbs_shape shape;
    const block_layout layout;
    message_transport::listener*& listening;  ///< the transport's
    copied_bytes copied;
    int connecting = 0;              ///< queue pairs that wait for their peer's
    unsigned turn = 0;               ///< of `progress`
    std::vector<gather> pieces;      ///< of one slot; here so that its memory is used again
    std::vector<region> gpu_memory;  ///< of message_transport::add_gpu_memory

    /// Whether this processor can read and write the next bytes of these pieces.
    bool native(piece_queue& all, std::uint64_t bytes) const {
        for (std::size_t i = 0, found = 0; found < bytes; found += all[i++].bytes)
            if (!registry->native(all[i].data)) return false;
        return true;
    }
    /// Whether both sides have added memory of a GPU, and the message goes from there to there.
    bool in_gpu(const piece* all, int count) const {
        return !gpu_memory.empty() && count > 0 && !registry->native(all[0].data);
    }
    /// Whether all of these pieces are registered with the device.
    bool registered(const piece* all, int count) const {
        for (int i = 0; i < count; ++i)
            if (all[i].bytes > 0 && registry->find(all[i].data, all[i].bytes).bytes == 0) return false;
        return true;
    }
};

// Shorter pieces go faster together, through slots.
inline constexpr std::size_t least_direct_piece = 512;

inline constexpr const char* not_native =
    "a message lies in memory of another device (a GPU's) and would have to be copied through a slot: its blocks must "
    "be above 8 KB, in at most 16 pieces, and registered on both sides";
inline constexpr const char* protocol_violation = "its writes do not follow this version's protocol";

}  // namespace colls::inline v1::detail::rdma
