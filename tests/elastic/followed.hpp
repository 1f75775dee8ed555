// A process that another one follows from system call to system call, and kills or stops at one of them.
#pragma once

#if defined(__x86_64__)
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace gathered {

/// Seen by the parent: what it looks at begins, or ends.
inline void mark() { syscall(SYS_getpgid, 0); }
/// The parent calls follow.
inline void be_followed() {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    mark();
}

struct followed {
    int calls = 0;            ///< between the marks
    bool is_stopped = false;  ///< in one of them
};
/// Kills the child at its system call number `at` between the marks (0: it lives), or leaves it stopped there.
inline followed follow(pid_t child, int at, bool stops) {
    followed f;
    int status = 0, marks = 0;
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    bool entry = false;
    for (int signal = 0; marks < 2;) {
        ptrace(PTRACE_SYSCALL, child, nullptr, signal);
        if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return f;
        signal = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
        if (signal != 0) continue;
        entry = !entry;
        if (!entry) continue;
        user_regs_struct now{};
        ptrace(PTRACE_GETREGS, child, nullptr, &now);
        if (now.orig_rax == SYS_getpgid)
            ++marks;
        else if (marks == 1 && ++f.calls == at && stops)
            return f.is_stopped = true, f;  // it is stopped as long as it is not told to go on
        else if (marks == 1 && f.calls == at)
            kill(child, SIGKILL);
    }
    ptrace(PTRACE_DETACH, child, nullptr, nullptr);
    return f;
}

}  // namespace gathered
#endif
