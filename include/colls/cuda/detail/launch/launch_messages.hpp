// From the messages of a call, or of a group of calls, to the launch of message_kernel.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/launch/launch.hpp>
#include <colls/cuda/detail/launch/message_order.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// Throws unsupported where the group has no room for a launch of messages: a part of it could wait for ever.
inline void check_room(const local_ranks& ranks, call_name what, const message_list& list) {
    const int rank = ranks.ranks().front().rank;
    const std::uint64_t scratch = ranks.sizes().scratch_bytes, taken = list.lane_bytes() + list.stored_bytes();
    error_text why;
    if (taken > scratch || (list.hidden > 0 && list.staged_bytes(scratch) < 128)) {
        why << ": options.scratch_bytes has no room for";
        if (taken > 0) why << " " << taken << " bytes, the list of " << list.messages() << " messages";
        if (list.hidden > 0) why << (taken > 0 ? ", and" : "") << " " << 2 * list.hidden << " pieces of 128 bytes";
    } else if (const int far = std::max(list.far[0], list.far[1]);
        far > 0 && ranks.far()->memory().layout.places() < static_cast<std::uint32_t>(far)) {
        why << ": options.far_bytes has no room for a piece of each of " << far << " ranks on other hosts";
    } else {
        return;
    }
    throw error(errc::unsupported,
        (error_text() << "colls: cuda: " << what.text << " on rank " << rank << why.text() << ": raise it").text(),
        rank);
}

/// Launches all that a rank sends and receives in one group of calls. Throws invalid_argument, unsupported, and what a
/// launch throws. A template, so that only units that make messages compile its kernel.
template <class G>
void launch_messages(local_ranks& ranks, call_name what, std::vector<message> sends, std::vector<message> receives,
    cudaStream_t stream) {
    const int rank = ranks.ranks().front().rank;
    const message_order all(rank, ranks.size(), ranks.sizes().channels, std::move(sends), std::move(receives),
        [&](int r) { return ranks.is_far(r); });
    if (all.from_self() != all.to_self()) {
        error_text why;
        why << "it has " << all.from_self() << " messages to itself, and receives " << all.to_self()
            << " from itself: make both in one exchange, or in one group of calls";
        refuse(what, rank, why.text());
    }
    check_room(ranks, what, all.list());
    const void* const kernel = reinterpret_cast<const void*>(&message_kernel<G>);
    int most = 1;
    all.for_each_launch([&](const message_list&, int blocks) { most = std::max(most, blocks); });
    check_fits(ranks, what, kernel, most, stream);
    all.for_each_launch([&](const message_list& list, int blocks) {
        message_arguments a{ranks.handles(), list};
        ranks.tell_regions(a.list.begins);
        void* arguments[] = {&a};
        launch_kernel(ranks, what, kernel, blocks, arguments, stream);
    });
}

/// Checks a buffer of a message, of `bytes`, and adds it to `to`.
inline void add_message(local_ranks& ranks, call_name what, std::vector<message>& to, bool sends, const void* at,
    std::size_t bytes, int peer) {
    const int rank = ranks.ranks().front().rank;
    check_rank(what, rank, "rank", peer, ranks.size());
    const bool reached = check_pointer(what, rank, at, bytes, ranks.device(), sends ? "sent" : "received");
    message m{static_cast<std::byte*>(const_cast<void*>(at)), bytes, peer, shared_address::absolute, 0};
    if (sends && peer != rank && !ranks.is_far(peer))
        m.region = static_cast<std::uint16_t>(ranks.address_for_peers(at, bytes, reached).region);
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
        return launch_messages<device_thread_group>(ranks, what, std::move(sends), std::move(receives), stream);
    together->launch_messages = &launch_messages<device_thread_group>;
    ranks.loaded(reinterpret_cast<const void*>(&message_kernel<device_thread_group>));
    together->sends.insert(together->sends.end(), sends.begin(), sends.end());
    together->receives.insert(together->receives.end(), receives.begin(), receives.end());
}

}  // namespace colls::inline v1::cuda::detail
