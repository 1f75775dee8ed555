// Ranks as processes of a side that has no launcher of its own.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <system_error>
#include <vector>

namespace bench {

/// Calls body(rank) for ranks 0 to `ranks` - 1, each but rank 0 in a process of its own. Returns 0 where none of them
/// threw; `name` begins the messages of those that did.
template <class Body>
int run_ranks(const char* name, int ranks, Body body) {
    const auto guarded = [&](int rank) {
        try {
            body(rank);
            return 0;
        } catch (const std::exception& e) {
            std::fprintf(stderr, "%s: rank %d: %s\n", name, rank, e.what());
            return 1;
        }
    };
    const pid_t parent = getpid();
    std::vector<pid_t> others;
    for (int rank = 1; rank < ranks; ++rank) {
        const pid_t id = fork();
        if (id < 0) throw std::system_error(errno, std::generic_category(), "fork");
        if (id == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) _exit(1);  // the parent ended before prctl
            _exit(guarded(rank));
        }
        others.push_back(id);
    }
    int failed = guarded(0);
    for (const pid_t id : others) {
        int status = 0;
        if (failed) kill(id, SIGKILL);
        waitpid(id, &status, 0);
        failed |= status != 0;
    }
    return failed;
}

}  // namespace bench
