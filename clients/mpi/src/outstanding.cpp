#include "outstanding.hpp"

#include "configuration.hpp"
#include "failure.hpp"

#include <colls/transports/mpi.hpp>

#include <atomic>
#include <cstdio>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace colls_mpi {

namespace {

std::atomic<int> outstanding = 0;

}  // namespace

/// All of them, in the order in which they were submitted.
class outstanding_calls {
public:
    void add(std::unique_ptr<outstanding_call> call) {
        std::vector<std::unique_ptr<outstanding_call>> over;
        const std::lock_guard lock(mutex_);
        const within_pass here;
        ++call->of().outstanding;
        ++outstanding;
        calls_.push_back(std::move(call));
        pass(over);
    }
    void advance() {
        if (in_pass) return;
        std::vector<std::unique_ptr<outstanding_call>> over;  // destroyed without the lock: a group may end
        const std::unique_lock lock(mutex_, std::try_to_lock);
        if (!lock.owns_lock()) return;
        const within_pass here;
        pass(over);
    }

private:
    // A wait hook may run while a pass cleans up behind an error.
    static inline thread_local bool in_pass = false;
    struct within_pass {
        within_pass() { in_pass = true; }
        ~within_pass() { in_pass = false; }
    };

    void pass(std::vector<std::unique_ptr<outstanding_call>>& over) {
        for (const auto& c : calls_) c->of().held_up = false;
        std::size_t kept = 0;
        for (std::size_t i = 0; i < calls_.size(); ++i) {
            if (is_over(*calls_[i])) {
                calls_[i]->of().outstanding.fetch_sub(1, std::memory_order_release);
                --outstanding;
                over.push_back(std::move(calls_[i]));
            } else if (kept++ != i) {
                calls_[kept - 1] = std::move(calls_[i]);
            }
        }
        calls_.resize(kept);
    }
    // All ranks begin the calls of a group in the same order, so one that cannot begin holds up those behind it.
    static bool is_over(outstanding_call& c) {
        try {
            if (!c.begun_) {
                group& g = c.of();
                if (g.held_up) return false;
                if (!g.comm.handle().by->begins_at_once(g.comm.context())) {
                    g.held_up = true;
                    return false;
                }
                c.begun_ = true;
                c.begin();
            }
            if (!c.test()) return false;
            c.finish();
        } catch (...) {
            c.note_failure();
        }
        c.complete_request();
        return true;
    }

    std::mutex mutex_;
    std::vector<std::unique_ptr<outstanding_call>> calls_;
};

namespace {

auto& calls = *new outstanding_calls;  // never destroyed, since MPI_Finalize may come late

}  // namespace

void submit(std::unique_ptr<outstanding_call> call) { calls.add(std::move(call)); }
void advance() {
    if (outstanding.load(std::memory_order_relaxed) > 0) calls.advance();
}

bool several_threads_may_call() {
    static const bool several = [] {
        int level = MPI_THREAD_SINGLE;
        PMPI_Query_thread(&level);
        return level == MPI_THREAD_MULTIPLE;
    }();
    return several;
}
bool must_advance() {
    if (outstanding.load(std::memory_order_relaxed) > 0) return true;
    return configured().on && several_threads_may_call();
}

int complete(MPI_Request& request, MPI_Status* status) {
    int over = 0, code = MPI_SUCCESS;
    advance_until([&] {
        code = must_advance() ? PMPI_Test(&request, &over, status) : (over = 1, PMPI_Wait(&request, status));
        return over != 0 || code != MPI_SUCCESS;
    });
    return code;
}
void finish(MPI_Request& request, const char* call) {
    int over = 0;
    const auto test = [&] {
        check(PMPI_Test(&request, &over, MPI_STATUS_IGNORE), call);
        return over != 0;
    };
    advance_until(test, 1000);
}
void meet(MPI_Comm comm) {
    MPI_Request request = MPI_REQUEST_NULL;
    int between = 0;
    check(PMPI_Comm_test_inter(comm, &between), "MPI_Comm_test_inter");
    if (between == 0) {
        check(PMPI_Ibarrier(comm, &request), "MPI_Ibarrier");
        finish(request, "MPI_Ibarrier");
        return;
    }
    // A sum tells that all of the other group have come, and a second one that they have heard it of this group. (The
    // MPI_Ibarrier of Open MPI 4.1 ends before all have come.)
    for (int round = 0; round < 2; ++round) {
        const int one = 1;
        int sum = 0;
        check(PMPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request), "MPI_Iallreduce");
        finish(request, "MPI_Iallreduce");
    }
}
void finish_outstanding_of(const group& g) {
    advance_until([&] {
        if (g.outstanding.load(std::memory_order_acquire) == 0) return true;
        colls::mpi::make_progress();
        return false;
    });
}
void finish_outstanding() {
    advance_until([] {
        colls::mpi::make_progress();
        return outstanding.load(std::memory_order_relaxed) == 0;
    });
}

// ---- requests -------------------------------------------------------------------------------------------------------

/// MPI keeps it for as long as the request.
struct outstanding_call::result {
    int code = MPI_SUCCESS;
};

outstanding_call::outstanding_call(function which, shared_group g) : which_(which), group_(std::move(g)) {
    auto made = std::make_unique<result>();
    check(PMPI_Grequest_start(&query, &forget, &cancel, made.get(), &request_), "MPI_Grequest_start");
    result_ = made.release();
}

void outstanding_call::note_failure() noexcept {
    result_->code = MPI_ERR_OTHER;
    group_->failed.store(true, std::memory_order_relaxed);
    const auto report = [&](const char* text) {
        int rank = 0;
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
        std::fprintf(stderr, "colls_mpi: %s on rank %d of MPI_COMM_WORLD: %s\n", name_of(which_).c_str(), rank, text);
    };
    try {
        throw;
    } catch (const mpi_failure& e) {
        result_->code = e.code();
        report(e.what());
    } catch (const std::exception& e) {
        report(e.what());
    } catch (...) {
        report("an exception that is not of the standard library");
    }
}

// What MPI_Wait returns. The status is an empty one, as that of MPI's own collectives.
int outstanding_call::query(void* state, MPI_Status* status) {
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_ANY_SOURCE;
    status->MPI_TAG = MPI_ANY_TAG;
    return static_cast<result*>(state)->code;
}
int outstanding_call::forget(void* state) {
    delete static_cast<result*>(state);
    return MPI_SUCCESS;
}
// The standard has no collective that is cancelled.
int outstanding_call::cancel(void*, int complete) { return complete != 0 ? MPI_SUCCESS : MPI_ERR_REQUEST; }

}  // namespace colls_mpi
