// The rendezvous: all ranks connect to rank 0 over TCP, and each learns at which address every rank listens.
// records.hpp has the protocol, and what it protects against.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/bootstrap/detail/client.hpp>
#include <colls/bootstrap/detail/server.hpp>

namespace colls::inline v1::detail {

/// Collective: every rank of a launch calls it, within `timeout` seconds of each other. When it returns, all ranks have
/// called it. Throws colls::error, at the latest after `timeout`: invalid_argument (wrong token, rank out of range or
/// given twice, port taken, unknown interface), mismatch (another size or version), timeout (ranks that have not
/// connected, or rank 0 cannot be reached), peer_failed (rank 0 has closed the connection). A group of one opens its
/// listening socket, on loopback, and no connection. Cost: one round trip, then a table of `member_bytes` for each
/// rank.
inline meeting meet(const launch& l, double timeout) {
    using namespace rendezvous;
    if (l.size < 1 || l.rank < 0 || l.rank >= l.size)
        throw error(errc::invalid_argument,
            message() << "colls: rank " << l.rank << " is out of range for a job of " << l.size << " ranks");
    if (l.size > 1 && (l.port < 1 || l.ports < 1 || l.port + l.ports > 65536))
        fail(errc::invalid_argument, l,
            message() << "port " << l.port
                      << " for the rendezvous is out of range: COLLS_MASTER_PORT must be 1 to 65535");
    if (l.size > 1 && !l.interface_name.empty())
        interface_address(l.interface_name, AF_INET);  // throws before any connection
    if (l.size > 1) return l.rank == 0 ? server(l, timeout).run() : client(l, timeout).run();

    meeting m;
    m.listening = listen_at(address::loopback(AF_INET, 0));
    if (!m.listening) m.listening = listen_at(address::loopback(AF_INET6, 0));
    if (!m.listening) fail(errc::unsupported, l, message() << "cannot listen on loopback: " << system_text(errno));
    m.group = random_id();
    m.members.push_back(self(m.listening));
    return m;
}

}  // namespace colls::inline v1::detail
