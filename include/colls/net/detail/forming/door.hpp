// A socket at which processes come to form a group, and the connections of those that have not shown yet who they are.
// records.hpp has the protocol, and what it protects against.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/forming/meeting.hpp>

#include <functional>
#include <string>

namespace colls::inline v1::detail {

/// Every socket is non-blocking; the owner calls serve() while it waits. A connection has to show by one
/// Record within `patience` that it knows the token, and occupies one of `most_silent` places until then. So a stray
/// connection gets one bounded place and a timeout.
template <class Record>
class door {
public:
    static constexpr std::size_t most_silent = 256;
    static constexpr double patience = 5;            ///< seconds
    static constexpr double crowded_patience = 0.5;  ///< likewise, while others wait for its place

    struct guest {
        peer_line line;
        Record said;
        address from;
    };

    /// `name`: this process's, in texts.
    door(descriptor&& listening, std::string_view token, std::string name)
        : listening_(std::move(listening)), token_(token), name_(std::move(name)) {
        cover_of(false);  // throws here, if ever
    }

    std::vector<guest> guests;  ///< connections that have shown it: for the owner to take
    /// Called for each refusal.
    std::function<void(rendezvous::verdict, const char* why)> on_refusal = [](rendezvous::verdict, const char*) {};

    /// Accepts connections, and reads what those say that were accepted. Never waits.
    [[gnu::cold]] void serve() {
        const double now = seconds_now();
        while (accepts(now)) {
            descriptor fd = accept_from(listening_.fd.get());
            if (!fd && errno == ECONNABORTED) continue;
            if (!fd) {
                if (may_try_again(errno)) {
                    exhausted_since_ = 0;  // there was a descriptor for it
                    break;
                }
                reason_ = errno;  // probably too many open files
                next_accept_ = now + 0.05;
                if (exhausted_since_ == 0 || !silent_.empty()) exhausted_since_ = now;  // silent ones leave soon
                break;
            }
            exhausted_since_ = 0;
            const address from = remote_address(fd.get());
            peer_line to{
                std::make_unique<own_socket>(std::move(fd), cover_of(false)), random_bytes<rendezvous::nonce>()};
            const auto challenge = encode(rendezvous::challenge{.once = to.host});
            silent s{std::move(to), from, now};
            if (rendezvous::send_record(*s.line.socket, challenge, 0) == 0 || is_refused(s))
                silent_.push_back(std::move(s));
        }
        const double limit = now - (accepts(now) ? patience : crowded_patience);
        for (std::size_t i = 0; i < silent_.size(); ++i)  // by number: a refusal adds one
            if (!hear(silent_[i]) || is_late(silent_[i], now, limit)) {
                if (silent_[i].line.socket) note_uncovered(silent_[i]);
                silent_[i].line.socket.reset();
            }
        std::erase_if(silent_, [](const silent& s) { return !s.line.socket; });
    }
    void watch(poll_set& p) const {
        if (accepts(seconds_now())) p.add(listening_.fd.get(), POLLIN);
        for (const silent& s : silent_) p.add(s.line);
    }
    /// Says why, and reads what the other side still sends: closing a connection with unread data sends a reset, which
    /// would overtake the reply. `about`: the rank at fault, or none.
    [[gnu::cold]] void refuse(
        peer_line&& to, const address& from, rendezvous::verdict what, const char* why, int about = none) {
        on_refusal(what, why);
        const bool skew = what == rendezvous::verdict::version_skew;
        rendezvous::reply a = rendezvous::refusal(skew ? errc::mismatch : errc::peer_failed, about, why);
        a.what = what;
        if (!to.send(a, token_)) return;
        shutdown(to.fd(), SHUT_WR);
        silent_.push_back({std::move(to), from, seconds_now(), true});
    }
    /// Why no connection has been accepted for that long, as the latest attempt has shown: an errno, or 0.
    int exhausted_for(double seconds) const {
        return exhausted_since_ != 0 && next_accept_ > exhausted_since_ + seconds ? reason_ : 0;
    }
    /// The last errno for which a connection was not accepted, or 0.
    int reason() const { return reason_; }
    address at() const { return local_address(listening_.fd.get()); }

private:
    struct silent {
        peer_line line;
        address from;
        double since;  ///< when the challenge was sent to it, or it was refused
        bool refused = false, challenged = false;
    };

    // Under TLS the challenge goes out only when both sides know each other: since then it can answer.
    static bool is_late(silent& s, double now, double limit) {
        const auto& cover = s.line.socket->cover;
        if (!s.challenged && (s.challenged = !cover || cover->is_known())) s.since = now;
        return s.since < limit;
    }
    bool accepts(double now) const { return silent_.size() < most_silent && now >= next_accept_; }
    void note_uncovered(const silent& s) {
        if (const auto& cover = s.line.socket->cover; cover && !cover->is_known())
            on_refusal(rendezvous::verdict::wrong_token,
                error_text() << "a process on " << host_text(s.from) << " has not begun TLS: is COLLS_TLS set there?");
    }
    // Where TLS has refused the other side, it is to read why.
    bool is_refused(silent& s) {
        const stream_cover* const cover = s.line.socket->cover.get();
        if (cover == nullptr || cover->why()[0] == '\0') return false;
        on_refusal(rendezvous::verdict::wrong_token,
            error_text() << "of a process on " << host_text(s.from) << ": " << cover->why());
        s.line.socket->cover.reset();
        shutdown(s.line.fd(), SHUT_WR);
        return s.refused = true;
    }
    // False: it is no silent one any more.
    [[gnu::cold]] bool hear(silent& s) {
        using namespace rendezvous;
        arriving& in = s.line.in;
        if (s.refused) {
            in.clear();
            return s.line.read(64) != arriving::ended;
        }
        if (const auto read = s.line.read(prefix_bytes); read != arriving::whole)
            return read == arriving::not_yet || is_refused(s);
        const auto p = parse_prefix(in.bytes().first(prefix_bytes));
        if (!p || p->kind != Record::kind) return false;
        if (p->protocol != rendezvous_version) return refuse_version(s, *p);
        if (const auto read = s.line.read(Record::bytes); read != arriving::whole) return read == arriving::not_yet;
        const auto r = parse<Record>(in.bytes());
        if (!r) return false;
        s.line.guest = r->once;
        if (!same(r->proof, prove(token_, s.line.host, s.line.guest, in.bytes())))
            return refuse(s, verdict::wrong_token,
                error_text() << "a process on " << host_text(s.from) << " has a different token (COLLS_TOKEN)");
        if (r->library != library_version) return refuse_version(s, *p);
        in.clear();
        guests.push_back({std::move(s.line), *r, s.from});
        return false;
    }
    bool refuse_version(silent& s, const rendezvous::prefix& theirs) {
        return refuse(s, rendezvous::verdict::version_skew,
            error_text() << "a process on " << host_text(s.from) << " uses colls " << theirs << ", but " << name_
                         << " uses colls " << rendezvous::prefix{Record::kind});
    }
    bool refuse(silent& s, rendezvous::verdict what, const error_text& why) {
        refuse(std::exchange(s.line, {}), address(s.from), what, why.text());  // which may move s
        return false;
    }

    own_socket listening_;
    const std::string token_, name_;
    std::vector<silent> silent_;
    double next_accept_ = 0, exhausted_since_ = 0;
    int reason_ = 0;
};

}  // namespace colls::inline v1::detail
