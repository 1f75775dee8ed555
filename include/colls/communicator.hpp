// One rank's end of a group, whatever the transport.
#pragma once

#include <colls/operation.hpp>

#include <type_traits>

namespace colls::inline v1 {

/// Memory for `size()` elements, uninitialised, aligned to 128 bytes, that the group's ranks can reach: see
/// communicator::allocate.
template <class T>
class memory {
    static_assert(std::is_trivially_copyable_v<T>, "colls: elements must be trivially copyable");

public:
    memory(detail::rank_context& from, std::size_t count) : size_(count) {
        std::byte* at = nullptr;
        from_ = detail::allocate(from, count, sizeof(T), at);
        data_ = reinterpret_cast<T*>(at);
    }
    memory(memory&& other) noexcept : from_(other.from_), data_(other.data_), size_(other.size_) {
        other.from_ = nullptr;
    }
    memory& operator=(memory&& other) noexcept {
        detail::allocation* const from = from_;
        T* const data = data_;
        const std::size_t size = size_;
        from_ = other.from_, data_ = other.data_, size_ = other.size_;
        other.from_ = from, other.data_ = data, other.size_ = size;
        return *this;
    }
    ~memory() {
        if (from_) detail::deallocate(from_);
    }

    T* data() { return data_; }
    const T* data() const { return data_; }
    std::size_t size() const { return size_; }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }
    T* begin() { return data_; }
    T* end() { return data_ + size_; }
    const T* begin() const { return data_; }
    const T* end() const { return data_ + size_; }

private:
    detail::allocation* from_ = nullptr;  // moved from: null
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/// One rank's end of a group. Used by one thread at a time. All members make the same calls on it in the same order.
/// Operations, plans and progress threads hold the group, so that a communicator may be replaced or destroyed before
/// them; the rank leaves the group with the last of them.
class communicator {
public:
    /// Of no group: size() is 0.
    communicator() = default;
    /// For the library: holds the end, which it deletes when it leaves the group.
    communicator(detail::rank_context* end, int rank, int size) : end_(end), rank_(rank), size_(size) {}
    communicator(communicator&& other) noexcept { take(other); }
    communicator& operator=(communicator&& other) noexcept {
        if (this != &other) {
            leave();
            take(other);
        }
        return *this;
    }
    ~communicator() { leave(); }

    int rank() const { return rank_; }
    int size() const { return size_; }

    /// Collective: the ranks of equal `color` form a group, ordered by `key`, then by rank. A negative color joins
    /// none, and gets a communicator of size 0. Two rounds of small messages. Throws colls::error.
    communicator split(int color, int key) { return detail::split(context(), color, key); }

    /// After an error: the ranks that still call, as a group of its own, in their order; for all of them the same one.
    /// It ends this group: calls on it throw. A rank that does not come within the deadline, dead or not, is left out,
    /// and gets an error if it comes later. Throws colls::error.
    communicator shrink() { return detail::shrink(context()); }

    /// Breaks the group: the current and the next call on it throw peer_failed on every rank, with a text that holds
    /// `why`, and this rank as peer(). Not collective. Where the group is broken already, nothing happens. `shrink`
    /// goes on from there. Throws invalid_argument where there is no group.
    void abort(std::string_view why) { detail::abort_group(context(), why); }

    /// Memory that the transport can move fastest. Not collective. It may outlive the communicator. Throws
    /// std::bad_alloc, also where count elements are more bytes than there can be.
    template <class T>
    colls::memory<T> allocate(std::size_t count) {
        return {context(), count};
    }

    /// For the library: the end itself. Throws invalid_argument where there is no group.
    detail::rank_context& context() {
        if (!end_) detail::throw_no_group();
        return *end_;
    }

private:
    void take(communicator& other) {
        end_ = other.end_;
        rank_ = other.rank_;
        size_ = other.size_;
        other.end_ = nullptr;
        other.rank_ = none;
        other.size_ = 0;
    }
    void leave() {
        if (end_) detail::leave_group(end_);
        end_ = nullptr;
    }
    detail::rank_context* end_ = nullptr;
    int rank_ = none, size_ = 0;
};

/// Prints where every rank of the group stands, as far as this one can see, to stderr: who is in which call, in which
/// round, and who waits for whom. The same is printed by a rank that waits when its process gets SIGUSR1, in a world or
/// run of processes.
inline void dump(communicator& comm) { detail::dump(comm.context()); }

/// A second thread that brings started operations forward while the rank computes: of this communicator, and of all
/// that were or will be split from it. It takes turns with the rank's own calls. One at a time; it holds the group, as
/// an operation does.
class progress_thread {
public:
    explicit progress_thread(communicator& comm) : helper_(detail::start_helper(comm.context())) {}
    progress_thread(const progress_thread&) = delete;
    progress_thread& operator=(const progress_thread&) = delete;
    ~progress_thread() { detail::stop_helper(helper_); }

private:
    detail::helper* helper_;
};

}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/detail/call/engine.hpp>
#endif
