// A test kit for a transport of one's own, for any test framework or none. It runs several thousand checks on groups
// that the transport makes, and reports the first thing that is wrong.
//
// `transport(run)` needs a function that runs a group. For a transport whose ranks are threads, with a message_group as
// in docs/extending.md:
//
//     void run(int n, const std::function<void(colls::communicator&)>& f) {
//         std::exception_ptr first;  // what a rank threw
//         std::mutex mutex;
//         std::vector<std::thread> ranks;
//         for (int r = 0; r < n; ++r)
//             ranks.emplace_back([&, r] {
//                 colls::communicator comm = colls::extend::join(my_member(r, n), r, n);
//                 try {
//                     f(comm);
//                 } catch (const std::exception& e) {
//                     {
//                         const std::lock_guard lock(mutex);
//                         if (!first) first = std::current_exception();
//                     }
//                     comm.abort(e.what());  // or the other ranks would wait for this one
//                 }
//             });
//         for (std::thread& t : ranks) t.join();
//         if (first) std::rethrow_exception(first);
//     }
//
//     const colls::testing::transport_report report = colls::testing::transport(run);
//     if (!report.ok()) fail(report.text());
#pragma once

#include <colls/testing/detail/transport_battery.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace colls::inline v1::testing {

/// How much the kit tries.
struct transport_limits {
    double deadline = 20;                       ///< seconds that one wait may take, if COLLS_TIMEOUT is not shorter
    std::vector<int> groups = {1, 2, 3, 4, 7};  ///< numbers of ranks, one group each, in this order
};

class transport_report;

/// Tests a transport, on groups of the sizes in `limits`. `run(n, f)` makes a group of n ranks, threads or processes,
/// calls f(colls::communicator&) on each, and returns when all have ended. An exception that leaves f on one rank must
/// break the group (communicator::abort), and run must throw an exception with its text when all ranks have ended. The
/// kit reports what it finds that way alone, so ranks need not share memory with the caller. If the program's own
/// processes are the ranks (MPI), each of them calls this function; run then leaves out those from n on, and throws in
/// all of them or in none.
///
/// What is tried, in this order:
/// - an exception of each of three ranks comes out of run;
/// - ranks and size of the group;
/// - each collective and v-variant against a serial reference: chosen automatically and by direct, ring and tree; of
///   0 bytes to 1 MB, in particular around the sizes at which the library changes its method; blocking, started and
///   prepared; in place and not; with a commutative and a non-commutative operator; in memory from allocate and other;
/// - small calls back to back, while one rank or another is late; several operations in flight at once;
/// - send and recv of up to 1.6 MB, in order, and of a rank to itself;
/// - split, split of a part, and calls of all these groups at once;
/// - memory from allocate: alignment, reuse, validity after its group has been left;
/// - errors that every rank must get: an operator throws on one rank, a rank leaves, one rank makes a different call.
///
/// It does not kill or stop processes, and does not call shrink.
///
/// Each group makes over a thousand calls, in one to five seconds on two cores for groups of up to seven threads, or
/// processes of one host. The kit stops at the first finding; where a message is lost, that is limits.deadline later.
/// What run throws is a finding, and does not leave this function.
template <class Run>
transport_report transport(Run&& run, const transport_limits& limits = {});

/// What the kit has found.
class transport_report {
public:
    /// True where every check passed.
    bool ok() const { return finding_.empty(); }
    /// The first thing that is wrong: number of ranks, step, rank and what was expected. If ok(), a summary:
    /// "20392 checks in groups of up to 7 ranks".
    std::string text() const {
        return ok() ? std::to_string(checks_) + " checks in groups of up to " + std::to_string(ranks_) + " ranks"
                    : finding_;
    }
    /// Checks in the groups that passed as a whole. A call counts once for each rank.
    std::size_t checks() const { return checks_; }

private:
    template <class Run>
    friend transport_report transport(Run&& run, const transport_limits& limits);

    /// Returns whether the group passed: `finding` is empty.
    bool add(int ranks, std::size_t checks, const std::string& finding) {
        if (!finding.empty()) {
            finding_ = std::to_string(ranks) + " ranks: " + finding;
        } else {
            ranks_ = std::max(ranks_, ranks);
            checks_ += checks;
        }
        return finding.empty();
    }

    std::string finding_;
    std::size_t checks_ = 0;
    int ranks_ = 0;
};

// ---- implementation ----

template <class Run>
transport_report transport(Run&& run, const transport_limits& limits) {
    namespace kit = v1::detail::testing;
    transport_report report;
    // First of all that exceptions come out of run: no other finding would be seen without it.
    constexpr int throwing = 3;
    for (int rank = 0; rank < throwing; ++rank)
        if (!report.add(throwing, throwing, kit::lost_exception(run, throwing, rank, limits.deadline))) return report;
    for (const int n : limits.groups) {
        const auto battery = [&](communicator& comm) { kit::transport_battery(comm, n, limits.deadline).run(); };
        if (!report.add(n, kit::transport_battery::checks(n), kit::outcome_of(run, n, battery))) break;
    }
    return report;
}

}  // namespace colls::inline v1::testing
