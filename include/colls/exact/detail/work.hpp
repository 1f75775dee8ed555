// The memory and the steps of exact calls on buffers of numbers.
// IWYU pragma: private, include <colls/exact.hpp>
#pragma once

#include <colls/blocks.hpp>
#include <colls/collectives.hpp>
#include <colls/exact/detail/lanes.hpp>
#include <colls/family.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace colls::inline v1::detail {

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

template <class Schedule>
inline constexpr bool is_chosen_by_library = std::is_same_v<Schedule, automatic> || is_constraint<Schedule>;
/// By type: a value may be a schedule of all_reduce alone.
template <class Schedule, class... V>
inline constexpr bool may_cut =
    sizeof...(V) == 0 && (is_chosen_by_library<Schedule> || (provides<Schedule, collective::reduce_scatter> &&
                                                                provides<Schedule, collective::all_gather>));
/// Whether all_reduce cuts into blocks: the same on every rank.
template <class Schedule, class T>
bool exact_by_blocks(int n, std::size_t count) {
    if constexpr (is_chosen_by_library<Schedule>)
        return n > 1 && count * lane_format<T>::lanes * sizeof(std::int64_t) > exact_short;
    else
        return supports(schedule_of<collective::reduce_scatter>(Schedule{}), n) &&
               supports(schedule_of<collective::all_gather>(Schedule{}), n);
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
        if constexpr (may_cut<Schedule, V...>)
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

}  // namespace colls::inline v1::detail
