// The elements of a buffer in the order in which a call takes them, and where they lie in memory.
// IWYU pragma: private, include <colls/dynamic.hpp>
#pragma once

#include <colls/detail/support/list.hpp>
#include <colls/detail/support/sizes.hpp>
#include <colls/dynamic/data_layout.hpp>
#include <colls/redistribute/detail/copy_rows.hpp>

#include <cstddef>
#include <cstdlib>

namespace colls::inline v1::detail {

/// In bytes.
class element_sequence {
public:
    /// `bytes` bytes in a row.
    explicit element_sequence(std::size_t bytes)
        : size_(bytes), extent_(bytes), is_beyond_memory_(bytes > longest_memory) {
        if (bytes > 0) blocks_.push_back({0, 1, bytes, bytes});
    }
    /// `count` repetitions of a layout of elements of `element` bytes.
    element_sequence(const dynamic::data_layout& l, std::size_t count, std::size_t element) : repeats_(count) {
        const std::size_t scale = l.unit_ == dynamic::unit::elements ? element : 1;
        if (count == 0 || l.size_ == 0) return;
        const std::size_t last = capped_product(count - 1, capped_product(l.extent_, scale));
        is_beyond_memory_ = capped_product(count, capped_product(l.size_, scale)) > longest_memory;
        for (const strided_blocks& b : l.blocks_) {
            const std::size_t end = capped_product(b.offset + (b.rows - 1) * b.stride + b.length, scale);
            is_beyond_memory_ = is_beyond_memory_ || capped_sum(last, end) > longest_memory;
        }
        if (is_beyond_memory_) return;
        size_ = l.size_ * scale;
        extent_ = l.extent_ * scale;
        for (const strided_blocks& b : l.blocks_) {
            blocks_.push_back({b.offset * scale, b.rows, b.length * scale, b.stride * scale});
            if (b.length * scale % element != 0) broken_block_ = b.length * scale;
        }
        merge_repetitions();
    }

    std::size_t bytes() const { return blocks_.empty() ? 0 : size_ * repeats_; }
    /// All lies in a row, where there are bytes `offset()` bytes from the buffer's address on.
    bool is_in_row() const { return blocks_.empty() || (repeats_ == 1 && blocks_.size() == 1 && blocks_[0].rows == 1); }
    std::size_t offset() const { return blocks_[0].offset; }
    /// It has more bytes, or reaches farther, than a memory is long. It has no blocks then.
    bool is_beyond_memory() const { return is_beyond_memory_; }
    /// The bytes of a block that cuts an element, or 0.
    std::size_t broken_block() const { return broken_block_; }
    /// Is there a byte that belongs to two elements? Costs a sort of the blocks, of all repetitions where they lie
    /// among each other otherwise than as the columns of a matrix do.
    bool overlaps_itself() const;

    /// Copies the `bytes` bytes of the sequence from byte `first` on to `packed`, or from there.
    template <bool packs>
    void copy(std::byte* memory, std::size_t first, std::size_t bytes, std::byte* packed) const {
        if (bytes == 0) return;
        memory += first / size_ * extent_;
        first %= size_;
        for (;; memory += extent_)
            for (const strided_blocks& b : blocks_) {
                if (first >= b.rows * b.length) {
                    first -= b.rows * b.length;
                    continue;
                }
                const std::size_t n = least(b.rows * b.length - first, bytes);
                copy_of_block<packs>(memory, b, first, n, packed);
                packed += n;
                bytes -= n;
                first = 0;
                if (bytes == 0) return;
            }
    }

private:
    static constexpr std::size_t least(std::size_t a, std::size_t b) { return a < b ? a : b; }
    /// Repetitions of one block are more rows of it.
    void merge_repetitions() {
        if (blocks_.size() != 1) return;
        strided_blocks& b = blocks_[0];
        if (b.rows == 1)
            b.rows = repeats_, b.stride = extent_;
        else if (repeats_ == 1 || extent_ == b.rows * b.stride)
            b.rows *= repeats_;
        else
            return;
        size_ *= repeats_;
        repeats_ = 1;
        if (b.rows == 1 || b.stride != b.length) return;
        b.length *= b.rows;
        b.rows = 1;
    }
    template <bool packs>
    static void copy_piece(std::byte* at, std::size_t stride, std::size_t rows, std::size_t bytes, std::byte* packed) {
        if constexpr (packs)
            copy_rows(packed, bytes, at, stride, rows, bytes);
        else
            copy_rows(at, stride, packed, bytes, rows, bytes);
    }
    /// The bytes `first` to first + bytes of one block, whose rows they may cut.
    template <bool packs>
    static void copy_of_block(
        std::byte* memory, const strided_blocks& b, std::size_t first, std::size_t bytes, std::byte* packed) {
        std::byte* at = memory + b.offset + first / b.length * b.stride;
        if (const std::size_t skip = first % b.length; skip > 0) {
            const std::size_t n = least(b.length - skip, bytes);
            copy_piece<packs>(at + skip, 0, 1, n, packed);
            at += b.stride, packed += n, bytes -= n;
        }
        const std::size_t rows = bytes / b.length, rest = bytes % b.length;
        copy_piece<packs>(at, b.stride, rows, b.length, packed);
        if (rest > 0) copy_piece<packs>(at + rows * b.stride, 0, 1, rest, packed + rows * b.length);
    }

    list<strided_blocks> blocks_;
    std::size_t size_ = 0, extent_ = 0, repeats_ = 1;
    std::size_t broken_block_ = 0;
    bool is_beyond_memory_ = false;
};

/// From `begin` to before `end`; `of` is its owner's.
struct span_of_bytes {
    std::size_t begin, end, of;
};
/// Sorts spans that are not empty by where they begin. Returns the index of the first that overlaps the one before it,
/// or 0. (std::qsort, since std::sort would cost the unit a tenth of a second.)
inline std::size_t first_overlap(list<span_of_bytes>& spans) {
    if (!spans.empty())
        std::qsort(spans.data(), spans.size(), sizeof(span_of_bytes), [](const void* a, const void* b) {
            const std::size_t x = static_cast<const span_of_bytes*>(a)->begin,
                              y = static_cast<const span_of_bytes*>(b)->begin;
            return x < y ? -1 : x > y ? 1 : 0;
        });
    for (std::size_t i = 1; i < spans.size(); ++i)
        if (spans[i].begin < spans[i - 1].end) return i;
    return 0;
}

inline bool element_sequence::overlaps_itself() const {
    // The repetitions after each other, and the blocks in each; or the repetitions of each row next to each other.
    list<span_of_bytes> blocks, rows, all;
    std::size_t first = ~std::size_t{0}, last = 0, longest = 0;
    bool rows_are_apart = true;
    for (const strided_blocks& b : blocks_) {
        const std::size_t end = b.offset + (b.rows - 1) * b.stride + b.length;
        blocks.push_back({b.offset, end, 0});
        first = b.offset < first ? b.offset : first;
        last = end > last ? end : last;
        longest = b.length > longest ? b.length : longest;
        rows_are_apart = rows_are_apart && (b.rows == 1 || b.stride >= b.length);
    }
    if (blocks.empty()) return false;
    if (rows_are_apart && (repeats_ == 1 || extent_ >= last - first) && !first_overlap(blocks)) return false;
    const auto enter_rows = [&](list<span_of_bytes>& to, std::size_t from, std::size_t longer) {
        for (const strided_blocks& b : blocks_)
            for (std::size_t row = 0; row < b.rows; ++row) {
                const std::size_t begin = from + b.offset + row * b.stride;
                to.push_back({begin, begin + longer + b.length, 0});
            }
    };
    enter_rows(rows, 0, (repeats_ - 1) * extent_);
    if ((repeats_ == 1 || extent_ >= longest) && !first_overlap(rows)) return false;
    for (std::size_t i = 0; i < repeats_; ++i) enter_rows(all, i * extent_, 0);
    return first_overlap(all) != 0;
}

}  // namespace colls::inline v1::detail
