// Messages between hosts over the RDMA device of this process.
// IWYU pragma: private, include <colls/transports/verbs.hpp>
#pragma once

#include <colls/net/detail/forming/apart.hpp>
#include <colls/net/detail/node/hosts_group.hpp>
#include <colls/net/detail/node/trial.hpp>
#include <colls/verbs/detail/device.hpp>
#include <colls/verbs/detail/lanes.hpp>
#include <colls/verbs/detail/verbs_transport.hpp>

#include <unistd.h>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace colls::inline v1::verbs::detail {

using colls::detail::rdma::memory_registry;
using colls::detail::rdma::region;
using colls::detail::rdma::several_devices;
using colls::detail::rdma::verbs_device;

/// The RDMA devices of this process, one or several at once, and the memory that is registered with them.
struct process_device {
    explicit process_device(const colls::detail::address& own, const std::string& gpu = {}) {
        const auto first = std::make_shared<verbs_device>(own, gpu);
        std::vector<std::shared_ptr<colls::detail::rdma::device>> all{first};
        all.insert(all.end(), first->beside().begin(), first->beside().end());
        for (const auto& d : all)
            ports.push_back(d->name() + (":" + std::to_string(static_cast<const verbs_device&>(*d).port())));
        device = std::make_shared<several_devices>(std::move(all));
        registry = std::make_shared<memory_registry>(device);
    }
    std::vector<std::string> ports;
    std::shared_ptr<several_devices> device;
    std::shared_ptr<memory_registry> registry;
    const pid_t process = getpid();  ///< a forked child has the device's file, and must not touch it

    /// Opens the device at the first call, and keeps it open as long as a result is held. `own`: where other ranks
    /// reach this one over TCP, if that is known. `gpu`: the PCI address of the GPU whose data are to be moved, which
    /// may take another device. Any thread. Throws colls::error.
    static std::shared_ptr<process_device> get(const colls::detail::address& own = {}, const std::string& gpu = {}) {
        static std::mutex mutex;
        static std::weak_ptr<process_device> latest;
        static pid_t process = 0;
        const std::lock_guard lock(mutex);
        // A forked process cannot use its parent's device: it opens one of its own.
        std::shared_ptr<process_device> device = process == getpid() ? latest.lock() : nullptr;
        if (device && gpu.empty()) return device;
        if (!gpu.empty()) {
            auto nearest = std::make_shared<process_device>(own, gpu);
            return device && device->ports == nearest->ports ? device : nearest;
        }
        device = std::make_shared<process_device>(own);
        latest = device;
        process = getpid();
        return device;
    }
};

/// Messages between hosts over the device of this process.
class verbs_between_hosts final : public colls::detail::hosts::inter_node_transport {
public:
    verbs_between_hosts(const colls::detail::address& own, int)
        : device_(process_device::get(
              own, colls::detail::gpu_of_connections ? colls::detail::gpu_of_connections : std::string())) {}
    std::unique_ptr<colls::detail::message_transport> over(
        std::unique_ptr<colls::detail::message_transport> control, int rank, int size) override {
        return std::make_unique<colls::detail::verbs_transport>(std::move(control), device_->registry, rank, size);
    }
    std::string try_out(std::unique_ptr<colls::detail::message_transport> control, int rank, int size,
        const std::vector<int>& to, const std::vector<int>& from, double seconds) override {
        // Messages that go over all lanes.
        constexpr std::size_t bytes = colls::detail::rdma::most_lanes * colls::detail::verbs_shape{}.least_stripe;
        const std::size_t all = bytes * (from.size() + 1);
        std::byte* const memory = take(all);
        const std::string why =
            colls::detail::hosts::try_out(*over(std::move(control), rank, size), to, from, seconds, memory, bytes);
        give(memory, all);
        return why;
    }
    std::byte* take(std::size_t bytes) override { return device_->registry->take(bytes); }
    void give(std::byte* at, std::size_t bytes) noexcept override { device_->registry->give(at, bytes); }

private:
    const std::shared_ptr<process_device> device_;
};

/// Lets COLLS_TRANSPORT name verbs in a program that includes this header.
inline const bool installed = [] {
    colls::detail::hosts::open_verbs = &colls::detail::hosts::open_as<verbs_between_hosts>;
    return true;
}();

}  // namespace colls::inline v1::verbs::detail
