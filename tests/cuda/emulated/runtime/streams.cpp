// Streams, events, capture into graphs, and copies: what is done in which order.
//
// A stream is a host thread that does its work one piece after another. A piece may wait for work of other streams: the
// legacy stream of a device and its blocking streams wait for each other, an event lets one stream wait for another.
#include "streams.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <vector>

namespace emulated {

namespace {

struct work {
    std::function<void()> run;
    std::vector<ticket> after;
    order of_host;  ///< what the host had waited for
    std::shared_ptr<order> end = std::make_shared<order>();
};

}  // namespace

struct stream {
    int device = 0;
    unsigned long long number = 0;  ///< no other stream of the process has it
    bool blocking = true;           ///< waits for the legacy stream, and it for this one
    bool legacy = false;
    std::unique_ptr<graph> captured;  ///< not null while it is captured
    bool spoiled = false;             ///< the capture has failed
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id captured_by;

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<work> queue;
    std::uint64_t pushed = 0, done = 0;
    std::shared_ptr<const order> last_end;  ///< of what was pushed last
    bool closed = false;
};

namespace {

/// All streams, and the order in which work is given to them. Never destroyed: streams work until the process ends.
struct registry {
    std::mutex mutex;
    std::map<const void*, std::shared_ptr<stream>> streams;
    std::map<int, std::shared_ptr<stream>> legacy;  ///< by device
    std::map<const void*, std::shared_ptr<event>> events;
    std::set<stream*> captures;
};
registry& all() {
    static registry* const r = new registry;
    return *r;
}

thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

/// Not null on the thread of a stream.
thread_local order* current_work = nullptr;

void learn(const ticket& t) {
    if (!t.end) return;
    if (current_work)
        *current_work = both(*current_work, *t.end);
    else
        host_learns(*t.end);
}

void work_off(const std::shared_ptr<stream>& s) {
    order now;
    current_work = &now;
    std::unique_lock lock(s->mutex);
    for (;;) {
        s->changed.wait(lock, [&] { return !s->queue.empty() || s->closed; });
        if (s->queue.empty()) return;
        work w = std::move(s->queue.front());
        s->queue.pop_front();
        lock.unlock();
        now = both(now, w.of_host);
        for (const ticket& t : w.after) wait_for(t);
        w.run();
        *w.end = now;
        w = {};
        lock.lock();
        ++s->done;
        s->changed.notify_all();
    }
}

std::shared_ptr<stream> make_stream(int device, bool blocking, bool legacy) {
    static std::atomic<unsigned long long> made{0};
    auto s = std::make_shared<stream>();
    s->number = ++made;
    s->device = device;
    s->blocking = blocking;
    s->legacy = legacy;
    std::thread([s] { work_off(s); }).detach();
    return s;
}

/// With the registry locked: of the calling thread.
std::shared_ptr<stream> per_thread_of(int device) {
    thread_local std::map<int, std::shared_ptr<stream>> own;
    auto& s = own[device];
    if (!s) {
        s = make_stream(device, true, false);
        all().streams[s.get()] = s;
    }
    return s;
}

ticket last_of(const std::shared_ptr<stream>& s) {
    const std::lock_guard lock(s->mutex);
    return {s, s->pushed, s->last_end};
}

/// With the registry locked.
std::shared_ptr<stream> legacy_of(int device) {
    auto& s = all().legacy[device];
    if (!s) s = make_stream(device, true, true);
    return s;
}

void push(const std::shared_ptr<stream>& s, std::function<void()> run, std::vector<ticket> after, ticket* own) {
    registry& r = all();
    const std::lock_guard order(r.mutex);
    if (s->legacy) {
        for (const auto& [handle, other] : r.streams)
            if (other->blocking && other->device == s->device) after.push_back(last_of(other));
    } else if (s->blocking && r.legacy.contains(s->device)) {
        after.push_back(last_of(r.legacy[s->device]));
    }
    const std::lock_guard lock(s->mutex);
    s->queue.push_back({std::move(run), std::move(after), host_order()});
    s->last_end = s->queue.back().end;
    ++s->pushed;
    if (own != nullptr) *own = {s, s->pushed, s->last_end};
    s->changed.notify_all();
}

/// The legacy stream waits for blocking streams, which one that is captured cannot.
cudaError_t refuse_legacy(const stream& s) {
    if (!s.legacy) return cudaSuccess;
    registry& r = all();
    const std::lock_guard lock(r.mutex);
    for (stream* other : r.captures)
        if (other->blocking && other->device == s.device) {
            other->spoiled = true;
            return cudaErrorStreamCaptureImplicit;
        }
    return cudaSuccess;
}

}  // namespace

std::shared_ptr<stream> stream_of(cudaStream_t handle) {
    registry& r = all();
    const std::lock_guard lock(r.mutex);
    if (handle == nullptr || handle == cudaStreamLegacy) return legacy_of(current_device());
    if (handle == cudaStreamPerThread) return per_thread_of(current_device());
    const auto i = r.streams.find(handle);
    return i == r.streams.end() ? nullptr : i->second;
}
std::shared_ptr<event> event_of(cudaEvent_t handle) {
    registry& r = all();
    const std::lock_guard lock(r.mutex);
    const auto i = r.events.find(handle);
    return i == r.events.end() ? nullptr : i->second;
}
int device_of(const stream& s) { return s.device; }

void wait_for(const ticket& t) {
    if (!t.of) return;
    std::unique_lock lock(t.of->mutex);
    t.of->changed.wait(lock, [&] { return t.of->done >= t.number; });
    learn(t);
}
bool is_over(const ticket& t) {
    if (!t.of) return true;
    const std::lock_guard lock(t.of->mutex);
    if (t.of->done < t.number) return false;
    learn(t);
    return true;
}
order& order_of_work() { return *current_work; }

cudaError_t enqueue(cudaStream_t handle, std::function<void()> run, ticket* own) {
    const std::shared_ptr<stream> s = stream_of(handle);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (s->captured) {
        if (s->spoiled) return cudaErrorStreamCaptureInvalidated;
        s->captured->work.push_back(std::move(run));
        return cudaSuccess;
    }
    if (const cudaError_t e = refuse_legacy(*s); e != cudaSuccess) return e;
    push(s, std::move(run), {}, own);
    return cudaSuccess;
}

void wait_for_device(int device, const char* call) {
    std::vector<ticket> last;
    {
        registry& r = all();
        const std::lock_guard lock(r.mutex);
        for (const auto& [handle, s] : r.streams)
            if (s->device == device) last.push_back(last_of(s));
        if (r.legacy.contains(device)) last.push_back(last_of(r.legacy[device]));
    }
    const auto limit = std::chrono::duration<double>(patience());
    for (const ticket& t : last) {
        std::unique_lock lock(t.of->mutex);
        if (!t.of->changed.wait_for(lock, 15 * limit, [&] { return t.of->done >= t.number; })) {
            lock.unlock();
            stop(std::string(call) + " has waited for device " + std::to_string(device) + " for " +
                 std::to_string(static_cast<int>(15 * patience())) + " s; it runs " + running_kernels(device));
        }
        learn(t);
    }
}

cudaError_t forbidden_in_capture(const char*) {
    if (capture_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
    registry& r = all();
    const std::lock_guard lock(r.mutex);
    cudaError_t result = cudaSuccess;
    for (stream* s : r.captures) {
        const bool own = s->captured_by == std::this_thread::get_id() && s->mode != cudaStreamCaptureModeRelaxed;
        const bool others = s->mode == cudaStreamCaptureModeGlobal && capture_mode == cudaStreamCaptureModeGlobal;
        if (!own && !others) continue;
        s->spoiled = true;
        result = cudaErrorStreamCaptureUnsupported;
    }
    return result;
}

}  // namespace emulated

using namespace emulated;

namespace {

/// Over when all that the stream has been given so far is. An error where it is captured.
cudaError_t end_of(cudaStream_t handle, ticket& t) {
    const auto s = stream_of(handle);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (s->captured) {
        s->spoiled = true;
        return cudaErrorStreamCaptureUnsupported;
    }
    t = last_of(s);
    return cudaSuccess;
}

/// A copy: what it needs while it waits for its turn.
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
    if (bytes == 0) return cudaSuccess;
    const bool from_host = is_pageable(from), to_host = is_pageable(to);
    if (!is_memory(to, bytes) || !is_memory(from, bytes)) return cudaErrorInvalidValue;
    if ((kind == cudaMemcpyDeviceToDevice && (from_host || to_host)) || (kind == cudaMemcpyHostToDevice && to_host) ||
        (kind == cudaMemcpyDeviceToHost && from_host))
        return cudaErrorInvalidValue;
    const auto s = stream_of(handle);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (s->captured) return enqueue(handle, [=] { std::memcpy(to, from, bytes); });
    if (from_host) {  // taken before the call returns, as the runtime stages it
        auto kept =
            std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
        return enqueue(handle, [=] { std::memcpy(to, kept->data(), bytes); });
    }
    ticket t;
    const cudaError_t e = enqueue(handle, [=] { std::memmove(to, from, bytes); }, &t);
    if (e == cudaSuccess && to_host) wait_for(t);
    return e;
}

}  // namespace

extern "C" {

static cudaError_t create_stream(cudaStream_t* handle, unsigned flags) {
    if (!is_device(current_device())) return fail(cudaErrorInvalidDevice);
    const auto s = make_stream(current_device(), (flags & cudaStreamNonBlocking) == 0, false);
    registry& r = all();
    const std::lock_guard lock(r.mutex);
    r.streams[s.get()] = s;
    *handle = reinterpret_cast<cudaStream_t>(s.get());
    count_live("stream", 1);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int) {
    EMULATED_CALL("cudaStreamCreateWithPriority");
    return create_stream(s, flags);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
    EMULATED_CALL("cudaStreamCreateWithFlags");
    return create_stream(s, flags);
}
cudaError_t cudaStreamCreate(cudaStream_t* s) {
    EMULATED_CALL("cudaStreamCreate");
    return create_stream(s, cudaStreamDefault);
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    EMULATED_CALL("cudaStreamDestroy");
    if (handle == nullptr) return fail(cudaErrorInvalidResourceHandle);
    const auto s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    {
        registry& r = all();
        const std::lock_guard lock(r.mutex);
        r.captures.erase(s.get());
        r.streams.erase(handle);
    }
    const std::lock_guard lock(s->mutex);
    s->closed = true;  // it still does what it has been given
    s->changed.notify_all();
    count_live("stream", -1);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    EMULATED_CALL("cudaStreamSynchronize");
    ticket t;
    if (const cudaError_t e = end_of(handle, t); e != cudaSuccess) return fail(e);
    if (const cudaError_t e = forbidden_in_capture("cudaStreamSynchronize"); e != cudaSuccess) return fail(e);
    wait_for(t);
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
    EMULATED_CALL("cudaStreamQuery");
    ticket t;
    if (const cudaError_t e = end_of(handle, t); e != cudaSuccess) return fail(e);
    if (const cudaError_t e = forbidden_in_capture("cudaStreamQuery"); e != cudaSuccess) return fail(e);
    return is_over(t) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* d) {
    EMULATED_CALL("cudaStreamGetDevice");
    const auto s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    if (s->captured) {  // as on hardware, driver 580
        s->spoiled = true;
        return fail(cudaErrorStreamCaptureUnsupported);
    }
    *d = s->device;
    return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
    EMULATED_CALL("cudaStreamGetId");
    const auto s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    *id = s->number;
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t e, unsigned) {
    EMULATED_CALL("cudaStreamWaitEvent");
    const auto s = stream_of(handle);
    const auto what = event_of(e);
    if (!s || !what) return fail(cudaErrorInvalidResourceHandle);
    if (s->captured) stop("cudaStreamWaitEvent on a stream that is captured is not emulated");
    push(s, [] {}, {what->after}, nullptr);
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t f, void* data) {
    EMULATED_CALL("cudaLaunchHostFunc");
    return fail(enqueue(handle, [=] {
        host_learns(order_of_work());
        f(data);
    }));
}

// Capture.
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    EMULATED_CALL("cudaThreadExchangeStreamCaptureMode");
    std::swap(*mode, capture_mode);
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    EMULATED_CALL("cudaStreamBeginCapture");
    const auto s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    if (s->legacy) return fail(cudaErrorStreamCaptureUnsupported);
    if (s->captured) return fail(cudaErrorIllegalState);
    s->captured = std::make_unique<graph>();
    s->spoiled = false;
    s->mode = mode;
    s->captured_by = std::this_thread::get_id();
    registry& r = all();
    const std::lock_guard lock(r.mutex);
    r.captures.insert(s.get());
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    EMULATED_CALL("cudaStreamIsCapturing");
    const auto s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    *status = !s->captured ? cudaStreamCaptureStatusNone
              : s->spoiled ? cudaStreamCaptureStatusInvalidated
                           : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* g) {
    EMULATED_CALL("cudaStreamEndCapture");
    *g = nullptr;
    const auto s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    if (!s->captured) return fail(cudaErrorIllegalState);
    if (s->mode != cudaStreamCaptureModeRelaxed && s->captured_by != std::this_thread::get_id())
        return fail(cudaErrorStreamCaptureWrongThread);
    {
        registry& r = all();
        const std::lock_guard lock(r.mutex);
        r.captures.erase(s.get());
    }
    const std::unique_ptr<graph> made = std::move(s->captured);
    if (s->spoiled) return fail(cudaErrorStreamCaptureInvalidated);
    *g = reinterpret_cast<cudaGraph_t>(new graph(*made));
    count_live("graph", 1);
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t g, unsigned long long) {
    EMULATED_CALL("cudaGraphInstantiate");
    if (g == nullptr) return fail(cudaErrorInvalidValue);
    *exec = reinterpret_cast<cudaGraphExec_t>(new executable_graph{*reinterpret_cast<graph*>(g), {}, {}});
    count_live("executable graph", 1);
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
    EMULATED_CALL("cudaGraphLaunch");
    if (exec == nullptr) return fail(cudaErrorInvalidValue);
    auto& graph = *reinterpret_cast<executable_graph*>(exec);
    const std::lock_guard lock(graph.mutex);
    const ticket before = graph.last;
    if (const cudaError_t e = enqueue(handle, [before] { wait_for(before); }); e != cudaSuccess) return fail(e);
    for (const auto& run : graph.of.work)
        if (const cudaError_t e = enqueue(handle, run, &graph.last); e != cudaSuccess) return fail(e);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    EMULATED_CALL("cudaGraphDestroy");
    if (g == nullptr) return fail(cudaErrorInvalidValue);
    delete reinterpret_cast<graph*>(g);
    count_live("graph", -1);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    EMULATED_CALL("cudaGraphExecDestroy");
    if (exec == nullptr) return fail(cudaErrorInvalidValue);
    delete reinterpret_cast<executable_graph*>(exec);
    count_live("executable graph", -1);
    return cudaSuccess;
}

// Events.
static cudaError_t create_event(cudaEvent_t* handle) {
    const auto e = std::make_shared<event>();
    registry& r = all();
    const std::lock_guard lock(r.mutex);
    r.events[e.get()] = e;
    *handle = reinterpret_cast<cudaEvent_t>(e.get());
    count_live("event", 1);
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
    EMULATED_CALL("cudaEventCreateWithFlags");
    return create_event(e);
}
cudaError_t cudaEventCreate(cudaEvent_t* e) {
    EMULATED_CALL("cudaEventCreate");
    return create_event(e);
}
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    EMULATED_CALL("cudaEventDestroy");
    registry& r = all();
    const std::lock_guard lock(r.mutex);
    if (r.events.erase(handle) == 0) return fail(cudaErrorInvalidResourceHandle);
    count_live("event", -1);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t s) {
    EMULATED_CALL("cudaEventRecord");
    const auto e = event_of(handle);
    const auto of = stream_of(s);
    if (!e || !of) return fail(cudaErrorInvalidResourceHandle);
    if (of->captured) stop("cudaEventRecord on a stream that is captured is not emulated");
    return fail(enqueue(s, [e] { e->time = std::chrono::steady_clock::now(); }, &e->after));
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
    EMULATED_CALL("cudaEventQuery");
    const auto e = event_of(handle);
    if (!e) return fail(cudaErrorInvalidResourceHandle);
    if (const cudaError_t f = forbidden_in_capture("cudaEventQuery"); f != cudaSuccess) return fail(f);
    return is_over(e->after) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    EMULATED_CALL("cudaEventSynchronize");
    const auto e = event_of(handle);
    if (!e) return fail(cudaErrorInvalidResourceHandle);
    if (const cudaError_t f = forbidden_in_capture("cudaEventSynchronize"); f != cudaSuccess) return fail(f);
    wait_for(e->after);
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    EMULATED_CALL("cudaEventElapsedTime");
    const auto a = event_of(begin), b = event_of(end);
    if (!a || !b || !a->after.of || !b->after.of) return fail(cudaErrorInvalidResourceHandle);
    if (!is_over(a->after) || !is_over(b->after)) return fail(cudaErrorNotReady);
    *milliseconds = std::chrono::duration<float, std::milli>(b->time - a->time).count();
    return cudaSuccess;
}

// Copies.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t s) {
    EMULATED_CALL("cudaMemcpyAsync");
    return fail(copy(to, from, bytes, kind, s));
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    EMULATED_CALL("cudaMemcpy");
    if (const cudaError_t e = forbidden_in_capture("cudaMemcpy"); e != cudaSuccess) return fail(e);
    if (const cudaError_t e = copy(to, from, bytes, kind, nullptr); e != cudaSuccess) return fail(e);
    ticket t;
    if (const cudaError_t e = end_of(nullptr, t); e != cudaSuccess) return fail(e);
    wait_for(t);
    return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t s) {
    EMULATED_CALL("cudaMemcpyPeerAsync");
    return fail(copy(to, from, bytes, cudaMemcpyDefault, s));
}
static cudaError_t set_memory(void* at, int value, std::size_t bytes, cudaStream_t s) {
    if (bytes == 0) return cudaSuccess;
    if (is_pageable(at) || !is_memory(at, bytes)) return fail(cudaErrorInvalidValue);
    return fail(enqueue(s, [=] { std::memset(at, value, bytes); }));
}
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t s) {
    EMULATED_CALL("cudaMemsetAsync");
    return set_memory(at, value, bytes, s);
}
cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
    EMULATED_CALL("cudaMemset");
    return set_memory(at, value, bytes, nullptr);
}
cudaError_t cudaMemcpyToSymbol(
    const void* symbol, const void* from, std::size_t bytes, std::size_t offset, cudaMemcpyKind kind) {
    EMULATED_CALL("cudaMemcpyToSymbol");
    void* at = nullptr;
    if (const cudaError_t e = cudaGetSymbolAddress(&at, symbol); e != cudaSuccess) return e;
    return cudaMemcpy(static_cast<char*>(at) + offset, from, bytes, kind);
}
cudaError_t cudaMemcpyFromSymbol(
    void* to, const void* symbol, std::size_t bytes, std::size_t offset, cudaMemcpyKind kind) {
    EMULATED_CALL("cudaMemcpyFromSymbol");
    void* at = nullptr;
    if (const cudaError_t e = cudaGetSymbolAddress(&at, symbol); e != cudaSuccess) return e;
    return cudaMemcpy(to, static_cast<char*>(at) + offset, bytes, kind);
}

}  // extern "C"
