// Started and persistent calls, class operation and class plan, how one waits for several of them, and the function
// that the library calls while a rank waits.
#pragma once

#include <colls/detail/perform/interface.hpp>
#include <colls/detail/support/wait_hook.hpp>
#include <colls/step.hpp>

#include <exception>
#include <type_traits>
#include <utility>

namespace colls::inline v1 {

/// A started collective or message, as start::... and plan::start return it.
///
/// All ranks start their collectives in the same order; they may wait for them in any order, for each test and each
/// wait also advances all other operations of the thread. The buffers of the call must outlive the operation. It holds
/// the group: where the communicator is destroyed first, the rank leaves the group once its last operation is
/// destroyed. After an error it is over, and its buffers may be used again.
class [[nodiscard]] operation {
public:
    /// An empty operation: over from the start.
    operation() = default;
    /// For the library: takes over o.
    operation(const detail::rank_handle& rank, detail::operation_state* o) : rank_(rank), o_(o) {}
    operation(operation&& other) noexcept : rank_(other.rank_), o_(std::exchange(other.o_, nullptr)) {}
    /// Finishes its own operation, as the destructor does.
    operation& operator=(operation other) noexcept {
        std::swap(rank_, other.rank_);
        std::swap(o_, other.o_);
        return *this;
    }
    /// Waits until it is over. While an exception unwinds the stack it waits for a second at most and then breaks the
    /// group: the exception may be why the other ranks do not finish.
    ~operation() { finish(); }

    /// True where there is nothing to wait for: it was default-made or moved from, or a test or wait has found it over.
    bool empty() const { return o_ == nullptr; }
    /// Advances it without waiting; true where it is over. Throws colls::error where it has failed.
    bool test() {
        if (o_) rank_.by->test_operation(*rank_.self, o_);
        return o_ == nullptr;
    }
    /// Returns when it is over. Throws colls::error where it has failed.
    void wait() {
        if (o_) rank_.by->wait_operation(*rank_.self, o_);
    }
    /// Waits for at most `duration`, a std::chrono::duration; true where it is over. Throws colls::error where it has
    /// failed.
    template <class Duration>
    bool wait_for(Duration duration) {
        using period = typename Duration::period;
        const double seconds =
            static_cast<double>(duration.count()) * static_cast<double>(period::num) / static_cast<double>(period::den);
        if (o_) rank_.by->wait_operation_for(*rank_.self, o_, seconds);
        return o_ == nullptr;
    }

private:
    void finish() noexcept {
        if (o_) rank_.by->finish_operation(*rank_.self, o_, std::uncaught_exceptions() > 0);
    }
    detail::rank_handle rank_;
    detail::operation_state* o_ = nullptr;
};

/// A persistent collective, as prepare::... returns it: its arguments are checked and its schedule is chosen, so that
/// each run costs the collective alone.
///
/// The buffers of the call must outlive the plan; the operator and counts are copied. All ranks run and start their
/// plans in the same order. A plan holds the group, as an operation does.
class [[nodiscard]] plan {
public:
    /// For the library: checks the request and keeps it.
    plan(const detail::rank_handle& rank, detail::request& q) : rank_(rank), p_(rank.by->prepare_call(*rank.self, q)) {}
    plan(plan&& other) noexcept : rank_(other.rank_), p_(std::exchange(other.p_, nullptr)) {}
    plan& operator=(plan other) noexcept {
        std::swap(rank_, other.rank_);
        std::swap(p_, other.p_);
        return *this;
    }
    ~plan() {
        if (p_) rank_.by->drop_prepared(*p_);
    }

    /// Makes the call and returns when it is over. Does not allocate memory from its second time on, except for
    /// scratch memory where more operations of this rank are in flight than ever before. Throws colls::error, with
    /// invalid_argument where the plan was moved from, or the operation of its last start() is not over.
    void run() { rank_.by->run_prepared(kept()); }
    /// Starts the call. The next run or start needs the operation to be over, which a test or wait must have found. The
    /// plan may be destroyed before the operation. Throws as run().
    operation start() {
        detail::operation_state* const o = rank_.by->start_prepared(kept());
        return {rank_, o};
    }

private:
    detail::prepared& kept() const {
        if (!p_) detail::throw_empty_plan();
        return *p_;
    }
    detail::rank_handle rank_;
    detail::prepared* p_;
};

/// Waits for all operations of a range, of which empty ones count as over. Where one fails it still waits for the
/// others, so that all buffers may be used again, and then throws the first error.
template <class Range>
    requires(!std::is_same_v<std::remove_cvref_t<Range>, operation>)
void wait_all(Range&& operations) {
    detail::joint_wait all;
    for (operation& o : operations) all.run([&] { o.wait(); });
    all.rethrow();
}
/// The same for the operations given.
template <class... Operation>
    requires(sizeof...(Operation) > 0 && (std::is_same_v<std::remove_cvref_t<Operation>, operation> && ...))
void wait_all(Operation&&... operations) {
    detail::joint_wait all;
    (all.run([&] { operations.wait(); }), ...);
    all.rethrow();
}

/// Waits until one operation of a range is over, makes it empty, and returns its index; or `none` at once where all are
/// empty already (default-made, moved from, or found over by wait, test or wait_any). So repeated calls return each
/// index once, and then `none`. Throws the error of the first operation that it finds failed, which is empty then.
template <class Range>
int wait_any(Range&& operations) {
    for (double since = 0;; since = detail::pause_between_tests(since)) {
        int i = 0;
        bool all_empty = true;
        for (operation& o : operations) {
            if (!o.empty()) {
                all_empty = false;
                if (o.test()) return i;
            }
            ++i;
        }
        if (all_empty) return none;
    }
}

/// Called with the context that was set with it. It must not throw.
using wait_hook = void (*)(void* context);

/// Sets the function that every rank of this process calls while it waits, in place of the one set before; null: none.
///
/// For a program where another library needs the processor to make progress: a rank that waits in a barrier of this
/// library advances, by the hook, the messages that other ranks of its process's other library wait for
/// (mpi::make_progress is such a hook).
///
/// - From which thread: the one that waits, while it waits; from several at the same time where several ranks of the
///   process wait, as threads do.
/// - In which waits: those of blocking calls, operation::wait, wait_for and destructors of operations, wait_all,
///   wait_any, split, shrink, and of ranks of one host that form their first group. Whatever the transport.
/// - How often: not in the first 0.2 ms of a wait, or less, in which a rank spins; then between any two yields or
///   sleeps. While a hook is set, a rank sleeps only where ranks outnumber cores, or another program takes its core,
///   and 0.1 ms at most.
/// - The hook may call this library with communicators of other groups than the one that waits and those split from the
///   same; waits within it do not call it again. With one of these, the call throws invalid_argument. It must not
///   throw, and should return soon: the wait goes on when it has returned.
///
/// Set it while no rank of the process waits. `context` must live as long as it is set.
inline void set_wait_hook(wait_hook hook, void* context = nullptr) {
    detail::wait_hook_set.call.store(nullptr, std::memory_order_relaxed);
    detail::wait_hook_set.context.store(context, std::memory_order_relaxed);
    detail::wait_hook_set.call.store(hook, std::memory_order_release);
}

}  // namespace colls::inline v1
