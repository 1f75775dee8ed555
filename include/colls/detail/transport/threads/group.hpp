// Groups of threads: the memory that they share, and how a run of them ends.
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/call/rank_task.hpp>
#include <colls/detail/choose/machine.hpp>
#include <colls/detail/regroup/groups.hpp>

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

using colls::detail::communicator_over;
using colls::detail::group_memory;
using colls::detail::list;
using colls::detail::machine;
using colls::detail::message;
using colls::detail::rank_context;
using colls::detail::rank_task;

/// The memory of one group, shared by its communicators; the last one takes it down.
class group : public colls::detail::group_backend {
public:
    group(int n, bool crowded) : n_(n), crowded_(crowded), bytes_(group_memory::bytes(n)) {
        // Fresh pages are zero, and cost nothing until they are used.
        void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
        base_ = static_cast<std::byte*>(at);
    }
    ~group() override { munmap(base_, bytes_); }

    static std::unique_ptr<rank_context> end_of(const std::shared_ptr<group>& g, int rank) {
        auto e = std::make_unique<rank_context>(rank, g->n_, group_memory(g->base_, g->n_), g);
        e->crowded = g->crowded_;
        e->number = reinterpret_cast<std::uintptr_t>(g->base_);
        return e;
    }

    std::byte* take(std::size_t bytes) override { return static_cast<std::byte*>(operator new(bytes, align)); }
    void give(std::byte* at, std::size_t) noexcept override { operator delete(at, align); }
    // The place of a group is where a reference to it is kept, until all members have taken theirs.
    std::uint64_t create(int n) override {
        return reinterpret_cast<std::uintptr_t>(new birth{{n}, std::make_shared<group>(n, crowded_)});
    }
    std::unique_ptr<rank_context> attach(rank_context&, std::uint64_t place, int rank, const list<int>&) override {
        auto* const made = reinterpret_cast<birth*>(place);
        const struct taking {  // also where there is no memory for the end
            birth* made;
            ~taking() {
                if (made->missing.fetch_sub(1, std::memory_order_acq_rel) == 1) delete made;
            }
        } one{made};
        return end_of(made->made, rank);
    }
    void discard(std::uint64_t place, int) override { delete reinterpret_cast<birth*>(place); }
    std::unique_ptr<rank_context> shrink(rank_context& from) override { return colls::detail::shrink_shared(from); }
    const machine& figures() override { return colls::detail::measured(); }

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
    /// The first exception stands, but one of a rank's own is worth more than the control messages of it.
    void failed(std::exception_ptr what, bool control) {
        const std::lock_guard lock(mutex_);
        if (what_ && (control || !control_)) return;
        what_ = std::move(what);
        control_ = control;
    }
    void rethrow() const {
        if (what_) std::rethrow_exception(what_);
    }

private:
    std::mutex mutex_;
    std::exception_ptr what_;
    bool control_ = false;
};

/// Within a handler: breaks the group, so that no rank waits for this one.
[[gnu::cold]] inline void tell(rank_context& e, outcome& o) {
    message text;
    text << "colls: rank " << e.rank << ": its function threw";
    bool control = false;
    try {
        throw;
    } catch (const error& x) {
        control = x.code() == errc::peer_failed;
        text << ": " << x.what();
    } catch (const std::exception& x) {
        text << ": " << x.what();
    } catch (...) {}
    colls::detail::break_group(e, errc::peer_failed, none, none, text.text());
    o.failed(std::current_exception(), control);
}

COLLS_INLINE void run(int n, rank_task f) {
    if (n < 1) throw error(errc::invalid_argument, (message() << "colls: a group of " << n << " ranks").text());
    static_cast<void>(environment::read());  // what is wrong there is said here, not in a thread
    outcome how;
    const unsigned number = colls::detail::groups_made.fetch_add(1, std::memory_order_relaxed);
    const auto shared = std::make_shared<group>(n, n > colls::detail::cores());
    const auto rank = [&](int r) {
        communicator comm = communicator_over(group::end_of(shared, r));
        colls::detail::label_group(comm.context(), number);
        try {
            f(comm);
        } catch (...) {
            tell(comm.context(), how);
        }
    };
    const std::unique_ptr<std::thread[]> others(new std::thread[static_cast<std::size_t>(n)]);
    int started = 1;
    try {
        for (; started < n; ++started) others[static_cast<std::size_t>(started)] = std::thread(rank, started);
    } catch (...) {  // no more threads: those that run must not wait for the rest
        for (int r = started; r < n; ++r) tell(communicator_over(group::end_of(shared, r)).context(), how);
    }
    if (started == n)
        rank(0);
    else
        communicator_over(group::end_of(shared, 0));
    for (int r = 1; r < started; ++r) others[static_cast<std::size_t>(r)].join();
    how.rethrow();
}

}  // namespace detail
}  // namespace colls::inline v1::threads
