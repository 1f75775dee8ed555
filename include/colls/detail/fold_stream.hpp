// Reduce and push in one pass: all_reduce's second half begins while the first is still in the cache.
#pragma once

#include <colls/config.hpp>
#include <colls/detail/copy.hpp>
#include <colls/detail/fold.hpp>

#include <cstddef>

namespace colls::inline v1::detail {

/// Folds k operands into dst (as op_table::fold does; finished for `ranks` ranks unless that is 0) and pushes the result
/// to m further places, which must not overlap anything else, by non-temporal stores. Piece by piece, so that what is
/// pushed comes from the first-level cache: 15 to 30 % faster than a fold of 64 to 512 KB and then a push; pieces of 1 to
/// 16 KB differ by less than 5 %. A chunked executor whose chunks are that small has the gain without this.
inline void fold_stream(const op_table& table, void* dst, const operand* x, int k, std::size_t count, const void* op,
    void* const* to, int m, int ranks = 0) {
    constexpr int held = 64;
    operand here[held];
    std::size_t piece = 8192 / table.element_size;
    if (piece == 0) piece = 1;
    if (k > held) piece = count;
    for (std::size_t at = 0; at < count; at += piece) {
        const std::size_t n = count - at < piece ? count - at : piece, skip = at * table.element_size;
        for (int j = 0; j < k && k <= held; ++j) here[j] = {static_cast<const char*>(x[j].data) + skip, x[j].leaf};
        char* const result = static_cast<char*>(dst) + skip;
        table.fold(result, k > held ? x : here, k, n, op);
        if (ranks > 0 && table.finish) table.finish(result, n, ranks, op);
        for (int j = 0; j < m; ++j)
            stream_bytes_unfenced(static_cast<char*>(to[j]) + skip, result, n * table.element_size);
    }
    fence_stream();
}

}  // namespace colls::inline v1::detail
