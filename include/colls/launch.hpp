// How this process was launched: which rank of how many it is, and where rank 0 is to be met. Like environment.hpp this
// reads the environment, and nothing else here does.
//   COLLS_RANK, COLLS_SIZE   this process's rank, and the number of ranks          from the launcher, see read_launch
//   COLLS_LOCAL_RANK         its number among the ranks of its host                from the launcher, else 0
//   COLLS_MASTER_ADDR        host name or address of rank 0                        MASTER_ADDR, Slurm's first host,
//   loopback COLLS_MASTER_PORT        TCP port at which rank 0 is met                       MASTER_PORT, else made from
//   the job's identity COLLS_TOKEN              secret of the group: who has another one is refused   the job's
//   identity COLLS_HOST               name of this host: ranks of equal ones share memory     the system's identity
//   COLLS_INTERFACE          interface (eth0) or own address for connections       the one that leads to rank 0
#pragma once

#include <colls/config.hpp>

#include <string>

namespace colls::inline v1 {

struct launch {
    int rank = 0, size = 1;
    int local_rank = 0;              ///< among the ranks of its host, where the launcher says so
    std::string host = "127.0.0.1";  ///< where rank 0 is met: a name, or an IPv4 or IPv6 address
    int port = 0;                    ///< and at which port
    int ports = 1;                   ///< ports from there on that are tried: several where none was given
    std::string token;               ///< secret of the group
    std::string source = "none";     ///< which environment was believed
    std::string interface_name;      ///< COLLS_INTERFACE
};

/// Reads the environment that this process was launched in: COLLS_RANK and COLLS_SIZE, else torchrun's, Open MPI's,
/// PMI's (MPICH, Intel MPI), Slurm's; with none of them it is a group of one. COLLS_DEBUG=info says on stderr what was
/// believed. Throws invalid_argument, naming the variable, where a value makes no sense. No communication.
launch read_launch();

}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/detail/bootstrap/launch.hpp>
#endif
