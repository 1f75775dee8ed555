// An endpoint: its listening socket, and the connections of those that have knocked and are not answered yet.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/elastic/detail/knock.hpp>
#include <colls/elastic/endpoint.hpp>
#include <colls/net/detail/forming/door.hpp>

#include <functional>
#include <memory>

namespace colls::inline v1 {
namespace detail::endpoints {

/// One that has knocked, and waits for an answer.
struct visitor {
    peer_line line;
    knock said;
    handle own;  ///< the visitor's
};

}  // namespace detail::endpoints

struct endpoint::state {
    static constexpr std::size_t most_waiting = 1024, most_used = 65536;

    std::unique_ptr<detail::door<detail::endpoints::knock>> door;
    detail::endpoints::handle own;
    std::string text;  ///< of `own`
    std::string token;
    std::vector<detail::endpoints::visitor> visitors;  ///< whose knocks have been read, and are for others to answer
    std::vector<detail::rendezvous::nonce> used;       ///< the groups that it has joined, or tried to
    std::string refused;                               ///< the last refusal, for the text of an error
    detail::rendezvous::nonce joining{};               ///< the group that is being formed
    detail::rendezvous::nonce last{};                  ///< the one whose forming has failed last, why, and at which
    std::string last_end;
    int last_about = none;
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
        door->serve();
        for (auto& g : std::exchange(door->guests, {})) {
            const char* why = "";
            const bool failed_last = last == g.said.group;
            const auto refuse = [&](rendezvous::verdict what, const error_text& reason, int about = none) {
                door->refuse(std::move(g.line), g.from, what, reason.text(), about);
            };
            if (auto its = parse_handle(g.said.own, why); !its)
                continue;
            else if (g.said.to != own.name)
                refuse(rendezvous::verdict::other_endpoint,
                    error_text() << "another endpoint listens at " << text_of(local_address(g.line.fd())));
            else if (g.said.size > 0 && has_used(g.said.group) && joining != g.said.group)
                refuse(rendezvous::verdict::broken,
                    error_text() << "its attempt with that uuid has ended" << (failed_last ? ": " + last_end : ""),
                    failed_last ? last_about : none);
            else
                visitors.push_back({std::move(g.line), g.said, std::move(*its)});
        }
        // Whoever waits says nothing: it has gone, or is not one that waits.
        std::erase_if(visitors, [](visitor& v) { return v.line.read(1) != arriving::not_yet; });
        if (visitors.size() > most_waiting) visitors.erase(visitors.begin());
        if (look_beside) look_beside();
    }
    /// Those that have come for a group, none of which is being formed.
    [[gnu::cold]] void refuse_late() {
        std::erase_if(visitors, [&](const detail::endpoints::visitor& v) {
            return v.said.size > 0 &&
                   (v.line.send(detail::rendezvous::refusal(errc::peer_failed, none, "that attempt has ended"), token),
                       true);
        });
    }
    void watch(detail::poll_set& p) const {
        door->watch(p);
        for (const detail::endpoints::visitor& v : visitors) p.add(v.line);
    }
};

[[gnu::cold]] COLLS_INLINE endpoint endpoint::open(const endpoint_options& how) {
    using namespace detail;
    using namespace endpoints;
    auto s = std::make_unique<state>();
    std::string given(how.interface_name);
    if (const char* const set = variable("COLLS_INTERFACE"); given.empty() && set) given = set;
    std::vector<address> reached;
    if (!given.empty()) reached.push_back(interface_address(given, AF_INET));
    for (const int family : {AF_INET, AF_INET6})
        for (const network_interface& i : network_interfaces())
            if (given.empty() && i.at.family() == family && !i.at.is_loopback() && !is_link_local(i.at) &&
                reached.size() < handle::most_addresses && (reached.empty() || reached[0].family() == family))
                reached.push_back(i.at);
    descriptor fd = reached.empty() ? listen_on_loopback()
                    : given.empty() ? listen_at(address::everywhere(reached[0].family(), 0))
                                    : listen_at(reached[0]);
    if (!fd)
        throw error(is_exhausted(errno) ? errc::unsupported : errc::invalid_argument,
            error_text() << "colls: endpoint: cannot listen at "
                         << (reached.empty() ? "loopback" : host_text(reached[0])) << ": " << system_text(errno));
    if (reached.empty()) reached.push_back(local_address(fd.get()));
    const int port = port_of(fd.get());
    for (address& a : reached) a.set_port(port);
    s->own = {rendezvous::host_identity(), random_bytes<endpoint_name>(), getpid(), std::move(reached)};
    s->text = s->own.text();
    if (const char* const secret = variable("COLLS_TOKEN")) s->token = secret;
    s->door = std::make_unique<door<knock>>(std::move(fd), s->token, "the process at " + text_of(s->own.at[0]));
    s->door->on_refusal = [&refused = s->refused](rendezvous::verdict what, const char* why) {
        if (what == rendezvous::verdict::wrong_token) refused = why;
    };
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
