// Queues of a connection: first in, first out; the messages posted to or from a peer, and their pieces of memory.
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

inline std::size_t sum_of(const iovec* v, int count) {
    std::size_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += v[i].iov_len;
    return bytes;
}

/// The pieces of several messages, one after another. The front piece shrinks as it is used; empty pieces are left out.
class piece_queue {
public:
    void push(const piece* pieces, int count) {
        for (int i = 0; i < count; ++i)
            if (pieces[i].bytes > 0) pieces_.push(pieces[i]);
    }
    /// Writes the memory of the next `bytes`, beginning at piece `at`, into v (of iovec or piece), and moves `at` on.
    /// Returns how many entries of v were written, `most` at most; `bytes` is left with the bytes that they do not
    /// cover.
    template <class Entry>
    int gather(std::size_t& at, std::uint64_t& bytes, Entry* v, int most) {
        int n = 0;
        for (; bytes > 0 && n < most; ++at) {
            const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, pieces_[at].bytes));
            v[n++] = {pieces_[at].data, part};
            bytes -= part;
        }
        return n;
    }
    void skip(std::uint64_t bytes) {
        use(bytes, [](const piece&, std::size_t) {});
    }
    const piece& operator[](std::size_t i) { return pieces_[i]; }
    /// Copies the pieces' bytes to `to`, and drops them.
    void copy_out(std::byte* to, std::size_t bytes) {
        use(bytes, [&](const piece& p, std::size_t part) {
            std::memcpy(to, p.data, part);
            to += part;
        });
    }
    /// Copies this many bytes of the pieces to `to`.
    void peek(std::byte* to, std::size_t bytes) {
        for (std::size_t i = 0; bytes > 0; ++i) {
            const std::size_t part = bytes < pieces_[i].bytes ? bytes : pieces_[i].bytes;
            std::memcpy(to, pieces_[i].data, part);
            to += part;
            bytes -= part;
        }
    }
    /// Copies from `from` into the pieces, and drops them.
    void copy_in(const std::byte* from, std::size_t bytes) {
        use(bytes, [&](const piece& p, std::size_t part) {
            std::memcpy(p.data, from, part);
            from += part;
        });
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
    // Calls f with each part of the first `bytes`, and drops them.
    template <class F>
    void use(std::uint64_t bytes, F f) {
        while (bytes > 0) {
            piece& p = pieces_.front();
            const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, p.bytes));
            f(p, part);
            p.data += part;
            p.bytes -= part;
            bytes -= part;
            if (p.bytes == 0) pieces_.pop();
        }
    }
    fifo<piece> pieces_;
};

/// What both sides compare of a message before any of it lands.
struct message_header {
    message_label label;
    std::uint64_t bytes;
};

/// The messages that have been posted to, or from, one peer and are not over, in order.
class posted_messages {
public:
    /// The next message is in these pieces, or goes there. Returns its number.
    std::uint64_t post(const message_label& label, const piece* pieces, int count) {
        if (!dropping_) {
            messages_.push({label, sum_of(pieces, count)});
            pieces_.push(pieces, count);
        }
        return posted_++;
    }
    bool empty() const { return messages_.empty(); }
    std::size_t size() const { return messages_.size(); }
    /// The i-th that is not over.
    const message_header& operator[](std::size_t i) { return messages_[i]; }
    const message_header& front() { return messages_.front(); }
    /// The first one is over.
    void finish() {
        messages_.pop();
        ++finished_;
    }
    std::uint64_t finished() const { return finished_; }
    /// Forgets them, and those posted later.
    void drop() {
        dropping_ = true;
        messages_.clear();
        pieces_.clear();
    }
    bool dropping() const { return dropping_; }
    /// The memory of what has not been moved.
    piece_queue& pieces() { return pieces_; }

private:
    fifo<message_header> messages_;
    piece_queue pieces_;
    std::uint64_t posted_ = 0, finished_ = 0;
    bool dropping_ = false;
};

}  // namespace colls::inline v1::detail
