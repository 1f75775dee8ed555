// Errors on purpose, and what a program did not give back.
//
// PLAYED_FAIL="cudaMalloc:3,cudaIpcOpenMemHandle:1": the third call of cudaMalloc and the first of cudaIpcOpenMemHandle
// fail, with the error that each has on a GPU. PLAYED_FAIL="cudaMalloc:3+": the third and all that follow.
#include "runtime.hpp"

#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>

namespace played {

namespace {

struct fault {
    int at = 0;
    bool from_then_on = false;
};

struct books {
    std::mutex mutex;
    std::map<std::string, fault, std::less<>> faults;
    std::map<std::string, int, std::less<>> calls, live;
    books() {
        const char* const text = std::getenv("PLAYED_FAIL");
        std::istringstream in(text != nullptr ? text : "");
        for (std::string part; std::getline(in, part, ',');) {
            const std::size_t colon = part.find(':');
            if (colon == part.npos) stop("PLAYED_FAIL: '" + part + "' is not CALL:NUMBER");
            faults[part.substr(0, colon)] = {std::atoi(part.c_str() + colon + 1), part.back() == '+'};
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

void report_live() {
    books& b = all_books();
    const std::lock_guard lock(b.mutex);
    bool any = false;
    for (const auto& [kind, n] : b.live)
        if (n != 0) {
            std::fprintf(
                stderr, "played: at the end of process %d, not given back: %d x %s\n", getpid(), n, kind.c_str());
            any = true;
        }
    if (any && setting("PLAYED_LEAKS", 0) != 0) {
        std::fflush(nullptr);
        _exit(97);
    }
}
// Registered before the program's own handlers and static objects, so that it runs after them.
[[gnu::constructor(101)]] void report_at_exit() { std::atexit(report_live); }

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

int setting(const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::atoi(text) : otherwise;
}
double patience() { return setting("PLAYED_PATIENCE", 20); }

void stop(const std::string& why) {
    std::fprintf(stderr, "played: %s\n", why.c_str());
    std::fflush(nullptr);
    std::abort();
}

cudaError_t fail(cudaError_t e) {
    if (e != cudaSuccess && e != cudaErrorNotReady) last_error = e;
    return e;
}

cudaError_t injected(const char* call) {
    books& b = all_books();
    const std::lock_guard lock(b.mutex);
    const auto f = b.faults.find(std::string_view(call));
    if (f == b.faults.end()) return cudaSuccess;
    const int number = ++b.calls[call];
    if (number < f->second.at || (number > f->second.at && !f->second.from_then_on)) return cudaSuccess;
    std::fprintf(stderr, "played: call %d of %s fails, as PLAYED_FAIL says\n", number, call);
    return usual_error(call);
}

void count_live(const char* kind, int change) {
    books& b = all_books();
    const std::lock_guard lock(b.mutex);
    b.live[kind] += change;
}

}  // namespace played

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(played::last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return played::last_error; }

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
        NAME(cudaErrorIllegalState)
        NAME(cudaErrorMapBufferObjectFailed)
        NAME(cudaErrorHostMemoryAlreadyRegistered)
        NAME(cudaErrorHostMemoryNotRegistered)
        NAME(cudaErrorNotSupported)
        NAME(cudaErrorUnknown)
#undef NAME
        default:
            return "an error that the player has no name for";
    }
}
const char* cudaGetErrorString(cudaError_t e) { return cudaGetErrorName(e); }

}  // extern "C"
