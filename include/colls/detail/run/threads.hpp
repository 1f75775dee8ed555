// Runs of threads, one for each rank, and how they end.
// IWYU pragma: private, include <colls/transports/threads.hpp>
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/call/run.hpp>
#include <colls/detail/group/failure.hpp>
#include <colls/detail/support/futex.hpp>
#include <colls/detail/transport/threads/threads_group.hpp>

#include <exception>
#include <mutex>
#include <thread>

namespace colls::inline v1::threads {

namespace detail {

using namespace colls::detail;

/// How the ranks of one `run` end.
class outcome {
public:
    /// The first exception stands, but a rank's own exception replaces one that another rank's error caused.
    void failed(std::exception_ptr what, bool caused_by_other) {
        const std::lock_guard lock(mutex_);
        if (what_ && (caused_by_other || !caused_by_other_)) return;
        what_ = std::move(what);
        caused_by_other_ = caused_by_other;
    }
    void rethrow() const {
        if (what_) std::rethrow_exception(what_);
    }

private:
    std::mutex mutex_;
    std::exception_ptr what_;
    bool caused_by_other_ = false;
};

/// Called in a handler: breaks the group, so that no rank waits for this one.
[[gnu::cold]] inline void report_exception(communicator& comm, outcome& o) {
    error_text text;
    text << "colls: rank " << comm.rank() << ": its function threw";
    bool caused_by_other = false;
    try {
        throw;
    } catch (const error& x) {
        caused_by_other = x.code() == errc::peer_failed;
        text << ": " << x.what();
    } catch (const std::exception& x) {
        text << ": " << x.what();
    } catch (...) {}
    if (comm.size() > 0)  // it may have left its group before
        break_group(comm.context(), errc::peer_failed, none, none, text);
    o.failed(std::current_exception(), caused_by_other);
}

COLLS_INLINE void run(int n, rank_task f) {
    if (n < 1)
        throw error(errc::invalid_argument,
            error_text() << "colls: threads::run of " << n << " ranks: a group has at least one");
    static_cast<void>(environment::read());  // an invalid value is reported here, not in a thread
    if (n > 1) open_to_fences();             // a process that has threads already waits 10 ms for the system to do that
    outcome how;
    const unsigned number = groups_made.fetch_add(1, std::memory_order_relaxed);
    const auto shared = std::make_shared<threads_group>(n, n > cores());
    const auto rank = [&](int r) {
        communicator comm = threads_group::join_whole(shared, r);
        label_group(comm.context(), number);
        try {
            f(comm);
        } catch (...) {
            report_exception(comm, how);
        }
    };
    const std::unique_ptr<std::thread[]> others(new std::thread[static_cast<std::size_t>(n)]);
    int started = 1;
    try {
        for (; started < n; ++started) others[static_cast<std::size_t>(started)] = std::thread(rank, started);
    } catch (...) {  // no more threads: the ranks that run must not wait for the others
        for (int r = started; r < n; ++r) {
            communicator comm = threads_group::join_whole(shared, r);
            report_exception(comm, how);
        }
    }
    if (started == n)
        rank(0);
    else
        threads_group::join_whole(shared, 0);
    for (int r = 1; r < started; ++r) others[static_cast<std::size_t>(r)].join();
    how.rethrow();
}

}  // namespace detail
}  // namespace colls::inline v1::threads
