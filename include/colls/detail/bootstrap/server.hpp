// Rank 0's side of a rendezvous: it listens until every rank has come, and minds nobody else.
#pragma once

#include <colls/detail/bootstrap/client.hpp>

namespace colls::inline v1::detail::rendezvous {

/// One thread; every socket non-blocking. A connection may send one hello, in `silence` seconds, and has a place among
/// few until it has: so whatever strays by costs little, and delays nobody for longer than its place lasts.
class reception {
public:
    reception(const launch& l, double timeout) : l_(l), timeout_(timeout), until_(seconds_now() + timeout) {}

    meeting run() {
        members_.resize(static_cast<std::size_t>(l_.size));
        here_.resize(members_.size());
        open();
        here_[0] = true;
        came_ = here_;
        members_[0] = self(own_);
        while (!complete_ || !visitors_.empty()) {
            const double now = seconds_now();
            if (now >= until_) give_up();
            wait(now);
            for (std::size_t i = 0; i < visitors_.size(); ++i) serve(visitors_[i], polls_[i].revents);
            if (polls_.back().revents != 0) take_in();
            if (!complete_ && present_ == l_.size) send_tables();
            if (changed_ && !complete_ && seconds_now() >= told_ + telling) tell_who_is_missing();
            std::erase_if(visitors_, [](const visitor& v) { return !v.fd; });
        }
        return {0, l_.size, group_, std::move(members_), std::move(own_)};
    }

private:
    static constexpr double silence = 5;            ///< seconds in which a connection must have said its hello
    static constexpr double crowded_silence = 0.5;  ///< the same while others wait for its place
    static constexpr std::size_t places = 256;      ///< for connections that have not
    static constexpr double telling = 0.1;          ///< seconds between control messages about who is missing

    struct visitor {
        descriptor fd;
        address from;
        double since = 0;
        enum { greeting, here, leaving } stage = greeting;
        int rank = none;
        nonce ours{}, theirs{};
        std::array<std::byte, hello_bytes> heard{};
        std::size_t bytes_heard = 0;
        std::vector<std::byte> out{};  ///< what it is yet to be sent: this, then the table if it is due
        std::size_t bytes_sent = 0;
        bool gets_table = false;
    };

    void open() {
        const char* why = "";
        std::vector<address> addresses;
        // A name that was just made, such as that of a container, may take some time to be known.
        for (const double patience = seconds_now() + 10; (addresses = resolve(l_.host, l_.port, &why)).empty();) {
            if (seconds_now() >= std::min(patience, until_))
                fail(errc::invalid_argument, l_,
                    message() << "the host '" << std::string_view(l_.host).substr(0, 100)
                              << "' (COLLS_MASTER_ADDR) is not known: " << why);
            poll(nullptr, 0, 50);
        }
        for (int port = l_.port; port < l_.port + l_.ports; ++port)
            if (open_one_of(addresses, port)) return;
        message text;
        text << "cannot listen at " << l_.host << ", port " << l_.port;
        if (l_.ports > 1) text << " to " << l_.port + l_.ports - 1;
        if (reason_ == EADDRINUSE)
            text << ": another process uses it; another job, or what is left of one? Set MASTER_PORT or "
                    "COLLS_MASTER_PORT to a "
                    "free port for all ranks";
        else
            text << ": " << std::strerror(reason_);
        fail(errc::invalid_argument, l_, text);
    }
    bool open_one_of(std::vector<address>& addresses, int port) {
        for (address& at : addresses) {
            at.set_port(port);
            // This host's name may stand for loopback here, but not elsewhere.
            const bool anywhere = at.is_loopback() && !means_loopback(l_.host);
            listening_ = listen_at(anywhere ? address::everywhere(at.family(), port) : at);
            if (!listening_) reason_ = errno;
            if (listening_) {
                reason_ = 0;
                own_ = listen_for_members(l_, at);
                return true;
            }
            if (reason_ == EADDRINUSE) {
                // By rank 0 of this very group? Then it says so.
                visit(l_, std::min(1.0, until_ - seconds_now())).look_at(at);
                return false;
            }
        }
        // An address that is translated on its way here belongs to no interface.
        for (const address& at : addresses) {
            if (at.is_loopback()) continue;
            listening_ = listen_at(address::everywhere(at.family(), port));
            if (!listening_) continue;
            reason_ = 0;
            own_ = listen_for_members(l_, outward_address(at.family()));
            return true;
        }
        return false;
    }

    void wait(double now) {
        double wake = changed_ ? std::min(until_, told_ + telling) : until_;
        polls_.clear();
        std::size_t strangers = 0;
        double oldest = now;
        for (const visitor& v : visitors_) {
            polls_.push_back(
                {v.fd.get(), static_cast<short>(v.out.empty() && !v.gets_table ? POLLIN : POLLIN | POLLOUT), 0});
            if (v.stage == visitor::here) continue;
            ++strangers;
            oldest = std::min(oldest, v.since);
        }
        const bool crowded = strangers >= places || now < accepting_;
        // Negative: not polled. In a crowd the others wait in the system's queue.
        polls_.push_back({crowded ? -1 : listening_.get(), POLLIN, 0});
        if (strangers > 0) wake = std::min(wake, oldest + (crowded ? crowded_silence : silence));
        if (now < accepting_) wake = std::min(wake, accepting_);
        if (poll(polls_.data(), polls_.size(), milliseconds_until(wake)) < 0)
            for (pollfd& p : polls_) p.revents = 0;  // a signal

        now = seconds_now();
        for (std::size_t i = 0; i < visitors_.size(); ++i) {
            visitor& v = visitors_[i];
            if (v.stage == visitor::here) continue;
            const bool idle = polls_[i].revents == 0;
            if (v.since <= now - silence || (crowded && idle && v.since <= now - crowded_silence)) drop(v);
        }
    }

    void take_in() {
        std::size_t strangers = 0;
        for (const visitor& v : visitors_) strangers += v.fd && v.stage != visitor::here;
        for (; strangers < places; ++strangers) {
            visitor v;
            v.fd = accept_from(listening_.get());
            if (!v.fd) {
                if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNABORTED || errno == EINTR) return;
                reason_ = errno;  // too many open files, perhaps: later
                accepting_ = seconds_now() + 0.05;
                return;
            }
            v.from = remote_address(v.fd.get());
            v.since = seconds_now();
            v.ours = random_nonce();
            const auto bytes = encode(challenge{.once = v.ours});
            v.out.assign(bytes.begin(), bytes.end());
            visitors_.push_back(std::move(v));
            flush(visitors_.back());
        }
    }

    void serve(visitor& v, short events) {
        if (v.fd && events & POLLOUT) flush(v);
        if (v.fd && events & ~POLLOUT) hear(v);
    }

    void hear(visitor& v) {
        std::byte waste[256];
        const bool greeting = v.stage == visitor::greeting;
        std::byte* const to = greeting ? v.heard.data() + v.bytes_heard : waste;
        const ssize_t n = ::recv(v.fd.get(), to, greeting ? hello_bytes - v.bytes_heard : sizeof waste, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        if (n <= 0) return drop(v);
        if (v.stage == visitor::here) return drop(v);  // it has nothing more to say
        if (!greeting) return;
        v.bytes_heard += static_cast<std::size_t>(n);
        if (v.bytes_heard >= prefix_bytes) judge(v);
    }

    void judge(visitor& v) {
        const auto p = parse_prefix(v.heard);
        if (!p || p->kind != record_kind::hello) return drop(v);
        if (p->protocol != rendezvous_version) return refuse_version(v, *p);
        if (v.bytes_heard < hello_bytes) return;
        const auto h = parse_hello(v.heard);
        if (!h) return drop(v);
        v.theirs = h->once;
        if (!same(h->proof, prove(l_.token, v.ours, v.theirs, v.heard)))
            return refuse(
                v, verdict::wrong_token, message() << "a process from " << host_text(v.from) << " has another token");
        if (h->library != library_version) return refuse_version(v, *p);
        if (h->rank >= l_.size)
            return refuse(v, verdict::rank_out_of_range,
                message() << "rank " << h->rank << " of " << h->size << " came, but "
                          << "rank 0 has a group of " << l_.size << " ranks");
        if (h->size != l_.size)
            return refuse(v, verdict::other_size,
                message() << "rank " << h->rank << " has a group of " << h->size << " ranks, but rank 0 has one of "
                          << l_.size);
        const auto rank = static_cast<std::size_t>(h->rank);
        if (here_[rank]) drop_if_gone(h->rank);
        if (here_[rank])
            return refuse(v, verdict::rank_taken,
                message() << "rank " << h->rank << " was given twice: to process "
                          << static_cast<long long>(members_[rank].pid) << " (reached at " << text_of(members_[rank].at)
                          << ") and to process " << static_cast<long long>(h->who.pid) << " (reached at "
                          << text_of(h->who.at) << ")");
        v.stage = visitor::here;
        v.rank = h->rank;
        members_[rank] = seen_over(v.fd.get(), h->who);
        here_[rank] = came_[rank] = true;
        ++present_;
        changed_ = true;
        say_to(v, verdict::accepted, missing().c_str());
    }
    void refuse_version(visitor& v, const prefix& theirs) {
        refuse(v, verdict::version_skew,
            message() << "a process from " << host_text(v.from) << " uses colls " << theirs
                      << ", but rank 0 uses colls " << prefix{record_kind::hello});
    }
    void refuse(visitor& v, verdict what, const message& why) {
        // Whoever has the token was meant to come; of the others only who wants to know hears.
        const bool quiet = what == verdict::wrong_token || ++warnings_ > 16;
        if (!quiet || environment::read().debug >= debug_level::info)
            say(message() << "colls: rank 0 of " << l_.size << " has refused a connection: " << why.text());
        refusal_ = why.text();
        v.stage = visitor::leaving;
        v.since = seconds_now();
        say_to(v, what, why.text());
    }

    /// A rank whose connection has ended may come again; the control messages of the end may come after it.
    void drop_if_gone(int rank) {
        for (visitor& v : visitors_) {
            std::byte b;
            if (v.rank != rank || !v.fd) continue;
            const ssize_t n = ::recv(v.fd.get(), &b, 1, MSG_PEEK | MSG_DONTWAIT);
            if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) drop(v);
        }
    }
    void drop(visitor& v) {
        v.fd.close();
        if (v.stage != visitor::here || complete_) return;
        here_[static_cast<std::size_t>(v.rank)] = false;
        --present_;
        changed_ = true;
    }

    void say_to(visitor& v, verdict what, const char* text) {
        reply a{.what = what, .size = l_.size, .group = group_};
        for (std::size_t i = 0; i < reply::most_text && text[i]; ++i)
            a.text[i] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
        a.proof = prove(l_.token, v.ours, v.theirs, encode(a));
        const auto bytes = encode(a);
        v.out.insert(v.out.end(), bytes.begin(), bytes.end());
        flush(v);
    }
    void flush(visitor& v) {
        while (!v.out.empty() || v.gets_table) {
            const auto& from = v.out.empty() ? table_ : v.out;
            const ssize_t n =
                ::send(v.fd.get(), from.data() + v.bytes_sent, from.size() - v.bytes_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
            if (n < 0) return drop(v);
            v.bytes_sent += static_cast<std::size_t>(n);
            if (v.bytes_sent < from.size()) continue;
            v.bytes_sent = 0;
            if (v.out.empty()) v.gets_table = false;
            v.out.clear();
        }
        if (complete_) v.fd.close();  // it has all that it came for
        // What it still sends is read, or the reset of a connection with unread data would overtake the answer.
        if (v.stage == visitor::leaving) shutdown(v.fd.get(), SHUT_WR);
    }

    int ever_came() const { return static_cast<int>(std::count(came_.begin(), came_.end(), true)); }
    /// Who never came is to blame sooner than who left because of that.
    std::string missing() const {
        std::vector<bool> others(here_.size());
        for (std::size_t r = 0; r < here_.size(); ++r) others[r] = here_[r] || !came_[r];
        const int came = ever_came();
        message text;
        if (came < l_.size) text << ranks_without(came_);
        if (came > present_)
            text << (came < l_.size ? " and " : "") << ranks_without(others) << " (came, and left again)";
        return text.text();
    }
    void tell_who_is_missing() {
        const std::string text = missing();
        changed_ = false;
        told_ = seconds_now();
        for (visitor& v : visitors_)
            if (v.fd && v.stage == visitor::here && v.out.empty()) say_to(v, verdict::waiting, text.c_str());
    }
    void send_tables() {
        complete_ = true;
        listening_.close();
        table_ = encode_table(members_);
        const digest sum = sha256().add(table_).finish();
        for (visitor& v : visitors_) {
            if (v.stage != visitor::here) v.fd.close();
            if (!v.fd) continue;
            reply a{.what = verdict::complete, .size = l_.size, .group = group_};
            a.proof = prove(l_.token, v.ours, v.theirs, encode(a));
            const auto bytes = encode(a);
            const digest proof = prove_table(l_.token, v.ours, v.theirs, sum);
            v.out.insert(v.out.end(), bytes.begin(), bytes.end());
            v.out.insert(v.out.end(), proof.begin(), proof.end());
            v.gets_table = true;
            flush(v);
        }
    }

    [[noreturn]] void give_up() {
        if (complete_) {
            const int slow = visitors_.front().rank;
            fail(errc::timeout, l_,
                message() << "all ranks came, but rank " << slow << " did not take the list of them within " << timeout_
                          << " s",
                slow);
        }
        message text;
        text << "rank 0 waited " << timeout_ << " s for " << missing() << " (" << present_ << " of " << l_.size
             << " are here)";
        for (visitor& v : visitors_)
            if (v.fd && v.stage == visitor::here) say_to(v, verdict::broken, text.text());
        text << " at " << text_of(local_address(listening_.get()))
             << "; was it started, with the same COLLS_MASTER_ADDR, "
             << "COLLS_MASTER_PORT and COLLS_TOKEN?";
        if (reason_ != 0)
            text << " It could not take all connections in: " << std::strerror(reason_) << " (ulimit -n).";
        if (!refusal_.empty()) text << " Refused: " << refusal_;
        const auto& blamed = ever_came() == l_.size ? here_ : came_;
        fail(
            errc::timeout, l_, text, static_cast<int>(std::find(blamed.begin(), blamed.end(), false) - blamed.begin()));
    }

    const launch& l_;
    double timeout_, until_;
    descriptor listening_, own_;
    int reason_ = 0;
    std::uint64_t group_ = random_id();
    std::vector<member> members_;
    std::vector<bool> here_, came_;  ///< by rank: is, ever was
    int present_ = 1, warnings_ = 0;
    bool complete_ = false, changed_ = false;
    double told_ = 0, accepting_ = 0;
    std::vector<visitor> visitors_;
    std::vector<pollfd> polls_;
    std::vector<std::byte> table_;
    std::string refusal_;
};

}  // namespace colls::inline v1::detail::rendezvous
