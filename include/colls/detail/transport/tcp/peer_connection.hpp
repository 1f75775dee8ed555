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
// a failure, and behind the last message on the message socket, where it is reported to the listener.
//
// A message that no receive has been posted for stays unread, as do all messages behind it: the sender's socket fills
// up, and what follows stays queued there.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/transport/tcp/connection_socket.hpp>
#include <colls/detail/transport/tcp/frame_writer.hpp>
#include <colls/detail/transport/tcp/tcp_node.hpp>

namespace colls::inline v1::detail {

/// What the peer connections of one transport share.
struct tcp_transport_state {
    message_transport& transport;  ///< its listener gets what arrives
    tcp_connection_owner& owner;
    tcp_node& node;
    std::uint64_t group;
    int rank;
    bool receives_always = false;  ///< a receive is posted for every peer; `await` says for which one it matters
    list<int> busy{};              ///< peers with work to do, each once
    bool urgent = false;           ///< a peer's connection is awaited, of which only the node's events tell
    bool closing = false;          ///< the transport is being destroyed
};

/// The control messages that are queued for one peer.
struct control_queue {
    fifo<control_frame> frames;
    fifo<control_frame> repeats;          ///< `broken` that was written behind messages
    connection_socket* socket = nullptr;  ///< on which the first frame has a number; null: it has none yet
    std::size_t written = 0;              ///< bytes of the first frame, once it has a number
};

class peer_connection {
public:
    peer_connection() = default;
    peer_connection(const peer_connection&) = delete;
    peer_connection& operator=(const peer_connection&) = delete;

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

    std::uint64_t send(const message_label& label, const piece* pieces, int count) {
        const bool first = outbox_.empty();
        const std::uint64_t number = outbox_.post(label, pieces, count);
        connect();
        if (first) write_messages();
        schedule();
        return number;
    }
    std::uint64_t receive(const message_label& label, const piece* pieces, int count) {
        const std::uint64_t number = inbox_.post(label, pieces, count);
        connect();
        schedule();
        return number;
    }
    /// Queues a message that goes with the next one.
    std::uint64_t send_with_next(const message_label& label, const piece* pieces, int count) {
        return outbox_.post(label, pieces, count);
    }
    void write_queued() {
        connect();
        if (message_socket().writable) write_messages();
        schedule();
    }
    std::uint64_t sent() const { return outbox_.sent(); }
    std::uint64_t received() const { return inbox_.arrived(); }
    /// No message moves any more; control messages do.
    void abandon() {
        inbox_.drop();
        outbox_.drop();
        if (has_socket()) schedule();
    }

    frame_writer& sends() { return outbox_; }
    posted_receives& receives() { return inbox_; }
    /// Where a receive is always posted: whether a message is waited for.
    void await(bool is) {
        awaited_ = is;
        if (is) schedule();
    }

    /// Connects, if this rank has not, and queues a control message. False: there is no way to the peer.
    bool tell(const control_message& what) {
        connect();
        return queue_control(what);
    }
    /// Does not connect.
    bool queue_control(const control_message& what);
    /// There is a socket to or from the peer.
    bool has_socket() const { return own_.is_open() || theirs_.is_open(); }
    /// The peer has connected.
    void accept(descriptor&& fd);
    /// The system gives this process nothing more for a connection.
    void report_exhausted(int code) {
        const int before = errno;
        if (listener()) listener()->failed(peer_, system_text(code).c_str());
        errno = before;
    }
    /// Something waits for the peer's connection, or for its end.
    bool is_urgent() const {
        return own_.is_connecting() || end_ != end_of_peer::unseen ||
               (!theirs_.is_open() && (lower_ ? !control_.frames.empty() : is_awaiting() || !outbox_.empty()));
    }

    /// Adds the peer to those with work to do.
    void schedule() {
        if (scheduled_ || end_ == end_of_peer::reported) return;
        scheduled_ = true;
        shared_->busy.push_back(peer_);
    }
    /// Does what can be done without waiting. False: there is nothing more to do, and the peer is no longer scheduled.
    bool progress();
    /// Looks whether there is something to do, and writes what can be written. True: do not sleep. Otherwise `seconds`
    /// is lowered to when this connection is to be looked at again.
    bool prepare_idle(double& seconds);

    /// The transport is being destroyed: drops the receives, and says `leave` unless the peer knows that the group is
    /// broken.
    void begin_leaving() {
        inbox_.drop();
        if (!has_socket()) return;
        if (!told_broken_) queue_control(control_message{control_kind::leave});
        schedule();
    }
    /// Something that was said or sent has not reached the peer's system.
    bool is_leaving() const {
        return end_ != end_of_peer::reported &&
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
    static constexpr int most_iovecs = 64;
    static constexpr std::size_t most_control = 4096;
    static constexpr int most_attempts = 3;
    static constexpr double first_attempt = 0.2;  // seconds until a second one; four times as long until the third
    static constexpr double grace = 0.25;         // seconds

    connection_socket& message_socket() { return lower_ ? own_ : theirs_; }
    connection_socket& control_socket() { return lower_ ? theirs_ : own_; }
    const connection_socket& message_socket() const { return lower_ ? own_ : theirs_; }
    message_transport::listener* listener() const { return shared_->transport.listening; }

    void connect();
    void connect_again();
    void check_connecting();
    void close(connection_socket& s, int code);
    void stop_writing(connection_socket& s, int code);
    void socket_ended(const connection_socket& s, bool while_connecting, int code);
    void check_end();
    void close_both();

    bool write_messages();
    bool write_control();
    bool write_frame(connection_socket& s, control_frame& f);
    connection_socket* socket_for_control();
    /// A control message may be written behind the messages.
    bool may_follow_messages() const { return message_socket().can_write() && !outbox_.within() && !outbox_.cut(); }
    bool has_unwritten() const {
        const connection_socket& s = message_socket();
        return !control_.frames.empty() ||
               (s.may_write() && ((s.is_open() && leave_ == own_leave::due && !outbox_.cut()) || !outbox_.empty()));
    }

    void read(connection_socket& s);
    bool handle(connection_socket& s, arrival what);

    bool is_awaiting() const { return inbox_.expecting() && (awaited_ || !shared_->receives_always); }
    bool has_work() const;
    static bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

    tcp_transport_state* shared_ = nullptr;
    address at_;  // where the peer listens
    int peer_ = none;
    bool lower_ = false;              // this rank is the lower of the two
    connection_socket own_, theirs_;  // made by this rank, and by the peer
    int attempts_ = 0;                // to connect
    double attempted_at_ = 0;         // the last of them
    posted_receives inbox_;
    frame_writer outbox_;
    control_queue control_;
    bool scheduled_ = false;  // in `busy`
    bool awaited_ = false;
    bool told_broken_ = false;  // this rank has said that the group is broken
    own_leave leave_ = own_leave::unsaid;
    leave_of_peer peers_leave_ = leave_of_peer::unheard;
    end_of_peer end_ = end_of_peer::unseen;
    double ended_at_ = 0;
    char why_[96] = "";  // the first socket ended
};

// ---- the sockets ----------------------------------------------------------------------------------------------------

inline void peer_connection::connect() {
    if (!own_.is_unused() || peer_ == shared_->rank) return;
    ++attempts_;
    attempted_at_ = seconds_now();
    own_.start_connecting();
    own_.fd = start_connect(at_);
    if (!own_.fd || !shared_->node.watch(own_)) {
        if (is_exhausted(errno)) report_exhausted(errno);
        close(own_, errno);
        return;
    }
    check_connecting();
    schedule();
}

inline void peer_connection::connect_again() {
    shared_->node.unwatch(own_);
    own_.cancel_connecting();
    connect();
}

inline void peer_connection::check_connecting() {
    const connection_state state = connected(own_.fd.get());
    if (state.is == connection_state::no) {
        // The system repeats a first packet only after a second, if it is lost, or dropped by a process that just dies.
        if (attempts_ < most_attempts && seconds_now() - attempted_at_ > first_attempt * (1 << 2 * (attempts_ - 1)))
            connect_again();
        return;
    }
    if (state.is == connection_state::failed) {
        close(own_, state.error);
        return;
    }
    std::byte hello[peer_hello_bytes];
    encode(peer_hello{shared_->group, shared_->rank, peer_}, hello);
    // It fits into a new socket's buffer. It fails where this rank was so slow that the peer dropped the connection.
    if (const int code = send_all(own_.fd.get(), hello, sizeof hello, 0)) {
        if (attempts_ < most_attempts)
            connect_again();
        else
            close(own_, code);
        return;
    }
    own_.connected();
}

inline void peer_connection::accept(descriptor&& fd) {
    // A second connection in the peer's name: one of the two is not from that rank. The first one counts.
    if (!theirs_.is_unused() || end_ == end_of_peer::reported) return;
    theirs_.fd = std::move(fd);
    if (!shared_->node.watch(theirs_)) {
        close(theirs_, errno);
        return;
    }
    theirs_.accepted();
    const control_frame welcome = control_frame::welcome();
    ++theirs_.frames_written;
    if (const int code = send_all(theirs_.fd.get(), welcome.data, welcome.bytes, 0)) stop_writing(theirs_, code);
    if (!shared_->closing) connect();
    // The peer may never read the messages that the first control message was to be written behind: so that one goes on
    // the control socket, unless it is the final `leave`.
    if (lower_ && control_.socket == &own_ && control_.frames.front().what != control_kind::leave &&
        (control_.written == 0 || told_broken_)) {
        if (control_.written == 0)
            --own_.frames_written;
        else
            outbox_.drop(true);  // a part of the control message has been written behind the messages
        control_.socket = nullptr;
    }
    for (; !control_.repeats.empty(); control_.repeats.pop()) control_.frames.push(control_.repeats.front());
    if (leave_ != own_leave::unsaid && lower_)
        control_.frames.push(control_frame(control_message{control_kind::leave}));
    else if (shared_->closing && !told_broken_)
        queue_control(control_message{control_kind::leave});
    write_control();
    schedule();
}

// One of the sockets has ended; `code` 0: the peer has closed it.
inline void peer_connection::close(connection_socket& s, int code) {
    const bool while_connecting = s.is_connecting();
    shared_->node.unwatch(s);
    s.close();
    socket_ended(s, while_connecting, code);
}
// Writing has failed: the peer has closed its side.
inline void peer_connection::stop_writing(connection_socket& s, int code) {
    s.stop_writing();
    socket_ended(s, false, code);
}
inline void peer_connection::socket_ended(const connection_socket& s, bool while_connecting, int code) {
    control_.socket = nullptr;
    control_.frames.clear();  // the peer will not read them
    if (end_ == end_of_peer::unseen) {
        end_ = end_of_peer::suspected;
        ended_at_ = seconds_now();
        const char* const which = &s == &theirs_     ? "its connection"
                                  : while_connecting ? "cannot connect"
                                                     : "the connection to it";
        const char* const why = code == 0        ? "closed by the other side"
                                : code == EPROTO ? "not of this protocol"
                                                 : std::strerror(code);
        std::snprintf(why_, sizeof why_, "%s: %s", which, why);
    }
    schedule();
}

// A socket has ended. What the peer sent before is read first, and for a short time more may be on its way.
inline void peer_connection::check_end() {
    if (end_ == end_of_peer::unseen || end_ == end_of_peer::reported) return;
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
    // Where the peer has never accepted this rank's connection, its end says nothing: the peer may have left before,
    // and will say so on its own connection.
    if (!all_closed && own_.is_closed() && !own_.welcomed && theirs_.is_open() && outbox_.empty()) return;
    close_both();
    if (listener()) listener()->lost(peer_, why_);
}
inline void peer_connection::close_both() {
    end_ = end_of_peer::reported;
    for (connection_socket* s : {&theirs_, &own_})
        if (s->is_open()) close(*s, 0);
    control_.frames.clear();
}

// ---- writing --------------------------------------------------------------------------------------------------------

// True: something was written.
inline bool peer_connection::write_messages() {
    connection_socket& s = message_socket();
    bool moved = false;
    while (!outbox_.empty() && s.can_write() && control_.socket != &s) {
        iovec v[most_iovecs];
        msghdr m{};
        m.msg_iov = v;
        const int count = outbox_.gather(v, most_iovecs, s.frames_written);
        m.msg_iovlen = static_cast<decltype(m.msg_iovlen)>(count);
        std::size_t whole = 0;
        for (int i = 0; i < count; ++i) whole += v[i].iov_len;
        const ssize_t n = sendmsg(s.fd.get(), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EINTR) continue;
            s.writable = false;
            if (!would_block()) stop_writing(s, errno);
            return moved;
        }
        s.frames_written += outbox_.advance(static_cast<std::size_t>(n));
        moved = true;
        if (static_cast<std::size_t>(n) < whole) {
            s.writable = false;
            return true;
        }
    }
    return moved;
}

inline connection_socket* peer_connection::socket_for_control() {
    if (control_.socket) return control_.socket;
    if (control_socket().can_write()) return &control_socket();
    const bool last_resort = (shared_->closing || told_broken_) && lower_ && !theirs_.is_open();
    return last_resort && may_follow_messages() ? &own_ : nullptr;
}

// True: the frame has been written whole. Otherwise `control_.socket` says whether it has its number already.
inline bool peer_connection::write_frame(connection_socket& s, control_frame& f) {
    if (control_.socket == nullptr) {
        f.set_number(s.frames_written++);
        control_.socket = &s;
        control_.written = 0;
    }
    while (control_.written < f.bytes) {
        const ssize_t n =
            ::send(s.fd.get(), f.data + control_.written, f.bytes - control_.written, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            control_.written += static_cast<std::size_t>(n);
        } else if (errno != EINTR) {
            s.writable = false;
            if (!would_block()) stop_writing(s, errno);
            return false;
        }
    }
    control_.socket = nullptr;
    return true;
}

// True: something was written.
inline bool peer_connection::write_control() {
    bool moved = false;
    while (!control_.frames.empty()) {
        connection_socket* const s = socket_for_control();
        if (s == nullptr || !write_frame(*s, control_.frames.front())) return moved;
        if (s != &control_socket() && control_.frames.front().what == control_kind::broken)
            control_.repeats.push(control_.frames.front());
        control_.frames.pop();
        moved = true;
    }
    if (leave_ == own_leave::due && control_.frames.empty() && outbox_.empty() && may_follow_messages()) {
        leave_ = own_leave::written;
        control_frame f(control_message{control_kind::leave});
        if (write_frame(message_socket(), f)) return true;
        if (control_.socket) control_.frames.push(f);  // the rest of it
    }
    return moved;
}

inline bool peer_connection::queue_control(const control_message& what) {
    if (end_ != end_of_peer::unseen || peer_ == shared_->rank) return false;
    if (control_.frames.size() >= most_control) return false;
    if (what.what == control_kind::broken) told_broken_ = true;
    if (what.what == control_kind::leave) {
        if (leave_ != own_leave::unsaid) return true;
        leave_ = own_leave::due;
    }
    if (what.what != control_kind::leave || control_socket().is_open()) control_.frames.push(control_frame(what));
    write_control();
    schedule();
    return true;
}

// ---- reading --------------------------------------------------------------------------------------------------------

// False: the reader has nothing more.
inline bool peer_connection::handle(connection_socket& s, arrival what) {
    frame_reader& r = s.reader;
    switch (what) {
        case arrival::message:
            return true;
        case arrival::welcome:
            s.welcomed = true;
            return true;
        case arrival::control:
            if (r.control().what == control_kind::leave) {
                if (peers_leave_ == leave_of_peer::unheard) peers_leave_ = leave_of_peer::heard;
                if (&s != &message_socket() || peers_leave_ == leave_of_peer::reported) return true;
                peers_leave_ = leave_of_peer::reported;
            }
            if (listener()) listener()->heard(peer_, r.control());
            return true;
        case arrival::unexpected:
            if (listener())
                listener()->unexpected(peer_, r.wanted().label, r.got().label,
                    static_cast<std::size_t>(r.wanted().bytes), static_cast<std::size_t>(r.got().bytes));
            return true;
        case arrival::held:
            if (r.receives == nullptr) break;  // a message on the control socket
            return false;
        case arrival::nothing:
            return false;
        case arrival::garbage:
            break;
    }
    close(s, EPROTO);
    return false;
}

inline void peer_connection::read(connection_socket& s) {
    for (int reads = 0;; ++reads) {
        while (handle(s, s.reader.next())) {}
        if (!s.is_open() || reads == 8) return;
        if (!s.readable && !(reads == 0 && s.reader.expecting() && is_awaiting())) return;
        iovec v[most_iovecs];
        const int count = s.reader.room(v, most_iovecs);
        if (count == 0) return;
        std::size_t whole = 0;
        for (int i = 0; i < count; ++i) whole += v[i].iov_len;
        const ssize_t n =
            count == 1 ? ::recv(s.fd.get(), v[0].iov_base, v[0].iov_len, MSG_DONTWAIT) : readv(s.fd.get(), v, count);
        if (n > 0) {
            s.reader.add(static_cast<std::size_t>(n));
            // Less than there was room for: the socket is empty. If it has hung up, the next read says how it ended.
            if (static_cast<std::size_t>(n) < whole) s.readable = s.hung_up;
        } else if (n < 0 && would_block()) {
            s.readable = false;
            return;
        } else if (n == 0 || errno != EINTR) {
            close(s, n == 0 ? 0 : errno);
            return;
        }
    }
}

// ---- progress -------------------------------------------------------------------------------------------------------

inline bool peer_connection::has_work() const {
    if (end_ == end_of_peer::reported) return false;
    const bool messages_end = message_socket().is_closed();
    return own_.is_connecting() || (is_awaiting() && !messages_end) || (!outbox_.empty() && !messages_end) ||
           !control_.frames.empty() || (leave_ == own_leave::due && may_follow_messages()) || own_.has_unread() ||
           theirs_.has_unread() ||
           (end_ != end_of_peer::unseen && !(peers_leave_ != leave_of_peer::unheard && message_socket().is_open()));
}

inline bool peer_connection::progress() {
    if (own_.is_connecting()) check_connecting();
    if (own_.carries_frames()) read(own_);
    if (theirs_.is_open()) read(theirs_);
    write_control();
    write_messages();
    check_end();
    if (end_ != end_of_peer::reported && is_urgent()) shared_->urgent = true;
    scheduled_ = has_work();
    return scheduled_;
}

inline bool peer_connection::prepare_idle(double& seconds) {
    if (own_.is_connecting()) check_connecting();
    if (write_control() || write_messages()) return true;
    if (own_.has_unread() || theirs_.has_unread()) return true;
    if (end_ != end_of_peer::unseen && end_ != end_of_peer::reported) seconds = std::min(seconds, grace / 4);
    return false;
}

}  // namespace colls::inline v1::detail
