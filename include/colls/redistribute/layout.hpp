// Which rank of a group holds which elements of a matrix: rows, columns, blocks, replicas.
#pragma once

#include <colls/blocks.hpp>
#include <colls/detail/support/sizes.hpp>
#include <colls/redistribute/detail/refuse_layout.hpp>
#include <colls/step.hpp>

#include <cstddef>
#include <type_traits>

namespace colls::inline v1 {

/// A matrix of rows x columns elements. A vector is a matrix of one row; a tensor of more dimensions counts as a matrix
/// of its first dimension by all others.
struct tensor_shape {
    std::size_t rows = 1;     ///< elements of a column
    std::size_t columns = 1;  ///< elements of a row
    friend constexpr bool operator==(const tensor_shape&, const tensor_shape&) = default;
};

/// Ranks first, first + stride, ...: `count` of them.
struct rank_range {
    int first = 0;   ///< the lowest of them
    int count = 1;   ///< how many there are
    int stride = 1;  ///< from one to the next
};

/// A rectangle of a matrix. A rank stores the rectangle that it holds densely, row by row.
struct tensor_block {
    std::size_t row = 0;      ///< its first row
    std::size_t rows = 0;     ///< its number of rows
    std::size_t column = 0;   ///< its first column
    std::size_t columns = 0;  ///< its number of columns
    /// Its number of elements.
    constexpr std::size_t size() const { return rows * columns; }
    friend constexpr bool operator==(const tensor_block&, const tensor_block&) = default;
};

/// How rows, or columns, are cut into consecutive parts: balanced as by block_of, or of given sizes.
struct partition {
    static constexpr int most_given = 64;  ///< parts of given sizes, at most

    std::size_t extent = 1;             ///< rows, or columns, of the matrix
    int parts = 1;                      ///< how many it is cut into
    bool given = false;                 ///< by sizes, else balanced
    std::size_t ends[most_given] = {};  ///< of the parts, where their sizes are given

    /// Part i, 0 <= i < parts.
    constexpr buffer_block block(int i) const {
        if (!given) return block_of(extent, parts, i);
        const std::size_t begin = i == 0 ? 0 : ends[i - 1];
        return {begin, ends[i] - begin};
    }
    friend constexpr bool operator==(const partition&, const partition&) = default;
};

/// A layout cuts the rows and the columns of a matrix into parts and gives each rectangle, row by row of rectangles, to
/// the next rank of a range; `replicated` repeats this for further ranks. A constant that is made by the functions
/// below; its members are public so that it can be a template argument.
///
///     constexpr auto trained = colls::layout::by_rows({1000, 300}, {.first = 0, .count = 4});
///     constexpr auto served = colls::layout::by_columns({1000, 300}, {.first = 4, .count = 2}).replicated(2);
///
/// Here rank 1 holds rows 250 to 499, and ranks 5 and 7 hold columns 150 to 299. Parts may be empty. Functions that
/// make layouts throw invalid_argument where their arguments are wrong; in a constant that is a compile error.
struct layout {
    partition rows;     ///< how rows are cut
    partition columns;  ///< how columns are cut
    int replicas = 1;   ///< how often each rectangle is held
    int first = 0;      ///< the lowest rank
    int stride = 1;     ///< from a rank to the next

    /// Rows over ranks: rank i of the range has the i-th of ranks.count blocks of rows.
    static constexpr layout by_rows(const tensor_shape& shape, const rank_range& ranks) {
        return over(shape, ranks.count, 1, ranks.first, ranks.stride);
    }
    /// Columns over ranks.
    static constexpr layout by_columns(const tensor_shape& shape, const rank_range& ranks) {
        return over(shape, 1, ranks.count, ranks.first, ranks.stride);
    }
    /// A grid of `down` x `across` rectangles: that at (i, j) is held by rank first + (i * across + j) * stride.
    static constexpr layout by_blocks(const tensor_shape& shape, int down, int across, int first = 0, int stride = 1) {
        return over(shape, down, across, first, stride);
    }
    /// All of it on each rank of the range.
    static constexpr layout whole(const tensor_shape& shape, const rank_range& ranks = {}) {
        return over(shape, 1, 1, ranks.first, ranks.stride).replicated(ranks.count);
    }

    /// The same `times` times: replica k is held by the ranks that follow those of replica k - 1.
    constexpr layout replicated(int times) const {
        if (times < 1) detail::refuse_layout("there is one replica at least");
        layout l = *this;
        expect_numbers(l, ranks(), times);
        l.replicas *= times;
        return l;
    }
    /// The same with this many rows for each block of rows: a size for each, partition::most_given at most, that add up
    /// to the rows of the matrix. `sizes`: a range of integers.
    template <class Sizes>
    constexpr layout with_row_sizes(const Sizes& sizes) const {
        layout l = *this;
        cut(l.rows, sizes);
        return l;
    }
    /// The same, of sizes in braces.
    template <class Size, std::size_t N>
    constexpr layout with_row_sizes(const Size (&sizes)[N]) const {
        layout l = *this;
        cut(l.rows, sizes);
        return l;
    }
    /// The same with this many columns for each block of columns.
    template <class Sizes>
    constexpr layout with_column_sizes(const Sizes& sizes) const {
        layout l = *this;
        cut(l.columns, sizes);
        return l;
    }
    /// The same, of sizes in braces.
    template <class Size, std::size_t N>
    constexpr layout with_column_sizes(const Size (&sizes)[N]) const {
        layout l = *this;
        cut(l.columns, sizes);
        return l;
    }

    /// The matrix.
    constexpr tensor_shape shape() const { return {rows.extent, columns.extent}; }
    /// Rectangles, without replicas.
    constexpr int parts() const { return rows.parts * columns.parts; }
    /// Ranks of the layout.
    constexpr int ranks() const { return parts() * replicas; }
    /// The least group size that has all ranks of the layout.
    constexpr int group_size() const { return rank_at(ranks() - 1) + 1; }
    /// The rank with that index among the layout's: replica * parts() + part.
    constexpr int rank_at(int index) const { return first + index * stride; }
    /// The inverse, or none where the layout does not have the rank.
    constexpr int index_of(int rank) const {
        const int at = rank - first;
        return at < 0 || at % stride != 0 || at / stride >= ranks() ? none : at / stride;
    }
    /// The number of the rectangle that a rank holds, or none.
    constexpr int part_of(int rank) const {
        const int index = index_of(rank);
        return index == none ? none : index % parts();
    }
    /// A rectangle by its number.
    constexpr tensor_block part(int number) const {
        const buffer_block r = rows.block(number / columns.parts), c = columns.block(number % columns.parts);
        return {r.offset, r.size, c.offset, c.size};
    }
    /// What a rank holds; nothing where the layout does not have the rank.
    constexpr tensor_block held_by(int rank) const {
        const int number = part_of(rank);
        return number == none ? tensor_block{} : part(number);
    }
    /// The length of a rank's buffer, in elements.
    constexpr std::size_t size_of(int rank) const { return held_by(rank).size(); }

    friend constexpr bool operator==(const layout&, const layout&) = default;

private:
    static constexpr layout over(const tensor_shape& shape, int down, int across, int first, int stride) {
        if (down < 1 || across < 1) detail::refuse_layout("there is one rank at least");
        if (first < 0 || stride < 1) detail::refuse_layout("the first rank is at least 0, and the stride at least 1");
        layout l;
        l.rows = {.extent = shape.rows, .parts = down};
        l.columns = {.extent = shape.columns, .parts = across};
        l.first = first;
        l.stride = stride;
        expect_numbers(l, down, across);
        return l;
    }
    /// Elements and ranks can be counted: `parts` times `times`, and the last one's rank.
    static constexpr void expect_numbers(const layout& l, int parts, int times) {
        if (detail::capped_product(l.rows.extent, l.columns.extent) > detail::longest_memory)
            detail::refuse_layout("the matrix has 2^63 elements or more");
        int ranks = 0, last = 0;
        if (__builtin_mul_overflow(parts, times, &ranks) || __builtin_mul_overflow(ranks, l.stride, &last) ||
            __builtin_add_overflow(l.first, last, &last))
            detail::refuse_layout("there are 2^31 ranks or more");
    }
    template <class Sizes>
    static constexpr void cut(partition& p, const Sizes& sizes) {
        int part = 0;
        std::size_t end = 0;
        for (const auto& size : sizes) {
            if (part == p.parts || part == partition::most_given)
                detail::refuse_layout("more sizes are given than there are parts, or than 64");
            if constexpr (std::is_signed_v<std::remove_cvref_t<decltype(size)>>)
                if (size < 0) detail::refuse_layout("a size is negative");
            p.ends[part++] = end = detail::capped_sum(end, static_cast<std::size_t>(size));
        }
        if (part != p.parts) detail::refuse_layout("fewer sizes are given than there are parts");
        if (end != p.extent) detail::refuse_layout("the sizes do not add up to the extent of the matrix");
        p.given = true;
    }
};

}  // namespace colls::inline v1
