// Messages between hosts over libfabric's provider of this process.
// IWYU pragma: private, include <colls/transports/ofi.hpp>
#pragma once

#include <colls/net/detail/forming/apart.hpp>
#include <colls/net/detail/node/hosts_group.hpp>
#include <colls/net/detail/node/trial.hpp>
#include <colls/ofi/detail/ofi_transport.hpp>

#include <unistd.h>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace colls::inline v1::ofi::detail {

using colls::detail::address, colls::detail::message_transport, colls::detail::ofi::domain_choice,
    colls::detail::ofi::provider;

class ofi_between_hosts final : public colls::detail::hosts::inter_node_transport {
public:
    ofi_between_hosts(const address& own, int place)
        : provider_(of_process({.own = own,
              .place = place,
              .gpu = colls::detail::gpu_of_connections ? colls::detail::gpu_of_connections : ""})) {}
    std::unique_ptr<message_transport> over(std::unique_ptr<message_transport> control, int rank, int size) override {
        return std::make_unique<colls::detail::ofi_transport>(std::move(control), provider_, rank, size);
    }
    std::string try_out(std::unique_ptr<message_transport> control, int rank, int size, const std::vector<int>& to,
        const std::vector<int>& from, double seconds) override {
        return colls::detail::hosts::try_out(*over(std::move(control), rank, size), to, from, seconds);
    }
    // Providers that want memory to be registered keep what was, so all memory is alike.
    std::byte* take(std::size_t bytes) override {
        return static_cast<std::byte*>(operator new(bytes, std::align_val_t{128}));
    }
    void give(std::byte* at, std::size_t) noexcept override { operator delete(at, std::align_val_t{128}); }

    /// The domain is opened by the first group, and kept as long as one is there; a GPU's group may have another one.
    /// Any thread.
    static std::shared_ptr<provider> of_process(const domain_choice& choice) {
        static std::mutex mutex;
        static std::weak_ptr<provider> latest;
        static pid_t process = 0;
        const std::lock_guard lock(mutex);
        // A forked process cannot use its parent's: it opens one of its own.
        std::shared_ptr<provider> p = process == getpid() ? latest.lock() : nullptr;
        if (p && choice.gpu.empty()) return p;
        auto chosen = std::make_shared<provider>(choice);
        if (p) return p->is_as(*chosen) ? p : chosen;
        latest = chosen;
        process = getpid();
        return chosen;
    }

private:
    const std::shared_ptr<provider> provider_;
};

/// Lets COLLS_TRANSPORT name ofi in a program that includes this header.
inline const bool installed = [] {
    colls::detail::hosts::open_ofi = &colls::detail::hosts::open_as<ofi_between_hosts>;
    return true;
}();

}  // namespace colls::inline v1::ofi::detail
