#include "calls.hpp"

#include "support/batch.hpp"
#include "support/reproducible.hpp"
#include "support/several_threads.hpp"

#include <colls/exact.hpp>

#include <cmath>
#include <numeric>

using namespace support;

namespace mpi_tests {

void tally::check(bool right, const std::string& what) {
    ++checked;
    if (right) return;
    if (++wrong <= 10) std::printf("rank %d: wrong: %s\n", rank, what.c_str());
    std::fflush(stdout);
}

void random_calls(
    colls::communicator& comm, std::uint64_t seed, std::uint64_t cases, const surroundings& around, tally& t) {
    const auto& entries = all_kinds<colls::communicator>();
    std::uint64_t done = 0;
    for (std::uint64_t batch = 0; done < cases; ++batch) {
        // Alike on all ranks.
        random_source random = stream(seed, batch, static_cast<std::uint64_t>(comm.size()));
        std::deque<job<colls::communicator>> jobs;
        std::vector<std::size_t> twins;
        for (std::size_t i = 0; i < 40; ++i) {
            const auto& e = entries[random.below(entries.size())];
            const call_plan plan =
                pick_plan(random, comm.size(), e, random.one_in(40) ? std::size_t{24} << 20 : std::size_t{1} << 20);
            jobs.emplace_back(e, plan);
            if (e.kind.how != judged::bounded) continue;
            jobs.emplace_back(e, plan);
            twins.push_back(jobs.size() - 1);
        }
        around.begin();
        run_jobs_on(comm, jobs, seed ^ batch);
        around.end();
        for (const auto& j : jobs) {
            const std::string wrong = j.wrong_at(comm.rank());
            t.check(wrong.empty(), "batch " + std::to_string(batch) + ": " + j.describe() + ": " + wrong);
            if (const auto result = j.result_for_all(comm.rank()); !result.empty())
                t.check(around.same_everywhere(result), j.describe() + ": differs from rank 0 bit by bit");
        }
        for (const std::size_t i : twins) {
            const std::string differs = jobs[i].differs_at(comm.rank(), jobs[i - 1]);
            t.check(differs.empty(), jobs[i].describe() + ": " + differs);
        }
        done += jobs.size();
    }
}

void reproducible_bits(colls::communicator& comm, std::uint64_t seed, tally& t) {
    std::string wrong;
    try {
        support::check_reproducible(comm, 4'000, 16, seed);
    } catch (const colls::error&) {
        throw;  // the group is broken
    } catch (const std::exception& e) {
        wrong = e.what();
    }
    t.check(wrong.empty(), wrong);
}

void exact_bits(colls::communicator& comm, std::uint64_t seed, tally& t) {
    constexpr std::size_t length = 300;
    constexpr int addends = 40;  // of each sum: their bits must not depend on which rank adds which
    random_source random(seed);
    std::vector<colls::exact_sum<double>> sums(length), wanted(length);
    for (std::size_t i = 0; i < length; ++i)
        for (int k = 0; k < addends; ++k) {
            const double x = std::ldexp(random.unit() - 0.5, static_cast<int>(random.below(600)) - 300);
            wanted[i] += x;
            if (k % comm.size() == comm.rank()) sums[i] += x;
        }
    colls::all_reduce(comm, sums, colls::exact);
    std::vector<double> x(length), one_each(length);
    std::vector<colls::exact_sum<double>> of_ranks(length);
    for (int r = 0; r < comm.size(); ++r)
        for (std::size_t i = 0; i < length; ++i) {
            const double v = std::ldexp(random.unit() - 0.5, static_cast<int>(random.below(20)));
            of_ranks[i] += v;
            if (r == comm.rank()) x[i] = v;
        }
    colls::all_reduce(comm, x, one_each, colls::exact);
    for (std::size_t i = 0; i < length; ++i) {
        t.check(sums[i].value() == wanted[i].value(), "an exact sum of partial sums");
        t.check(one_each[i] == of_ranks[i].value(), "an exact sum of numbers");
    }
}

namespace {

std::vector<int> numbers(int from, int to, std::size_t count, int number) {
    std::vector<int> v(count);
    std::iota(v.begin(), v.end(), from * 1000 + to + number * 7919);
    return v;
}
/// Checks a guarded buffer of ints that has been received.
void expect(guarded& got, const std::vector<int>& want, const char* what, tally& t) {
    t.check(std::equal(want.begin(), want.end(), got.as<int>().begin()), std::string(what) + ": other data");
    t.check(got.broken().empty(), std::string(what) + ": a byte was written " + got.broken());
}

}  // namespace

void messages(colls::communicator& comm, std::uint64_t seed, tally& t) {
    const int n = comm.size(), rank = comm.rank(), right = (rank + 1) % n, left = (rank + n - 1) % n;
    // From 8 KB on messages are not copied; from 16 MB on they are divided.
    for (const std::size_t count :
        {0u, 1u, 13u, 1000u, 2039u, 2040u, 2047u, 2048u, 2049u, 100'003u, 1'000'000u, 4'194'305u}) {
        if (count > 200'000 && n > 4) continue;
        guarded buffer(count * sizeof(int), 12);
        const auto out = numbers(rank, right, count, 1);
        auto sending = colls::start::send(comm, out, right);
        colls::recv(comm, buffer.as<int>(), left);
        sending.wait();
        expect(buffer, numbers(left, rank, count, 1), "ring of messages", t);
    }
    // Many messages of each pair at once, received in order, with collectives in between.
    constexpr int many = 40;
    random_source random = stream(seed, 5);
    std::vector<std::size_t> counts;
    for (int i = 0; i < many; ++i) counts.push_back(random.one_in(6) ? random.below(20'000) : random.below(600));
    std::vector<std::vector<int>> out;
    std::vector<guarded> in;
    std::vector<colls::operation> under_way;
    out.reserve(static_cast<std::size_t>(many * n));
    in.reserve(static_cast<std::size_t>(many * n));
    for (int i = 0; i < many; ++i) {
        const std::size_t count = counts[static_cast<std::size_t>(i)];
        for (int peer = 0; peer < n; ++peer) {
            out.push_back(numbers(rank, peer, count, i));
            under_way.push_back(colls::start::send(comm, out.back(), peer));
            in.emplace_back(count * sizeof(int));
            under_way.push_back(colls::start::recv(comm, in.back().as<int>(), peer));
        }
        if (i % 8 == 7) works(comm, t);
        if (i % 8 == 7 || i + 1 == many) under_way.clear();  // waits
    }
    for (int i = 0; i < many; ++i)
        for (int peer = 0; peer < n; ++peer)
            expect(in[static_cast<std::size_t>(i * n + peer)],
                numbers(peer, rank, counts[static_cast<std::size_t>(i)], i), "many messages", t);
}

void works(colls::communicator& comm, tally& t) {
    const int n = comm.size();
    std::vector<long> x(5000, comm.rank() + 1);
    colls::all_reduce(comm, x, colls::sum);
    t.check(std::count(x.begin(), x.end(), static_cast<long>(n) * (n + 1) / 2) == 5000, "all_reduce");
}

void several_threads(colls::communicator& comm, tally& t) {
    for (const bool helped : {false, true}) {
        support::call_in_threads(comm, 2, helped);  // throws where a result is wrong
        works(comm, t);
    }
}

void splits(colls::communicator& comm, std::uint64_t seed, tally& t) {
    const int n = comm.size(), rank = comm.rank();
    for (int turn = 0; turn < 6; ++turn) {
        random_source random = stream(seed, 9, static_cast<std::uint64_t>(turn));
        // The colors and keys of all ranks, alike on all ranks. A negative color is in no part.
        std::vector<int> colors, keys;
        for (int r = 0; r < n; ++r) {
            colors.push_back(random.between(-1, 2));
            keys.push_back(random.between(0, 3));
        }
        const auto at = [](const std::vector<int>& v, int r) { return v[static_cast<std::size_t>(r)]; };
        std::vector<float> large(50'000, 1);
        auto in_flight = colls::start::all_reduce(comm, large, colls::sum);  // over what is split
        colls::communicator part = comm.split(at(colors, rank), at(keys, rank));
        int size = 0, place = 0;
        for (int r = 0; r < n; ++r) {
            if (at(colors, r) != at(colors, rank)) continue;
            ++size;
            place += at(keys, r) < at(keys, rank) || (at(keys, r) == at(keys, rank) && r < rank);
        }
        if (at(colors, rank) < 0) {
            t.check(part.size() == 0, "split with a negative color gives a group");
        } else {
            t.check(part.size() == size && part.rank() == place, "split gives another group");
            works(part, t);
            // The part's ranks in reverse order, used in turn with the part.
            colls::communicator reversed = part.split(0, -part.rank());
            t.check(
                reversed.size() == size && reversed.rank() == size - 1 - place, "a part's split gives another group");
            works(reversed, t);
            works(part, t);
        }
        works(comm, t);
        in_flight.wait();
        t.check(std::count(large.begin(), large.end(), static_cast<float>(n)) == 50'000, "a call that was under way");
    }
}

void disagree(colls::communicator& comm, int how, int odd, const std::function<void()>& all_out, tally& t) {
    const int n = comm.size();
    const bool other = comm.rank() == odd;
    const std::size_t most = 400'000;
    guarded first(most * sizeof(int)), second(most * sizeof(int));
    const auto in = first.as<int>(), out = second.as<int>();
    std::fill(in.begin(), in.end(), 1);
    std::fill(out.begin(), out.end(), 1);
    const auto ranks = static_cast<std::size_t>(n);
    const auto floats = first.as<float>();
    std::string what =
        "disagreement " + std::to_string(how) + " by rank " + std::to_string(odd) + " of " + std::to_string(n) + ": ";
    int code = 0, thrower = colls::none, peer = colls::none;
    try {
        switch (how) {
            case 0:
                colls::all_reduce(comm, in.first(other ? 11 : 10), colls::sum);
                break;
            case 1:
                colls::all_reduce(comm, in.first(other ? 100'001 : 100'000), colls::sum);
                break;
            case 2:
                if (other)
                    colls::all_reduce(comm, in, colls::max);
                else
                    colls::all_reduce(comm, in, colls::sum);
                break;
            case 3:
                if (other)
                    colls::barrier(comm);
                else
                    colls::all_reduce(comm, in, colls::sum);
                break;
            case 4:
                colls::broadcast(comm, in, other ? 1 : 0);
                break;
            case 5:
                if (other)
                    colls::all_reduce(comm, floats.first(100), colls::sum);
                else
                    colls::all_reduce(comm, in.first(100), colls::sum);
                break;
            case 6:
                if (other)
                    colls::all_reduce<colls::ring>(comm, in, colls::sum);
                else
                    colls::all_reduce<colls::direct>(comm, in, colls::sum);
                break;
            case 7:
                if (other) colls::barrier(comm);
                colls::broadcast(comm, in.first(5), 0);
                if (!other) colls::barrier(comm);
                break;
            case 8: {  // one rank sends more than the next one expects
                auto sending = colls::start::send(comm, in.first(other ? 2000 : 1000), (comm.rank() + 1) % n);
                colls::recv(comm, out.first(1000), (comm.rank() + n - 1) % n);
                sending.wait();
                break;
            }
            case 9:
                colls::all_to_all(
                    comm, in.first((other ? 10'000 : 9'999) * ranks), out.first((other ? 10'000 : 9'999) * ranks));
                break;
            case 10:
                colls::broadcast(comm, in.first(other ? most : 100), 0);
                break;
            default: {  // started by one rank, called by the others
                if (other) {
                    auto operation = colls::start::all_reduce(comm, in, colls::sum);
                    operation.wait();
                } else {
                    colls::all_reduce(comm, in, colls::sum);
                }
            }
        }
        for (int i = 0; i < 3; ++i) colls::barrier(comm);
    } catch (const colls::error& failure) {
        code = static_cast<int>(failure.code());
        thrower = failure.rank();
        peer = failure.peer();
        what += failure.what();
    }
    t.check(code == static_cast<int>(colls::errc::mismatch), what + " (code " + std::to_string(code) + ")");
    t.check(thrower == comm.rank() && peer != comm.rank() && peer < n, what + " (names the wrong ranks)");
    // From here on no rank writes into these buffers, not even the last one to see the error.
    std::fill(in.begin(), in.end(), -7);
    std::fill(out.begin(), out.end(), -7);
    all_out();
    bool again = false;
    try {
        colls::barrier(comm);
    } catch (const colls::error&) {
        again = true;
    }
    t.check(again, what + ": the group still works");
    all_out();
    t.check(std::count(in.begin(), in.end(), -7) == static_cast<std::ptrdiff_t>(most) &&
                std::count(out.begin(), out.end(), -7) == static_cast<std::ptrdiff_t>(most),
        what + ": written into after the error");
    t.check(first.broken().empty() && second.broken().empty(), what + ": written beside the buffer");
}

}  // namespace mpi_tests
