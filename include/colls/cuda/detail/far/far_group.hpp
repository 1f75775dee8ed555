// What a rank of a group on several hosts has besides: memory that its kernels share with the proxy, the proxy, and the
// connections of the proxy.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/communicator.hpp>
#include <colls/cuda/detail/far/proxy.hpp>
#include <colls/cuda/detail/runtime.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/extend/message_member.hpp>
#include <colls/messages/detail/group_to_form.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda::detail {

class far_group {
public:
    /// places: see far_memory.
    far_group(int device, std::vector<std::uint8_t> places, const far_layout& layout)
        : pinned_(layout.bytes()), places_(std::move(places)), on_device_(device, places_.size(), places_.data()) {
        memory_ = {pinned_.data(), layout, places_.data()};
    }
    far_group(const far_group&) = delete;
    far_group& operator=(const far_group&) = delete;
    ~far_group() {
        proxy_.reset();
        for (const auto& g : groups_) g->close();
    }

    const far_memory& memory() const { return memory_; }
    far_memory memory_for_kernels() const {
        far_memory m = memory_;
        m.places = reinterpret_cast<const std::uint8_t*>(on_device_.data());
        return m;
    }

    /// `network`: a group of all ranks, which no other thread uses.
    void set_network(communicator&& network) { network_ = std::move(network); }
    /// Makes places for the groups of the channels: on rank 0, which tells the others.
    void make_places(std::uint64_t* places) {
        for (int i = 0; i < memory_.layout.groups(); ++i) places[i] = by_messages().create(network_.size());
    }
    /// Joins those groups, and starts the proxy: see there. Collective.
    void connect(const std::uint64_t* places, std::function<void(const proxy::notice&)> found,
        std::function<bool(proxy::notice&)> own_failure) {
        std::vector<int> members;
        for (int r = 0; r < network_.size(); ++r) members.push_back(r);
        v1::detail::rank_context& context = network_.context();
        std::vector<std::unique_ptr<extend::message_transport>> transports;
        for (int i = 0; i < memory_.layout.groups(); ++i) {
            const v1::detail::group_to_form f({places[i], network_.rank(), members, context.crowded}, &context);
            extend::message_member m = by_messages().join(f);
            groups_.push_back(m.group);
            transports.push_back(std::move(m.collectives));
            transports.push_back(std::move(m.messages));
        }
        for (const auto& t : transports)
            t->linger = std::min(context.env.timeout, v1::detail::environment::most_linger);
        offloads_ = transports.front()->offloads();
        transports.resize(static_cast<std::size_t>(memory_.layout.channels));
        proxy_ = std::make_unique<proxy>(memory_, std::move(transports), std::move(found), std::move(own_failure));
    }
    /// Once connected: a device moves the data.
    bool offloads() const { return offloads_; }
    /// See proxy::wake.
    void wake(bool captured) noexcept {
        if (proxy_) proxy_->wake(captured);
    }
    /// See proxy::refuse.
    void refuse(const proxy::notice& n) {
        if (proxy_) proxy_->refuse(n);
    }

private:
    extend::message_group& by_messages() {
        extend::message_group* const g = network_.context().backend->by_messages();
        if (g == nullptr)
            throw error(errc::unsupported,
                "the ranks are on several hosts for CUDA, and share memory all the same: set COLLS_HOST alike for all "
                "ranks of a host");
        return *g;
    }

    pinned_memory pinned_;
    const std::vector<std::uint8_t> places_;
    const device_memory on_device_;  // places_
    far_memory memory_;
    communicator network_;
    std::vector<std::shared_ptr<extend::message_group>> groups_;
    std::unique_ptr<proxy> proxy_;
    bool offloads_ = false;
};

}  // namespace colls::inline v1::cuda::detail
