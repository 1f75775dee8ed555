// The messages of a rank, in the order in which kernels move them, as a list for a launch.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/kernel/message_state.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// What a rank sends and receives in one group of calls, which is one launch.
class message_order {
public:
    /// Rank `rank` of n, whose kernels have this many channels. sends, receives: in the order of the calls.
    /// is_far(r): rank r is on another host.
    template <class IsFar>
    message_order(
        int rank, int n, int channels, std::vector<message> sends, std::vector<message> receives, const IsFar& is_far)
        : rank_(rank), n_(n), all_(std::move(sends)) {
        list_.sends = static_cast<std::int32_t>(all_.size());
        list_.receives = static_cast<std::int32_t>(receives.size());
        all_.insert(all_.end(), receives.begin(), receives.end());
        const auto middle = all_.begin() + list_.sends;
        sort(all_.begin(), middle, true);
        sort(middle, all_.end(), false);
        std::uint64_t blocks = 0;
        int only = none;  // the distance of all of them
        bool is_only = true, is_counted = false;
        for (int i = 0; i < list_.messages(); ++i) {
            message& m = all_[static_cast<std::size_t>(i)];
            const bool sends_it = i < list_.sends;
            if (i == 0 || i == list_.sends || all_[static_cast<std::size_t>(i) - 1].peer != m.peer) {
                ++list_.lanes;
                list_.far[sends_it ? 0 : 1] += is_far(m.peer);
                is_counted = false;
            }
            m.lane = static_cast<std::uint16_t>(list_.lanes - 1);
            if (sends_it && !is_counted && m.region == shared_address::hidden) {
                ++list_.hidden;
                is_counted = true;
            }
            blocks = std::max(blocks, channels_of_message(m.bytes, channels));
            is_only = is_only && (only == none || only == distance(m, sends_it));
            only = distance(m, sends_it);
        }
        if (is_only && only != none) list_.first_channel = only % channels;
        blocks_ = is_only ? static_cast<int>(blocks) : channels;
    }

    int from_self() const { return of_self(all_.begin(), all_.begin() + list_.sends); }
    int to_self() const { return of_self(all_.begin() + list_.sends, all_.end()); }
    /// The list, without the messages.
    const message_list& list() const { return list_; }

    /// Calls launch(list, blocks) for each launch, in order: those that store the list, where it is not short, and that
    /// which moves the messages. Not at all where there are none.
    template <class Launch>
    void for_each_launch(const Launch& launch) const {
        message_list list = list_;
        const auto take = [&](int first, int count) { std::copy_n(all_.begin() + first, count, list.of); };
        if (list.is_short()) {
            take(0, list.messages());
        } else {
            for (int first = 0; first < list.messages(); first += most_messages) {
                list.stored = std::min(most_messages, list.messages() - first);
                list.stored_first = first;
                take(first, list.stored);
                launch(list, 1);
            }
            list.stored = 0;
        }
        if (list.messages() > 0) launch(list, blocks_);
    }

private:
    using iterator = std::vector<message>::iterator;
    int distance(const message& m, bool sends) const { return mod(sends ? m.peer - rank_ : rank_ - m.peer, n_); }
    void sort(iterator first, iterator last, bool sends) const {
        std::stable_sort(
            first, last, [&](const message& a, const message& b) { return distance(a, sends) < distance(b, sends); });
    }
    template <class It>
    int of_self(It first, It last) const {
        return static_cast<int>(std::count_if(first, last, [this](const message& m) { return m.peer == rank_; }));
    }

    const int rank_, n_;
    std::vector<message> all_;
    message_list list_;
    int blocks_ = 0;
};

}  // namespace colls::inline v1::cuda::detail
