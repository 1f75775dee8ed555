// class doorbells: how the ranks of a host wake each other.
#pragma once

#include <colls/communicator.hpp>
#include <colls/dynamic.hpp>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

namespace colls_torch {

/// A rank that waits for a message sleeps in the kernel until its peer wakes it. On a machine that computes besides,
/// the system soon runs a rank that wakes and has used little of its share; one that polls or yields waits for its
/// turn.
///
/// A bell lies in shared memory, and each rank of the host can ring it. Where some rank cannot, `hears_all` is false.
class doorbells {
public:
    /// What a sleeping rank wants to hear of.
    static constexpr std::uint32_t message = 1, room = 2;

    doorbells() = default;
    /// Collective.
    explicit doorbells(colls::communicator& comm) {
        namespace dynamic = colls::dynamic;
        const auto n = static_cast<std::size_t>(comm.size()), here = static_cast<std::size_t>(comm.rank());
        bells_.resize(n, nullptr);
        own_ = here;
        if (n == 1) {
            bells_[0] = &alone_;
            return;
        }
        std::random_device random;
        std::vector<std::uint64_t> keys(n);
        const std::uint64_t key = std::uint64_t{random()} << 32 | random();
        bells_[here] = map(key, true);
        dynamic::all_gather(comm, {&key, 1, dynamic::type::uint64}, {keys.data(), n, dynamic::type::uint64});
        std::vector<std::uint8_t> heard(n, 1);
        for (std::size_t r = 0; r < n; ++r) {
            if (r != here) bells_[r] = map(keys[r], false);
            heard[r] = bells_[r] != nullptr;
        }
        dynamic::all_reduce(comm, {heard.data(), n, dynamic::type::uint8}, dynamic::op::min);
        shm_unlink(name_of(key).text);  // all have it, or never will
        if (bells_[here] == nullptr) bells_[here] = &alone_;
        hears_all_ = heard[here] != 0;
    }
    doorbells(const doorbells&) = delete;
    doorbells& operator=(const doorbells&) = delete;
    ~doorbells() {
        for (bell* const b : bells_)
            if (b != nullptr && b != &alone_) munmap(b, sizeof(bell));
    }

    /// Can every other rank ring here?
    bool hears_all() const { return hears_all_; }
    /// Wakes a rank that sleeps for this reason. What it is to find was stored before.
    void ring(int rank, std::uint32_t reason) const {
        bell* const b = bells_[static_cast<std::size_t>(rank)];
        if (b == nullptr) return;
        // Against the fence in `announce`: either the sleeper sees what was stored, or it is seen here.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if ((b->sleeps_for.load(std::memory_order_relaxed) & reason) == 0) return;
        b->sleeps_for.store(0, std::memory_order_relaxed);
        wake(*b);
    }
    /// Wakes the threads of this process that sleep.
    void ring_own() const { wake(own()); }

    /// This rank is about to sleep. The caller looks once more, and sleeps with the number that this returns.
    std::uint32_t announce(std::uint32_t reasons) const {
        const std::uint32_t rung = own().rung.load(std::memory_order_acquire);
        own().sleeps_for.fetch_or(reasons, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        return rung;
    }
    void withdraw() const { own().sleeps_for.store(0, std::memory_order_relaxed); }
    /// Returns when the bell has rung since, or after that time.
    void sleep(std::uint32_t rung, std::chrono::nanoseconds most) const {
        const timespec time{.tv_sec = 0, .tv_nsec = static_cast<long>(most.count())};
        syscall(SYS_futex, &own().rung, FUTEX_WAIT, rung, &time, nullptr, 0);
    }

private:
    struct bell {
        std::atomic<std::uint32_t> rung{0}, sleeps_for{0};
    };
    static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
    struct path {
        char text[48];
    };

    static path name_of(std::uint64_t key) {
        path p;
        std::snprintf(p.text, sizeof p.text, "/colls-torch-%016llx", static_cast<unsigned long long>(key));
        return p;
    }
    /// A bell, or null where that is another host's or the system has no room for it.
    static bell* map(std::uint64_t key, bool create) {
        const int file = shm_open(name_of(key).text, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);
        if (file < 0) return nullptr;
        void* at = MAP_FAILED;
        if (!create || posix_fallocate(file, 0, sizeof(bell)) == 0)
            at = mmap(nullptr, sizeof(bell), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        return at == MAP_FAILED ? nullptr : static_cast<bell*>(at);
    }
    static void wake(bell& b) {
        b.rung.fetch_add(1, std::memory_order_release);
        syscall(SYS_futex, &b.rung, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
    bell& own() const { return *bells_[own_]; }

    std::vector<bell*> bells_;  ///< by rank; null: it cannot be reached
    std::size_t own_ = 0;
    bool hears_all_ = true;
    bell alone_;
};

}  // namespace colls_torch
