// Groups of threads, and how a run of them ends.
// IWYU pragma: private, include <colls/transports/threads.hpp>
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/call/rank_task.hpp>
#include <colls/detail/choose/machine.hpp>
#include <colls/detail/group/failure.hpp>
#include <colls/extend/memory_group.hpp>

#include <sys/mman.h>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

namespace colls::inline v1::threads {

namespace detail {

using colls::detail::message;
using colls::detail::rank_task;
using extend::memory_member;

/// The memory of one group, shared by its communicators; the last of them frees it.
class group : public extend::memory_group {
public:
    group(int n, bool crowded) : n_(n), crowded_(crowded), bytes_(extend::control_bytes(n)) {
        // Fresh pages are zero, and cost nothing until they are used.
        void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
        base_ = static_cast<std::byte*>(at);
    }
    ~group() override { munmap(base_, bytes_); }

    static memory_member member_of(const std::shared_ptr<group>& g) {
        memory_member m;
        m.group = g;
        m.control = g->base_;
        m.crowded = g->crowded_;
        m.number = reinterpret_cast<std::uintptr_t>(g->base_);
        return m;
    }
    static communicator join_whole(const std::shared_ptr<group>& g, int rank) {
        return extend::join(member_of(g), rank, g->n_);
    }

    // A place is a reference to the group, kept until all members have taken theirs.
    std::uint64_t create(int n) override {
        return reinterpret_cast<std::uintptr_t>(new birth{{n}, std::make_shared<group>(n, crowded_)});
    }
    memory_member join(const extend::formation& f) override {
        auto* const made = reinterpret_cast<birth*>(f.place);
        const memory_member m = member_of(made->made);
        if (made->missing.fetch_sub(1, std::memory_order_acq_rel) == 1) delete made;
        return m;
    }
    void discard(std::uint64_t place, int) override { delete reinterpret_cast<birth*>(place); }

    std::byte* allocate(std::size_t bytes) override { return static_cast<std::byte*>(operator new(bytes, align)); }
    void deallocate(std::byte* at, std::size_t) noexcept override { operator delete(at, align); }
    const extend::machine& figures() const override { return colls::detail::measured(); }

private:
    static constexpr std::align_val_t align{128};
    struct birth {
        std::atomic<int> missing;
        std::shared_ptr<group> made;
    };
    const int n_;
    const bool crowded_;
    const std::size_t bytes_;
    std::byte* base_ = nullptr;
};

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
    message text;
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
    colls::detail::break_group(comm.context(), errc::peer_failed, none, none, text.text());
    o.failed(std::current_exception(), caused_by_other);
}

COLLS_INLINE void run(int n, rank_task f) {
    if (n < 1)
        throw error(errc::invalid_argument,
            (message() << "colls: threads::run of " << n << " ranks: a group has at least one").text());
    static_cast<void>(environment::read());  // an invalid value is reported here, not in a thread
    outcome how;
    const unsigned number = colls::detail::groups_made.fetch_add(1, std::memory_order_relaxed);
    const auto shared = std::make_shared<group>(n, n > colls::detail::cores());
    const auto rank = [&](int r) {
        communicator comm = group::join_whole(shared, r);
        colls::detail::label_group(comm.context(), number);
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
            communicator comm = group::join_whole(shared, r);
            report_exception(comm, how);
        }
    }
    if (started == n)
        rank(0);
    else
        group::join_whole(shared, 0);
    for (int r = 1; r < started; ++r) others[static_cast<std::size_t>(r)].join();
    how.rethrow();
}

}  // namespace detail
}  // namespace colls::inline v1::threads
