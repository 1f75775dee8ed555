// Changing a right schedule in one place, to see that a test rejects the result.
#pragma once

#include <cstdint>

namespace colls::inline v1::testing {

/// What a change concerns: one field of one step, the order of two rounds or ports of one rank, or a whole step.
enum class mutation : unsigned char {
    send_peer,      ///< another peer is sent to, or none
    receive_peer,   ///< another peer is received from, or none
    send_block,     ///< the blocks sent begin elsewhere
    receive_block,  ///< the blocks received begin elsewhere
    send_count,     ///< one block more or less is sent
    receive_count,  ///< one block more or less is received
    rounds,         ///< two rounds of the rank are exchanged
    action,         ///< copy becomes reduce, or the reverse
    port,           ///< two ports of the rank are exchanged in one round
    drop            ///< the rank does nothing on one port in one round
};
/// How many kinds of changes there are.
inline constexpr int mutation_count = 10;

/// A schedule with one change, made by mutate(): a value with the members of a schedule, so that verify(m, n) works on
/// it; text() says in words what was changed.
template <class S>
class mutant;

/// Makes one random change of s at group size n, the same for the same seed. At least one step of the result differs
/// from s, unless s has no steps.
template <class S>
mutant<S> mutate(const S& s, int n, std::uint64_t seed);

}  // namespace colls::inline v1::testing

#include <colls/testing/detail/mutant.hpp>  // the definitions
