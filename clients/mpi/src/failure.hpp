// An error of MPI's within a call.
#pragma once

#include <colls/mpi/detail/mpi_header.hpp>

#include <stdexcept>
#include <string>

namespace colls_mpi {

class mpi_failure : public std::runtime_error {
public:
    mpi_failure(int code, const char* text) : std::runtime_error(text), code_(code) {}
    /// What the call returns.
    int code() const noexcept { return code_; }

private:
    int code_;
};

/// Throws where a call of MPI has failed.
inline void check(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    PMPI_Error_string(code, text, &length);
    throw mpi_failure(code, (std::string(call) + " failed: " + text).c_str());
}

}  // namespace colls_mpi
