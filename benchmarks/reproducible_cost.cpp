// What the constraint colls::reproducible costs: an all_reduce under it beside the schedules that the library could
// take otherwise, on threads or on processes over TCP. All take turns call by call, so that what else the machine does
// hits all of them alike. The time of a call is that of its slowest rank, from a barrier on; medians are compared.
#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

using colls::collective;

struct settings {
    std::vector<int> ranks{2, 4};
    std::vector<std::size_t> kilobytes{64, 256, 1024, 4096, 16384, 65536};
    std::string transport = "threads", what = "all_reduce";
    double seconds = 2;
    int most = 400;
};

using call_of_all = void (*)(colls::communicator&, std::span<const float>, std::span<float>);

/// The call by a schedule, or under a constraint.
template <collective what, class Schedule>
void run(colls::communicator& comm, std::span<const float> in, std::span<float> out) {
    if constexpr (what == collective::all_reduce)
        colls::all_reduce<Schedule>(comm, in, out, colls::sum);
    else if constexpr (what == collective::reduce)
        colls::reduce<Schedule>(comm, in, out, colls::sum, 0);
    else
        colls::reduce_scatter<Schedule>(
            comm, in, out.first(colls::block_of(in.size(), comm.size(), comm.rank()).size), colls::sum);
}

struct contender {
    std::string name;
    call_of_all call;
    std::vector<double> us = {};
    double median() {
        std::nth_element(us.begin(), us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2), us.end());
        return us[us.size() / 2];
    }
};

template <collective what>
std::vector<contender> contenders(int n) {
    std::vector<contender> all{
        {"reproducible", &run<what, colls::reproducible>}, {"automatic", &run<what, colls::automatic>}};
    const auto add = [&]<class Family>(const char* name, Family family) {
        if constexpr (colls::provides<Family, what>)
            if (colls::supports(colls::schedule_of<what>(family), n)) all.push_back({name, &run<what, Family>});
    };
    add("direct", colls::direct{});
    add("ring", colls::ring{});
    add("circulant", colls::circulant<>{});
    add("halving_doubling", colls::halving_doubling{});
    add("recursive_doubling", colls::recursive_doubling{});
    add("tree", colls::tree<2>{});
    add("pipelined_broadcast", colls::pipelined_broadcast{});
    return all;
}

template <collective what>
void measure(colls::communicator& comm, const settings& wanted) {
    for (const std::size_t kb : wanted.kilobytes) {
        const std::size_t count = kb * 1024 / sizeof(float);
        std::vector<float> in(count, static_cast<float>(comm.rank() + 1)), out(count);
        std::vector<contender> all = contenders<what>(comm.size());
        const auto now = [] { return std::chrono::steady_clock::now(); };
        const auto begin = now();
        std::mt19937 order(1);  // alike on all ranks: what ran before leaves its traces in the caches
        std::vector<std::size_t> turn(all.size());
        std::iota(turn.begin(), turn.end(), std::size_t{0});
        for (int round = 0; round < wanted.most; ++round) {
            std::shuffle(turn.begin(), turn.end(), order);
            for (const std::size_t i : turn) {
                contender& c = all[i];
                colls::barrier(comm);
                const auto from = now();
                c.call(comm, in, out);
                double us = std::chrono::duration<double, std::micro>(now() - from).count();
                colls::all_reduce(comm, std::span(&us, 1), colls::max);
                if (round > 0) c.us.push_back(us);
            }
            int on = std::chrono::duration<double>(now() - begin).count() < wanted.seconds || round < 5;
            colls::broadcast(comm, std::span(&on, 1), 0);
            if (!on) break;
        }
        if (comm.rank() != 0) continue;
        contender* best = nullptr;
        for (contender& c : all)
            if (&c != &all[0] && (!best || c.median() < best->median())) best = &c;
        const std::string chosen = colls::chosen<colls::reproducible>(comm, what, count * sizeof(float));
        fmt::print("| {} | {} | {} KB | {} | {:.0f} | {} | {:.0f} | {:.0f} | {:.2f} | {} |\n", wanted.transport,
            comm.size(), kb, chosen, all[0].median(), best->name, best->median(), all[1].median(),
            all[0].median() / best->median(), all[0].us.size());
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    settings wanted;
    CLI::App app{"The cost of colls::reproducible: medians of interleaved calls, in microseconds"};
    app.add_option("--transport", wanted.transport, "threads or tcp")->check(CLI::IsMember({"threads", "tcp", "shm"}));
    app.add_option("--collective", wanted.what, "all_reduce, reduce_scatter or reduce")
        ->check(CLI::IsMember({"all_reduce", "reduce_scatter", "reduce"}));
    app.add_option("--ranks", wanted.ranks, "group sizes");
    app.add_option("--kb", wanted.kilobytes, "kilobytes of the buffer");
    app.add_option("--seconds", wanted.seconds, "seconds for each line");
    CLI11_PARSE(app, argc, argv);
    if (wanted.transport != "threads") setenv("COLLS_TRANSPORT", wanted.transport.c_str(), 1);
    fmt::print("| transport | ranks | {} of | it takes | us | best other | us | automatic, us | ratio | calls |\n",
        wanted.what);
    fmt::print("|---|---|---|---|---|---|---|---|---|---|\n");
    std::fflush(stdout);
    for (const int n : wanted.ranks) {
        const auto rank = [&](colls::communicator& comm) {
            wanted.what == "all_reduce"       ? measure<collective::all_reduce>(comm, wanted)
            : wanted.what == "reduce_scatter" ? measure<collective::reduce_scatter>(comm, wanted)
                                              : measure<collective::reduce>(comm, wanted);
        };
        if (wanted.transport == "threads")
            colls::threads::run(n, rank);
        else
            colls::processes::run(n, rank);
    }
}
