// class data_layout.
// IWYU pragma: private, include <colls/dynamic/data_layout.hpp>
//
// Included with it; or compiled once, in src/dynamic.cpp, for units that define COLLS_SEPARATE.
#pragma once

#include <colls/detail/support/error_text.hpp>
#include <colls/detail/support/sizes.hpp>
#include <colls/dynamic/data_layout.hpp>
#include <colls/error.hpp>

namespace colls::inline v1 {
namespace detail {

/// `negative` names the number that is; null: none is, and it reaches too far.
[[noreturn, gnu::cold]] inline void refuse_data_layout(const error_text& blocks, const char* negative) {
    error_text text;
    text << "colls: a data_layout of " << blocks.text();
    if (negative != nullptr)
        text << ": the " << negative << " is negative";
    else
        text << " reaches beyond " << longest_memory << ": a size, stride or offset has overflowed";
    throw error(errc::invalid_argument, text.text());
}
[[noreturn, gnu::cold]] inline void refuse_block(std::size_t length, std::size_t offset, const char* unit) {
    error_text block;
    block << "a block of " << length << " at " << offset;
    if (is_negative(offset)) block << ", " << 0 - offset << " " << unit << " before the buffer's begin";
    refuse_data_layout(block, is_negative(length) ? "length" : is_negative(offset) ? "offset" : nullptr);
}

}  // namespace detail
namespace dynamic {

COLLS_INLINE data_layout::data_layout(const data_layout& other)
    : size_(other.size_), extent_(other.extent_), unit_(other.unit_) {
    blocks_.append(other.blocks_);
}
COLLS_INLINE data_layout& data_layout::operator=(const data_layout& other) { return *this = data_layout(other); }
COLLS_INLINE data_layout data_layout::contiguous(std::size_t length, unit in) {
    using namespace colls::detail;
    if (length > longest_memory) refuse_data_layout(error_text() << "a block of " << length, "length");
    data_layout l(in);
    if (length > 0) l.blocks_.push_back({0, 1, length, length});
    l.size_ = l.extent_ = length;
    return l;
}
COLLS_INLINE data_layout data_layout::vector(std::size_t blocks, std::size_t length, std::size_t stride, unit in) {
    return contiguous(length, in).repeated(blocks, stride);
}
COLLS_INLINE data_layout data_layout::indexed(
    const std::size_t* offsets, std::size_t given, const std::size_t* lengths, std::size_t count, unit in) {
    if (given != count)
        throw error(errc::invalid_argument,
            (colls::detail::error_text() << "colls: a data_layout of " << given << " offsets and " << count
                                         << " lengths: each block has both")
                .text());
    data_layout l(in);
    for (std::size_t i = 0; i < count; ++i) {
        using namespace colls::detail;
        if (lengths[i] == 0) continue;
        const std::size_t end = capped_sum(offsets[i], lengths[i]);
        l.size_ = capped_sum(l.size_, lengths[i]);
        if (end > longest_memory || l.size_ > longest_memory)
            refuse_block(lengths[i], offsets[i], in == unit::bytes ? "bytes" : "elements");
        if (end > l.extent_) l.extent_ = end;
        l.blocks_.push_back({offsets[i], 1, lengths[i], lengths[i]});
    }
    return l;
}
COLLS_INLINE data_layout data_layout::repeated(std::size_t times, std::size_t stride) const {
    using namespace colls::detail;
    data_layout l(unit_);
    if (times == 0) return l;
    const std::size_t last = capped_product(times - 1, stride);
    std::size_t reach = capped_sum(last, extent_);
    for (const strided_blocks& b : blocks_) {
        const std::size_t end = capped_sum(last, b.offset + (b.rows - 1) * b.stride + b.length);
        reach = end > reach ? end : reach;
    }
    l.size_ = capped_product(size_, times);
    l.extent_ = last + extent_;
    if (reach > longest_memory || l.size_ > longest_memory)
        refuse_data_layout(
            error_text() << times << " times " << size_ << ", " << stride << " apart, of extent " << extent_ << " each",
            is_negative(times)    ? "number of repetitions"
            : is_negative(stride) ? "stride"
                                  : nullptr);
    if (blocks_.size() == 1 && blocks_[0].rows == 1) {
        strided_blocks b = blocks_[0];
        if (b.length == stride)
            b.length *= times;
        else
            b.rows = times, b.stride = stride;
        l.blocks_.push_back(b);
        return l;
    }
    for (std::size_t i = 0; i < times && !blocks_.empty(); ++i)
        for (strided_blocks b : blocks_) {
            b.offset += i * stride;
            l.blocks_.push_back(b);
        }
    return l;
}
COLLS_INLINE data_layout data_layout::with_extent(std::size_t extent) const {
    using namespace colls::detail;
    if (extent > longest_memory) refuse_data_layout(error_text() << size_ << " and extent " << extent, "extent");
    data_layout l(*this);
    l.extent_ = extent;
    return l;
}

}  // namespace dynamic
}  // namespace colls::inline v1
