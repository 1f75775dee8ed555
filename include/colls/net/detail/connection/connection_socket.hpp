// One of the two sockets of a connection between two ranks.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/connection/frame_stream.hpp>
#include <colls/net/detail/connection/tcp_node.hpp>

#include <sys/ioctl.h>

namespace colls::inline v1::detail {

class connection_socket : public watched_socket {
public:
    /// Capacity of the reader's buffer: what is read ahead of the receives.
    static constexpr std::size_t buffer_bytes = 64 << 10;

    frame_reader reader;
    std::uint64_t frames_written = 0;
    bool welcomed = false;  ///< the peer has answered the hello: it has accepted this connection
    bool written = false;   ///< more than the hello

    bool is_unused() const { return stage_ == stage::unused; }
    bool is_connecting() const { return stage_ == stage::connecting; }
    bool is_open() const { return !is_unused() && !is_closed(); }
    /// The hello is behind: frames may arrive.
    bool carries_frames() const { return stage_ == stage::established || stage_ == stage::read_only; }
    /// Under TLS nothing follows the hello before the peer is known: else it would be lost where the peer drops that.
    bool can_write() const { return stage_ == stage::established && is_known(); }
    bool is_known() const { return !cover || cover->is_known(); }
    /// It can be written to now, or may be later.
    bool may_write() const { return stage_ <= stage::established; }
    bool is_closed() const { return stage_ == stage::closed; }
    bool has_unread() const { return is_open() && readable && !reader.holding(); }
    /// The system has bytes to pass on that the peer's system has not acknowledged. If the socket were closed now,
    /// whatever the peer writes to it would be answered by a reset, and those bytes would be lost.
    bool has_unacknowledged() {
        int bytes = 0;
        if (may_write() && cover && (cover->flush(fd.get()), cover->has_unsent())) return true;
        return can_write() && ioctl(fd.get(), TIOCOUTQ, &bytes) == 0 && bytes > 0;
    }

    /// unused -> connecting. `fd` is set afterwards: `close` follows if that fails.
    void start_connecting() {
        stage_ = stage::connecting;
        readable = writable = hung_up = false;
    }
    /// -> unused, while no frame has been written: for another attempt.
    void cancel() {
        fd.close();
        cover.reset();
        frames_written = 0;
        stage_ = stage::unused;
    }
    /// connecting -> established, by the rank that connects: it has sent its hello.
    void connected() {
        stage_ = stage::established;
        writable = true;
        reader.open(buffer_bytes);
    }
    /// unused -> established, by the rank that was connected to.
    void accepted() {
        connected();
        readable = true;
    }
    /// established -> read_only: writing has failed, since the peer has closed its side. What it sent before is still
    /// to be read.
    void stop_writing() {
        stage_ = stage::read_only;
        readable = hung_up = true;
    }
    /// -> closed, for good. No node watches it any more.
    void close() {
        fd.close();
        stage_ = stage::closed;
        readable = writable = false;
    }

private:
    enum class stage : std::uint8_t { unused, connecting, established, read_only, closed };
    stage stage_ = stage::unused;
};

}  // namespace colls::inline v1::detail
