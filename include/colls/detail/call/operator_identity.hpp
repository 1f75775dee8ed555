// What tells an operator from another one of the same spelling: two lambdas of a function, two functions of a type, two
// factors.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/support/hash.hpp>
#include <colls/operators.hpp>

#include <dlfcn.h>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>

namespace colls::inline v1::detail {

/// The compiler's spelling contains a lambda, which it does not tell from others of the same parameters.
template <class Op>
constexpr bool names_lambda(std::string_view spelled) {
    return std::is_class_v<Op> && spelled.find("lambda") != spelled.npos;
}
/// "lambda 5f3a, main()::<lambda(int, int)>": with a number from the type's mangled name, which counts the lambdas of a
/// function and is the same in every process. Without run-time type information it is the spelling.
template <class Op>
std::string lambda_text(std::string_view spelled) {
    std::string text;
#ifdef __cpp_rtti
    const std::uint64_t number = hash_text(typeid(Op).name());
    text = "lambda ";
    for (const int shift : {12, 8, 4, 0}) text += "0123456789abcdef"[number >> shift & 15];
    text += ", ";
#endif
    return text.append(spelled);
}

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
/// What ranks compare of an operator beside its type: which function it is. 0: nothing.
template <class Op>
constexpr std::uint64_t compared_state(const Op&) {
    return 0;
}
template <function_pointer F>
std::uint64_t compared_state(const F& f) {
    return place_of_function(reinterpret_cast<const void*>(f));
}
template <function_pointer F>
std::uint64_t compared_state(const commutative_operator<F>& op) {
    return compared_state(op.function);
}

}  // namespace colls::inline v1::detail
