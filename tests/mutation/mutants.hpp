// What scripts/mutate puts into the headers: each place of a mutant calls one of these with the mutant's number, and
// does what the code says unless COLLS_MUTANT names that number. So all mutants are compiled once. Constant expressions
// are never mutated. COLLS_MUTANTS_REACHED names a file of a byte for each number, in which a place that is reached
// sets its byte: to 1, or to 2 where there is no mutant.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <type_traits>

namespace colls_mutants {

inline int read_active() {
    const char* const text = std::getenv("COLLS_MUTANT");
    return text == nullptr ? 0 : std::atoi(text);
}

// Shared between the processes of a test, so that a rank which is killed has left what it reached.
inline unsigned char* map_reached() {
    const char* const path = std::getenv("COLLS_MUTANTS_REACHED");
    const int file = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    struct stat of_file{};
    void* at = MAP_FAILED;
    if (fstat(file, &of_file) == 0) {
        at = mmap(nullptr, static_cast<std::size_t>(of_file.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    close(file);
    return at == MAP_FAILED ? nullptr : static_cast<unsigned char*>(at);
}

inline const int active = read_active();
inline unsigned char* const reached = map_reached();

inline bool is_active(int id) {
    if (reached != nullptr) std::atomic_ref(reached[id]).store(1, std::memory_order_relaxed);
    return id == active;
}

// At a place where the mutant would not compile: of two types, or of a type that has no such operator.
inline void no_mutant(int id) {
    if (reached == nullptr) return;
    unsigned char not_reached = 0;
    std::atomic_ref(reached[id]).compare_exchange_strong(not_reached, 2, std::memory_order_relaxed);
}

constexpr bool on(int id) {
    if (std::is_constant_evaluated()) return false;
    return is_active(id);
}

// In a condition, where the code has `condition`.
constexpr bool negate(int id, bool condition) { return on(id) != condition; }

// 1, and 0 in the mutant.
constexpr int one(int id) { return on(id) ? 0 : 1; }

// The first argument, and in the mutant the second, where both have one type.
template <class T>
constexpr T& pick(int id, T& first, T& second) {
    return on(id) ? second : first;
}
template <class T, class U>
    requires(!std::is_same_v<T, U>)
constexpr T& pick(int id, T& first, U&) {
    if (!std::is_constant_evaluated()) no_mutant(id);
    return first;
}

// The variable, and in the mutant a copy of it, so that it keeps its value.
template <class T>
T& copy_of(int id, T& x) {
    if constexpr (std::is_trivially_copyable_v<T>) {
        thread_local T copy;
        if (on(id)) return copy = x;
    } else {
        no_mutant(id);
    }
    return x;
}

inline std::memory_order order(int id, std::memory_order of_code) {
    return on(id) ? std::memory_order_relaxed : of_code;
}

template <class U>
    requires(std::is_integral_v<U> && !std::is_same_v<U, bool>)
constexpr U one_less(const U& x) {
    return static_cast<U>(x - 1);
}
// A term of sums that are numbers or pointers, not texts.
template <class Sum, class T>
    requires(std::is_convertible_v<T, Sum> && (std::is_arithmetic_v<Sum> || std::is_pointer_v<Sum>))
constexpr Sum term(const T& x) {
    return static_cast<Sum>(x);
}

// `a < b` is written `a < less{id} < b`: of the same precedence, whatever a and b are. So are the other operators.
// Inline, since a function for a newer processor passes vectors otherwise than one for any.
template <class T>
struct left {
    const T& value;
    int id;
};
#define COLLS_MUTANTS_INFIX(name, operation, ...)                                                           \
    struct name {                                                                                           \
        int id;                                                                                             \
    };                                                                                                      \
    template <class T>                                                                                      \
    struct left_of_##name : left<T> {};                                                                     \
    template <class T>                                                                                      \
    [[gnu::always_inline]] constexpr left_of_##name<T> operator operation(const T & value, name at) {       \
        return {{value, at.id}};                                                                            \
    }                                                                                                       \
    template <class T, class U>                                                                             \
    [[gnu::always_inline]] constexpr auto operator operation(left_of_##name<T> x, const U& b) {             \
        const T& a = x.value;                                                                               \
        using result = decltype(a operation b);                                                             \
        if constexpr (requires { requires std::is_same_v<result, std::decay_t<decltype(__VA_ARGS__)>>; }) { \
            if (on(x.id)) return __VA_ARGS__;                                                               \
        } else if (!std::is_constant_evaluated()) {                                                         \
            no_mutant(x.id);                                                                                \
        }                                                                                                   \
        return a operation b;                                                                               \
    }
COLLS_MUTANTS_INFIX(less, <, a <= b)
COLLS_MUTANTS_INFIX(less_equal, <=, a < b)
COLLS_MUTANTS_INFIX(greater, >, a >= b)
COLLS_MUTANTS_INFIX(greater_equal, >=, a > b)
COLLS_MUTANTS_INFIX(equal, ==, a != b)
COLLS_MUTANTS_INFIX(unequal, !=, a == b)
COLLS_MUTANTS_INFIX(plus, +, a - b)
COLLS_MUTANTS_INFIX(minus, -, a + b)
COLLS_MUTANTS_INFIX(less_one_off, <, a < one_less(b))
COLLS_MUTANTS_INFIX(less_equal_one_off, <=, a <= one_less(b))
COLLS_MUTANTS_INFIX(greater_one_off, >, a > one_less(b))
COLLS_MUTANTS_INFIX(greater_equal_one_off, >=, a >= one_less(b))
COLLS_MUTANTS_INFIX(plus_nothing, +, term<result>(a))
COLLS_MUTANTS_INFIX(minus_nothing, -, term<result>(a))
COLLS_MUTANTS_INFIX(nothing_plus, +, term<result>(b))
#undef COLLS_MUTANTS_INFIX

}  // namespace colls_mutants
