// The exchanges of a job's processes through their PMIx server.
// IWYU pragma: private, include <colls/pmix.hpp>
#pragma once

#include <colls/detail/support/environment.hpp>
#include <colls/pmix.hpp>

#include <pmix.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace colls::inline v1 {
namespace detail::pmix {

/// Connects this process with its server until it ends. As PMIx counts its users, an MPI in the process may do so too.
struct connection {
    connection() {
        // Without a server some versions wait, and some begin a job of one process.
        const char* const space = std::getenv("PMIX_NAMESPACE");
        const pmix_status_t status = space && *space ? PMIx_Init(&own, nullptr, 0) : PMIX_ERR_UNREACH;
        if (status != PMIX_SUCCESS)
            throw error(errc::unsupported,
                error_text() << "colls: no launcher with PMIx started this process ("
                             << (space && *space ? PMIx_Error_string(status) : "PMIX_NAMESPACE is not set")
                             << "): start it with prun, mpirun or srun --mpi=pmix, or call colls::world()");
    }
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;
    ~connection() { PMIx_Finalize(nullptr, 0); }

    static connection& of_process() {
        static connection one;
        return one;
    }

    pmix_proc_t own = {};
};

/// Some operations that PMIx performs in its own thread. It outlives a caller that waits no longer.
class pending {
public:
    explicit pending(std::size_t operations) : waiting_(operations), values_(operations) {}

    /// Whether all were done `seconds` from now.
    bool wait(double seconds) {
        std::unique_lock lock(mutex_);
        return all_done_.wait_for(
            lock, std::chrono::duration<double>(std::min(seconds, 1e9)), [this] { return waiting_ == 0; });
    }
    struct outcome {
        bool done = false;
        pmix_status_t status = PMIX_SUCCESS;
        std::string bytes;
    };
    outcome of(std::size_t i) {
        const std::lock_guard lock(mutex_);
        return values_[i];
    }

    /// Calls begin(callback, argument of it). An operation that cannot begin is done, too.
    template <class Begin>
    static void start(const std::shared_ptr<pending>& all, std::size_t i, Begin begin) {
        auto mine = std::make_unique<one>(one{all, i});
        if (const pmix_status_t status = begin(mine.get()); status == PMIX_SUCCESS)
            mine.release();  // NOLINT(bugprone-unused-return-value): the callback deletes it
        else
            all->end(i, status == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : status, nullptr);
    }
    static void fenced(pmix_status_t status, void* argument) { got(status, nullptr, argument); }
    static void got(pmix_status_t status, pmix_value_t* value, void* argument) {
        const std::unique_ptr<one> mine(static_cast<one*>(argument));
        mine->all->end(mine->i, status, value);
    }

private:
    struct one {
        std::shared_ptr<pending> all;
        std::size_t i;
    };
    void end(std::size_t i, pmix_status_t status, const pmix_value_t* value) {
        const std::lock_guard lock(mutex_);
        values_[i] = {true, status, {}};
        if (value && value->type == PMIX_BYTE_OBJECT)
            values_[i].bytes.assign(value->data.bo.bytes, value->data.bo.size);
        if (--waiting_ == 0) all_done_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable all_done_;
    std::size_t waiting_;
    std::vector<outcome> values_;
};

/// The exchanges of one group.
class exchange final : public member_exchange {
public:
    explicit exchange(double timeout) : own_(connection::of_process().own), timeout_(timeout) {
        static std::atomic<int> groups{0};
        name_ = "colls/" + std::to_string(groups.fetch_add(1, std::memory_order_relaxed));
        pmix_value_t* value = nullptr;
        const pmix_proc_t job = of(PMIX_RANK_WILDCARD);
        check("PMIx_Get of the job's size", PMIx_Get(&job, PMIX_JOB_SIZE, nullptr, 0, &value));
        size_ = static_cast<int>(value->data.uint32);
        PMIX_VALUE_RELEASE(value);
    }
    int rank() const { return static_cast<int>(own_.rank); }
    int size() const { return size_; }

    void all_gather(const void* sent, std::size_t bytes, void* all) override {
        const std::string key = name_ + "/" + std::to_string(turn_++);
        std::string copy(static_cast<const char*>(sent), bytes);
        pmix_value_t value = {};
        value.type = PMIX_BYTE_OBJECT;
        value.data.bo = {copy.data(), copy.size()};
        check("PMIx_Put", PMIx_Put(PMIX_GLOBAL, key.c_str(), &value));
        check("PMIx_Commit", PMIx_Commit());
        fence(key);
        const auto values = ask(key, timeout_);
        for (int r = 0; r < size_; ++r) {
            const pending::outcome got = values->of(static_cast<std::size_t>(r));
            if (!got.done || got.status != PMIX_SUCCESS || got.bytes.size() != bytes)
                fail(got.status == PMIX_SUCCESS ? PMIX_ERR_NOT_FOUND : got.status,
                    "no value came of rank " + std::to_string(r));
            std::memcpy(static_cast<std::byte*>(all) + static_cast<std::size_t>(r) * bytes, got.bytes.data(), bytes);
        }
    }

private:
    pmix_proc_t of(pmix_rank_t rank) const {
        pmix_proc_t p = own_;
        p.rank = rank;
        return p;
    }
    /// All ranks' values of a key, as far as they come in time.
    std::shared_ptr<pending> ask(const std::string& key, double seconds) {
        auto all = std::make_shared<pending>(static_cast<std::size_t>(size_));
        for (int r = 0; r < size_; ++r)
            pending::start(all, static_cast<std::size_t>(r), [&](void* argument) {
                const pmix_proc_t peer = of(static_cast<pmix_rank_t>(r));
                return PMIx_Get_nb(&peer, key.c_str(), nullptr, 0, pending::got, argument);
            });
        all->wait(seconds);
        return all;
    }
    /// Returns when all ranks have set the key.
    void fence(const std::string& key) {
        const pmix_proc_t job = of(PMIX_RANK_WILDCARD);
        bool collects = true;
        pmix_info_t how = {};
        PMIX_INFO_LOAD(&how, PMIX_COLLECT_DATA, &collects, PMIX_BOOL);
        auto done = std::make_shared<pending>(1);
        pending::start(
            done, 0, [&](void* argument) { return PMIx_Fence_nb(&job, 1, &how, 1, pending::fenced, argument); });
        if (done->wait(timeout_)) {
            if (const pmix_status_t status = done->of(0).status; status != PMIX_SUCCESS)
                fail(status, "its fence failed");
            return;
        }
        std::string late;
        int first = none;
        const auto values = ask(key, 1);
        for (int r = size_ - 1; r >= 0; --r)
            if (const auto got = values->of(static_cast<std::size_t>(r)); !got.done || got.status != PMIX_SUCCESS)
                late = " " + std::to_string(first = r) + (late.empty() ? "" : ",") + late;
        throw error(errc::timeout,
            error_text() << "colls: rank " << rank() << " of " << size_ << " waited " << timeout_
                         << " s for the other processes of PMIx's job " << own_.nspace << " to call pmix::world()"
                         << (late.empty() ? "" : "; these have not yet:") << late,
            rank(), first);
    }
    void check(const char* call, pmix_status_t status) const {
        if (status != PMIX_SUCCESS) fail(status, std::string(call) + " failed");
    }
    [[noreturn]] void fail(pmix_status_t status, const std::string& what) const {
        throw error(errc::peer_failed,
            error_text() << "colls: rank " << rank() << " cannot form the group of PMIx's job " << own_.nspace << ": "
                         << what << " (" << PMIx_Error_string(status) << ")",
            rank());
    }

    const pmix_proc_t own_;
    const double timeout_;
    std::string name_;
    int size_ = 0, turn_ = 0;
};

}  // namespace detail::pmix

inline communicator pmix::world(const bootstrap_options& how) {
    detail::pmix::exchange through(how.timeout > 0 ? how.timeout : detail::environment::read().timeout);
    return bootstrap(through.rank(), through.size(), through, how);
}

}  // namespace colls::inline v1
