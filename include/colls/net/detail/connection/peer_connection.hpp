// What one rank has of one peer over TCP: two sockets, what is queued for them, and how far the end of the peer is
// known.
//
// Each rank of a pair connects to the other, at first use or when the other's connection has come in. So there are at
// most two sockets, and no simultaneous connects to resolve. The socket that the lower rank makes carries the messages
// of both ranks, the one that the higher rank makes carries the control messages of both. So control messages always
// pass messages that no receive has been posted for, and a message that `abandon` cuts off does not stop them. (One
// socket for each direction would cost a lone acknowledgement for each small message: 1 us of 4.)
//
// Therefore the higher rank's first message, and the lower rank's first control messages, are written when the peer has
// connected too, that is, when it has called `progress`. There is one exception: when the group is broken, or the
// transport is being destroyed, the lower rank's control messages are written behind its messages instead of waiting.
// If the peer connects after all, `broken` is repeated on the control socket, since the peer may never read the
// messages that it stands behind.
//
// `leave` is written on both sockets: on the control socket at once, so that the end of the connection is not taken for
// a failure, and behind the last message on the message socket. It is reported when both have been read. Before
// `broken` is reported, what has come on the message socket is read.
//
// A message that no receive has been posted for stays unread, as do all messages behind it: the sender's socket fills
// up, and what follows stays queued there.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/connection/stream_transport.hpp>
#include <colls/net/detail/connection/tcp_node.hpp>

#include <sys/ioctl.h>

namespace colls::inline v1::detail {

/// One of the two sockets of a connection.
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

/// What the peer connections of one transport share.
struct tcp_transport_state : stream_state {
    tcp_connection_owner& owner;
    tcp_node& node;
    std::uint64_t group;
    bool receives_always = false;  ///< a receive is posted for every peer; `await` says for which one it matters
    bool urgent = false;           ///< a peer's connection is awaited, of which only the node's events tell
    bool closing = false;          ///< the transport is being destroyed
};

class peer_connection : public stream_connection<peer_connection, tcp_transport_state, connection_socket> {
public:
    /// Before anything else. `state` outlives this; the peer listens at `at`.
    void bind(tcp_transport_state& state, int peer, const address& at) {
        shared_ = &state;
        peer_ = peer;
        at_ = at;
        lower_ = state.rank < peer;
        own_.peer = theirs_.peer = peer;
        own_.owner = theirs_.owner = &state.owner;
        message_socket().reader.receives = &inbox_;
    }

    /// Writes messages that were posted to `sends`.
    void write_queued() {
        connect();
        if (message_socket().writable) write_messages();
        schedule();
    }
    /// Where a receive is always posted: whether a message is waited for.
    void await(bool is) {
        awaited_ = is;
        if (is) schedule();
    }

    /// There is a socket to or from the peer.
    bool is_connected() const { return own_.is_open() || theirs_.is_open(); }
    /// Messages to the peer cannot be written before it has connected to this rank.
    bool needs_peer() const { return message_socket().is_unused(); }
    /// The listener knows that nothing more comes from the peer.
    bool is_over() const { return end_ == end_of_peer::reported; }
    bool is_reachable() const { return end_ == end_of_peer::unseen && peer_ != shared_->rank; }
    /// The peer has connected.
    void accept(channel&& from) {
        // A second connection in the peer's name: one of the two is not from that rank. The first one counts.
        if (!theirs_.is_unused() || is_over()) return;
        static_cast<channel&>(theirs_) = std::move(from);
        if (!shared_->node.watch(theirs_)) return close(theirs_, errno);
        theirs_.accepted();
        const control_frame welcome;
        ++theirs_.frames_written;
        if (const int code = send_all(theirs_, welcome.data, welcome.bytes, 0)) stop_writing(theirs_, code);
        if (!shared_->closing) connect();
        // The peer may never read the messages that the first control message was to be written behind: so that one
        // goes on the control socket, unless it is the final `leave`.
        if (lower_ && control_on_ == &own_ && control_.front().what != control_kind::leave &&
            (control_written_ == 0 || told_broken_)) {
            if (control_written_ == 0)
                --own_.frames_written;
            else
                outbox_.drop(true);  // a part of the control message has been written behind the messages
            control_on_ = nullptr;
        }
        for (; !repeats_.empty(); repeats_.pop()) control_.push(repeats_.front());
        if (leave_ != own_leave::unsaid && lower_)
            control_.push(control_frame(control_message{control_kind::leave}));
        else if (shared_->closing && !told_broken_)
            queue_control(control_message{control_kind::leave});
        write_control();
        schedule();
    }
    /// The system gives this process nothing more for a connection.
    void report_exhausted(int code) {
        if (listener()) listener()->failed(peer_, system_text(code).c_str());
    }
    /// Something waits for the peer's connection, or for its end.
    bool is_urgent() const {
        return own_.is_connecting() || end_ != end_of_peer::unseen ||
               (!theirs_.is_open() && (lower_ ? !control_.empty() : is_awaiting() || !outbox_.empty()));
    }

    /// Does what can be done without waiting. False: there is nothing more to do, and the peer is no longer scheduled.
    bool progress() {
        if (exhausted_ != 0) report_exhausted(std::exchange(exhausted_, 0));
        if (own_.is_connecting()) check_connecting();
        for (connection_socket* s : {&own_, &theirs_})
            if (s->cover && s->can_write()) s->cover->flush(s->fd.get());
        if (own_.carries_frames()) read(own_, most_reads);
        if (theirs_.is_open()) read(theirs_, most_reads);
        write_control();
        write_messages();
        check_end();
        if (!is_over() && is_urgent()) shared_->urgent = true;
        scheduled_ = has_work();
        return scheduled_;
    }
    /// Looks whether there is something to do, and writes what can be written. True: do not sleep. Otherwise `seconds`
    /// is lowered to when this connection is to be looked at again.
    bool prepare_idle(double& seconds) {
        if (own_.is_connecting()) check_connecting();
        if (write_control() || write_messages()) return true;
        if (own_.has_unread() || theirs_.has_unread()) return true;
        if (end_ != end_of_peer::unseen && !is_over()) seconds = std::min(seconds, grace / 4);
        return false;
    }

    /// Something that was said or sent has not reached the peer's system. `patient`: a word counts, too, that waits for
    /// a peer that has to make itself known first (TLS), and does not as long as it is in no call of the group.
    bool is_leaving(bool patient) {
        return !is_over() && (patient || !outbox_.empty() || (own_.is_known() && theirs_.is_known())) &&
               (has_unwritten() || (!told_broken_ && (own_.has_unacknowledged() || theirs_.has_unacknowledged())));
    }
    /// The sockets are about to be closed.
    void release() {
        for (connection_socket* s : {&theirs_, &own_}) {
            // Closing a socket with unread bytes sends a reset, which overtakes what was sent.
            std::byte rest[4096];
            for (int i = 0; s->is_open() && i < 256 && ::recv(s->fd.get(), rest, sizeof rest, MSG_DONTWAIT) > 0; ++i) {}
            shared_->node.unwatch(*s);
        }
    }

private:
    friend class stream_connection<peer_connection, tcp_transport_state, connection_socket>;

    /// How far the end of the peer is known. It moves forward only: in `socket_ended` and `check_end`.
    enum class end_of_peer : std::uint8_t {
        unseen,
        suspected,  ///< a socket ended at `ended_at_`. Within `grace`, what else the peer sent may still arrive.
        rechecked,  ///< the peer has left, and another `grace` runs from `ended_at_`: the socket of its last messages
                    ///< may be waiting to be accepted, since this process may have slept
        reported    ///< the listener knows; the sockets are closed
    };
    /// Whether the peer's `leave` has been received and reported.
    enum class leave_of_peer : std::uint8_t {
        unheard,
        heard,    ///< on the control socket: messages may follow on the other
        reported  ///< to the listener, behind all messages
    };
    /// Whether this rank's `leave` has been sent.
    enum class own_leave : std::uint8_t {
        unsaid,
        due,     ///< on the message socket, behind the last message
        written  ///< there too; if only a part of it could be written, the rest is queued with the control messages
    };
    static constexpr int most_reads = 8;  // of a socket in one `progress`
    static constexpr int most_attempts = 3;
    static constexpr double first_attempt = 0.2;  // seconds until a second one; four times as long until the third
    static constexpr double grace = 0.25;         // seconds
    static constexpr double drop_grace = 3;       // seconds, in which lost packets have been sent again

    connection_socket& message_socket() { return lower_ ? own_ : theirs_; }
    connection_socket& control_socket() { return lower_ ? theirs_ : own_; }
    const connection_socket& message_socket() const { return lower_ ? own_ : theirs_; }
    bool is_awaiting() const { return !inbox_.empty() && (awaited_ || !shared_->receives_always); }

    // ---- the sockets ----

    void connect() {
        if (!own_.is_unused() || peer_ == shared_->rank) return;
        ++attempts_;
        attempted_at_ = seconds_now();
        own_.start_connecting();
        own_.fd = start_connect(at_);
        if (!own_.fd || !shared_->node.watch(own_)) {
            exhausted_ = is_exhausted(errno) ? errno : 0;
            return close(own_, errno);
        }
        check_connecting();
        schedule();
    }
    void connect_again() {
        shared_->node.unwatch(own_);
        own_.cancel();
        if (control_on_ == &own_) control_on_ = nullptr;
        connect();
    }
    void check_connecting() {
        const std::optional<int> failed = connected(own_.fd.get());
        if (!failed) {
            // The system repeats a first packet only after a second, if it is lost, or dropped by a process that just
            // dies.
            if (attempts_ < most_attempts && seconds_now() - attempted_at_ > first_attempt * (1 << 2 * (attempts_ - 1)))
                connect_again();
            return;
        }
        if (*failed != 0) return close(own_, *failed);
        own_.cover = cover_of(true);
        std::byte hello[peer_hello_bytes];
        encode(peer_hello{shared_->group, shared_->rank, peer_}, hello);
        // It fits into a new socket's buffer. It fails where this rank was so slow that the peer dropped the
        // connection.
        if (const int code = send_all(own_, hello, sizeof hello, 0))
            return attempts_ < most_attempts ? connect_again() : close(own_, code);
        own_.connected();
    }
    // The peer's process has dropped this rank's connection before the group took it, and nothing is lost by that.
    bool may_connect_again(const connection_socket& s) const {
        return &s == &own_ && own_.carries_frames() && !own_.welcomed && !own_.written && attempts_ < most_attempts &&
               end_ == end_of_peer::unseen && peers_leave_ == leave_of_peer::unheard && !shared_->closing;
    }
    // One of the sockets has ended; `code` 0: the peer has closed it.
    void close(connection_socket& s, int code) {
        if (code != EPROTO && may_connect_again(s)) return connect_again();
        const bool while_connecting = s.is_connecting();
        shared_->node.unwatch(s);
        s.close();
        socket_ended(s, while_connecting, code);
    }
    // Writing has failed: the peer has closed its side.
    void stop_writing(connection_socket& s, int code) {
        if (may_connect_again(s)) return connect_again();
        s.stop_writing();
        socket_ended(s, false, code);
    }
    void socket_ended(const connection_socket& s, bool while_connecting, int code) {
        control_on_ = nullptr;
        control_.clear();  // the peer will not read them
        if (end_ == end_of_peer::unseen) {
            end_ = end_of_peer::suspected;
            ended_at_ = seconds_now();
            const char* const which = &s == &theirs_     ? "its connection"
                                      : while_connecting ? "cannot connect"
                                                         : "the connection to it";
            const char* const why = code == 0                   ? "closed by the other side"
                                    : s.cover && code == EPROTO ? s.cover->why()
                                    : code == EPROTO            ? "not of this protocol"
                                                                : std::strerror(code);
            std::snprintf(why_, sizeof why_, "%s: %s", which, why);
        }
        schedule();
    }
    // A socket has ended. What the peer sent before is read first, and for a short time more may be on its way.
    void check_end() {
        if (end_ == end_of_peer::unseen || is_over()) return;
        const bool all_closed = theirs_.is_closed() && own_.is_closed();
        if (!all_closed && !(seconds_now() - ended_at_ > grace)) return;
        if (peers_leave_ != leave_of_peer::unheard) {
            if (message_socket().is_open()) return;  // messages that were sent before `leave` are still to be read
            if (end_ == end_of_peer::suspected) {
                end_ = end_of_peer::rechecked;
                ended_at_ = seconds_now();
                shared_->urgent = true;
                return;
            }
            close_both();
            if (peers_leave_ == leave_of_peer::heard && listener()) {
                peers_leave_ = leave_of_peer::reported;
                listener()->heard(peer_, control_message{control_kind::leave});
            }
            return;
        }
        // Where the peer has never accepted this rank's connection, its end says nothing: the peer may have left
        // before, and will say so on its own connection, behind messages that wait for their receives. Where it does
        // not, its process has dropped the connection, and what was written there is lost.
        if (!all_closed && own_.is_closed() && !own_.welcomed && theirs_.is_open() && outbox_.empty() &&
            (theirs_.hung_up || theirs_.reader.holding() || !(seconds_now() - ended_at_ > drop_grace)))
            return;
        close_both();
        if (listener()) listener()->lost(peer_, why_);
    }
    void close_both() {
        end_ = end_of_peer::reported;
        for (connection_socket* s : {&theirs_, &own_})
            if (s->is_open()) close(*s, 0);
        control_.clear();
    }

    // ---- writing ----

    // True: something was written.
    bool write_messages() {
        connection_socket& s = message_socket();
        bool moved = false;
        while (!outbox_.empty() && s.can_write() && control_on_ != &s) {
            iovec v[most_iovecs];
            msghdr m{};
            m.msg_iov = v;
            const int count = outbox_.gather(v, most_iovecs, s.frames_written);
            m.msg_iovlen = static_cast<decltype(m.msg_iovlen)>(count);
            const ssize_t n =
                s.cover ? s.cover->write(s.fd.get(), v, count) : sendmsg(s.fd.get(), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0) {
                if (errno == EINTR) continue;
                write_failed(s);
                return moved;
            }
            s.frames_written += outbox_.advance(static_cast<std::size_t>(n));
            moved = s.written = true;
            if (static_cast<std::size_t>(n) < sum_of(v, count)) {
                s.writable = false;
                return true;
            }
        }
        return moved;
    }
    // Returns how many bytes of a control message were written.
    std::size_t write_some(connection_socket& s, const std::byte* from, std::size_t bytes) {
        ssize_t n;
        do n = s.write(from, bytes);
        while (n < 0 && errno == EINTR);
        if (n < 0) write_failed(s);
        s.written = s.written || n > 0;
        return n < 0 ? 0 : static_cast<std::size_t>(n);
    }
    void write_failed(connection_socket& s) {
        s.writable = false;
        if (!may_try_again(errno)) stop_writing(s, errno);
    }
    connection_socket* socket_for_control() {
        if (control_on_) return control_on_;
        if (control_socket().can_write()) return &control_socket();
        const bool last_resort = (shared_->closing || told_broken_) && lower_ && !theirs_.is_open();
        return last_resort && may_follow_messages() ? &own_ : nullptr;
    }
    // A control message may be written behind the messages.
    bool may_follow_messages() const { return message_socket().can_write() && !outbox_.within() && !outbox_.cut(); }
    // True: something was written.
    bool write_control() {
        bool moved = false;
        while (!control_.empty()) {
            connection_socket* const s = socket_for_control();
            if (s == nullptr || !write_frame(*s, control_.front())) return moved;
            if (s != &control_socket() && control_.front().what == control_kind::broken)
                repeats_.push(control_.front());
            control_.pop();
            moved = true;
        }
        if (leave_ == own_leave::due && control_.empty() && outbox_.empty() && may_follow_messages()) {
            leave_ = own_leave::written;
            control_frame f(control_message{control_kind::leave});
            if (write_frame(message_socket(), f)) return true;
            if (control_on_) control_.push(f);  // the rest of it
        }
        return moved;
    }
    // True: `leave` is to be written on the control socket, too.
    bool start_leave() {
        if (leave_ != own_leave::unsaid) return false;
        leave_ = own_leave::due;
        return control_socket().is_open();
    }
    bool has_unwritten() const {
        const connection_socket& s = message_socket();
        return !control_.empty() ||
               (s.may_write() && ((s.is_open() && leave_ == own_leave::due && !outbox_.cut()) || !outbox_.empty()));
    }

    // ---- reading ----

    bool may_read(const connection_socket& s, bool first) const {
        return s.is_open() && (s.readable || (first && s.reader.expecting() && is_awaiting()));
    }
    // Returns how many bytes were read.
    std::size_t read_some(connection_socket& s, const iovec* v, int count) {
        ssize_t n;
        do n = s.read(v, count);
        while (n < 0 && errno == EINTR);
        const std::size_t bytes = n > 0 ? static_cast<std::size_t>(n) : 0;
        // Less than there was room for: the socket is empty. If it has hung up, the next read says how it ended.
        if (bytes < sum_of(v, count)) s.readable = s.hung_up && n > 0;
        if (n == 0 || (n < 0 && !may_try_again(errno))) close(s, n == 0 ? 0 : errno);
        return bytes;
    }
    // False: a control message that is not to be reported now.
    bool should_report(const connection_socket& s, const control_message& what) {
        // It comes behind the messages that were written before it.
        if (what.what == control_kind::broken && &s == &control_socket() && message_socket().carries_frames())
            read(message_socket(), most_reads);
        if (what.what != control_kind::leave) return true;
        (&s == &message_socket() ? left_messages_ : left_control_) = true;
        if (peers_leave_ == leave_of_peer::unheard) peers_leave_ = leave_of_peer::heard;
        if (!left_messages_ || awaits_control_leave() || peers_leave_ == leave_of_peer::reported) return false;
        peers_leave_ = leave_of_peer::reported;
        return true;
    }
    /// Control messages that the peer sent before its `leave` are still to come. (A peer that has not accepted this
    /// rank's connection has written all behind its messages.)
    bool awaits_control_leave() { return !left_control_ && control_socket().is_open() && (lower_ || own_.welcomed); }
    void end_by_garbage(connection_socket& s) { close(s, EPROTO); }

    bool has_work() const {
        if (is_over()) return false;
        const bool messages_end = message_socket().is_closed();
        return own_.is_connecting() || (is_awaiting() && !messages_end) || (!outbox_.empty() && !messages_end) ||
               !control_.empty() || (leave_ == own_leave::due && may_follow_messages()) || own_.has_unread() ||
               theirs_.has_unread() ||
               (end_ != end_of_peer::unseen && !(peers_leave_ != leave_of_peer::unheard && message_socket().is_open()));
    }

    address at_;                      // where the peer listens
    bool lower_ = false;              // this rank is the lower of the two
    connection_socket own_, theirs_;  // made by this rank, and by the peer
    int attempts_ = 0;                // to connect
    int exhausted_ = 0;               // an errno, for the next `progress`
    double attempted_at_ = 0;         // the last of them
    fifo<control_frame> repeats_;     // `broken` that was written behind messages
    bool awaited_ = false;
    own_leave leave_ = own_leave::unsaid;
    leave_of_peer peers_leave_ = leave_of_peer::unheard;
    bool left_messages_ = false, left_control_ = false;  // `leave` has been read from that socket
    end_of_peer end_ = end_of_peer::unseen;
    double ended_at_ = 0;
    char why_[160] = "";  // the first socket ended
};

}  // namespace colls::inline v1::detail
