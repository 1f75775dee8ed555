// The two directions of a connection, without what carries the bytes, so that a test can feed them any: what is sent is
// written as a stream of frames; what is read is cut into frames, and messages land in the receives that have been
// posted.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/connection/frame.hpp>
#include <colls/net/detail/connection/piece_queue.hpp>

#include <memory>

namespace colls::inline v1::detail {

/// What `frame_reader::next` has found in the stream. (That messages have landed, their receives tell.)
enum class arrival : std::uint8_t {
    nothing,  ///< no whole frame: more bytes must arrive first
    held,     ///< a message that no receive has been posted for; it stays in the stream
    control,  ///< a control message: see `control`
    welcome,
    unexpected,  ///< a message that differs from its receive: see `wanted`, `got`; from here on no message lands
    garbage      ///< no frame: the rest of the stream is unreadable
};

/// Reads a stream of frames: small messages through a buffer, large ones straight into the memory of their receives, in
/// one call of the system with their header: what is read next is most often the message that a receive waits for. If
/// it is not, what has landed there is moved to the buffer, which grows for that. (Not the first frame, which may be a
/// welcome.) It allocates the buffer only.
///     while (n = r.room(v, most)) { r.add(readv(fd, v, n)); while (r.next() finds something) ...; }
class frame_reader {
public:
    frame_reader() = default;
    frame_reader(const frame_reader&) = delete;  // `control_` points into `text_`

    /// Allocates the buffer, of at least frame_bytes + most_text.
    void open(std::size_t buffer_bytes) {
        buffer_.reset(new std::byte[buffer_bytes]);
        capacity_ = buffer_bytes;
    }
    /// Where the messages of this stream land; null: it carries control messages only.
    posted_messages* receives = nullptr;
    bool expecting() const { return receives && !receives->empty(); }
    /// The stream's next frame is a message that no receive has been posted for.
    bool holding() const { return holding_ && !expecting() && !dropping(); }

    /// Writes into v where the next bytes of the stream go, in order; `most` is two or more. Returns the entries; 0: no
    /// bytes are to be read now. Call it when `next` has found nothing more.
    int room(iovec* v, int most) {
        ahead_ = 0;
        if (!buffer_ || garbage_ || holding()) return 0;
        int n = 0;
        if (left_ > 0 && !dropping()) {  // the buffer is empty
            std::size_t at = 0;
            std::uint64_t bytes = left_;
            n = receives->pieces().gather(at, bytes, v, most - 1);
            if (bytes > 0) return n;
        } else if (end_ == 0 && left_ == 0 && frames_ > 0 && expecting() && receives->front().bytes >= least_ahead) {
            return room_ahead(v, most);
        }
        if (begin_ > 0 && capacity_ - begin_ < frame_bytes + most_text) {
            std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
            end_ -= begin_;
            begin_ = 0;
        }
        v[n] = {buffer_.get() + end_, capacity_ - end_ < usual_room ? capacity_ - end_ : usual_room};
        return n + 1;
    }
    /// So many bytes have been read to where `room` said.
    void add(std::size_t bytes) {
        if (ahead_ > 0) {
            add_ahead(bytes);
            return;
        }
        if (left_ > 0 && !dropping()) {
            const std::uint64_t part = bytes < left_ ? bytes : left_;
            receives->pieces().skip(part);
            left_ -= part;
            bytes -= static_cast<std::size_t>(part);
            if (left_ == 0) receives->finish();
        }
        end_ += bytes;
    }
    /// The next thing in what has been read. Call it until it returns nothing, held or garbage.
    arrival next() {
        while (!garbage_) {
            if (left_ > 0) {
                const std::size_t part = left_ < end_ - begin_ ? static_cast<std::size_t>(left_) : end_ - begin_;
                if (!dropping()) receives->pieces().copy_in(buffer_.get() + begin_, part);
                consume(part);
                left_ -= part;
                if (left_ > 0) return arrival::nothing;
                if (!dropping()) receives->finish();
            }
            if (end_ - begin_ < frame_bytes) return arrival::nothing;
            const std::optional<frame> f = parse_frame({buffer_.get() + begin_, frame_bytes});
            garbage_ = !f || f->number != frames_ || (f->kind == frame_kind::message && receives == nullptr);
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
            wanted_ = receives->front();
            got_ = {f->label, f->bytes};
            if (!(wanted_.label == got_.label) || wanted_.bytes != got_.bytes) {
                receives->drop();
                return arrival::unexpected;
            }
            if (left_ == 0) receives->finish();
        }
        return arrival::garbage;
    }
    const control_message& control() const { return control_; }
    const message_header& wanted() const { return wanted_; }
    const message_header& got() const { return got_; }

    /// The least message whose payload is read with its header: smaller ones take less time through the buffer.
    std::size_t least_ahead = std::size_t{8} << 10;

private:
    static constexpr std::size_t usual_room = std::size_t{16} << 10;

    // Room for a header, the payload that is expected behind it, and more.
    int room_ahead(iovec* v, int most) {
        std::uint64_t rest = receives->front().bytes;
        std::size_t at = 0;
        v[0] = {buffer_.get(), frame_bytes};
        const int n = 1 + receives->pieces().gather(at, rest, v + 1, most - 2);
        ahead_ = static_cast<std::size_t>(receives->front().bytes - rest);
        if (rest > 0) return n;
        const std::size_t more = capacity_ - frame_bytes;
        v[n] = {buffer_.get() + frame_bytes, more < usual_room ? more : usual_room};
        return n + 1;
    }
    void add_ahead(std::size_t bytes) {
        end_ = bytes;
        if (bytes <= frame_bytes) return;
        const std::size_t landed = bytes - frame_bytes < ahead_ ? bytes - frame_bytes : ahead_,
                          behind = bytes - frame_bytes - landed;
        const std::optional<frame> f = parse_frame({buffer_.get(), frame_bytes});
        const message_header& wanted = receives->front();
        if (!f || f->kind != frame_kind::message || f->number != frames_ || !(f->label == wanted.label) ||
            f->bytes != wanted.bytes) {
            if (bytes > capacity_) {
                std::unique_ptr<std::byte[]> larger(new std::byte[bytes]);
                std::memcpy(larger.get(), buffer_.get(), frame_bytes + behind);
                buffer_ = std::move(larger);
                capacity_ = bytes;
            }
            std::byte* const to = buffer_.get() + frame_bytes;
            std::memmove(to + landed, to, behind);
            receives->pieces().peek(to, landed);
            return;
        }
        ++frames_;
        receives->pieces().skip(landed);
        left_ = f->bytes - landed;
        if (left_ == 0) receives->finish();
        begin_ = frame_bytes;
        end_ = frame_bytes + behind;
        if (behind == 0) begin_ = end_ = 0;
    }
    bool dropping() const { return receives && receives->dropping(); }
    void consume(std::size_t bytes) {
        begin_ += bytes;
        if (begin_ == end_) begin_ = end_ = 0;
    }
    void read_control(const frame& f) {
        print(buffer_.get() + begin_ + frame_bytes, f.text_bytes, text_);
        control_ = {f.what, f.a, f.b, f.c, text_};
    }

    std::unique_ptr<std::byte[]> buffer_;
    std::size_t capacity_ = 0, begin_ = 0, end_ = 0;  // bytes read and not consumed: [begin_, end_)
    std::size_t ahead_ = 0;                           // bytes of the next message's memory that `room` has offered
    std::uint64_t left_ = 0;                          // bytes of the current message that have not been read
    std::uint64_t frames_ = 0;                        // read: the next one has this number
    bool holding_ = false, garbage_ = false;
    message_header wanted_{}, got_{};
    control_message control_;
    char text_[most_text + 1];
};

/// Writes messages as a stream of frames, several small ones in one call.
///     n = w.gather(v, most, number); number += w.advance(writev(fd, v, n));
class frame_writer : public posted_messages {
public:
    static constexpr int most_together = 8;  ///< messages of one `gather`

    /// The last bytes written are those of a message that is not complete.
    bool within() const { return header_left_ < frame_bytes; }
    /// The stream ends within a frame, so nothing can follow in it.
    bool cut() const { return cut_; }

    /// Forgets the messages that have not been written. One of which a part has been written is cut off; `a_part` says
    /// that another frame of the same stream, which the caller writes, is cut off.
    void drop(bool a_part = false) {
        cut_ = cut_ || a_part || within();
        posted_messages::drop();
        header_left_ = frame_bytes;
    }

    /// Writes into v what is to be written next; the stream's next frame gets the number `number`. Returns the entries,
    /// `most` at most. They are valid until the next call of any function of this.
    int gather(iovec* v, int most, std::uint64_t number) {
        int n = 0;
        std::size_t at = 0;
        for (std::size_t i = 0; i < size() && i < most_together && n < most; ++i) {
            const auto& m = (*this)[i];
            const std::size_t header = i == 0 ? header_left_ : frame_bytes;
            if (header > 0) {
                const frame f{.kind = frame_kind::message, .number = number + i, .bytes = m.bytes, .label = m.label};
                encode(f, headers_[i]);
                v[n++] = {headers_[i] + frame_bytes - header, header};
            }
            std::uint64_t bytes = i == 0 && within() ? left_ : m.bytes;
            n += pieces().gather(at, bytes, v + n, most - n);
            if (bytes > 0) break;
        }
        return n;
    }
    /// So many bytes of it have been written. Returns how many frames that has completed.
    unsigned advance(std::size_t bytes) {
        unsigned frames = 0;
        while (!empty()) {
            if (!within()) left_ = front().bytes;
            const std::size_t header = std::min(bytes, header_left_);
            header_left_ -= header;
            bytes -= header;
            if (header_left_ > 0) break;
            const std::uint64_t part = bytes < left_ ? bytes : left_;
            pieces().skip(part);
            left_ -= part;
            bytes -= static_cast<std::size_t>(part);
            if (left_ > 0) break;
            finish();
            ++frames;
            header_left_ = frame_bytes;
            if (bytes == 0) break;
        }
        return frames;
    }

private:
    std::size_t header_left_ = frame_bytes;  // bytes of the front message's header that have not been written
    std::uint64_t left_ = 0;                 // bytes of its payload likewise, once its header has been begun
    bool cut_ = false;
    std::byte headers_[most_together][frame_bytes];
};

}  // namespace colls::inline v1::detail
