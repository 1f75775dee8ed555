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
