// Compiled for AArch64 and not run: the whole library, and the folds whose stores have a form of their own there.
#include <colls/colls.hpp>

using namespace colls::detail;

template void colls::detail::fold_lines_neon<past_caches::second, float, colls::sum_t>(
    void*, void*, const operand*, std::size_t, const void*);
template void colls::detail::fold_lines_neon<past_caches::both, std::int8_t, colls::max_t>(
    void*, void*, const operand*, std::size_t, const void*);

void copy_past_caches(void* dst, const void* src) { stream_bytes(dst, src, 1 << 20); }
