// What a buffer may have as elements.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace colls::inline v1::detail {

/// Elements are copied as bytes. Pairs and tuples of such elements are, too: their assignment alone is not trivial.
template <class T>
constexpr bool copies_as_bytes() {
    if constexpr (std::is_trivially_copyable_v<T>)
        return true;
    else if constexpr (std::is_trivially_copy_constructible_v<T> && std::is_trivially_destructible_v<T> &&
                       requires { std::tuple_size<T>::value; })
        return []<std::size_t... i>(std::index_sequence<i...>) {
            return (copies_as_bytes<std::tuple_element_t<i, T>>() && ...);
        }(std::make_index_sequence<std::tuple_size_v<T>>{});
    else
        return false;
}

}  // namespace colls::inline v1::detail
