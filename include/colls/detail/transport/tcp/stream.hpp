// One direction of a connection, without the socket: what to read where, what came, what to write. So that it can be
// fed any bytes.
#pragma once

#include <colls/detail/support/list.hpp>
#include <colls/detail/transport/tcp/frame.hpp>

#include <sys/uio.h>
#include <algorithm>
#include <memory>

namespace colls::inline v1::detail {

/// First in, first out, in memory that is used again.
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
        } else if (head_ >= 64 && head_ * 2 >= items_.size()) {  // moves each element once at most, on average
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

/// Pieces of several messages, one after another; the front one shrinks as it is used. Empty ones are left out.
class piece_queue {
public:
    void push(const piece* pieces, int count) {
        for (int i = 0; i < count; ++i)
            if (pieces[i].bytes > 0) pieces_.push(pieces[i]);
    }
    /// The memory of the next `bytes`, beginning at piece `*at`, which moves on. Returns the entries of v that it
    /// takes; where `most` do not suffice, `bytes` tells how many are left out.
    int gather(std::size_t& at, std::uint64_t& bytes, iovec* v, int most) {
        int n = 0;
        while (bytes > 0 && n < most) {
            const piece& p = pieces_[at++];
            v[n++] = {p.data, p.bytes};
            bytes -= p.bytes;
        }
        return n;
    }
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

private:
    void advance(std::size_t bytes) {  // within the front piece
        piece& p = pieces_.front();
        p.data += bytes;
        p.bytes -= bytes;
        if (p.bytes == 0) pieces_.pop();
    }
    fifo<piece> pieces_;
};

/// What the bytes that came amount to.
enum class arrival : std::uint8_t {
    nothing,  ///< more must come
    held,     ///< a message stands there that no receive has been posted for
    message,  ///< one has arrived in its place
    control,  ///< see `heard`
    welcome,
    unexpected,  ///< see `wanted`, `got`; from here on nothing lands
    garbage      ///< no frame: nothing more can be made of this stream
};

/// Receives that have been posted, in order.
class message_places {
public:
    struct extent {
        message_label label;
        std::uint64_t bytes;
    };
    /// The next message belongs there.
    std::uint64_t post(const message_label& label, const piece* pieces, int count) {
        if (!dropping_) {
            waiting_.push({label, sum_of(pieces, count)});
            pieces_.push(pieces, count);
        }
        return posted_++;
    }
    std::uint64_t arrived() const { return arrived_; }
    bool expecting() const { return !waiting_.empty(); }
    /// Nothing lands from here on; messages are read and thrown away.
    void drop() {
        dropping_ = true;
        waiting_.clear();
        pieces_.clear();
    }
    bool dropping() const { return dropping_; }

private:
    friend class frame_reader;
    void landed() {
        waiting_.pop();
        ++arrived_;
    }
    fifo<extent> waiting_;
    piece_queue pieces_;
    std::uint64_t posted_ = 0, arrived_ = 0;
    bool dropping_ = false;
};

/// Reads a stream of frames: small messages through a buffer, large ones in place. Memory: the buffer, and what is
/// posted.
///     while (n = r.room(v, most)) { r.came(readv(fd, v, n)); while (r.next() says something) ...; }
class frame_reader {
public:
    frame_reader() = default;
    frame_reader(const frame_reader&) = delete;  // `heard` points into it
    frame_reader& operator=(const frame_reader&) = delete;

    /// At least frame_bytes + most_text.
    void open(std::size_t buffer_bytes) {
        buffer_.reset(new std::byte[buffer_bytes]);
        capacity_ = buffer_bytes;
    }
    /// Where messages of this stream land; nullptr: it carries none.
    message_places* places = nullptr;
    bool expecting() const { return places && places->expecting(); }
    /// A message stands there for which there is no place.
    bool holding() const { return holding_ && !expecting() && !dropping(); }

    /// Where the next bytes of the stream go, in order; `most` is two or more. 0: none are to be read now. To be asked
    /// once `next` had nothing more.
    int room(iovec* v, int most) {
        if (!buffer_ || garbage_ || holding()) return 0;
        int n = 0;
        if (left_ > 0 && !dropping()) {  // the buffer is empty
            std::size_t at = 0;
            std::uint64_t bytes = left_;
            n = places->pieces_.gather(at, bytes, v, most - 1);
            if (bytes > 0) return n;
        }
        if (begin_ > 0 && capacity_ - begin_ < frame_bytes + most_text) {
            std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
            end_ -= begin_;
            begin_ = 0;
        }
        if (end_ == capacity_) return n;
        v[n] = {buffer_.get() + end_, capacity_ - end_};
        return n + 1;
    }
    void came(std::size_t bytes) {
        if (left_ > 0 && !dropping()) {
            const std::uint64_t part = bytes < left_ ? bytes : left_;
            places->pieces_.skip(part);
            left_ -= part;
            bytes -= static_cast<std::size_t>(part);
            if (left_ == 0) landed();
        }
        end_ += bytes;
    }
    /// To be called again until nothing, held or garbage.
    arrival next() {
        if (landed_) return told(arrival::message);
        while (!garbage_) {
            if (left_ > 0) {
                const std::size_t part = left_ < end_ - begin_ ? static_cast<std::size_t>(left_) : end_ - begin_;
                if (!dropping()) places->pieces_.copy_in(buffer_.get() + begin_, part);
                take(part);
                left_ -= part;
                if (left_ > 0) return arrival::nothing;
                if (dropping()) continue;
                landed();
                return told(arrival::message);
            }
            if (end_ - begin_ < frame_bytes) return arrival::nothing;
            const std::optional<frame> f = parse_frame({buffer_.get() + begin_, frame_bytes});
            garbage_ = !f || f->number != frames_;
            if (garbage_) break;
            if (f->kind != frame_kind::message) {
                if (end_ - begin_ < frame_bytes + f->text_bytes) return arrival::nothing;
                ++frames_;
                if (f->kind == frame_kind::control) read_control(*f);
                take(frame_bytes + f->text_bytes);
                return f->kind == frame_kind::control ? arrival::control : arrival::welcome;
            }
            holding_ = !expecting() && !dropping();
            if (holding_) return arrival::held;
            ++frames_;
            take(frame_bytes);
            left_ = f->bytes;
            if (dropping()) continue;
            wanted_ = places->waiting_.front();
            got_ = {f->label, f->bytes};
            if (!(wanted_.label == got_.label) || wanted_.bytes != got_.bytes) {
                places->drop();
                return arrival::unexpected;
            }
            if (left_ > 0) continue;
            landed();
            return told(arrival::message);
        }
        return arrival::garbage;
    }
    const control_message& heard() const { return heard_; }
    const message_places::extent& wanted() const { return wanted_; }
    const message_places::extent& got() const { return got_; }

private:
    bool dropping() const { return places && places->dropping(); }
    void take(std::size_t bytes) {
        begin_ += bytes;
        if (begin_ == end_) begin_ = end_ = 0;
    }
    void landed() {
        places->landed();
        landed_ = true;
    }
    arrival told(arrival what) {
        landed_ = false;
        return what;
    }
    void read_control(const frame& f) {
        for (std::size_t i = 0; i < f.text_bytes; ++i) {
            const auto c = std::to_integer<unsigned char>(buffer_[begin_ + frame_bytes + i]);
            text_[i] = c < 0x20 || c == 0x7f ? ' ' : static_cast<char>(c);  // it will be printed
        }
        text_[f.text_bytes] = '\0';
        heard_ = {f.what, f.a, f.b, f.c, text_};
    }

    std::unique_ptr<std::byte[]> buffer_;
    std::size_t capacity_ = 0, begin_ = 0, end_ = 0;  // what was read and not yet used
    std::uint64_t left_ = 0;                          // of the message that has begun
    std::uint64_t frames_ = 0;
    bool holding_ = false, garbage_ = false, landed_ = false;
    message_places::extent wanted_{}, got_{};
    control_message heard_;
    char text_[most_text + 1];
};

/// Writes messages as a stream of frames; several small ones together.
///     n = w.gather(v, most, number); number += w.left(writev(fd, v, n));
class frame_writer {
public:
    static constexpr int together = 8;

    std::uint64_t post(const message_label& label, const piece* pieces, int count) {
        if (!dropped_) {
            messages_.push({label, sum_of(pieces, count)});
            pieces_.push(pieces, count);
        }
        return posted_++;
    }
    bool empty() const { return messages_.empty(); }
    std::uint64_t sent() const { return sent_; }
    std::uint64_t begun() const { return sent_ + within(); }
    /// In the middle of a message.
    bool within() const { return header_left_ < frame_bytes; }
    bool cut() const { return cut_; }

    /// The messages that have not left are forgotten. One of which a part has left is cut off, as is other control
    /// messages of which `a_part` has: nothing can follow it, ever.
    void drop(bool a_part = false) {
        cut_ = cut_ || a_part || within();
        dropped_ = true;
        messages_.clear();
        pieces_.clear();
        header_left_ = frame_bytes;
    }

    /// What comes next, in order, where the stream's next frame has that number; valid until the next call of anything.
    int gather(iovec* v, int most, std::uint64_t number) {
        int n = 0;
        std::size_t at = 0;
        for (std::size_t i = 0; i < messages_.size() && i < together && n < most; ++i) {
            const auto& m = messages_[i];
            const std::size_t header = i == 0 ? header_left_ : frame_bytes;
            if (header > 0) {
                frame f;
                f.kind = frame_kind::message;
                f.number = number + i;
                f.bytes = m.bytes;
                f.label = m.label;
                encode(f, headers_[i]);
                v[n++] = {headers_[i] + frame_bytes - header, header};
            }
            std::uint64_t bytes = i == 0 && within() ? left_ : m.bytes;
            n += pieces_.gather(at, bytes, v + n, most - n);
            if (bytes > 0) break;
        }
        return n;
    }
    /// So many bytes of it have gone. Returns the number of frames that are through.
    unsigned left(std::size_t bytes) {
        unsigned frames = 0;
        while (!messages_.empty()) {
            if (!within()) left_ = messages_.front().bytes;
            const std::size_t header = std::min(bytes, header_left_);
            header_left_ -= header;
            bytes -= header;
            if (header_left_ > 0) break;
            const std::uint64_t part = bytes < left_ ? bytes : left_;
            pieces_.skip(part);
            left_ -= part;
            bytes -= static_cast<std::size_t>(part);
            if (left_ > 0) break;
            messages_.pop();
            ++sent_;
            ++frames;
            header_left_ = frame_bytes;
            if (bytes == 0) break;
        }
        return frames;
    }

private:
    fifo<message_places::extent> messages_;
    piece_queue pieces_;
    std::size_t header_left_ = frame_bytes;  // of the front message
    std::uint64_t left_ = 0;                 // of its bytes, once it has begun
    std::uint64_t posted_ = 0, sent_ = 0;
    bool dropped_ = false, cut_ = false;
    std::byte headers_[together][frame_bytes];
};

}  // namespace colls::inline v1::detail
