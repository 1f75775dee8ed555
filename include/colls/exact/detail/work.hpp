// The memory and the steps of exact calls on buffers of numbers.
// IWYU pragma: private, include <colls/exact.hpp>
#pragma once

#include <colls/blocks.hpp>
#include <colls/collectives.hpp>
#include <colls/detail/call/make_request.hpp>
#include <colls/detail/support/composite_call.hpp>
#include <colls/exact/detail/lanes.hpp>
#include <colls/exact/exact_sum.hpp>
#include <colls/family.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace colls::inline v1::detail {

template <class Buffer>
concept exact_numbers = buffer_like<std::remove_reference_t<Buffer>> && is_exact_number<element_of<Buffer>>;

/// While it lives, the rank's calls are parts of one by colls::exact, of T.
template <class T>
class exact_call_scope {
public:
    exact_call_scope(communicator& comm, collective what, std::size_t count, int root = 0)
        : rank_(comm.handle()),
          whole_{{.name = name_of(what),
                     .what = what,
                     .count = count,
                     .type = name_of_type<T>.text,
                     .op = name_of_type<exact_t>.text,
                     .root = root},
              hash_mix(hash_mix(name_of_type<T>.hash, count),
                  hash_mix(name_of_type<exact_t>.hash, static_cast<std::uint64_t>(root)))},
          before_(rank_.by->set_composite(*rank_.self, &whole_)) {}
    ~exact_call_scope() { rank_.by->set_composite(*rank_.self, before_); }
    exact_call_scope(const exact_call_scope&) = delete;
    exact_call_scope& operator=(const exact_call_scope&) = delete;

private:
    const rank_handle rank_;
    const composite_call whole_;
    const composite_call* before_;
};

/// The memory of an exact call of `count` elements at most, and its steps. The one place where it is allocated.
template <class T>
class exact_work {
    using format = lane_format<T>;

public:
    exact_work(communicator& comm, std::size_t count)
        : comm_(&comm),
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
    /// Adds those of the rank's block of blocks of these sizes.
    template <class Schedule, class... V>
    void add_blocks(buffer_block own, std::span<const std::size_t> counts, const V&... schedule) {
        for (int l = 0; l < format::lanes; ++l)
            reduce_scatter_v<Schedule>(
                *comm_, lane(l), lane(l).subspan(own.offset, own.size), counts, sum, schedule...);
    }
    template <class Schedule, class... V>
    void add_at(int root, const V&... schedule) {
        reduce<Schedule>(*comm_, integers(), integers(), sum, root, schedule...);
    }

    communicator& comm() const { return *comm_; }

private:
    std::span<level_of<T>> levels() { return {levels_.data(), count_}; }
    std::span<std::int64_t> integers() { return {integers_.data(), count_ * format::lanes}; }
    std::span<std::int64_t> lane(int l) { return integers().subspan(static_cast<std::size_t>(l) * count_, count_); }
    std::int64_t* second() { return format::lanes == 2 ? lane(1).data() : nullptr; }

    communicator* comm_;
    std::size_t count_ = 0;
    memory<level_of<T>> levels_;
    memory<std::int64_t> integers_;  // a lane after the other
};

/// Elements that a call takes at a time, so that the integers stay in a processor's caches.
inline constexpr std::size_t exact_chunk = std::size_t{1} << 18;
/// Integers of this many bytes at most are all-reduced: a call less.
inline constexpr std::size_t exact_short = std::size_t{16} << 10;

template <class Schedule>
inline constexpr bool is_chosen_by_library = std::is_same_v<Schedule, automatic> || is_constraint<Schedule>;
/// Whether a call is one of the library's, whose folds have all addends at hand: on `most` ranks at most.
template <class Schedule, class... V>
bool exact_at_once(const communicator& comm, int most) {
    return is_chosen_by_library<Schedule> && sizeof...(V) == 0 && comm.size() <= most;
}
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

/// Refuses arguments as a call without parts does.
template <class T>
void check_exact(communicator& comm, request&& q, std::span<const T> in, std::span<T> out) {
    set_buffers(q, in, out);
    comm.handle().by->check_arguments(comm.context(), q);
}

/// Either way to all_reduce, with its memory. By integers in chunks.
template <class T, class Schedule, class... V>
class exact_call {
public:
    exact_call(communicator& comm, std::size_t count)
        : comm_(&comm), capacity_(count < exact_chunk ? count : exact_chunk) {
        if (!exact_at_once<Schedule, V...>(comm, exact_few_ranks)) integers_.emplace(comm, capacity_);
    }
    void operator()(std::span<const T> in, std::span<T> out, const V&... schedule) {
        if (!integers_) return blocking::all_reduce(*comm_, in, out, exact_t{});
        check_exact(*comm_, request(collective::all_reduce), in, out);
        const exact_call_scope<T> whole(*comm_, collective::all_reduce, in.size());
        std::size_t at = 0;
        do {
            const std::size_t count = in.size() - at < capacity_ ? in.size() - at : capacity_;
            by_integers(*integers_, in.subspan(at, count), out.subspan(at, count), schedule...);
            at += count;
        } while (at < in.size());
    }

private:
    void by_integers(exact_work<T>& work, std::span<const T> in, std::span<T> out, const V&... schedule) {
        communicator& comm = work.comm();
        work.template contribute<Schedule>(in, schedule...);
        if constexpr (may_cut<Schedule, V...>)
            if (exact_by_blocks<Schedule, T>(comm.size(), in.size())) {
                const buffer_block own = block_of(in.size(), comm.size(), comm.rank());
                const std::span<T> mine = out.subspan(own.offset, own.size);
                work.template add_blocks<Schedule>();
                work.round(own, mine.data());
                return all_gather<Schedule>(comm, mine, out);
            }
        work.template add_all<Schedule>(schedule...);
        work.round({0, in.size()}, out.data());
    }

    communicator* comm_;
    std::size_t capacity_;
    std::optional<exact_work<T>> integers_;
};

}  // namespace colls::inline v1::detail
