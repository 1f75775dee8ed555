// The functions of neighbours.cpp. Included twice, by both_counts.hpp, which names the macros.

int MPI_NAME(Neighbor_allgather)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    COUNT count, MPI_Datatype type, MPI_Comm comm) {
    return run<neighbour_call>(
        ROW(neighbor_allgather), comm, true,
        [&] { return PMPI_NAME(Neighbor_allgather)(sent, sent_count, sent_type, received, count, type, comm); },
        same_block{{sent, sent_count, sent_type}}, equal_blocks{received, count, type});
}

int MPI_NAME(Neighbor_allgatherv)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type, MPI_Comm comm) {
    return run<neighbour_call>(
        ROW(neighbor_allgatherv), comm, true,
        [&] {
            return PMPI_NAME(Neighbor_allgatherv)(
                sent, sent_count, sent_type, received, counts, displacements, type, comm);
        },
        same_block{{sent, sent_count, sent_type}}, placed_blocks<MPI_Datatype>{received, counts, displacements, type});
}

int MPI_NAME(Neighbor_alltoall)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, COUNT count,
    MPI_Datatype type, MPI_Comm comm) {
    return run<neighbour_call>(
        ROW(neighbor_alltoall), comm, true,
        [&] { return PMPI_NAME(Neighbor_alltoall)(sent, sent_count, sent_type, received, count, type, comm); },
        equal_blocks{sent, sent_count, sent_type}, equal_blocks{received, count, type});
}

int MPI_NAME(Neighbor_alltoallv)(const void* sent, const COUNT sent_counts[], const DISPLACEMENT sent_displacements[],
    MPI_Datatype sent_type, void* received, const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type,
    MPI_Comm comm) {
    return run<neighbour_call>(
        ROW(neighbor_alltoallv), comm, true,
        [&] {
            return PMPI_NAME(Neighbor_alltoallv)(
                sent, sent_counts, sent_displacements, sent_type, received, counts, displacements, type, comm);
        },
        placed_blocks<MPI_Datatype>{sent, sent_counts, sent_displacements, sent_type},
        placed_blocks<MPI_Datatype>{received, counts, displacements, type});
}

int MPI_NAME(Neighbor_alltoallw)(const void* sent, const COUNT sent_counts[], const MPI_Aint sent_displacements[],
    const MPI_Datatype sent_types[], void* received, const COUNT counts[], const MPI_Aint displacements[],
    const MPI_Datatype types[], MPI_Comm comm) {
    return run<neighbour_call>(
        ROW(neighbor_alltoallw), comm, true,
        [&] {
            return PMPI_NAME(Neighbor_alltoallw)(
                sent, sent_counts, sent_displacements, sent_types, received, counts, displacements, types, comm);
        },
        placed_blocks<const MPI_Datatype*>{sent, sent_counts, sent_displacements, sent_types},
        placed_blocks<const MPI_Datatype*>{received, counts, displacements, types});
}
