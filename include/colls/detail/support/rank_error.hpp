// Errors that name a rank.
// IWYU pragma: private, include <colls/error.hpp>
#pragma once

#include <colls/error.hpp>

namespace colls::inline v1::detail {

/// Throws a rank's error: "colls: rank 3: WHY".
[[noreturn, gnu::cold]] inline void throw_of_rank(int rank, errc code, const error_text& why, int peer = none) {
    throw error(code, error_text() << "colls: rank " << rank << ": " << why, rank, peer);
}
/// The same of a call: "colls: rank 3 in all_reduce: WHY".
[[noreturn, gnu::cold]] inline void throw_in_call(
    int rank, std::string_view call, errc code, const error_text& why, int peer = none) {
    throw error(code, error_text() << "colls: rank " << rank << " in " << call << ": " << why, rank, peer);
}

}  // namespace colls::inline v1::detail
