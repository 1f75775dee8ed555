// Blocks that several groups keep on one device at the same time.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// A kernel of a group whose ranks are on several devices waits for kernels there. If the kernels of two groups do not
// fit a device together, it runs one after the other; another device may run them in the other order, and both wait for
// ever. So launches on several streams are refused where they do not fit together. Calls on one stream follow each
// other and are counted once. Not seen are other kernels, replays of graphs, and other processes.
//
// CUDA promises no more than that the work of one stream is in order: streams share hardware queues, in which work that
// cannot begin yet holds up what is behind it. With CUDA_DEVICE_MAX_CONNECTIONS=1, which some frameworks set, all
// streams of a device share one. Then calls of two groups on two streams are refused; else a program that makes the
// calls of its groups in one order on all devices is safe, and others rely on there being queues enough (8, if it does
// not say).
#pragma once

#include <colls/cuda/detail/runtime.hpp>
#include <colls/detail/support/environment.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// The groups of this process on one device, and their launches in flight. Can be used by several threads.
class device_residency {
public:
    /// The residency of that device, for the whole process.
    static device_residency& of(int device) {
        static std::mutex mutex;
        static std::vector<std::pair<int, std::unique_ptr<device_residency>>> all;
        const std::lock_guard lock(mutex);
        for (const auto& [known, r] : all)
            if (known == device) return *r;
        return *all.emplace_back(device, std::make_unique<device_residency>()).second;
    }

    /// Adds a group whose largest launch takes this share of the device's blocks; a negative one: it is gone.
    void add_group(double share) {
        const std::lock_guard lock(mutex_);
        groups_ += share;
        number_ += share < 0 ? -1 : 1;
    }
    enum class answer { fits, too_large, one_queue };
    /// Will a launch of that share on `stream` fit the device together with those in flight on other streams? All fit
    /// if all groups do: then nothing is looked up. Always so while the stream is captured. `is_next`: it is made now,
    /// and where it fits counts as in flight from here on, so that no launch of another thread finds the same room.
    answer fits(cudaStream_t stream, double share, const void* group, bool is_next = true) {
        const std::lock_guard lock(mutex_);
        if (!is_crowded() || is_captured(stream)) return answer::fits;
        unsigned long long number = 0;  // a handle may stand for a stream of each thread, or be used again
        check(cudaStreamGetId(stream, &number), "cudaStreamGetId");
        {
            // Another thread may be capturing: a query would otherwise be refused, and spoil that capture.
            const relaxed_capture relaxed;
            std::erase_if(
                launches_, [](const launch& l) { return l.is_made && cudaEventQuery(l.over.get()) == cudaSuccess; });
        }
        cudaGetLastError();  // clears cudaErrorNotReady
        if (has_one_queue_ && std::any_of(launches_.begin(), launches_.end(),
                                  [&](const launch& l) { return l.stream != number && l.group != group; }))
            return answer::one_queue;
        double all = share;
        for (std::size_t i = 0; i < launches_.size(); ++i) {
            const unsigned long long s = launches_[i].stream;
            const auto of_stream = [s](const launch& l) { return l.stream == s; };
            const auto end = launches_.begin() + static_cast<std::ptrdiff_t>(i);
            if (s == number || std::any_of(launches_.begin(), end, of_stream)) continue;
            double most = 0;
            for (const launch& l : launches_) most = of_stream(l) ? std::max(most, l.share) : most;
            all += most;
        }
        if (all > whole) return answer::too_large;
        if (is_next) launches_.push_back({number, group, share, event()});
        return answer::fits;
    }
    /// After the launch, also where it failed.
    void launched(cudaStream_t stream, const void* group) {
        const std::lock_guard lock(mutex_);
        for (launch& l : launches_) {
            if (l.group != group || l.is_made) continue;
            l.is_made = true;
            check(cudaEventRecord(l.over.get(), stream), "cudaEventRecord");
        }
    }

private:
    static constexpr double whole = 1 + 1e-9;

    class event {
    public:
        event() { check(cudaEventCreateWithFlags(&at_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
        event(event&& other) noexcept : at_(std::exchange(other.at_, nullptr)) {}
        event& operator=(event&& other) noexcept {
            std::swap(at_, other.at_);
            return *this;
        }
        ~event() {
            if (at_ != nullptr) cudaEventDestroy(at_);
        }
        cudaEvent_t get() const { return at_; }

    private:
        cudaEvent_t at_ = nullptr;
    };
    struct launch {
        unsigned long long stream;
        const void* group;
        double share;
        event over;
        bool is_made = false;
    };

    bool is_crowded() const { return groups_ > whole || (has_one_queue_ && number_ > 1); }
    static bool is_one(const char* text) { return text != nullptr && std::strcmp(text, "1") == 0; }

    std::mutex mutex_;
    const bool has_one_queue_ = is_one(v1::detail::variable("CUDA_DEVICE_MAX_CONNECTIONS"));
    double groups_ = 0;
    int number_ = 0;
    std::vector<launch> launches_;
};

/// A group's entry in the residency of its device, while it lives.
class resident_group {
public:
    resident_group() = default;
    resident_group(int device, double share) : residency_(&device_residency::of(device)), share_(share) {
        residency_->add_group(share_);
    }
    resident_group(resident_group&& other) noexcept { *this = std::move(other); }
    resident_group& operator=(resident_group&& other) noexcept {
        std::swap(residency_, other.residency_);
        std::swap(share_, other.share_);
        return *this;
    }
    ~resident_group() {
        if (residency_ != nullptr) residency_->add_group(-share_);
    }
    /// Null: the group's launches need no other device's.
    device_residency* get() const { return residency_; }

private:
    device_residency* residency_ = nullptr;
    double share_ = 0;
};

}  // namespace colls::inline v1::cuda::detail
