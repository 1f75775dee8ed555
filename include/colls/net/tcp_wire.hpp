// Messages between ranks over TCP.
//
// Each rank of a pair makes one connection to the other, at first use or when the other's has come in: so there are two at
// most, and no ties to break. Messages go forwards, on the sender's own connection. News go backwards, on the connection that
// the peer has made: so they pass messages that nobody has posted a receive for, and a message that was cut off by `abandon`
// does not stop them. (Until the peer's connection is there they wait for it; forwards they go while no message has, and as a
// last resort when the wire is destroyed.) `leave` goes both ways: backwards at once, so that the end of the connections is no
// failure, forwards behind all messages, where it is heard.
//
// A message that no receive is posted for stays unread, and all behind it: the sender's socket fills up, and its messages stay
// queued. What is read ahead is one buffer.
#pragma once

#include <colls/net/stream.hpp>
#include <colls/net/tcp_node.hpp>

#include <memory>
#include <vector>

namespace colls::inline v1::detail {

class tcp_wire final : public wire, private tcp_wire_face {
public:
    /// `members`: where each rank of the group listens, in their order. The node outlives the wire. Never waits; throws
    /// std::bad_alloc.
    tcp_wire(tcp_node& node, std::uint64_t group, int rank, const std::vector<address>& members)
        : node_(node), group_(group), rank_(rank), size_(static_cast<int>(members.size())), ends_(new end[members.size()]) {
        for (int r = 0; r < size_; ++r) {
            end& e = with(r);
            e.at = members[static_cast<std::size_t>(r)];
            e.in.peer = e.out.peer = r;
            e.in.owner = e.out.owner = this;
        }
        busy_.reserve(members.size());
        node_.add(*this);
    }
    tcp_wire(const tcp_wire&) = delete;
    tcp_wire& operator=(const tcp_wire&) = delete;
    /// Says `leave` to those that have not been told that the group is broken, and gives what is queued a second to go.
    ~tcp_wire() override;

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
            if (with(r).in.open || with(r).out.open) note(with(r));
        }
    }

    bool tell(int peer, const news& what) override {
        end& e = with(peer);
        contact(e);
        return say(e, what);
    }
    void tell_all(const news& what) override {
        for (int r = 0; r < size_; ++r)
            if (with(r).in.open || with(r).out.open) say(with(r), what);
    }

    void progress() override;
    /// Sees to other wires of the node too, as far as noticing goes: their own `progress` does the rest.
    void rest(double seconds) override;

private:
    struct link : watched {
        bool open = false, ended = false;
        bool mute = false;   // nothing can be written any more; what has come is still to be read
    };
    /// What this rank has of one peer.
    struct end {
        address at;
        link in, out;                  // the peer's connection, the own one
        bool connecting = false;
        int attempts = 0;
        frame_reader inbox, back;      // what comes on `in`; backwards on `out`
        frame_writer outbox;           // what goes on `out`
        fifo<news_frame> news_out;
        std::size_t news_done = 0;     // of the first of them, bytes gone
        link* news_on = nullptr;       // where to
        std::uint64_t back_frames = 0;
        bool listed = false;           // in busy_
        bool welcomed = false;         // the peer has taken the own connection
        bool left = false, heard_left = false, given_up = false;
        bool told_broken = false, told_left = false, leave_due = false;
        double ended_at = 0;           // when the first of the connections ended
        char why[96] = "";
    };
    static constexpr int most_iovecs = 64;
    static constexpr std::size_t in_buffer = 16 << 10, back_buffer = 1 << 10;
    static constexpr std::size_t most_news = 4096;
    static constexpr double grace = 0.25;   // after a first sign of a peer's end: what else it sent may still be on its way

    std::uint64_t group() const override { return group_; }
    void came_in(const wire_hello& hello, descriptor&& fd) override;
    void stirred(watched& s) override { note(with(s.peer)); }

    end& with(int peer) { return ends_[static_cast<std::size_t>(peer)]; }
    const end& with(int peer) const { return ends_[static_cast<std::size_t>(peer)]; }
    void note(end& e) {
        if (e.listed || e.given_up) return;
        e.listed = true;
        busy_.push_back(e.in.peer);
    }
    void contact(end& e);
    void look_at_connection(end& e);
    void over(end& e, link& l, const char* which, int code);
    void silence(end& e, link& l, const char* which, int code);
    void sign_of_end(end& e, const char* which, int code);
    bool say(end& e, const news& what);
    void serve(end& e);
    bool write_messages(end& e);
    bool write_news(end& e);
    link* way_for_news(end& e);
    void read(end& e, link& l, frame_reader& from);
    bool take(end& e, frame_reader& from, arrival what);
    void judge(end& e);
    void give_up(end& e);
    bool outstanding(end& e);
    bool awaiting(const end& e) const {
        return e.connecting || (!e.in.open && (e.inbox.expecting() || !e.news_out.empty())) || e.ended_at > 0;
    }
    bool to_be_said(const end& e) const {
        return !e.news_out.empty() ||
               (!e.out.ended && !e.out.mute && ((e.leave_due && !e.outbox.cut()) || !e.outbox.empty()));
    }
    static bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK; }

    tcp_node& node_;
    std::uint64_t group_;
    int rank_, size_;
    std::unique_ptr<end[]> ends_;
    list<int> busy_;             // peers with something to do; never more than `size_`
    unsigned turns_ = 0;
    bool urgent_ = false;        // somebody waits for a connection, which only the node can see
    bool inside_ = false, closing_ = false;
};

// ---- connections ----------------------------------------------------------------------------------------------------

inline void tcp_wire::contact(end& e) {
    if (e.out.open || e.out.ended || e.in.peer == rank_) return;
    e.out.fd = start_connect(e.at);
    ++e.attempts;
    if (!e.out.fd || !node_.watch(e.out)) {
        over(e, e.out, "cannot connect", errno);
        return;
    }
    e.out.open = e.connecting = true;
    e.out.readable = e.out.writable = e.out.hung = false;
    look_at_connection(e);
    note(e);
}

inline void tcp_wire::look_at_connection(end& e) {
    const connection_state state = connected(e.out.fd.get());
    if (state.is == connection_state::no) return;
    if (state.is == connection_state::failed) {
        over(e, e.out, "cannot connect", state.error);
        return;
    }
    std::byte hello[hello_bytes];
    encode(wire_hello{group_, rank_, e.out.peer}, hello);
    // It fits into a new socket's buffer. Where this rank was so slow that the peer took it for silent, it tries again.
    if (::send(e.out.fd.get(), hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello)) {
        const int code = errno;
        if (e.attempts >= 3) {
            over(e, e.out, "cannot connect", code);
            return;
        }
        node_.unwatch(e.out);
        e.out.fd.close();
        e.out.open = e.connecting = false;
        contact(e);
        return;
    }
    e.connecting = false;
    e.out.writable = true;
    e.back.open(back_buffer);
}

inline void tcp_wire::came_in(const wire_hello& hello, descriptor&& fd) {
    if (hello.to != rank_ || hello.from >= size_) return;
    end& e = with(hello.from);
    if (e.in.open || e.in.ended || e.given_up) return;   // one of them is not what it says: the first counts
    e.in.fd = std::move(fd);
    if (!node_.watch(e.in)) {
        over(e, e.in, "cannot watch its connection", errno);
        return;
    }
    e.in.open = e.in.readable = e.in.writable = true;
    e.inbox.open(in_buffer);
    const news_frame welcome = news_frame::welcome();
    ++e.back_frames;
    if (::send(e.in.fd.get(), welcome.data, welcome.bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(welcome.bytes))
        silence(e, e.in, "its connection", errno);
    if (!closing_) contact(e);
    if (e.told_left)
        e.news_out.push(news_frame(news{notice::leave}));
    else if (closing_ && !e.told_broken)
        say(e, news{notice::leave});
    write_news(e);
    note(e);
}

// One of the connections is at its end; `code` 0: closed by the peer.
inline void tcp_wire::over(end& e, link& l, const char* which, int code) {
    node_.unwatch(l);
    l.fd.close();
    l.open = l.readable = l.writable = false;
    l.ended = true;
    if (&l == &e.out) e.connecting = false;
    if (e.news_on == &l) {
        e.news_on = nullptr;
        e.news_done = 0;
    }
    sign_of_end(e, which, code);
}
inline void tcp_wire::sign_of_end(end& e, const char* which, int code) {
    if (e.ended_at == 0) {
        e.ended_at = seconds_now();
        std::snprintf(e.why, sizeof e.why, "%s: %s", which, code == 0 ? "closed by the other side" : std::strerror(code));
    }
    note(e);
}
// Writing failed: the other side has closed. What it sent before is still to be read.
inline void tcp_wire::silence(end& e, link& l, const char* which, int code) {
    l.mute = l.readable = l.hung = true;
    l.writable = false;
    if (e.news_on == &l) {
        e.news_on = nullptr;
        e.news_done = 0;
    }
    if (&l == &e.in) e.news_out.clear();
    sign_of_end(e, which, code);
}

// ---- writing --------------------------------------------------------------------------------------------------------

// True: something moved.
inline bool tcp_wire::write_messages(end& e) {
    if (!e.out.open || e.out.mute || e.connecting || e.news_on == &e.out) return false;
    bool moved = false;
    while (!e.outbox.empty()) {
        iovec v[most_iovecs];
        msghdr m{};
        m.msg_iov = v;
        const int count = e.outbox.gather(v, most_iovecs);
        m.msg_iovlen = static_cast<decltype(m.msg_iovlen)>(count);
        std::size_t whole = 0;
        for (int i = 0; i < count; ++i) whole += v[i].iov_len;
        const ssize_t n = sendmsg(e.out.fd.get(), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EINTR) continue;
            e.out.writable = false;
            if (!would_wait()) silence(e, e.out, "the connection to it", errno);
            return moved;
        }
        e.outbox.left(static_cast<std::size_t>(n));
        moved = true;
        if (static_cast<std::size_t>(n) < whole) {
            e.out.writable = false;
            return true;
        }
    }
    return moved;
}

inline tcp_wire::link* tcp_wire::way_for_news(end& e) {
    if (e.news_on) return e.news_on;
    if (e.in.open) return e.in.mute ? nullptr : &e.in;
    const bool free = e.out.open && !e.out.mute && !e.connecting && !e.outbox.within() && !e.outbox.cut();
    return free && (closing_ || (e.outbox.empty() && e.outbox.begun() == 0)) ? &e.out : nullptr;
}

inline bool tcp_wire::write_news(end& e) {
    bool moved = false;
    const auto write = [&](link& l, news_frame& n) {
        if (e.news_on == nullptr) {
            n.number(&l == &e.in ? e.back_frames++ : e.outbox.next_frame());
            e.news_on = &l;
            e.news_done = 0;
        }
        for (;;) {
            const ssize_t sent = ::send(l.fd.get(), n.data + e.news_done, n.bytes - e.news_done, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno == EINTR) continue;
            if (sent < 0) {
                l.writable = false;
                if (!would_wait()) silence(e, l, &l == &e.in ? "its connection" : "the connection to it", errno);
                return false;
            }
            moved = true;
            e.news_done += static_cast<std::size_t>(sent);
            if (e.news_done < n.bytes) return false;
            e.news_on = nullptr;
            return true;
        }
    };
    while (!e.news_out.empty()) {
        link* const l = way_for_news(e);
        if (l == nullptr || !write(*l, e.news_out.front())) return moved;
        e.news_out.pop();
    }
    // The last word goes behind all messages.
    if (e.leave_due && e.outbox.empty() && e.news_out.empty() && e.out.open && !e.out.mute && !e.connecting && !e.outbox.cut()) {
        news_frame n(news{notice::leave});
        if (write(e.out, n)) {
            e.leave_due = false;
        } else if (e.news_on) {   // the rest of it is the queue's
            const std::size_t done = e.news_done;
            e.news_out.push(n);
            e.news_done = done;
            e.leave_due = false;
        }
    }
    return moved;
}

inline bool tcp_wire::say(end& e, const news& what) {
    if (e.given_up || e.in.mute || (e.in.ended && e.out.ended) || (e.out.ended && !e.in.open) || e.in.peer == rank_) return false;
    if (e.news_out.size() >= most_news) return false;
    if (what.what == notice::broken) e.told_broken = true;
    if (what.what == notice::leave) {
        if (e.told_left) return true;
        e.told_left = e.leave_due = true;
    }
    if (what.what != notice::leave || e.in.open) e.news_out.push(news_frame(what));
    write_news(e);
    note(e);
    return true;
}

// ---- reading --------------------------------------------------------------------------------------------------------

// One thing that came. False: nothing more can be made of what was read.
inline bool tcp_wire::take(end& e, frame_reader& from, arrival what) {
    const int peer = e.in.peer;
    switch (what) {
        case arrival::message: return true;
        case arrival::welcome:
            e.welcomed = true;
            return true;
        case arrival::news:
            if (from.heard().what == notice::leave) {
                e.left = true;
                if (&from == &e.back || e.heard_left) return true;
                e.heard_left = true;
            }
            if (listening) listening->heard(peer, from.heard());
            return true;
        case arrival::unexpected:
            if (listening)
                listening->unexpected(peer, from.wanted().label, from.got().label, static_cast<std::size_t>(from.wanted().bytes),
                                      static_cast<std::size_t>(from.got().bytes));
            return true;
        case arrival::garbage:
        case arrival::held:
        case arrival::nothing: break;
    }
    return false;
}

inline void tcp_wire::read(end& e, link& l, frame_reader& from) {
    for (int turns = 0;; ++turns) {
        for (arrival a;;) {
            a = from.next();
            if (a == arrival::garbage || (a == arrival::held && &from == &e.back)) {
                if (l.open) over(e, l, "what came from it is not of this protocol", EPROTO);
                return;
            }
            if (!take(e, from, a)) break;
        }
        if (!l.open || e.connecting || turns == 8) return;
        if (!l.readable && !(turns == 0 && from.expecting())) return;
        iovec v[most_iovecs];
        const int count = from.room(v, most_iovecs);
        if (count == 0) return;
        std::size_t whole = 0;
        for (int i = 0; i < count; ++i) whole += v[i].iov_len;
        const ssize_t n = count == 1 ? ::recv(l.fd.get(), v[0].iov_base, v[0].iov_len, MSG_DONTWAIT) : readv(l.fd.get(), v, count);
        if (n > 0) {
            from.came(static_cast<std::size_t>(n));
            // Less than there was room for: there is no more. The end, if it has been seen, shows at the next attempt.
            if (static_cast<std::size_t>(n) < whole) l.readable = l.hung;
        } else if (n < 0 && would_wait()) {
            l.readable = false;
            return;
        } else if (n == 0 || errno != EINTR) {
            over(e, l, &l == &e.in ? "its connection" : "the connection to it", n == 0 ? 0 : errno);
            return;
        }
    }
}

// ---- progress -------------------------------------------------------------------------------------------------------

inline void tcp_wire::serve(end& e) {
    if (e.connecting) look_at_connection(e);
    if (e.out.open && e.out.readable) read(e, e.out, e.back);
    if (e.in.open) read(e, e.in, e.inbox);
    write_news(e);
    write_messages(e);
    if (e.ended_at > 0) judge(e);
}

// One of the peer's connections is over. What it sent before is read first, and for a short time more may be on its way.
inline void tcp_wire::judge(end& e) {
    if (e.given_up) return;
    const bool all = e.in.ended && e.out.ended, late = all || seconds_now() - e.ended_at > grace;
    if (!late) return;
    if (e.left) {
        if (e.in.open) return;   // messages that were sent before it left
        give_up(e);
        if (!e.heard_left && listening) {
            e.heard_left = true;
            listening->heard(e.in.peer, news{notice::leave});
        }
        return;
    }
    // A connection that the peer has never taken says nothing: it may have left before, and said so on its own.
    if (!all && e.out.ended && !e.welcomed && e.in.open && e.outbox.empty()) return;
    give_up(e);
    if (listening) listening->lost(e.in.peer, e.why);
}
inline void tcp_wire::give_up(end& e) {
    e.given_up = true;
    for (link* l : {&e.in, &e.out})
        if (l->open) over(e, *l, "", 0);
    e.connecting = false;
    e.news_out.clear();
}

inline bool tcp_wire::outstanding(end& e) {
    if (e.given_up) return false;
    return e.connecting || (e.inbox.expecting() && !e.in.ended) || (!e.outbox.empty() && !e.out.ended) || !e.news_out.empty() ||
           (e.in.open && e.in.readable && !e.inbox.holding()) || (e.out.open && e.out.readable) ||
           (e.ended_at > 0 && !(e.left && e.in.open));
}

inline void tcp_wire::progress() {
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

inline void tcp_wire::rest(double seconds) {
    for (std::size_t i = 0; i < busy_.size(); ++i) {
        end& e = with(busy_[i]);
        if (e.connecting) look_at_connection(e);
        if (write_news(e) || write_messages(e)) return;
        if ((e.in.open && e.in.readable && !e.inbox.holding()) || (e.out.open && e.out.readable)) return;
        if (e.ended_at > 0 && !e.given_up) seconds = std::min(seconds, grace / 4);
    }
    node_.wait(seconds);
}

inline tcp_wire::~tcp_wire() {
    closing_ = true;
    listening = nullptr;
    node_.look();
    for (int r = 0; r < size_; ++r) {
        end& e = with(r);
        e.inbox.drop();
        if ((e.in.open || e.out.open) && !e.told_broken) say(e, news{notice::leave});
        if (e.in.open || e.out.open) note(e);
    }
    for (const double until = seconds_now() + 1;;) {
        progress();
        bool waiting = false;
        for (int r = 0; r < size_; ++r) waiting = waiting || (!with(r).given_up && to_be_said(with(r)));
        const double left = until - seconds_now();
        if (!waiting || left <= 0) break;
        rest(std::min(left, 0.1));
    }
    node_.look();
    for (int r = 0; r < size_; ++r)
        for (link* l : {&with(r).in, &with(r).out}) {
            // What lies unread would make closing a reset, which overtakes what was sent.
            std::byte rest[4096];
            for (int i = 0; l->open && i < 256 && ::recv(l->fd.get(), rest, sizeof rest, MSG_DONTWAIT) > 0; ++i) {}
            node_.unwatch(*l);
        }
    node_.remove(*this);
}

}  // namespace colls::inline v1::detail
