// The group of all ranks that were launched together.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/bootstrap/hand_over.hpp>
#include <colls/detail/bootstrap/launch.hpp>
#include <colls/detail/bootstrap/rendezvous.hpp>
#include <colls/detail/run/group_of_all.hpp>
#include <colls/detail/run/processes.hpp>

namespace colls::inline v1 {
namespace detail {

/// The memory of a host's ranks, made by the first of them. `group`: a number that is theirs alone.
inline std::shared_ptr<processes::detail::arena> host_memory(
    std::uint64_t group, int rank, const list<int>& here, double timeout) {
    using processes::detail::arena;
    const int n = static_cast<int>(here.size());
    const std::uint64_t socket = hash_mix(group, static_cast<std::uint64_t>(here[0]));  // named hosts may be one
    std::shared_ptr<arena> a;
    if (here[0] == rank) {
        a = std::make_shared<arena>(n);
        if (n > 1) hand_out(socket, a->file(), n - 1, timeout, rank);
    } else {
        a = std::make_shared<arena>(n, fetch(socket, timeout, rank, here[0]));
    }
    int at = 0;
    while (here[at] != rank) ++at;
    a->be(at);
    return a;
}

inline communicator make_world(const launch& l) {
    const environment env = environment::read();
    processes::detail::dump_on_signal();
    meeting m = meet(l, env.timeout);
    std::vector<hosts::site> sites;
    list<int> here;
    int hosts = 0;
    bool shared = false, crowded = false;  // on any host: all ranks must come to the same result
    for (std::size_t r = 0; r < m.members.size(); ++r) {
        const std::uint64_t host = m.members[r].host;
        sites.push_back({m.members[r].at, host});
        int before = 0;
        for (std::size_t q = 0; q < r; ++q) before += sites[q].host == host;
        hosts += before == 0;
        shared = shared || before > 0;
        crowded = crowded || before >= cores();
        if (host == m.members[static_cast<std::size_t>(m.rank)].host) here.push_back(static_cast<int>(r));
    }
    const bool near = shared && !env.tcp;
    if (env.debug != debug_level::warn && m.rank == 0)
        say(message() << "colls: " << m.size << (m.size == 1 ? " rank on " : " ranks on ") << hosts
                      << (hosts == 1 ? " host" : " hosts") << ", as " << std::string_view(l.source) << " says: "
                      << (env.tcp         ? ""
                             : hosts == 1 ? "shared memory"
                             : near       ? "shared memory within hosts, between them "
                                          : "")
                      << (hosts == 1 && !env.tcp ? ""
                             : env.verbs         ? "RDMA"
                                                 : "TCP"));
    if (hosts == 1 && !env.tcp)
        return processes::detail::whole_group(host_memory(m.group, m.rank, here, env.timeout), env);
    std::shared_ptr<processes::detail::arena> memory;
    if (near) {
        memory = host_memory(m.group, m.rank, here, env.timeout);
        memory->assemble(env.timeout);
    }
    auto way = hosts::inter_node_transport_for(env, m.rank, sites[static_cast<std::size_t>(m.rank)].at);
    return hosts::group_of_all(
        std::move(m.listening), std::move(sites), m.group, m.rank, crowded, std::move(memory), std::move(way));
}

}  // namespace detail

COLLS_INLINE communicator world(const launch& l) {
    communicator comm = detail::make_world(l);
    detail::label_group(comm.context(), detail::groups_made.fetch_add(1, std::memory_order_relaxed));
    return comm;
}
COLLS_INLINE communicator world() { return world(read_launch()); }

}  // namespace colls::inline v1
