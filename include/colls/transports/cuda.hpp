// Collectives on GPUs: a kernel for each schedule type. For units that nvcc compiles; CMake: link colls::cuda.
//
//     colls::cuda::virtual_ranks ranks(4);                                  ranks as blocks of one GPU, or
//     auto gpus = colls::cuda::communicator::of_devices({0, 1, 2, 3});      the GPUs of this process, or
//     colls::cuda::communicator gpu(host_group, device);                    one process a GPU
//     colls::cuda::all_reduce<colls::ring>(gpu, gradients, colls::sum, stream);
//
// The calls are those of colls, with a stream: they return when the kernel is launched, and the next call (or check())
// throws what a kernel found: a peer that did not come within the deadline (with rank, peer and round), or made another
// call. After that the group cannot be used any more. A buffer is a contiguous range of device memory (cuda::std::span,
// std::span, ... of any type that is trivially copyable and default constructible); for virtual_ranks a range of such
// buffers, one a rank. Schedules are given by type (a family, or a schedule), without one it is `direct`; messages of
// up to options.small_bytes go in one hop, whatever the schedule. Each schedule is proven at the group's size before
// its first launch.
//
// A stream may be capturing: graphs replay. The first call of a kind allocates and copies a few tables, and loads its
// kernel: make it once before other kernels of the group may wait (for the ranks of one process: before any of them is
// under way).
//
// An epilogue is a functor (value, index) -> element of the output, applied once to each element of a rank's result as
// it is written: scale, bias and activation, cast. The value is of the type in which folds are computed (float for
// small floats), the index that of the element in the rank's output.
//
// Half, bfloat16 and fp8 of CUDA and of colls fold in float. gather and scatter: all blocks of one size. (With
// `using namespace colls` the name cuda also means CUDA's own namespace: write colls::cuda.)
#pragma once

#include <colls/cuda/communicator.hpp>
#include <colls/cuda/virtual_ranks.hpp>
#include <colls/detail/cuda/device_types.hpp>
#include <colls/detail/cuda/submit.hpp>
#include <colls/schedules/direct.hpp>

namespace colls::inline v1::cuda {
namespace detail {

template <class R>
using element = std::remove_reference_t<decltype(*std::declval<R&>().data())>;
template <class Comm, class R>
struct element_in {
    using type = element<std::remove_reference_t<R>>;
};
template <class Comm, class R>
    requires(Comm::many)
struct element_in<Comm, R> {
    using type = element<std::remove_reference_t<decltype(*std::begin(std::declval<R&>()))>>;
};
template <class Comm, class R>
using element_t = typename element_in<Comm, R>::type;

template <class S>
cudaStream_t stream_of(const S& s) {
    if constexpr (requires { s.get(); })
        return s.get();
    else
        return s;
}

/// `f(i, buffer)` for each local rank's buffer; how many there are.
template <class Comm, class R, class F>
void each(R& buffers, std::vector<given>& all, const F& f) {
    if constexpr (Comm::many) {
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
std::vector<given> both(In& in, Out& out) {
    static_assert(!std::is_const_v<element_t<Comm, Out>>, "colls: the output buffer is const");
    std::vector<given> all;
    each<Comm>(in, all, [](given& g, auto& b) { g.in = b.data(), g.in_count = b.size(); });
    each<Comm>(out, all, [](given& g, auto& b) { g.out = b.data(), g.out_count = b.size(); });
    return all;
}

template <collective C, class S, class Comm, class In, class Out, class Op, class Epilogue, class Stream>
void make(Comm& comm, In& in, Out& out, const Op& op, int root, const Epilogue& epilogue, const Stream& stream,
    const S& given_schedule, const std::vector<std::uint64_t>& offsets = {}) {
    static_assert(schedule<S> || family<S>, "colls: this is no schedule, and no family of schedules");
    static_assert(
        provides<S, C>, "colls: this schedule implements another collective, and none of its kind follows from it");
    using T = std::remove_const_t<element_t<Comm, In>>;
    using D = element_t<Comm, Out>;
    static_assert(std::is_same_v<T, D> || !std::is_same_v<Epilogue, no_epilogue>,
        "colls: input and output of two types need an epilogue that converts");
    submit<schedule_for<S, C>, T, D>(comm.members(), both<Comm>(in, out), root, schedule_of<C>(given_schedule), op,
        epilogue, stream_of(stream), offsets);
}
template <class Counts>
std::vector<std::uint64_t> offsets_of(const Counts& counts) {
    std::vector<std::uint64_t> all = {0};
    for (const auto c : counts) all.push_back(all.back() + static_cast<std::uint64_t>(c));
    return all;
}

template <class X>
concept buffers_like = requires(X& x) { x.size(); };

}  // namespace detail

/// Every rank gets the combination of all ranks' buffers, element by element.
template <class S = direct, class Comm, class In, class Out, class Op, class Stream, class Epilogue = no_epilogue>
    requires(detail::buffers_like<Out>)
void all_reduce(Comm& comm, In&& in, Out&& out, const Op& op, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make<collective::all_reduce>(comm, in, out, op, 0, epilogue, stream, S{});
}
/// In place.
template <class S = direct, class Comm, class X, class Op, class Stream, class Epilogue = no_epilogue>
    requires(!detail::buffers_like<const Op>)
void all_reduce(Comm& comm, X&& inout, const Op& op, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make<collective::all_reduce>(comm, inout, inout, op, 0, epilogue, stream, S{});
}
/// Every rank gets its block of the combination.
template <class S = direct, class Comm, class In, class Out, class Op, class Stream, class Epilogue = no_epilogue>
void reduce_scatter(Comm& comm, In&& in, Out&& out, const Op& op, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make<collective::reduce_scatter>(comm, in, out, op, 0, epilogue, stream, S{});
}
/// `counts`: elements of each rank's block.
template <class S = direct, class Comm, class In, class Out, class Counts, class Op, class Stream,
    class Epilogue = no_epilogue>
void reduce_scatter_v(Comm& comm, In&& in, Out&& out, const Counts& counts, const Op& op, const Stream& stream,
    const Epilogue& epilogue = {}) {
    detail::make<collective::reduce_scatter>(comm, in, out, op, 0, epilogue, stream, S{}, detail::offsets_of(counts));
}
/// The root gets the combination; off the root the output is empty.
template <class S = direct, class Comm, class In, class Out, class Op, class Stream, class Epilogue = no_epilogue>
void reduce(
    Comm& comm, In&& in, Out&& out, const Op& op, int root, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make<collective::reduce>(comm, in, out, op, root, epilogue, stream, S{});
}
/// Every rank gets all blocks.
template <class S = direct, class Comm, class In, class Out, class Stream, class Epilogue = no_epilogue>
void all_gather(Comm& comm, In&& in, Out&& out, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make<collective::all_gather>(comm, in, out, detail::moved{}, 0, epilogue, stream, S{});
}
/// `counts`: elements of each rank's block.
template <class S = direct, class Comm, class In, class Out, class Counts, class Stream, class Epilogue = no_epilogue>
void all_gather_v(
    Comm& comm, In&& in, Out&& out, const Counts& counts, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make<collective::all_gather>(
        comm, in, out, detail::moved{}, 0, epilogue, stream, S{}, detail::offsets_of(counts));
}
/// Every rank gets the root's buffer.
template <class S = direct, class Comm, class X, class Stream>
void broadcast(Comm& comm, X&& inout, int root, const Stream& stream) {
    detail::make<collective::broadcast>(comm, inout, inout, detail::moved{}, root, no_epilogue{}, stream, S{});
}
/// The root gets all blocks, which are of one size; off the root the output is empty.
template <class S = direct, class Comm, class In, class Out, class Stream>
void gather(Comm& comm, In&& in, Out&& out, int root, const Stream& stream) {
    detail::make<collective::gather>(comm, in, out, detail::moved{}, root, no_epilogue{}, stream, S{});
}
/// Every rank gets its block of the root's buffer; all are of one size; off the root the input is empty.
template <class S = direct, class Comm, class In, class Out, class Stream>
void scatter(Comm& comm, In&& in, Out&& out, int root, const Stream& stream) {
    detail::make<collective::scatter>(comm, in, out, detail::moved{}, root, no_epilogue{}, stream, S{});
}
/// Rank r's block s goes to rank s, as its block r. Not in place.
template <class S = direct, class Comm, class In, class Out, class Stream, class Epilogue = no_epilogue>
void all_to_all(Comm& comm, In&& in, Out&& out, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make<collective::all_to_all>(comm, in, out, detail::moved{}, 0, epilogue, stream, S{});
}
/// No rank's stream goes on before all ranks' streams are here.
template <class S = direct, class Comm, class Stream>
void barrier(Comm& comm, const Stream& stream) {
    std::vector<detail::given> none(comm.members().locals().size());
    detail::submit<schedule_for<S, collective::barrier>, char, char>(comm.members(), none, 0,
        schedule_of<collective::barrier>(S{}), detail::moved{}, no_epilogue{}, detail::stream_of(stream));
}
/// Rank r gets the combination of ranks 0 ... r.
template <class S = direct, class Comm, class In, class Out, class Op, class Stream, class Epilogue = no_epilogue>
void inclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make<collective::inclusive_scan>(comm, in, out, op, 0, epilogue, stream, S{});
}
/// Rank r gets the combination of ranks 0 ... r - 1; rank 0's output stays as it is.
template <class S = direct, class Comm, class In, class Out, class Op, class Stream, class Epilogue = no_epilogue>
void exclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make<collective::exclusive_scan>(comm, in, out, op, 0, epilogue, stream, S{});
}

}  // namespace colls::inline v1::cuda
