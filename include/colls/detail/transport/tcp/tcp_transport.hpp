// Messages between ranks over TCP.
//
// Each rank of a pair makes one connection to the other, at first use or when the other's has come in: so there are two
// at most, and no ties to break. The one that the lower rank makes carries the messages of both, the one that the
// higher rank makes the control messages of both. So control messages always pass messages that nobody has posted a
// receive for, and a message that `abandon` cuts off does not stop them. (One connection each way would cost a lone
// acknowledgement for each small message: 1 us of 4.) Therefore the higher rank's first message, and the lower rank's
// first control messages, leave when the peer has connected too, that is, has called `progress`. As a last resort the
// lower rank's control messages go with its messages: when the group is broken, or the transport destroyed. `broken`
// then goes once more on the other connection, if that comes: nobody may take those messages any more.
//
// `leave` goes on both: with the control messages at once, so that the end of the connections is no failure; behind the
// messages it is heard.
//
// A message that no receive is posted for stays unread, and all messages behind it: the sender's socket fills up, and
// what follows stays queued there. What is read ahead is one buffer.
#pragma once

#include <colls/detail/transport/tcp/node.hpp>
#include <colls/detail/transport/tcp/stream.hpp>

#include <sys/ioctl.h>
#include <memory>
#include <vector>

namespace colls::inline v1::detail {

class tcp_transport final : public message_transport, private tcp_connection_owner {
public:
    /// `members`: where each rank of the group listens, in their order. The node outlives the transport. Never waits;
    /// throws std::bad_alloc.
    tcp_transport(tcp_node& node, std::uint64_t group, int rank, const std::vector<address>& members)
        : node_(node),
          group_(group),
          rank_(rank),
          size_(static_cast<int>(members.size())),
          ends_(new end[members.size()]) {
        for (int r = 0; r < size_; ++r) {
            end& e = with(r);
            e.at = members[static_cast<std::size_t>(r)];
            e.theirs.peer = e.own.peer = r;
            e.theirs.owner = e.own.owner = this;
            e.lower = rank < r;
            e.messages().reader.places = &e.inbox;
        }
        busy_.reserve(members.size());
        node_.add(*this);
    }
    tcp_transport(const tcp_transport&) = delete;
    tcp_transport& operator=(const tcp_transport&) = delete;
    /// Says `leave` to those that have not been told that the group is broken, and waits, at most `linger`, until all
    /// that was sent has reached its peers.
    ~tcp_transport() override;

    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        end& e = with(peer);
        const bool first = e.outbox.empty();
        const std::uint64_t number = e.outbox.post(label, pieces, count);
        contact(e);
        if (first) write_messages(e);
        note(e);
        return number;
    }
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override {
        end& e = with(peer);
        const std::uint64_t number = e.inbox.post(label, pieces, count);
        contact(e);
        note(e);
        return number;
    }
    std::uint64_t sent(int peer) const override { return with(peer).outbox.sent(); }
    std::uint64_t received(int peer) const override { return with(peer).inbox.arrived(); }
    /// No message moves any more after this, neither those posted before nor later ones. News do.
    void abandon() override {
        for (int r = 0; r < size_; ++r) {
            with(r).inbox.drop();
            with(r).outbox.drop();
            if (with(r).theirs.open || with(r).own.open) note(with(r));
        }
    }

    bool tell(int peer, const control_message& what) override {
        end& e = with(peer);
        contact(e);
        return say(e, what);
    }
    void tell_all(const control_message& what) override {
        for (int r = 0; r < size_; ++r)
            if (with(r).theirs.open || with(r).own.open) say(with(r), what);
    }

    void progress() override;
    /// Sees to other transports of the node too, as far as noticing goes: their own `progress` does the rest.
    void idle(double seconds) override;

private:
    struct link : watched {
        bool open = false, ended = false;
        bool up = false;    // the hello is behind it
        bool mute = false;  // nothing can be written any more; what has come is still to be read
        frame_reader reader;
        std::uint64_t frames = 0;  // written
        bool to_be_read() const { return open && readable && !reader.holding(); }
        bool takes() const { return up && !mute; }
    };
    /// What this rank has of one peer.
    struct end {
        address at;
        link own, theirs;  // the connection made by this rank, and the peer's
        bool connecting = false;
        int attempts = 0;
        double tried_at = 0;
        bool lower = false;  // this rank is
        message_places inbox;
        frame_writer outbox;
        fifo<control_frame> control_out;
        fifo<control_frame> control_behind;  // `broken` that has gone with the messages
        std::size_t control_done = 0;        // of the first of them, bytes gone
        link* control_on = nullptr;          // where to
        bool listed = false;                 // in busy_
        bool welcomed = false;               // the peer has taken the own connection
        bool left = false, heard_left = false, given_up = false, looked_again = false;
        bool told_broken = false, told_left = false, leave_due = false;
        double ended_at = 0;  // when the first of the connections ended
        char why[96] = "";

        link& messages() { return lower ? own : theirs; }
        link& control() { return lower ? theirs : own; }
    };
    static constexpr int most_iovecs = 64;
    static constexpr std::size_t buffer_bytes = 16 << 10;
    static constexpr std::size_t most_control = 4096;
    static constexpr int most_attempts = 3;
    static constexpr double first_patience = 0.2;
    static constexpr double grace =
        0.25;  // after a first sign of a peer's end: what else it sent may still be on its way

    std::uint64_t group() const override { return group_; }
    void came_in(const peer_hello& hello, descriptor&& fd) override;
    void stirred(watched& s) override { note(with(s.peer)); }

    end& with(int peer) { return ends_[static_cast<std::size_t>(peer)]; }
    const end& with(int peer) const { return ends_[static_cast<std::size_t>(peer)]; }
    void note(end& e) {
        if (e.listed || e.given_up) return;
        e.listed = true;
        busy_.push_back(e.theirs.peer);
    }
    void contact(end& e);
    void try_again(end& e);
    void look_at_connection(end& e);
    void over(end& e, link& l, int code);
    void silence(end& e, link& l, int code);
    void stopped(end& e, link& l, int code);
    bool say(end& e, const control_message& what);
    void serve(end& e);
    bool write_messages(end& e);
    /// Something other than a message, on the connection that carries messages.
    bool may_follow(end& e) { return e.messages().takes() && !e.outbox.within() && !e.outbox.cut(); }
    bool write_control(end& e);
    bool write_frame(end& e, link& l, control_frame& n);
    link* way_for_control(end& e);
    void read(end& e, link& l);
    bool take(end& e, link& from, arrival what);
    void judge(end& e);
    void give_up(end& e);
    bool outstanding(end& e);
    bool awaiting(const end& e) const {
        return e.connecting || e.ended_at > 0 ||
               (!e.theirs.open && (e.lower ? !e.control_out.empty() : e.inbox.expecting() || !e.outbox.empty()));
    }
    bool to_be_said(end& e) {
        const link& l = e.messages();
        return !e.control_out.empty() ||
               (!l.ended && !l.mute && ((l.open && e.leave_due && !e.outbox.cut()) || !e.outbox.empty()));
    }
    /// The system still has something of this rank's to pass on. If the connection were closed now, whatever the peer
    /// writes to it would be answered by a reset, and that would be lost.
    static bool on_its_way(const link& l) {
        int bytes = 0;
        return l.takes() && ioctl(l.fd.get(), TIOCOUTQ, &bytes) == 0 && bytes > 0;
    }
    static bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK; }

    tcp_node& node_;
    std::uint64_t group_;
    int rank_, size_;
    std::unique_ptr<end[]> ends_;
    list<int> busy_;  // peers with something to do; never more than `size_`
    unsigned turns_ = 0;
    bool urgent_ = false;  // somebody waits for a connection, which only the node can see
    bool inside_ = false, closing_ = false;
};

// ---- connections ----------------------------------------------------------------------------------------------------

inline void tcp_transport::contact(end& e) {
    if (e.own.open || e.own.ended || e.theirs.peer == rank_) return;
    e.connecting = true;
    ++e.attempts;
    e.tried_at = seconds_now();
    e.own.fd = start_connect(e.at);
    if (!e.own.fd || !node_.watch(e.own)) {
        over(e, e.own, errno);
        return;
    }
    e.own.open = true;
    e.own.readable = e.own.writable = e.own.hung = false;
    look_at_connection(e);
    note(e);
}

inline void tcp_transport::try_again(end& e) {
    node_.unwatch(e.own);
    e.own.fd.close();
    e.own.open = e.connecting = false;
    contact(e);
}

inline void tcp_transport::look_at_connection(end& e) {
    const connection_state state = connected(e.own.fd.get());
    if (state.is == connection_state::no) {
        // A first packet that is lost, or dropped by a process that just dies, the system repeats only after a second.
        if (e.attempts < most_attempts && seconds_now() - e.tried_at > first_patience * (1 << 2 * (e.attempts - 1)))
            try_again(e);
        return;
    }
    if (state.is == connection_state::failed) {
        over(e, e.own, state.error);
        return;
    }
    std::byte hello[peer_hello_bytes];
    encode(peer_hello{group_, rank_, e.own.peer}, hello);
    // It fits into a new socket's buffer. Where this rank was so slow that the peer took it for silent, it tries again.
    if (::send(e.own.fd.get(), hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello)) {
        if (e.attempts < most_attempts)
            try_again(e);
        else
            over(e, e.own, errno);
        return;
    }
    e.connecting = false;
    e.own.up = e.own.writable = true;
    e.own.reader.open(buffer_bytes);
}

inline void tcp_transport::came_in(const peer_hello& hello, descriptor&& fd) {
    if (hello.to != rank_ || hello.from >= size_) return;
    end& e = with(hello.from);
    if (e.theirs.open || e.theirs.ended || e.given_up) return;  // one of them is not what it says: the first counts
    e.theirs.fd = std::move(fd);
    if (!node_.watch(e.theirs)) {
        over(e, e.theirs, errno);
        return;
    }
    e.theirs.open = e.theirs.up = e.theirs.readable = e.theirs.writable = true;
    e.theirs.reader.open(buffer_bytes);
    const control_frame welcome = control_frame::welcome();
    ++e.theirs.frames;
    if (::send(e.theirs.fd.get(), welcome.data, welcome.bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(welcome.bytes))
        silence(e, e.theirs, errno);
    if (!closing_) contact(e);
    // Nobody may take the messages any more that are before the first of the control messages: so it goes the other
    // way, unless it is the last word.
    if (e.lower && e.control_on == &e.own && e.control_out.front().what != control_kind::leave &&
        (e.control_done == 0 || e.told_broken)) {
        if (e.control_done == 0)
            --e.own.frames;
        else
            e.outbox.drop(true);  // a part of it has gone
        e.control_on = nullptr;
    }
    for (; !e.control_behind.empty(); e.control_behind.pop()) e.control_out.push(e.control_behind.front());
    if (e.told_left && e.lower)
        e.control_out.push(control_frame(control_message{control_kind::leave}));
    else if (closing_ && !e.told_broken)
        say(e, control_message{control_kind::leave});
    write_control(e);
    note(e);
}

// One of the connections is at its end; `code` 0: closed by the peer.
inline void tcp_transport::over(end& e, link& l, int code) {
    node_.unwatch(l);
    l.fd.close();
    l.open = l.up = l.readable = l.writable = false;
    l.ended = true;
    stopped(e, l, code);
    if (&l == &e.own) e.connecting = false;
}
// Writing failed: the other side has closed. What it sent before is still to be read.
inline void tcp_transport::silence(end& e, link& l, int code) {
    l.mute = l.readable = l.hung = true;
    stopped(e, l, code);
}
inline void tcp_transport::stopped(end& e, link& l, int code) {
    e.control_on = nullptr;
    e.control_out.clear();  // nobody will read them
    if (e.ended_at == 0) {
        e.ended_at = seconds_now();
        const char* const which = &l == &e.theirs ? "its connection"
                                  : e.connecting  ? "cannot connect"
                                                  : "the connection to it";
        const char* const why = code == 0        ? "closed by the other side"
                                : code == EPROTO ? "not of this protocol"
                                                 : std::strerror(code);
        std::snprintf(e.why, sizeof e.why, "%s: %s", which, why);
    }
    note(e);
}

// ---- writing --------------------------------------------------------------------------------------------------------

// True: something moved.
inline bool tcp_transport::write_messages(end& e) {
    link& l = e.messages();
    bool moved = false;
    while (!e.outbox.empty() && l.takes() && e.control_on != &l) {
        iovec v[most_iovecs];
        msghdr m{};
        m.msg_iov = v;
        const int count = e.outbox.gather(v, most_iovecs, l.frames);
        m.msg_iovlen = static_cast<decltype(m.msg_iovlen)>(count);
        std::size_t whole = 0;
        for (int i = 0; i < count; ++i) whole += v[i].iov_len;
        const ssize_t n = sendmsg(l.fd.get(), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EINTR) continue;
            l.writable = false;
            if (!would_wait()) silence(e, l, errno);
            return moved;
        }
        l.frames += e.outbox.left(static_cast<std::size_t>(n));
        moved = true;
        if (static_cast<std::size_t>(n) < whole) {
            l.writable = false;
            return true;
        }
    }
    return moved;
}

inline tcp_transport::link* tcp_transport::way_for_control(end& e) {
    if (e.control_on) return e.control_on;
    if (e.control().takes()) return &e.control();
    return (closing_ || e.told_broken) && e.lower && !e.theirs.open && may_follow(e) ? &e.own : nullptr;
}

// True: the whole of it has gone. Otherwise `news_on` says whether it has a number already.
inline bool tcp_transport::write_frame(end& e, link& l, control_frame& n) {
    if (e.control_on == nullptr) {
        n.number(l.frames++);
        e.control_on = &l;
        e.control_done = 0;
    }
    while (e.control_done < n.bytes) {
        const ssize_t sent =
            ::send(l.fd.get(), n.data + e.control_done, n.bytes - e.control_done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            e.control_done += static_cast<std::size_t>(sent);
        } else if (errno != EINTR) {
            l.writable = false;
            if (!would_wait()) silence(e, l, errno);
            return false;
        }
    }
    e.control_on = nullptr;
    return true;
}

// True: something moved.
inline bool tcp_transport::write_control(end& e) {
    bool moved = false;
    while (!e.control_out.empty()) {
        link* const l = way_for_control(e);
        if (l == nullptr || !write_frame(e, *l, e.control_out.front())) return moved;
        if (l != &e.control() && e.control_out.front().what == control_kind::broken)
            e.control_behind.push(e.control_out.front());
        e.control_out.pop();
        moved = true;
    }
    // The last word goes behind all messages.
    if (e.leave_due && e.control_out.empty() && e.outbox.empty() && may_follow(e)) {
        e.leave_due = false;
        control_frame n(control_message{control_kind::leave});
        if (write_frame(e, e.messages(), n)) return true;
        if (e.control_on) e.control_out.push(n);  // the rest of it
    }
    return moved;
}

inline bool tcp_transport::say(end& e, const control_message& what) {
    if (e.given_up || e.ended_at > 0 || e.own.peer == rank_) return false;
    if (e.control_out.size() >= most_control) return false;
    if (what.what == control_kind::broken) e.told_broken = true;
    if (what.what == control_kind::leave) {
        if (e.told_left) return true;
        e.told_left = e.leave_due = true;
    }
    if (what.what != control_kind::leave || e.control().open) e.control_out.push(control_frame(what));
    write_control(e);
    note(e);
    return true;
}

// ---- reading --------------------------------------------------------------------------------------------------------

// One thing that came. False: nothing more can be made of what was read.
inline bool tcp_transport::take(end& e, link& from, arrival what) {
    const int peer = e.own.peer;
    frame_reader& r = from.reader;
    switch (what) {
        case arrival::message:
            return true;
        case arrival::welcome:
            e.welcomed = true;
            return true;
        case arrival::control:
            if (r.heard().what == control_kind::leave) {
                e.left = true;
                if (&from != &e.messages() || e.heard_left) return true;
                e.heard_left = true;
            }
            if (listening) listening->heard(peer, r.heard());
            return true;
        case arrival::unexpected:
            if (listening)
                listening->unexpected(peer, r.wanted().label, r.got().label, static_cast<std::size_t>(r.wanted().bytes),
                    static_cast<std::size_t>(r.got().bytes));
            return true;
        case arrival::held:
            if (r.places == nullptr) break;  // no place for messages
            return false;
        case arrival::nothing:
            return false;
        case arrival::garbage:
            break;
    }
    over(e, from, EPROTO);
    return false;
}

inline void tcp_transport::read(end& e, link& l) {
    for (int turns = 0;; ++turns) {
        while (take(e, l, l.reader.next())) {}
        if (!l.open || e.given_up || turns == 8) return;
        if (!l.readable && !(turns == 0 && l.reader.expecting())) return;
        iovec v[most_iovecs];
        const int count = l.reader.room(v, most_iovecs);
        if (count == 0) return;
        std::size_t whole = 0;
        for (int i = 0; i < count; ++i) whole += v[i].iov_len;
        const ssize_t n =
            count == 1 ? ::recv(l.fd.get(), v[0].iov_base, v[0].iov_len, MSG_DONTWAIT) : readv(l.fd.get(), v, count);
        if (n > 0) {
            l.reader.came(static_cast<std::size_t>(n));
            // Less than there was room for: there is no more. The end, if it has been seen, shows at the next attempt.
            if (static_cast<std::size_t>(n) < whole) l.readable = l.hung;
        } else if (n < 0 && would_wait()) {
            l.readable = false;
            return;
        } else if (n == 0 || errno != EINTR) {
            over(e, l, n == 0 ? 0 : errno);
            return;
        }
    }
}

// ---- progress -------------------------------------------------------------------------------------------------------

inline void tcp_transport::serve(end& e) {
    if (e.connecting) look_at_connection(e);
    if (e.own.open && !e.connecting) read(e, e.own);
    if (e.theirs.open) read(e, e.theirs);
    write_control(e);
    write_messages(e);
    if (e.ended_at > 0) judge(e);
}

// One of the peer's connections is over. What it sent before is read first, and for a short time more may be on its
// way.
inline void tcp_transport::judge(end& e) {
    if (e.given_up) return;
    const bool all = e.theirs.ended && e.own.ended, late = all || seconds_now() - e.ended_at > grace;
    if (!late) return;
    if (e.left) {
        if (e.messages().open) return;  // messages that were sent before it left
        if (!e.looked_again) {  // the connection that they come on may be waiting to be taken: this process may have
                                // slept
            e.looked_again = urgent_ = true;
            e.ended_at = seconds_now();
            return;
        }
        give_up(e);
        if (!e.heard_left && listening) {
            e.heard_left = true;
            listening->heard(e.theirs.peer, control_message{control_kind::leave});
        }
        return;
    }
    // A connection that the peer has never taken says nothing: it may have left before, and said so on its own.
    if (!all && e.own.ended && !e.welcomed && e.theirs.open && e.outbox.empty()) return;
    give_up(e);
    if (listening) listening->lost(e.theirs.peer, e.why);
}
inline void tcp_transport::give_up(end& e) {
    e.given_up = true;
    for (link* l : {&e.theirs, &e.own})
        if (l->open) over(e, *l, 0);
    e.connecting = false;
    e.control_out.clear();
}

inline bool tcp_transport::outstanding(end& e) {
    if (e.given_up) return false;
    return e.connecting || (e.inbox.expecting() && !e.messages().ended) || (!e.outbox.empty() && !e.messages().ended) ||
           !e.control_out.empty() || e.own.to_be_read() || e.theirs.to_be_read() ||
           (e.ended_at > 0 && !(e.left && e.messages().open));
}

inline void tcp_transport::progress() {
    if (inside_) return;
    inside_ = true;
    if (urgent_ || busy_.empty() || ++turns_ % 32 == 0) node_.look();
    urgent_ = false;
    for (std::size_t i = 0; i < busy_.size();) {
        end& e = with(busy_[i]);
        serve(e);
        urgent_ = urgent_ || (!e.given_up && awaiting(e));
        if (outstanding(e)) {
            ++i;
        } else {
            e.listed = false;
            busy_.drop(i);
        }
    }
    inside_ = false;
}

inline void tcp_transport::idle(double seconds) {
    for (std::size_t i = 0; i < busy_.size(); ++i) {
        end& e = with(busy_[i]);
        if (e.connecting) look_at_connection(e);
        if (write_control(e) || write_messages(e)) return;
        if (e.own.to_be_read() || e.theirs.to_be_read()) return;
        if (e.ended_at > 0 && !e.given_up) seconds = std::min(seconds, grace / 4);
    }
    node_.wait(seconds);
}

inline tcp_transport::~tcp_transport() {
    closing_ = true;
    listening = nullptr;
    node_.look();
    for (int r = 0; r < size_; ++r) {
        end& e = with(r);
        e.inbox.drop();
        if ((e.theirs.open || e.own.open) && !e.told_broken) say(e, control_message{control_kind::leave});
        if (e.theirs.open || e.own.open) note(e);
    }
    for (const double begin = seconds_now();;) {
        progress();
        bool waiting = false;
        for (int r = 0; r < size_; ++r) {
            end& e = with(r);
            waiting =
                waiting ||
                (!e.given_up && (to_be_said(e) || (!e.told_broken && (on_its_way(e.own) || on_its_way(e.theirs)))));
        }
        const double now = seconds_now();
        if (!waiting || now - begin > linger) break;
        idle(std::min((now - begin) / 4 + 1e-4, 0.02));  // nothing tells when the last byte has arrived
    }
    node_.look();
    for (int r = 0; r < size_; ++r)
        for (link* l : {&with(r).theirs, &with(r).own}) {
            // What lies unread would make closing a reset, which overtakes what was sent.
            std::byte rest[4096];
            for (int i = 0; l->open && i < 256 && ::recv(l->fd.get(), rest, sizeof rest, MSG_DONTWAIT) > 0; ++i) {}
            node_.unwatch(*l);
        }
    node_.remove(*this);
}

}  // namespace colls::inline v1::detail
