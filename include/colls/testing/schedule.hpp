// Tests of a user's own schedule, in any test framework or none:
//     const auto result = colls::testing::check_schedule<my_schedule>(64);
//     if (!result.ok) fail(result.text);
// (mutate.hpp changes a right schedule in one place, to see that a test notices.)
#pragma once

#include <colls/testing/mutate.hpp>
#include <colls/verify.hpp>

#include <cstdint>
#include <string>

namespace colls::inline v1::testing {

/// Law 5 (live), checked by playing the messages of s in a group of n: each rank runs on its own and posts the sends of
/// a round before it waits for its receives; each channel (source, destination, port) holds one message. Ranks take
/// turns in an order drawn from `seed`, each as far as it gets. Returns a report that is ok() where all ranks finish,
/// otherwise one that names a rank that waits for ever. The laws in_range and matched imply this law (verify.hpp); this
/// is a check of it from the executor's side, which needs neither of them.
template <class S>
report play(const S& s, int n, std::uint64_t seed = 0);

/// What check_schedule found.
struct result {
    bool ok = true;    ///< nothing is wrong
    std::string text;  ///< the first failure, or a summary of what was found
    int sizes = 0;     ///< group sizes checked
    int mutants = 0;   ///< changed schedules tried
    int killed = 0;    ///< changed schedules that verify() rejected
};

/// Checks a schedule at every group size from 1 to max_n that it supports:
///   - the laws of the proof (verify), and the played exchange (play);
///   - homes: where `owner` and `home` are both given, that they are inverse;
///   - purity: at() returns the same step when it is called again;
///   - where it can be reversed: that the reverse is right, has as many rounds, sends what this one receives, and that
///     the reverse of the reverse has the steps of this one.
/// At sizes up to 17 it also tries single changes by mutate() and counts those that verify() rejects. A change that is
/// accepted may be harmless, and is not a failure. The summary names the derived properties at the largest size.
template <class S>
result check_schedule(int max_n, const S& s = S{});

}  // namespace colls::inline v1::testing

#include <colls/testing/detail/player.hpp>            // the definition of play
#include <colls/testing/detail/schedule_checker.hpp>  // the definition of check_schedule
