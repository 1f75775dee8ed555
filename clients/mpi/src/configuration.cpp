#include "configuration.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace colls_mpi {

namespace {

std::string_view value_of(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}
// An empty value counts as not set.
bool is_yes(const char* name, bool otherwise) {
    const std::string_view value = value_of(name);
    if (value.empty()) return otherwise;
    if (value == "on" || value == "1") return true;
    if (value == "off" || value == "0") return false;
    std::fprintf(stderr, "colls_mpi: %s is %s, which is neither on (1) nor off (0): it is taken as %s\n", name,
        value.data(), otherwise ? "on" : "off");
    return otherwise;
}

}  // namespace

const configuration& configured() {
    static const configuration c{is_yes("COLLS_MPI", true), is_yes("COLLS_MPI_REPORT", false),
        is_yes("COLLS_MPI_CUT", false), is_yes("COLLS_MPI_EXACT", false), !value_of("COLLS_TIMEOUT").empty()};
    return c;
}

}  // namespace colls_mpi
