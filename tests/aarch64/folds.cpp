// Compiled for AArch64 and not run: the whole library, and the folds whose stores have a form of their own there.
#include <colls/colls.hpp>

using namespace colls::detail;

void fold_floats_past_caches(void* dst, void* also, const operand* x, std::size_t count, const void* op) {
    fold_twice_by_lines<past_caches::second, lines_neon, float, colls::sum_t>(dst, also, x, count, op);
}
void fold_bytes_past_caches(void* dst, void* also, const operand* x, std::size_t count, const void* op) {
    fold_twice_by_lines<past_caches::both, lines_neon, std::int8_t, colls::max_t>(dst, also, x, count, op);
}

void copy_past_caches(void* dst, const void* src) { stream_bytes(dst, src, 1 << 20); }
