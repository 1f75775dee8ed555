// Ranks as threads of one process.
#pragma once

#include <colls/perform.hpp>
#ifndef COLLS_SEPARATE
#include <colls/engine.hpp>
#endif

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <sys/mman.h>
#include <thread>
#include <type_traits>

namespace colls::inline v1::threads {

class communicator;

namespace detail {

using colls::detail::endpoint;
using colls::detail::group_memory;
using colls::detail::list;
using colls::detail::machine;
using colls::detail::message;

/// The memory of one group, shared by its communicators; the last one takes it down.
class group {
public:
    explicit group(int n) : users_(n), bytes_(group_memory::bytes(n)) {
        // Fresh pages are zero, and cost nothing until they are used.
        void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
        base_ = static_cast<std::byte*>(at);
        memory_ = group_memory(base_, n);
    }
    const group_memory& memory() const { return memory_; }
    // Acquire and release: whoever takes it down does so after all others' last access.
    void leave() {
        if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

private:
    ~group() { munmap(base_, bytes_); }
    std::atomic<int> users_;
    std::size_t bytes_;
    std::byte* base_ = nullptr;
    group_memory memory_;
};

/// Cores that this process may use: counted once, before its threads may have been pinned.
inline int cores() {
    static const int counted = [] {
        cpu_set_t set;
        CPU_ZERO(&set);
        const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
        return n > 0 ? n : 1;
    }();
    return counted;
}

/// Measured when first asked for, in about a millisecond.
const machine& measured();

}  // namespace detail

/// Memory for `size()` elements, uninitialised, aligned to 64 bytes.
template <class T>
class memory {
    static_assert(std::is_trivially_copyable_v<T>, "colls: elements must be trivially copyable");

public:
    explicit memory(std::size_t count) : data_(static_cast<T*>(operator new(count * sizeof(T), align))), size_(count) {}
    memory(memory&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr, other.size_ = 0; }
    memory& operator=(memory&& other) noexcept {
        T* const data = data_;
        const std::size_t size = size_;
        data_ = other.data_, size_ = other.size_;
        other.data_ = data, other.size_ = size;
        return *this;
    }
    ~memory() { operator delete(data_, align); }

    T* data() { return data_; }
    const T* data() const { return data_; }
    std::size_t size() const { return size_; }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }
    T* begin() { return data_; }
    T* end() { return data_ + size_; }
    const T* begin() const { return data_; }
    const T* end() const { return data_ + size_; }

private:
    static constexpr std::align_val_t align{64};
    T* data_;
    std::size_t size_;
};

/// One rank's end of a group of threads. Used by its own thread only. All members make the same calls on it in the
/// same order.
class communicator {
public:
    /// Of no group: size() is 0.
    communicator() = default;
    communicator(communicator&& other) noexcept { take(other); }
    communicator& operator=(communicator&& other) noexcept {
        if (this != &other) {
            leave();
            take(other);
        }
        return *this;
    }
    ~communicator() { leave(); }

    int rank() const { return rank_; }
    int size() const { return size_; }

    /// Collective: the ranks of equal `color` form a group, ordered by `key`, then by rank. A negative color joins
    /// none, and gets a communicator of size 0. Two rounds of small messages. Throws colls::error.
    communicator split(int color, int key);

    /// Memory that every transport can move fastest; here any memory is. Not collective.
    template <class T>
    threads::memory<T> allocate(std::size_t count) const {
        return threads::memory<T>(count);
    }

    /// For the library: the end itself. Throws invalid_argument where there is no group.
    colls::detail::endpoint& endpoint() {
        if (!end_) colls::detail::throw_no_group();
        return *end_;
    }

private:
    template <class F>
    friend void run(int n, F&& f);

    communicator(detail::group* g, int rank, int n, bool crowded)
        : end_(new colls::detail::endpoint(rank, n, g->memory())), group_(g), rank_(rank), size_(n) {
        end_->crowded = crowded;
        end_->measured = &detail::measured;
    }
    void take(communicator& other) {
        end_ = std::move(other.end_);
        group_ = other.group_;
        rank_ = other.rank_;
        size_ = other.size_;
        other.group_ = nullptr;
        other.rank_ = none;
        other.size_ = 0;
    }
    void leave() {
        if (!group_) return;
        // Release: all that this rank did for the others is done.
        end_->memory.state(end_->rank).gone.store(1, std::memory_order_release);
        end_.reset();
        group_->leave();
        group_ = nullptr;
    }
    std::unique_ptr<colls::detail::endpoint> end_;
    detail::group* group_ = nullptr;
    int rank_ = none, size_ = 0;
};

inline communicator communicator::split(int color, int key) {
    colls::detail::endpoint& e = endpoint();
    const auto n = static_cast<std::size_t>(e.size);
    struct wish {
        int color, key;
    };
    const wish own{color, key};
    detail::list<wish> wishes;
    wishes.resize(n);
    colls::detail::exchange(e, &own, sizeof own, wishes.data());
    // My place among those of my color, and their first.
    int mine = 0, members = 0, first = none;
    const auto before = [&](int a, int b) {
        return wishes[a].key != wishes[b].key ? wishes[a].key < wishes[b].key : a < b;
    };
    for (int r = 0; r < e.size; ++r)
        if (wishes[r].color == color) {
            ++members;
            mine += before(r, e.rank);
            if (first == none || before(r, first)) first = r;
        }
    detail::group* made = color >= 0 && first == e.rank ? new detail::group(members) : nullptr;
    detail::list<detail::group*> groups;
    groups.resize(n);
    colls::detail::exchange(e, &made, sizeof made, groups.data());
    if (color < 0) return {};
    communicator part(groups[first], mine, members, e.crowded);
    part.end_->join(e);
    return part;
}

namespace detail {

/// How the ranks of one `run` end.
class outcome {
public:
    /// The first exception stands, but one of a rank's own is worth more than the news of it.
    void failed(std::exception_ptr what, bool news) {
        const std::lock_guard lock(mutex_);
        if (what_ && (news || !news_)) return;
        what_ = std::move(what);
        news_ = news;
    }
    void rethrow() const {
        if (what_) std::rethrow_exception(what_);
    }

private:
    std::mutex mutex_;
    std::exception_ptr what_;
    bool news_ = false;
};

/// Within a handler: breaks the group, so that nobody waits for this rank.
[[gnu::cold]] inline void tell(endpoint& e, outcome& o) {
    message text;
    text << "colls: rank " << e.rank << ": its function threw";
    bool news = false;
    try {
        throw;
    } catch (const error& x) {
        news = x.code() == errc::peer_failed;
        text << ": " << x.what();
    } catch (const std::exception& x) {
        text << ": " << x.what();
    } catch (...) {
    }
    colls::detail::poison(e.memory, errc::peer_failed, e.rank, none, none, text.text());
    o.failed(std::current_exception(), news);
}

}  // namespace detail

/// Calls f(communicator&) on n threads, one a rank, rank 0 on the caller's own. An exception that leaves f on one rank
/// makes the others' calls throw colls::error (peer_failed), and comes out here when all have ended.
template <class F>
void run(int n, F&& f) {
    if (n < 1) throw error(errc::invalid_argument, (detail::message() << "colls: a group of " << n << " ranks").text());
    detail::outcome how;
    auto* const shared = new detail::group(n);
    const bool crowded = n > detail::cores();
    const auto rank = [&](int r) {
        communicator comm(shared, r, n, crowded);
        try {
            f(comm);
        } catch (...) {
            detail::tell(comm.endpoint(), how);
        }
    };
    const std::unique_ptr<std::thread[]> others(new std::thread[static_cast<std::size_t>(n)]);
    int started = 1;
    try {
        for (; started < n; ++started) others[static_cast<std::size_t>(started)] = std::thread(rank, started);
    } catch (...) {   // no more threads: those that run must not wait for the rest
        for (int r = started; r < n; ++r) detail::tell(communicator(shared, r, n, crowded).endpoint(), how);
    }
    if (started == n)
        rank(0);
    else
        communicator(shared, 0, n, crowded);
    for (int r = 1; r < started; ++r) others[static_cast<std::size_t>(r)].join();
    how.rethrow();
}

#ifndef COLLS_SEPARATE
namespace detail {

/// What the two threads of the measurement share.
struct probe {
    static constexpr int trips = 1000, turns = 4;
    static constexpr std::size_t bytes = std::size_t{128} << 10, count = bytes / sizeof(float);
    struct alignas(128) flag {
        std::atomic<int> value{0};
    };
    flag there, back;
    memory<float> far{count}, near{count};

    static void wait(const flag& f, int value) {
        for (int spins = 0; f.value.load(std::memory_order_acquire) < value; ++spins)
            if (spins > 10'000) sched_yield();
    }
    void write(float x) {
        for (float& y : far) y = x;
    }
    // The other thread: answers, then rewrites its buffer whenever asked, so that its lines are dirty in its cache.
    void answer(int not_on) {
        stay_off(not_on);
        for (int i = 1; i <= trips; ++i) {
            wait(there, i);
            back.value.store(i, std::memory_order_release);
        }
        for (int i = trips + 1; i <= trips + 2 * turns; ++i) {
            wait(there, i);
            write(static_cast<float>(i));
            back.value.store(i, std::memory_order_release);
        }
    }
    // The scheduler may well start a thread beside its maker, and leave it there for as long as all of this takes; and a
    // maker that is pinned pins what it makes. (The system leaves out of the set what this process may not use.)
    static void stay_off(int core) {
        if (core < 0) return;
        cpu_set_t set;
        CPU_ZERO(&set);
        for (std::size_t c = 0; c < CPU_SETSIZE; ++c)
            if (c != static_cast<std::size_t>(core)) CPU_SET(c, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    void ask(int i) {
        there.value.store(i, std::memory_order_release);
        wait(back, i);
    }
    template <class F>
    static double seconds(F f) {
        const double begin = colls::detail::seconds_now();
        f();
        asm volatile("" : : : "memory");
        return colls::detail::seconds_now() - begin;
    }
    machine run() {
        machine x{1, 1, 1, cores()};   // seconds: more than any
        std::thread other;
        if (x.cores > 1)
            other = std::thread([this, here = sched_getcpu()] { answer(here); });
        else
            write(0);
        for (float& y : near) y = 0;
        const auto least = [](double& a, double b) { a = b < a ? b : a; };
        x.alpha = x.cores > 1 ? 1 : 1e-6;
        for (int i = 1; i <= trips && x.cores > 1; i += 20)
            least(x.alpha, seconds([&] {
                for (int j = i; j < i + 20; ++j) ask(j);
            }) / 40);
        for (int turn = 0; turn < turns; ++turn) {
            if (x.cores > 1) ask(trips + 2 * turn + 1);
            least(x.gamma, seconds([&] {
                for (std::size_t i = 0; i < count; ++i) near[i] += far[i];
            }) / bytes);
            if (x.cores > 1) ask(trips + 2 * turn + 2);
            least(x.beta, seconds([&] { std::memcpy(far.data(), near.data(), bytes); }) / bytes);
        }
        if (other.joinable()) other.join();
        // A store need not wait for the one before, a load must. Whatever disturbed the measurement: a push costs less than a
        // pull, or the choice would turn to schedules that pull everything.
        if (x.beta > 0.7 * x.gamma) x.beta = 0.7 * x.gamma;
        return x;
    }
};

COLLS_ENGINE const machine& measured() {
    static const machine m = probe().run();
    return m;
}

}  // namespace detail
#endif
}  // namespace colls::inline v1::threads
