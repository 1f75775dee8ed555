// What the tests over MPI do on a communicator, whichever MPI is beneath it: compiled once for all of them.
#pragma once

#include <colls/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace mpi_tests {

/// What this rank has checked.
struct tally {
    int rank = 0;
    std::uint64_t checked = 0, wrong = 0;
    void check(bool right, const std::string& what);
};

/// What the program that calls MPI lends to them.
struct surroundings {
    std::function<void()> begin, end;                                 ///< around calls: the user's own messages
    std::function<bool(std::span<const std::byte>)> same_everywhere;  ///< by MPI's own means
};

/// Random calls against the serial reference, `cases` or a few more.
void random_calls(
    colls::communicator& comm, std::uint64_t seed, std::uint64_t cases, const surroundings& around, tally& t);
/// Messages between two ranks: small and large, everyone sending first, many of one pair at once, amid collectives.
void messages(colls::communicator& comm, std::uint64_t seed, tally& t);
/// Groups of the group, and groups of those, used by turns.
void splits(colls::communicator& comm, std::uint64_t seed, tally& t);
/// A call in which `odd` does something else than the others, in one of `disagreements` ways: an error on every rank,
/// no byte written beside a buffer, and none into it later. `all_out` returns when all ranks have left the call.
inline constexpr int disagreements = 12;
void disagree(colls::communicator& comm, int how, int odd, const std::function<void()>& all_out, tally& t);
/// One all_reduce: does the group work?
void works(colls::communicator& comm, tally& t);

}  // namespace mpi_tests
