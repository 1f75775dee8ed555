// A schedule (or family, or mapping) as a part of a combinator.
// IWYU pragma: private, include <colls/algebra.hpp>
#pragma once

#include <colls/config.hpp>

#include <concepts>
#include <type_traits>

namespace colls::inline v1::detail {

/// A part of a combinator, as a base class of it: takes no room where the part has no state. (Not a member with
/// [[no_unique_address]]: nvcc 13.0 cannot pass a type with such members to a kernel.) I tells parts of one type apart.
template <class T, int I = 0>
struct part {
    T value{};
    constexpr part() = default;
    constexpr part(const T& v) : value(v) {}
    constexpr const T& get() const { return value; }
};
template <class T, int I>
    requires(std::is_empty_v<T> && std::default_initializable<T>)
struct part<T, I> {
    constexpr part() = default;
    constexpr part(const T&) {}
    constexpr T get() const { return {}; }
};

/// The group sizes at which a combinator checks its parts against one another when it is compiled.
inline constexpr int least_checked = 2, most_checked = 8;

}  // namespace colls::inline v1::detail
