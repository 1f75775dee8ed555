// class own_endpoint: where the processes of a later group reach this one.
#pragma once

#include <colls/elastic.hpp>

#include <chrono>
#include <functional>
#include <mutex>
#include <span>
#include <string>

namespace colls_torch {

class own_endpoint {
public:
    const std::string& handle() const { return handle_; }
    /// As colls::join. Any thread may call it: one at a time joins.
    colls::communicator join(const std::string& uuid, std::span<const std::string> handles,
        std::chrono::steady_clock::time_point until, std::function<void()> accepted = {}) {
        const std::lock_guard lock(mutex_);
        const std::chrono::duration<double> left = until - std::chrono::steady_clock::now();
        return colls::join(
            endpoint_, uuid, handles, {.timeout = std::max(left.count(), 0.001), .accepted = std::move(accepted)});
    }

private:
    colls::endpoint endpoint_ = colls::endpoint::open();
    const std::string handle_ = endpoint_.handle();
    std::mutex mutex_;
};

}  // namespace colls_torch
