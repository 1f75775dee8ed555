// Buffers with known contents between guard elements, for the test kit of transports, and the error that the kit throws
// where a rank finds something wrong.
// IWYU pragma: private, include <colls/testing/transport.hpp>
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/communicator.hpp>
#include <colls/detail/support/hash.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace colls::inline v1::detail::testing {

/// What a rank has found wrong. It leaves the rank's function, so that the group breaks and `run` throws the text.
class finding : public std::runtime_error {
public:
    explicit finding(const std::string& text) : std::runtime_error("the kit found: " + text.substr(0, 300)) {}
};

// ---- numbers that all ranks derive alike ----

inline std::uint64_t hash(std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) {
    return hash_mix(hash_mix(hash_mix(0, a), b), c);
}
/// One of 0 ... bound - 1.
inline int draw(std::uint64_t seed, int bound) {
    return static_cast<int>(hash(seed) % static_cast<std::uint64_t>(bound));
}
inline std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// Element i of the data that belong to `seed`. compose_maps loses no information on it.
template <class T>
T element(std::uint64_t seed, std::size_t i) {
    std::uint64_t x = (seed + i) * 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
    return static_cast<T>((x ^ x >> 32) | std::uint64_t{1} << 4 * sizeof(T));
}

/// An operator that is associative and does not commute. Elements are maps x -> a x + b of the integers modulo 2^h, a
/// in the upper half, b in the lower; maps whose a is odd are invertible, so no operand is lost in a fold.
struct compose_maps {
    template <class T>
    constexpr T operator()(const T& x, const T& y) const {
        constexpr int half = 4 * sizeof(T);
        constexpr std::uint64_t low = (std::uint64_t{1} << half) - 1;
        const std::uint64_t xa = std::uint64_t{x} >> half, xb = x & low, ya = std::uint64_t{y} >> half, yb = y & low;
        return static_cast<T>((xa * ya & low) << half | ((xa * yb + xb) & low));
    }
};

/// `count` elements between guards, in memory from communicator::allocate or from the heap.
template <class T>
class guarded_buffer {
public:
    guarded_buffer(communicator& comm, std::size_t count, bool from_group) : count_(count) {
        if (from_group) {
            of_group_.emplace(comm.allocate<T>(count + 2 * guards));
            const auto at = reinterpret_cast<std::uintptr_t>(whole());
            if (at % 128 != 0) throw finding("memory from allocate is not aligned to 128 bytes");
        } else {
            heap_.resize(count + 2 * guards);
        }
        std::fill_n(whole(), count + 2 * guards, guard);
    }
    T* data() { return whole() + guards; }
    std::size_t size() const { return count_; }
    bool intact() {
        const auto is_guard = [](T x) { return x == guard; };
        return std::all_of(whole(), data(), is_guard) &&
               std::all_of(data() + count_, data() + count_ + guards, is_guard);
    }

private:
    static constexpr T guard = static_cast<T>(0xa5a5a5a5a5a5a5a5ull);
    static constexpr std::size_t guards = 64 / sizeof(T);
    T* whole() { return of_group_ ? of_group_->data() : heap_.data(); }
    std::size_t count_;
    std::optional<memory<T>> of_group_;
    std::vector<T> heap_;
};

}  // namespace colls::inline v1::detail::testing
