// The messages of a rank, in the order in which kernels move them, as lists for launches.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/message_state.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// What a rank sends and receives in one group of calls.
class message_order {
public:
    /// The order of rank `rank` of n, whose kernels have this many channels. sends, receives: in the order of the
    /// calls.
    message_order(int rank, int n, int channels, std::vector<message> sends, std::vector<message> receives)
        : rank_(rank), n_(n), channels_(channels), sends_(std::move(sends)), receives_(std::move(receives)) {
        sort(sends_, true);
        sort(receives_, false);
    }

    int from_self() const { return of_self(sends_); }
    int to_self() const { return of_self(receives_); }

    /// Calls launch(list, blocks) for one launch after the other. is_far(r): rank r is on another host.
    ///
    /// A launch has all messages before some place in the order of (distance, number of the message between its two
    /// ranks), so that the first message of all that is not over is in a launch in flight on both of its ranks.
    template <class IsFar, class Launch>
    void for_each_launch(const IsFar& is_far, const Launch& launch) const {
        std::size_t s = 0, r = 0;
        while (s < sends_.size() || r < receives_.size()) {
            const std::size_t first_send = s, first_receive = r;
            for (;;) {
                const key send = key_of(sends_, s, true), receive = key_of(receives_, r, false),
                          least = std::min(send, receive);
                const std::size_t sends = send == least, receives = receive == least;
                if (least == none_left || s - first_send + sends > most_messages ||
                    r - first_receive + receives > most_messages)
                    break;
                s += sends;
                r += receives;
            }
            message_list list;
            std::uint64_t blocks = 0;
            int only = none;  // the distance of all of them
            bool is_only = true;
            const auto add = [&](const std::vector<message>& all, std::size_t i, std::size_t first, bool sends) {
                const message& m = all[i];
                list.of[list.sends + list.receives] = m;
                ++(sends ? list.sends : list.receives);
                list.far[sends ? 0 : 1] += is_far(m.peer) && (i == first || all[i - 1].peer != m.peer);
                list.hidden += sends && m.region == shared_address::hidden;
                blocks = std::max(blocks, channels_of_message(m.bytes, channels_));
                is_only = is_only && (only == none || only == distance(m, sends));
                only = distance(m, sends);
            };
            for (std::size_t i = first_send; i < s; ++i) add(sends_, i, first_send, true);
            for (std::size_t i = first_receive; i < r; ++i) add(receives_, i, first_receive, false);
            if (is_only) list.first_channel = only % channels_;
            launch(list, is_only ? static_cast<int>(blocks) : channels_);
        }
    }

private:
    using key = std::pair<int, std::size_t>;
    static constexpr key none_left{1 << 30, 0};

    int distance(const message& m, bool sends) const { return mod(sends ? m.peer - rank_ : rank_ - m.peer, n_); }
    void sort(std::vector<message>& all, bool sends) const {
        std::stable_sort(all.begin(), all.end(),
            [&](const message& a, const message& b) { return distance(a, sends) < distance(b, sends); });
    }
    int of_self(const std::vector<message>& all) const {
        return static_cast<int>(
            std::count_if(all.begin(), all.end(), [this](const message& m) { return m.peer == rank_; }));
    }
    key key_of(const std::vector<message>& all, std::size_t i, bool sends) const {
        if (i == all.size()) return none_left;
        std::size_t first = i;
        while (first > 0 && all[first - 1].peer == all[i].peer) --first;
        return {distance(all[i], sends), i - first};
    }

    const int rank_, n_, channels_;
    std::vector<message> sends_, receives_;
};

}  // namespace colls::inline v1::cuda::detail
