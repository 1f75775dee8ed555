// Random calls, and runs of many calls by one group, back to back, with ranks that arrive at different times.
#pragma once

#include "job.hpp"
#include "schedules.hpp"

#include <colls/detail/execute/copy_policy.hpp>
#include <colls/detail/group/group_memory.hpp>

#include <unistd.h>
#include <atomic>
#include <cstdio>
#include <deque>
#include <mutex>

namespace support {

/// Group sizes around powers of two and primes, at which schedules have special cases.
inline constexpr int awkward_sizes[] = {1, 2, 3, 4, 5, 7, 8, 10, 13, 16, 17, 31, 32, 33, 48, 64, 65, 66, 129};

/// Delays the rank by a random, short time, or not at all.
inline void dawdle(random_source& random) {
    switch (random.below(6)) {
        case 0:
            for (std::size_t i = random.below(4); i-- > 0;) std::this_thread::yield();
            break;
        case 1:
            for (std::size_t i = random.below(2000); i-- > 0;) std::atomic_signal_fence(std::memory_order_seq_cst);
            break;
        default:
            break;
    }
}

/// A random schedule that can do this call, or null: automatic.
inline const row* pick_row(random_source& random, verb c, int n, bool in_order) {
    static const auto by_collective = [] {
        std::vector<std::vector<const row*>> lists(colls::collective_count);
        for (const row& r : all_schedules()) lists[static_cast<std::size_t>(r.collective)].push_back(&r);
        return lists;
    }();
    static std::mutex mutex;
    static std::map<std::pair<const row*, int>, bool> ordered;
    if (random.one_in(5)) return nullptr;
    const auto& list = by_collective[static_cast<std::size_t>(c)];
    for (int tries = 0; tries < 8 && !list.empty(); ++tries) {
        const row* r = random.pick(list);
        if (!r->supports(n)) continue;
        if (in_order && reduces(c)) {
            const std::lock_guard lock(mutex);
            auto [at, fresh] = ordered.try_emplace({r, n}, false);
            if (fresh) at->second = keeps_order(*r, n);
            if (!at->second) continue;
        }
        return r;
    }
    return nullptr;
}

/// A random element count around the sizes at which the library changes its method: zero, fewer elements than ranks,
/// cache lines, the eager path, chunks.
inline std::size_t pick_count(random_source& random, int n, std::size_t size, std::size_t limit) {
    const auto ranks = static_cast<std::size_t>(n);
    constexpr std::size_t primes[] = {
        2, 3, 5, 7, 11, 13, 17, 31, 61, 97, 127, 251, 509, 1021, 2039, 4093, 8191, 16381, 65521};
    constexpr std::size_t edges[] = {
        56, 64, 128, 1024, 2040, 2048, 4096, 8184, 8192, 16384, 32768, 65536, 131072, 262144, 524288};
    std::size_t count = 0;
    switch (random.below(10)) {
        case 0:
            count = random.below(3);
            break;
        case 1:
            count = random.below(ranks + 1);
            break;
        case 2:
            count = ranks + random.below(3) - (random.one_in(2) ? 1 : 0);
            break;
        case 3:
            count = random.below(100);
            break;
        case 4:
            count = primes[random.below(std::size(primes))];
            break;
        case 5:
        case 6: {  // such a size of the whole buffer
            const std::size_t at = edges[random.below(std::size(edges))] / size + random.below(3);
            count = at > 0 ? at - 1 : 0;
            break;
        }
        case 7: {  // such a size of each rank's block
            const std::size_t at = edges[random.below(std::size(edges) - 4)] / size + random.below(3);
            count = (at > 0 ? at - 1 : 0) * ranks + random.below(ranks);
            break;
        }
        case 8:
            count = random.below(3000);
            break;
        default:
            count = random.one_in(4) ? 100'000 + random.below(50'000) : random.below(20'000);
            break;
    }
    if (count > limit) count = limit == 0 ? 0 : limit - random.below(std::min<std::size_t>(limit, 64));
    return count;
}

/// An element count by which, where messages pass, a unit of one block or of n has more chunks than the executor has
/// slots.
inline std::size_t pick_count_beyond_slots(random_source& random, int n, std::size_t size) {
    using policy = colls::detail::message_policy;
    const std::size_t unit = policy::chunk * policy::chunks + random.below(2 * policy::chunk);
    return unit * (n < 4 && random.one_in(2) ? static_cast<std::size_t>(n) : 1) / size;
}

/// Fills in the lengths of what a rank posts where not all ranks know them, a block for each rank or its own alone: in
/// all about as much as its line holds, or the eager path at all.
inline void pick_posted(random_source& random, int n, std::size_t size, std::span<std::size_t> blocks) {
    const std::size_t words = 4 * (blocks.size() == 1 ? 2 : static_cast<std::size_t>(n) + 1),
                      edge = random.one_in(2)   ? colls::detail::eager_inline
                             : random.one_in(2) ? colls::detail::eager_unsized
                                                : colls::detail::eager_capacity,
                      most = (edge > words ? edge - words : 0) / size + 1;
    std::size_t left = random.one_in(4) ? random.below(4) : most - random.below(std::min<std::size_t>(most, 3));
    for (std::size_t& count : blocks) left -= count = random.one_in(3) ? 0 : random.below(left + 1);
    blocks[random.below(blocks.size())] += left;
}

/// A random call in a group of n, within about `budget` bytes for all ranks together; or of `exactly` elements.
template <class Comm>
call_plan pick_plan(random_source& random, int n, const entry<Comm>& e, std::size_t budget, std::size_t exactly = 0) {
    call_plan p;
    support::shape& s = p.shape;
    s.n = n;
    s.collective = static_cast<verb>(random.below(colls::collective_count));
    if (e.averages && (s.collective == verb::inclusive_scan || s.collective == verb::exclusive_scan))
        s.collective = verb::all_reduce;
    const verb c = s.collective;
    const auto ranks = static_cast<std::size_t>(n);
    s.root = rooted(c) ? random.between(0, n - 1) : 0;
    const std::size_t limit = budget / (3 * ranks * e.kind.size);
    std::size_t total = exactly > 0 ? exactly : pick_count(random, n, e.kind.size, limit);
    p.variable = has_blocks(c) && random.one_in(4);
    if (c == verb::all_to_all) {
        if (p.variable) {
            s.counts.resize(ranks * ranks);
            const std::size_t most = 2 * total / ranks + 2;
            for (auto& count : s.counts) count = random.one_in(3) ? 0 : random.below(most);
            for (std::size_t r = 0; r < ranks && total % 2 == 0; ++r)
                pick_posted(random, n, e.kind.size, std::span(s.counts).subspan(r * ranks, ranks));
        } else {
            s.counts.assign(ranks * ranks, total / ranks + (total > 0 && total < ranks ? 1 : 0));
        }
    } else if (p.variable) {
        s.counts.resize(ranks);
        switch (random.below(5)) {
            case 0:
                pick_posted(random, n, e.kind.size, s.counts);
                break;
            case 1:
                for (std::size_t& count : s.counts) pick_posted(random, n, e.kind.size, {&count, 1});
                break;
            case 2:  // one rank has everything
                s.counts[random.below(ranks)] = total;
                break;
            case 3:
                s.counts = balanced(total, n);
                for (std::size_t i = ranks; i > 1; --i) std::swap(s.counts[i - 1], s.counts[random.below(i)]);
                break;
            default:
                for (auto& count : s.counts) count = random.one_in(3) ? 0 : random.below(2 * total / ranks + 2);
        }
    } else {
        s.counts = balanced(total, n);
    }
    p.in_place = job<Comm>::can_be_in_place(s, p.variable) && random.one_in(3);
    p.same = p.in_place && c == verb::all_reduce && random.one_in(2);
    p.idle_buffers = random.one_in(3);
    if (e.all_ways && random.one_in(2)) p.how = random.one_in(3) ? way::prepared : way::started;
    p.shift = random.one_in(2) ? 0 : random.below(64 / e.kind.align);
    p.seed = random.next();
    if (!p.variable)
        if (const row* r = pick_row(random, c, n, e.ordered)) {
            p.chosen = &r->schedule;
            p.schedule = r->name;
        }
    return p;
}

/// How the ranks of a group get on with their jobs.
struct pace {
    int late = colls::none;      ///< a rank that comes late to some calls, while others are ahead of it
    std::size_t in_flight = 12;  ///< operations, at most; beyond what the library has places for, a start waits
};
/// In three groups of four one rank is late. One group in six has many operations in flight.
inline pace pick_pace(random_source& random, int n) {
    pace p;
    if (!random.one_in(4)) p.late = random.between(0, n - 1);
    if (random.one_in(6)) p.in_flight = 40;
    return p;
}

/// Runs one rank's part of the jobs of its group. Operations that were started are completed later, in a random order
/// that differs between ranks.
template <class Comm>
void run_jobs_on(Comm& comm, std::deque<job<Comm>>& jobs, std::uint64_t seed, const pace& how = {}) {
    random_source random = stream(seed, 77, static_cast<std::uint64_t>(comm.rank()));
    flight in_flight;
    // Buffers lie in the group's memory on all ranks, on some or on none, by the seed of the call: a repeated call has
    // them in the same memory.
    std::deque<typename job<Comm>::stand_in> stand_ins;
    const auto complete_one = [&] {
        const std::size_t i = random.below(in_flight.size());
        if (random.one_in(2)) {
            while (!in_flight[i].test()) std::this_thread::yield();
        } else {
            in_flight[i].wait();
        }
        in_flight.erase(in_flight.begin() + static_cast<std::ptrdiff_t>(i));
    };
    const bool keeps_many = how.in_flight > 12;
    for (job<Comm>& j : jobs) {
        dawdle(random);
        if (comm.rank() == how.late && random.one_in(8)) usleep(static_cast<unsigned>(random.below(300)));
        const std::uint64_t mixed = j.plan().seed >> 20;
        const bool reached = mixed % 4 < 2 || (mixed % 4 == 2 && (mixed >> (2 + comm.rank() % 16)) % 2 == 1);
        j.run(comm, in_flight, by_processes ? &stand_ins : nullptr, reached);
        while (in_flight.size() > how.in_flight || (!in_flight.empty() && random.one_in(keeps_many ? 64 : 4)))
            complete_one();
    }
    while (!in_flight.empty()) complete_one();
    for (auto& s : stand_ins) s.settle();
}
/// Runs the jobs in one group of n ranks.
template <class Comm>
void run_jobs(int n, std::deque<job<Comm>>& jobs, std::uint64_t seed, const pace& how = {}) {
    launch(n, [&](auto& comm) { run_jobs_on(comm, jobs, seed, how); });
}

}  // namespace support
