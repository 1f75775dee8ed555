// Counts memory, descriptors, mappings and files over many groups: 2,000 splits in one process, 500 groups of processes
// and 500 that fail. Prints the figures, and fails where one grows. Not part of the suite: build target colls_leaks,
// then
//     build/test/tests/leaks
#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

/// What a process holds.
struct held {
    long memory_kb = 0, descriptors = 0, mappings = 0, files = 0;

    static held now() {
        held h;
        std::ifstream status("/proc/self/status");
        for (std::string line; std::getline(status, line);)
            if (line.starts_with("VmRSS:")) h.memory_kb = std::atol(line.c_str() + 6);
        h.descriptors = std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
        std::ifstream maps("/proc/self/maps");
        for (std::string line; std::getline(maps, line);) ++h.mappings;
        h.files = std::distance(fs::directory_iterator("/dev/shm"), fs::directory_iterator());
        return h;
    }
};
/// Whether more is held at the end than after the first tenth. Memory may vary by 2 MB, mappings by two.
bool grew(const char* what, const held& from, const held& to) {
    const bool leaks = to.memory_kb > from.memory_kb + 2048 || to.descriptors > from.descriptors ||
                       to.mappings > from.mappings + 2 || to.files > from.files;
    std::printf("%-34s memory %6ld -> %6ld KB, descriptors %ld -> %ld, mappings %ld -> %ld, /dev/shm %ld -> %ld%s\n",
        what, from.memory_kb, to.memory_kb, from.descriptors, to.descriptors, from.mappings, to.mappings, from.files,
        to.files, leaks ? "  LEAKS" : "");
    std::fflush(stdout);
    return leaks;
}

bool splits(const char* what, int count, colls::communicator& comm) {
    held early;
    std::vector<int> x(2000, 1);
    for (int i = 0; i < count; ++i) {
        if (i == count / 10) early = held::now();
        colls::communicator part = comm.split(comm.rank() % 2, i % 3 - comm.rank());
        auto plan = colls::prepare::all_reduce(part, x, colls::max);
        plan.run();
        auto started = plan.start();
        colls::memory<int> memory = part.allocate<int>(1000);
        part = {};
        started.wait();
    }
    colls::barrier(comm);
    return comm.rank() == 0 && grew(what, early, held::now());
}

}  // namespace

int main() {
    int leaks = 0;
    colls::threads::run(4, [&](colls::communicator& comm) { leaks += splits("2000 splits, threads", 2000, comm); });
    for (const char* transport : {"shm", "tcp"}) {
        setenv("COLLS_TRANSPORT", transport, 1);
        const std::string over = std::string(", ") + transport;
        try {
            colls::processes::run(4, [&](colls::communicator& comm) {
                if (splits(("2000 splits" + over).c_str(), 2000, comm)) throw std::runtime_error("leaks");
            });
        } catch (const std::exception& e) {
            std::printf("%s\n", e.what());
            ++leaks;
        }
        for (const bool fails : {false, true}) {
            held early;
            for (int i = 0; i < 500; ++i) {
                if (i == 50) early = held::now();
                try {
                    colls::processes::run(3, [&](colls::communicator& comm) {
                        std::vector<int> x(100, 1);
                        colls::all_reduce(comm, x, colls::sum);
                        if (fails && comm.rank() == i % 3) raise(SIGKILL);
                        colls::all_reduce(comm, x, colls::sum);
                        colls::barrier(comm);
                    });
                } catch (const colls::error&) {}
            }
            leaks +=
                grew(((fails ? "500 groups that fail" : "500 groups of processes") + over).c_str(), early, held::now());
        }
        unsetenv("COLLS_TRANSPORT");
    }
    held early;
    for (int i = 0; i < 500; ++i) {
        if (i == 50) early = held::now();
        try {
            colls::threads::run(3, [&](colls::communicator& comm) {
                std::vector<int> x(100, 1);
                colls::all_reduce(comm, x, colls::sum);
                if (comm.rank() == i % 3) throw std::runtime_error("fails");
                for (;;) colls::all_reduce(comm, x, colls::sum);
            });
        } catch (const std::exception&) {}
    }
    leaks += grew("500 groups that fail, threads", early, held::now());
    return leaks == 0 ? 0 : 1;
}
