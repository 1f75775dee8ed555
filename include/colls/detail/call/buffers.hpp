// What may be passed as a buffer or an operator, and the messages of the compiler where something else is.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/reduce/fold.hpp>

#include <concepts>
#include <cstddef>
#include <string_view>  // and std::ranges::enable_borrowed_range: <ranges> itself costs more than all of the calls
#include <type_traits>
#include <utility>

namespace colls::inline v1::detail {

template <class R>
concept buffer_like = std::is_array_v<std::remove_reference_t<R>> || requires(R& r) {
    *r.data();
    { r.size() } -> std::convertible_to<std::size_t>;
};
/// The type of an argument that is a list in braces, which has none: so that `expect_buffers` can reject it in words.
struct braces {
    template <class... T>
    braces(T&&...) {}
};

/// The element type of a buffer. That of anything else is no_element, so that one message is all the compiler says.
struct no_element {};
template <class R>
struct element {
    using type = no_element;
};
template <buffer_like R>
struct element<R> {
    using type = std::remove_reference_t<decltype(*std::data(std::declval<R&>()))>;
};
template <class R>
using element_of = typename element<std::remove_reference_t<R>>::type;

// Each of the following is false where it has found an error, which a static_assert then reports: the caller compiles
// nothing further, so that no other error follows from that one.

/// Buffers that were passed as X&&... `keeps`: the call uses them after the statement that makes it.
template <bool keeps, class... X>
constexpr bool expect_buffers() {
    constexpr bool are_buffers = (buffer_like<std::remove_reference_t<X>> && ...);
    static_assert(are_buffers,
        "colls: a buffer is a contiguous range, such as std::vector, std::array or std::span; for a pointer and a "
        "count write std::span(p, n), for one value std::span(&x, 1)");
    // An lvalue, or a view, outlives the statement.
    constexpr bool live =
        !keeps ||
        ((std::is_lvalue_reference_v<X> || std::ranges::enable_borrowed_range<std::remove_cvref_t<X>>) && ...);
    static_assert(live,
        "colls: this buffer is a temporary, and a started or prepared call uses its buffers after the statement that "
        "makes it: give the buffer a name");
    return are_buffers && live;
}
/// An input and an output.
template <bool keeps, class In, class Out>
constexpr bool expect_in_and_out() {
    if constexpr (expect_buffers<keeps, In, Out>()) {
        using T = element_of<Out>;
        static_assert(!std::is_const_v<T>, "colls: the output buffer is const");
        constexpr bool alike = std::is_same_v<std::remove_const_t<element_of<In>>, std::remove_const_t<T>>;
        static_assert(alike, "colls: input and output must be of one element type");
        static_assert(copies_as_bytes<T>(), "colls: elements must be trivially copyable, or pairs or tuples of such");
        return !std::is_const_v<T> && alike && copies_as_bytes<T>();
    }
    return false;
}
/// An input, an output and an operator.
template <bool keeps, bool scan, class In, class Out, class Op>
constexpr bool expect_fold() {
    if constexpr (expect_in_and_out<keeps, In, Out>()) {
        using T = element_of<Out>;
        constexpr bool is_function = std::is_function_v<Op>;
        static_assert(!is_function, "colls: this operator is a function: pass its address, &f");
        if constexpr (!is_function) {
            constexpr bool takes = operator_on<Op, T> || (folds_at_once<Op, T>() && !scan),
                           fits = !takes || !scan || !has_finish<Op, T>;
            static_assert(
                takes, "colls: this operator does not take this element type: it must be const-callable as T(T, T)");
            static_assert(fits,
                "colls: a scan has no use for an operator with a last step, such as avg: the ranks' results are of "
                "different numbers of contributions");
            return takes && fits;
        }
    }
    return false;
}

}  // namespace colls::inline v1::detail
