// What a rank of a group on several hosts has besides: memory that its kernels share with the proxy, the proxy, and the
// connections of the proxy.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/communicator.hpp>
#include <colls/cuda/detail/driver.hpp>
#include <colls/cuda/detail/far/proxy.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/extend/message_member.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda::detail {

class far_group {
public:
    /// places: see far_memory.
    far_group(int device, std::vector<std::uint8_t> places, const far_layout& layout)
        : device_(device),
          pinned_(layout.bytes()),
          places_(std::move(places)),
          on_device_(device, places_.size(), places_.data()) {
        memory_ = {pinned_.data(), layout, places_.data()};
    }
    far_group(const far_group&) = delete;
    far_group& operator=(const far_group&) = delete;
    ~far_group() {
        proxy_.reset();
        transports_.clear();
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
        extend::message_group& g = *network_.context().backend->by_messages();
        for (int i = 0; i < memory_.layout.groups(); ++i) places[i] = g.create(network_.size());
    }
    /// Joins those groups. Collective.
    void connect(const std::uint64_t* places) {
        v1::detail::rank_context& context = network_.context();
        for (int i = 0; i < memory_.layout.groups(); ++i) {
            extend::message_member m;
            context.backend->join_transports(context, places[i], m);
            groups_.push_back(m.group);
            transports_.push_back(std::move(m.collectives));
            transports_.push_back(std::move(m.messages));
        }
        for (const auto& t : transports_)
            t->linger = std::min(context.env.timeout, v1::detail::environment::most_linger);
        offloads_ = transports_.front()->offloads();
        transports_.resize(static_cast<std::size_t>(memory_.layout.channels));
    }
    /// Once connected: makes windows in memory of the GPU that network cards read and write. Throws colls::error
    /// (unsupported) where something does not allow that.
    void make_gpu_windows() {
        const device_guard there(device_);
        const auto attribute = [&](cudaDeviceAttr what) {
            int value = 0;
            check(cudaDeviceGetAttribute(&value, what, device_), "cudaDeviceGetAttribute");
            return value;
        };
        flushes_ = attribute(cudaDevAttrGPUDirectRDMAWritesOrdering) < cudaGPUDirectRDMAWritesOrderingOwner;
        if (attribute(cudaDevAttrGPUDirectRDMASupported) == 0 ||
            (flushes_ &&
                !(attribute(cudaDevAttrGPUDirectRDMAFlushWritesOptions) & cudaFlushGPUDirectRDMAWritesOptionHost)))
            throw error(errc::unsupported,
                (error_text() << "device " << device_ << " does not support GPUDirect RDMA, or cannot flush its writes")
                    .text());
        // Whole pages of any processor, which a dma-buf consists of, at one of them: cudaMalloc cuts no blocks of 2
        // MiB.
        constexpr std::uint64_t block = 2 << 20;
        gpu_windows_ = device_memory(device_, (memory_.layout.bytes() + block - 1) / block * block);
        const v1::detail::descriptor file = dmabuf_of(gpu_windows_.data(), gpu_windows_.size());
        for (std::size_t c = 0; c < transports_.size(); ++c) {
            const std::uint64_t from = memory_.offset_of_channel(static_cast<int>(c));
            const std::string why = transports_[c]->add_gpu_memory(
                gpu_windows_.data() + from, memory_.layout.channel_bytes(), file.get(), from);
            if (!why.empty()) throw error(errc::unsupported, why.c_str());
        }
    }
    /// Starts the proxy: see there. `in_gpu`: the windows are those of make_gpu_windows, on all ranks.
    void start(
        bool in_gpu, std::function<void(const proxy::notice&)> found, std::function<bool(proxy::notice&)> own_failure) {
        std::function<void()> flush;
        if (in_gpu) memory_.put_into_gpu(gpu_windows_.data());
        if (in_gpu && flushes_)
            flush = [device = device_] {
                check(cudaSetDevice(device), "cudaSetDevice");  // of the proxy's thread
                const relaxed_capture beside_other_threads;
                check(cudaDeviceFlushGPUDirectRDMAWrites(
                          cudaFlushGPUDirectRDMAWritesTargetCurrentDevice, cudaFlushGPUDirectRDMAWritesToOwner),
                    "cudaDeviceFlushGPUDirectRDMAWrites");
            };
        proxy_ = std::make_unique<proxy>(
            memory_, std::move(transports_), std::move(found), std::move(own_failure), proxy_naps{}, std::move(flush));
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
    const int device_;
    pinned_memory pinned_;
    device_memory gpu_windows_;
    const std::vector<std::uint8_t> places_;
    const device_memory on_device_;  // places_
    far_memory memory_;
    communicator network_;
    std::vector<std::shared_ptr<extend::message_group>> groups_;
    std::vector<std::unique_ptr<extend::message_transport>> transports_;  // until the proxy has them
    std::unique_ptr<proxy> proxy_;
    bool offloads_ = false, flushes_ = false;
};

}  // namespace colls::inline v1::cuda::detail
