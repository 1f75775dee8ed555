// A small, fast, seedable generator, the same on every platform (the standard distributions are not).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace support {

/// Whether a sanitizer is on: tests then try less, since everything is slower.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TESTS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define TESTS_SANITIZED 1
#endif
#endif
#ifdef TESTS_SANITIZED
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
/// ThreadSanitizer does not follow processes that a program with threads forks.
#if defined(__SANITIZE_THREAD__)
#define TESTS_SANITIZED_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TESTS_SANITIZED_THREADS 1
#endif
#endif
#ifdef TESTS_SANITIZED_THREADS
inline constexpr bool sanitized_threads = true;
#else
inline constexpr bool sanitized_threads = false;
#endif

/// splitmix64 (Steele, Lea, Flood 2014).
class random_source {
public:
    explicit random_source(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    /// Uniform in [0, bound), bound > 0.
    std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
    /// Uniform in [low, high].
    int between(int low, int high) { return low + static_cast<int>(below(static_cast<std::size_t>(high - low + 1))); }
    bool one_in(std::size_t k) { return below(k) == 0; }
    /// Uniform in [0, 1).
    double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

    template <class Range>
    auto& pick(Range& from) {
        return from[below(from.size())];
    }

private:
    std::uint64_t state_;
};

/// A generator for (seed, a, b), independent of those for other arguments.
inline random_source stream(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0) {
    random_source first(seed ^ (a * 0xd1342543de82ef95u) ^ (b * 0xaf251af3b0f025b5u + 1));
    return random_source(first.next());
}

/// An integer from the environment, or `otherwise`.
inline std::uint64_t setting(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text && *text ? std::strtoull(text, nullptr, 0) : otherwise;
}

/// scripts/test --long: tests try more of everything; sweeps take every size, of which the others take a selection.
inline const bool long_run = setting("COLLS_TEST_LONG", 0) != 0;

}  // namespace support
