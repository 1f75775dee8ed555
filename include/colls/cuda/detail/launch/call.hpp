// From a call's template arguments, ranges and streams to launch_collective.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/automatic.hpp>
#include <colls/cuda/detail/kernel/native_floats.hpp>
#include <colls/cuda/detail/kernel/rank_order.hpp>
#include <colls/cuda/detail/launch/launch.hpp>
#include <colls/family.hpp>
#include <colls/schedules/direct.hpp>

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda::detail {

template <class X>
concept buffers_like = requires(X& x) { x.size(); };

template <class R>
using element = std::remove_reference_t<decltype(*std::declval<R&>().data())>;
template <class Comm, class R>
struct element_in {
    using type = element<std::remove_reference_t<R>>;
};
template <class Comm, class R>
    requires(Comm::takes_buffer_of_each_rank)
struct element_in<Comm, R> {
    using type = element<std::remove_reference_t<decltype(*std::begin(std::declval<R&>()))>>;
};
/// The element type of R: a buffer, or a range of buffers, as Comm's calls take them.
template <class Comm, class R>
using element_t = typename element_in<Comm, R>::type;

/// Takes a cudaStream_t, or an object with get(), as cuda::stream_ref is.
template <class S>
cudaStream_t stream_of(const S& s) {
    if constexpr (requires { s.get(); })
        return s.get();
    else
        return s;
}

/// f(all[i], buffer) for the buffer of each local rank i.
template <class Comm, class R, class F>
void for_each_rank(R& buffers, std::vector<rank_buffers>& all, const F& f) {
    if constexpr (Comm::takes_buffer_of_each_rank) {
        std::size_t i = 0;
        for (auto&& b : buffers) {
            if (all.size() <= i) all.resize(i + 1);
            f(all[i++], b);
        }
    } else {
        if (all.empty()) all.resize(1);
        f(all[0], buffers);
    }
}
template <class Comm, class In, class Out>
std::vector<rank_buffers> buffers_of(In& in, Out& out) {
    static_assert(!std::is_const_v<element_t<Comm, Out>>, "colls: the output buffer is const");
    std::vector<rank_buffers> all;
    for_each_rank<Comm>(in, all, [](rank_buffers& g, auto& b) { g.in = b.data(), g.in_count = b.size(); });
    for_each_rank<Comm>(out, all, [](rank_buffers& g, auto& b) { g.out = b.data(), g.out_count = b.size(); });
    return all;
}

/// The layout of a call whose blocks are balanced.
struct balanced_blocks {};

/// The tables in the arguments of a kernel: see kernel_arguments.
template <class Comm, class Counts>
using tables_for = std::conditional_t<Comm::takes_buffer_of_each_rank || !std::is_same_v<Counts, balanced_blocks>,
    call_tables, const joint_calls*>;

/// Where blocks of the given sizes begin in the longer one of the buffers, which has them all.
template <class Counts>
std::vector<std::uint64_t> offsets_in(
    call_name what, int rank, const Counts& counts, const std::vector<rank_buffers>& all) {
    return offsets_of(what, rank, counts, all.empty() ? 0 : std::max(all[0].in_count, all[0].out_count));
}
inline std::vector<std::uint64_t> offsets_in(call_name, int, const balanced_blocks&, const std::vector<rank_buffers>&) {
    return {};
}

/// Calls launch(ranks), which launches a call of the local ranks. Throws what it throws, after the other ranks were
/// told, and what an earlier kernel has reported.
template <class Launch>
void launch_or_tell(local_ranks& ranks, const Launch& launch) {
    ranks.throw_if_failed();
    try {
        launch(ranks);
    } catch (...) {
        call_failed(ranks);
    }
}

/// The family S as a group takes it: a hierarchy without hosts of its own takes those of the group.
template <class S>
S family_for(const local_ranks& ranks) {
    S s{};
    if constexpr (requires { s.node = 1; })
        if (s.node == 0) s.node = ranks.ranks_per_host();
    if constexpr (requires(host_map& map) { map = s.hosts; })
        if (!s.hosts.known()) s.hosts = ranks.hosts();
    return s;
}

/// For launch_collective: the schedule, or the family of schedules, S.
template <collective C, class S>
auto by_given(local_ranks& ranks, int root) {
    return [&ranks, root](double, const auto& go) {
        const auto s = schedule_of<C>(family_for<S>(ranks));
        stored_slot_map& map = ranks.map_for(s);
        go(map, ranks.steps_for(map, s, root));
    };
}
/// For launch_collective: what `automatic` chooses.
template <collective C>
auto by_choice(local_ranks& ranks, int root) {
    return [&ranks, root](double bytes, const auto& go) {
        const chosen_schedule taken = ranks.template chosen<C>(bytes, root);
        go(*taken.map, taken.steps);
    };
}

/// Makes the call C by the schedule, or the family of schedules, S.
template <collective C, class S, class Comm, class In, class Out, class Op, class Epilogue, class Stream, class Counts>
void make_call_by(Comm& comm, In& in, Out& out, const Op& op, int root, const Epilogue& epilogue, const Stream& stream,
    const Counts& counts) {
    static_assert(schedule<S> || family<S>, "colls: this is neither a schedule nor a family of schedules");
    static_assert(
        provides<S, C>, "colls: this schedule implements another collective, and none of its kind follows from it");
    using T = std::remove_const_t<element_t<Comm, In>>;
    using D = element_t<Comm, Out>;
    static_assert(std::is_same_v<T, D> || !std::is_same_v<Epilogue, no_epilogue>,
        "colls: input and output of two types need an epilogue that converts");
    if constexpr (reduces(C))
        static_assert(order_is_right<schedule_for<S, C>, T, Op>,
            "colls: this operator is not known to commute, and this schedule is not known to keep the order of ranks "
            "in a kernel; take direct or one_shot, or mark the operator with colls::commutative(op)");
    launch_or_tell(comm.context(), [&](local_ranks& ranks) {
        const std::vector<rank_buffers> all = buffers_of<Comm>(in, out);
        launch_collective<C, T, D, tables_for<Comm, Counts>>(ranks, all, root, by_given<C, S>(ranks, root), op,
            epilogue, stream_of(stream), offsets_in(C, ranks.ranks().front().rank, counts, all));
    });
}

template <collective C, class S, class Comm, class In, class Out, class Op, class Epilogue, class Stream,
    class Counts = balanced_blocks>
void make_call(Comm& comm, In& in, Out& out, const Op& op, int root, const Epilogue& epilogue, const Stream& stream,
    const Counts& counts = {}) {
    using T = std::remove_const_t<element_t<Comm, In>>;
    using D = element_t<Comm, Out>;
    // Ranks on one device, and operators that do not commute, have one schedule to choose from.
    if constexpr (!std::is_same_v<S, automatic>) {
        make_call_by<C, S>(comm, in, out, op, root, epilogue, stream, counts);
    } else if constexpr (Comm::takes_buffer_of_each_rank || !order_is_right<stored_schedule<C>, T, Op>) {
        make_call_by<C, direct>(comm, in, out, op, root, epilogue, stream, counts);
    } else {
        static_assert(std::is_same_v<T, D> || !std::is_same_v<Epilogue, no_epilogue>,
            "colls: input and output of two types need an epilogue that converts");
        launch_or_tell(comm.context(), [&](local_ranks& ranks) {
            const std::vector<rank_buffers> all = buffers_of<Comm>(in, out);
            using tables = tables_for<Comm, Counts>;
            launch_collective<C, T, D, tables>(ranks, all, root, by_choice<C>(ranks, root), op, epilogue,
                stream_of(stream), offsets_in(C, ranks.ranks().front().rank, counts, all));
        });
    }
}

/// A barrier: a call without data.
template <class S, class Comm, class Stream>
void make_barrier(Comm& comm, const Stream& stream) {
    constexpr collective what = collective::barrier;
    launch_or_tell(comm.context(), [&](local_ranks& ranks) {
        using tables = tables_for<Comm, balanced_blocks>;
        const auto launch = [&](const auto& by) {
            launch_collective<what, char, char, tables>(ranks, std::vector<rank_buffers>(ranks.ranks().size()), 0, by,
                no_operator{}, no_epilogue{}, stream_of(stream), {});
        };
        if constexpr (!std::is_same_v<S, automatic>)
            launch(by_given<what, S>(ranks, 0));
        else if constexpr (Comm::takes_buffer_of_each_rank)
            launch(by_given<what, direct>(ranks, 0));
        else
            launch(by_choice<what>(ranks, 0));
    });
}

}  // namespace colls::inline v1::cuda::detail
