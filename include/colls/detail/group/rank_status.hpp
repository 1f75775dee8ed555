// What a rank shows of itself to other programs: `colls status` reads it while the rank goes on (status/).
// IWYU pragma: private
#pragma once

#include <colls/detail/group/group_memory.hpp>

#include <memory>

namespace colls::inline v1::detail {

/// A place in the record that the process publishes, or ordinary memory where it cannot. The rank alone writes it, by
/// plain stores, since each call does. Whatever changes here changes status::format, too (status/detail/record.hpp).
struct alignas(line) rank_status {
    enum shares : std::uint32_t { memory_of_threads, memory_of_processes, no_memory };
    std::atomic<std::uint64_t> shown;       ///< which use of this place it is, from 1; 0: nothing is to be read
    std::atomic<std::uint64_t> calls;       ///< collectives begun
    std::atomic<std::uint64_t> messages;    ///< likewise
    std::atomic<std::uint64_t> latest;      ///< of all these, as long_wait::call_in says
    std::atomic<std::uint64_t> bytes;       ///< of the buffers of all of them
    std::atomic<std::uint64_t> waits;       ///< a long wait that it is in now, as long_wait says; 0: none
    std::atomic<std::uint64_t> waits_from;  ///< in milliseconds of the monotonic clock
    std::atomic<std::uint64_t> epoch;       ///< of an elastic group; 0: another one
    std::atomic<std::uint64_t> errors;      ///< that it has had; 0 also while the text changes
    std::atomic<bool> in_call;  ///< a thread is in a call with this group: others see it where a wait lets them in
    shared_text<4> label;
    shared_text<40> error;
    // Constant while `shown` is.
    std::uint64_t group;
    std::int32_t rank, size;
    shares by;
    std::uint64_t uses;  ///< of this place, so far

    void begin_call(std::uint64_t number, std::uint64_t fingerprint, std::uint64_t n) {
        calls.store(number, std::memory_order_relaxed);
        latest.store(fingerprint >> 60, std::memory_order_relaxed);
        add_bytes(n);
    }
    void add_bytes(std::uint64_t n) {
        bytes.store(bytes.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
    void begin_message(std::uint64_t kind, std::uint64_t n) {
        messages.store(messages.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        latest.store(kind, std::memory_order_relaxed);
        add_bytes(n);
    }
    [[gnu::cold]] void add_error(const char* text) {
        const std::uint64_t before = errors.load(std::memory_order_relaxed);
        errors.store(0, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_release);  // a reader that sees new words sees the 0, too
        error.store(text);
        errors.store(before + 1, std::memory_order_release);
    }
};

/// A place for the rank of a new group; what was there is gone.
using status_place = std::unique_ptr<rank_status, void (*)(rank_status*)>;
status_place take_status();

}  // namespace colls::inline v1::detail
