// Runs the library's own code under the interleavings of its ranks, as CHESS and relacy do.
//
// The code under test is compiled with -fsanitize=thread and linked with scheduler.cpp in the place of
// ThreadSanitizer's library: the compiler reports each access to memory, and each atomic operation is performed here.
// Ranks are fibers of one thread. Before an atomic operation on a word that ranks share, another rank may go on.
// explore() tries all runs in which the order of ranks departs from the default at most `delays` times. By default a
// rank runs until it waits, and then the next one does. (Emmi, Qadeer, Rakamaric: Delay-bounded scheduling, 2011.)
//
// A run is sequentially consistent. What weaker orders could change is found by vector clocks: an access to shared data
// that no release and acquire order after another rank's is a race, and a fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace interleaving {

inline constexpr int most_ranks = 4;

/// What the ranks do in each run: the same, but for the order in which they get on.
class program {
public:
    explicit program(int n) : ranks(n) {}
    virtual ~program() = default;
    /// Before the ranks begin: makes all state anew.
    virtual void begin() = 0;
    /// One rank. No exception may leave it.
    virtual void run(int rank) = 0;
    const int ranks;
};

/// The memory that ranks share: aligned to a page, and as zeroed or not as the program leaves it.
struct shared_memory {
    std::byte* at;
    std::size_t bytes;
};
shared_memory memory();
/// Atomic operations there are no points: what they tell ranks changes no result.
void ignore(const shared_memory& part);

struct outcome {
    std::string fault;              ///< of the first run that had one, or empty
    std::uint64_t runs = 0;         ///< that were tried
    std::uint64_t most_points = 0;  ///< of one run, at which more than one rank could go on
};
outcome explore(program& p, int delays);

/// Called by a rank: this run has a fault.
[[noreturn]] void fail(const std::string& what);

}  // namespace interleaving
