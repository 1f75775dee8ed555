// The group of all ranks that were launched together: by torchrun, mpirun, mpiexec, srun, or by hand.
#pragma once

#include <colls/net/hand_over.hpp>
#include <colls/tcp_group.hpp>
#include <colls/transports/shm.hpp>

namespace colls::inline v1 {

/// The ranks that `l` describes, as a group: over shared memory where all are on one host, else over TCP. Collective: every
/// rank calls it, within COLLS_TIMEOUT of each other. Two round trips to rank 0. Throws colls::error: see detail::meet.
inline communicator world(const launch& l) {
    const environment env = environment::read();
    detail::meeting m = detail::meet(l, env.timeout);
    const auto& own = m.members[static_cast<std::size_t>(m.rank)];
    int here = 0, hosts = 0;
    for (std::size_t r = 0; r < m.members.size(); ++r) {
        here += m.members[r].host == own.host;
        bool first = true;
        for (std::size_t q = 0; q < r; ++q) first = first && m.members[q].host != m.members[r].host;
        hosts += first;
    }
    const bool shared = here == m.size && !env.tcp;
    if (env.debug != debug_level::warn && m.rank == 0)
        detail::say(detail::message() << "colls: " << m.size << " ranks on " << hosts << (hosts == 1 ? " host" : " hosts") << ", as "
                                      << std::string_view(l.source) << " says: " << (shared ? "shared memory" : "TCP"));
    if (shared) {
        std::shared_ptr<processes::detail::arena> a;
        if (m.rank == 0) {
            a = std::make_shared<processes::detail::arena>(m.size);
            if (m.size > 1) detail::hand_out(m.group, a->file(), m.size - 1, env.timeout, 0);
        } else {
            a = std::make_shared<processes::detail::arena>(m.size, detail::fetch(m.group, env.timeout, m.rank, 0));
        }
        a->be(m.rank);
        return processes::detail::whole_group(a, env.timeout);
    }
    std::vector<detail::address> there;
    for (const auto& member : m.members) there.push_back(member.at);
    bool crowded = false;   // on any host: all ranks must think alike
    for (const auto& a : m.members) {
        int beside = 0;
        for (const auto& b : m.members) beside += a.host == b.host;
        crowded = crowded || beside > detail::cores();
    }
    const auto s = std::make_shared<tcp::detail::station>(std::move(m.listening), tcp::detail::usual(crowded));
    return communicator(tcp::detail::group::end_of(s, m.group & ~std::uint64_t{1}, m.rank, std::move(there), crowded));
}

/// The same, as the environment says: COLLS_RANK and COLLS_SIZE, torchrun's, Open MPI's, PMI's or Slurm's variables, in this
/// order; with none, a group of one.
inline communicator world() { return world(read_launch()); }

}  // namespace colls::inline v1
