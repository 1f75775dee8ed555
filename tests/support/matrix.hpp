// Element types and operators of the library on which the collectives are tested.
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
    bool all_ways;  ///< blocking, started and prepared; otherwise blocking only
    bool averages;  ///< avg, which scans do not support
    bool ordered;   ///< the operator is not known to commute
};

/// Kinds that every suite uses.
template <class Comm>
const std::vector<entry<Comm>>& common_kinds();
/// All of them. Compiled once, in matrix.cpp, for colls::communicator.
template <class Comm>
const std::vector<entry<Comm>>& all_kinds();

}  // namespace support
