// From the messages of a call, or of a group of calls, to launches of message_kernel.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/launch.hpp>

#include <algorithm>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// Messages of one rank of a group that are launched together: all that it sends, and all that it receives.
class message_launcher {
public:
    message_launcher(local_ranks& ranks, call_name what, std::vector<message> sends, std::vector<message> receives)
        : ranks_(ranks), what_(what), sends_(std::move(sends)), receives_(std::move(receives)) {}

    /// Throws invalid_argument, unsupported, and what a launch throws.
    void launch(cudaStream_t stream) {
        sort(sends_, true);
        sort(receives_, false);
        const auto of_self = [this](const std::vector<message>& all) {
            return std::count_if(all.begin(), all.end(), [this](const message& m) { return m.peer == rank_; });
        };
        if (of_self(sends_) != of_self(receives_)) {
            error_text why;
            why << "it has " << static_cast<std::size_t>(of_self(sends_)) << " messages to itself, and receives "
                << static_cast<std::size_t>(of_self(receives_))
                << " from itself: make both in one exchange, or in one group of calls";
            refuse(what_, rank_, why.text());
        }
        // A launch has all messages before some place in the order of (distance, number of the message between its two
        // ranks), so that the first message that is not over is in a launch in flight on both of its ranks.
        std::size_t s = 0, r = 0;
        while (s < sends_.size() || r < receives_.size()) {
            const std::size_t first_send = s, first_receive = r;
            for (;;) {
                const key send = key_of(sends_, s, true), receive = key_of(receives_, r, false),
                          least = std::min(send, receive);
                const bool sends = send == least, receives = receive == least;
                if (least == none_left || s - first_send + sends > most_messages ||
                    r - first_receive + receives > most_messages)
                    break;
                s += sends;
                r += receives;
            }
            launch_some(first_send, s, first_receive, r, stream);
        }
    }

private:
    using key = std::pair<int, std::size_t>;
    static constexpr key none_left{1 << 30, 0};

    int distance(const message& m, bool sends) const {
        return mod(sends ? m.peer - rank_ : rank_ - m.peer, ranks_.size());
    }
    void sort(std::vector<message>& all, bool sends) const {
        std::stable_sort(all.begin(), all.end(),
            [&](const message& a, const message& b) { return distance(a, sends) < distance(b, sends); });
    }
    key key_of(const std::vector<message>& all, std::size_t i, bool sends) const {
        if (i == all.size()) return none_left;
        std::size_t first = i;
        while (first > 0 && all[first - 1].peer == all[i].peer) --first;
        return {distance(all[i], sends), i - first};
    }
    bool is_far(const message& m) const { return ranks_.far() != nullptr && ranks_.far()->memory().is_far(m.peer); }

    /// Launches those sends and receives.
    void launch_some(std::size_t first_send, std::size_t sends, std::size_t first_receive, std::size_t receives,
        cudaStream_t stream) {
        message_arguments a{ranks_.handles(), {}};
        message_list& list = a.list;
        const workspace_layout& sizes = ranks_.sizes();
        list.exported = ranks_.reachable().begin;
        std::uint64_t most = 0;
        int only = none;  // the distance of all of them
        bool is_only = true;
        const auto add = [&](const message& m, bool is_send, int last_peer) {
            list.of[list.sends + list.receives] = m;
            ++(is_send ? list.sends : list.receives);
            list.far[is_send ? 0 : 1] += is_far(m) && m.peer != last_peer;
            list.hidden += is_send && m.region == shared_address::hidden;
            most = std::max(most, channels_of_message(m.bytes, sizes.channels));
            const int d = distance(m, is_send);
            is_only = is_only && (only == none || only == d);
            only = d;
        };
        for (std::size_t i = first_send; i < sends; ++i)
            add(sends_[i], true, i == first_send ? none : sends_[i - 1].peer);
        for (std::size_t i = first_receive; i < receives; ++i)
            add(receives_[i], false, i == first_receive ? none : receives_[i - 1].peer);
        if (list.hidden > 0 && sizes.scratch_bytes / static_cast<std::uint64_t>(2 * list.hidden) < 128)
            throw error(errc::unsupported,
                (error_text() << "colls: cuda: " << what_.text << " on rank " << rank_
                              << ": options.scratch_bytes has no room for " << 2 * list.hidden
                              << " pieces of 128 bytes: raise it")
                    .text(),
                rank_);
        if (is_only) list.first_channel = only % sizes.channels;
        void* arguments[] = {&a};
        launch_kernel(ranks_, what_, reinterpret_cast<const void*>(&message_kernel<device_thread_group>),
            is_only ? static_cast<int>(most) : sizes.channels, arguments, stream);
    }

    local_ranks& ranks_;
    const call_name what_;
    std::vector<message> sends_, receives_;
    const int rank_ = ranks_.ranks().front().rank;
};

/// Checks a buffer of a message, of `bytes`, and adds it to `to`.
inline void add_message(local_ranks& ranks, call_name what, std::vector<message>& to, bool sends, const void* at,
    std::size_t bytes, int peer) {
    const int rank = ranks.ranks().front().rank, n = ranks.size();
    if (peer < 0 || peer >= n) {
        error_text why;
        why << "rank " << peer << " is out of range: this group has ranks 0 to " << n - 1;
        refuse(what, rank, why.text());
    }
    // Within one process other devices may not reach memory of a pool.
    const bool reached = check_pointer(what, rank, at, bytes, ranks.device(), sends ? "sent" : "received");
    message m{static_cast<std::byte*>(const_cast<void*>(at)), bytes, peer, shared_address::absolute};
    const bool is_far = ranks.far() != nullptr && ranks.far()->memory().is_far(peer);
    if (sends && peer != rank && !is_far)
        m.region = reached || n == static_cast<int>(ranks.ranks().size()) ? ranks.address_for_peers(at, bytes).region
                                                                          : shared_address::hidden;
    to.push_back(m);
}

/// Launches the messages that `add(sends, receives)` adds, at once or with the group of calls under way.
template <class Add>
void make_messages(local_ranks& ranks, call_name what, cudaStream_t stream, const Add& add) {
    check_stream(ranks, what, stream);
    std::vector<message> sends, receives;
    add(sends, receives);
    calls_together* const together = ranks.together();
    if (together == nullptr)
        return message_launcher(ranks, what, std::move(sends), std::move(receives)).launch(stream);
    ranks.loaded(reinterpret_cast<const void*>(&message_kernel<device_thread_group>));
    together->sends.insert(together->sends.end(), sends.begin(), sends.end());
    together->receives.insert(together->receives.end(), receives.begin(), receives.end());
}

}  // namespace colls::inline v1::cuda::detail
