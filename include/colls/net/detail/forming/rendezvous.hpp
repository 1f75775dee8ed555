// The rendezvous: all ranks connect to rank 0 over TCP. Here is rank 0's side: it listens until every rank has
// connected, and tells them so. records.hpp has the protocol, and what it protects against.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/forming/bootstrap.hpp>
#include <colls/net/detail/forming/client.hpp>
#include <colls/net/detail/forming/door.hpp>

namespace colls::inline v1::detail {

namespace rendezvous {

class server {
public:
    server(const launch& l, double timeout) : l_(l), timeout_(timeout), until_(seconds_now() + timeout) {}

    [[gnu::cold]] std::unique_ptr<rank_star> run() {
        members_.resize(static_cast<std::size_t>(l_.size));
        listen();
        members_[0] = {present, {}, getpid(), own_};
        while (count(present) < l_.size) {
            if (seconds_now() >= until_) fail_timeout();
            step();
            if (const int reason = door_->exhausted_for(time_without_descriptor))
                give_up(errc::unsupported, 0,
                    error_text() << "rank 0 cannot accept the connections of all ranks: " << system_text(reason));
            if (changed_ && seconds_now() >= reported_at_ + report_interval) report_missing();
            if (left_at_ > 0 && seconds_now() >= left_at_ + time_to_return) fail_left();
        }
        door_.reset();
        for (int r = 1; r < l_.size; ++r) say(r, verdict::complete, "");
        std::vector<peer_line> lines;
        for (member_seen& m : members_) lines.push_back(std::move(m.line));
        auto star = std::make_unique<rank_star>(l_, timeout_, std::move(lines), own_);
        if (count(left) > 0) star->lost(first(left));
        return star;
    }

private:
    static constexpr double report_interval = 0.1;          ///< seconds between two replies about the missing ranks
    static constexpr double time_to_return = 0.5;           ///< seconds in which a rank that has left may connect anew
    static constexpr double time_without_descriptor = 0.3;  ///< seconds

    enum presence : unsigned char { absent, present, left };  ///< of a rank: it is connected, or was at some time
    struct member_seen {
        presence is = absent;
        peer_line line{};
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
        text << "cannot listen at " << l_.host << ", port " << ports_text(l_);
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
        descriptor listening = listen_at(there);
        if (!listening) return false;
        reason_ = 0;
        own_ = own;
        spare_ = opened([&] { return fcntl(listening.get(), F_DUPFD_CLOEXEC, 0); });
        door_ = std::make_unique<door<hello>>(std::move(listening), l_.token, "rank 0");
        door_->on_refusal = [this](verdict what, const char* why) { note_refusal(what, why); };
        return true;
    }

    /// Hears what has come, or waits a moment for it.
    [[gnu::cold]] void step() {
        std::vector<int> watched;
        for (int r = 1; r < l_.size; ++r)
            if (at(r).line.socket) {
                polls_.add(at(r).line);
                watched.push_back(r);
            }
        door_->watch(polls_);
        polls_.wait(until_);
        for (std::size_t i = 0; i < watched.size(); ++i)
            if (polls_.ready(i)) look_at(watched[i]);
        door_->serve();
        for (door<hello>::guest& g : std::exchange(door_->guests, {})) welcome(g);
    }
    /// A rank sends nothing behind its hello: it has ended, or is none.
    void look_at(int rank) {
        if (at(rank).line.read(1) != arriving::not_yet) drop(rank);
    }
    void drop(int rank) {
        at(rank).line.socket.reset();
        at(rank).is = left;
        changed_ = true;
        if (left_at_ == 0) left_at_ = seconds_now();
    }

    [[gnu::cold]] void welcome(door<hello>::guest& g) {
        const hello& h = g.said;
        const auto refuse = [&](verdict what, const error_text& why) {
            door_->refuse(std::move(g.line), g.from, what, why.text());
        };
        if (h.rank >= l_.size)
            return refuse(verdict::rank_out_of_range, error_text() << "rank " << h.rank << " of " << h.size
                                                                   << " is out of range: rank 0 was started as one of "
                                                                   << l_.size << " ranks");
        if (h.size != l_.size)
            return refuse(verdict::other_size, error_text() << "rank " << h.rank << " was started as one of " << h.size
                                                            << " ranks, but rank 0 as one of " << l_.size);
        member_seen& m = at(h.rank);
        if (m.line.socket) look_at(h.rank);  // it may have ended, and have come anew
        if (m.is == present)
            return refuse(verdict::rank_taken, error_text()
                                                   << "rank " << h.rank << " was given twice: to process " << m.pid
                                                   << " (on " << host_text(m.from) << ") and to process " << h.pid
                                                   << " (on " << host_text(g.from) << ")");
        m = {present, std::move(g.line), h.pid, g.from};
        if (!broken_.empty()) return tell_broken(h.rank);
        changed_ = true;
        if (count(left) == 0) left_at_ = 0;
        say(h.rank, verdict::accepted, missing().c_str());
    }
    [[gnu::cold]] void note_refusal(verdict what, const char* why) {
        if (what == verdict::failed) return;  // there will be no group
        // A process that has the token belongs to this job: rank 0 prints up to 16 such refusals. It prints all with
        // COLLS_DEBUG=info.
        const bool quiet = what == verdict::wrong_token || ++warnings_ > 16;
        if (!quiet || environment::read().debug >= debug_level::info)
            colls::detail::say(error_text() << "colls: rank 0 of " << l_.size << " has refused a connection: " << why);
        refusal_ = why;
    }
    /// A rank for which there is no room for it does not read, or has ended.
    [[gnu::cold]] void say(int rank, verdict what, const char* text) {
        reply a{.what = what, .size = l_.size};
        set_text(a, text);
        if (at(rank).line.socket && !at(rank).line.send(a, l_.token)) drop(rank);
    }

    member_seen& at(int rank) { return members_[static_cast<std::size_t>(rank)]; }
    const member_seen& at(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
    int count(presence what) const {
        return static_cast<int>(std::count_if(members_.begin(), members_.end(), [=](auto& m) { return m.is == what; }));
    }
    int first(presence what) const {
        int r = 0;
        while (at(r).is != what) ++r;
        return r;
    }
    std::string names(presence what) const {
        return names_of("rank", l_.size, [&](int r) { return at(r).is == what; });
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
        for (int r = 1; r < l_.size; ++r) say(r, verdict::waiting, text.c_str());
    }

    void tell_broken(int rank) {
        ++told_;
        door_->refuse(std::move(at(rank).line), at(rank).from, verdict::failed, broken_.c_str());
    }
    /// Tells the ranks that are connected, and those that come within a second, that there will be no group.
    [[noreturn]] void give_up(errc code, int because_of, const error_text& why) {
        broken_ = why.text();
        for (int r = 1; r < l_.size; ++r)
            if (at(r).line.socket) tell_broken(r);
        spare_.close();  // a descriptor for those that come
        until_ = std::min(until_, seconds_now() + 1);
        while (told_ < l_.size && seconds_now() < until_) step();
        fail(code, l_, why, because_of);
    }
    [[noreturn]] void fail_left() {
        const int rank = first(left);
        const member_seen& m = at(rank);
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
        for (int r = 1; r < l_.size; ++r) say(r, verdict::broken, text.text());
        text << " at " << text_of(door_->at()) << were_all_started;
        if (door_->reason() != 0)
            text << " Rank 0 could not accept all connections: " << system_text(door_->reason()) << ".";
        if (!refusal_.empty()) text << " Refused: " << refusal_;
        fail(errc::timeout, l_, text, first(count(absent) > 0 ? absent : left));
    }

    const launch& l_;
    double timeout_, until_;
    std::unique_ptr<door<hello>> door_;
    descriptor spare_;  ///< not to have none at the end
    address own_;       ///< where the other ranks are to reach this one
    int reason_ = 0;    ///< an errno: of the last attempt to listen
    std::vector<member_seen> members_;
    poll_set polls_;
    int warnings_ = 0;
    bool changed_ = false;  ///< the missing ranks have, since they were reported
    double reported_at_ = 0;
    double left_at_ = 0;   ///< when the first of those left that are not back; 0: all are
    std::string broken_;   ///< why there will be no group
    int told_ = 1;         ///< ranks that know it
    std::string refusal_;  ///< the last one
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

namespace colls::inline v1 {

COLLS_INLINE communicator world(const launch& l) {
    using namespace detail;
    bring_bootstrap();
    const environment env = environment::read();
    const auto star = meet(l, env.timeout);
    return form_over(*star, {.exchange = *star,
                                .rank = l.rank,
                                .size = l.size,
                                .env = env,
                                .keeps_memory = false,
                                .needs_memory = true,
                                .source = l.source,
                                .listen = [&](bool) {
                                    return l.size == 1 ? listen_on_loopback()
                                                       : rendezvous::listen_for_members(l, star->at);
                                }});
}
COLLS_INLINE communicator world() { return world(read_launch()); }

}  // namespace colls::inline v1
