// Calls that are launched together: see group_of_calls.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/check_arguments.hpp>
#include <colls/cuda/detail/local_ranks.hpp>

#include <memory>
#include <optional>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// A call that is ready to be launched.
struct pending_call {
    virtual ~pending_call() = default;
    /// Takes the other one into the same launch; `channels`: of a rank. False: it needs one of its own.
    virtual bool add(const pending_call& other, int channels) = 0;
    virtual void launch(local_ranks& ranks, cudaStream_t stream) = 0;
};

struct calls_together {
    std::optional<cudaStream_t> stream;    ///< of its first call
    std::vector<message> sends, receives;  ///< in the order of the calls
    void (*launch_messages)(
        local_ranks&, call_name, std::vector<message> sends, std::vector<message> receives, cudaStream_t) = nullptr;
    std::vector<std::unique_ptr<pending_call>> calls;  ///< collective ones
};

/// Checks the stream of a call.
inline void check_stream(local_ranks& ranks, call_name what, cudaStream_t stream) {
    const int rank = ranks.ranks().front().rank;
    check_stream(what, rank, stream, ranks.device());
    calls_together* const all = ranks.together();
    if (all == nullptr) return;
    if (all->stream.value_or(stream) != stream)
        refuse(what, rank, "its stream is another one than that of the calls before in its group of calls");
    all->stream = stream;
}

}  // namespace colls::inline v1::cuda::detail
