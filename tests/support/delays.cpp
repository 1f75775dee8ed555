// A library to be preloaded (scripts/test --delays): now and then a program of a test waits for up to 40 ms before or
// after a call of the system. What depends on the order of events, without waiting for it, then fails soon.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <ctime>

namespace {

thread_local std::uint64_t drawn = 0;  // 0: not yet seeded

std::uint64_t draw() {
    if (drawn == 0) {
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC, &now);
        drawn = (static_cast<std::uint64_t>(now.tv_nsec) << 32 | static_cast<std::uint64_t>(syscall(SYS_gettid))) *
                    0x9e3779b97f4a7c15ull |
                1;
    }
    drawn ^= drawn << 13, drawn ^= drawn >> 7, drawn ^= drawn << 17;
    return drawn;
}
/// Waits in so many of 10,000 calls.
void delay(unsigned often) {
    if (draw() % 10'000 >= often) return;
    const int kept = errno;
    const timespec time{0, static_cast<long>(draw() % 40'000'000)};
    syscall(SYS_nanosleep, &time, nullptr);
    errno = kept;
}
template <class R, class... A>
auto real(const char* name, R (*)(A...)) {
    return reinterpret_cast<R (*)(A...)>(dlsym(RTLD_NEXT, name));
}

constexpr unsigned rarely = 60, often = 2'000;

}  // namespace

#define DELAYED(often, result, name, parameters, arguments) \
    extern "C" result name parameters {                     \
        static const auto call = real(#name, &name);        \
        delay(often);                                       \
        result r = call arguments;                          \
        delay(often);                                       \
        return r;                                           \
    }

DELAYED(often, int, kill, (pid_t p, int s) noexcept, (p, s))
DELAYED(often, int, raise, (int s) noexcept, (s))
DELAYED(often, pid_t, waitpid, (pid_t p, int* s, int o), (p, s, o))
DELAYED(often, int, connect, (int f, const sockaddr* a, socklen_t n), (f, a, n))
DELAYED(often, int, accept, (int f, sockaddr* a, socklen_t* n), (f, a, n))
DELAYED(often, int, accept4, (int f, sockaddr* a, socklen_t* n, int o), (f, a, n, o))
DELAYED(often, int, bind, (int f, const sockaddr* a, socklen_t n) noexcept, (f, a, n))
DELAYED(often, int, listen, (int f, int n) noexcept, (f, n))
DELAYED(often, int, unlink, (const char* p) noexcept, (p))
DELAYED(often, int, rename, (const char* p, const char* q) noexcept, (p, q))
DELAYED(often, int, shm_open, (const char* p, int o, mode_t m), (p, o, m))
DELAYED(often, int, shm_unlink, (const char* p), (p))
DELAYED(often, int, pthread_join, (pthread_t t, void** to), (t, to))
DELAYED(rarely, int, close, (int f), (f))
DELAYED(rarely, int, munmap, (void* p, std::size_t n) noexcept, (p, n))
DELAYED(rarely, ssize_t, send, (int f, const void* p, std::size_t n, int o), (f, p, n, o))
DELAYED(rarely, ssize_t, recv, (int f, void* p, std::size_t n, int o), (f, p, n, o))
DELAYED(rarely, ssize_t, sendmsg, (int f, const msghdr* m, int o), (f, m, o))
DELAYED(rarely, ssize_t, recvmsg, (int f, msghdr* m, int o), (f, m, o))

extern "C" pid_t fork() noexcept {
    static const auto call = real("fork", &fork);
    delay(often);
    const pid_t child = call();
    if (child == 0) drawn = 0;  // it draws others than its parent
    delay(often);
    return child;
}
extern "C" void _exit(int status) {
    delay(often);
    syscall(SYS_exit_group, status);
    __builtin_unreachable();
}
