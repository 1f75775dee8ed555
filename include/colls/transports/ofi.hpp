// Groups of processes whose messages go by libfabric (OFI): AWS EFA, HPE Slingshot (CXI), InfiniBand, Omni-Path, or
// TCP. CMake links colls::ofi. Tested with the providers tcp, net, udp and shm; not on EFA or CXI.
//
// A program that includes this header makes its groups as without it, by colls::world() or processes::run. The
// environment chooses the transport and the provider:
//   COLLS_TRANSPORT=ofi      all messages by libfabric
//   COLLS_TRANSPORT=shm+ofi  shared memory within hosts, libfabric between them
//   COLLS_OFI_PROVIDER       as fi_info names it: efa, cxi, tcp, "udp;ofi_rxd"; the same on all ranks
//   COLLS_OFI_DOMAIN         likewise
// Without the last two: the one that libfabric names first, by the address at which other ranks reach this one where
// the provider has such addresses. A provider that cannot be used makes world() and run throw colls::error
// (unsupported), which names what was found.
//
// Control messages, and the detection of dead processes, go over TCP, which must connect the same hosts. Messages above
// 32 KB go from the sender's memory to the receiver's without copies by the library, unless a part of 4 MB has more
// pieces than the provider takes; no memory need be registered by the caller. Settings of libfabric that the user has
// not made, FI_OFI_RXM_EAGER_LIMIT and FI_TCP_STAGING_SBUF_SIZE among them, are put into the process's environment.
#pragma once

#include <colls/ofi/detail/between_hosts.hpp>
#include <colls/transports/shm.hpp>
