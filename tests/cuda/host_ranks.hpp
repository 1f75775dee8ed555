// Ranks whose kernels run on host threads: a group of ranks, each of several blocks of several threads.
#pragma once

#include <colls/cuda/detail/far/proxy.hpp>
#include <colls/cuda/detail/kernel/eager_executor.hpp>
#include <colls/cuda/detail/kernel/host_thread_group.hpp>
#include <colls/cuda/detail/kernel/message_executor.hpp>
#include <colls/cuda/detail/kernel/schedule_executor.hpp>
#include <colls/cuda/detail/kernel/stored_steps.hpp>
#include <colls/cuda/detail/launch/message_order.hpp>

#include "support/late_transport.hpp"

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace host_kernels {

using colls::collective;
namespace kernel = colls::cuda::detail;

inline std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// Memory of a rank's workspace, aligned to 128 bytes, all zero.
class workspace {
public:
    explicit workspace(std::size_t bytes)
        : bytes_(bytes), at_(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{128}))) {
        std::memset(at_, 0, bytes);
    }
    workspace(workspace&& other) noexcept : bytes_(other.bytes_), at_(other.at_) { other.at_ = nullptr; }
    workspace(const workspace&) = delete;
    ~workspace() {
        if (at_ != nullptr) ::operator delete(at_, std::align_val_t{128});
    }
    std::byte* data() { return at_; }
    std::size_t size() const { return bytes_; }

private:
    std::size_t bytes_;
    std::byte* at_;
};

/// The transports of one rank of a group on several hosts, one for each channel.
using make_transports = std::function<std::vector<std::unique_ptr<colls::extend::message_transport>>(int rank)>;

/// n ranks, each with `channels` blocks of `threads` host threads.
class host_ranks {
public:
    host_ranks(
        int n, int channels, int threads, std::size_t eager_bytes, std::size_t scratch_bytes, double seconds = 300)
        : n_(n), channels_(channels), threads_(threads), regions_(index(n)), reports_(index(n)) {
        sizes_.ranks = n;
        sizes_.channels = channels;
        sizes_.eager_bytes = eager_bytes;
        sizes_.scratch_bytes = scratch_bytes;
        for (int r = 0; r < n; ++r) barriers_.push_back(std::make_unique<std::barrier<>>(channels * threads));
        for (int r = 0; r < n; ++r) workspaces_.emplace_back(static_cast<std::size_t>(sizes_.bytes()));
        for (auto& s : workspaces_) addresses_.push_back(s.data());
        for (int r = 0; r < n; ++r)
            handles_.push_back({.rank = r,
                .sizes = sizes_,
                .workspaces = addresses_.data(),
                .regions = regions_.data(),
                .region_count = 1,
                .status = &reports_[index(r)],
                .timeout_ns = static_cast<std::uint64_t>(seconds * 1e9),
                .far = {}});
    }
    /// Puts rank r on host hosts[r]: ranks of different hosts reach each other by their proxies alone. `in_gpu`: their
    /// windows are in memory of a GPU, where what arrives is seen after a flush.
    void spread(const std::vector<int>& hosts, std::uint64_t window_bytes, const make_transports& make,
        const kernel::proxy_naps& naps = {}, bool in_gpu = false) {
        const kernel::far_layout layout{n_, channels_, window_bytes, 1024};
        for (int r = 0; r < n_; ++r) {
            far_.emplace_back(static_cast<std::size_t>(layout.bytes()));
            kernel::far_memory& far = handles_[index(r)].far;
            places_of_.emplace_back(index(n_), kernel::far_memory::elsewhere);
            far = {far_.back().data(), layout, places_of_.back().data()};
            if (in_gpu) {
                far_.emplace_back(static_cast<std::size_t>(layout.bytes()));
                far.put_into_gpu(far_.back().data());
            }
            std::uint8_t here = 0;
            addresses_of_.push_back(addresses_);
            for (int q = 0; q < n_; ++q)
                if (hosts[index(q)] == hosts[index(r)])
                    places_of_.back()[index(q)] = here++;
                else
                    addresses_of_.back()[index(q)] = far.shadow(q);
            handles_[index(r)].workspaces = addresses_of_.back().data();
        }
        for (int r = 0; r < n_; ++r) {
            auto transports = make(r);
            for (std::size_t c = 0; c < transports.size() && in_gpu; ++c) {
                auto t = std::make_unique<support::late_transport>(std::move(transports[c]));
                const auto from = handles_[index(r)].far.offset_of_channel(static_cast<int>(c));
                t->add_gpu_memory(
                    far_[index(2 * r + 1)].data() + from, static_cast<std::size_t>(layout.channel_bytes()), -1, 0);
                transports[c] = std::move(t);
            }
            std::function<void()> flush;
            if (in_gpu) flush = &support::late_transport::flush_gpu;
            proxies_.push_back(std::make_unique<kernel::proxy>(
                handles_[index(r)].far, std::move(transports),
                [this, r](const kernel::proxy::notice& n) { order(r, n.why, n.peer); },
                [this, r](kernel::proxy::notice& n) {
                    const kernel::failure_report& report = reports_[index(r)];
                    const auto why =
                        std::atomic_ref<std::uint64_t>(reports_[index(r)].what).load(std::memory_order_acquire);
                    if (why == 0) return false;
                    n = {static_cast<kernel::failure>(why), report.peer, ""};
                    return true;
                },
                naps, flush));
        }
    }
    /// Tells the proxies of a launch.
    void wake(bool captured) {
        for (const auto& p : proxies_) p->wake(captured);
    }
    /// Ends the proxies.
    void part() { proxies_.clear(); }
    int size() const { return n_; }
    int channels() const { return channels_; }
    const kernel::workspace_layout& sizes() const { return sizes_; }
    const kernel::failure_report& report(int r) const { return reports_[index(r)]; }
    /// Orders the kernels of rank r to give up, as its host does.
    void order(int r, kernel::failure why, int peer) {
        std::atomic_ref<std::uint32_t>(reports_[index(r)].order)
            .store(kernel::poison_word(why, peer), std::memory_order_relaxed);
    }
    /// Says that rank r has refused its call; 0: that it has made it.
    void refuse(int r, std::uint32_t word) {
        std::atomic_ref<std::uint32_t>(*kernel::refusal_of(handles_[index(r)], r))
            .store(word, std::memory_order_relaxed);
    }
    const kernel::rank_handle& handle(int r) const { return handles_[index(r)]; }

    /// Runs kernel(group, handle, channel) on every thread of every block of every rank; returns whether all returned
    /// true. Group: the thread group of one thread, made from its block and its index.
    template <class Group = kernel::host_thread_group, class Kernel>
    bool run(const Kernel& kernel_of_thread) {
        std::vector<std::unique_ptr<kernel::host_block>> all;
        for (int i = 0; i < n_ * channels_; ++i) all.push_back(std::make_unique<kernel::host_block>(threads_));
        std::atomic<int> failed{0};
        std::vector<std::thread> threads;
        for (int r = 0; r < n_; ++r)
            for (int b = 0; b < channels_; ++b)
                for (int t = 0; t < threads_; ++t)
                    threads.emplace_back([&, r, b, t] {
                        Group g(*all[index(r * channels_ + b)], t);
                        if (!kernel_of_thread(g, handles_[index(r)], b)) ++failed;
                    });
        for (auto& t : threads) t.join();
        return failed == 0;
    }

    /// Makes the launches of a list of messages, as `run_messages` does for each, by all threads of rank `r`'s blocks.
    template <class Group>
    bool run_messages(Group& g, int r, int channel, const std::vector<kernel::message_list>& launches) {
        bool well = true;
        for (const kernel::message_list& l : launches) {
            kernel::load_call(g, handles_[index(r)], {});
            if (l.stored == 0 || channel == 0) well = well && kernel::run_messages(g, channel, l);
            // The launch is over before the next one begins.
            if (l.stored != 0) barriers_[index(r)]->arrive_and_wait();
        }
        return well;
    }

private:
    const int n_, channels_, threads_;
    std::vector<std::unique_ptr<std::barrier<>>> barriers_;  // of all threads of a rank
    kernel::workspace_layout sizes_;
    std::vector<workspace> workspaces_;
    std::vector<std::byte*> addresses_;
    std::vector<std::uint64_t> regions_;
    std::vector<kernel::failure_report> reports_;
    std::vector<kernel::rank_handle> handles_;
    std::deque<workspace> far_;
    std::deque<std::vector<std::uint8_t>> places_of_;
    std::deque<std::vector<std::byte*>> addresses_of_;  // of workspaces, as a rank reaches them
    std::vector<std::unique_ptr<kernel::proxy>> proxies_;
};

/// A buffer between guard bytes, which begins `offset` bytes after a multiple of 16.
template <class T>
class buffer {
public:
    buffer(std::size_t count, std::size_t offset)
        : count_(count), offset_(offset), all_(count * sizeof(T) + 2 * guard + 32, std::byte{0x5a}) {}
    T* data() { return reinterpret_cast<T*>(base() + offset_); }
    std::size_t size() const { return count_; }
    /// Are the guard bytes as they were?
    bool intact() {
        const std::byte* const from = reinterpret_cast<const std::byte*>(data());
        const std::byte* const to = from + count_ * sizeof(T);
        for (const std::byte* b = all_.data(); b < all_.data() + all_.size(); ++b)
            if ((b < from || b >= to) && *b != std::byte{0x5a}) return false;
        return true;
    }

private:
    static constexpr std::size_t guard = 64;
    std::byte* base() {
        const auto at = reinterpret_cast<std::uintptr_t>(all_.data() + guard);
        return all_.data() + guard + (16 - at % 16) % 16;
    }
    std::size_t count_, offset_;
    std::vector<std::byte> all_;
};

}  // namespace host_kernels
