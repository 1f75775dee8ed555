// `colls prove --local`: the proof by local conditions (docs/proof.md), for large groups and for every group size.
#pragma once

#include "catalogue.hpp"

namespace tool {

/// Proves the schedules of a family of the library (or circulant<doubling>, circulant<linear>, bruck<4>, pat<4>) at the
/// group sizes that they support, first to last, by local conditions, on all cores; prints the first size of each that
/// is not proven, and why. Throws std::runtime_error where the family, or its schedule, is not known.
int prove_locally(const request& asked, int first, int last, bool json);

}  // namespace tool
