// Errors on purpose, and what a program did not give back.
//
// EMULATED_FAIL="cudaMalloc:3,cudaIpcOpenMemHandle:1": the third call of cudaMalloc and the first of
// cudaIpcOpenMemHandle fail, with the error that each has on a GPU. EMULATED_FAIL="cudaMalloc:3+": the third and all
// that follow. EMULATED_FAIL="cudaMalloc:3!": the process is killed there. A name that is not known ends the program,
// with status 64; a call that it does not make so often makes it end with status 96.
#include "emulator.hpp"
#include "runtime.hpp"

#include <pthread.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>

namespace emulated {

namespace {

struct fault {
    int at = 0;
    bool from_then_on = false, kills = false;
};

[[noreturn]] void refuse(const std::string& why) {
    std::fprintf(stderr, "emulated: EMULATED_FAIL: %s\n", why.c_str());
    _exit(64);
}

fault read_fault(const std::string& text, std::string_view name, std::string_view number) {
    fault f;
    if (!number.empty() && (number.back() == '+' || number.back() == '!')) {
        (number.back() == '+' ? f.from_then_on : f.kills) = true;
        number.remove_suffix(1);
    }
    const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), f.at);
    if (code != std::errc{} || end != number.data() + number.size() || f.at < 1)
        refuse("'" + text + "' is not CALL:NUMBER, CALL:NUMBER+ or CALL:NUMBER!, with a number from 1 on");
    if (std::find(std::begin(known_calls), std::end(known_calls), name) == std::end(known_calls)) {
        std::string all;
        for (const std::string_view known : known_calls) all += " " + std::string(known);
        refuse("there is no call '" + std::string(name) + "'; the calls that can fail are" + all);
    }
    return f;
}

/// Whether this process has made a call of the runtime. (Not among the books: their making reads EMULATED_FAIL, which a
/// forked child may set.)
std::atomic<bool> any_call{false};

struct books {
    std::mutex mutex;
    std::map<std::string, fault, std::less<>> faults;
    std::map<std::string, int, std::less<>> calls, live;
    books() {
        const char* const text = std::getenv("EMULATED_FAIL");
        std::istringstream in(text != nullptr ? text : "");
        for (std::string part; std::getline(in, part, ',');) {
            const std::size_t colon = part.find(':');
            const std::string name = part.substr(0, colon);
            faults[name] = read_fault(part, name, colon == part.npos ? "" : std::string_view(part).substr(colon + 1));
        }
    }
};
books& all_books() {
    static books* const b = new books;  // never destroyed: destructors of the program count too
    return *b;
}

cudaError_t usual_error(std::string_view call) {
    if (call.starts_with("cudaMalloc") || call == "cudaHostAlloc") return cudaErrorMemoryAllocation;
    if (call.starts_with("cudaLaunch")) return cudaErrorLaunchOutOfResources;
    if (call == "cudaIpcOpenMemHandle") return cudaErrorMapBufferObjectFailed;
    if (call == "cudaDeviceEnablePeerAccess") return cudaErrorPeerAccessUnsupported;
    if (call.starts_with("cudaStreamCreate") || call.starts_with("cudaEventCreate")) return cudaErrorMemoryAllocation;
    return cudaErrorUnknown;
}

/// For a process that makes calls of the runtime at all: others may set EMULATED_FAIL for their children.
bool report_unused_faults() {
    books& b = all_books();
    const std::lock_guard lock(b.mutex);
    bool any = false;
    for (const auto& [call, f] : b.faults) {
        const auto i = b.calls.find(call);
        const int calls = i == b.calls.end() ? 0 : i->second;
        if (!any_call || calls >= f.at) continue;
        std::fprintf(stderr, "emulated: EMULATED_FAIL names call %d of %s, and process %d has made %d\n", f.at,
            call.c_str(), getpid(), calls);
        any = true;
    }
    return any;
}

bool report_live() {
    books& b = all_books();
    const std::lock_guard lock(b.mutex);
    bool any = false;
    for (const auto& [kind, n] : b.live)
        if (n != 0) {
            std::fprintf(
                stderr, "emulated: at the end of process %d, not given back: %d x %s\n", getpid(), n, kind.c_str());
            any = true;
        }
    return any;
}

/// A forked child of a process that has used the runtime: every call fails there, as on a GPU.
std::atomic<bool> is_lost{false};
[[gnu::constructor(103)]] void watch_forks() {
    pthread_atfork(nullptr, nullptr, [] { is_lost = is_lost || any_call; });
}

void report() {
    if (is_lost) return;
    int status = 0;
    if (report_live() && setting("EMULATED_LEAKS", 0) != 0) status = 97;
    if (report_unused_faults()) status = 96;
    if (status == 0) return;
    std::fflush(nullptr);
    _exit(status);
}
// Registered before the program's own handlers and static objects, so that it runs after them.
[[gnu::constructor(101)]] void report_at_exit() { std::atexit(report); }
// Before main: a name that is not known is reported whatever the program does.
[[gnu::constructor(102)]] void read_faults_of_environment() { books().faults.clear(); }

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

int setting(const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::atoi(text) : otherwise;
}
double patience() { return setting("EMULATED_PATIENCE", 20); }

void stop(const std::string& why) {
    std::fprintf(stderr, "emulated: %s\n", why.c_str());
    std::fflush(nullptr);
    std::abort();
}

cudaError_t fail(cudaError_t e) {
    if (e != cudaSuccess && e != cudaErrorNotReady) last_error = e;
    return e;
}

cudaError_t injected(const char* call) {
    if (is_lost) return cudaErrorInitializationError;
    books& b = all_books();
    const std::lock_guard lock(b.mutex);
    any_call = true;
    const auto f = b.faults.find(std::string_view(call));
    if (f == b.faults.end()) return cudaSuccess;
    const int number = ++b.calls[call];
    if (number < f->second.at || (number > f->second.at && !f->second.from_then_on)) return cudaSuccess;
    if (f->second.kills) raise(SIGKILL);
    std::fprintf(stderr, "emulated: call %d of %s fails, as EMULATED_FAIL says\n", number, call);
    return usual_error(call);
}

void count_live(const char* kind, int change) {
    books& b = all_books();
    const std::lock_guard lock(b.mutex);
    b.live[kind] += change;
}

}  // namespace emulated

bool emulated_gave_all_back() { return !emulated::report_live(); }
bool emulated_made_fail() { return !emulated::report_unused_faults(); }

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(emulated::last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return emulated::last_error; }

const char* cudaGetErrorName(cudaError_t e) {
    switch (e) {
#define NAME(x) \
    case x:     \
        return #x;
        NAME(cudaSuccess)
        NAME(cudaErrorInvalidValue)
        NAME(cudaErrorMemoryAllocation)
        NAME(cudaErrorInvalidConfiguration)
        NAME(cudaErrorInvalidSymbol)
        NAME(cudaErrorInvalidMemcpyDirection)
        NAME(cudaErrorInvalidDevice)
        NAME(cudaErrorNoDevice)
        NAME(cudaErrorInsufficientDriver)
        NAME(cudaErrorInvalidDeviceFunction)
        NAME(cudaErrorInvalidResourceHandle)
        NAME(cudaErrorNotReady)
        NAME(cudaErrorLaunchOutOfResources)
        NAME(cudaErrorPeerAccessUnsupported)
        NAME(cudaErrorPeerAccessAlreadyEnabled)
        NAME(cudaErrorPeerAccessNotEnabled)
        NAME(cudaErrorCooperativeLaunchTooLarge)
        NAME(cudaErrorStreamCaptureUnsupported)
        NAME(cudaErrorStreamCaptureInvalidated)
        NAME(cudaErrorStreamCaptureImplicit)
        NAME(cudaErrorStreamCaptureUnmatched)
        NAME(cudaErrorStreamCaptureWrongThread)
        NAME(cudaErrorIllegalState)
        NAME(cudaErrorMapBufferObjectFailed)
        NAME(cudaErrorHostMemoryAlreadyRegistered)
        NAME(cudaErrorHostMemoryNotRegistered)
        NAME(cudaErrorNotSupported)
        NAME(cudaErrorUnknown)
#undef NAME
        default:
            return "an error that the emulator has no name for";
    }
}
const char* cudaGetErrorString(cudaError_t e) { return cudaGetErrorName(e); }

}  // extern "C"
