// What the verbs transport asks of a device: registered memory, and reliable-connected queue pairs that are given
// chains of RDMA writes. net/verbs_device.hpp does it by libibverbs, testing/verbs_dry_run.hpp within one process.
#pragma once

#include <colls/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace colls::inline v1::detail::rdma {

/// Memory that the device reads and writes. The keys go with all of it.
struct region {
    std::byte* at = nullptr;
    std::size_t bytes = 0;
    std::uint32_t local = 0, remote = 0;
    void* handle = nullptr;  ///< the device's own
    bool foreign = false;    ///< this processor cannot read or write it: a GPU's

    bool holds(const std::byte* p, std::size_t n) const {
        const auto begin = reinterpret_cast<std::uintptr_t>(at), q = reinterpret_cast<std::uintptr_t>(p);
        return q >= begin && n <= bytes && q - begin <= bytes - n;
    }
};

/// Memory that a request reads.
struct gather {
    const std::byte* at;
    std::uint32_t bytes;
    std::uint32_t local;  ///< key; of no matter where the request is inlined
};

/// One RDMA write of a chain.
struct request {
    std::uint64_t id;            ///< its number on its queue, from 0
    std::uint64_t to;            ///< the peer's address
    std::uint32_t remote;        ///< and key
    std::uint32_t first, count;  ///< which of the chain's `gather`s it reads
    std::uint32_t immediate;
    bool announces;  ///< with the immediate: takes a posted receive of the peer's, and is seen by it
    bool signalled, inlined;
};

/// Without initial values: a queue is asked for many of them at each turn of a wait.
struct completion {
    enum kind : std::uint8_t {
        sent,     ///< request `id` and all before it are done
        arrived,  ///< the peer's request with that immediate is in this rank's memory
        failed    ///< nothing more goes on this queue: see `status`
    } what;
    /// It may be the consequence of what has happened to the peer, or at the peer, of which there is control messages
    /// elsewhere.
    bool secondary;
    std::uint64_t id;
    std::uint32_t immediate;
    const char* status;
};

struct queue_limits {
    std::uint32_t inlined = 0;      ///< bytes that a request may carry itself
    std::uint32_t gathers = 1;      ///< pieces of one request
    std::uint32_t requests = 1;     ///< that may be posted and not yet known to be done
    std::uint32_t receives = 1;     ///< posted
    std::uint64_t bytes = 1 << 20;  ///< of one request, 256 or more: known for sure when the queue is connected
};

/// How a queue is reached: what it is connected by, in the device's own words.
using queue_name = std::array<std::byte, 48>;

/// One queue pair, with its completions. Functions that may fail return what is wrong, or null.
class queue {
public:
    /// Nothing of this rank's memory is read or written for it any more. May take as long as the device likes.
    virtual ~queue() = default;
    /// The same at once; what else the device has to do for its end nobody waits for. After it there is only the
    /// destructor.
    virtual void stop() noexcept {}
    virtual queue_limits limits() const = 0;
    virtual queue_name name() const = 0;
    virtual const char* connect(const queue_name& peer) = 0;
    /// One doorbell.
    virtual const char* post(const request* chain, int count, const gather* gathers) = 0;
    /// So many more receives.
    virtual const char* receive(int count) = 0;
    /// Returns how many of `most` there are.
    virtual int poll(completion* into, int most) = 0;
};

class device {
public:
    virtual ~device() = default;
    /// Throws colls::error, which says what to do.
    virtual region add(std::byte* at, std::size_t bytes) = 0;
    virtual void drop(const region& r) noexcept = 0;
    /// As near to the limits wanted as it can. Throws colls::error.
    virtual std::unique_ptr<queue> open(const queue_limits& wanted) = 0;
};

}  // namespace colls::inline v1::detail::rdma
