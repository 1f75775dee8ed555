// What the tests over MPI do on a communicator. They are compiled once for all MPIs, as is the test of several hosts.
#pragma once

#include <colls/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace mpi_tests {

/// The number of checks of this rank, and of those that failed.
struct tally {
    int rank = 0;
    std::uint64_t checked = 0, wrong = 0;
    void check(bool right, const std::string& what);
};

/// What the program that calls MPI provides.
struct surroundings {
    std::function<void()> begin, end;                                 ///< around calls: the user's own messages
    std::function<bool(std::span<const std::byte>)> same_everywhere;  ///< by MPI's own calls
};

/// Random calls against the serial reference, `cases` or a few more.
void random_calls(
    colls::communicator& comm, std::uint64_t seed, std::uint64_t cases, const surroundings& around, tally& t);
/// Calls under colls::reproducible, on data cut at random places: the bits of a serial loop.
void reproducible_bits(colls::communicator& comm, std::uint64_t seed, tally& t);
/// Exact sums, of partial sums and of numbers, beside those of one rank.
void exact_bits(colls::communicator& comm, std::uint64_t seed, tally& t);
/// Point-to-point messages: small and large, with all ranks sending first, many of one pair at once, among collectives.
void messages(colls::communicator& comm, std::uint64_t seed, tally& t);
/// Splits the group, and its parts, and uses all of them in turn.
void splits(colls::communicator& comm, std::uint64_t seed, tally& t);
/// Three threads of each rank call, each with a group of its own, beside a progress thread and without one.
void several_threads(colls::communicator& comm, tally& t);
/// A call in which rank `odd` differs from the others, in one of `disagreements` ways. It must be an error on every
/// rank, without a byte written beside a buffer, or into it after the error. `all_out` returns when all ranks have left
/// the call.
inline constexpr int disagreements = 12;
void disagree(colls::communicator& comm, int how, int odd, const std::function<void()>& all_out, tally& t);
/// Checks that the group works, by one all_reduce.
void works(colls::communicator& comm, tally& t);

}  // namespace mpi_tests
