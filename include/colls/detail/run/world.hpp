// The group of all ranks that were launched together.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/bootstrap/launch.hpp>
#include <colls/detail/bootstrap/rendezvous.hpp>
#include <colls/detail/run/host_group.hpp>

namespace colls::inline v1 {
namespace detail {

/// The group of those that have met, of which `source` said that they belong together.
inline communicator group_of(meeting&& m, const environment& env, std::string_view source) {
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
                      << (hosts == 1 ? " host" : " hosts") << ", as " << source << " says: "
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
    const detail::environment env = detail::environment::read();
    processes::detail::dump_on_signal();
    communicator comm = detail::group_of(detail::meet(l, env.timeout), env, l.source);
    detail::label_group(comm.context(), detail::groups_made.fetch_add(1, std::memory_order_relaxed));
    return comm;
}
COLLS_INLINE communicator world() { return world(read_launch()); }

}  // namespace colls::inline v1
