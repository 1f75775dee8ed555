// What exact sums need of floating point, whatever options a unit is compiled with and whatever mode the processor is
// in. Each unit's copy of a function is right by itself: a program may keep any of them.
// IWYU pragma: private, include <colls/exact.hpp>
#pragma once

#include <colls/config.hpp>

#include <cstdint>
#include <cstring>
#if !defined(__x86_64__) && !defined(__aarch64__)
#include <cfenv>
#endif

#if !defined(__CUDA_ARCH__) && defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "colls: exact sums need float and double without excess precision: compile without -mfpmath=387"
#endif

namespace colls::inline v1::detail {

/// Keeps a compiler from regrouping: under -ffast-math it makes x of (x + c) - c, and -0 of 0 + -0. It cannot where it
/// knows nothing of a value; so a value is combined with a zero of which it knows nothing.
class regrouping_fence {
public:
    [[gnu::always_inline]] regrouping_fence() {
#if defined(__GNUC__)
        asm("" : "+r"(zero_));
#endif
    }
    /// Makes x zeros. Number: double, or a vector of them. Bits: a vector of 64-bit integers of that size, or one.
    template <class Bits, class Number>
    [[gnu::always_inline]] void clear(Number& x) const {
        x = __builtin_bit_cast(Number, Bits{} + zero_);
    }
    /// What is computed from x is not regrouped with what x was computed from.
    template <class Bits, class Number>
    [[gnu::always_inline]] void after(Number& x) const {
#if defined(__clang__) && defined(__x86_64__)
        x = __arithmetic_fence(x);
#elif defined(__clang__) || defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__)
        Bits bits;  // (clang has no macro for -fassociative-math, and no other fence elsewhere)
        std::memcpy(&bits, &x, sizeof bits);
        bits ^= Bits{} + zero_;
        std::memcpy(&x, &bits, sizeof bits);
#else
        static_cast<void>(x);
#endif
    }

private:
    std::uint64_t zero_ = 0;
};

/// While it lives, the thread rounds to nearest and flushes no subnormals. Only what is loaded after it was made, and
/// stored before it ends, is computed so.
class nearest_rounding {
#if defined(__x86_64__)
    using word = std::uint32_t;
    static constexpr word mode = 0xe040;  // the rounding, flushing of results, of operands
    static word control() {
        word w;
        asm volatile("stmxcsr %0" : "=m"(w) : : "memory");
        return w;
    }
    static void set_control(word w) { asm volatile("ldmxcsr %0" : : "m"(w) : "memory"); }
#elif defined(__aarch64__)
    using word = std::uint64_t;
    static constexpr word mode = 0x1c00001;
    static word control() {
        word w;
        asm volatile("mrs %0, fpcr" : "=r"(w) : : "memory");
        return w;
    }
    static void set_control(word w) { asm volatile("msr fpcr, %0" : : "r"(w) : "memory"); }
#else
    using word = int;
    static constexpr word mode = -1;
    static word control() { return std::fegetround() ^ FE_TONEAREST; }
    static void set_control(word w) { std::fesetround(w ^ FE_TONEAREST); }
#endif

public:
    nearest_rounding() : before_(control()) {
        if ((before_ & mode) != 0) set_control(before_ & ~mode);
    }
    ~nearest_rounding() {
        if ((before_ & mode) != 0) set_control((control() & ~mode) | (before_ & mode));
    }
    nearest_rounding(const nearest_rounding&) = delete;
    nearest_rounding& operator=(const nearest_rounding&) = delete;

private:
    word before_;
};

}  // namespace colls::inline v1::detail
