// The functions of data_movement.cpp that take counts. Included twice, by both_counts.hpp, which names the macros.

int MPI_NAME(Bcast)(void* buffer, COUNT count, MPI_Datatype type, int root, MPI_Comm comm) {
    return run<broadcast_call>(
        ROW(bcast), comm, are_sound(count, type), [&] { return PMPI_NAME(Bcast)(buffer, count, type, root, comm); },
        buffer, count, type, root);
}

int MPI_NAME(Ibcast)(void* buffer, COUNT count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
    return start<broadcast_call>(
        ROW(ibcast), comm, request, are_sound(count, type),
        [&] { return PMPI_NAME(Ibcast)(buffer, count, type, root, comm, request); }, buffer, count, type, root);
}

int MPI_NAME(Gather)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, COUNT count,
    MPI_Datatype type, int root, MPI_Comm comm) {
    return run<gather_call>(
        ROW(gather), comm, true,
        [&] { return PMPI_NAME(Gather)(sent, sent_count, sent_type, received, count, type, root, comm); }, sent,
        sent_count, sent_type, received, count, type, root);
}

int MPI_NAME(Igather)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, COUNT count,
    MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
    return start<gather_call>(
        ROW(igather), comm, request, true,
        [&] { return PMPI_NAME(Igather)(sent, sent_count, sent_type, received, count, type, root, comm, request); },
        sent, sent_count, sent_type, received, count, type, root);
}

int MPI_NAME(Gatherv)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, const COUNT counts[],
    const DISPLACEMENT displacements[], MPI_Datatype type, int root, MPI_Comm comm) {
    return run<gather_v_call>(
        ROW(gatherv), comm, true,
        [&] {
            return PMPI_NAME(Gatherv)(sent, sent_count, sent_type, received, counts, displacements, type, root, comm);
        },
        sent, sent_count, sent_type, received, counts, displacements, type, root);
}

int MPI_NAME(Igatherv)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, const COUNT counts[],
    const DISPLACEMENT displacements[], MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
    return start<gather_v_call>(
        ROW(igatherv), comm, request, true,
        [&] {
            return PMPI_NAME(Igatherv)(
                sent, sent_count, sent_type, received, counts, displacements, type, root, comm, request);
        },
        sent, sent_count, sent_type, received, counts, displacements, type, root);
}

int MPI_NAME(Scatter)(const void* sent, COUNT count, MPI_Datatype type, void* received, COUNT received_count,
    MPI_Datatype received_type, int root, MPI_Comm comm) {
    return run<scatter_call>(
        ROW(scatter), comm, true,
        [&] { return PMPI_NAME(Scatter)(sent, count, type, received, received_count, received_type, root, comm); },
        sent, count, type, received, received_count, received_type, root);
}

int MPI_NAME(Iscatter)(const void* sent, COUNT count, MPI_Datatype type, void* received, COUNT received_count,
    MPI_Datatype received_type, int root, MPI_Comm comm, MPI_Request* request) {
    return start<scatter_call>(
        ROW(iscatter), comm, request, true,
        [&] {
            return PMPI_NAME(Iscatter)(sent, count, type, received, received_count, received_type, root, comm, request);
        },
        sent, count, type, received, received_count, received_type, root);
}

int MPI_NAME(Scatterv)(const void* sent, const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type,
    void* received, COUNT received_count, MPI_Datatype received_type, int root, MPI_Comm comm) {
    return run<scatter_v_call>(
        ROW(scatterv), comm, true,
        [&] {
            return PMPI_NAME(Scatterv)(
                sent, counts, displacements, type, received, received_count, received_type, root, comm);
        },
        sent, counts, displacements, type, received, received_count, received_type, root);
}

int MPI_NAME(Iscatterv)(const void* sent, const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type,
    void* received, COUNT received_count, MPI_Datatype received_type, int root, MPI_Comm comm, MPI_Request* request) {
    return start<scatter_v_call>(
        ROW(iscatterv), comm, request, true,
        [&] {
            return PMPI_NAME(Iscatterv)(
                sent, counts, displacements, type, received, received_count, received_type, root, comm, request);
        },
        sent, counts, displacements, type, received, received_count, received_type, root);
}

int MPI_NAME(Allgather)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, COUNT count,
    MPI_Datatype type, MPI_Comm comm) {
    return run<all_gather_call>(
        ROW(allgather), comm, are_sound(sent, sent_count, sent_type, count, type),
        [&] { return PMPI_NAME(Allgather)(sent, sent_count, sent_type, received, count, type, comm); }, sent,
        sent_count, sent_type, received, count, type);
}

int MPI_NAME(Iallgather)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, COUNT count,
    MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
    return start<all_gather_call>(
        ROW(iallgather), comm, request, are_sound(sent, sent_count, sent_type, count, type),
        [&] { return PMPI_NAME(Iallgather)(sent, sent_count, sent_type, received, count, type, comm, request); }, sent,
        sent_count, sent_type, received, count, type);
}

int MPI_NAME(Allgatherv)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type, MPI_Comm comm) {
    return run<all_gather_v_call>(
        ROW(allgatherv), comm, are_sound(sent, sent_count, sent_type, 0, type),
        [&] { return PMPI_NAME(Allgatherv)(sent, sent_count, sent_type, received, counts, displacements, type, comm); },
        sent, sent_count, sent_type, received, counts, displacements, type);
}

int MPI_NAME(Iallgatherv)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
    return start<all_gather_v_call>(
        ROW(iallgatherv), comm, request, are_sound(sent, sent_count, sent_type, 0, type),
        [&] {
            return PMPI_NAME(Iallgatherv)(
                sent, sent_count, sent_type, received, counts, displacements, type, comm, request);
        },
        sent, sent_count, sent_type, received, counts, displacements, type);
}

int MPI_NAME(Alltoall)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, COUNT count,
    MPI_Datatype type, MPI_Comm comm) {
    return run<all_to_all_call>(
        ROW(alltoall), comm, are_sound(sent, sent_count, sent_type, count, type),
        [&] { return PMPI_NAME(Alltoall)(sent, sent_count, sent_type, received, count, type, comm); }, sent, sent_count,
        sent_type, received, count, type);
}

int MPI_NAME(Ialltoall)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, COUNT count,
    MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
    return start<all_to_all_call>(
        ROW(ialltoall), comm, request, are_sound(sent, sent_count, sent_type, count, type),
        [&] { return PMPI_NAME(Ialltoall)(sent, sent_count, sent_type, received, count, type, comm, request); }, sent,
        sent_count, sent_type, received, count, type);
}

int MPI_NAME(Alltoallv)(const void* sent, const COUNT sent_counts[], const DISPLACEMENT sent_displacements[],
    MPI_Datatype sent_type, void* received, const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type,
    MPI_Comm comm) {
    return run<all_to_all_v_call<MPI_Datatype>>(
        ROW(alltoallv), comm, are_sound(sent, 0, sent_type, 0, type),
        [&] {
            return PMPI_NAME(Alltoallv)(
                sent, sent_counts, sent_displacements, sent_type, received, counts, displacements, type, comm);
        },
        sent, sent_counts, sent_displacements, sent_type, received, counts, displacements, type);
}

int MPI_NAME(Ialltoallv)(const void* sent, const COUNT sent_counts[], const DISPLACEMENT sent_displacements[],
    MPI_Datatype sent_type, void* received, const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type,
    MPI_Comm comm, MPI_Request* request) {
    return start<all_to_all_v_call<MPI_Datatype>>(
        ROW(ialltoallv), comm, request, are_sound(sent, 0, sent_type, 0, type),
        [&] {
            return PMPI_NAME(Ialltoallv)(
                sent, sent_counts, sent_displacements, sent_type, received, counts, displacements, type, comm, request);
        },
        sent, sent_counts, sent_displacements, sent_type, received, counts, displacements, type);
}

int MPI_NAME(Alltoallw)(const void* sent, const COUNT sent_counts[], const DISPLACEMENT sent_displacements[],
    const MPI_Datatype sent_types[], void* received, const COUNT counts[], const DISPLACEMENT displacements[],
    const MPI_Datatype types[], MPI_Comm comm) {
    return run<all_to_all_v_call<const MPI_Datatype*>>(
        ROW(alltoallw), comm, true,
        [&] {
            return PMPI_NAME(Alltoallw)(
                sent, sent_counts, sent_displacements, sent_types, received, counts, displacements, types, comm);
        },
        sent, sent_counts, sent_displacements, sent_types, received, counts, displacements, types);
}

int MPI_NAME(Ialltoallw)(const void* sent, const COUNT sent_counts[], const DISPLACEMENT sent_displacements[],
    const MPI_Datatype sent_types[], void* received, const COUNT counts[], const DISPLACEMENT displacements[],
    const MPI_Datatype types[], MPI_Comm comm, MPI_Request* request) {
    return start<all_to_all_v_call<const MPI_Datatype*>>(
        ROW(ialltoallw), comm, request, true,
        [&] {
            return PMPI_NAME(Ialltoallw)(sent, sent_counts, sent_displacements, sent_types, received, counts,
                displacements, types, comm, request);
        },
        sent, sent_counts, sent_displacements, sent_types, received, counts, displacements, types);
}

#if COLLS_MPI_HAS_PERSISTENT
int MPI_INIT_NAME(Bcast)(
    void* buffer, COUNT count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<broadcast_call>(
        ROW(bcast_init), comm, request, are_sound(count, type),
        [&] { return PMPI_INIT_NAME(Bcast)(buffer, count, type, root, comm, info, request); }, buffer, count,
        held_type(type), root);
}

int MPI_INIT_NAME(Gather)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, COUNT count,
    MPI_Datatype type, int root, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<gather_call>(
        ROW(gather_init), comm, request, true,
        [&] {
            return PMPI_INIT_NAME(Gather)(
                sent, sent_count, sent_type, received, count, type, root, comm, info, request);
        },
        sent, sent_count, held_type(sent_type), received, count, held_type(type), root);
}

int MPI_INIT_NAME(Gatherv)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type, int root, MPI_Comm comm, MPI_Info info,
    MPI_Request* request) {
    return prepare<gather_v_call>(
        ROW(gatherv_init), comm, request, true,
        [&] {
            return PMPI_INIT_NAME(Gatherv)(
                sent, sent_count, sent_type, received, counts, displacements, type, root, comm, info, request);
        },
        sent, sent_count, held_type(sent_type), received, counts, displacements, held_type(type), root);
}

int MPI_INIT_NAME(Scatter)(const void* sent, COUNT count, MPI_Datatype type, void* received, COUNT received_count,
    MPI_Datatype received_type, int root, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<scatter_call>(
        ROW(scatter_init), comm, request, true,
        [&] {
            return PMPI_INIT_NAME(Scatter)(
                sent, count, type, received, received_count, received_type, root, comm, info, request);
        },
        sent, count, held_type(type), received, received_count, held_type(received_type), root);
}

int MPI_INIT_NAME(Scatterv)(const void* sent, const COUNT counts[], const DISPLACEMENT displacements[],
    MPI_Datatype type, void* received, COUNT received_count, MPI_Datatype received_type, int root, MPI_Comm comm,
    MPI_Info info, MPI_Request* request) {
    return prepare<scatter_v_call>(
        ROW(scatterv_init), comm, request, true,
        [&] {
            return PMPI_INIT_NAME(Scatterv)(
                sent, counts, displacements, type, received, received_count, received_type, root, comm, info, request);
        },
        sent, counts, displacements, held_type(type), received, received_count, held_type(received_type), root);
}

int MPI_INIT_NAME(Allgather)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, COUNT count,
    MPI_Datatype type, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<all_gather_call>(
        ROW(allgather_init), comm, request, are_sound(sent, sent_count, sent_type, count, type),
        [&] {
            return PMPI_INIT_NAME(Allgather)(sent, sent_count, sent_type, received, count, type, comm, info, request);
        },
        sent, sent_count, held_type(sent_type), received, count, held_type(type));
}

int MPI_INIT_NAME(Allgatherv)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received,
    const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type, MPI_Comm comm, MPI_Info info,
    MPI_Request* request) {
    const int ranks = ranks_of(comm);
    return prepare<all_gather_v_call>(
        ROW(allgatherv_init), comm, request, are_sound(sent, sent_count, sent_type, 0, type),
        [&] {
            return PMPI_INIT_NAME(Allgatherv)(
                sent, sent_count, sent_type, received, counts, displacements, type, comm, info, request);
        },
        sent, sent_count, held_type(sent_type), received, held_numbers(counts, ranks),
        held_numbers(displacements, ranks), held_type(type));
}

int MPI_INIT_NAME(Alltoall)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, void* received, COUNT count,
    MPI_Datatype type, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<all_to_all_call>(
        ROW(alltoall_init), comm, request, are_sound(sent, sent_count, sent_type, count, type),
        [&] {
            return PMPI_INIT_NAME(Alltoall)(sent, sent_count, sent_type, received, count, type, comm, info, request);
        },
        sent, sent_count, held_type(sent_type), received, count, held_type(type));
}

int MPI_INIT_NAME(Alltoallv)(const void* sent, const COUNT sent_counts[], const DISPLACEMENT sent_displacements[],
    MPI_Datatype sent_type, void* received, const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type,
    MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<all_to_all_v_call<MPI_Datatype>>(
        ROW(alltoallv_init), comm, request, are_sound(sent, 0, sent_type, 0, type),
        [&] {
            return PMPI_INIT_NAME(Alltoallv)(sent, sent_counts, sent_displacements, sent_type, received, counts,
                displacements, type, comm, info, request);
        },
        sent, sent_counts, sent_displacements, held_type(sent_type), received, counts, displacements, held_type(type));
}

int MPI_INIT_NAME(Alltoallw)(const void* sent, const COUNT sent_counts[], const DISPLACEMENT sent_displacements[],
    const MPI_Datatype sent_types[], void* received, const COUNT counts[], const DISPLACEMENT displacements[],
    const MPI_Datatype types[], MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    const int ranks = ranks_of(comm);
    return prepare<all_to_all_v_call<const MPI_Datatype*>>(
        ROW(alltoallw_init), comm, request, true,
        [&] {
            return PMPI_INIT_NAME(Alltoallw)(sent, sent_counts, sent_displacements, sent_types, received, counts,
                displacements, types, comm, info, request);
        },
        sent, sent_counts, sent_displacements, held_types(sent == MPI_IN_PLACE ? nullptr : sent_types, ranks), received,
        counts, displacements, held_types(types, ranks));
}
#endif
