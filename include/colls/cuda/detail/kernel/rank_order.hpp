// Which schedules fold in rank order in a kernel, so that they take operators that do not commute.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/kernel/fold_elements.hpp>
#include <colls/family.hpp>
#include <colls/schedules/direct.hpp>

namespace colls::inline v1::cuda::detail {

/// Schedules whose one fold has all operands, which a kernel takes in rank order. Others may keep the order, too; that
/// is not found at compile time.
template <class Schedule>
inline constexpr bool keeps_rank_order = std::is_same_v<Schedule, schedule_for<direct, implemented_by<Schedule>>> ||
                                         std::is_same_v<Schedule, one_shot::all_reduce>;

template <class Schedule, class T, class Op>
inline constexpr bool order_is_right = is_commutative<Op, accumulator<T, Op>> || keeps_rank_order<Schedule>;

}  // namespace colls::inline v1::cuda::detail
