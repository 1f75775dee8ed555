// Functions of MPI that wait for all processes of a communicator, and have no non-blocking form that could stand in for
// them: behind a barrier that advances what is outstanding. And those that free a communicator.
#include "configuration.hpp"
#include "failure.hpp"
#include "groups.hpp"
#include "outstanding.hpp"

#include <colls/mpi/detail/mpi_header.hpp>

#include <cstdio>

namespace {

using namespace colls_mpi;

/// Whether a communicator's processes meet depends on what is the same on all of them.
template <class Call>
int behind_others(MPI_Comm comm, const Call& call) {
    const shared_group* const g = existing_group_of(comm);
    if (g != nullptr ? (*g)->several : configured().on && comm != MPI_COMM_NULL && has_several_of_this_world(comm)) {
        try {
            meet(comm);
        } catch (const mpi_failure& e) {
            std::fprintf(stderr, "colls_mpi: %s\n", e.what());
            return e.code();  // the error handler has been called by MPI
        }
    }
    return call();
}

}  // namespace

extern "C" {

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
    return behind_others(comm, [&] { return PMPI_Comm_dup(comm, made); });
}

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* made) {
    return behind_others(comm, [&] { return PMPI_Comm_dup_with_info(comm, info, made); });
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group members, MPI_Comm* made) {
    return behind_others(comm, [&] { return PMPI_Comm_create(comm, members, made); });
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
    return behind_others(comm, [&] { return PMPI_Comm_split(comm, color, key, made); });
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made) {
    return behind_others(comm, [&] { return PMPI_Comm_split_type(comm, type, key, info, made); });
}

int MPI_Intercomm_merge(MPI_Comm comm, int high, MPI_Comm* made) {
    return behind_others(comm, [&] { return PMPI_Intercomm_merge(comm, high, made); });
}

int MPI_Cart_create(
    MPI_Comm comm, int dimensions, const int lengths[], const int periods[], int reorder, MPI_Comm* made) {
    return behind_others(comm, [&] { return PMPI_Cart_create(comm, dimensions, lengths, periods, reorder, made); });
}

int MPI_Cart_sub(MPI_Comm comm, const int kept[], MPI_Comm* made) {
    return behind_others(comm, [&] { return PMPI_Cart_sub(comm, kept, made); });
}

int MPI_Graph_create(MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder, MPI_Comm* made) {
    return behind_others(comm, [&] { return PMPI_Graph_create(comm, nodes, index, edges, reorder, made); });
}

int MPI_Dist_graph_create(MPI_Comm comm, int n, const int sources[], const int degrees[], const int destinations[],
    const int weights[], MPI_Info info, int reorder, MPI_Comm* made) {
    return behind_others(comm,
        [&] { return PMPI_Dist_graph_create(comm, n, sources, degrees, destinations, weights, info, reorder, made); });
}

int MPI_Dist_graph_create_adjacent(MPI_Comm comm, int in, const int sources[], const int source_weights[], int out,
    const int destinations[], const int weights[], MPI_Info info, int reorder, MPI_Comm* made) {
    return behind_others(comm, [&] {
        return PMPI_Dist_graph_create_adjacent(
            comm, in, sources, source_weights, out, destinations, weights, info, reorder, made);
    });
}

int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win* made) {
    return behind_others(comm, [&] { return PMPI_Win_create_dynamic(info, comm, made); });
}

int MPI_File_open(MPI_Comm comm, const char* name, int mode, MPI_Info info, MPI_File* made) {
    return behind_others(comm, [&] { return PMPI_File_open(comm, name, mode, info, made); });
}

int MPI_Comm_free(MPI_Comm* comm) {
    const freed own(comm != nullptr ? *comm : MPI_COMM_NULL);
    return PMPI_Comm_free(comm);
}

int MPI_Comm_disconnect(MPI_Comm* comm) {
    const freed own(comm != nullptr ? *comm : MPI_COMM_NULL);
    return PMPI_Comm_disconnect(comm);
}

}  // extern "C"

#define COLLS_MPI_FUNCTIONS "communicators_functions.hpp"
#include "both_counts.hpp"
