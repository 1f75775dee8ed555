// Groups of processes that exchange bytes by means of their own.
// IWYU pragma: private, include <colls/bootstrap.hpp>
#pragma once

#include <colls/bootstrap.hpp>
#include <colls/detail/support/rank_error.hpp>
#include <colls/net/detail/forming/apart.hpp>
#include <colls/net/detail/forming/host_group.hpp>
#include <colls/status/detail/door.hpp>

#include <algorithm>
#include <map>

namespace colls::inline v1 {
namespace detail {

/// An exchange over a store: a key for each member and exchange.
class exchange_over_store final : public member_exchange {
public:
    exchange_over_store(key_value_store& store, std::string_view name, int rank, int size)
        : store_(store), name_(name), rank_(rank), size_(size) {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        const auto key = [&](int r) { return name_ + "/" + std::to_string(turn_) + "/" + std::to_string(r); };
        store_.set(key(rank_), own, bytes);
        for (int r = 0; r < size_; ++r) {
            void* const to = static_cast<std::byte*>(all) + static_cast<std::size_t>(r) * bytes;
            if (r == rank_)
                std::memcpy(to, own, bytes);
            else
                store_.get(key(r), to, bytes);
        }
        ++turn_;
    }

private:
    key_value_store& store_;
    const std::string name_;
    const int rank_, size_;
    int turn_ = 0;
};

/// Each member listens, and hears where the others do.
[[gnu::cold]] inline std::vector<member> exchange_addresses(const forming& f, descriptor& listening) {
    using namespace rendezvous;
    struct {
        std::byte encoded[member_bytes] = {};
        std::uint8_t listens = 0;
    } own;
    std::optional<error> failed;
    try {
        listening = f.listen(f.on_one_host());
        encoder{own.encoded}(member{local_address(listening.get()), own_share()});
        own.listens = 1;
    } catch (const error& x) {
        failed = x;
    }
    const auto told = f.gather(own);
    if (failed) throw *failed;
    std::vector<member> each;
    for (const auto& there : told) {
        decoder in(there.encoded);
        const int r = static_cast<int>(each.size());
        in(each.emplace_back());
        if (there.listens == 0 || !in.sound())
            throw_of_rank(
                f.rank, errc::peer_failed, error_text() << "rank " << r << " cannot listen for connections", r);
        // A link-local address needs the interface that leads there.
        if (is_link_local(each.back().at) && local_address(listening.get()).family() == AF_INET6)
            each.back().at.v6().sin6_scope_id = local_address(listening.get()).v6().sin6_scope_id;
    }
    return each;
}

/// "4 ranks on 2 hosts, as torchrun says: shared memory within hosts, between them TCP". `without`: a member that
/// cannot take RDMA, which the others could.
[[gnu::cold]] inline void say_what_is_formed(const forming& f, bool network, int without) {
    std::vector<std::uint64_t> hosts;
    for (const member_record& m : f.all) hosts.push_back(m.host);
    std::sort(hosts.begin(), hosts.end());
    const auto several = std::unique(hosts.begin(), hosts.end()) - hosts.begin();
    const bool by_network = several > 1 || f.env.tcp;
    error_text text;
    text << "colls: " << f.size << (f.size == 1 ? " rank on " : " ranks on ") << several
         << (several == 1 ? " host" : " hosts") << ", as " << f.source << " says: "
         << (!by_network                         ? "shared memory"
                : several < f.size && !f.env.tcp ? "shared memory within hosts, between them "
                                                 : "")
         << (!by_network    ? ""
                : !network  ? "TCP"
                : f.env.ofi ? "libfabric"
                            : "RDMA");
    if (by_network && without != none) text << ", since rank " << without << " cannot take RDMA";
    say(text);
}

/// One rank of the next host that this member sends to, and those of the host before that send to it, so that each
/// member tries its device.
struct trial_peers {
    std::vector<int> to, from;
    explicit trial_peers(const forming& f) {
        std::vector<std::vector<int>> hosts;
        std::size_t own = 0, place = 0;
        std::map<std::uint64_t, std::size_t> numbers;
        for (int r = 0; r < f.size; ++r) {
            const std::size_t h =
                numbers.try_emplace(f.all[static_cast<std::size_t>(r)].host, hosts.size()).first->second;
            if (h == hosts.size()) hosts.emplace_back();
            if (r == f.rank) own = h, place = hosts[h].size();
            hosts[h].push_back(r);
        }
        const auto& next = hosts[(own + 1) % hosts.size()];
        const auto& before = hosts[(own + hosts.size() - 1) % hosts.size()];
        to.push_back(next[place % next.size()]);
        for (std::size_t i = place; i < before.size(); i += hosts[own].size()) from.push_back(before[i]);
    }
};

/// The group of members on several hosts, or without shared memory.
[[gnu::cold]] inline communicator group_over_network(forming& f) {
    using namespace processes::detail;
    descriptor listening;
    const std::vector<member> members = exchange_addresses(f, listening);
    std::vector<hosts::site> sites;
    std::vector<int> here;
    std::map<std::uint64_t, cores_together> cores_of;
    for (std::size_t r = 0; r < members.size(); ++r) {
        const std::uint64_t host = f.all[r].host;
        sites.push_back({members[r].at, host});
        cores_of[host].add(members[r].cores);
        if (host == f.own().host) here.push_back(static_cast<int>(r));
    }
    // All ranks must come to the same result: the host that is the most crowded counts.
    int cores = cores_together::plenty;
    for (const auto& [host, together] : cores_of) cores = std::min(cores, together.of_group(f.size));
    std::shared_ptr<arena> memory;
    std::shared_ptr<hosts::inter_node_transport> network;
    const bool by_memory =
        members.size() > cores_of.size() && (cores_of.size() > 1 || gpu_of_connections) && !f.env.tcp;
    if (by_memory && !(memory = memory_of_host(f, here))) f.throw_without();
    // No member connects before all can.
    const address at = sites[static_cast<std::size_t>(f.rank)].at;
    const auto place = static_cast<int>(std::find(here.begin(), here.end(), f.rank) - here.begin());
    if (!f.all_can(true, [&] {
            if (memory) memory->assemble(f.env.timeout);
            network = hosts::inter_node_transport_for(f.env, f.rank, at, place);
        }))
        f.throw_without();

    // RDMA that is not asked for is taken where all members have it, and reach one another by it.
    const auto takes = [](const member_record& m) { return m.network == 2; };
    const auto first_without = std::find_if_not(f.all.begin(), f.all.end(), takes);
    const bool rdma = cores_of.size() > 1 && std::any_of(f.all.begin(), f.all.end(), takes);
    int without = rdma && first_without != f.all.end() ? static_cast<int>(first_without - f.all.begin()) : none;
    const auto attempt = [&](std::shared_ptr<hosts::inter_node_transport>& by, auto&& what) {
        if (!rdma || without != none || f.all_can(false, what)) return;
        by.reset();
        without = f.who;
        const bool names_one =
            variable("COLLS_VERBS_DEVICE") || variable("COLLS_VERBS_PORT") || variable("COLLS_VERBS_GID");
        if (f.who == f.rank && (names_one || f.env.debug != debug_level::warn))
            say(error_text() << "colls: rank " << f.rank << ": no RDMA between hosts: " << f.why);
    };
    attempt(network, [&] { network = hosts::open_verbs(f.rank, at, place); });
    return hosts::group_of_all(std::move(listening), std::move(sites), f.all[0].group, f.rank, cores, std::move(memory),
        std::move(network), f.env.timeout, [&](hosts::process_context& s) {
            attempt(s.network, [&] {
                const trial_peers peers(f);
                const std::string why =
                    s.network->try_out(std::make_unique<tcp_transport>(s.node, s.number + 5, f.rank, s.addresses()),
                        f.rank, f.size, peers.to, peers.from, std::min(f.env.timeout / 2, 5.0));
                if (!why.empty()) throw error(errc::unsupported, why.c_str(), f.rank);
            });
            if (f.rank == 0 && f.env.debug != debug_level::warn) say_what_is_formed(f, s.network != nullptr, without);
        });
}

[[gnu::cold]] inline communicator form(forming& f) {
    processes::detail::dump_on_signal();
    const std::optional<status::place> shown = status::asked_place();
    meet_members(f, f.env.tcp);
    const bool talks = f.env.debug != debug_level::warn,
               by_memory = f.on_one_host() && !f.env.tcp && !gpu_of_connections;
    if (talks && by_memory && f.rank == 0) say_what_is_formed(f, false, none);
    communicator comm;
    if (by_memory) comm = group_of_host(f);
    if (f.who != none && f.needs_memory) f.throw_without();
    if (talks && !f.why.empty())
        say(error_text() << "colls: rank " << f.rank << ": no shared memory, so TCP: " << f.why);
    if (comm.size() == 0) comm = group_over_network(f);
    status::open_door(shown);
    label_group(comm.context(), f.all[0].label);
    return comm;
}

/// The group of the processes that a star connects. It is returned when all have formed it; where one cannot, each
/// throws, with that one's reason.
[[gnu::cold]] inline communicator form_over(star_exchange& star, forming&& f) {
    f.tells = true;
    try {
        communicator comm = form(f);
        try {
            star.meet();
        } catch (const error& e) {
            // A rank that has heard of all others already finds this one gone, and shall hear why.
            break_group(comm.context(), e.code(), e.peer(), none, e.what());
            throw;
        }
        return comm;
    } catch (const error& x) {
        if (star.over()) throw;
        if (x.code() == errc::peer_failed) star.look_for_cause();
        throw star.pass_on(x);
    } catch (const std::exception& x) {
        star.tell(errc::peer_failed, star.own(), star.name(star.own()) + ": " + x.what());
        throw;
    }
}

/// The socket of a member of which no other one is known to reach it at a certain address. Throws invalid_argument,
/// unsupported.
[[gnu::cold]] inline descriptor listen_for_members(int rank, std::string_view interface_name, bool alone) {
    std::string given(interface_name);
    if (const char* const set = variable("COLLS_INTERFACE"); given.empty() && set) given = set;
    address at = given.empty() ? outward_address(AF_INET) : interface_address(given, AF_INET);
    if (const address other = outward_address(AF_INET6); given.empty() && at.is_loopback() && !other.is_loopback())
        at = other;
    descriptor listening = given.empty() && (alone || at.is_loopback()) ? listen_on_loopback() : listen_at(at);
    if (!listening)
        throw_of_rank(rank, is_exhausted(errno) ? errc::unsupported : errc::invalid_argument,
            error_text() << "cannot listen at " << host_text(at) << ": " << system_text(errno));
    return listening;
}

[[gnu::cold]] COLLS_INLINE communicator group_of_one_host(int rank, int size, member_exchange& exchange, bool wanted) {
    forming f{exchange, rank, size, environment::read()};
    const bool messages = f.env.tcp || !wanted;
    meet_members(f, messages);
    if (messages || !f.on_one_host()) return {};
    processes::detail::dump_on_signal();
    status::open_door(status::asked_place());
    communicator comm = group_of_host(f);
    if (comm.size() > 0) label_group(comm.context(), f.all[0].label);
    return comm;
}

}  // namespace detail

[[gnu::cold]] COLLS_INLINE communicator bootstrap(
    int rank, int size, member_exchange& exchange, const bootstrap_options& how) {
    using namespace detail;
    bring_bootstrap();
    if (size < 1 || rank < 0 || rank >= size)
        throw error(errc::invalid_argument,
            error_text() << "colls: rank " << rank << " is out of range for a group of " << size << " ranks");
    environment env = environment::read();
    if (how.timeout > 0) env.timeout = how.timeout;
    forming f{.exchange = exchange,
        .rank = rank,
        .size = size,
        .env = env,
        .keeps_memory = !how.own_memory,
        .source = "bootstrap",
        .listen = [&](bool alone) { return listen_for_members(rank, how.interface_name, alone); }};
    return form(f);
}
COLLS_INLINE communicator bootstrap(
    int rank, int size, key_value_store& store, std::string_view name, const bootstrap_options& how) {
    detail::exchange_over_store exchange(store, name, rank, size);
    return bootstrap(rank, size, exchange, how);
}

namespace detail {
/// Not an initialiser of the pointer: each unit that includes this would compile the network, which takes ten seconds.
COLLS_INLINE void bring_bootstrap() {
    bootstrap_of_program.store(
        [](int rank, int size, member_exchange& x) { return bootstrap(rank, size, x); }, std::memory_order_relaxed);
}
#ifdef COLLS_SEPARATE_SOURCE
inline const bool bootstrap_is_there = (bring_bootstrap(), true);
#endif
}  // namespace detail

}  // namespace colls::inline v1
