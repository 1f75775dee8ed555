// What the environment says of this library.
#pragma once

namespace colls_mpi {

struct configuration {
    bool on = true;             ///< COLLS_MPI=off: every call goes to MPI
    bool report = false;        ///< COLLS_MPI_REPORT=1: MPI_Finalize prints what has gone where
    bool cut_operands = false;  ///< COLLS_MPI_CUT=1: an operator of the program may get parts of the operands
    bool exact = false;         ///< COLLS_MPI_EXACT=1: blocking sums of float and double are colls::exact
    bool timeout = false;       ///< COLLS_TIMEOUT is set; else ranks wait without a deadline, as MPI does
};

/// Read once.
const configuration& configured();

}  // namespace colls_mpi
