#include "interrupts.hpp"

#include <pthread.h>
#include <semaphore.h>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>

namespace colls_python::interrupts {

namespace {

// The group of the main thread's call, or null; and how many calls have begun, so that the watching thread can tell a
// call from the next one. Relaxed, but for `in_call` beside `busy`: only that thread reads them, and late is soon
// enough.
std::atomic<colls_comm> in_call{nullptr};
std::atomic<std::uint64_t> calls{0};
/// The watching thread may use the handle of in_call.
std::atomic<bool> busy{false};

sem_t interrupted;  // posted by the handler
std::atomic<unsigned long> main_thread{0};
bool watching = false;  // under Python's lock

// What the handler calls first. Two, so that one can be written while a handler reads the other.
struct sigaction earlier[2];
std::atomic<int> earlier_at{0};

void on_interrupt(int number, siginfo_t* about, void* context) {
    const int errno_before = errno;
    const struct sigaction& then = earlier[earlier_at.load(std::memory_order_acquire)];
    if (then.sa_flags & SA_SIGINFO)
        then.sa_sigaction(number, about, context);
    else
        then.sa_handler(number);
    if (in_call.load(std::memory_order_relaxed) != nullptr) sem_post(&interrupted);
    errno = errno_before;
}
/// The handler is before Python's. A program may have set another one since (signal.signal): called while no thread of
/// Python can do that.
void set_handler() {
    struct sigaction now{};
    if (sigaction(SIGINT, nullptr, &now) != 0) return;
    const bool informed = now.sa_flags & SA_SIGINFO;
    if (informed && now.sa_sigaction == on_interrupt) return;
    if (!informed && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) return;
    const int other = 1 - earlier_at.load(std::memory_order_relaxed);
    earlier[other] = now;
    earlier_at.store(other, std::memory_order_release);
    now.sa_sigaction = on_interrupt;
    now.sa_flags |= SA_SIGINFO;
    sigaction(SIGINT, &now, nullptr);
}

/// Is the main thread in the call with this number for as long as this?
bool stays_in(std::uint64_t call, std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    do {
        if (calls.load(std::memory_order_relaxed) != call || in_call.load(std::memory_order_relaxed) == nullptr)
            return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } while (std::chrono::steady_clock::now() < until);
    return true;
}
void abort_call() {
    // A call that is about to end needs no help, and its group stays whole.
    const std::uint64_t call = calls.load(std::memory_order_relaxed);
    if (!stays_in(call, std::chrono::milliseconds(50))) return;
    // Sequentially consistent, as in `forget`: either it sees `busy`, or this sees that the call is over.
    busy.store(true, std::memory_order_seq_cst);
    const colls_comm comm = in_call.load(std::memory_order_seq_cst);
    if (comm != nullptr && calls.load(std::memory_order_relaxed) == call)
        colls_abort(comm, "interrupted (KeyboardInterrupt)");
    busy.store(false, std::memory_order_release);
}
[[noreturn]] void watch_calls() {
    std::uint64_t seen = 0;
    for (;;) {
        timespec until{};
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 250'000'000;
        if (until.tv_nsec >= 1'000'000'000) ++until.tv_sec, until.tv_nsec -= 1'000'000'000;
        if (sem_timedwait(&interrupted, &until) == 0) {
            abort_call();
            continue;
        }
        // In the same call as a quarter of a second ago: so the main thread sets no handler meanwhile.
        const std::uint64_t call = calls.load(std::memory_order_relaxed);
        if (call == seen && in_call.load(std::memory_order_relaxed) != nullptr) set_handler();
        seen = call;
    }
}

/// Starts a thread that gets no signals: these are for the program's own.
template <class F>
void start_thread(F f) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread(std::move(f)).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void set_main(unsigned long thread) {
    main_thread.store(thread, std::memory_order_relaxed);
    in_call.store(nullptr, std::memory_order_relaxed);
    busy.store(false, std::memory_order_relaxed);
    watching = false;
    sem_init(&interrupted, 0, 0);
}
bool is_main() { return main_thread.load(std::memory_order_relaxed) == PyThread_get_thread_ident(); }
void watch() {
    if (is_main()) set_handler();
    if (std::exchange(watching, true)) return;
    start_thread(watch_calls);
}

bool enter(colls_comm comm) {
    if (!is_main()) return false;
    calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    in_call.store(comm, std::memory_order_relaxed);
    return true;
}
void leave() { in_call.store(nullptr, std::memory_order_release); }
void forget(colls_comm) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    while (busy.load(std::memory_order_seq_cst)) std::this_thread::yield();
}

struct forming::shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false, left = false;
    outcome result;
};

forming::forming(form_group f) : state_(std::make_shared<shared>()) {
    start_thread([state = state_, f = std::move(f)] {
        outcome o;
        o.status = f(&o.comm);
        if (o.status != COLLS_OK) o.text = colls_error_text(), o.rank = colls_error_rank(), o.peer = colls_error_peer();
        const std::lock_guard lock(state->mutex);
        if (state->left)
            colls_comm_free(&o.comm);
        else
            state->result = std::move(o);
        state->over = true;
        state->changed.notify_all();
    });
}
forming::~forming() {
    const std::lock_guard lock(state_->mutex);
    state_->left = true;
    if (state_->over) colls_comm_free(&state_->result.comm);
}
bool forming::wait(double seconds) {
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return state_->over; });
}
outcome forming::take() {
    const std::lock_guard lock(state_->mutex);
    outcome o = std::move(state_->result);
    state_->result.comm = nullptr;
    return o;
}

}  // namespace colls_python::interrupts
