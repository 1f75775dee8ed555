// The sending direction of a connection, without the socket: messages are queued and written as a stream of frames.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/transport/piece_queue.hpp>
#include <colls/detail/transport/tcp/frame.hpp>

namespace colls::inline v1::detail {

/// Writes messages as a stream of frames, several small ones in one call.
///     n = w.gather(v, most, number); number += w.advance(writev(fd, v, n));
class frame_writer {
public:
    static constexpr int most_together = 8;  ///< messages of one `gather`

    /// Queues a message. Returns its number.
    std::uint64_t post(const message_label& label, const piece* pieces, int count) {
        if (!dropped_) {
            messages_.push({label, sum_of(pieces, count)});
            pieces_.push(pieces, count);
        }
        return posted_++;
    }
    bool empty() const { return messages_.empty(); }
    /// Messages written whole.
    std::uint64_t sent() const { return sent_; }
    /// The last bytes written are those of a message that is not complete.
    bool within() const { return header_left_ < frame_bytes; }
    /// The stream ends within a frame, so nothing can follow in it.
    bool cut() const { return cut_; }

    /// Forgets the messages that have not been written. One of which a part has been written is cut off; `a_part` says
    /// that another frame of the same stream, which the caller writes, is cut off.
    void drop(bool a_part = false) {
        cut_ = cut_ || a_part || within();
        dropped_ = true;
        messages_.clear();
        pieces_.clear();
        header_left_ = frame_bytes;
    }

    /// Writes into v what is to be written next; the stream's next frame gets the number `number`. Returns the entries,
    /// `most` at most. They are valid until the next call of any function of this.
    int gather(iovec* v, int most, std::uint64_t number) {
        int n = 0;
        std::size_t at = 0;
        for (std::size_t i = 0; i < messages_.size() && i < most_together && n < most; ++i) {
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
    /// So many bytes of it have been written. Returns how many frames that has completed.
    unsigned advance(std::size_t bytes) {
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

    /// The memory of what has not been written.
    piece_queue& pieces() { return pieces_; }

private:
    fifo<message_header> messages_;
    piece_queue pieces_;
    std::size_t header_left_ = frame_bytes;  // bytes of the front message's header that have not been written
    std::uint64_t left_ = 0;                 // bytes of its payload likewise, once its header has been begun
    std::uint64_t posted_ = 0, sent_ = 0;
    bool dropped_ = false, cut_ = false;
    std::byte headers_[most_together][frame_bytes];
};

}  // namespace colls::inline v1::detail
