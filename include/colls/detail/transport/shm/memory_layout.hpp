// The shared memory of a group of ranks that pass messages through it: what lies where.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/transport/shm/message_ring.hpp>

#include <bit>

namespace colls::inline v1::detail {

/// Capacities of the two rings of an ordered pair of ranks, in bytes, rounded up to powers of two, and from how many
/// bytes on a piece is stored past the caches (this never paid for a ring that fits a core's own cache). All ranks of a
/// group have the same.
struct memory_shape {
    std::size_t messages = std::size_t{256} << 10;
    std::size_t control = std::size_t{2} << 10;
    std::size_t stream_from = ~std::size_t{0};
};

/// One for each rank, written by the others.
struct alignas(line) doorbell {
    std::atomic<std::uint32_t> rings;   ///< how often it was rung: for control messages, and to wake a rank that sleeps
    std::atomic<std::uint32_t> asleep;  ///< the rank sleeps on `rings`
    std::atomic<std::uint32_t> ended;   ///< the rank's transport has ended: it never touches this memory again
};

/// Offsets in the memory of n ranks: the doorbells, the states of all rings, their bytes. Ring p of a kind goes from
/// rank p / n to rank p % n.
struct memory_layout {
    int ranks;
    std::size_t messages, control;  ///< capacities of a ring
    std::size_t states, message_data, control_data, whole;

    memory_layout(int n, const memory_shape& s)
        : ranks(n),
          messages(std::bit_ceil(std::max<std::size_t>(s.messages, 64))),
          control(std::bit_ceil(std::max<std::size_t>(s.control, 64))) {
        const auto count = static_cast<std::size_t>(n);
        states = count * sizeof(doorbell);
        control_data = states + count * count * 2 * sizeof(ring_state);
        message_data = (control_data + count * count * control + 4095) / 4096 * 4096;
        whole = (message_data + count * count * messages + line - 1) / line * line;
    }
    std::size_t ring(int from, int to) const {
        return static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(to);
    }
    static doorbell& doorbell_of(std::byte* at, int rank) { return reinterpret_cast<doorbell*>(at)[rank]; }
    static const doorbell& doorbell_of(const std::byte* at, int rank) {
        return reinterpret_cast<const doorbell*>(at)[rank];
    }
    ring_state& message_state(std::byte* at, std::size_t ring) const {
        return reinterpret_cast<ring_state*>(at + states)[2 * ring];
    }
    ring_state& control_state(std::byte* at, std::size_t ring) const {
        return reinterpret_cast<ring_state*>(at + states)[2 * ring + 1];
    }
};

}  // namespace colls::inline v1::detail
