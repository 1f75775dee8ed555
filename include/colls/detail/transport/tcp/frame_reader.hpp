// The receiving direction of a connection, without the socket, so that a test can feed it any bytes: the stream is cut
// into frames, and messages land in the receives that have been posted.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/transport/piece_queue.hpp>
#include <colls/detail/transport/tcp/frame.hpp>

#include <memory>

namespace colls::inline v1::detail {

/// What `frame_reader::next` has found in the stream.
enum class arrival : std::uint8_t {
    nothing,  ///< no whole frame: more bytes must arrive first
    held,     ///< a message that no receive has been posted for; it stays in the stream
    message,  ///< a message has arrived in the memory of its receive
    control,  ///< a control message: see `control`
    welcome,
    unexpected,  ///< a message that differs from its receive: see `wanted`, `got`; from here on no message lands
    garbage      ///< no frame: the rest of the stream is unreadable
};

/// The receives that have been posted for one peer, in order.
class posted_receives {
public:
    /// The next message belongs into these pieces. Returns its number.
    std::uint64_t post(const message_label& label, const piece* pieces, int count) {
        if (!dropping_) {
            waiting_.push({label, sum_of(pieces, count)});
            pieces_.push(pieces, count);
        }
        return posted_++;
    }
    std::uint64_t arrived() const { return arrived_; }
    bool expecting() const { return !waiting_.empty(); }
    /// From here on no message lands: messages are read and thrown away.
    void drop() {
        dropping_ = true;
        waiting_.clear();
        pieces_.clear();
    }
    bool dropping() const { return dropping_; }
    /// The memory where what has not arrived will land.
    piece_queue& pieces() { return pieces_; }

private:
    friend class frame_reader;
    void landed() {
        waiting_.pop();
        ++arrived_;
    }
    fifo<message_header> waiting_;
    piece_queue pieces_;
    std::uint64_t posted_ = 0, arrived_ = 0;
    bool dropping_ = false;
};

/// Reads a stream of frames: small messages through a buffer, large ones straight into the memory of their receives. It
/// allocates the buffer only.
///     while (n = r.room(v, most)) { r.add(readv(fd, v, n)); while (r.next() finds something) ...; }
class frame_reader {
public:
    frame_reader() = default;
    frame_reader(const frame_reader&) = delete;  // `control_` points into `text_`
    frame_reader& operator=(const frame_reader&) = delete;

    /// Allocates the buffer, of at least frame_bytes + most_text.
    void open(std::size_t buffer_bytes) {
        buffer_.reset(new std::byte[buffer_bytes]);
        capacity_ = buffer_bytes;
    }
    /// Where the messages of this stream land; null: it carries control messages only.
    posted_receives* receives = nullptr;
    bool expecting() const { return receives && receives->expecting(); }
    /// The stream's next frame is a message that no receive has been posted for.
    bool holding() const { return holding_ && !expecting() && !dropping(); }

    /// Writes into v where the next bytes of the stream go, in order; `most` is two or more. Returns the entries; 0: no
    /// bytes are to be read now. Call it when `next` has found nothing more.
    int room(iovec* v, int most) {
        if (!buffer_ || garbage_ || holding()) return 0;
        int n = 0;
        if (left_ > 0 && !dropping()) {  // the buffer is empty
            std::size_t at = 0;
            std::uint64_t bytes = left_;
            n = receives->pieces_.gather(at, bytes, v, most - 1);
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
    /// So many bytes have been read to where `room` said.
    void add(std::size_t bytes) {
        if (left_ > 0 && !dropping()) {
            const std::uint64_t part = bytes < left_ ? bytes : left_;
            receives->pieces_.skip(part);
            left_ -= part;
            bytes -= static_cast<std::size_t>(part);
            if (left_ == 0) landed();
        }
        end_ += bytes;
    }
    /// The next thing in what has been read. Call it until it returns nothing, held or garbage.
    arrival next() {
        if (landed_) return report_message();
        while (!garbage_) {
            if (left_ > 0) {
                const std::size_t part = left_ < end_ - begin_ ? static_cast<std::size_t>(left_) : end_ - begin_;
                if (!dropping()) receives->pieces_.copy_in(buffer_.get() + begin_, part);
                consume(part);
                left_ -= part;
                if (left_ > 0) return arrival::nothing;
                if (dropping()) continue;
                landed();
                return report_message();
            }
            if (end_ - begin_ < frame_bytes) return arrival::nothing;
            const std::optional<frame> f = parse_frame({buffer_.get() + begin_, frame_bytes});
            garbage_ = !f || f->number != frames_;
            if (garbage_) break;
            if (f->kind != frame_kind::message) {
                if (end_ - begin_ < frame_bytes + f->text_bytes) return arrival::nothing;
                ++frames_;
                if (f->kind == frame_kind::control) read_control(*f);
                consume(frame_bytes + f->text_bytes);
                return f->kind == frame_kind::control ? arrival::control : arrival::welcome;
            }
            holding_ = !expecting() && !dropping();
            if (holding_) return arrival::held;
            ++frames_;
            consume(frame_bytes);
            left_ = f->bytes;
            if (dropping()) continue;
            wanted_ = receives->waiting_.front();
            got_ = {f->label, f->bytes};
            if (!(wanted_.label == got_.label) || wanted_.bytes != got_.bytes) {
                receives->drop();
                return arrival::unexpected;
            }
            if (left_ > 0) continue;
            landed();
            return report_message();
        }
        return arrival::garbage;
    }
    const control_message& control() const { return control_; }
    const message_header& wanted() const { return wanted_; }
    const message_header& got() const { return got_; }

private:
    bool dropping() const { return receives && receives->dropping(); }
    void consume(std::size_t bytes) {
        begin_ += bytes;
        if (begin_ == end_) begin_ = end_ = 0;
    }
    void landed() {
        receives->landed();
        landed_ = true;
    }
    arrival report_message() {
        landed_ = false;
        return arrival::message;
    }
    void read_control(const frame& f) {
        char* to = text_;
        for (const std::byte b : octets(buffer_.get() + begin_ + frame_bytes, f.text_bytes)) *to++ = printable(b);
        *to = '\0';
        control_ = {f.what, f.a, f.b, f.c, text_};
    }

    std::unique_ptr<std::byte[]> buffer_;
    std::size_t capacity_ = 0, begin_ = 0, end_ = 0;  // bytes read and not consumed: [begin_, end_)
    std::uint64_t left_ = 0;                          // bytes of the current message that have not been read
    std::uint64_t frames_ = 0;                        // read: the next one has this number
    bool holding_ = false, garbage_ = false;
    bool landed_ = false;  // a message has, and has not been reported
    message_header wanted_{}, got_{};
    control_message control_;
    char text_[most_text + 1];
};

}  // namespace colls::inline v1::detail
