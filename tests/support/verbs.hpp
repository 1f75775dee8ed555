// Groups of threads whose messages are RDMA writes on a simulated device within this process.
#pragma once

#include "message_transports.hpp"

#include <colls/detail/run/threads.hpp>
#include <colls/net/detail/forming/processes.hpp>
#include <colls/transports/threads.hpp>
#include <colls/verbs/detail/verbs_transport.hpp>
#include "support/verbs_dry_run.hpp"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace support {

/// Messages between hosts on a device of a dry network.
class dry_device final : public colls::detail::hosts::inter_node_transport {
public:
    dry_device(const std::shared_ptr<colls::testing::dry_network>& net, int rank, const verbs_shape& shape)
        : registry_(std::make_shared<rdma::memory_registry>(net->device(rank))), shape_(shape) {}
    std::unique_ptr<message_transport> over(std::unique_ptr<message_transport> control, int rank, int size) override {
        auto transport = std::make_unique<verbs_transport>(std::move(control), registry_, rank, size, shape_);
        transports_.push_back(transport.get());
        return transport;
    }
    std::string try_out(std::unique_ptr<message_transport>, int, int, const std::vector<int>&, const std::vector<int>&,
        double) override {
        return {};
    }
    std::byte* take(std::size_t bytes) override { return registry_->take(bytes); }
    void give(std::byte* at, std::size_t bytes) noexcept override { registry_->give(at, bytes); }
    rdma::memory_registry& registry() { return *registry_; }
    /// Bytes that the transports on this device have copied. To be called while all of them exist.
    rdma::copied_bytes copied() const {
        rdma::copied_bytes all;
        for (const verbs_transport* w : transports_) {
            all.out += w->copied().out;
            all.in += w->copied().in;
        }
        return all;
    }

private:
    const std::shared_ptr<rdma::memory_registry> registry_;
    const verbs_shape shape_;
    std::vector<verbs_transport*> transports_;
};

/// Calls f(communicator, device) on n threads, as if they were on hosts of `per_host` ranks each; 0: no ranks share
/// memory. Throws what one of them throws.
inline void run_over_verbs(const std::shared_ptr<colls::testing::dry_network>& net, int n,
    const std::function<void(colls::communicator&, dry_device&)>& f, const verbs_shape& shape = {}, int per_host = 0) {
    using colls::processes::detail::arena;
    meeting_place place(n);
    std::vector<colls::detail::hosts::site> sites;
    for (int r = 0; r < n; ++r)
        sites.push_back(
            {place.members[static_cast<std::size_t>(r)], static_cast<std::uint64_t>(per_host > 0 ? r / per_host : r)});
    std::vector<std::shared_ptr<arena>> memory(static_cast<std::size_t>(n));
    for (int r = 0; per_host > 0 && r < n; ++r) {
        const int first = r / per_host * per_host, here = std::min(per_host, n - first);
        auto& own = memory[static_cast<std::size_t>(r)];
        own = r == first ? std::make_shared<arena>(here)
                         : std::make_shared<arena>(
                               here, colls::detail::descriptor(dup(memory[static_cast<std::size_t>(first)]->file())));
        own->become_rank(r - first);
    }
    colls::threads::detail::outcome how;
    std::vector<std::shared_ptr<dry_device>> devices;  // they end together, as processes do
    for (int r = 0; r < n; ++r) devices.push_back(std::make_shared<dry_device>(net, r, shape));
    std::vector<std::thread> ranks;
    for (int r = 0; r < n; ++r)
        ranks.emplace_back([&, r] {
            const auto& device = devices[static_cast<std::size_t>(r)];
            auto own = sites;
            const auto& near = memory[static_cast<std::size_t>(r)];
            if (near) near->assemble(patience_s);
            colls::communicator comm = colls::detail::hosts::group_of_all(place.take(r), std::move(own), 4, r,
                n > cores() ? cores() : colls::detail::cores_together::plenty, near, device);
            try {
                f(comm, *device);
            } catch (...) {
                colls::threads::detail::report_exception(comm, how);
            }
        });
    for (std::thread& t : ranks) t.join();
    how.rethrow();
}

}  // namespace support
