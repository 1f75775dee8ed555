// How this process was launched: its rank, the number of ranks, and where it meets rank 0. These environment variables
// say so; read_launch reads all but COLLS_HOST, which is read when the ranks meet.
//
// COLLS_RANK, COLLS_SIZE
//     This process's rank, and the number of ranks. By default the launcher's: see read_launch.
// COLLS_LOCAL_RANK
//     Its number among the ranks of its host. By default the launcher's, or 0.
// COLLS_MASTER_ADDR
//     Host name or address of rank 0. By default MASTER_ADDR, or Slurm's first host, or loopback.
// COLLS_MASTER_PORT
//     TCP port at which rank 0 listens. By default MASTER_PORT, or one derived from the job's identity.
// COLLS_TOKEN
//     Secret of the job: a rank that has another one is refused. By default the job's identity.
// COLLS_HOST
//     Name of this host: ranks share memory only if theirs are equal. By default the system's identity alone.
// COLLS_INTERFACE
//     Interface (eth0) or own address for connections. By default the one that leads to rank 0.
#pragma once

#include <colls/config.hpp>

#include <string>

namespace colls::inline v1 {

/// Which rank of which job this process is, and where the job's ranks meet. `world(launch)` forms their group. A
/// program may fill it in itself instead of calling read_launch: rank, size, host, port and token, the last four alike
/// on all ranks.
struct launch {
    int rank = 0;                    ///< of this process: 0 to size - 1
    int size = 1;                    ///< number of ranks of the job
    int local_rank = 0;              ///< among the ranks of this host; 0 if the launcher does not say it
    std::string host = "127.0.0.1";  ///< at which rank 0 listens: a name, or an IPv4 or IPv6 address
    int port = 0;                    ///< at which rank 0 listens, 1 to 65535; any for a job of one rank
    int ports = 1;                   ///< consecutive ports that are tried, from `port` on; several if none was given
    std::string token;               ///< secret of the job: rank 0 refuses ranks that have another one
    std::string source = "none";     ///< whose variables were read: "COLLS_RANK", "torchrun", "Open MPI", "PMI", ...
    std::string interface_name;      ///< COLLS_INTERFACE; empty: the interface that leads to rank 0
};

/// Reads from the environment which rank this process is: COLLS_RANK and COLLS_SIZE, or else the variables of torchrun,
/// of Open MPI, of PMI (MPICH, Intel MPI), of PALS, MVAPICH, JSM, Flux or Slurm. With none of them it is rank 0 of 1,
/// and says so on stderr where its parent has started several copies of the program. COLLS_DEBUG=info prints to stderr
/// what was found. No communication. Throws colls::error (invalid_argument), which names the variable and its value, if
/// a value is not a number or out of range, if only one of rank and size is given, or if ranks run on
/// several hosts and the host of rank 0 is not known.
launch read_launch();

}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/net/detail/forming/launch.hpp>
#endif
