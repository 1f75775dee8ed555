// Networks from files: what `simulate`, `choose` and `place` simulate schedules on. docs/simulate.md has the form.
#pragma once

#include <colls/simulate.hpp>

#include <string>

namespace tool {

/// A topology, and what a file says of its ranks.
struct network {
    colls::simulation::topology topology;
    double gamma = 0;       ///< seconds to reduce a byte
    double overhead = 0;    ///< seconds a message
    bool buffered = false;  ///< how ranks wait, and the bytes of a chunk: as in colls::simulation::options
    double chunk = 0;
};

/// Reads a file of JSON. Throws std::runtime_error that says what is missing or wrong.
network read_network(const std::string& file);

}  // namespace tool
