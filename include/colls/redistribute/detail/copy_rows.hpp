// Copies of short pieces of memory that lie at equal distances.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/config.hpp>

#include <cstddef>
#include <cstring>

namespace colls::inline v1::detail {

template <std::size_t Bytes>
void copy_rows_of(
    std::byte* to, std::size_t to_stride, const std::byte* from, std::size_t from_stride, std::size_t rows) {
    for (std::size_t row = 0; row < rows; ++row) std::memcpy(to + row * to_stride, from + row * from_stride, Bytes);
}
/// Copies `rows` times `bytes` bytes, which begin `to_stride` and `from_stride` bytes apart.
[[gnu::noinline]] inline void copy_rows(std::byte* to, std::size_t to_stride, const std::byte* from,
    std::size_t from_stride, std::size_t rows, std::size_t bytes) {
    // A call of memcpy for each of these would take several times as long.
    if (bytes == 1) return copy_rows_of<1>(to, to_stride, from, from_stride, rows);
    if (bytes == 2) return copy_rows_of<2>(to, to_stride, from, from_stride, rows);
    if (bytes == 4) return copy_rows_of<4>(to, to_stride, from, from_stride, rows);
    if (bytes == 8) return copy_rows_of<8>(to, to_stride, from, from_stride, rows);
    if (bytes == 16) return copy_rows_of<16>(to, to_stride, from, from_stride, rows);
    for (std::size_t row = 0; row < rows; ++row) std::memcpy(to + row * to_stride, from + row * from_stride, bytes);
}

}  // namespace colls::inline v1::detail
