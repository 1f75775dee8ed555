// The interface of an RDMA device to the verbs transport.
// IWYU pragma: private, include <colls/transports/verbs.hpp>
//
// It has registered memory, and reliable-connected queue pairs that take chains of RDMA writes. device.hpp implements
// it by libibverbs, tests/support/verbs_dry_run.hpp within one process, for tests.
#pragma once

#include <colls/cards/detail/nearest_card.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace colls::inline v1::detail::rdma {

/// A range of memory that is registered with the device, with its keys.
struct region {
    std::byte* at = nullptr;
    std::size_t bytes = 0;
    std::uint32_t local = 0, remote = 0;  ///< keys: for requests of this rank, and for those of peers
    void* handle = nullptr;               ///< what the device knows it by
    bool foreign = false;    ///< memory of another device (a GPU), which this processor cannot read or write
    region* next = nullptr;  ///< the same range, registered with the device of the next lane

    const region& at_lane(std::uint32_t lane) const { return lane > 0 && next ? next->at_lane(lane - 1) : *this; }
    bool holds(const std::byte* p, std::size_t n) const {
        const auto begin = reinterpret_cast<std::uintptr_t>(at), q = reinterpret_cast<std::uintptr_t>(p);
        return q >= begin && n <= bytes && q - begin <= bytes - n;
    }
};

/// A piece of memory that a request reads.
struct gather {
    const std::byte* at;
    std::uint32_t bytes;
    std::uint32_t local;  ///< key; ignored where the request is inlined
};

/// One RDMA write of a chain.
struct write_request {
    std::uint64_t id;            ///< its number on its queue pair, from 0
    std::uint64_t to;            ///< address in the peer's memory
    std::uint32_t remote;        ///< key of the peer's memory
    std::uint32_t first, count;  ///< the chain's pieces that it reads
    std::uint32_t immediate;
    bool announces;  ///< with the immediate: it takes one posted receive of the peer, which gets a completion
    bool signalled, inlined;
    std::uint32_t lane = 0;
};

/// Without initial values, since a waiting rank polls for an array of them again and again.
struct completion {
    enum kind : std::uint8_t {
        sent,     ///< request `id`, which was signalled, and all before it are done
        arrived,  ///< the peer's request with that immediate is in this rank's memory
        failed    ///< nothing moves on this queue pair any more: see `status`
    } what;
    /// The cause of the failure may lie with the peer, and be told by control messages.
    bool secondary;
    std::uint64_t id;
    std::uint32_t immediate;
    const char* status;
};

struct queue_limits {
    std::uint32_t inlined = 0;      ///< bytes that an inlined request may carry
    std::uint32_t gathers = 1;      ///< pieces of one request
    std::uint32_t requests = 1;     ///< that may be posted and not known to be done
    std::uint32_t receives = 1;     ///< that may be posted
    std::uint64_t bytes = 1 << 20;  ///< of one request, 256 or more; final when the queue pair is connected
    std::uint32_t lanes = 1;        ///< final when the queue pair is connected
};

/// What a peer needs to connect its queue pair to this one; only the device knows what the bytes mean. Those of a lane
/// are not all 0.
inline constexpr std::size_t lane_name_bytes = 32;
using queue_name = std::array<std::byte, most_lanes * lane_name_bytes>;

/// A queue pair, with its completion queue. Functions that may fail return an error's text, or null.
class queue {
public:
    /// Afterwards the device reads and writes none of this rank's memory for it. May take long.
    virtual ~queue() = default;
    /// The same, without waiting for what else the device has to do. Only the destructor may be called afterwards.
    virtual void stop() noexcept {}
    virtual queue_limits limits() const = 0;
    virtual queue_name name() const = 0;
    virtual const char* connect(const queue_name& peer) = 0;
    /// Posts `count` requests, with one doorbell. `gathers`: the pieces that their `first` and `count` refer to.
    virtual const char* post(const write_request* chain, int count, const gather* gathers) = 0;
    /// Posts `count` receives.
    virtual const char* receive(int count) = 0;
    /// Writes at most `most` completions to `into`, and returns how many.
    virtual int poll(completion* into, int most) = 0;
};

class device {
public:
    virtual ~device() = default;
    virtual const char* name() const = 0;
    /// Registers a range. Throws colls::error (unsupported), which says what to do.
    virtual region add(std::byte* at, std::size_t bytes) = 0;
    /// Registers memory of a GPU by its address, or, if `file` is not -1, of that dma-buf from `offset` on. Throws
    /// colls::error (unsupported).
    virtual region add_gpu(std::byte* at, std::size_t bytes, int /*file*/, std::size_t /*offset*/) {
        region r = add(at, bytes);
        r.foreign = true;
        return r;
    }
    /// Ends a registration.
    virtual void drop(const region& r) noexcept = 0;
    /// Makes a queue pair, with limits as near to those wanted as the device has them. Throws colls::error
    /// (unsupported).
    virtual std::unique_ptr<queue> open(const queue_limits& wanted) = 0;
};

}  // namespace colls::inline v1::detail::rdma
