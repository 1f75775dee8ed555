// class progress_thread: advances started operations while the rank computes.
#pragma once

#include <colls/communicator.hpp>

namespace colls::inline v1 {

/// A second thread that advances the started operations of a communicator, and of all that were or will be split from
/// it, from its construction to its destruction. It and the rank's own calls exclude each other by a mutex. One such
/// thread at a time; it holds the group, as an operation does.
class progress_thread {
public:
    /// Throws colls::error with invalid_argument where the communicator has no group, or a progress_thread serves it
    /// already; std::system_error where the thread cannot be started.
    explicit progress_thread(communicator& comm) : worker_(detail::start_progress(comm.context())) {}
    progress_thread(const progress_thread&) = delete;
    progress_thread& operator=(const progress_thread&) = delete;
    ~progress_thread() { detail::stop_progress(worker_); }

private:
    detail::progress_worker* worker_;
};

}  // namespace colls::inline v1
