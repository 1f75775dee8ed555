// A schedule without its type: proof and cost are functions of this interface, so that they are compiled once, however
// many schedules a program names. The virtual functions are constexpr, so that it serves at compile time too.
// IWYU pragma: private, include <colls/verify.hpp>
#pragma once

#include <colls/schedule.hpp>

#include <cstddef>
#include <cstdint>

namespace colls::inline v1::detail {

/// A schedule as the accessors of schedule.hpp read it, type-erased.
class schedule_reader {
public:
    constexpr virtual collective kind() const = 0;
    constexpr virtual bool supports(int n) const = 0;
    constexpr virtual int rounds(int n) const = 0;
    constexpr virtual int blocks(int n) const = 0;
    constexpr virtual int ports(int n) const = 0;
    constexpr virtual int scratch(int n) const = 0;
    constexpr virtual int root(int n) const = 0;
    constexpr virtual int home(int n, int slot) const = 0;
    constexpr virtual int input(int rank, int n, int slot) const = 0;
    constexpr virtual int output(int rank, int n, int slot) const = 0;
    constexpr virtual step at(int rank, int n, int round, int port) const = 0;

protected:
    ~schedule_reader() = default;
};

/// The compile error for what cannot be read: neither a schedule, nor a type like one that is not trivially copyable.
/// False where it is given, so that what follows is not compiled.
template <class S>
constexpr bool expect_readable() {
    constexpr bool is =
        requires(const S& s) { s.implements; } && counts_rounds<S> && (steps_without_port<S> || steps_with_port<S>);
    static_assert(is,
        "colls: this is no schedule: it needs `implements`, `rounds(n)`, and `at(rank, n, round)` or `at(rank, n, "
        "round, port)` "
        "that returns a colls::step, const or static; of a family take schedule_for<F, C>");
    return is;
}

template <class S>
class reader_of final : public schedule_reader {
public:
    explicit constexpr reader_of(const S& s) : s_(s) {}
    constexpr collective kind() const override { return collective_of(s_); }
    constexpr bool supports(int n) const override { return v1::supports(s_, n); }
    constexpr int rounds(int n) const override { return s_.rounds(n); }
    constexpr int blocks(int n) const override { return blocks_of(s_, n); }
    constexpr int ports(int n) const override { return ports_of(s_, n); }
    constexpr int scratch(int n) const override { return scratch_of(s_, n); }
    constexpr int root(int n) const override { return root_of(s_, n); }
    constexpr int home(int n, int slot) const override { return home_of(s_, n, slot); }
    constexpr int input(int rank, int n, int slot) const override { return input_of(s_, rank, n, slot); }
    constexpr int output(int rank, int n, int slot) const override { return output_of(s_, rank, n, slot); }
    constexpr step at(int rank, int n, int round, int port) const override { return step_of(s_, rank, n, round, port); }

private:
    const S& s_;
};

/// An array on the heap, for constant expressions as well. Its elements are accessed through `p`, since in a constant
/// expression a call of an operator costs more than the access.
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

/// True where a set is one block, which is the most common case.
constexpr bool single(const block_set& b) { return b.count == 1 && b.reps == 1 && b.grain == 1 && b.run == 1; }

/// True where a set can be expanded and has at most `most` blocks, so that its size does not overflow.
[[gnu::noinline]] constexpr bool well_formed(const block_set& b, int most) {
    if (b.count < 0 || b.reps < 0 || b.grain < 0 || b.modulus < 0) return false;
    if (b.count == 0 || b.reps == 0 || b.grain == 0) return true;
    if (b.count > most || b.reps > most || b.grain > most || b.run < 1) return false;
    return static_cast<long>(b.count) * b.reps <= most && static_cast<long>(b.size()) <= most;
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
