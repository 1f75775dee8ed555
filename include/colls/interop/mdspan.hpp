// std::mdspan, and views of other libraries with its members, as buffers. Link colls::colls.
//
//   colls::all_reduce(comm, interop::elements(matrix), colls::sum);                    // elements without gaps
//   dynamic::all_reduce(comm, interop::strided(columns), dynamic::op::sum);            // any strides
#pragma once

#include <colls/detail/support/element.hpp>
#include <colls/interop/strided_buffer.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

namespace colls::inline v1 {
namespace interop {

/// What std::mdspan has: the number of dimensions, extents, and a mapping that says of itself what it is. Its accessor
/// is the default one, or one that also gives plain references to elements behind a pointer.
template <class V>
concept mdspan_like = requires(const V& v, std::size_t d) {
    { v.rank() } -> std::convertible_to<std::size_t>;
    { v.extent(d) } -> std::convertible_to<std::size_t>;
    { v.is_unique() } -> std::convertible_to<bool>;
    { v.is_exhaustive() } -> std::convertible_to<bool>;
    { v.is_strided() } -> std::convertible_to<bool>;
    v.data_handle();
    typename V::element_type;
    typename V::reference;
};
/// A mapping of the view can say the stride of a dimension.
template <class V>
concept has_strides = requires(const V& v, std::size_t d) {
    { v.stride(d) } -> std::convertible_to<std::size_t>;
    requires(V::is_always_strided() || requires { v.mapping().stride(d); });
};

/// The elements of a view without gaps in the order in which they lie in memory, for typed calls, also started and
/// prepared ones. Ranks that call with the same tensor have it in the same layout.
///
/// Throws colls::error with invalid_argument where there are gaps between elements, or where some overlap.
template <mdspan_like V>
auto elements(const V& view) {
    using T = typename V::element_type;
    constexpr bool plain =
        std::is_same_v<decltype(view.data_handle()), T*> || std::is_same_v<decltype(view.data_handle()), T* const&>;
    static_assert(plain && std::is_same_v<typename V::reference, T&>,
        "colls: this view computes its elements when they are read (its accessor is not std::default_accessor): a call "
        "needs them in memory");
    static_assert(detail::copies_as_bytes<std::remove_const_t<T>>(), "colls: elements must be trivially copyable");
    const auto extent = [&](int d) { return static_cast<long long>(view.extent(static_cast<std::size_t>(d))); };
    if (!view.is_exhaustive() || !view.is_unique()) {
        detail::error_text text;
        put_extents(text << "colls: a view of ", static_cast<int>(view.rank()), extent);
        detail::refuse_tensor(text << " elements "
                                   << (view.is_unique() ? "has gaps between them, and a typed call takes elements "
                                                          "without gaps: pass interop::strided(view) to a dynamic call"
                                                        : "has elements that overlap: copy it"));
    }
    std::size_t count = 1;
    for (std::size_t d = 0; d < view.rank(); ++d)
        count = detail::capped_product(count, static_cast<std::size_t>(view.extent(d)));
    if (count > detail::longest_memory) {
        detail::error_text text;
        put_extents(text << "colls: a view cannot have ", static_cast<int>(view.rank()), extent);
        detail::refuse_tensor(text << " elements");
    }
    return std::span<T>(view.data_handle(), count);
}

/// The elements of a view with any strides in the order of their indices, for dynamic calls: a strided_buffer, or a
/// strided_input of const elements. An element type without a code is bytes, which move, and are folded by bitwise
/// operators and functions.
///
/// Throws colls::error with invalid_argument where the view has no strides, or a stride of 0. Elements that overlap
/// otherwise are refused by the call that would write them.
template <mdspan_like V>
auto strided(const V& view) {
    using T = typename V::element_type;
    static_assert(has_strides<V>,
        "colls: the layout of this view has no strides, and a buffer's elements lie at equal distances in each "
        "dimension: copy it");
    static_assert(std::is_same_v<typename V::reference, T&>,
        "colls: this view computes its elements when they are read (its accessor is not std::default_accessor): a call "
        "needs them in memory");
    static_assert(detail::copies_as_bytes<std::remove_const_t<T>>(), "colls: elements must be trivially copyable");
    const int rank = static_cast<int>(view.rank());
    const auto extent = [&](int d) { return static_cast<long long>(view.extent(static_cast<std::size_t>(d))); };
    if (!view.is_strided()) {
        detail::error_text text;
        put_extents(text << "colls: a view of ", rank, extent);
        detail::refuse_tensor(text << " elements has no strides (is_strided() is false): copy it");
    }
    const auto stride = [&](int d) {
        if constexpr (has_strides<V>)
            return static_cast<long long>(view.stride(static_cast<std::size_t>(d)));
        else
            return 1LL;  // after the error above
    };
    auto layout = detail::layout_of(rank, extent, stride);
    T* const data = view.data_handle();
    const dynamic::element_type type = detail::element_type_of<std::remove_cv_t<T>>();
    using result = std::conditional_t<std::is_const_v<T>, strided_input, strided_buffer>;
    return result(data, type, std::move(layout));
}

}  // namespace interop
}  // namespace colls::inline v1
