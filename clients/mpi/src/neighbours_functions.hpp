// The functions of neighbours.cpp. Included twice, by both_counts.hpp, which names the macros.

int MPI_NAME(Neighbor_allgather)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    COUNT count, MPI_Datatype type, MPI_Comm comm) {
    return run<neighbour_call>(
        ROW(neighbor_allgather), comm, true,
        [&] { return PMPI_NAME(Neighbor_allgather)(sent, sent_count, sent_type, received, count, type, comm); },
        equal_blocks{sent, MPI_Count{sent_count}, sent_type, true}, equal_blocks{received, MPI_Count{count}, type});
}

int MPI_NAME(Ineighbor_allgather)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    COUNT count, MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
    return start<neighbour_call>(
        ROW(ineighbor_allgather), comm, request, true,
        [&] {
            return PMPI_NAME(Ineighbor_allgather)(sent, sent_count, sent_type, received, count, type, comm, request);
        },
        equal_blocks{sent, MPI_Count{sent_count}, sent_type, true}, equal_blocks{received, MPI_Count{count}, type});
}

int MPI_NAME(Neighbor_allgatherv)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type, MPI_Comm comm) {
    return run<neighbour_call>(
        ROW(neighbor_allgatherv), comm, true,
        [&] {
            return PMPI_NAME(Neighbor_allgatherv)(
                sent, sent_count, sent_type, received, counts, displacements, type, comm);
        },
        equal_blocks{sent, MPI_Count{sent_count}, sent_type, true},
        placed_blocks{received, numbers(counts), numbers(displacements), type});
}

int MPI_NAME(Ineighbor_allgatherv)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
    return start<neighbour_call>(
        ROW(ineighbor_allgatherv), comm, request, true,
        [&] {
            return PMPI_NAME(Ineighbor_allgatherv)(
                sent, sent_count, sent_type, received, counts, displacements, type, comm, request);
        },
        equal_blocks{sent, MPI_Count{sent_count}, sent_type, true},
        placed_blocks{received, numbers(counts), numbers(displacements), type});
}

int MPI_NAME(Neighbor_alltoall)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, COUNT count,
    MPI_Datatype type, MPI_Comm comm) {
    return run<neighbour_call>(
        ROW(neighbor_alltoall), comm, true,
        [&] { return PMPI_NAME(Neighbor_alltoall)(sent, sent_count, sent_type, received, count, type, comm); },
        equal_blocks{sent, MPI_Count{sent_count}, sent_type}, equal_blocks{received, MPI_Count{count}, type});
}

int MPI_NAME(Ineighbor_alltoall)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    COUNT count, MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
    return start<neighbour_call>(
        ROW(ineighbor_alltoall), comm, request, true,
        [&] {
            return PMPI_NAME(Ineighbor_alltoall)(sent, sent_count, sent_type, received, count, type, comm, request);
        },
        equal_blocks{sent, MPI_Count{sent_count}, sent_type}, equal_blocks{received, MPI_Count{count}, type});
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
        placed_blocks{sent, numbers(sent_counts), numbers(sent_displacements), sent_type},
        placed_blocks{received, numbers(counts), numbers(displacements), type});
}

int MPI_NAME(Ineighbor_alltoallv)(const void* sent, const COUNT sent_counts[], const DISPLACEMENT sent_displacements[],
    MPI_Datatype sent_type, void* received, const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type,
    MPI_Comm comm, MPI_Request* request) {
    return start<neighbour_call>(
        ROW(ineighbor_alltoallv), comm, request, true,
        [&] {
            return PMPI_NAME(Ineighbor_alltoallv)(
                sent, sent_counts, sent_displacements, sent_type, received, counts, displacements, type, comm, request);
        },
        placed_blocks{sent, numbers(sent_counts), numbers(sent_displacements), sent_type},
        placed_blocks{received, numbers(counts), numbers(displacements), type});
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
        placed_blocks{sent, numbers(sent_counts), numbers(sent_displacements), sent_types},
        placed_blocks{received, numbers(counts), numbers(displacements), types});
}

int MPI_NAME(Ineighbor_alltoallw)(const void* sent, const COUNT sent_counts[], const MPI_Aint sent_displacements[],
    const MPI_Datatype sent_types[], void* received, const COUNT counts[], const MPI_Aint displacements[],
    const MPI_Datatype types[], MPI_Comm comm, MPI_Request* request) {
    return start<neighbour_call>(
        ROW(ineighbor_alltoallw), comm, request, true,
        [&] {
            return PMPI_NAME(Ineighbor_alltoallw)(sent, sent_counts, sent_displacements, sent_types, received, counts,
                displacements, types, comm, request);
        },
        placed_blocks{sent, numbers(sent_counts), numbers(sent_displacements), sent_types},
        placed_blocks{received, numbers(counts), numbers(displacements), types});
}

#if COLLS_MPI_HAS_PERSISTENT
int MPI_INIT_NAME(Neighbor_allgather)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    COUNT count, MPI_Datatype type, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<neighbour_call>(
        ROW(neighbor_allgather_init), comm, request, true,
        [&] {
            return PMPI_INIT_NAME(Neighbor_allgather)(
                sent, sent_count, sent_type, received, count, type, comm, info, request);
        },
        equal_blocks{sent, MPI_Count{sent_count}, held_type(sent_type), true},
        equal_blocks{received, MPI_Count{count}, held_type(type)});
}

int MPI_INIT_NAME(Neighbor_allgatherv)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type, MPI_Comm comm, MPI_Info info,
    MPI_Request* request) {
    return prepare<neighbour_call>(
        ROW(neighbor_allgatherv_init), comm, request, true,
        [&] {
            return PMPI_INIT_NAME(Neighbor_allgatherv)(
                sent, sent_count, sent_type, received, counts, displacements, type, comm, info, request);
        },
        equal_blocks{sent, MPI_Count{sent_count}, held_type(sent_type), true},
        placed_blocks{received, numbers(counts), numbers(displacements), held_type(type)});
}

int MPI_INIT_NAME(Neighbor_alltoall)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    COUNT count, MPI_Datatype type, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<neighbour_call>(
        ROW(neighbor_alltoall_init), comm, request, true,
        [&] {
            return PMPI_INIT_NAME(Neighbor_alltoall)(
                sent, sent_count, sent_type, received, count, type, comm, info, request);
        },
        equal_blocks{sent, MPI_Count{sent_count}, held_type(sent_type)},
        equal_blocks{received, MPI_Count{count}, held_type(type)});
}

int MPI_INIT_NAME(Neighbor_alltoallv)(const void* sent, const COUNT sent_counts[],
    const DISPLACEMENT sent_displacements[], MPI_Datatype sent_type, void* received, const COUNT counts[],
    const DISPLACEMENT displacements[], MPI_Datatype type, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<neighbour_call>(
        ROW(neighbor_alltoallv_init), comm, request, true,
        [&] {
            return PMPI_INIT_NAME(Neighbor_alltoallv)(sent, sent_counts, sent_displacements, sent_type, received,
                counts, displacements, type, comm, info, request);
        },
        placed_blocks{sent, numbers(sent_counts), numbers(sent_displacements), held_type(sent_type)},
        placed_blocks{received, numbers(counts), numbers(displacements), held_type(type)});
}

int MPI_INIT_NAME(Neighbor_alltoallw)(const void* sent, const COUNT sent_counts[], const MPI_Aint sent_displacements[],
    const MPI_Datatype sent_types[], void* received, const COUNT counts[], const MPI_Aint displacements[],
    const MPI_Datatype types[], MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<neighbour_call>(
        ROW(neighbor_alltoallw_init), comm, request, true,
        [&] {
            return PMPI_INIT_NAME(Neighbor_alltoallw)(sent, sent_counts, sent_displacements, sent_types, received,
                counts, displacements, types, comm, info, request);
        },
        placed_blocks{sent, numbers(sent_counts), numbers(sent_displacements),
            held_types(sent_types, neighbourhood_of(comm).destinations.count)},
        placed_blocks{received, numbers(counts), numbers(displacements),
            held_types(types, neighbourhood_of(comm).sources.count)});
}
#endif
