// From the typed arguments of a call to a request or a message.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/call/buffers.hpp>
#include <colls/detail/reduce/known_folds.hpp>
#include <colls/detail/request/request.hpp>
#include <colls/detail/support/hash.hpp>
#include <colls/detail/support/type_name.hpp>
#include <colls/operators.hpp>
#include <colls/types.hpp>

#include <dlfcn.h>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>

namespace colls::inline v1::detail {

template <class T>
inline constexpr std::string_view type_text = type_name<T>();
template <>
inline constexpr std::string_view type_text<bfloat16> = "colls::v1::bfloat16";
template <>
inline constexpr std::string_view type_text<half> = "colls::v1::half";
/// "value_index<float, int>". g++ spells the default argument out or leaves it out, by how a unit first wrote the type.
template <class T, class I>
struct pair_name {
    static constexpr std::string_view before = "value_index<", value = type_text<T>, index = type_text<I>;
    char text[before.size() + value.size() + index.size() + 3] = {};
    constexpr pair_name() {
        char* to = text;
        for (const std::string_view part : {before, value, std::string_view(", "), index, std::string_view(">")})
            for (const char c : part) *to++ = c;
    }
};
template <class T, class I>
inline constexpr pair_name<T, I> pair_name_of;
template <class T, class I>
inline constexpr std::string_view type_text<value_index<T, I>>{pair_name_of<T, I>.text, sizeof pair_name_of<T, I>.text};

/// The name of a type, which ranks compare, with its hash.
struct hashed_name {
    const std::string_view* text = nullptr;
    std::uint64_t hash = 0;
};
template <class T>
inline constexpr hashed_name name_of_type{&type_text<T>, hash_text(type_text<T>)};

// What tells an operator from another one of the same spelling: two lambdas of a function, two functions of a type.

/// The place of a function in the program or library that it is in: the same in processes of one program.
inline std::uint64_t place_of_function(const void* f) {
    thread_local const void* last = nullptr;
    thread_local std::uint64_t place = 0;
    if (f == last) return place;  // looking it up takes a microsecond
    Dl_info in{};
    const bool known = dladdr(f, &in) != 0 && in.dli_fbase != nullptr;
    last = f;
    return place = reinterpret_cast<std::uintptr_t>(f) - (known ? reinterpret_cast<std::uintptr_t>(in.dli_fbase) : 0);
}
template <class F>
concept function_pointer = std::is_pointer_v<F> && std::is_function_v<std::remove_pointer_t<F>>;
/// What ranks compare of an operator beside its type: which function it is.
template <function_pointer F>
std::uint64_t place_of(const F& f) {
    return place_of_function(reinterpret_cast<const void*>(f));
}
template <function_pointer F>
std::uint64_t place_of(const commutative_operator<F>& op) {
    return place_of(op.function);
}

inline void set_type(call& c, std::size_t element, const hashed_name& name) {
    c.element = element;
    c.type = name.text;
    c.signature = hash_mix(c.signature, name.hash);
}
template <class In, class Out>
void set_buffers(request& q, In& in, Out& out) {
    set_type(q.c, sizeof(element_of<Out>), name_of_type<std::remove_const_t<element_of<Out>>>);
    q.c.in = reinterpret_cast<const std::byte*>(std::data(in));
    q.in_count = static_cast<std::size_t>(std::size(in));
    q.c.out = reinterpret_cast<std::byte*>(std::data(out));
    q.out_count = static_cast<std::size_t>(std::size(out));
}
/// After the type. `keeps`: the call outlives the operator, and so needs a copy of one that has a state.
template <bool keeps, class Op>
void set_operator(request& q, const op_table& table, const hashed_name& name, const Op& op) {
    q.c.op = &table;
    q.c.op_type = name.text;
    q.c.signature = hash_mix(q.c.signature, name.hash);
    if constexpr (requires { place_of(op); }) q.c.signature = hash_mix(q.c.signature, place_of(op));
    q.c.op_value = &op;  // not read where the operator is empty
    if constexpr (keeps && !std::is_empty_v<Op>) {
        q.copy_op = [](const void* from) -> void* { return new Op(*static_cast<const Op*>(from)); };
        q.drop_op = [](void* copy) { delete static_cast<Op*>(copy); };
    }
}
/// What ranks compare of a type that contains a lambda: "lambda 5f3a, main()::<lambda(int, int)>", with a number from
/// the type's mangled name, which counts the lambdas of a function and is the same in every process. Without run-time
/// type information it is the spelling.
template <class Op>
const hashed_name& name_of_lambda() {
    static const std::string text = [] {
        std::string made;
#ifdef __cpp_rtti
        const std::uint64_t number = hash_text(typeid(Op).name());
        made = "lambda ";
        for (const int shift : {12, 8, 4, 0}) made += "0123456789abcdef"[number >> shift & 15];
        made += ", ";
#endif
        return made.append(type_text<Op>);
    }();
    static const std::string_view view = text;
    static const hashed_name name{&view, hash_text(view)};
    return name;
}
template <bool keeps, class T, class Op>
void set_operator(request& q, const Op& op) {
    // The compiler's spelling of a lambda does not tell it from others of the same parameters.
    if constexpr (std::is_class_v<Op> && type_text<Op>.find("lambda") != std::string_view::npos)
        set_operator<keeps>(q, op_table_for<T, Op>, name_of_lambda<Op>(), op);
    else
        set_operator<keeps>(q, op_table_for<T, Op>, name_of_type<Op>, op);
}
template <class Counts>
void set_counts(request& q, list<std::size_t>& to, const Counts& counts) {
    using I = std::remove_const_t<element_of<const Counts>>;
    static_assert(std::is_integral_v<I>, "colls: counts are a contiguous range of integers");
    if constexpr (std::is_integral_v<I>) {
        const auto* const at = std::data(counts);
        for (std::size_t i = 0; i < static_cast<std::size_t>(std::size(counts)); ++i) {
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
        set_type(c, sizeof(element_of<const X>), name_of_type<std::remove_const_t<element_of<const X>>>);
        c.in = reinterpret_cast<const std::byte*>(std::data(data));
        c.count = static_cast<std::size_t>(std::size(data));
    }
    return c;
}
/// A message to be received, into a buffer that was passed as X&&.
template <bool keeps, class X>
call received_message(X& data) {
    call c;
    if constexpr (constexpr bool is = expect_in_and_out<keeps, X, X>(); is) {
        set_type(c, sizeof(element_of<X>), name_of_type<std::remove_const_t<element_of<X>>>);
        c.out = reinterpret_cast<std::byte*>(std::data(data));
        c.count = static_cast<std::size_t>(std::size(data));
    }
    return c;
}

}  // namespace colls::inline v1::detail
