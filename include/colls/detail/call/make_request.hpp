// From the typed arguments of a call to a request or a message.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/call/buffers.hpp>
#include <colls/detail/reduce/known_folds.hpp>
#include <colls/detail/request/request.hpp>
#include <colls/detail/support/type_name.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace colls::inline v1::detail {

template <class T>
inline constexpr std::string_view type_text = type_name<T>();
template <class T>
inline constexpr std::uint64_t type_hash = hash_text(type_text<T>);

template <class T>
void set_type(call& c) {
    c.element = sizeof(T);
    c.type = &type_text<std::remove_const_t<T>>;
    c.signature = hash_mix(c.signature, type_hash<std::remove_const_t<T>>);
}
template <class In, class Out>
void set_buffers(request& q, In& in, Out& out) {
    set_type<element_of<Out>>(q.c);
    q.c.in = reinterpret_cast<const std::byte*>(data_of(in));
    q.in_count = size_of_buffer(in);
    q.c.out = reinterpret_cast<std::byte*>(data_of(out));
    q.out_count = size_of_buffer(out);
}
/// `keeps`: the call outlives the operator, and so needs a copy of one that has a state.
template <bool keeps, class T, class Op>
void set_operator(request& q, const Op& op) {
    q.c.op = &op_table_for<T, Op>;
    q.c.op_type = &type_text<Op>;
    q.c.signature = hash_mix(q.c.signature, type_hash<Op>);
    q.c.op_value = &op;  // not read where the operator is empty
    if constexpr (keeps && !std::is_empty_v<Op>) {
        q.copy_op = [](const void* from) -> void* { return new Op(*static_cast<const Op*>(from)); };
        q.drop_op = [](void* copy) { delete static_cast<Op*>(copy); };
    }
}
template <class Counts>
void set_counts(request& q, list<std::size_t>& to, const Counts& counts) {
    using I = std::remove_const_t<element_of<const Counts>>;
    static_assert(std::is_integral_v<I>, "colls: counts are a contiguous range of integers");
    if constexpr (std::is_integral_v<I>) {
        const auto* const at = data_of(counts);
        for (std::size_t i = 0; i < size_of_buffer(counts); ++i) {
            if constexpr (std::is_signed_v<I>) q.negative = q.negative || at[i] < 0;
            to.push_back(static_cast<std::size_t>(at[i]));
        }
    }
    q.with_counts = true;
}

/// A message to be sent, out of a buffer that was passed as X&&.
template <bool keeps, class X>
call sent_message(X& data) {
    call c;
    if constexpr (constexpr bool is = expect_buffers<keeps, X>(); is) {
        set_type<element_of<const X>>(c);
        c.in = reinterpret_cast<const std::byte*>(data_of(data));
        c.count = size_of_buffer(data);
    }
    return c;
}
/// A message to be received, into a buffer that was passed as X&&.
template <bool keeps, class X>
call received_message(X& data) {
    call c;
    if constexpr (constexpr bool is = expect_in_and_out<keeps, X, X>(); is) {
        set_type<element_of<X>>(c);
        c.out = reinterpret_cast<std::byte*>(data_of(data));
        c.count = size_of_buffer(data);
    }
    return c;
}

}  // namespace colls::inline v1::detail
