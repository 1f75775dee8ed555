// The functions of point_to_point.cpp that take counts. Included twice, by both_counts.hpp, which names the macros.

int MPI_NAME(Send)(const void* data, COUNT count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    if (!must_advance()) return PMPI_NAME(Send)(data, count, type, to, tag, comm);
    return send_by(&PMPI_NAME(Isend), data, count, type, to, tag, comm);
}

int MPI_NAME(Ssend)(const void* data, COUNT count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    if (!must_advance()) return PMPI_NAME(Ssend)(data, count, type, to, tag, comm);
    return send_by(&PMPI_NAME(Issend), data, count, type, to, tag, comm);
}

int MPI_NAME(Rsend)(const void* data, COUNT count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    if (!must_advance()) return PMPI_NAME(Rsend)(data, count, type, to, tag, comm);
    return send_by(&PMPI_NAME(Irsend), data, count, type, to, tag, comm);
}

int MPI_NAME(Recv)(void* data, COUNT count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
    if (!must_advance()) return PMPI_NAME(Recv)(data, count, type, from, tag, comm, status);
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = PMPI_NAME(Irecv)(data, count, type, from, tag, comm, &request);
    return code == MPI_SUCCESS ? complete(request, status) : code;
}

int MPI_NAME(Sendrecv)(const void* sent, COUNT sent_count, MPI_Datatype sent_type, int to, int sent_tag, void* received,
    COUNT count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
    if (!must_advance())
        return PMPI_NAME(Sendrecv)(
            sent, sent_count, sent_type, to, sent_tag, received, count, type, from, tag, comm, status);
    return exchange([&](MPI_Request* r) { return PMPI_NAME(Irecv)(received, count, type, from, tag, comm, r); },
        [&](MPI_Request* r) { return PMPI_NAME(Isend)(sent, sent_count, sent_type, to, sent_tag, comm, r); }, status);
}

int MPI_NAME(Sendrecv_replace)(void* data, COUNT count, MPI_Datatype type, int to, int sent_tag, int from, int tag,
    MPI_Comm comm, MPI_Status* status) {
    COUNT bytes = 0, packed = 0;
    // What is not to be sent need not be packed; arguments that are wrong MPI reports.
    if (!must_advance() || to == MPI_PROC_NULL || count < 0 || type == MPI_DATATYPE_NULL ||
        PMPI_NAME(Pack_size)(count, type, comm, &bytes) != MPI_SUCCESS)
        return PMPI_NAME(Sendrecv_replace)(data, count, type, to, sent_tag, from, tag, comm, status);
    try {
        const scratch copy(static_cast<std::size_t>(bytes));
        if (data == MPI_BOTTOM) {  // which MPICH does not pack
            const layout l = layout_of(type);
            pack(data, static_cast<std::size_t>(count), type, l, copy.data());
            packed = static_cast<COUNT>(static_cast<std::size_t>(count) * l.size);
        } else if (const int code = PMPI_NAME(Pack)(data, count, type, copy.data(), bytes, &packed, comm);
            code != MPI_SUCCESS) {
            return code;
        }
        return exchange([&](MPI_Request* r) { return PMPI_NAME(Irecv)(data, count, type, from, tag, comm, r); },
            [&](MPI_Request* r) { return PMPI_NAME(Isend)(copy.data(), packed, MPI_PACKED, to, sent_tag, comm, r); },
            status);
    } catch (const mpi_failure& e) {
        PMPI_Comm_call_errhandler(comm, e.code());
        return e.code();
    } catch (const std::bad_alloc&) {
        PMPI_Comm_call_errhandler(comm, MPI_ERR_NO_MEM);
        return MPI_ERR_NO_MEM;
    }
}

int MPI_NAME(Mrecv)(void* data, COUNT count, MPI_Datatype type, MPI_Message* message, MPI_Status* status) {
    if (!must_advance()) return PMPI_NAME(Mrecv)(data, count, type, message, status);
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = PMPI_NAME(Imrecv)(data, count, type, message, &request);
    return code == MPI_SUCCESS ? complete(request, status) : code;
}
