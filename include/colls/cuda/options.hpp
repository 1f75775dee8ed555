// Options and limits of a group of ranks on GPUs.
#pragma once

#include <cstddef>

namespace colls::inline v1::cuda {

/// The most ranks that reach each other's memory.
inline constexpr int max_ranks = 72;
/// The most ranks of a group.
inline constexpr int max_ranks_of_hosts = 1024;

/// How a call moves its data.
///   eager      each rank writes to every other rank what that one needs, whatever the schedule, in packets of data and
///              flag: without fences, at twice the bytes. One hop; a longer all_reduce takes two, in which each rank
///              folds a part. Also named packets
///   pulled     ranks read what the schedule sends from each other's memory, and wait for counters
///   multicast  the switch between the devices of a host folds, whatever the schedule (NVLS): options.multicast
///   automatic  by the size of the call, from a table that scripts/test-cuda measures (protocol_table.hpp)
enum class protocol { automatic, eager, pulled, multicast, packets = eager };

/// The same on all ranks of a group.
struct options {
    /// Thread blocks (of 512 threads) of a rank, at most. Each is a channel, which works on a slice of the data: one
    /// for each 16 KB. 0: as many as fill the links between GPUs, which is 24, or 16 before compute capability 9.0, and
    /// at most a quarter of the device; of virtual_ranks, an equal share of the device for each rank.
    int channels = 0;
    /// A call takes the eager path if what one rank sends to another (a block, or the whole buffer) has at most this
    /// many bytes, and fits packet_bytes. 0: only barriers do, and what middle_bytes says.
    std::size_t small_bytes = 32 << 10;
    /// The same if what a rank sends to all others together, or gets from them, has at most this many bytes.
    std::size_t middle_bytes = 2 << 20;
    /// Takes one protocol for every call that fits it, whatever small_bytes and middle_bytes; a call that does not is
    /// `pulled`. Barriers are always eager. Calls within kernels are eager or pulled, by small_bytes. Where `multicast`
    /// is taken and the group cannot have multicast memory, the group is refused (unsupported).
    cuda::protocol protocol = protocol::automatic;
    /// Allows `automatic` to take multicast memory for all_reduce on several devices of one host, where they have it:
    /// calls that are not eager, of sums and averages of float, double, half and bfloat16, and of sums, averages,
    /// minima, maxima and bitwise operators of integers of 4 and 8 bytes, in programs compiled for sm_90 or later. The
    /// switch adds floats in an order of its own, so that sums may differ in their last bits from those of the
    /// schedule, and from run to run. Groups without multicast memory, and other calls, take what they take without
    /// this.
    bool multicast = false;
    /// Multicast memory of a channel, through which each call copies its data. It is allocated only where it is asked
    /// for, in whole granules of the device (2 MiB).
    std::size_t multicast_bytes = 512 << 10;
    /// A channel passes its slice on in chunks of this many bytes, at most; all rounds of a chunk precede the next.
    std::size_t chunk_bytes = 256 << 10;
    /// Scratch memory of a channel: for schedules that need it, epilogues, and buffers that other ranks cannot reach,
    /// which they copy there. So on several devices a chunk of each slot of a schedule has to fit, which may make
    /// chunks shorter.
    std::size_t scratch_bytes = 1 << 20;
    /// Memory of a channel for packets. What it gets in an eager call has to fit into a quarter, in equal shares for
    /// all ranks. 0: only barriers are eager.
    std::size_t packet_bytes = 256 << 10;
    /// Between processes: memory of a rank from which communicator::allocate takes.
    std::size_t arena_bytes = 64 << 20;
    /// Memory for the tables of schedules, about 48 bytes for each rank and slot of each schedule that is used. It is
    /// allocated with the group, because an allocation might wait for kernels that wait for the call that makes it.
    std::size_t table_bytes = 4 << 20;
    /// Between processes: several ranks may name one device, where their kernels take turns. Else that is refused, for
    /// it is mostly a mistake.
    bool share_devices = false;
    /// Several devices of one process move all data through host memory, as is done where a device has no peer access
    /// to another. Slow: each byte crosses the link to the host twice, and kernels meet in host memory.
    bool through_host = false;
    /// Channels of a rank where ranks are on several hosts, at most. Each has connections of its own to other hosts.
    int far_channels = 8;
    /// Where ranks are on several hosts: pinned host memory of a channel for what it sends to other hosts in a round,
    /// in one of its chunks, and as much for what it receives; it has both twice.
    std::size_t far_bytes = 1 << 20;
    /// Where ranks are on several hosts: has as much memory of the GPU besides, which network cards read and write in
    /// its place (GPUDirect RDMA). Where a rank's device, network card or system does not allow that, all use host
    /// memory, and that rank says why to stderr. Not tested on hardware.
    bool gpu_direct = false;
    /// Seconds that a kernel waits for a peer before it gives up; 0: COLLS_TIMEOUT.
    double timeout = 0;
};

}  // namespace colls::inline v1::cuda
