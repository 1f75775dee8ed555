// Calls with colls::exact on buffers of numbers, and exact_all_reduce, which keeps their memory.
//
//     colls::all_reduce(comm, gradients, colls::exact);                 // float, double, bfloat16 or half
//     colls::all_reduce<colls::ring>(comm, in, out, colls::exact);
//
// How it works, on up to 32 ranks where no schedule is named, and in calls that are started or prepared: a schedule
// that folds all addends of an element at once sums them as integers in a unit that the greatest exponent among them
// gives, rounded to nearest even, and rounds the sum once. It moves as many bytes as a plain call.
//
// With a schedule, and on more ranks: an all_reduce by max finds each element's greatest exponent (1 byte each, 2 for
// double). In the unit that this gives every rank writes its addend as an integer of 64 bits (double: two), rounded to
// nearest even; the integers are added by a reduce_scatter, each rank rounds its block once, and an all_gather hands
// the numbers round (Demmel and Nguyen 2015 add in bins that do not depend on the order; here an element has one bin,
// at its greatest addend). Schedules that do not cut into blocks, and calls of a few KB, all-reduce the integers
// instead. Both are integers: whatever adds them, and in whatever order, gives the same bits.
#pragma once

#include <colls/blocks.hpp>
#include <colls/collectives.hpp>
#include <colls/exact/detail/work.hpp>
#include <colls/exact/exact_sum.hpp>

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace colls::inline v1 {

/// An all_reduce with colls::exact that keeps its memory from call to call: with a schedule, and on more than 32 ranks,
/// 9 bytes (double: 18) for each of at most 2^18 elements.
template <class T, class Schedule = automatic>
class exact_all_reduce {
    static_assert(
        detail::is_exact_number<T>, "colls: exact_all_reduce takes float, double, colls::bfloat16 or colls::half");

public:
    /// @param comm   must outlive this object
    /// @param count  the number of elements, the same on every rank
    exact_all_reduce(communicator& comm, std::size_t count) : comm_(&comm), call_(comm, count), count_(count) {}

    /// Sums the ranks' `in` to every rank's `out`, which may be `in`. Collective. Throws invalid_argument where one of
    /// them is not of count() elements, and as all_reduce.
    void operator()(std::span<const T> in, std::span<T> out) {
        if (in.size() != count_ || out.size() != count_)
            detail::refuse_call(comm_->handle(), errc::invalid_argument,
                detail::error_text() << "colls: rank " << comm_->rank()
                                     << " in exact_all_reduce: a buffer has not count() elements");
        call_(in, out);
    }
    /// The same in place.
    void operator()(std::span<T> inout) { (*this)(inout, inout); }

    std::size_t count() const { return count_; }

private:
    communicator* comm_;
    detail::exact_call<T, Schedule> call_;
    std::size_t count_;
};

/// all_reduce with colls::exact on numbers: one addend an element and rank (exact.hpp).
template <class Schedule = automatic, detail::exact_numbers Out, class In, class... V>
void all_reduce(communicator& comm, In&& in, Out&& out, const exact_t&, const V&... schedule) {
    using T = detail::element_of<Out>;
    const std::span<T> to(out);
    const std::span<const T> from(in);
    detail::exact_call<T, Schedule, V...>(comm, to.size())(from, to, schedule...);
}
/// The same in place.
template <class Schedule = automatic, detail::exact_numbers InOut, class... V>
void all_reduce(communicator& comm, InOut&& inout, const exact_t&, const V&... schedule) {
    v1::all_reduce<Schedule>(comm, inout, inout, exact, schedule...);
}

/// reduce with colls::exact on numbers.
template <class Schedule = automatic, class In, class Out, class... V>
    requires(detail::is_exact_number<std::remove_const_t<detail::element_of<In>>>)
void reduce(communicator& comm, In&& in, Out&& out, const exact_t&, int root, const V&... schedule) {
    using T = std::remove_const_t<detail::element_of<In>>;
    const std::span<const T> from(in);
    const std::span<T> to(out);
    if (detail::exact_at_once<Schedule, V...>(comm, detail::exact_few_to_root))
        return blocking::reduce(comm, from, to, exact, root);
    detail::check_exact(comm, detail::request(collective::reduce, root), from, to);
    const detail::exact_call_scope<T> whole(comm, collective::reduce, from.size(), root);
    detail::exact_work<T> work(comm, from.size());
    work.template contribute<automatic>(from);
    work.template add_at<Schedule>(root, schedule...);
    if (comm.rank() == root) work.round({0, from.size()}, to.data());
}

/// reduce_scatter with colls::exact on numbers.
template <class Schedule = automatic, class In, detail::exact_numbers Out, class... V>
void reduce_scatter(communicator& comm, In&& in, Out&& out, const exact_t&, const V&... schedule) {
    using T = detail::element_of<Out>;
    const std::span<const T> from(in);
    const std::span<T> to(out);
    if (detail::exact_at_once<Schedule, V...>(comm, detail::exact_few_ranks))
        return blocking::reduce_scatter(comm, from, to, exact);
    detail::check_exact(comm, detail::request(collective::reduce_scatter), from, to);
    const detail::exact_call_scope<T> whole(comm, collective::reduce_scatter, from.size());
    detail::exact_work<T> work(comm, from.size());
    work.template contribute<automatic>(from);
    work.template add_blocks<Schedule>(schedule...);
    work.round(block_of(from.size(), comm.size(), comm.rank()), to.data());
}

/// reduce_scatter_v with colls::exact on numbers.
template <class Schedule = automatic, class In, detail::exact_numbers Out, class Counts, class... V>
void reduce_scatter_v(
    communicator& comm, In&& in, Out&& out, const Counts& counts, const exact_t&, const V&... schedule) {
    using T = detail::element_of<Out>;
    const std::span<const T> from(in);
    const std::span<T> to(out);
    const std::span<const std::size_t> sizes(counts);
    if (detail::exact_at_once<Schedule, V...>(comm, detail::exact_few_ranks))
        return blocking::reduce_scatter_v(comm, from, to, sizes, exact);
    detail::request q(collective::reduce_scatter);
    detail::set_counts(q, q.sends, sizes);
    detail::check_exact(comm, std::move(q), from, to);
    buffer_block own{0, to.size()};
    for (int r = 0; r < comm.rank(); ++r) own.offset += sizes[static_cast<std::size_t>(r)];
    const detail::exact_call_scope<T> whole(comm, collective::reduce_scatter, from.size());
    detail::exact_work<T> work(comm, from.size());
    work.template contribute<automatic>(from);
    work.template add_blocks<Schedule>(own, sizes, schedule...);
    work.round(own, to.data());
}

}  // namespace colls::inline v1
