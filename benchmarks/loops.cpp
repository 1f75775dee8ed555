// The library's calls of two thread ranks beside hand-written loops that do the same: pulled or pushed, with plain or
// non-temporal stores. What is the fastest depends on the size, on where the two cores are, and on the machine's state;
// so all take turns, in random order. A turn is several calls, of which the first half is not counted: a program
// repeats its calls, and a call that follows one of another kind finds lines in caches where its own kind would not
// have left them. Before a call each rank rewrites its input; after it each reads and checks its output. The time of a
// call is that of its slower rank.
//
// While the hypervisor runs something else on the other hardware thread of one of the two cores, a call of the library
// of 8 KB takes up to 1.7 times as long, and a loop by hand, which executes fewer instructions, 1.1 times. So each rank
// times a fixed piece of work before each call, and calls before or after which it took long are left out, the loops'
// as well as the library's.
#include "jobs.hpp"
#include "machine.hpp"
#include "statistics.hpp"

#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <vector>

#if !defined(__x86_64__)
#error "the hand-written loops are for x86-64"
#endif

namespace {

using bench::job;

struct settings {
    std::vector<std::string> jobs{"all_reduce", "all_reduce_in_place"};
    std::vector<std::size_t> bytes{8192, 32768, 131072, 262144, 1 << 20, 2 << 20, 4 << 20, 16 << 20, 64 << 20};
    std::vector<int> cores{0, 1};
    double seconds = 0.5;
    int most = 3000, quiet = 100;
    int in_a_row = 8;
    bool first_read = false;
    bool all_calls = false;
};

/// What the two ranks share: buffers, and a flag for each that counts the phases of calls.
struct alignas(128) flag {
    std::atomic<std::uint64_t> value{0};
};
struct group {
    float *in[2], *out[2];
    flag phase[2];
};

/// A rank's view of a call by hand.
struct hand {
    group& all;
    int rank;
    std::size_t count;  // of the whole buffer
    std::uint64_t phase;

    /// Both ranks have come here, and what either stored before is visible to the other.
    void meet() {
        ++phase;
        _mm_sfence();  // non-temporal stores
        all.phase[rank].value.store(phase, std::memory_order_release);
        while (all.phase[1 - rank].value.load(std::memory_order_acquire) < phase) _mm_pause();
    }
};

template <bool past_caches>
[[gnu::target("avx512f"), gnu::always_inline]] inline void put(float* to, __m512 v) {
    if constexpr (past_caches)
        _mm512_stream_ps(to, v);
    else
        _mm512_store_ps(to, v);
}

template <bool past_caches>
[[gnu::target("avx2"), gnu::always_inline]] inline void put(float* to, __m256 v) {
    if constexpr (past_caches)
        _mm256_stream_ps(to, v);
    else
        _mm256_store_ps(to, v);
}

template <bool own_past, bool far_past, bool pushes>
[[gnu::target("avx512f")]] void fold_lines(float* to, float* also, const float* a, const float* b, std::size_t count) {
    for (std::size_t i = 0; i < count; i += 16) {
        const __m512 v = _mm512_add_ps(_mm512_load_ps(a + i), _mm512_load_ps(b + i));
        put<own_past>(to + i, v);
        if constexpr (pushes) put<far_past>(also + i, v);
    }
}
template <bool own_past, bool far_past, bool pushes>
[[gnu::target("avx2")]] void fold_halves(float* to, float* also, const float* a, const float* b, std::size_t count) {
    for (std::size_t i = 0; i < count; i += 8) {
        const __m256 v = _mm256_add_ps(_mm256_load_ps(a + i), _mm256_load_ps(b + i));
        put<own_past>(to + i, v);
        if constexpr (pushes) put<far_past>(also + i, v);
    }
}
template <bool past_caches>
[[gnu::target("avx512f")]] void copy_lines(float* to, const float* from, std::size_t count) {
    for (std::size_t i = 0; i < count; i += 16) put<past_caches>(to + i, _mm512_load_ps(from + i));
}
template <bool past_caches>
[[gnu::target("avx2")]] void copy_halves(float* to, const float* from, std::size_t count) {
    for (std::size_t i = 0; i < count; i += 8) put<past_caches>(to + i, _mm256_load_ps(from + i));
}

/// Does the processor move a line at once, by AVX-512? Else half a line, by AVX2.
const bool by_lines = __builtin_cpu_supports("avx512f");

/// Folds a and b into `to`, and into `also` if it is not null.
template <bool own_past, bool far_past, bool pushes>
void fold(float* to, float* also, const float* a, const float* b, std::size_t count) {
    by_lines ? fold_lines<own_past, far_past, pushes>(to, also, a, b, count)
             : fold_halves<own_past, far_past, pushes>(to, also, a, b, count);
}
template <bool past_caches>
void copy(float* to, const float* from, std::size_t count) {
    by_lines ? copy_lines<past_caches>(to, from, count) : copy_halves<past_caches>(to, from, count);
}

// all_reduce: each rank folds one half of the buffer.
template <bool own_past, bool far_past>
void pull_and_push(hand h, const float* own, const float* far, float* to, float* far_to) {
    const std::size_t half = h.count / 2, at = h.rank == 0 ? 0 : half;
    h.meet();
    fold<own_past, far_past, true>(to + at, far_to + at, far + at, own + at, half);
    h.meet();
}
template <bool own_past>
void pull_twice(hand h, const float* own, const float* far, float* to, float* far_to) {
    const std::size_t half = h.count / 2, at = h.rank == 0 ? 0 : half;
    h.meet();
    fold<false, false, false>(to + at, nullptr, far + at, own + at, half);
    h.meet();
    copy<own_past>(to + half - at, far_to + half - at, half);
    h.meet();
}
template <bool own_past>
void one_shot(hand h, const float* own, const float* far, float* to, float*) {
    h.meet();
    fold<own_past, false, false>(to, nullptr, far, own, h.count);
    h.meet();
}
template <bool own_past>
void reduce_half(hand h, const float* own, const float* far, float* to, float*) {
    const std::size_t half = h.count / 2, at = h.rank == 0 ? 0 : half;
    h.meet();
    fold<own_past, false, false>(to, nullptr, far + at, own + at, half);
    h.meet();
}
// broadcast from rank 0; the buffer is `to`
template <bool past, bool pushes>
void root_to_other(hand h, const float*, const float*, float* to, float* far_to) {
    h.meet();
    if (pushes && h.rank == 0) copy<past>(far_to, to, h.count);
    if (!pushes && h.rank == 1) copy<past>(to, far_to, h.count);
    h.meet();
}
// all_gather: a half each; all_to_all: halves are exchanged
template <bool past, bool pushes, bool transposes>
void exchange(hand h, const float* own, const float* far, float* to, float* far_to) {
    const std::size_t half = h.count / 2, at = h.rank == 0 ? 0 : half, other = half - at;
    h.meet();
    copy<past && !pushes>(to + at, transposes ? own + at : own, half);
    if (pushes)
        copy<past>(far_to + at, transposes ? own + other : own, half);
    else
        copy<past>(to + other, transposes ? far + at : far, half);
    h.meet();
}

using loop = void (*)(hand, const float*, const float*, float*, float*);
struct contender {
    std::string name;
    loop run = nullptr;  // null: the library
};
std::vector<contender> contenders(job what) {
    switch (what) {
        case job::all_reduce:
            return {{"library"}, {"pull, push", &pull_and_push<false, false>},
                {"pull, push nt", &pull_and_push<false, true>}, {"pull, push nt, own nt", &pull_and_push<true, true>},
                {"pull twice", &pull_twice<false>}, {"one shot", &one_shot<false>}, {"one shot nt", &one_shot<true>}};
        case job::all_reduce_in_place:
            return {{"library"}, {"pull, push", &pull_and_push<false, false>},
                {"pull, push nt", &pull_and_push<false, true>}, {"pull, push nt, own nt", &pull_and_push<true, true>},
                {"pull twice", &pull_twice<false>}};
        case job::reduce_scatter:
            return {{"library"}, {"pull", &reduce_half<false>}, {"pull nt", &reduce_half<true>}};
        case job::broadcast:
            return {{"library"}, {"pull", &root_to_other<false, false>}, {"pull nt", &root_to_other<true, false>},
                {"push", &root_to_other<false, true>}, {"push nt", &root_to_other<true, true>}};
        case job::all_gather:
            return {{"library"}, {"pull", &exchange<false, false, false>}, {"pull nt", &exchange<true, false, false>},
                {"push", &exchange<false, true, false>}, {"push nt", &exchange<true, true, false>}};
        default:
            return {{"library"}, {"pull", &exchange<false, false, true>}, {"pull nt", &exchange<true, false, true>},
                {"push", &exchange<false, true, true>}, {"push nt", &exchange<true, true, true>}};
    }
}
void by_library(colls::communicator& comm, job what, std::span<const float> in, std::span<float> out) {
    switch (what) {
        case job::all_reduce:
            return colls::all_reduce(comm, in, out, colls::sum);
        case job::all_reduce_in_place:
            return colls::all_reduce(comm, out, colls::sum);
        case job::reduce_scatter:
            return colls::reduce_scatter(comm, in, out, colls::sum);
        case job::broadcast:
            return colls::broadcast(comm, out, 0);
        case job::all_gather:
            return colls::all_gather(comm, in, out);
        default:
            return colls::all_to_all(comm, in, out);
    }
}
constexpr colls::collective collective_of(job what) {
    constexpr colls::collective by_job[] = {colls::collective::all_reduce, colls::collective::all_reduce,
        colls::collective::broadcast, colls::collective::all_gather, colls::collective::reduce_scatter,
        colls::collective::all_to_all};
    return by_job[static_cast<int>(what)];
}

/// A call, and how long the same work took the slower of the two ranks before it.
struct timed_call {
    std::size_t contender;
    double ns;
    std::uint64_t work;
};

struct measurement {
    std::vector<timed_call> calls;
    std::uint64_t least_work = ~std::uint64_t{0};
    std::uint32_t wrong = 0;
    std::string chosen;
};

/// Was the core as fast as it can be?
bool is_quiet(std::uint64_t work, std::uint64_t least) {
    return static_cast<double>(work) < 1.1 * static_cast<double>(least);
}
constexpr double longest = 10;  // times settings::seconds, for a row without enough quiet calls

/// One row: all contenders at one size, by turns.
measurement measure(const settings& s, job what, std::size_t bytes, double ticks_per_ns) {
    const std::vector<contender> all = contenders(what);
    std::vector<std::size_t> order;
    std::mt19937 random(7);
    for (int turn = 0; turn < s.most; ++turn) {
        std::vector<std::size_t> next(all.size());
        for (std::size_t i = 0; i < next.size(); ++i) next[i] = i;
        std::shuffle(next.begin(), next.end(), random);
        for (const std::size_t i : next) order.insert(order.end(), static_cast<std::size_t>(s.in_a_row), i);
    }
    measurement found;
    const bench::shape shape = bench::shape_of(what, bytes, 2);
    const std::size_t count = std::max(shape.in, shape.out);
    group shared{};
    std::atomic<std::uint64_t> start{0}, stop{0};
    std::atomic<std::uint32_t> wrong{0};
    std::uint64_t ended[2]{}, work[2]{};
    bench::line_barrier both;
    colls::threads::run(2, [&](colls::communicator& comm) {
        const int rank = comm.rank();
        bench::pin_to(s.cores[static_cast<std::size_t>(rank)]);
        const bench::buffer input(count), output(count);
        const std::span<float> in = input.first(shape.in), out = output.first(shape.out);
        shared.in[rank] = in.data(), shared.out[rank] = out.data();
        colls::barrier(comm);
        const bool in_place = what == job::all_reduce_in_place;
        std::uint64_t phase = 0;
        std::uint32_t call = 0;
        std::size_t quiet_so_far = 0;
        float sum = 0;
        const auto begun = bench::ticks();
        for (const std::size_t k : order) {
            ++call;
            if (what == job::broadcast)
                bench::rewrite(out, rank == 0 ? 0 : 100, call);
            else
                bench::rewrite(in_place ? out : in, rank, call);
            both.meet(rank);
            if (rank == 0) {
                const double spent = static_cast<double>(bench::ticks() - begun) / ticks_per_ns * 1e-9;
                const bool enough = s.all_calls || quiet_so_far >= all.size() * static_cast<std::size_t>(s.quiet);
                stop.store((call - 1) % (all.size() * static_cast<unsigned>(s.in_a_row)) == 0 &&
                               spent > (enough ? 1 : longest) * s.seconds,
                    std::memory_order_relaxed);
                start.store(
                    bench::ticks() + static_cast<std::uint64_t>(1500 * ticks_per_ns), std::memory_order_relaxed);
            }
            both.meet(rank);
            work[rank] = bench::ticks_of_work();
            const std::uint64_t at = start.load(std::memory_order_relaxed);
            while (bench::ticks() < at) {}
            const contender& c = all[k];
            if (c.run) {
                const float* own = in_place ? out.data() : in.data();
                const float* far = in_place ? shared.out[1 - rank] : shared.in[1 - rank];
                c.run({shared, rank, count, phase}, own, far, out.data(), shared.out[1 - rank]);
                phase = shared.phase[rank].value.load(std::memory_order_relaxed);
            } else {
                by_library(comm, what, in, out);
            }
            if (s.first_read)
                for (std::size_t i = 0; i < out.size(); i += 16) sum += out[i];
            asm volatile("" : : "r"(&sum) : "memory");
            ended[rank] = bench::ticks();
            wrong += bench::check(what, out, rank, 2, call);
            both.meet(rank);
            if (rank == 0 && call > all.size() &&
                (call - 1) % static_cast<unsigned>(s.in_a_row) >= static_cast<unsigned>(s.in_a_row) / 2) {
                const std::uint64_t took = std::max(work[0], work[1]);
                found.calls.push_back({k, static_cast<double>(std::max(ended[0], ended[1]) - at) / ticks_per_ns, took});
                found.least_work = std::min(found.least_work, took);
                quiet_so_far += is_quiet(took, found.least_work);
            }
            if (stop.load(std::memory_order_relaxed) && call > 4 * all.size()) break;
        }
        if (rank == 0) found.chosen = colls::chosen(comm, collective_of(what), bytes);
    });
    found.wrong = wrong;
    return found;
}

/// The calls of each contender during which both cores were as fast as they can be: the work took little more than the
/// least before the call, and before the next one. All calls, where too few are left or `all` are asked for.
std::vector<std::vector<double>> quiet_calls(const measurement& m, std::size_t contenders, bool all, double& share) {
    const auto was_quiet = [&](std::size_t i) {
        return i >= m.calls.size() || is_quiet(m.calls[i].work, m.least_work);
    };
    std::vector<std::vector<double>> kept(contenders), every(contenders);
    std::size_t quiet = 0;
    for (std::size_t i = 0; i < m.calls.size(); ++i) {
        const timed_call& c = m.calls[i];
        every[c.contender].push_back(c.ns);
        if (!was_quiet(i) || !was_quiet(i + 1)) continue;
        kept[c.contender].push_back(c.ns);
        ++quiet;
    }
    share = static_cast<double>(quiet) / static_cast<double>(m.calls.size());
    const auto enough = [](const std::vector<double>& x) { return x.size() >= 15; };
    return !all && std::ranges::all_of(kept, enough) ? kept : every;
}

}  // namespace

int main(int argc, char** argv) {
    settings s;
    CLI::App app("The library's calls on two threads beside hand-written loops: medians in microseconds");
    app.add_option(
           "--collective", s.jobs, "all_reduce, all_reduce_in_place, broadcast, all_gather, reduce_scatter, all_to_all")
        ->check(CLI::IsMember(
            {"all_reduce", "all_reduce_in_place", "broadcast", "all_gather", "reduce_scatter", "all_to_all"}));
    app.add_option("--bytes", s.bytes, "sizes of the larger buffer")->transform(CLI::AsSizeValue(false));
    app.add_option("--cores", s.cores, "the cores of the two ranks")->expected(2);
    app.add_option("--seconds", s.seconds, "seconds for a row, at least; ten times as many where few calls are quiet");
    app.add_option("--turns", s.most, "turns of each kind for a row, at most");
    app.add_option(
           "--in-a-row", s.in_a_row, "calls of a kind one after the other, of which the first half is not counted")
        ->check(CLI::PositiveNumber);
    app.add_option("--quiet", s.quiet, "quiet calls for a row to end, in the mean of its kinds");
    app.add_flag("--all-calls", s.all_calls,
        "also calls during which a core was slow, as when another machine uses its other hardware thread");
    app.add_flag("--first-read", s.first_read, "the first reading of the result is part of the time");
    CLI11_PARSE(app, argc, argv);
    if (!__builtin_cpu_supports("avx2")) {
        fmt::print(stderr, "loops: the hand-written loops need AVX2, which this processor lacks\n");
        return 77;
    }
    const double ticks_per_ns = bench::measure_ticks_per_ns();
    std::uint32_t wrong = 0;
    for (const std::string& name : s.jobs) {
        job what = job::all_reduce;
        while (name != bench::name_of(what)) what = static_cast<job>(static_cast<int>(what) + 1);
        fmt::print("\n{}, float, 2 threads on cores {} and {}{}\n\n| size | line ns |", name, s.cores[0], s.cores[1],
            s.first_read ? ", the first reading of the result included" : "");
        const auto all = contenders(what);
        for (const contender& c : all) fmt::print(" {} |", c.name);
        fmt::print(" library / best | schedule | quiet |\n|---|---|");
        for (std::size_t i = 0; i < all.size() + 3; ++i) fmt::print("---|");
        fmt::print("\n");
        for (const std::size_t wanted : s.bytes) {
            const std::size_t bytes = wanted / 256 * 256;  // whole lines for each half
            const double line = bench::line_latency(s.cores[0], s.cores[1], ticks_per_ns);
            measurement m = measure(s, what, bytes, ticks_per_ns);
            fmt::print("| {} | {:.0f} |",
                bytes < 1 << 20 ? fmt::format("{} KB", bytes >> 10)
                                : fmt::format("{:.4g} MB", static_cast<double>(bytes) / (1 << 20)),
                line);
            double best = 1e30, own = 0, quiet = 0;
            std::vector<std::vector<double>> ns = quiet_calls(m, all.size(), s.all_calls, quiet);
            for (std::size_t i = 0; i < all.size(); ++i) {
                const double us = bench::median(ns[i]) / 1000;
                fmt::print(" {:.4g} |", us);
                (all[i].run ? best : own) = all[i].run ? std::min(best, us) : us;
            }
            fmt::print(" {:.2f} | {} | {:.0f} % |\n", own / best, m.chosen, 100 * quiet);
            std::fflush(stdout);
            wrong += m.wrong;
        }
    }
    if (wrong) fmt::print("\n{} elements were wrong\n", wrong);
    return wrong ? 3 : 0;
}
