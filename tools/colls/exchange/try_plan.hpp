// A schedule run over threads, with a serial computation beside it.
#pragma once

#include <colls/any_schedule.hpp>

#include <string>

namespace exchange {

/// Runs s once over n threads on about `elements` integers a rank, and compares every element of every rank with a
/// serial computation. Empty where all agree; else the first difference, or the error, in words. Throws colls::error
/// (unsupported) where the library cannot run a schedule of that form, though it may be right.
std::string try_plan(const colls::any_schedule& s, int n, int elements);

}  // namespace exchange
