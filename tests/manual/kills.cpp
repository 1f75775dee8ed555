// Kills a rank at a random moment. Each survivor must get an error that names the rank, within a second, and the
// survivors then shrink the group and go on. Not part of the suite: build target colls_kills, then
//     build/test/tests/kills [KIND [TRIALS [SEED]]]      COLLS_TRANSPORT=tcp for TCP
// KIND is what the ranks do meanwhile: calls (of 1.2 MB), split (and calls on the parts), nested (splits of parts),
// prepare, allocate, fork (each rank has a child that lives on), shrink (a second rank is killed while the others
// shrink). Without KIND: all of them, 75 trials each.
#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>

#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Results of a trial, which the ranks share with their parent.
struct tally {
    std::atomic<double> died{0}, latest{0};
    std::atomic<int> shrunk{0}, unnamed{0}, late{0}, wrong{0}, children{0};
    std::atomic<int> child[64];
};
tally& shared_tally() {
    static void* const at = mmap(nullptr, sizeof(tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return *static_cast<tally*>(at);
}

void die_in(int microseconds, bool first) {
    std::thread([=] {
        usleep(static_cast<useconds_t>(microseconds));
        if (first) shared_tally().died = now();
        kill(getpid(), SIGKILL);
    }).detach();
}

/// Calls f, which works on a part of the group. An error of it is thrown with the peer's rank in the whole group.
template <class F>
void on_part(int n, int own, F f) {
    try {
        f();
    } catch (const colls::error& e) {
        std::vector<int> members;
        for (int r = n - 1; r >= 0; --r)
            if (r % 2 == own % 2) members.push_back(r);
        const auto peer = static_cast<std::size_t>(e.peer());
        throw colls::error(
            e.code(), e.what(), own, e.peer() >= 0 && peer < members.size() ? members[peer] : colls::none);
    }
}

void calls(const std::string& kind, colls::communicator& comm) {
    std::vector<int> x(kind == "calls" ? 300'000 : 500, 1);
    for (int i = 0;; ++i) {
        if (kind == "prepare") {
            auto plan = colls::prepare::all_reduce(comm, x, colls::sum);
            plan.run();
            plan.start().wait();
        } else if (kind == "allocate") {
            auto memory = comm.allocate<int>(2000 + static_cast<std::size_t>(i) % 5000);
            colls::all_reduce(comm, memory, colls::max);
        } else if (kind == "split" || kind == "nested") {
            colls::communicator part = comm.split(comm.rank() % 2, -comm.rank());
            on_part(comm.size(), comm.rank(), [&] {
                colls::barrier(part);
                colls::all_reduce(part, x, colls::max);
                if (kind == "nested") {
                    colls::communicator same = part.split(0, part.rank());
                    colls::barrier(same);
                }
            });
        }
        colls::all_reduce(comm, x, colls::max);
    }
}

void survive(colls::communicator& comm, int left) {
    tally& all = shared_tally();
    const double begin = now();
    for (int tries = 0;; ++tries) try {
            comm = comm.shrink();
            int sum[1] = {1};
            for (int i = 0; i < (comm.size() > left ? 400 : 1); ++i) {  // until the second rank has died as well
                sum[0] = 1;
                colls::all_reduce(comm, sum, colls::sum);
                usleep(10);
            }
            if (comm.size() > left && tries < 5) continue;
            ++(comm.size() == left && sum[0] == left ? all.shrunk : all.wrong);
            break;
        } catch (const colls::error& e) {
            if (tries < 5) continue;
            std::fprintf(stderr, "  rank %d in shrink: %s\n", comm.rank(), e.what());
            ++all.wrong;
            break;
        }
    if (now() - begin > 2) ++all.late;
}

bool trial(const std::string& kind, std::mt19937& random) {
    tally& all = shared_tally();
    all.died = all.latest = 0;
    all.shrunk = all.unnamed = all.late = all.wrong = all.children = 0;
    const int n = 3 + static_cast<int>(random() % 4), victim = static_cast<int>(random() % static_cast<unsigned>(n));
    const int first = static_cast<int>(random() % 4000), second = static_cast<int>(random() % 1500);
    const bool two = kind == "shrink" && n > 4;
    try {
        colls::processes::run(n, [&](colls::communicator& comm) {
            if (kind == "fork") {
                const pid_t child = fork();
                if (child == 0)
                    for (;;) pause();
                all.child[all.children++] = child;
            }
            colls::barrier(comm);
            if (comm.rank() == victim) die_in(first, true);
            try {
                calls(kind, comm);
            } catch (const colls::error& e) {
                const double took = now() - all.died;
                if (took > all.latest) all.latest = took;
                if (took > 1) ++all.late;
                if (e.peer() != victim &&
                    std::string(e.what()).find("rank " + std::to_string(victim)) == std::string::npos) {
                    std::fprintf(stderr, "  rank %d, but rank %d was killed: %s\n", comm.rank(), victim, e.what());
                    ++all.unnamed;
                }
            }
            if (two && comm.rank() == (victim + 1) % n) die_in(second, false);
            survive(comm, two ? n - 2 : n - 1);
        });
    } catch (const colls::error&) {  // says that a process was killed
    }
    for (int i = 0; i < all.children; ++i) kill(all.child[i], SIGKILL);
    const bool right = all.shrunk == (two ? n - 2 : n - 1) && all.unnamed + all.late + all.wrong == 0;
    if (!right)
        std::printf(
            "  %d ranks, rank %d killed after %d us: %d shrunk, %d errors without the rank, %d late, %d wrong\n", n,
            victim, first, all.shrunk.load(), all.unnamed.load(), all.late.load(), all.wrong.load());
    return right;
}

}  // namespace

int main(int count, char** words) {
    std::vector<std::string> kinds = {"calls", "split", "nested", "prepare", "allocate", "fork", "shrink"};
    if (count > 1) kinds = {words[1]};
    const int trials = count > 2 ? std::atoi(words[2]) : 75;
    int bad = 0;
    for (const std::string& kind : kinds) {
        std::mt19937 random(count > 3 ? static_cast<unsigned>(std::atoi(words[3])) : 1u);
        double latest = 0;
        int wrong = 0;
        for (int i = 0; i < trials; ++i) {
            wrong += !trial(kind, random);
            if (shared_tally().latest > latest) latest = shared_tally().latest;
        }
        std::printf(
            "%-9s %d trials, %d failed; the latest error %.3f s after the kill\n", kind.c_str(), trials, wrong, latest);
        std::fflush(stdout);
        bad += wrong;
    }
    return bad == 0 ? 0 : 1;
}
