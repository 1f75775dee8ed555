// Where each block lies in a buffer that has a block for each rank.
#pragma once

#include <colls/detail/support/sizes.hpp>

#include <cstddef>
#include <type_traits>

namespace colls::inline v1 {

/// One block of a buffer, in elements.
struct buffer_block {
    std::size_t offset = 0;  ///< of its first element
    std::size_t size = 0;    ///< its number of elements
    friend constexpr bool operator==(const buffer_block&, const buffer_block&) = default;
};

/// Block r of a buffer of `count` elements in n blocks, as every call without counts cuts it: the first count % n
/// blocks are longer by one. Throws invalid_argument where n < 1, or r is not in 0 to n - 1.
constexpr buffer_block block_of(std::size_t count, int n, int r) {
    if (n < 1 || r < 0 || r >= n) detail::throw_no_block(n, r);
    const detail::extent e = detail::balanced(count, static_cast<std::size_t>(n), static_cast<std::size_t>(r));
    return {e.first, e.count};
}

/// A range of all blocks of a buffer, each computed when it is read.
class buffer_blocks {
public:
    /// An input iterator over the blocks.
    class iterator {
    public:
        using value_type = buffer_block;
        using difference_type = std::ptrdiff_t;

        constexpr iterator() = default;
        constexpr iterator(std::size_t count, int n, int r) : count_(count), n_(n), r_(r) {}
        constexpr buffer_block operator*() const { return block_of(count_, n_, r_); }
        constexpr iterator& operator++() {
            ++r_;
            return *this;
        }
        constexpr iterator operator++(int) {
            const iterator before = *this;
            ++r_;
            return before;
        }
        friend constexpr bool operator==(const iterator&, const iterator&) = default;

    private:
        std::size_t count_ = 0;
        int n_ = 0, r_ = 0;
    };

    /// The blocks of `count` elements, n of them. Throws as block_of does.
    constexpr buffer_blocks(std::size_t count, int n) : count_(count), n_(n) {
        if (n < 1) detail::throw_no_block(n, 0);
    }
    constexpr iterator begin() const { return {count_, n_, 0}; }
    constexpr iterator end() const { return {count_, n_, n_}; }
    constexpr std::size_t size() const { return static_cast<std::size_t>(n_); }
    /// Block r. Throws as block_of does.
    constexpr buffer_block operator[](int r) const { return block_of(count_, n_, r); }

private:
    std::size_t count_;
    int n_;
};

/// The n blocks of a buffer of `count` elements. Throws invalid_argument where n < 1. (The overload for schedules,
/// blocks_of(s, n) in schedule.hpp, is the number of blocks that a schedule divides its data into.)
template <class Count>
    requires(std::is_integral_v<Count>)
constexpr buffer_blocks blocks_of(const Count& count, int n) {
    return {static_cast<std::size_t>(count), n};
}

}  // namespace colls::inline v1
