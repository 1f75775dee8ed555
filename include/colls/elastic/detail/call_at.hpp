// A process's connection to the endpoint of another one: all addresses of the handle are tried at once, and the first
// counts at which that endpoint answers.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/elastic/detail/endpoint.hpp>

namespace colls::inline v1::detail::endpoints {

class call_at {
public:
    /// `k` is sent to the endpoint `to`.
    call_at(const handle& to, knock k, std::string_view token) : token_(token), knock_(k) {
        knock_.to = to.name;
        for (const address& at : to.at) {
            attempts_.push_back({.at = at});
            attempt& a = attempts_.back();
            descriptor fd = start_connect(at);
            if (!fd) fail(a, errno);
            if (fd) a.line.socket = std::make_unique<own_socket>(std::move(fd), cover_of(true));
        }
    }

    /// Advances, and never waits. The first reply of the endpoint, whatever it says.
    [[gnu::cold]] std::optional<rendezvous::reply> step() {
        for (attempt& a : attempts_)
            if (a.line.socket)
                if (const auto answer = step(a)) return answer;
        return {};
    }
    void watch(poll_set& p) const {
        for (const attempt& a : attempts_)
            if (a.line.socket) a.stage == attempt::connecting ? p.add(a.line.fd(), POLLOUT) : p.add(a.line);
    }
    /// The connection that `step` has had the reply of.
    peer_line take() { return std::move(attempts_[answered_].line); }
    /// All attempts have failed: the process does not listen any more, or is not reached.
    bool over() const {
        for (const attempt& a : attempts_)
            if (a.line.socket) return false;
        return true;
    }
    /// That was because nothing listens there, or because another program does.
    bool gone() const {
        for (const attempt& a : attempts_)
            if (a.line.socket || !a.gone) return false;
        return true;
    }
    /// And for certain: nothing listens there, or something else.
    bool refused() const {
        for (const attempt& a : attempts_)
            if (a.line.socket || !a.refused) return false;
        return true;
    }
    /// TLS has ended an attempt: the process may be there, and refuse this one each time.
    bool distrusted() const {
        return std::any_of(attempts_.begin(), attempts_.end(), [](const attempt& a) { return a.distrusted; });
    }
    /// What has become of the attempts: "cannot connect to 10.0.0.3:2000: Connection refused".
    std::string why() const {
        std::string all;
        for (const attempt& a : attempts_) {
            const std::string text = !a.line.socket                   ? a.why
                                     : a.stage == attempt::connecting ? text_of(a.at) + " does not answer"
                                                                      : text_of(a.at) + " accepts connections";
            all.append(all.empty() ? "" : ", ").append(text);
        }
        return all;
    }
    /// It has a connection that was accepted, by the system at least.
    bool reached() const {
        for (const attempt& a : attempts_)
            if (a.line.socket && a.stage != attempt::connecting) return true;
        return false;
    }

private:
    struct attempt {
        address at;
        peer_line line{};
        enum { connecting, challenged, knocked } stage = connecting;
        bool gone = false, refused = false, distrusted = false;
        std::string why{};
    };

    [[gnu::cold]] std::optional<rendezvous::reply> step(attempt& a) {
        using namespace rendezvous;
        if (a.stage == attempt::connecting) {
            const std::optional<int> failed = connected(a.line.fd());
            if (failed && *failed != 0) fail(a, *failed);
            if (failed != 0) return {};
            a.stage = attempt::challenged;
        }
        if (a.stage == attempt::challenged) {
            const auto read = a.line.read(challenge::bytes);
            const auto p = parse_prefix(a.line.in.bytes().first(std::min(a.line.in.bytes().size(), prefix_bytes)));
            const auto c = read == arriving::whole ? parse<challenge>(a.line.in.bytes()) : std::nullopt;
            // Where the other program speaks first, and something else, the process of the handle is gone.
            if (read == arriving::ended) fail(a, a.line.in.bytes().empty() ? ECONNRESET : EPROTO);
            if (read == arriving::whole && !p) fail(a, EPROTO);
            if (read == arriving::whole && p && !c) {
                error_text text;
                text << "it uses colls " << *p << ", but this process uses colls " << prefix{};
                return answer(a, rendezvous::refusal(errc::mismatch, none, text.text()));
            }
            if (!c) return {};
            a.line.host = c->once, a.line.guest = knock_.once = random_bytes<nonce>();
            a.line.in.clear();
            send_record(
                *a.line.socket, sealed(knock_, token_, a.line.host, a.line.guest), 0);  // `read` finds a failure
            a.stage = attempt::knocked;
        }
        const auto read = a.line.read(reply::bytes);
        if (read == arriving::ended) fail(a, ECONNRESET);
        if (read != arriving::whole) return {};
        const auto r = parse<reply>(a.line.in.bytes());
        if (!r) return fail(a, EPROTO), std::nullopt;
        // One of another version has not read what it would prove it by.
        const bool known = r->what == verdict::version_skew ||
                           same(r->proof, prove(token_, a.line.host, a.line.guest, a.line.in.bytes()));
        if (!known)
            return answer(a, rendezvous::refusal(errc::invalid_argument, none,
                                 "the tokens differ: set COLLS_TOKEN to the same value in all processes"));
        if (r->what == verdict::other_endpoint) return fail(a, ESTALE), std::nullopt;
        a.line.in.clear();
        return answer(a, *r);
    }
    rendezvous::reply answer(attempt& a, const rendezvous::reply& r) {
        answered_ = static_cast<std::size_t>(&a - attempts_.data());
        return r;
    }
    void fail(attempt& a, int code) {
        const stream_cover* const cover = a.line.socket ? a.line.socket->cover.get() : nullptr;
        const std::string said = cover ? cover->why() : "";
        a.distrusted = !said.empty();
        a.refused = !a.distrusted && (code == ECONNREFUSED || code == EPROTO || code == ESTALE);
        a.gone = a.refused || a.distrusted || code == ECONNRESET;
        a.why = a.distrusted     ? text_of(a.at) + ": " + said
                : code == ESTALE ? "another endpoint listens at " + text_of(a.at)
                : code == EPROTO ? "another program listens at " + text_of(a.at)
                                 : text_of(a.at) + ": " + system_text(code);
        if (code == ECONNRESET && !is_covered()) a.why += " (COLLS_TLS is not set here)";
        a.line.socket.reset();
    }

    std::string_view token_;
    knock knock_;
    std::vector<attempt> attempts_;
    std::size_t answered_ = 0;
};

}  // namespace colls::inline v1::detail::endpoints
