// The kinds together with the library's operator for each: what the collectives are tried on.
#pragma once

#include "calls.hpp"

namespace support {

using flight = std::vector<colls::operation>;
enum class way : unsigned char { blocking, started, prepared };

/// A kind, with the calls that use the library's operator for it. `run` adds to `in_flight` where way is `started`.
template <class Comm>
struct entry {
    support::kind kind;
    void (*run)(Comm& comm, const arguments& a, way w, flight& in_flight);
    bool all_ways;  ///< or blocking only
    bool averages;  ///< avg: a scan has no obvious meaning of it
    bool ordered;   ///< the operator is not known to commute
};

/// Kinds that every suite uses.
template <class Comm>
const std::vector<entry<Comm>>& common_kinds();
/// All of them. Compiled once, in matrix.cpp, for colls::communicator.
template <class Comm>
const std::vector<entry<Comm>>& all_kinds();

}  // namespace support
