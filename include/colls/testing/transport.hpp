// A test kit for your own transport, for any test framework or none. It runs several thousand checks on groups
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

#include <colls/testing/detail/message_contract.hpp>
#include <colls/testing/detail/transport_battery.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
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
/// kit reports what it finds only that way, so ranks need not share memory with the caller. If the program's own
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

/// How message_transports tries them.
struct message_limits {
    double deadline = 20;                 ///< seconds that one wait may take
    std::vector<int> groups = {2, 3};     ///< numbers of ranks, 2 or more, one group each, in this order
    std::vector<std::size_t> sizes = {};  ///< bytes at which the transport changes its method
    std::size_t large = 400'000;          ///< bytes of a large message: more than the transport holds in itself
    /// Where ranks are processes of their own: begins a meeting of all, and returns a function that says, without
    /// waiting, whether all have come.
    std::function<std::function<bool()>()> meet = {};
};
/// The transports of a group, by rank.
using message_transports_of_group = std::vector<std::unique_ptr<extend::message_transport>>;

/// Tests transports of messages alone, by the contract in extend/message_transport.hpp; use it before `transport`,
/// which tests the calls of groups over them. `make(n)` returns the transports of a new group of n ranks, by rank,
/// which can reach each other. This thread drives them all, so that each order of events is tried as it is meant, and
/// no step waits. Where the ranks are processes of their own (MPI), each of them calls this function, make returns null
/// for the ranks of the others, and limits.meet is set.
///
/// What is tried: numbers, counts and bytes of messages of all sizes, with either side first, many small ones, many
/// pieces, and in random order; control messages before messages without a receive; messages that do not match; leave,
/// broken and abandon amid messages; a listener that answers; that idle ends when something arrives; that the listener
/// is called in progress alone, once for each event, and after what comes before it. Memory of messages has guard
/// bytes, and is freed on abandon. Ranks that die are not tried: they need processes.
///
/// It takes about a second on one core, and ends at the first finding; where a message is lost, limits.deadline later.
transport_report message_transports(
    std::function<message_transports_of_group(int n)> make, const message_limits& limits = {});

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
    friend transport_report message_transports(
        std::function<message_transports_of_group(int n)> make, const message_limits& limits);

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

inline transport_report message_transports(
    std::function<message_transports_of_group(int n)> make, const message_limits& limits) {
    namespace kit = v1::detail::testing;
    const kit::contract_settings how{std::move(make), limits.meet, limits.sizes, limits.large, limits.deadline};
    transport_report report;
    for (const int n : limits.groups) {
        if (n < 2) continue;
        kit::message_contract contract(n, how);
        const std::string finding = contract.run();
        if (!report.add(n, static_cast<std::size_t>(n * contract.steps()), finding)) break;
    }
    return report;
}

}  // namespace colls::inline v1::testing
