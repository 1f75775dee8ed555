// An endpoint: its listening socket, and the connections of those that have knocked and are not answered yet.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/elastic/detail/knock.hpp>
#include <colls/elastic/endpoint.hpp>
#include <colls/net/detail/connection/tcp_node.hpp>
#include <colls/net/detail/forming/meeting.hpp>

#include <functional>
#include <memory>

namespace colls::inline v1 {
namespace detail::endpoints {

/// A socket that a forked child closes.
struct own_socket : watched_socket {
    explicit own_socket(descriptor&& f) {
        fd = std::move(f);
        open_sockets::all().add(*this);
    }
    own_socket(const own_socket&) = delete;
    own_socket& operator=(const own_socket&) = delete;
    ~own_socket() { open_sockets::all().remove(*this); }
};

/// A record that arrives in pieces.
class arriving {
public:
    enum outcome { not_yet, whole, ended };
    /// Reads until there are `wanted` bytes. Never waits.
    outcome read(int fd, std::size_t wanted) {
        bytes_.resize(std::max(bytes_.size(), wanted));
        while (got_ < wanted) {
            const ssize_t n = ::recv(fd, bytes_.data() + got_, wanted - got_, MSG_DONTWAIT);
            if (n > 0)
                got_ += static_cast<std::size_t>(n);
            else if (n == 0 || errno != EINTR)
                return n < 0 && may_try_again(errno) ? not_yet : ended;
        }
        return whole;
    }
    rendezvous::bytes_view bytes() const { return {bytes_.data(), got_}; }
    void clear() { got_ = 0; }

private:
    std::vector<std::byte> bytes_;
    std::size_t got_ = 0;
};

/// A connection of a process that has come to this endpoint, or to which this one has gone, once both know each other.
struct peer_line {
    std::unique_ptr<own_socket> socket;
    rendezvous::nonce host{}, guest{};  ///< the random numbers of the endpoint, and of the one that came
    arriving in{};

    int fd() const { return socket->fd.get(); }
    /// False: the connection has ended, or its buffer is full of what the peer does not read.
    bool send(const rendezvous::reply& a, std::string_view token, double until = 0) const {
        return rendezvous::send_record(fd(), rendezvous::sealed(a, token, host, guest), until) == 0;
    }
};

/// One that has knocked, and waits for an answer.
struct visitor {
    peer_line line;
    knock said;
    handle own;  ///< the visitor's
};

/// The bytes at a poll, and until when.
class poll_set {
public:
    void add(int fd, short events) { all_.push_back({fd, events, 0}); }
    /// At most until then, and for a short time, after which a wait hook has its turn.
    void wait(double until) {
        call_wait_hook();
        poll(all_.data(), all_.size(), std::min(milliseconds_until(until), 20));
        all_.clear();
    }

private:
    std::vector<pollfd> all_;
};

}  // namespace detail::endpoints

struct endpoint::state {
    static constexpr std::size_t most_silent = 256, most_waiting = 1024, most_used = 65536;
    static constexpr double knock_timeout = 5;  ///< seconds in which a connection must have knocked

    std::unique_ptr<detail::endpoints::own_socket> listening;
    detail::endpoints::handle own;
    std::string text;  ///< of `own`
    std::string token;
    std::vector<detail::endpoints::visitor> visitors;  ///< whose knocks have been read, and are for others to answer
    std::vector<detail::rendezvous::nonce> used;       ///< the groups that it has joined, or tried to
    std::string refused;                               ///< the last refusal, for the text of an error
    detail::rendezvous::nonce joining{};               ///< the group that is being formed
    detail::rendezvous::nonce last{};                  ///< the one whose forming has failed last, and why
    std::string last_end;
    double next_accept = 0;
    /// Called again and again while others have not come to a join; what it throws ends that.
    std::function<void()> look_beside;

    bool has_used(const detail::rendezvous::nonce& group) const {
        return std::find(used.begin(), used.end(), group) != used.end();
    }
    void use(const detail::rendezvous::nonce& group) {
        if (used.size() == most_used) used.erase(used.begin(), used.begin() + most_used / 2);
        used.push_back(group);
    }

    /// Accepts connections, and reads what those have said that were accepted. Never waits.
    [[gnu::cold]] void serve() {
        using namespace detail;
        using namespace endpoints;
        const double now = seconds_now();
        while (silent_.size() < most_silent && now >= next_accept) {
            descriptor fd = accept_from(listening->fd.get());
            if (!fd) {
                if (is_exhausted(errno)) next_accept = now + 0.05;
                break;
            }
            peer_line to{std::make_unique<own_socket>(std::move(fd)), rendezvous::random_bytes<rendezvous::nonce>()};
            const auto first = rendezvous::encode(rendezvous::challenge{.once = to.host});
            if (rendezvous::send_record(to.fd(), first, 0) == 0) silent_.push_back({std::move(to), now});
        }
        std::erase_if(silent_, [&](silent& s) { return !hear(s) || now - s.since > knock_timeout; });
        // Whoever waits says nothing: it has gone, or is not one that waits.
        std::erase_if(visitors, [](visitor& v) { return v.line.in.read(v.line.fd(), 1) != arriving::not_yet; });
        if (visitors.size() > most_waiting) visitors.erase(visitors.begin());
        if (look_beside) look_beside();
    }
    /// Those that have come for a group, none of which is being formed.
    [[gnu::cold]] void refuse_late() {
        std::erase_if(visitors, [&](const detail::endpoints::visitor& v) {
            return v.said.size > 0 &&
                   (v.line.send(detail::endpoints::refusal(errc::peer_failed, none, "that attempt has ended"), token),
                       true);
        });
    }
    void watch(detail::endpoints::poll_set& p) const {
        if (silent_.size() < most_silent && detail::seconds_now() >= next_accept) p.add(listening->fd.get(), POLLIN);
        for (const silent& s : silent_) p.add(s.line.fd(), POLLIN);
        for (const detail::endpoints::visitor& v : visitors) p.add(v.line.fd(), POLLIN);
    }

private:
    struct silent {
        detail::endpoints::peer_line line;
        double since;
        bool refused = false;
    };
    // False: it is no silent one any more.
    [[gnu::cold]] bool hear(silent& s) {
        using namespace detail;
        using namespace endpoints;
        if (s.refused) {  // what it still sends is read, since a reset would overtake the refusal
            s.line.in.clear();
            return s.line.in.read(s.line.fd(), 1) != arriving::ended;
        }
        switch (s.line.in.read(s.line.fd(), rendezvous::prefix_bytes)) {
            case arriving::not_yet:
                return true;
            case arriving::ended:
                return false;
            case arriving::whole:
                break;
        }
        const auto p = rendezvous::parse_prefix(s.line.in.bytes().first(rendezvous::prefix_bytes));
        if (!p || p->kind != knock::kind) return false;
        if (p->protocol != rendezvous::rendezvous_version || p->library != rendezvous::library_version)
            return refuse(s, rendezvous::verdict::version_skew,
                error_text() << "it uses colls " << *p << ", but the process at " << text_of(own.at[0])
                             << " uses colls " << rendezvous::prefix{knock::kind});
        const auto read = s.line.in.read(s.line.fd(), knock::bytes);
        if (read != arriving::whole) return read == arriving::not_yet;
        const rendezvous::bytes_view record = s.line.in.bytes();
        const auto k = rendezvous::parse<knock>(record);
        const char* why = "";
        const auto its = k ? parse_handle(k->own, why) : std::nullopt;
        if (!its) return false;
        s.line.guest = k->once;
        if (!same(k->proof, rendezvous::prove(token, s.line.host, s.line.guest, record))) {
            refused = "a process on " + host_text(remote_address(s.line.fd())) + " has a different token (COLLS_TOKEN)";
            return refuse(s, rendezvous::verdict::wrong_token, error_text() << refused);
        }
        if (k->to != own.name)
            return refuse(s, rendezvous::verdict::other_endpoint,
                error_text() << "another endpoint listens at " << text_of(local_address(s.line.fd())));
        if (k->size > 0 && has_used(k->group) && joining != k->group)
            return refuse(s, rendezvous::verdict::broken,
                error_text() << "its attempt with that uuid has ended" << (last == k->group ? ": " + last_end : ""));
        s.line.in.clear();
        visitors.push_back({std::move(s.line), *k, *its});
        return false;
    }
    bool refuse(silent& s, detail::rendezvous::verdict what, const detail::error_text& why) {
        const bool skew = what == detail::rendezvous::verdict::version_skew;
        detail::rendezvous::reply a =
            detail::endpoints::refusal(skew ? errc::mismatch : errc::peer_failed, none, why.text());
        a.what = what;
        s.line.send(a, token);
        shutdown(s.line.fd(), SHUT_WR);
        return s.refused = true;
    }

    std::vector<silent> silent_;  // that have not knocked yet
};

[[gnu::cold]] COLLS_INLINE endpoint endpoint::open(const endpoint_options& how) {
    using namespace detail;
    using namespace endpoints;
    auto s = std::make_unique<state>();
    std::string given(how.interface_name);
    if (const char* const set = variable("COLLS_INTERFACE"); given.empty() && set) given = set;
    descriptor fd;
    address at;
    std::vector<address> reached;
    if (!given.empty()) {
        at = interface_address(given, AF_INET);
        reached.push_back(at);
        fd = listen_at(at);
    } else {
        for (const int family : {AF_INET, AF_INET6})
            if (at = outward_address(family); !at.is_loopback()) break;
        if (at.is_loopback()) {
            fd = listen_on_loopback();
            reached.push_back(local_address(fd.get()));
        } else {
            for (const network_interface& i : network_interfaces())
                if (i.at.family() == at.family() && !i.at.is_loopback() && !is_link_local(i.at) &&
                    reached.size() < handle::most_addresses)
                    reached.push_back(i.at);
            fd = listen_at(address::everywhere(at.family(), 0));
        }
    }
    if (!fd)
        throw error(is_exhausted(errno) ? errc::unsupported : errc::invalid_argument,
            error_text() << "colls: endpoint: cannot listen at " << host_text(at) << ": " << system_text(errno));
    const int port = port_of(fd.get());
    for (address& a : reached) a.set_port(port);
    s->listening = std::make_unique<own_socket>(std::move(fd));
    s->own = {rendezvous::host_identity(), rendezvous::random_bytes<endpoint_name>(), getpid(), std::move(reached)};
    s->text = s->own.text();
    if (const char* const secret = variable("COLLS_TOKEN")) s->token = secret;
    return endpoint(s.release());
}
COLLS_INLINE std::string endpoint::handle() const { return opened().text; }
COLLS_INLINE void endpoint::close() noexcept {
    delete state_;
    state_ = nullptr;
}
COLLS_INLINE endpoint::state& endpoint::opened() const {
    if (state_ == nullptr) throw error(errc::invalid_argument, "colls: endpoint: it is closed: open another one");
    if (state_->own.pid != getpid())
        throw error(errc::invalid_argument, detail::error_text()
                                                << "colls: endpoint: process " << state_->own.pid
                                                << " has opened it, and this is a fork of that one, process "
                                                << static_cast<long long>(getpid()) << ": open one here");
    return *state_;
}

}  // namespace colls::inline v1
