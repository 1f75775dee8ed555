// What is behind handles. A handle is no address: it has a kind, a place in a table, and the number of times that the
// place was taken and given back. So one that was freed, or never was one, is found without touching memory that may be
// gone.
#pragma once

#include "failure.hpp"

#include <colls/communicator.hpp>
#include <colls/dynamic.hpp>
#include <colls/operation.hpp>

#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace colls_c {

enum class handle_kind : unsigned { comm = 1, request, plan, layout, op };
constexpr const char* name_of(handle_kind k) {
    constexpr const char* names[] = {"no handle", "a communicator", "a request", "a plan", "a layout", "an operator"};
    const auto i = static_cast<unsigned>(k);
    return i < sizeof names / sizeof *names ? names[i] : names[0];
}

/// Objects of one kind by handle. Looking one up takes no lock. Bits of a handle: 4 of kind, 28 of turn, 32 of place.
template <class T, handle_kind kind>
class handle_table {
public:
    /// Never destroyed: at the end of a program, the library that its communicators need may have ended before.
    static handle_table& all() {
        static handle_table& table = *new handle_table;
        return table;
    }

    std::uint64_t put(T&& value) {
        const std::lock_guard lock(mutex_);
        if (free_.empty()) {
            // Makes room for one more to be freed, so that `drop` need not allocate.
            free_.reserve(size_ + 1);
            std::atomic<slot*>& chunk = chunk_of(size_);
            if (chunk.load(std::memory_order_relaxed) == nullptr)
                chunk.store(new slot[chunk_size(size_)], std::memory_order_release);
            free_.push_back(size_++);
        }
        const std::uint32_t at = free_.back();
        slot& s = place(at);
        s.value.emplace(std::move(value));
        free_.pop_back();
        const std::uint32_t turn = (s.turn.load(std::memory_order_relaxed) + 1) & most_turns;
        s.turn.store(turn, std::memory_order_release);
        return static_cast<std::uint64_t>(kind) << 60 | static_cast<std::uint64_t>(turn) << 32 | at;
    }
    /// Null where it is not in use.
    T* find(std::uint64_t handle) {
        slot* const s = slot_of(handle);
        return s ? &*s->value : nullptr;
    }
    void drop(std::uint64_t handle) {
        slot* const s = slot_of(handle);
        if (s == nullptr) return;
        s->turn.store((s->turn.load(std::memory_order_relaxed) + 1) & most_turns, std::memory_order_release);
        s->value.reset();  // may wait for other ranks
        const std::lock_guard lock(mutex_);
        free_.push_back(static_cast<std::uint32_t>(handle));
    }
    /// Refuses the handle, in words.
    [[noreturn]] static void refuse_handle(const char* function, std::uint64_t handle) {
        error_text text;
        const auto other = static_cast<handle_kind>(handle >> 60);
        const char* const own = name_of(kind);
        if (handle == 0)
            text << own << " is needed, and the handle is NULL";
        else if (other == kind)
            text << "the handle is of " << own << " that was freed, or is over";
        else
            text << own << " is needed, and the handle is of " << name_of(other);
        refuse(function, text << ": pass what a function of colls.h has made", COLLS_INVALID_HANDLE);
    }
    T& get(const char* function, std::uint64_t handle) {
        if (T* const found = find(handle)) return *found;
        refuse_handle(function, handle);
    }

private:
    struct slot {
        std::atomic<std::uint32_t> turn = 0;  // odd: in use
        std::optional<T> value;
    };
    static constexpr std::uint32_t most_turns = (1U << 28) - 1, first_chunk = 64;

    // Chunk i has twice as many places as the one before, and none ever moves.
    static unsigned chunk_number(std::uint32_t at) {
        return static_cast<unsigned>(std::bit_width(at + std::uint64_t{first_chunk})) - 7;
    }
    static std::uint32_t chunk_size(std::uint32_t at) { return first_chunk << chunk_number(at); }
    std::atomic<slot*>& chunk_of(std::uint32_t at) { return chunks_[chunk_number(at)]; }
    slot& place(std::uint32_t at) {
        return chunk_of(at).load(std::memory_order_acquire)[at + first_chunk - chunk_size(at)];
    }
    slot* slot_of(std::uint64_t handle) {
        const auto at = static_cast<std::uint32_t>(handle);
        const auto turn = static_cast<std::uint32_t>(handle >> 32) & most_turns;
        if (handle >> 60 != static_cast<std::uint64_t>(kind) || turn % 2 == 0 ||
            chunk_number(at) >= sizeof chunks_ / sizeof *chunks_ || chunk_of(at) == nullptr)
            return nullptr;
        slot& s = place(at);
        return s.turn.load(std::memory_order_acquire) == turn ? &s : nullptr;
    }

    std::mutex mutex_;
    std::atomic<slot*> chunks_[24] = {};
    std::vector<std::uint32_t> free_;
    std::uint32_t size_ = 0;
};

using comms = handle_table<colls::communicator, handle_kind::comm>;
using requests = handle_table<colls::operation, handle_kind::request>;
using plans = handle_table<colls::plan, handle_kind::plan>;
using layouts = handle_table<colls::dynamic::data_layout, handle_kind::layout>;
using ops = handle_table<colls::dynamic::reduction, handle_kind::op>;

/// The table of a handle's type.
template <class Handle>
struct table_of;
template <>
struct table_of<colls_comm> : std::type_identity<comms> {};
template <>
struct table_of<colls_request> : std::type_identity<requests> {};
template <>
struct table_of<colls_plan> : std::type_identity<plans> {};
template <>
struct table_of<colls_layout> : std::type_identity<layouts> {};

template <class Handle>
auto& object_of(const char* function, Handle handle) {
    return table_of<Handle>::type::all().get(function, reinterpret_cast<std::uint64_t>(handle));
}
/// The handle of a new object.
template <class Handle, class T>
Handle handle_of(T&& object) {
    return reinterpret_cast<Handle>(table_of<Handle>::type::all().put(std::move(object)));
}
/// `*result` becomes the handle of what `make` returns.
template <class Handle, class F>
colls_status made(const char* function, Handle* result, const F& make) noexcept {
    return guarded(function, [&] {
        need(function, result, "for the result");
        *result = handle_of<Handle>(make());
    });
}
/// Frees a handle and sets it to none.
template <class Handle>
void drop(Handle& handle) {
    const auto number = reinterpret_cast<std::uint64_t>(handle);
    handle = nullptr;
    table_of<Handle>::type::all().drop(number);
}
template <class Handle>
colls_status freed(const char* function, Handle* handle) noexcept {
    return guarded(function, [&] {
        need(function, handle, "of the handle");
        if (*handle == nullptr) return;
        object_of(function, *handle);
        drop(*handle);
    });
}

}  // namespace colls_c
