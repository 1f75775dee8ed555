// What the proof and the cost need beside the interface of a schedule: arrays for constant expressions, and block sets
// written out.
// IWYU pragma: private, include <colls/verify.hpp>
#pragma once

#include <colls/detail/prove/schedule_reader.hpp>

#include <cstddef>

namespace colls::inline v1::detail {

/// An array on the heap that a constant expression may use. Its elements are read through `p` itself, since each call
/// of an operator costs a compiler more than the access.
template <class T>
class buffer {
public:
    constexpr buffer() = default;
    explicit constexpr buffer(long count) : p(new T[static_cast<std::size_t>(count)]{}), size_(count) {}
    buffer(const buffer&) = delete;
    buffer& operator=(const buffer&) = delete;
    constexpr ~buffer() { delete[] p; }

    /// Makes room for `count` elements. Where it grows, the first `keep` are copied, and the others are zero.
    [[gnu::cold]] [[gnu::noinline]] constexpr void need(long count, long keep = 0) {
        if (count <= size_) return;
        size_ = size_ == 0 ? count : count + count / 2;
        T* const more = new T[static_cast<std::size_t>(size_)]{};
        for (long i = 0; i < keep; ++i) more[i] = p[i];
        delete[] p;
        p = more;
    }
    constexpr void fill(T value) {
        for (long i = 0; i < size_; ++i) p[i] = value;
    }

    T* p = nullptr;

private:
    long size_ = 0;
};

/// b.size(), and 0 for a set with a negative extent, which a wrong schedule may name.
constexpr long size_of(const block_set& b) { return b.empty() ? 0 : static_cast<long>(b.count) * b.grain * b.reps; }
/// Whether there is such a rank, or slot: a wrong schedule may name others.
constexpr bool exists(int number, int count) { return number >= 0 && number < count; }

/// True where a set is one block, which is the most common case.
constexpr bool single(const block_set& b) { return b.count == 1 && b.reps == 1 && b.grain == 1 && b.run == 1; }

/// True where a set can be expanded and has at most `most` blocks, so that its size does not overflow.
[[gnu::noinline]] constexpr bool well_formed(const block_set& b, int most) {
    if (b.count < 0 || b.reps < 0 || b.grain < 0 || b.modulus < 0) return false;
    if (b.count == 0 || b.reps == 0 || b.grain == 0) return true;
    if (b.count > most || b.reps > most || b.grain > most || b.run < 1) return false;
    return static_cast<long>(b.count) * b.reps <= most && static_cast<long>(b.count) * b.reps * b.grain <= most;
}

/// Writes the blocks of a set to out[0 .. size()): operator[] without its divisions.
[[gnu::noinline]] constexpr void expand(const block_set& b, int* out) {
    if (b.empty()) return;
    const auto wrapped = [m = b.modulus](int x) { return m > 0 && (x < 0 || x >= m) ? mod(x, m) : x; };
    if (single(b)) {
        *out = b.base + wrapped(b.first);
        return;
    }
    for (int rep = 0; rep < b.reps; ++rep) {
        const int origin = b.base + rep * b.stride;
        int row = b.first, x = row;
        for (int i = 0, column = 0; i < b.count; ++i) {
            x = wrapped(x);
            for (int g = 0; g < b.grain; ++g) *out++ = origin + x + g;
            if (++column == b.run) {
                column = 0;
                x = row += b.period;
            } else {
                x += b.grain;
            }
        }
    }
}

}  // namespace colls::inline v1::detail
