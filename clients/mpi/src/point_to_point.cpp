// Messages between two ranks that wait for each other: where calls are outstanding, as non-blocking messages, so that
// the rank advances those calls meanwhile.
#include "buffers.hpp"
#include "failure.hpp"
#include "outstanding.hpp"

#include <colls/mpi/detail/mpi_header.hpp>

#include <new>

namespace {

using namespace colls_mpi;

using send_function = int(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);

int send_by(send_function* start, const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = start(data, count, type, to, tag, comm, &request);
    return code == MPI_SUCCESS ? complete(request, MPI_STATUS_IGNORE) : code;
}

/// A receive and a send at once.
int exchange(const void* sent, int sent_count, MPI_Datatype sent_type, int to, int sent_tag, void* received, int count,
    MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
    MPI_Request incoming = MPI_REQUEST_NULL, outgoing = MPI_REQUEST_NULL;
    int code = PMPI_Irecv(received, count, type, from, tag, comm, &incoming);
    if (code != MPI_SUCCESS) return code;
    code = PMPI_Isend(sent, sent_count, sent_type, to, sent_tag, comm, &outgoing);
    if (code != MPI_SUCCESS) {
        PMPI_Cancel(&incoming);
        PMPI_Wait(&incoming, MPI_STATUS_IGNORE);
        return code;
    }
    code = complete(incoming, status);
    const int code_of_send = complete(outgoing, MPI_STATUS_IGNORE);
    return code != MPI_SUCCESS ? code : code_of_send;
}

}  // namespace

extern "C" {

int MPI_Send(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    if (!must_advance()) return PMPI_Send(data, count, type, to, tag, comm);
    return send_by(&PMPI_Isend, data, count, type, to, tag, comm);
}
int MPI_Ssend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    if (!must_advance()) return PMPI_Ssend(data, count, type, to, tag, comm);
    return send_by(&PMPI_Issend, data, count, type, to, tag, comm);
}
int MPI_Rsend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    if (!must_advance()) return PMPI_Rsend(data, count, type, to, tag, comm);
    return send_by(&PMPI_Irsend, data, count, type, to, tag, comm);
}
int MPI_Recv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
    if (!must_advance()) return PMPI_Recv(data, count, type, from, tag, comm, status);
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = PMPI_Irecv(data, count, type, from, tag, comm, &request);
    return code == MPI_SUCCESS ? complete(request, status) : code;
}

int MPI_Sendrecv(const void* sent, int sent_count, MPI_Datatype sent_type, int to, int sent_tag, void* received,
    int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
    if (!must_advance())
        return PMPI_Sendrecv(sent, sent_count, sent_type, to, sent_tag, received, count, type, from, tag, comm, status);
    return exchange(sent, sent_count, sent_type, to, sent_tag, received, count, type, from, tag, comm, status);
}
int MPI_Sendrecv_replace(void* data, int count, MPI_Datatype type, int to, int sent_tag, int from, int tag,
    MPI_Comm comm, MPI_Status* status) {
    int bytes = 0, packed = 0;
    // What is not to be sent need not be packed; arguments that are wrong MPI reports.
    if (!must_advance() || to == MPI_PROC_NULL || count < 0 || type == MPI_DATATYPE_NULL ||
        PMPI_Pack_size(count, type, comm, &bytes) != MPI_SUCCESS)
        return PMPI_Sendrecv_replace(data, count, type, to, sent_tag, from, tag, comm, status);
    try {
        const scratch copy(static_cast<std::size_t>(bytes));
        if (data == MPI_BOTTOM) {  // which MPICH does not pack
            const layout l = layout_of(type);
            pack(data, static_cast<std::size_t>(count), type, l, copy.data());
            packed = static_cast<int>(static_cast<std::size_t>(count) * l.size);
        } else if (const int code = PMPI_Pack(data, count, type, copy.data(), bytes, &packed, comm);
            code != MPI_SUCCESS) {
            return code;
        }
        return exchange(copy.data(), packed, MPI_PACKED, to, sent_tag, data, count, type, from, tag, comm, status);
    } catch (const mpi_failure& e) {
        PMPI_Comm_call_errhandler(comm, e.code());
        return e.code();
    } catch (const std::bad_alloc&) {
        PMPI_Comm_call_errhandler(comm, MPI_ERR_NO_MEM);
        return MPI_ERR_NO_MEM;
    }
}

int MPI_Probe(int from, int tag, MPI_Comm comm, MPI_Status* status) {
    int code = MPI_SUCCESS, there = 0;
    advance_until([&] {
        code = must_advance() ? PMPI_Iprobe(from, tag, comm, &there, status)
                              : (there = 1, PMPI_Probe(from, tag, comm, status));
        return there != 0 || code != MPI_SUCCESS;
    });
    return code;
}
int MPI_Mprobe(int from, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status) {
    int code = MPI_SUCCESS, there = 0;
    advance_until([&] {
        code = must_advance() ? PMPI_Improbe(from, tag, comm, &there, message, status)
                              : (there = 1, PMPI_Mprobe(from, tag, comm, message, status));
        return there != 0 || code != MPI_SUCCESS;
    });
    return code;
}
int MPI_Mrecv(void* data, int count, MPI_Datatype type, MPI_Message* message, MPI_Status* status) {
    if (!must_advance()) return PMPI_Mrecv(data, count, type, message, status);
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = PMPI_Imrecv(data, count, type, message, &request);
    return code == MPI_SUCCESS ? complete(request, status) : code;
}
int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* there, MPI_Status* status) {
    advance();
    return PMPI_Iprobe(from, tag, comm, there, status);
}
int MPI_Improbe(int from, int tag, MPI_Comm comm, int* there, MPI_Message* message, MPI_Status* status) {
    advance();
    return PMPI_Improbe(from, tag, comm, there, message, status);
}

}  // extern "C"
