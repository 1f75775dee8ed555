// Calls with colls::exact on buffers of numbers, and exact_all_reduce, which keeps their memory.
//
//     colls::all_reduce(comm, gradients, colls::exact);                 // float, double, bfloat16 or half
//     colls::all_reduce<colls::ring>(comm, in, out, colls::exact);
//
// How it works: an all_reduce by max finds each element's greatest exponent (1 byte each, 2 for double). In the unit
// that this gives every rank writes its addend as an integer of 64 bits (double: two), rounded to nearest even; the
// integers are added by a reduce_scatter, each rank rounds its block once, and an all_gather hands the numbers round
// (Demmel and Nguyen 2015 add in bins that do not depend on the order; here an element has one bin, at its greatest
// addend). Schedules that do not cut into blocks, and calls of a few KB, all-reduce the integers instead. Both are
// integers: whatever adds them, and in whatever order, gives the same bits.
#pragma once

#include <colls/blocks.hpp>
#include <colls/collectives.hpp>
#include <colls/exact/detail/lanes.hpp>
#include <colls/exact/exact_sum.hpp>
#include <colls/family.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace colls::inline v1 {

namespace detail {

template <class Buffer>
concept exact_numbers = buffer_like<std::remove_reference_t<Buffer>> && is_exact_number<element_of<Buffer>>;

/// The memory of an exact call of `count` elements at most, and its steps. The one place where it is allocated.
template <class T>
class exact_work {
    using format = lane_format<T>;

public:
    exact_work(communicator& comm, std::size_t count)
        : comm_(&comm),
          capacity_(count),
          levels_(comm.template allocate<level_of<T>>(count)),
          integers_(comm.template allocate<std::int64_t>(count * format::lanes)) {
        if (comm.size() >= format::most_ranks)
            throw error(errc::unsupported, "colls: colls::exact takes fewer than 2^20 ranks", comm.rank());
    }

    /// Fills the integers of the rank's addends. Collective.
    template <class Schedule, class... V>
    void contribute(std::span<const T> in, const V&... schedule) {
        count_ = in.size();
        find_levels(in.data(), count_, levels_.data());
        all_reduce<Schedule>(*comm_, levels(), max, schedule...);
        fill_lanes(in.data(), count_, levels_.data(), lane(0).data(), second());
    }
    /// The sums of the elements in `where`, which lane by lane are in place.
    void round(buffer_block where, T* out) const {
        const std::int64_t* const first = integers_.data() + where.offset;
        round_lanes<T>(levels_.data() + where.offset, first, format::lanes == 2 ? first + count_ : nullptr, where.size,
            comm_->size(), out);
    }
    template <class Schedule, class... V>
    void add_all(const V&... schedule) {
        all_reduce<Schedule>(*comm_, integers(), sum, schedule...);
    }
    /// Adds those of the rank's block.
    template <class Schedule, class... V>
    void add_blocks(const V&... schedule) {
        const buffer_block own = block_of(count_, comm_->size(), comm_->rank());
        for (int l = 0; l < format::lanes; ++l)
            reduce_scatter<Schedule>(*comm_, lane(l), lane(l).subspan(own.offset, own.size), sum, schedule...);
    }
    template <class Schedule, class... V>
    void add_at(int root, const V&... schedule) {
        reduce<Schedule>(*comm_, integers(), integers(), sum, root, schedule...);
    }

    communicator& comm() const { return *comm_; }
    std::size_t capacity() const { return capacity_; }

private:
    std::span<level_of<T>> levels() { return {levels_.data(), count_}; }
    std::span<std::int64_t> integers() { return {integers_.data(), count_ * format::lanes}; }
    std::span<std::int64_t> lane(int l) { return integers().subspan(static_cast<std::size_t>(l) * count_, count_); }
    std::int64_t* second() { return format::lanes == 2 ? lane(1).data() : nullptr; }

    communicator* comm_;
    std::size_t capacity_, count_ = 0;
    memory<level_of<T>> levels_;
    memory<std::int64_t> integers_;  // a lane after the other
};

/// Elements that a call takes at a time, so that the integers stay in a processor's caches.
inline constexpr std::size_t exact_chunk = std::size_t{1} << 18;
/// Integers of so many bytes at most are all-reduced: a call less.
inline constexpr std::size_t exact_short = 16 * 1024;

/// Whether all_reduce cuts into blocks: the same on every rank.
template <class Schedule, class T, class... V>
bool exact_by_blocks(int n, std::size_t count) {
    if constexpr (sizeof...(V) > 0) {
        return false;  // the value may be a schedule of all_reduce alone
    } else if constexpr (std::is_same_v<Schedule, automatic> || is_constraint<Schedule>) {
        return n > 1 && count * lane_format<T>::lanes * sizeof(std::int64_t) > exact_short;
    } else if constexpr (provides<Schedule, collective::reduce_scatter> && provides<Schedule, collective::all_gather>) {
        return supports(schedule_of<collective::reduce_scatter>(Schedule{}), n) &&
               supports(schedule_of<collective::all_gather>(Schedule{}), n);
    } else {
        return false;
    }
}

[[noreturn]] inline void refuse_exact(const communicator& comm, const char* why) {
    throw error(errc::invalid_argument, why, comm.rank());
}

template <class Schedule, class T, class... V>
void exact_all_reduce_of(exact_work<T>& work, std::span<const T> in, std::span<T> out, const V&... schedule) {
    communicator& comm = work.comm();
    std::size_t at = 0;
    do {
        const std::size_t count = in.size() - at < work.capacity() ? in.size() - at : work.capacity();
        const std::span<T> made = out.subspan(at, count);
        work.template contribute<Schedule>(in.subspan(at, count), schedule...);
        if constexpr (sizeof...(V) == 0 && (std::is_same_v<Schedule, automatic> || is_constraint<Schedule> ||
                                               (provides<Schedule, collective::reduce_scatter> &&
                                                   provides<Schedule, collective::all_gather>)))
            if (exact_by_blocks<Schedule, T>(comm.size(), count)) {
                const buffer_block own = block_of(count, comm.size(), comm.rank());
                const std::span<T> mine = made.subspan(own.offset, own.size);
                work.template add_blocks<Schedule>();
                work.round(own, mine.data());
                all_gather<Schedule>(comm, mine, made);
                at += count;
                continue;
            }
        work.template add_all<Schedule>(schedule...);
        work.round({0, count}, made.data());
        at += count;
    } while (at < in.size());
}

}  // namespace detail

/// An all_reduce with colls::exact that keeps its memory from call to call: 9 bytes (double: 18) for an element, of at
/// most 2^18 elements.
template <class T, class Schedule = automatic>
class exact_all_reduce {
    static_assert(
        detail::is_exact_number<T>, "colls: exact_all_reduce takes float, double, colls::bfloat16 or colls::half");

public:
    /// @param comm   must outlive this object
    /// @param count  the number of elements, the same on every rank
    exact_all_reduce(communicator& comm, std::size_t count)
        : work_(comm, count < detail::exact_chunk ? count : detail::exact_chunk), count_(count) {}

    /// Sums the ranks' `in` to every rank's `out`, which may be `in`. Collective. Throws invalid_argument where one of
    /// them is not of count() elements, and as all_reduce.
    void operator()(std::span<const T> in, std::span<T> out) {
        if (in.size() != count_ || out.size() != count_)
            detail::refuse_exact(work_.comm(), "colls: exact_all_reduce: a buffer has not count() elements");
        detail::exact_all_reduce_of<Schedule, T>(work_, in, out);
    }
    /// The same in place.
    void operator()(std::span<T> inout) { (*this)(inout, inout); }

    std::size_t count() const { return count_; }

private:
    detail::exact_work<T> work_;
    std::size_t count_;
};

/// all_reduce with colls::exact on numbers: one addend an element and rank (exact.hpp).
template <class Schedule = automatic, detail::exact_numbers Out, class In, class... V>
void all_reduce(communicator& comm, In&& in, Out&& out, const exact_t&, const V&... schedule) {
    using T = detail::element_of<Out>;
    const std::span<T> to(out);
    const std::span<const T> from(in);
    if (from.size() != to.size())
        detail::refuse_exact(comm, "colls: all_reduce with colls::exact: input and output differ in length");
    detail::exact_work<T> work(comm, to.size() < detail::exact_chunk ? to.size() : detail::exact_chunk);
    detail::exact_all_reduce_of<Schedule, T>(work, from, to, schedule...);
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
    if (root < 0 || root >= comm.size())
        detail::refuse_exact(comm, "colls: reduce with colls::exact: the root is out of range");
    if (comm.rank() == root && from.size() != to.size())
        detail::refuse_exact(comm, "colls: reduce with colls::exact: input and output differ in length");
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
    const buffer_block own = block_of(from.size(), comm.size(), comm.rank());
    if (to.size() != own.size)
        detail::refuse_exact(comm, "colls: reduce_scatter with colls::exact: the output is not as long as the block");
    detail::exact_work<T> work(comm, from.size());
    work.template contribute<automatic>(from);
    work.template add_blocks<Schedule>(schedule...);
    work.round(own, to.data());
}

}  // namespace colls::inline v1
