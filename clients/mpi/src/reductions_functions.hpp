// The functions of reductions.cpp. Included twice, by both_counts.hpp, which names the macros.

int MPI_NAME(Reduce)(
    const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
    return run<reduce_call>(
        ROW(reduce), comm, are_sound(count, type),
        [&] { return PMPI_NAME(Reduce)(sent, received, count, type, op, root, comm); }, sent, received, count, type, op,
        root);
}

int MPI_NAME(Ireduce)(const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, int root,
    MPI_Comm comm, MPI_Request* request) {
    return start<reduce_call>(
        ROW(ireduce), comm, request, are_sound(count, type),
        [&] { return PMPI_NAME(Ireduce)(sent, received, count, type, op, root, comm, request); }, sent, received, count,
        type, op, root);
}

int MPI_NAME(Allreduce)(const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return run<all_reduce_call>(
        ROW(allreduce), comm, are_sound(count, type),
        [&] { return PMPI_NAME(Allreduce)(sent, received, count, type, op, comm); }, sent, received, count, type, op);
}

int MPI_NAME(Iallreduce)(
    const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
    return start<all_reduce_call>(
        ROW(iallreduce), comm, request, are_sound(count, type),
        [&] { return PMPI_NAME(Iallreduce)(sent, received, count, type, op, comm, request); }, sent, received, count,
        type, op);
}

int MPI_NAME(Scan)(const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return run<inclusive_scan_call>(
        ROW(scan), comm, are_sound(count, type), [&] { return PMPI_NAME(Scan)(sent, received, count, type, op, comm); },
        sent, received, count, type, op);
}

int MPI_NAME(Iscan)(
    const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
    return start<inclusive_scan_call>(
        ROW(iscan), comm, request, are_sound(count, type),
        [&] { return PMPI_NAME(Iscan)(sent, received, count, type, op, comm, request); }, sent, received, count, type,
        op);
}

int MPI_NAME(Exscan)(const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return run<exclusive_scan_call>(
        ROW(exscan), comm, are_sound(count, type),
        [&] { return PMPI_NAME(Exscan)(sent, received, count, type, op, comm); }, sent, received, count, type, op);
}

int MPI_NAME(Iexscan)(
    const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
    return start<exclusive_scan_call>(
        ROW(iexscan), comm, request, are_sound(count, type),
        [&] { return PMPI_NAME(Iexscan)(sent, received, count, type, op, comm, request); }, sent, received, count, type,
        op);
}

int MPI_NAME(Reduce_scatter_block)(
    const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return run<reduce_scatter_block_call>(
        ROW(reduce_scatter_block), comm, are_sound(count, type),
        [&] { return PMPI_NAME(Reduce_scatter_block)(sent, received, count, type, op, comm); }, sent, received, count,
        type, op);
}

int MPI_NAME(Ireduce_scatter_block)(
    const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
    return start<reduce_scatter_block_call>(
        ROW(ireduce_scatter_block), comm, request, are_sound(count, type),
        [&] { return PMPI_NAME(Ireduce_scatter_block)(sent, received, count, type, op, comm, request); }, sent,
        received, count, type, op);
}

int MPI_NAME(Reduce_scatter)(
    const void* sent, void* received, const COUNT counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return run<reduce_scatter_call>(
        ROW(reduce_scatter), comm, are_sound(0, type),
        [&] { return PMPI_NAME(Reduce_scatter)(sent, received, counts, type, op, comm); }, sent, received, counts,
        false, type, op);
}

int MPI_NAME(Ireduce_scatter)(const void* sent, void* received, const COUNT counts[], MPI_Datatype type, MPI_Op op,
    MPI_Comm comm, MPI_Request* request) {
    return start<reduce_scatter_call>(
        ROW(ireduce_scatter), comm, request, are_sound(0, type),
        [&] { return PMPI_NAME(Ireduce_scatter)(sent, received, counts, type, op, comm, request); }, sent, received,
        counts, false, type, op);
}

#if COLLS_MPI_HAS_PERSISTENT
int MPI_INIT_NAME(Reduce)(const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, int root,
    MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<reduce_call>(
        ROW(reduce_init), comm, request, are_sound(count, type),
        [&] { return PMPI_INIT_NAME(Reduce)(sent, received, count, type, op, root, comm, info, request); }, sent,
        received, count, held_type(type), held_operator(op), root);
}

int MPI_INIT_NAME(Allreduce)(const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
    MPI_Info info, MPI_Request* request) {
    return prepare<all_reduce_call>(
        ROW(allreduce_init), comm, request, are_sound(count, type),
        [&] { return PMPI_INIT_NAME(Allreduce)(sent, received, count, type, op, comm, info, request); }, sent, received,
        count, held_type(type), held_operator(op));
}

int MPI_INIT_NAME(Scan)(const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
    MPI_Info info, MPI_Request* request) {
    return prepare<inclusive_scan_call>(
        ROW(scan_init), comm, request, are_sound(count, type),
        [&] { return PMPI_INIT_NAME(Scan)(sent, received, count, type, op, comm, info, request); }, sent, received,
        count, held_type(type), held_operator(op));
}

int MPI_INIT_NAME(Exscan)(const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
    MPI_Info info, MPI_Request* request) {
    return prepare<exclusive_scan_call>(
        ROW(exscan_init), comm, request, are_sound(count, type),
        [&] { return PMPI_INIT_NAME(Exscan)(sent, received, count, type, op, comm, info, request); }, sent, received,
        count, held_type(type), held_operator(op));
}

int MPI_INIT_NAME(Reduce_scatter_block)(const void* sent, void* received, COUNT count, MPI_Datatype type, MPI_Op op,
    MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<reduce_scatter_block_call>(
        ROW(reduce_scatter_block_init), comm, request, are_sound(count, type),
        [&] { return PMPI_INIT_NAME(Reduce_scatter_block)(sent, received, count, type, op, comm, info, request); },
        sent, received, count, held_type(type), held_operator(op));
}

int MPI_INIT_NAME(Reduce_scatter)(const void* sent, void* received, const COUNT counts[], MPI_Datatype type, MPI_Op op,
    MPI_Comm comm, MPI_Info info, MPI_Request* request) {
    return prepare<reduce_scatter_call>(
        ROW(reduce_scatter_init), comm, request, are_sound(0, type),
        [&] { return PMPI_INIT_NAME(Reduce_scatter)(sent, received, counts, type, op, comm, info, request); }, sent,
        received, held_numbers(counts, ranks_of(comm)), false, held_type(type), held_operator(op));
}
#endif
