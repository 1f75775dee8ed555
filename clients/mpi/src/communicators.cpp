// Functions of MPI that wait for all processes of a communicator, and have no non-blocking form that could stand in for
// them: behind a barrier that advances what is outstanding. And the neighbourhood collectives, in their non-blocking
// forms.
#include "configuration.hpp"
#include "failure.hpp"
#include "groups.hpp"
#include "outstanding.hpp"

#include <colls/mpi/detail/mpi_header.hpp>

#include <cstddef>
#include <cstdio>
#include <vector>

namespace {

using namespace colls_mpi;

/// Whether a communicator's processes meet depends on what is the same on all of them.
template <class Call>
int behind_others(MPI_Comm comm, const Call& call) {
    if (configured().on && comm != MPI_COMM_NULL && has_several_of_this_world(comm)) {
        try {
            meet(comm);
        } catch (const mpi_failure& e) {
            std::fprintf(stderr, "colls_mpi: %s\n", e.what());
            return e.code();  // the error handler has been called by MPI
        }
    }
    return call();
}
/// A process may be both neighbours of another one in some dimension: in a circle of one or two.
[[maybe_unused]] bool has_a_neighbour_twice(MPI_Comm comm) {
    int topology = MPI_UNDEFINED, dimensions = 0;
    if (PMPI_Topo_test(comm, &topology) != MPI_SUCCESS || topology != MPI_CART) return false;
    PMPI_Cartdim_get(comm, &dimensions);
    const auto n = static_cast<std::size_t>(dimensions);
    std::vector<int> lengths(n), periods(n), place(n);
    PMPI_Cart_get(comm, dimensions, lengths.data(), periods.data(), place.data());
    for (std::size_t i = 0; i < n; ++i)
        if (periods[i] != 0 && lengths[i] <= 2) return true;
    return false;
}
/// `start(request)` is the call in its non-blocking form.
template <class Call, class Start>
int neighbourly(const Call& call, const Start& start) {
    if (!configured().on) return call();
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = start(&request);
    return code == MPI_SUCCESS ? complete(request, MPI_STATUS_IGNORE) : code;
}
/// The same, for calls that send each neighbour a block of its own. The non-blocking forms of Open MPI 4.1 exchange the
/// blocks of a neighbour that is one twice.
template <class Call, class Start>
int neighbourly_to_each(MPI_Comm comm, const Call& call, const Start& start) {
#ifdef OPEN_MPI
    if (configured().on && comm != MPI_COMM_NULL && has_a_neighbour_twice(comm)) return behind_others(comm, call);
#else
    static_cast<void>(comm);
#endif
    return neighbourly(call, start);
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
int MPI_Win_create(void* base, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, MPI_Win* made) {
    return behind_others(comm, [&] { return PMPI_Win_create(base, bytes, unit, info, comm, made); });
}
int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win* made) {
    return behind_others(comm, [&] { return PMPI_Win_create_dynamic(info, comm, made); });
}
int MPI_Win_allocate(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* made) {
    return behind_others(comm, [&] { return PMPI_Win_allocate(bytes, unit, info, comm, base, made); });
}
int MPI_Win_allocate_shared(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* made) {
    return behind_others(comm, [&] { return PMPI_Win_allocate_shared(bytes, unit, info, comm, base, made); });
}
int MPI_File_open(MPI_Comm comm, const char* name, int mode, MPI_Info info, MPI_File* made) {
    return behind_others(comm, [&] { return PMPI_File_open(comm, name, mode, info, made); });
}

int MPI_Neighbor_allgather(const void* sent, int sent_count, MPI_Datatype sent_type, void* received, int count,
    MPI_Datatype type, MPI_Comm comm) {
    return neighbourly(
        [&] { return PMPI_Neighbor_allgather(sent, sent_count, sent_type, received, count, type, comm); },
        [&](MPI_Request* r) {
            return PMPI_Ineighbor_allgather(sent, sent_count, sent_type, received, count, type, comm, r);
        });
}
int MPI_Neighbor_allgatherv(const void* sent, int sent_count, MPI_Datatype sent_type, void* received,
    const int counts[], const int displacements[], MPI_Datatype type, MPI_Comm comm) {
    return neighbourly(
        [&] {
            return PMPI_Neighbor_allgatherv(sent, sent_count, sent_type, received, counts, displacements, type, comm);
        },
        [&](MPI_Request* r) {
            return PMPI_Ineighbor_allgatherv(
                sent, sent_count, sent_type, received, counts, displacements, type, comm, r);
        });
}
int MPI_Neighbor_alltoall(const void* sent, int sent_count, MPI_Datatype sent_type, void* received, int count,
    MPI_Datatype type, MPI_Comm comm) {
    return neighbourly_to_each(
        comm, [&] { return PMPI_Neighbor_alltoall(sent, sent_count, sent_type, received, count, type, comm); },
        [&](MPI_Request* r) {
            return PMPI_Ineighbor_alltoall(sent, sent_count, sent_type, received, count, type, comm, r);
        });
}
int MPI_Neighbor_alltoallv(const void* sent, const int sent_counts[], const int sent_displacements[],
    MPI_Datatype sent_type, void* received, const int counts[], const int displacements[], MPI_Datatype type,
    MPI_Comm comm) {
    return neighbourly_to_each(
        comm,
        [&] {
            return PMPI_Neighbor_alltoallv(
                sent, sent_counts, sent_displacements, sent_type, received, counts, displacements, type, comm);
        },
        [&](MPI_Request* r) {
            return PMPI_Ineighbor_alltoallv(
                sent, sent_counts, sent_displacements, sent_type, received, counts, displacements, type, comm, r);
        });
}
int MPI_Neighbor_alltoallw(const void* sent, const int sent_counts[], const MPI_Aint sent_displacements[],
    const MPI_Datatype sent_types[], void* received, const int counts[], const MPI_Aint displacements[],
    const MPI_Datatype types[], MPI_Comm comm) {
    return neighbourly_to_each(
        comm,
        [&] {
            return PMPI_Neighbor_alltoallw(
                sent, sent_counts, sent_displacements, sent_types, received, counts, displacements, types, comm);
        },
        [&](MPI_Request* r) {
            return PMPI_Ineighbor_alltoallw(
                sent, sent_counts, sent_displacements, sent_types, received, counts, displacements, types, comm, r);
        });
}

}  // extern "C"
