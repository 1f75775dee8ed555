// The side of ranks other than 0 in a rendezvous: each connects to rank 0, again and again until rank 0 accepts it, and
// waits until all have come.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/forming/meeting.hpp>

namespace colls::inline v1::detail::rendezvous {

class client {
public:
    client(const launch& l, double timeout) : l_(l), timeout_(timeout), until_(seconds_now() + timeout) {}

    [[gnu::cold]] std::unique_ptr<rank_star> run() {
        for (;;) {
            find_addresses();
            for (int port = l_.port; port < l_.port + l_.ports; ++port)
                for (address& at : addresses_)
                    if (seconds_now() < until_ && try_address(at.set_port(port))) return wait_for_others();
            if (seconds_now() + retry_pause >= until_) fail_unreachable();
            poll(nullptr, 0, static_cast<int>(retry_pause * 1e3));
        }
    }

    /// For a rank 0 that finds its port taken. Throws if a rank 0 of the same group listens there.
    void probe(const address& at) { try_address(at); }

private:
    static constexpr double retry_pause = 0.05;    ///< seconds
    static constexpr double time_to_return = 0.5;  ///< likewise, in which a rank 0 that has ended may be started anew
    static constexpr double answer_timeout = 10;   ///< seconds, if there is one address to try
    static constexpr double answer_timeout_of_many = 2;  ///< likewise, if there are several

    void find_addresses() {
        if (!addresses_.empty() && seconds_now() < resolved_at_ + 1) return;  // a name's address may change
        addresses_ = resolve(l_.host, l_.port, &unknown_);
        resolved_at_ = seconds_now();
        if (addresses_.empty()) why_ = error_text() << "the name is not known: " << unknown_;
    }

    /// True if rank 0 of this group listens there, and has accepted this rank. Throws if it has refused this rank.
    /// False otherwise: `why_` says why.
    [[gnu::cold]] bool try_address(const address& at) {
        const bool only = l_.ports == 1 && addresses_.size() == 1;
        const double limit = std::min(until_, seconds_now() + (only ? answer_timeout : answer_timeout_of_many));
        at_ = text_of(at);
        line_ = {start_connect(at), nullptr};
        if (!line_.fd && is_exhausted(errno))
            fail(errc::unsupported, l_,
                error_text() << "cannot connect to rank 0 at " << at_ << ": " << system_text(errno));
        if (!line_.fd) return failed(errno);
        std::optional<int> code;
        while (!(code = connected(line_.fd.get())))
            if (!wait_for(line_.fd.get(), POLLOUT, limit)) return failed(ETIMEDOUT);
        if (*code != 0) {
            if (!met_ || !only || *code != ECONNREFUSED) return failed(*code);
            if (refused_since_ == 0) refused_since_ = seconds_now();
            if (seconds_now() > refused_since_ + time_to_return)
                fail(errc::peer_failed, l_,
                    error_text() << "rank 0 was at " << at_ << ", and has ended before the group was formed", 0);
            return failed(*code);
        }
        refused_since_ = 0;
        line_.cover = cover_of(true);

        // This rank sends nothing before the other side has sent a challenge of this library.
        std::array<std::byte, prefix_bytes> theirs;
        const auto ended = [&](int e) {
            if (e == EPROTO && line_.cover && only) refused(errc::invalid_argument, line_.cover->why());
            return failed(e);
        };
        if (const int e = receive_all(line_, theirs.data(), theirs.size(), limit)) return ended(e);
        const auto version = parse_prefix(theirs);
        if (!version || version->kind != record_kind::challenge) return failed("another program listens there");
        met_ = true;
        const bool same_version = version->protocol == rendezvous_version;
        hello h{.once = random_bytes<nonce>(), .rank = l_.rank, .size = l_.size, .pid = getpid()};
        if (!same_version) {
            send_record(line_, encode(h), limit);  // so that rank 0 learns of the other version
            error_text text;
            text << "rank 0 uses colls " << *version << ", but this rank uses colls " << prefix{};
            if (only) refused(errc::mismatch, text);
            return failed(text);
        }
        if (const int e = receive_all(line_, theirs_.data(), theirs_.size(), limit)) return ended(e);
        ours_ = h.once;
        if (const int e = send_record(line_, sealed(h, l_.token, theirs_, ours_), limit)) return ended(e);

        reply a;
        bool known = false;
        if (const int e = receive_reply(a, known, limit)) return ended(e);
        if (!known) {
            if (only)
                refused(errc::invalid_argument,
                    "the tokens differ: set COLLS_TOKEN to the same value for all ranks of a job, and to another for "
                    "another job");
            return failed("rank 0 of another job, which has a different token, listens there");
        }
        check_reply(a);
        return true;
    }

    bool failed(const char* why) {
        why_ = why;
        line_ = {};
        return false;
    }
    [[gnu::cold]] bool failed(int e) {
        return failed(e == ENODATA ? "the connection was closed" : e == ETIMEDOUT ? "no answer" : line_.why(e).c_str());
    }

    /// The next reply; `known`: its sender knows the token. Returns an errno if none comes.
    [[gnu::cold]] int receive_reply(reply& to, bool& known, double limit) {
        std::array<std::byte, reply::bytes> bytes;
        if (const int e = receive_all(line_, bytes.data(), bytes.size(), limit)) return e;
        const auto a = parse<reply>(bytes);
        if (!a) return EPROTO;
        known = same(a->proof, prove(l_.token, theirs_, ours_, bytes));
        to = *a;
        return 0;
    }
    /// Throws if it is a refusal.
    void check_reply(const reply& a) {
        if (a.what == verdict::complete) return;
        if (a.what == verdict::broken || a.what == verdict::failed)
            fail(a.what == verdict::broken ? errc::timeout : errc::peer_failed, l_,
                error_text() << "the group was not formed: " << a.text);
        if (a.what != verdict::accepted && a.what != verdict::waiting)
            refused(a.what == verdict::version_skew || a.what == verdict::other_size ? errc::mismatch
                                                                                     : errc::invalid_argument,
                a.text);
        missing_ = a.text;
    }
    [[noreturn]] void refused(errc code, const char* why) {
        fail(code, l_, error_text() << "rank 0 at " << at_ << " has refused this rank: " << why, 0);
    }

    [[gnu::cold]] std::unique_ptr<rank_star> wait_for_others() {
        for (;;) {
            reply a;
            bool known = false;
            const int e = receive_reply(a, known, until_);
            if (e == ETIMEDOUT)
                fail(errc::timeout, l_,
                    error_text() << "rank 0 at " << at_ << " has accepted this rank, but after " << timeout_
                                 << " s it still waited for " << missing_ << were_all_started);
            if (e || !known) fail_lost(e ? e : EPROTO);
            check_reply(a);
            if (a.what == verdict::complete) break;
        }
        const address local = local_address(line_.fd.get());
        std::vector<peer_line> lines;
        lines.push_back({std::make_unique<own_socket>(std::move(line_.fd), std::move(line_.cover)), theirs_, ours_});
        return std::make_unique<rank_star>(l_, timeout_, std::move(lines), local);
    }
    [[noreturn]] void fail_lost(int error) {
        error_text text;
        text << "rank 0 at " << at_ << " has accepted this rank, but then ";
        if (error == ENODATA)
            text << "closed the connection before all ranks had connected: has it failed?";
        else
            text << "the connection failed: " << line_.why(error);
        fail(errc::peer_failed, l_, text, 0);
    }

    [[noreturn]] void fail_unreachable() {
        error_text text;
        text << "cannot reach rank 0 at " << std::string_view(l_.host).substr(0, 100) << ", port " << ports_text(l_)
             << ", within " << timeout_ << " s";
        if (!why_.empty()) text << "; the last attempt: " << why_;
        text << ". Was rank 0 started? Are COLLS_MASTER_ADDR (or MASTER_ADDR) and its port right, and the same for all "
                "ranks? Have all COLLS_TLS, or none? Is there a firewall?";
        fail(errc::timeout, l_, text, 0);
    }

    const launch& l_;
    double timeout_, until_, resolved_at_ = 0;
    const char* unknown_ = "";  ///< why the name is not known
    std::vector<address> addresses_;
    channel line_;  ///< the connection to rank 0
    nonce ours_{}, theirs_{};
    bool met_ = false;                     ///< a rank 0, of this job or of another one, has answered
    double refused_since_ = 0;             ///< nothing listens there any more
    std::string at_;                       ///< where rank 0 was last tried
    std::string why_;                      ///< the last attempt failed
    std::string missing_ = "other ranks";  ///< as rank 0 has named them
};

}  // namespace colls::inline v1::detail::rendezvous
