// The rendezvous: all ranks connect to rank 0 over TCP. Here is rank 0's side: it listens until every rank has
// connected, and tells them so. records.hpp has the protocol, and what it protects against.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/forming/client.hpp>

namespace colls::inline v1::detail {

namespace rendezvous {

/// One thread, every socket non-blocking. A connection has to send one hello within `hello_timeout`, and occupies one
/// of `most_unidentified` slots until then. So a stray connection gets one bounded slot and a timeout.
class server {
public:
    server(const launch& l, double timeout) : l_(l), timeout_(timeout), until_(seconds_now() + timeout) {}

    [[gnu::cold]] std::unique_ptr<rank_star> run() {
        members_.resize(static_cast<std::size_t>(l_.size));
        listen();
        members_[0] = {present, getpid(), own_};
        while (count(present) < l_.size) {
            if (seconds_now() >= until_) fail_timeout();
            step();
            if (changed_ && seconds_now() >= reported_at_ + report_interval) report_missing();
            if (left_at_ > 0 && seconds_now() >= left_at_ + time_to_return) fail_left();
        }
        listening_.close();
        std::vector<peer_line> lines(members_.size());
        for (connection& c : connections_) {
            if (c.stage == connection::identified) send_reply(c, verdict::complete, "");
            // A peer for which there is no room for that does not read, or has ended.
            if (c.stage == connection::identified && c.fd && c.out.empty())
                lines[static_cast<std::size_t>(c.rank)] = {
                    std::make_unique<own_socket>(std::move(c.fd)), c.ours, c.theirs};
        }
        connections_.clear();
        int lost = 1;
        while (lost < l_.size && lines[static_cast<std::size_t>(lost)].socket) ++lost;
        auto star = std::make_unique<rank_star>(l_, timeout_, std::move(lines), own_);
        if (lost < l_.size) star->lost(lost);
        return star;
    }

private:
    static constexpr double hello_timeout = 5;             ///< seconds in which a connection must have sent its hello
    static constexpr double crowded_hello_timeout = 0.5;   ///< likewise, while others wait for its slot
    static constexpr std::size_t most_unidentified = 256;  ///< connections without an accepted hello
    static constexpr double report_interval = 0.1;         ///< seconds between two replies about the missing ranks
    static constexpr double time_to_return = 0.5;          ///< seconds in which a rank that has left may connect anew
    static constexpr double patience = 0.3;                ///< seconds for which there may be no descriptor

    enum presence : unsigned char { absent, present, left };  ///< of a rank: it is connected, or was at some time
    struct connection {
        descriptor fd;
        address from;
        double since = 0;  ///< when it was accepted, or refused
        enum {
            awaiting_hello,
            identified,  ///< it is that of a rank of this group
            refused      ///< it is closed by the peer, or at the timeout
        } stage = awaiting_hello;
        int rank = none;
        nonce ours{}, theirs{};
        std::array<std::byte, hello::bytes> received{};
        std::size_t bytes_received = 0;
        std::vector<std::byte> out{};  ///< bytes that are still to be sent
        std::size_t bytes_sent = 0;    ///< of `out`
    };
    struct member_seen {
        presence is = absent;
        std::int64_t pid = 0;
        address from{};
    };

    [[gnu::cold]] void listen() {
        const char* why = "";
        std::vector<address> addresses;
        // A new name, such as that of a container, may take some time to be known to the name server.
        for (const double limit = seconds_now() + 10; (addresses = resolve(l_.host, l_.port, &why)).empty();) {
            if (seconds_now() >= std::min(limit, until_))
                fail(errc::invalid_argument, l_,
                    error_text() << "the host '" << std::string_view(l_.host).substr(0, 100)
                                 << "' (COLLS_MASTER_ADDR), at which rank 0 is to listen, is not known: " << why);
            poll(nullptr, 0, 50);
        }
        for (int port = l_.port; port < l_.port + l_.ports; ++port)
            if (listen_at_one_of(addresses, port)) return;
        error_text text;
        text << "cannot listen at " << l_.host << ", port " << ports_of(l_);
        if (reason_ == EADDRINUSE)
            text << ": another process uses it, perhaps of another job, or of one that has failed. Set MASTER_PORT or "
                    "COLLS_MASTER_PORT to a free port for all ranks";
        else
            text << ": " << system_text(reason_);
        fail(errc::invalid_argument, l_, text);
    }
    [[gnu::cold]] bool listen_at_one_of(std::vector<address>& addresses, int port) {
        for (address& at : addresses) {
            at.set_port(port);
            // This host's name may stand for loopback here, and for another address elsewhere.
            const bool everywhere = at.is_loopback() && !means_loopback(l_.host);
            if (listens(everywhere ? address::everywhere(at.family(), port) : at, at)) return true;
            reason_ = errno;
            if (reason_ == EADDRINUSE) {
                // Perhaps by another rank 0 of this very group: then this throws.
                client(l_, std::min(1.0, until_ - seconds_now())).probe(at);
                return false;
            }
        }
        // An address that is translated on its way to this host belongs to none of its interfaces.
        for (const address& at : addresses)
            if (!at.is_loopback() && listens(address::everywhere(at.family(), port), outward_address(at.family())))
                return true;
        return false;
    }
    /// For the rendezvous there; `own`: where the other ranks are to reach this one. False: errno says why.
    bool listens(const address& there, const address& own) {
        listening_ = listen_at(there);
        if (!listening_) return false;
        spare_ = opened([&] { return fcntl(listening_.get(), F_DUPFD_CLOEXEC, 0); });
        reason_ = 0;
        own_ = own;
        return true;
    }

    [[gnu::cold]] void step() {
        wait(seconds_now());
        for (std::size_t i = 0; i < connections_.size(); ++i) serve(connections_[i], polls_[i].revents);
        if (polls_.back().revents != 0) accept_connections();
        std::erase_if(connections_, [](const connection& c) { return !c.fd; });
    }
    [[gnu::cold]] void wait(double now) {
        double wake = changed_ ? std::min(until_, reported_at_ + report_interval) : until_;
        polls_.clear();
        std::size_t unidentified = 0;
        double oldest = now;
        for (const connection& c : connections_) {
            polls_.push_back({c.fd.get(), static_cast<short>(c.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
            if (c.stage == connection::identified) continue;
            ++unidentified;
            oldest = std::min(oldest, c.since);
        }
        const bool crowded = unidentified >= most_unidentified || now < accept_again_at_;
        // A negative descriptor is not polled. While all slots are taken, further connections wait in the system's
        // queue.
        polls_.push_back({crowded ? -1 : listening_.get(), POLLIN, 0});
        if (unidentified > 0) wake = std::min(wake, oldest + (crowded ? crowded_hello_timeout : hello_timeout));
        if (now < accept_again_at_) wake = std::min(wake, accept_again_at_);
        if (left_at_ > 0) wake = std::min(wake, left_at_ + time_to_return);
        if (poll(polls_.data(), polls_.size(), milliseconds_until(wake)) < 0)
            for (pollfd& p : polls_) p.revents = 0;  // interrupted by a signal

        now = seconds_now();
        for (std::size_t i = 0; i < connections_.size(); ++i) {
            connection& c = connections_[i];
            if (c.stage == connection::identified) continue;
            const bool idle = polls_[i].revents == 0;
            if (c.since <= now - hello_timeout || (crowded && idle && c.since <= now - crowded_hello_timeout)) drop(c);
        }
    }

    [[gnu::cold]] void accept_connections() {
        std::size_t unidentified = 0;
        for (const connection& c : connections_) unidentified += c.fd && c.stage != connection::identified;
        for (; unidentified < most_unidentified; ++unidentified) {
            connection c;
            c.fd = accept_from(listening_.get());
            if (!c.fd) {
                if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNABORTED || errno == EINTR) return;
                reason_ = errno;  // probably too many open files
                accept_again_at_ = seconds_now() + 0.05;
                if (refused_since_ == 0 || unidentified > 0) refused_since_ = seconds_now();  // silent ones leave soon
                if (broken_.empty() && seconds_now() > refused_since_ + patience)
                    give_up(errc::unsupported, 0,
                        error_text() << "rank 0 cannot accept the connections of all ranks: " << system_text(reason_));
                return;
            }
            refused_since_ = 0;
            c.from = remote_address(c.fd.get());
            c.since = seconds_now();
            c.ours = random_bytes<nonce>();
            const auto bytes = encode(challenge{.once = c.ours});
            c.out.assign(bytes.begin(), bytes.end());
            connections_.push_back(std::move(c));
            flush(connections_.back());
        }
    }

    void serve(connection& c, short events) {
        if (c.fd && events & POLLOUT) flush(c);
        if (c.fd && events & ~POLLOUT) receive(c);
    }

    [[gnu::cold]] void receive(connection& c) {
        std::byte waste[256];
        const bool awaiting = c.stage == connection::awaiting_hello;
        std::byte* const to = awaiting ? c.received.data() + c.bytes_received : waste;
        const std::size_t whole = c.bytes_received < prefix_bytes ? prefix_bytes : hello::bytes;
        const ssize_t n = ::recv(c.fd.get(), to, awaiting ? whole - c.bytes_received : sizeof waste, MSG_DONTWAIT);
        if (n < 0 && may_try_again(errno)) return;
        if (n <= 0) return drop(c);
        if (c.stage == connection::identified) return drop(c);  // a rank sends nothing behind its hello
        if (!awaiting) return;
        c.bytes_received += static_cast<std::size_t>(n);
        if (c.bytes_received == prefix_bytes) return receive(c);
        if (c.bytes_received > prefix_bytes) check_hello(c);
    }

    [[gnu::cold]] void check_hello(connection& c) {
        const auto p = parse_prefix(c.received);
        if (!p || p->kind != record_kind::hello) return drop(c);
        if (p->protocol != rendezvous_version) return refuse_version(c, *p);
        if (c.bytes_received < hello::bytes) return;
        const auto record = bytes_view(c.received).first(hello::bytes);
        const auto h = parse<hello>(record);
        if (!h) return drop(c);
        c.theirs = h->once;
        if (!same(h->proof, prove(l_.token, c.ours, c.theirs, record)))
            return refuse(c, verdict::wrong_token,
                error_text() << "a process on " << host_text(c.from) << " has a different token (COLLS_TOKEN)");
        if (h->library != library_version) return refuse_version(c, *p);
        if (h->rank >= l_.size)
            return refuse(c, verdict::rank_out_of_range,
                error_text() << "rank " << h->rank << " of " << h->size
                             << " is out of range: rank 0 was started as one of " << l_.size << " ranks");
        if (h->size != l_.size)
            return refuse(c, verdict::other_size,
                error_text() << "rank " << h->rank << " was started as one of " << h->size
                             << " ranks, but rank 0 as one of " << l_.size);
        member_seen& m = members_[static_cast<std::size_t>(h->rank)];
        if (m.is == present) drop_if_gone(h->rank);
        if (m.is == present)
            return refuse(c, verdict::rank_taken,
                error_text() << "rank " << h->rank << " was given twice: to process " << m.pid << " (on "
                             << host_text(m.from) << ") and to process " << h->pid << " (on " << host_text(c.from)
                             << ")");
        if (!broken_.empty()) return tell_broken(c);
        c.stage = connection::identified;
        c.rank = h->rank;
        m = {present, h->pid, c.from};
        changed_ = true;
        if (count(left) == 0) left_at_ = 0;
        send_reply(c, verdict::accepted, missing().c_str());
    }
    void refuse_version(connection& c, const prefix& theirs) {
        refuse(c, verdict::version_skew,
            error_text() << "a process on " << host_text(c.from) << " uses colls " << theirs
                         << ", but rank 0 uses colls " << prefix{record_kind::hello});
    }
    [[gnu::cold]] void refuse(connection& c, verdict what, const error_text& why) {
        // A process that has the token belongs to this job: rank 0 prints up to 16 such refusals. It prints all with
        // COLLS_DEBUG=info.
        const bool quiet = what == verdict::wrong_token || ++warnings_ > 16;
        if (!quiet || environment::read().debug >= debug_level::info)
            say(error_text() << "colls: rank 0 of " << l_.size << " has refused a connection: " << why);
        refusal_ = why.text();
        dismiss(c, what, why);
    }
    void dismiss(connection& c, verdict what, const char* why) {
        c.stage = connection::refused;
        c.since = seconds_now();
        send_reply(c, what, why);
    }

    /// Notices that a rank's connection has ended, which may be seen only after the rank has connected anew.
    void drop_if_gone(int rank) {
        for (connection& c : connections_) {
            std::byte b;
            if (c.rank != rank || !c.fd) continue;
            const ssize_t n = ::recv(c.fd.get(), &b, 1, MSG_PEEK | MSG_DONTWAIT);
            if (n == 0 || (n < 0 && !may_try_again(errno))) drop(c);
        }
    }
    void drop(connection& c) {
        c.fd.close();
        if (c.stage != connection::identified) return;
        members_[static_cast<std::size_t>(c.rank)].is = left;
        changed_ = true;
        if (left_at_ == 0) left_at_ = seconds_now();
    }

    void send_reply(connection& c, verdict what, const char* text) {
        reply a{.what = what, .size = l_.size};
        set_text(a, text);
        const auto bytes = sealed(a, l_.token, c.ours, c.theirs);
        c.out.insert(c.out.end(), bytes.begin(), bytes.end());
        flush(c);
    }
    [[gnu::cold]] void flush(connection& c) {
        while (!c.out.empty()) {
            const ssize_t n = ::send(
                c.fd.get(), c.out.data() + c.bytes_sent, c.out.size() - c.bytes_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
            if (n < 0) return drop(c);
            c.bytes_sent += static_cast<std::size_t>(n);
            if (c.bytes_sent < c.out.size()) continue;
            c.bytes_sent = 0;
            c.out.clear();
        }
        // What the peer still sends is read: closing a connection with unread data sends a reset, which would overtake
        // the reply.
        if (c.stage == connection::refused) shutdown(c.fd.get(), SHUT_WR);
    }

    int count(presence what) const {
        return static_cast<int>(std::count_if(members_.begin(), members_.end(), [=](auto& m) { return m.is == what; }));
    }
    int first(presence what) const {
        int r = 0;
        while (members_[static_cast<std::size_t>(r)].is != what) ++r;
        return r;
    }
    /// "rank 2", "ranks 2, 5-7, 9"; shortened if they are many.
    std::string names(presence what) const {
        error_text text;
        text << (count(what) == 1 ? "rank " : "ranks ");
        const auto is = [&](int r) { return r < l_.size && members_[static_cast<std::size_t>(r)].is == what; };
        int parts = 0;
        for (int r = 0; r < l_.size; ++r) {
            if (!is(r)) continue;
            const int begin = r;
            while (is(r + 1)) ++r;
            if (parts++ == 10) return (text << ", ...").text();
            text << (parts == 1 ? "" : ", ") << begin;
            if (r > begin) text << (r > begin + 1 ? "-" : ", ") << r;
        }
        return text.text();
    }
    /// Names the ranks that are missing: first those that have never connected, since others may have left because of
    /// them.
    std::string missing() const {
        error_text text;
        if (count(absent) > 0) text << names(absent);
        if (count(left) > 0)
            text << (count(absent) > 0 ? " and " : "") << names(left) << " (connected, and left again)";
        return text.text();
    }
    [[gnu::cold]] void report_missing() {
        const std::string text = missing();
        changed_ = false;
        reported_at_ = seconds_now();
        for (connection& c : connections_)
            if (c.fd && c.stage == connection::identified && c.out.empty())
                send_reply(c, verdict::waiting, text.c_str());
    }
    void tell_broken(connection& c) {
        ++told_;
        dismiss(c, verdict::failed, broken_.c_str());
    }
    /// Tells the ranks that are connected, and those that come within a second, that there will be no group.
    [[noreturn]] void give_up(errc code, int because_of, const error_text& why) {
        broken_ = why.text();
        for (connection& c : connections_)
            if (c.fd && c.stage == connection::identified) tell_broken(c);
        left_at_ = 0;
        spare_.close();  // a descriptor for those that come
        until_ = std::min(until_, seconds_now() + 1);
        while (told_ < l_.size && seconds_now() < until_) step();
        fail(code, l_, why, because_of);
    }
    [[noreturn]] void fail_left() {
        const int rank = first(left);
        const member_seen& m = members_[static_cast<std::size_t>(rank)];
        ++told_;
        error_text text;
        text << "rank " << rank << " (process " << m.pid << ", on " << host_text(m.from)
             << ") connected, and has left again: it has failed";
        if (count(absent) > 0) text << ", or has given up waiting for " << names(absent);
        give_up(errc::peer_failed, rank, text);
    }

    [[noreturn]] void fail_timeout() {
        error_text text;
        text << "rank 0 waited " << timeout_ << " s for " << missing() << " (" << count(present) << " of " << l_.size
             << " have connected)";
        for (connection& c : connections_)
            if (c.fd && c.stage == connection::identified) send_reply(c, verdict::broken, text.text());
        text << " at " << text_of(local_address(listening_.get())) << were_all_started;
        if (reason_ != 0) text << " Rank 0 could not accept all connections: " << system_text(reason_) << ".";
        if (!refusal_.empty()) text << " Refused: " << refusal_;
        fail(errc::timeout, l_, text, first(count(absent) > 0 ? absent : left));
    }

    const launch& l_;
    double timeout_, until_;
    descriptor listening_;  ///< for the rendezvous
    descriptor spare_;      ///< not to have none at the end
    address own_;           ///< where the other ranks are to reach this one
    int reason_ = 0;        ///< an errno: of the last listen or accept that failed
    std::vector<member_seen> members_;
    int warnings_ = 0;
    bool changed_ = false;  ///< the missing ranks have, since they were reported
    double reported_at_ = 0, accept_again_at_ = 0;
    double left_at_ = 0;        ///< when the first of those left that are not back; 0: all are
    double refused_since_ = 0;  ///< when the system first gave no descriptor for a connection; 0: it does
    std::string broken_;        ///< why there will be no group
    int told_ = 1;              ///< ranks that know it
    std::vector<connection> connections_;
    std::vector<pollfd> polls_;  ///< of each connection, and of `listening_`
    std::string refusal_;        ///< the last one
};

}  // namespace rendezvous

/// Collective: every rank of a launch calls it, within `timeout` seconds of each other. When it returns, all ranks have
/// called it. Throws colls::error, at the latest after `timeout`: invalid_argument (wrong token, rank out of range or
/// given twice, port taken, unknown interface), mismatch (another size or version), timeout (ranks that have not
/// connected, or rank 0 cannot be reached), peer_failed (rank 0 has closed the connection). A group of one opens no
/// connection. Cost: one round trip.
[[gnu::cold]] inline std::unique_ptr<rank_star> meet(const launch& l, double timeout) {
    using namespace rendezvous;
    if (l.size < 1 || l.rank < 0 || l.rank >= l.size)
        throw error(errc::invalid_argument,
            error_text() << "colls: rank " << l.rank << " is out of range for a job of " << l.size << " ranks");
    if (l.size == 1) return std::make_unique<rank_star>(l, timeout, std::vector<peer_line>(), address());
    if (l.port < 1 || l.ports < 1 || l.port + l.ports > 65536)
        fail(errc::invalid_argument, l,
            error_text() << "port " << l.port
                         << " for the rendezvous is out of range: COLLS_MASTER_PORT must be 1 to 65535");
    if (!l.interface_name.empty()) interface_address(l.interface_name, AF_INET);  // throws before any connection
    return l.rank == 0 ? server(l, timeout).run() : client(l, timeout).run();
}

}  // namespace colls::inline v1::detail
