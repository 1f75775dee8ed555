// The group of all ranks that were launched together.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/forming/apart.hpp>
#include <colls/net/detail/forming/host_group.hpp>
#include <colls/net/detail/forming/launch.hpp>
#include <colls/net/detail/forming/rendezvous.hpp>

#include <algorithm>
#include <map>

namespace colls::inline v1 {
namespace detail {

[[gnu::cold]] inline communicator formed_group(meeting& m, const environment& env, std::string_view source) {
    using namespace processes::detail;
    std::vector<hosts::site> sites;
    std::vector<int> here;
    std::map<std::uint64_t, cores_together> cores_of;
    for (std::size_t r = 0; r < m.members.size(); ++r) {
        const std::uint64_t host = m.members[r].host;
        sites.push_back({m.members[r].at, host});
        cores_of[host].add(m.members[r].cores);
        if (host == m.members[static_cast<std::size_t>(m.rank)].host) here.push_back(static_cast<int>(r));
    }
    const auto hosts = static_cast<int>(cores_of.size());
    const bool shared = m.members.size() > cores_of.size();
    // All ranks must come to the same result: the host that is the most crowded counts.
    int cores = cores_together::plenty;
    for (const auto& [host, together] : cores_of) cores = std::min(cores, together.of_group(m.size));
    const bool by_memory = shared && !env.tcp;
    const bool memory_alone = hosts == 1 && !env.tcp;
    if (env.debug != debug_level::warn && m.rank == 0)
        say(error_text() << "colls: " << m.size << (m.size == 1 ? " rank on " : " ranks on ") << hosts
                         << (hosts == 1 ? " host" : " hosts") << ", as " << source << " says: "
                         << (memory_alone   ? "shared memory"
                                : by_memory ? "shared memory within hosts, between them "
                                            : "")
                         << (memory_alone   ? ""
                                : env.verbs ? "RDMA"
                                            : "TCP"));
    const auto check = [&m] { m.check(); };
    if (memory_alone) return whole_group(host_memory(m.group, m.rank, here, env.timeout, check), env);
    std::shared_ptr<arena> memory;
    if (by_memory) {
        memory = host_memory(m.group, m.rank, here, env.timeout, check);
        memory->assemble(env.timeout);
    }
    auto network = hosts::inter_node_transport_for(env, m.rank, sites[static_cast<std::size_t>(m.rank)].at);
    m.line.meet(env.timeout);  // the ranks of other hosts hear that this one's have no memory
    return hosts::group_of_all(std::move(m.listening), std::move(sites), m.group, m.rank, cores, std::move(memory),
        std::move(network), env.timeout);
}

/// The group of those that have met, of which `source` said that they belong together.
[[gnu::cold]] inline communicator group_of(meeting&& m, const environment& env, std::string_view source) {
    try {
        communicator comm = formed_group(m, env, source);
        try {
            m.line.meet(env.timeout);
        } catch (const error& e) {
            // A rank that has heard of all others already finds this one gone, and shall hear why.
            break_group(comm.context(), e.code(), e.peer(), none, e.what());
            throw;
        }
        return comm;
    } catch (const error& e) {
        if (e.code() == errc::peer_failed) m.line.look_for_cause();
        m.line.tell(e.what());
        throw;
    } catch (const std::exception& e) {
        m.line.tell(e.what());
        throw;
    }
}

}  // namespace detail

COLLS_INLINE communicator world(const launch& l) {
    detail::bring_bootstrap();
    const detail::environment env = detail::environment::read();
    processes::detail::dump_on_signal();
    communicator comm = detail::group_of(detail::meet(l, env.timeout), env, l.source);
    detail::label_group(comm.context(), detail::groups_made.fetch_add(1, std::memory_order_relaxed));
    return comm;
}
COLLS_INLINE communicator world() { return world(read_launch()); }

}  // namespace colls::inline v1
