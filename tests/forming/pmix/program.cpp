// pmix_test results | late RANK | absent RANK | gone RANK | plain: one rank of a job that a launcher with PMIx started.
#include <colls/pmix.hpp>

#include <colls/colls.hpp>
#include <colls/world.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

/// Order-free and order-sensitive results, beside a serial reference, with guards around the output.
bool right(colls::communicator& comm) {
    constexpr int guard = -77;
    const int n = comm.size(), own = comm.rank();
    for (const int count : {1, 5, 3000}) {
        const auto at = [](int rank, int i) { return 1000 * rank + i % 97 + 1; };
        std::vector<int> in(static_cast<std::size_t>(count)), out(static_cast<std::size_t>(count) + 2, guard);
        for (int i = 0; i < count; ++i) in[static_cast<std::size_t>(i)] = at(own, i);
        colls::all_reduce(comm, in, std::span(out).subspan(1, static_cast<std::size_t>(count)), colls::sum);
        for (int i = 0; i < count; ++i) {
            int sum = 0;
            for (int r = 0; r < n; ++r) sum += at(r, i);
            if (out[static_cast<std::size_t>(i) + 1] != sum) return false;
        }
        if (out.front() != guard || out.back() != guard) return false;
        std::vector<int> all(static_cast<std::size_t>(n * count) + 2, guard);
        colls::all_gather(comm, in, std::span(all).subspan(1, static_cast<std::size_t>(n * count)));
        for (int r = 0; r < n; ++r)
            for (int i = 0; i < count; ++i)
                if (all[static_cast<std::size_t>(r * count + i) + 1] != at(r, i)) return false;
        if (all.front() != guard || all.back() != guard) return false;
    }
    return true;
}

}  // namespace

int main(int arguments, char** argument) {
    const std::string what = arguments > 1 ? argument[1] : "";
    const char* const rank = std::getenv("PMIX_RANK");
    const bool odd = arguments > 2 && rank && std::strcmp(rank, argument[2]) == 0;
    try {
        if (what == "plain") {
            colls::world();
            std::printf("formed\n");
            return 0;
        }
        if (odd && what == "late") std::this_thread::sleep_for(std::chrono::seconds(2));
        if (odd && what == "absent") std::this_thread::sleep_for(std::chrono::seconds(20));
        if (odd && what == "gone") std::abort();
        colls::communicator first = colls::pmix::world({.timeout = what == "absent" ? 3.0 : 60.0});
        colls::communicator second = colls::pmix::world();
        const std::string own = std::to_string(first.rank());
        if (rank && own != rank) {
            std::printf("rank %s is %s\n", rank, own.c_str());
            return 1;
        }
        std::printf("%s of %d: %s\n", own.c_str(), first.size(), right(first) && right(second) ? "right" : "wrong");
        return 0;
    } catch (const colls::error& x) {
        std::printf("error %d, peer %d: %s\n", static_cast<int>(x.code()), x.peer(), x.what());
        std::fflush(stdout);
        // The launcher ends a job of which one process fails: not before the others have spoken.
        if (what == "absent") std::this_thread::sleep_for(std::chrono::seconds(3));
        return 3;
    }
}
