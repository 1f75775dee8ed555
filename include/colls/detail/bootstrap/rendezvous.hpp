// Ranks meet at rank 0 over TCP, and each learns where all are. See net/hello.hpp for what they say, and what it is
// worth.
#pragma once

#include <colls/detail/bootstrap/client.hpp>
#include <colls/detail/bootstrap/server.hpp>

namespace colls::inline v1::detail {

/// Collective: every rank of a launch calls it, within `timeout` seconds of each other. Where it returns, all did.
/// Throws colls::error by then: invalid_argument (wrong token, rank out of range or given twice, port taken, unknown
/// interface), mismatch (another size or version), timeout (ranks that never came, or rank 0 not to be reached),
/// peer_failed (rank 0 went away). A group of one opens its listening socket, on loopback, and no connection. One round
/// trip, then a table of `member_bytes` a rank.
inline meeting meet(const launch& l, double timeout) {
    using namespace rendezvous;
    if (l.size < 1 || l.rank < 0 || l.rank >= l.size)
        throw error(errc::invalid_argument,
            (message() << "colls: a rank " << l.rank << " of " << l.size << " cannot be").text());
    if (l.size > 1 && (l.port < 1 || l.ports < 1 || l.port + l.ports > 65536))
        fail(errc::invalid_argument, l,
            message() << "rank 0 cannot be met at port " << l.port << " (COLLS_MASTER_PORT)");
    if (l.size > 1 && !l.interface_name.empty()) interface_address(l.interface_name, AF_INET);  // throws soon
    if (l.size > 1) return l.rank == 0 ? reception(l, timeout).run() : visit(l, timeout).run();

    meeting m;
    m.listening = listen_at(address::loopback(AF_INET, 0));
    if (!m.listening) m.listening = listen_at(address::loopback(AF_INET6, 0));
    if (!m.listening) fail(errc::unsupported, l, message() << "cannot listen on loopback: " << std::strerror(errno));
    m.group = random_id();
    m.members.push_back(self(m.listening));
    return m;
}

}  // namespace colls::inline v1::detail
