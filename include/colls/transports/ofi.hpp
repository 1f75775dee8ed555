// Groups of processes whose messages go by libfabric (OFI): AWS EFA, HPE Slingshot (CXI), InfiniBand, Omni-Path, or
// TCP. CMake links colls::ofi. Tested with the providers tcp, net, udp and shm; not on EFA or CXI.
//
// A program that includes this header makes its groups as without it, by colls::world() or processes::run. The
// environment chooses the transport and the provider:
//   COLLS_TRANSPORT=ofi      all messages by libfabric
//   COLLS_TRANSPORT=shm+ofi  shared memory within hosts, libfabric between them
//   COLLS_OFI_PROVIDER       as fi_info names it: efa, cxi, tcp, "udp;ofi_rxd"; the same on all ranks
//   COLLS_OFI_DOMAIN         likewise; also several, and patterns: cxi[0-3],^cxi2
// Without the last two: the one that libfabric names first, by the address at which other ranks reach this one where
// the provider has such addresses. Of several such cards that it says are equal, a rank takes one near its cores, and
// connections for a GPU (cuda::communicator) one near that, by /sys; equal ones are shared out. A rank uses up to four
// domains at once, over which it cuts messages of 128 KB or more, where more are near than such GPUs, and without a GPU
// where COLLS_OFI_DOMAIN names them. Two ranks use as many as the one that has fewer. A provider that cannot be used
// makes world() and run throw colls::error (unsupported), which names what was found.
//
// Control messages, and the detection of dead processes, go over TCP, which must connect the same hosts. Messages above
// 32 KB go from the sender's memory to the receiver's without copies by the library, unless a part of 4 MB has more
// pieces than the provider takes; no memory need be registered by the caller. Where a process of one thread makes its
// first group, settings of libfabric that it lacks are put into its environment: FI_TCP_STAGING_SBUF_SIZE=0 and
// FI_NET_STAGING_SBUF_SIZE=0, without which each message waits for an acknowledgement, which its receiver may send only
// in its next call; and FI_OFI_RXM_EAGER_LIMIT=1048576. A program that has threads by then, or uses libfabric before,
// must have made them itself.
#pragma once

#include <colls/ofi/detail/between_hosts.hpp>
#include <colls/transports/shm.hpp>
