// How the members of a group exchange bytes while it is formed: each of them has a connection to the first one, the
// leader, which passes on what it hears. A member that waits for another one hears so at once that it has ended, or why
// it cannot take part.
//
// Both sides of a connection know each other when a star takes it over. On it travel the bytes of exchanges, each
// behind a byte 'd', and the reply (records.hpp) of one that gives up.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/bootstrap/member_exchange.hpp>
#include <colls/detail/support/rank_error.hpp>
#include <colls/detail/support/wait_hook.hpp>
#include <colls/net/detail/connection/tcp_node.hpp>
#include <colls/net/detail/forming/records.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace colls::inline v1::detail {

/// A socket that a forked child closes.
struct own_socket : watched_socket {
    explicit own_socket(descriptor&& f, std::unique_ptr<stream_cover> c = nullptr) {
        fd = std::move(f);
        cover = std::move(c);
        open_sockets::all().add(*this);
    }
    ~own_socket() { open_sockets::all().remove(*this); }
};

/// A connection of two processes that form a group, once both know each other.
struct peer_line {
    std::unique_ptr<own_socket> socket;
    rendezvous::nonce host{}, guest{};  ///< the random numbers of the side that listened, and of the one that came
    arriving in{};

    int fd() const { return socket->fd.get(); }
    arriving::outcome read(std::size_t wanted) { return in.read(*socket, wanted); }
    /// False: the connection has ended, or its buffer is full of what the peer does not read.
    bool send(const rendezvous::reply& a, std::string_view token, double until = 0) const {
        return rendezvous::send_record(*socket, rendezvous::sealed(a, token, host, guest), until) == 0;
    }
};

/// The sockets of a poll.
class poll_set {
public:
    /// After a wait the next one begins a new set.
    void add(int fd, short events) {
        if (std::exchange(waited_, false)) all_.clear(), unread_ = false;
        all_.push_back({fd, events, 0});
    }
    void add(const peer_line& l) {
        add(l.fd(), POLLIN);
        if (!l.socket->has_unread()) return;
        all_.back().events = POLLIN | POLLOUT;  // it is ready, though the socket is empty
        unread_ = true;
    }
    /// At most until then, and for a short time, after which a wait hook has its turn.
    void wait(double until) {
        call_wait_hook();
        wait_without_hook(std::min(milliseconds_until(until), 20));
    }
    void wait_without_hook(int milliseconds) {
        if (std::exchange(waited_, true)) all_.clear();
        if (poll(all_.data(), all_.size(), unread_ ? 0 : milliseconds) < 0)
            for (pollfd& p : all_) p.revents = 0;  // interrupted by a signal
    }
    /// Whether the socket has something to say that was added as number `i`.
    bool ready(std::size_t i) const { return all_[i].revents != 0; }

private:
    std::vector<pollfd> all_;
    bool waited_ = false, unread_ = false;
};

/// "rank 2", "ranks 2, 5-7, 9", of the numbers below n that `is` says yes to; shortened if they are many.
[[gnu::cold]] inline std::string names_of(const char* what, int n, auto&& is) {
    std::string text;
    int parts = 0, all = 0;
    for (int i = 0; i < n; ++i) {
        if (!is(i)) continue;
        const int begin = i;
        while (i + 1 < n && is(i + 1)) ++i;
        all += i + 1 - begin;
        if (parts > 10) continue;
        if (parts++ == 10) {
            text.append(", ...");
            continue;
        }
        text.append(parts == 1 ? "" : ", ").append(std::to_string(begin));
        if (i > begin) text.append(i > begin + 1 ? "-" : ", ").append(std::to_string(i));
    }
    return std::string(what).append(all == 1 ? " " : "s ") + text;
}

class star_exchange : public member_exchange {
public:
    /// `lines`: the leader's by member, the first of which is none; another member's one, to the leader. For at most
    /// `timeout` seconds for each exchange; with `until`, only until then.
    star_exchange(int own, int size, double timeout, double until = 0)
        : own_(own), size_(size), timeout_(timeout), until_(until) {}

    /// "rank 3".
    virtual std::string name(int i) const = 0;
    int own() const { return own_; }
    /// It has thrown an error, and throws it again at each further step.
    bool over() const { return over_.has_value(); }

    [[gnu::cold]] void all_gather(const void* own, std::size_t bytes, void* all) override {
        if (over_) throw *over_;
        const auto n = static_cast<std::size_t>(size_);
        const auto to = static_cast<std::byte*>(all);
        std::memcpy(to + static_cast<std::size_t>(own_) * bytes, own, bytes);
        if (n == 1) return;
        const double until = until_ > 0 ? until_ : seconds_now() + timeout_;
        std::vector<std::byte> message(1 + (leads() ? n : 1) * bytes, data_mark);
        if (!leads()) {
            std::memcpy(message.data() + 1, own, bytes);
            send(0, message, until);
        }
        // Each line that has something to say, in any order.
        std::vector<char> heard(lines_.size(), 0);
        for (poll_set p;;) {
            int missing = none;
            for (std::size_t i = 0; i < lines_.size(); ++i) {
                if (lines_[i].socket) p.add(lines_[i]);
                if (lines_[i].socket && !heard[i] && missing == none) missing = static_cast<int>(i);
            }
            if (missing == none) break;
            if (seconds_now() > until)
                fail(errc::timeout, missing,
                    error_text() << name(missing) << " has not formed the group with the others within " << timeout_
                                 << " s: is it stopped?");
            p.wait(until);
            for (std::size_t i = 0, k = 0; i < lines_.size(); ++i) {
                if (!lines_[i].socket || !p.ready(k++)) continue;
                if (heard[i])
                    hear_failure(static_cast<int>(i));
                else if (hear_data(static_cast<int>(i), leads() ? to + i * bytes : to, leads() ? bytes : n * bytes))
                    heard[i] = 1;
            }
        }
        if (!leads()) return;
        std::memcpy(message.data() + 1, all, n * bytes);
        for (int i = 1; i < size_; ++i) send(i, message, until);
    }
    /// Returns when all members have come here.
    void meet() {
        std::vector<char> all(static_cast<std::size_t>(size_));
        all_gather("", 1, all.data());
    }

    /// Looks at most once a millisecond.
    [[gnu::cold]] void look_for_failure() override {
        if (over_) throw *over_;
        const double now = seconds_now();
        if (now < looked_at_ + 1e-3) return;
        looked_at_ = now;
        for (std::size_t i = 0; i < lines_.size(); ++i)
            if (lines_[i].socket) hear_failure(static_cast<int>(i));
    }
    /// Throws if another one has said why it has given up, or does within a moment: for a process to which that one
    /// seems to have ended.
    [[gnu::cold]] void look_for_cause() {
        for (const double until = seconds_now() + 0.3; !told_ && size_ > 1 && seconds_now() < until; look_for_failure())
            poll(nullptr, 0, 1);
    }

    /// This process cannot take part: the others hear why. Does nothing where they know already.
    [[gnu::cold]] virtual void tell(errc code, int about, std::string_view why) {
        if (std::exchange(told_, true)) return;
        if (why.starts_with("colls: ")) why.remove_prefix(7);
        const auto bytes = encode(rendezvous::refusal(code, about, why));
        for (const peer_line& l : lines_)
            if (l.socket) rendezvous::send_record(*l.socket, bytes, 0);
        drain();
    }
    /// Tells the others, and throws.
    [[noreturn, gnu::cold]] void fail(errc code, int about, const error_text& why) {
        tell(code, about, why.text());
        stop(code, about, why);
    }
    /// Tells the others of an error of the forming, and returns it as this process throws it.
    [[gnu::cold]] virtual error pass_on(const error& x) {
        const std::string_view why = quoted(x.what());
        tell(x.code(), x.peer() == none ? own_ : x.peer(),
            (why.starts_with("rank ") ? "" : name(own_) + ": ").append(why));
        return x;
    }

protected:
    ~star_exchange() override = default;
    bool leads() const { return own_ == 0; }
    [[noreturn, gnu::cold]] void stop(errc code, int about, const error_text& why) {
        over_.emplace(error_of(code, about, why));
        throw *over_;
    }
    /// The other side has told the others itself.
    [[noreturn, gnu::cold]] void stop_as_told(errc code, int about, const error_text& why) {
        told_ = true;
        stop(code, about, why);
    }
    virtual error error_of(errc code, int about, const error_text& why) const = 0;

    peer_line& line(int i) { return lines_[static_cast<std::size_t>(i)]; }
    const peer_line& line(int i) const { return lines_[static_cast<std::size_t>(i)]; }
    void send(int i, rendezvous::bytes_view message, double until) {
        if (rendezvous::send_record(*line(i).socket, message, until) != 0) hear_end(i);
    }
    /// A reply that has arrived as a whole. Throws where the connection has ended.
    [[gnu::cold]] std::optional<rendezvous::reply> read_reply(int i) {
        peer_line& l = line(i);
        const auto read = l.read(rendezvous::reply::bytes);
        if (read == arriving::not_yet) return {};
        const auto a = read == arriving::whole
                           ? rendezvous::parse<rendezvous::reply>(l.in.bytes().first(rendezvous::reply::bytes))
                           : std::nullopt;
        if (!a) lost(i);
        l.in.clear();
        return a;
    }
    /// Throws if the next bytes are not those of an exchange.
    [[gnu::cold]] void hear_failure(int i) {
        peer_line& l = line(i);
        if (l.in.bytes().empty() && l.read(1) == arriving::not_yet) return;
        if (!l.in.bytes().empty() && l.in.bytes()[0] == data_mark) return;
        if (const auto a = read_reply(i)) hear(i, *a);
    }
    /// What the other side says outside of an exchange: that it gives up. Throws.
    [[gnu::cold]] virtual void hear(int i, const rendezvous::reply& a) {
        const int about = rendezvous::about_of(a) == none ? i : rendezvous::about_of(a);
        if (leads()) fail(rendezvous::code_of(a), about, error_text() << a.text);
        stop_as_told(rendezvous::code_of(a), about, error_text() << a.text);
    }
    /// Nothing can be sent to it: it may have said why before it ended.
    [[noreturn, gnu::cold]] void hear_end(int i) {
        hear_failure(i);
        lost(i);
    }
    [[noreturn, gnu::cold]] void lost(int i) {
        fail(errc::peer_failed, i,
            error_text() << name(i) << " has ended, or given up, before all had formed the group");
    }

    const int own_, size_;
    const double timeout_, until_;
    std::vector<peer_line> lines_;

private:
    static constexpr std::byte data_mark{'d'};

    /// True: the bytes of the exchange have arrived, and are at `to`.
    [[gnu::cold]] bool hear_data(int i, std::byte* to, std::size_t bytes) {
        peer_line& l = line(i);
        hear_failure(i);
        if (!l.in.bytes().empty() && l.in.bytes()[0] != data_mark) return false;  // a part of a reply
        const auto read = l.read(1 + bytes);
        if (read == arriving::ended) lost(i);
        if (read != arriving::whole || l.in.bytes()[0] != data_mark) return false;
        std::memcpy(to, l.in.bytes().data() + 1, bytes);
        l.in.clear();
        return true;
    }
    // What was told is to be read: bytes that a closed socket has not read are answered by a reset, which overtakes it.
    [[gnu::cold]] void drain() {
        for (const peer_line& l : lines_)
            if (l.socket) shutdown(l.fd(), SHUT_WR);
        std::byte waste[512];
        for (const double until = seconds_now() + 0.3; seconds_now() < until; poll(nullptr, 0, 1)) {
            bool open = false;
            for (peer_line& l : lines_) {
                ssize_t n = 1;
                while (l.socket && n > 0) n = l.socket->read(waste, sizeof waste);
                if (n == 0 || !may_try_again(errno)) l.socket.reset();
                open = open || l.socket;
            }
            if (!open) return;
        }
    }

    bool told_ = false;          // to the others, why this process has given up
    std::optional<error> over_;  // what was thrown
    double looked_at_ = 0;
};

}  // namespace colls::inline v1::detail
