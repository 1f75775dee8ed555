// The functions of communicators.cpp that take counts. Included twice, by both_counts.hpp, which names the macros.

int MPI_NAME(Win_create)(void* base, MPI_Aint bytes, DISPLACEMENT unit, MPI_Info info, MPI_Comm comm, MPI_Win* made) {
    return behind_others(comm, [&] { return PMPI_NAME(Win_create)(base, bytes, unit, info, comm, made); });
}

int MPI_NAME(Win_allocate)(MPI_Aint bytes, DISPLACEMENT unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* made) {
    return behind_others(comm, [&] { return PMPI_NAME(Win_allocate)(bytes, unit, info, comm, base, made); });
}

int MPI_NAME(Win_allocate_shared)(
    MPI_Aint bytes, DISPLACEMENT unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* made) {
    return behind_others(comm, [&] { return PMPI_NAME(Win_allocate_shared)(bytes, unit, info, comm, base, made); });
}

int MPI_NAME(Neighbor_allgather)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    COUNT count, MPI_Datatype type, MPI_Comm comm) {
    return neighbourly(
        [&] { return PMPI_NAME(Neighbor_allgather)(sent, sent_count, sent_type, received, count, type, comm); },
        [&](MPI_Request* r) {
            return PMPI_NAME(Ineighbor_allgather)(sent, sent_count, sent_type, received, count, type, comm, r);
        });
}

int MPI_NAME(Neighbor_allgatherv)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type, MPI_Comm comm) {
    return neighbourly(
        [&] {
            return PMPI_NAME(Neighbor_allgatherv)(
                sent, sent_count, sent_type, received, counts, displacements, type, comm);
        },
        [&](MPI_Request* r) {
            return PMPI_NAME(Ineighbor_allgatherv)(
                sent, sent_count, sent_type, received, counts, displacements, type, comm, r);
        });
}

int MPI_NAME(Neighbor_alltoall)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, COUNT count,
    MPI_Datatype type, MPI_Comm comm) {
    return neighbourly_to_each(
        comm, [&] { return PMPI_NAME(Neighbor_alltoall)(sent, sent_count, sent_type, received, count, type, comm); },
        [&](MPI_Request* r) {
            return PMPI_NAME(Ineighbor_alltoall)(sent, sent_count, sent_type, received, count, type, comm, r);
        });
}

int MPI_NAME(Neighbor_alltoallv)(const void* sent, const COUNT sent_counts[], const DISPLACEMENT sent_displacements[],
    MPI_Datatype sent_type, void* received, const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type,
    MPI_Comm comm) {
    return neighbourly_to_each(
        comm,
        [&] {
            return PMPI_NAME(Neighbor_alltoallv)(
                sent, sent_counts, sent_displacements, sent_type, received, counts, displacements, type, comm);
        },
        [&](MPI_Request* r) {
            return PMPI_NAME(Ineighbor_alltoallv)(
                sent, sent_counts, sent_displacements, sent_type, received, counts, displacements, type, comm, r);
        });
}

int MPI_NAME(Neighbor_alltoallw)(const void* sent, const COUNT sent_counts[], const MPI_Aint sent_displacements[],
    const MPI_Datatype sent_types[], void* received, const COUNT counts[], const MPI_Aint displacements[],
    const MPI_Datatype types[], MPI_Comm comm) {
    return neighbourly_to_each(
        comm,
        [&] {
            return PMPI_NAME(Neighbor_alltoallw)(
                sent, sent_counts, sent_displacements, sent_types, received, counts, displacements, types, comm);
        },
        [&](MPI_Request* r) {
            return PMPI_NAME(Ineighbor_alltoallw)(
                sent, sent_counts, sent_displacements, sent_types, received, counts, displacements, types, comm, r);
        });
}
