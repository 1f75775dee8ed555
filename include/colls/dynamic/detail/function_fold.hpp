// Folds by a vector function, which folds two vectors into the second of them.
// IWYU pragma: private, include <colls/dynamic.hpp>
#pragma once

#include <colls/detail/reduce/fold.hpp>

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace colls::inline v1::detail {

/// A vector function with what it is called with: what op_value points to.
struct function_operator {
    void (*f)(const void* in, void* inout, std::size_t count, void* context);
    void* context;
    std::size_t element;
    bool commutative;
};

/// Two pieces of scratch memory for `element` bytes each at least.
class fold_tiles {
public:
    explicit fold_tiles(std::size_t element) : length_(element < bytes ? bytes / element : 1) {
        if (element <= bytes) return;
        const std::size_t each = (element + alignment - 1) / alignment * alignment;
        large_.reset(static_cast<std::byte*>(::operator new(2 * each, std::align_val_t{alignment})));
        tiles_[0] = large_.get();
        tiles_[1] = large_.get() + each;
    }
    fold_tiles(const fold_tiles&) = delete;
    fold_tiles& operator=(const fold_tiles&) = delete;
    /// Elements in each.
    std::size_t length() const { return length_; }
    std::byte* operator[](int i) const { return tiles_[i]; }

private:
    static constexpr std::size_t alignment = 64, bytes = 8192;
    struct release {
        void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{alignment}); }
    };
    alignas(alignment) std::byte small_[2][bytes];
    std::byte* tiles_[2] = {small_[0], small_[1]};
    std::unique_ptr<std::byte, release> large_;
    std::size_t length_;
};

/// An op_table's fold. The function overwrites its right operand, so each step works on a copy of that: in a tile, in
/// the last step in dst. Folding from the right would need no tile, but has other bits.
inline void fold_by_function(void* dst, const operand* x, int k, std::size_t count, const void* op) {
    const function_operator& by = *static_cast<const function_operator*>(op);
    if (count == 0) return;
    if (k == 1) {
        if (dst != x[0].data) std::memcpy(dst, x[0].data, count * by.element);
        return;
    }
    if (k == 2 && x[1].data == dst && x[0].data != dst) return by.f(x[0].data, dst, count, by.context);
    if (k == 2 && x[0].data == dst && x[1].data != dst && by.commutative)
        return by.f(x[1].data, dst, count, by.context);
    const fold_tiles tiles(by.element);
    for (std::size_t at = 0; at < count; at += tiles.length()) {
        const std::size_t n = count - at < tiles.length() ? count - at : tiles.length();
        const std::size_t skip = at * by.element, bytes = n * by.element;
        std::byte* const to = static_cast<std::byte*>(dst) + skip;
        const std::byte* folded = static_cast<const std::byte*>(x[0].data) + skip;
        for (int j = 1; j < k; ++j) {
            const std::byte* const right = static_cast<const std::byte*>(x[j].data) + skip;
            std::byte* const step = j == k - 1 && folded != to ? to : tiles[j % 2];
            if (step != right) std::memcpy(step, right, bytes);
            by.f(folded, step, n, by.context);
            folded = step;
        }
        if (folded != to) std::memcpy(to, folded, bytes);
    }
}

/// By whether the function commutes.
inline constexpr op_table function_tables[2] = {
    {0, &fold_by_function, nullptr, nullptr, false}, {0, &fold_by_function, nullptr, nullptr, true}};

}  // namespace colls::inline v1::detail
