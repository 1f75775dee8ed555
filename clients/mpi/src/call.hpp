// How each function of MPI that this library defines runs: through colls, or by MPI itself.
#pragma once

#include "failure.hpp"
#include "groups.hpp"
#include "report.hpp"

#include <colls/detail/transport/mpi/mpi_header.hpp>

#include <exception>

namespace colls_mpi {

/// Prints what has gone wrong, and returns what the error handler of the communicator leaves to be returned.
int failed(function which, MPI_Comm comm, int code, const char* text);

/// Runs a call: `ours(group)` where the communicator has a group, and where that returns false, having done nothing,
/// `theirs()`. `sound`: the arguments that all ranks have are as MPI demands; else MPI reports them.
template <class Ours, class Theirs>
int run(function which, MPI_Comm comm, bool sound, const Ours& ours, const Theirs& theirs) {
    const call_timer timer;
    try {
        group* const g = sound ? group_of(comm) : nullptr;
        if (g != nullptr && ours(*g)) {
            timer.ended(which, true);
            return MPI_SUCCESS;
        }
    } catch (const mpi_failure& e) {
        return failed(which, comm, e.code(), e.what());
    } catch (const std::exception& e) {
        return failed(which, comm, MPI_ERR_OTHER, e.what());
    }
    const int code = theirs();
    timer.ended(which, false);
    return code;
}

/// A count and a datatype that MPI takes.
inline bool are_sound(int count, MPI_Datatype type) { return count >= 0 && type != MPI_DATATYPE_NULL; }
inline bool is_rank(int root, const group& g) { return root >= 0 && root < g.size; }

}  // namespace colls_mpi
