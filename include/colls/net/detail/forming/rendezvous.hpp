// The rendezvous: all ranks connect to rank 0 over TCP, and each learns at which address every rank listens. Here is
// rank 0's side: it listens until every rank has connected, and sends each the table of all. records.hpp has the
// protocol, and what it protects against.
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

    [[gnu::cold]] meeting run() {
        members_.resize(static_cast<std::size_t>(l_.size));
        ranks_.resize(members_.size());
        line_.resize(members_.size());
        listen();
        ranks_[0] = present;
        members_[0] = self(own_);
        while (!complete_ || !connections_.empty()) {
            if (seconds_now() >= until_) fail_timeout();
            step();
            if (!complete_ && count(present) == l_.size) send_tables();
            if (changed_ && !complete_ && seconds_now() >= reported_at_ + report_interval) report_missing();
            if (!complete_ && left_at_ > 0 && seconds_now() >= left_at_ + time_to_return) fail_left();
        }
        int lost = 1;  // while it was sent the table
        while (lost < l_.size && line_[static_cast<std::size_t>(lost)]) ++lost;
        meeting m{0, l_.size, group_, std::move(members_), std::move(own_), forming_line(0, std::move(line_))};
        if (lost < l_.size) m.line.lost(lost);
        return m;
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
        std::array<std::byte, reply::bytes> received{};  ///< a hello, or a reply that says why it cannot take part
        std::size_t bytes_received = 0;
        std::vector<std::byte> out{};  ///< bytes that are still to be sent; the table follows if `gets_table`
        std::size_t bytes_sent = 0;    ///< of `out`, or of the table
        bool gets_table = false;
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
    /// For the rendezvous there, and at `own` for the other ranks. False: errno says why.
    [[gnu::cold]] bool listens(const address& there, const address& own) {
        listening_ = listen_at(there);
        if (!listening_) return false;
        reason_ = 0;
        try {
            own_ = listen_for_members(l_, own);
            return true;
        } catch (const error& e) {
            const std::string_view why = e.what();
            give_up(
                e.code(), 0, error_text() << "rank 0" << why.substr(why.find(": ", 6)));  // after "colls: rank 0 of 8"
        }
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
            polls_.push_back(
                {c.fd.get(), static_cast<short>(c.out.empty() && !c.gets_table ? POLLIN : POLLIN | POLLOUT), 0});
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
        const auto known = parse_prefix(bytes_view(c.received).first(c.bytes_received));
        const bool failure = known && known->kind == record_kind::reply;
        const std::size_t whole = !known ? prefix_bytes : failure ? reply::bytes : hello::bytes;
        const ssize_t n = ::recv(c.fd.get(), to, awaiting ? whole - c.bytes_received : sizeof waste, MSG_DONTWAIT);
        if (n < 0 && may_try_again(errno)) return;
        if (n <= 0) return drop(c);
        if (c.stage == connection::identified) return drop(c);  // a rank sends nothing behind its hello
        if (!awaiting) return;
        c.bytes_received += static_cast<std::size_t>(n);
        if (c.bytes_received < prefix_bytes) return;
        if (!known) return receive(c);
        failure ? check_failure(c) : check_hello(c);
    }
    /// A rank that cannot take part says why, in place of its hello.
    [[gnu::cold]] void check_failure(connection& c) {
        if (c.bytes_received < reply::bytes) return;
        const auto a = parse<reply>(c.received);
        if (!a || a->what != verdict::failed || a->group == 0 || a->group >= static_cast<std::uint64_t>(l_.size) ||
            !same(a->proof, prove(l_.token, c.ours, {}, c.received)))
            return drop(c);
        c.fd.close();
        ++told_;
        if (broken_.empty()) give_up(errc::peer_failed, static_cast<int>(a->group), error_text() << a->text);
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
        const auto rank = static_cast<std::size_t>(h->rank);
        if (ranks_[rank] == present) drop_if_gone(h->rank);
        if (ranks_[rank] == present)
            return refuse(c, verdict::rank_taken,
                error_text() << "rank " << h->rank << " was given twice: to process " << members_[rank].pid << " (at "
                             << text_of(members_[rank].at) << ") and to process " << h->self.pid << " (at "
                             << text_of(h->self.at) << ")");
        if (!broken_.empty()) return tell_broken(c);
        c.stage = connection::identified;
        c.rank = h->rank;
        members_[rank] = seen_over(c.fd.get(), h->self);
        ranks_[rank] = present;
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
        if (c.stage != connection::identified || complete_) return;
        ranks_[static_cast<std::size_t>(c.rank)] = left;
        changed_ = true;
        if (left_at_ == 0) left_at_ = seconds_now();
    }

    [[gnu::cold]] void add_reply(connection& c, verdict what, const char* text) {
        reply a{.what = what, .size = l_.size, .group = group_};
        set_text(a, text);
        const auto bytes = sealed(a, l_.token, c.ours, c.theirs);
        c.out.insert(c.out.end(), bytes.begin(), bytes.end());
    }
    void send_reply(connection& c, verdict what, const char* text) {
        add_reply(c, what, text);
        flush(c);
    }
    [[gnu::cold]] void flush(connection& c) {
        while (!c.out.empty() || c.gets_table) {
            const auto& from = c.out.empty() ? table_ : c.out;
            const ssize_t n =
                ::send(c.fd.get(), from.data() + c.bytes_sent, from.size() - c.bytes_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
            if (n < 0) return drop(c);
            c.bytes_sent += static_cast<std::size_t>(n);
            if (c.bytes_sent < from.size()) continue;
            c.bytes_sent = 0;
            if (c.out.empty()) c.gets_table = false;
            c.out.clear();
        }
        if (complete_) line_[static_cast<std::size_t>(c.rank)] = std::move(c.fd);  // the table has been sent
        // What the peer still sends is read: closing a connection with unread data sends a reset, which would overtake
        // the reply.
        if (c.stage == connection::refused) shutdown(c.fd.get(), SHUT_WR);
    }

    int count(presence what) const { return static_cast<int>(std::count(ranks_.begin(), ranks_.end(), what)); }
    int first(presence what) const {
        return static_cast<int>(std::find(ranks_.begin(), ranks_.end(), what) - ranks_.begin());
    }
    /// "rank 2", "ranks 2, 5-7, 9"; shortened if they are many.
    std::string names(presence what) const {
        error_text text;
        text << (count(what) == 1 ? "rank " : "ranks ");
        const auto is = [&](int r) { return r < l_.size && ranks_[static_cast<std::size_t>(r)] == what; };
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
    [[gnu::cold]] void send_tables() {
        complete_ = true;
        listening_.close();
        table_ = encode_table(members_);
        const digest sum = sha256().add(table_).finish();
        for (connection& c : connections_) {
            if (c.stage != connection::identified) c.fd.close();
            if (!c.fd) continue;
            add_reply(c, verdict::complete, "");
            const digest proof = prove_table(l_.token, c.ours, c.theirs, sum);
            c.out.insert(c.out.end(), proof.begin(), proof.end());
            c.gets_table = true;
            flush(c);
        }
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
        own_.close();  // a descriptor for those that come
        until_ = std::min(until_, seconds_now() + 1);
        while (told_ < l_.size && seconds_now() < until_) step();
        fail(code, l_, why, because_of);
    }
    [[noreturn]] void fail_left() {
        const int rank = first(left);
        const member& m = members_[static_cast<std::size_t>(rank)];
        ++told_;
        error_text text;
        text << "rank " << rank << " (process " << m.pid << ", at " << text_of(m.at)
             << ") connected, and has left again: it has failed";
        if (count(absent) > 0) text << ", or has given up waiting for " << names(absent);
        give_up(errc::peer_failed, rank, text);
    }

    [[noreturn]] void fail_timeout() {
        if (complete_) {
            const int slow = connections_.front().rank;
            fail(errc::timeout, l_,
                error_text() << "all ranks have connected, but rank " << slow
                             << " has not taken the table of ranks within " << timeout_ << " s: is it stopped?",
                slow);
        }
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
    descriptor own_;        ///< for the other ranks, afterwards
    int reason_ = 0;        ///< an errno: of the last listen or accept that failed
    std::uint64_t group_ = random_id();
    std::vector<member> members_;
    std::vector<presence> ranks_;
    int warnings_ = 0;
    bool complete_ = false;  ///< all ranks have connected
    bool changed_ = false;   ///< the missing ranks have, since they were reported
    double reported_at_ = 0, accept_again_at_ = 0;
    double left_at_ = 0;        ///< when the first of those left that are not back; 0: all are
    double refused_since_ = 0;  ///< when the system first gave no descriptor for a connection; 0: it does
    std::string broken_;        ///< why there will be no group
    int told_ = 1;              ///< ranks that know it
    std::vector<connection> connections_;
    std::vector<descriptor> line_;  ///< by rank: the connections of those that have the table
    std::vector<pollfd> polls_;     ///< of each connection, and of `listening_`
    std::vector<std::byte> table_;
    std::string refusal_;  ///< the last one
};

}  // namespace rendezvous

/// Collective: every rank of a launch calls it, within `timeout` seconds of each other. When it returns, all ranks have
/// called it. Throws colls::error, at the latest after `timeout`: invalid_argument (wrong token, rank out of range or
/// given twice, port taken, unknown interface), mismatch (another size or version), timeout (ranks that have not
/// connected, or rank 0 cannot be reached), peer_failed (rank 0 has closed the connection). A group of one opens its
/// listening socket, on loopback, and no connection. Cost: one round trip, then a table of `member_bytes` for each
/// rank.
[[gnu::cold]] inline meeting meet(const launch& l, double timeout) {
    using namespace rendezvous;
    if (l.size < 1 || l.rank < 0 || l.rank >= l.size)
        throw error(errc::invalid_argument,
            error_text() << "colls: rank " << l.rank << " is out of range for a job of " << l.size << " ranks");
    if (l.size > 1 && (l.port < 1 || l.ports < 1 || l.port + l.ports > 65536))
        fail(errc::invalid_argument, l,
            error_text() << "port " << l.port
                         << " for the rendezvous is out of range: COLLS_MASTER_PORT must be 1 to 65535");
    if (l.size > 1 && !l.interface_name.empty())
        interface_address(l.interface_name, AF_INET);  // throws before any connection
    if (l.size > 1) return l.rank == 0 ? server(l, timeout).run() : client(l, timeout).run();

    meeting m;
    m.listening = listen_on_loopback();
    if (!m.listening) fail(errc::unsupported, l, error_text() << "cannot listen on loopback: " << system_text(errno));
    m.group = random_id();
    m.members.push_back(self(m.listening));
    return m;
}

}  // namespace colls::inline v1::detail
