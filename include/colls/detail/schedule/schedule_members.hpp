// The members that make a type a schedule, each as a concept of its own.
// IWYU pragma: private, include <colls/schedule.hpp>
#pragma once

#include <colls/step.hpp>

#include <concepts>

namespace colls::inline v1::detail {

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
