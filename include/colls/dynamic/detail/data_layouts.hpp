// class data_layout.
// IWYU pragma: private, include <colls/dynamic/data_layout.hpp>
//
// Included with it; or compiled once, in src/dynamic.cpp, for units that define COLLS_SEPARATE.
#pragma once

#include <colls/dynamic/data_layout.hpp>
#include <colls/error.hpp>

namespace colls::inline v1 {
namespace dynamic {

COLLS_INLINE data_layout::data_layout(const data_layout& other)
    : size_(other.size_), extent_(other.extent_), unit_(other.unit_) {
    blocks_.append(other.blocks_);
}
COLLS_INLINE data_layout& data_layout::operator=(const data_layout& other) { return *this = data_layout(other); }
COLLS_INLINE data_layout data_layout::contiguous(std::size_t length, unit in) {
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
        if (lengths[i] == 0) continue;
        l.size_ += lengths[i];
        if (offsets[i] + lengths[i] > l.extent_) l.extent_ = offsets[i] + lengths[i];
        l.blocks_.push_back({offsets[i], 1, lengths[i], lengths[i]});
    }
    return l;
}
COLLS_INLINE data_layout data_layout::repeated(std::size_t times, std::size_t stride) const {
    data_layout l(unit_);
    if (times == 0) return l;
    l.size_ = size_ * times;
    l.extent_ = (times - 1) * stride + extent_;
    if (blocks_.size() == 1 && blocks_[0].rows == 1) {
        colls::detail::strided_blocks b = blocks_[0];
        if (b.length == stride)
            b.length *= times;
        else
            b.rows = times, b.stride = stride;
        l.blocks_.push_back(b);
        return l;
    }
    for (std::size_t i = 0; i < times; ++i)
        for (colls::detail::strided_blocks b : blocks_) {
            b.offset += i * stride;
            l.blocks_.push_back(b);
        }
    return l;
}
COLLS_INLINE data_layout data_layout::with_extent(std::size_t extent) const {
    data_layout l(*this);
    l.extent_ = extent;
    return l;
}

}  // namespace dynamic
}  // namespace colls::inline v1
