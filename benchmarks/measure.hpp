// How all sides of a comparison are measured, whether their ranks are threads or processes. The driver and its sides
// share a block of memory; a side sleeps until it has a turn.
//
// Single calls are timed. Before a call every rank rewrites its whole input, after it every rank reads and checks its
// whole output: otherwise data would stay in the caches, and no cache line would move between cores. Ranks that have a
// core each start at a time agreed on beforehand. Ranks that share cores yield until rank 0 starts them. Where a
// library moves data by threads of its own, ranks sleep until shortly before the start, so that these threads run. The
// time of a call is from the start to the end of the last rank.
#pragma once

#include "jobs.hpp"
#include "machine.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <type_traits>

namespace bench {

inline constexpr int max_sides = 16, max_ranks = 128, max_calls = 4096;

struct alignas(128) rank_line {
    std::atomic<std::uint32_t> arrived{0};
    std::uint64_t end = 0;
};

/// The memory that the driver and one side share.
struct side_block {
    std::atomic<std::uint32_t> turn{0};   // raised by the driver: a turn begins
    std::atomic<std::uint32_t> done{0};   // raised by the side: the turn is over
    std::atomic<std::uint32_t> ready{0};  // ranks that wait for turns
    job what = job::quit;
    std::uint32_t variant = 0;  // its meaning is the side's: a schedule; for copies, plain or streaming
    std::uint64_t bytes = 0;
    double seconds = 0;
    std::uint32_t min_calls = 3;
    // results of the turn
    std::uint32_t calls = 0;
    std::atomic<std::uint32_t> wrong{0};  // number of wrong elements
    double ns[max_calls];
    char chosen[96];
    char failure[256];
    // the start of a call
    alignas(128) std::atomic<std::uint32_t> go{0};
    std::uint64_t start = 0;
    std::uint32_t last = 0;
    rank_line ranks[max_ranks];
};

struct control {
    std::uint32_t ranks = 0, cores = 0;
    double ticks_per_ns = 1;
    side_block sides[max_sides];
};

/// The shared memory: the driver creates it at a path, the sides open it there.
class shared_control {
public:
    shared_control(const std::string& path, bool create) : path_(create ? path : "") {
        const int file = open(path.c_str(), create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
        if (file < 0) throw std::system_error(errno, std::generic_category(), path);
        if (create && ftruncate(file, sizeof(control)) != 0)
            throw std::system_error(errno, std::generic_category(), path);
        void* at = mmap(nullptr, sizeof(control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), path);
        block_ = create ? new (at) control : static_cast<control*>(at);
    }
    ~shared_control() {
        munmap(block_, sizeof(control));
        if (!path_.empty()) unlink(path_.c_str());
    }
    shared_control(const shared_control&) = delete;
    shared_control& operator=(const shared_control&) = delete;
    control* operator->() const { return block_; }
    control& operator*() const { return *block_; }

private:
    std::string path_;
    control* block_;
};

/// Runs one rank of side `which`: makes calls in its turns, until the driver tells it to quit. `Side` has
///     void run(job, std::span<float> in, std::span<float> out, std::uint32_t variant)
///         makes one call; broadcast and all_reduce_in_place use `out` only, which has been filled
///     std::string chosen(job, std::size_t bytes, std::uint32_t variant)
///         the schedule that run() uses, for the table
/// and may have
///     void finish(job, std::span<const float> in, std::span<float> out)
///         completes `out` after the timed part, before it is checked
///     static constexpr bool has_threads = true
///         threads of the side's own move the data
template <class Side>
void serve(control& shared, int which, int rank, std::span<float> input, std::span<float> output, Side&& side) {
    side_block& at = shared.sides[which];
    const int n = static_cast<int>(shared.ranks);
    constexpr bool naps = requires { std::remove_reference_t<Side>::has_threads; };
    const bool own_core = !naps && shared.ranks <= shared.cores;
    if (own_core) pin_to(rank);
    rank_line& mine = at.ranks[rank];
    const auto wait_for = [&](const std::atomic<std::uint32_t>& word, std::uint32_t value) {
        while (word.load(std::memory_order_acquire) != value)
            if (naps)
                std::this_thread::sleep_for(std::chrono::microseconds(10));
            else if (own_core)
                pause_briefly();
            else
                sched_yield();
    };
    const std::uint64_t lead = static_cast<std::uint64_t>((naps ? 200'000 : own_core ? 2000 : 0) * shared.ticks_per_ns);
    std::uint32_t call = 0;
    for (std::uint32_t turn = 0;; ++turn) {
        if (turn == 0) {
            at.ready.fetch_add(1);
            wake_all(at.ready);
        }
        while (at.turn.load(std::memory_order_acquire) == turn) sleep_while(at.turn, turn);
        if (at.what == job::quit) return;
        const job what = at.what;
        const shape s = shape_of(what, at.bytes, n);
        const auto in = input.first(s.in), out = output.first(s.out);
        const auto whole = std::chrono::steady_clock::now();
        const double budget = at.seconds;
        std::uint32_t calls = 0, wrong = 0;
        for (bool last = false; !last;) {
            ++call;
            if (what == job::broadcast)
                rewrite(out, rank == 0 ? 0 : 100, call);
            else if (what == job::all_reduce_in_place)
                rewrite(out, rank, call);
            else
                rewrite(in, rank, call);
            if (rank == 0) {
                for (int r = 1; r < n; ++r) wait_for(at.ranks[r].arrived, call);
                const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - whole).count();
                // The first call of a turn is not kept: the other side's data is in the caches.
                at.last = (calls >= at.min_calls && spent >= budget) || calls == max_calls;
                at.start = ticks() + lead;
                at.go.store(call, std::memory_order_release);
            } else {
                mine.arrived.store(call, std::memory_order_release);
                wait_for(at.go, call);
            }
            last = at.last != 0;
            while (ticks() < at.start)
                if (naps) sched_yield();
            if (what == job::copy)
                copy_through(in, out, at.variant == 1);
            else
                side.run(what, in, out, at.variant);
            mine.end = ticks();
            if constexpr (requires { side.finish(what, in, out); })
                if (what != job::copy) side.finish(what, in, out);
            wrong += check(what, out, rank, n, call);
            // Rank 0 reads the ends of all ranks when all have arrived here.
            ++call;
            if (rank == 0) {
                for (int r = 1; r < n; ++r) wait_for(at.ranks[r].arrived, call);
                std::uint64_t end = 0;
                for (int r = 0; r < n; ++r) end = at.ranks[r].end > end ? at.ranks[r].end : end;
                if (calls > 0) at.ns[calls - 1] = static_cast<double>(end - at.start) / shared.ticks_per_ns;
                ++calls;
                at.go.store(call, std::memory_order_release);
            } else {
                mine.arrived.store(call, std::memory_order_release);
                wait_for(at.go, call);
            }
        }
        at.wrong.fetch_add(wrong);
        ++call;
        if (rank == 0) {
            for (int r = 1; r < n; ++r) wait_for(at.ranks[r].arrived, call);
            at.calls = calls - 1;
            const std::string text = what == job::copy ? std::string{} : side.chosen(what, at.bytes, at.variant);
            std::snprintf(at.chosen, sizeof at.chosen, "%s", text.c_str());
            at.done.store(turn + 1, std::memory_order_release);
            wake_all(at.done);
        } else {
            mine.arrived.store(call, std::memory_order_release);
        }
    }
}

}  // namespace bench
