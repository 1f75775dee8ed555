// The members that make a type a schedule, each as a concept of its own.
// IWYU pragma: private, include <colls/schedule.hpp>
#pragma once

#include <colls/step.hpp>

#include <concepts>

namespace colls::inline v1::detail {

/// The rank whose slot it is where each rank has as many, in the order of ranks; none: there are fewer slots than
/// ranks.
constexpr int rank_of_slot(int slot, int blocks, int n) { return blocks >= n ? slot / (blocks / n) : none; }

template <class S>
concept steps_without_port = requires(const S& s, int i) {
    { s.at(i, i, i) } -> std::same_as<step>;
};
template <class S>
concept steps_with_port = requires(const S& s, int i) {
    { s.at(i, i, i, i) } -> std::same_as<step>;
};
template <class S>
concept counts_rounds = requires(const S& s, int n) {
    { s.rounds(n) } -> std::convertible_to<int>;
};

}  // namespace colls::inline v1::detail
