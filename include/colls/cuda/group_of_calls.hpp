// Several calls in one launch.
//
//     auto calls = colls::cuda::begin(gpu);
//     for (auto& bucket : buckets) colls::cuda::all_reduce(gpu, bucket, colls::sum, stream);
//     colls::cuda::send(gpu, boundary, next, stream);
//     colls::cuda::recv(gpu, halo, previous, stream);
//     calls.end();
#pragma once

#include <colls/cuda/detail/launch/message_calls.hpp>

namespace colls::inline v1::cuda {

/// The calls on a group from `begin` to `end`: they are checked as they are made, and launched by `end`, on their
/// stream, which is the same for all. They have no order among each other, so that none may use what another one
/// writes; buffers must stay until they are over. All ranks make the same collective calls in it, in the same order.
/// Messages (send, recv, exchange, and the calls with counts of each rank) are all under way at once, and only those
/// from one rank to another keep their order: it matters to no rank in which order it lists them. This holds for any
/// number of messages, also where a rank receives in one group what another one sends in two.
///
/// Launches: one for all messages, and, where these are more than 128, a short one before for each 128, which stores
/// their list; one for up to 16 collective calls in a row, after a short one if they are several, that differ only in
/// buffers, count and root, whose operator and epilogue have no members, and that have channels enough: those that they
/// take alone, fewer the shorter they are (options.channels in all). They run beside each other.
class group_of_calls {
public:
    /// For `begin`.
    explicit group_of_calls(detail::local_ranks& ranks) : ranks_(&ranks) {
        if (ranks.together() != nullptr)
            detail::refuse("begin", ranks.ranks().front().rank, "a group of calls has begun before, and has not ended");
        ranks.set_together(all_.get());
    }
    group_of_calls(group_of_calls&& other) noexcept
        : ranks_(std::exchange(other.ranks_, nullptr)), all_(std::move(other.all_)) {}
    group_of_calls& operator=(group_of_calls&&) = delete;
    /// Calls that have not been ended are not made. A peer that waits for them hears of it a second later.
    ~group_of_calls() {
        if (ranks_ == nullptr) return;
        ranks_->set_together(nullptr);
        if (!all_->calls.empty() || !all_->sends.empty() || !all_->receives.empty())
            ranks_->refuse("its group of calls was not ended");
    }

    /// Launches the calls. Throws colls::error as a call does; unsupported where options.scratch_bytes has no room for
    /// a list of more than 128 messages, of 24 bytes each, beside 256 bytes for each peer that does not reach what this
    /// rank sends to it. Does nothing the second time.
    void end() {
        if (ranks_ == nullptr) return;
        ranks_->set_together(nullptr);
        detail::local_ranks& of = *std::exchange(ranks_, nullptr);
        detail::launch_or_tell(of, [&](detail::local_ranks& ranks) {
            for (const auto& call : all_->calls) call->check(ranks, *all_->stream);  // all of them, or none
            if (!all_->sends.empty() || !all_->receives.empty())
                all_->launch_messages(
                    ranks, "a group of messages", std::move(all_->sends), std::move(all_->receives), *all_->stream);
            for (const auto& call : all_->calls) call->launch(ranks, *all_->stream);
        });
    }

private:
    detail::local_ranks* ranks_;
    std::unique_ptr<detail::calls_together> all_ = std::make_unique<detail::calls_together>();
};

/// Begins a group of calls on `comm`, a communicator or virtual_ranks. Throws colls::error (invalid_argument) where one
/// has begun and not ended.
template <class Comm>
    requires requires(Comm& c) { c.context(); }  // or it would be a begin() of all ranges of types of this namespace
[[nodiscard]] group_of_calls begin(Comm& comm) {
    return group_of_calls(comm.context());
}

}  // namespace colls::inline v1::cuda
