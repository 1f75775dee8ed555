// Queues of a connection: first in, first out, and the pieces of memory that its messages come from or go to.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/list.hpp>
#include <colls/detail/transport/vocabulary.hpp>

#include <sys/uio.h>
#include <algorithm>
#include <cstring>

namespace colls::inline v1::detail {

/// A queue whose memory is used again. T is trivially copyable.
template <class T>
class fifo {
public:
    bool empty() const { return head_ == items_.size(); }
    std::size_t size() const { return items_.size() - head_; }
    T& front() { return items_[head_]; }
    T& operator[](std::size_t i) { return items_[head_ + i]; }
    void push(const T& x) { items_.push_back(x); }
    void pop() {
        if (++head_ == items_.size()) {
            clear();
        } else if (head_ >= 64 && head_ * 2 >= items_.size()) {  // on average an element is moved at most once
            const std::size_t rest = size();
            std::memmove(items_.data(), items_.data() + head_, rest * sizeof(T));
            items_.resize(rest);
            head_ = 0;
        }
    }
    void clear() {
        items_.clear();
        head_ = 0;
    }

private:
    list<T> items_;
    std::size_t head_ = 0;
};

inline std::uint64_t sum_of(const piece* pieces, int count) {
    std::uint64_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += pieces[i].bytes;
    return bytes;
}

/// The pieces of several messages, one after another. The front piece shrinks as it is used; empty pieces are left out.
class piece_queue {
public:
    void push(const piece* pieces, int count) {
        for (int i = 0; i < count; ++i)
            if (pieces[i].bytes > 0) pieces_.push(pieces[i]);
    }
    /// Writes the memory of the next `bytes`, beginning at piece `at`, into v, and moves `at` on. Returns how many
    /// entries of v were written, `most` at most; `bytes` is left with the bytes that they do not cover.
    int gather(std::size_t& at, std::uint64_t& bytes, iovec* v, int most) {
        int n = 0;
        while (bytes > 0 && n < most) {
            const piece& p = pieces_[at++];
            v[n++] = {p.data, p.bytes};
            bytes -= p.bytes;
        }
        return n;
    }
    /// Drops so many bytes at the front.
    void skip(std::uint64_t bytes) {
        while (bytes > 0) {
            piece& p = pieces_.front();
            const std::size_t part = bytes < p.bytes ? static_cast<std::size_t>(bytes) : p.bytes;
            advance(part);
            bytes -= part;
        }
    }
    /// The i-th from the front.
    const piece& operator[](std::size_t i) { return pieces_[i]; }
    std::size_t size() const { return pieces_.size(); }
    /// Copies the pieces' bytes to `to`, and drops them.
    void copy_out(std::byte* to, std::size_t bytes) {
        while (bytes > 0) {
            piece& p = pieces_.front();
            const std::size_t part = std::min(bytes, p.bytes);
            std::memcpy(to, p.data, part);
            advance(part);
            to += part;
            bytes -= part;
        }
    }
    /// Copies from `from` into the pieces, and drops them.
    void copy_in(const std::byte* from, std::size_t bytes) {
        while (bytes > 0) {
            piece& p = pieces_.front();
            const std::size_t part = std::min(bytes, p.bytes);
            std::memcpy(p.data, from, part);
            advance(part);
            from += part;
            bytes -= part;
        }
    }
    void clear() { pieces_.clear(); }
    std::uint64_t bytes() {
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < pieces_.size(); ++i) sum += pieces_[i].bytes;
        return sum;
    }
    /// From here on the pieces are in the memory at `to`, of `bytes()`; with `copies`, so is what they hold.
    void move_to(std::byte* to, bool copies) {
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            piece& p = pieces_[i];
            if (copies) std::memcpy(to, p.data, p.bytes);
            p.data = to;
            to += p.bytes;
        }
    }

private:
    // Within the front piece.
    void advance(std::size_t bytes) {
        piece& p = pieces_.front();
        p.data += bytes;
        p.bytes -= bytes;
        if (p.bytes == 0) pieces_.pop();
    }
    fifo<piece> pieces_;
};

}  // namespace colls::inline v1::detail
