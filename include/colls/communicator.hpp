// class communicator: one rank's membership in a group, whatever the transport.
#pragma once

#include <colls/detail/perform/interface.hpp>
#include <colls/detail/support/element.hpp>
#include <colls/operation.hpp>

#include <cstddef>
#include <string_view>
#include <utility>

namespace colls::inline v1 {

/// A buffer of `size()` elements from communicator::allocate, aligned to 128 bytes and not initialised. Where ranks
/// share memory or use RDMA, all of them can reach it, so that calls move its data without a copy in between.
template <class T>
class memory {
    static_assert(detail::copies_as_bytes<T>(), "colls: elements must be trivially copyable");

public:
    /// As communicator::allocate, whose handle this takes.
    memory(const detail::rank_handle& from, std::size_t count) : size_(count) {
        std::byte* at = nullptr;
        from_ = from.by->allocate(*from.self, count, sizeof(T), at);
        data_ = reinterpret_cast<T*>(at);
    }
    memory(memory&& other) noexcept
        : from_(std::exchange(other.from_, nullptr)), data_(other.data_), size_(other.size_) {}
    /// Swaps the two.
    memory& operator=(memory&& other) noexcept {
        std::swap(from_, other.from_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~memory() {
        if (from_) from_->end();
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
    detail::held_by_program* from_ = nullptr;  // null where it was moved from
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/// One rank's membership in a group of ranks: what every call takes. A transport makes it (threads::run,
/// processes::run, world, ...), or split and shrink of another one.
///
/// One thread at a time uses it; other threads of the rank may use groups that were split from it, each its own. Two
/// threads in calls with one group break it, with invalid_argument, where the first of them waits. All ranks of the
/// group make the same collective calls on it in the same order. Operations, plans and progress threads hold the group,
/// so the communicator may be destroyed or assigned to before them; the rank leaves the group when the last of all
/// these is destroyed.
class communicator {
public:
    /// A communicator without a group: size() is 0, rank() is `none`, and every call on it throws invalid_argument.
    communicator() = default;
    /// For the library: takes over the rank context.
    explicit communicator(const detail::joined_group& g) : handle_(g.handle), rank_(g.rank), size_(g.size) {}
    communicator(communicator&& other) noexcept { swap(other); }
    communicator& operator=(communicator other) noexcept {
        swap(other);
        return *this;
    }
    ~communicator() {
        if (handle_.self) handle_.by->leave_group(*handle_.self);
    }

    /// This rank, from 0 to size() - 1.
    int rank() const { return rank_; }
    /// The number of ranks in the group.
    int size() const { return size_; }

    /// Divides the group. Collective: ranks that give the same `color` form a new group, in which they are ordered by
    /// `key`, then by their rank here. A negative color joins none: that rank gets a communicator of no group. Two
    /// rounds of 56 bytes a rank at most. Throws colls::error.
    communicator split(int color, int key) { return communicator(handle().by->split(context(), color, key)); }

    /// Continues after an error: returns a group of the ranks that still call it, in their order here, the same group
    /// for all of them. Collective among these. This group ends: calls on it throw. A rank that does not call shrink
    /// within the deadline, failed or not, is left out, and gets an error if it does so later. Throws colls::error.
    communicator shrink() { return communicator(handle().by->shrink(context())); }

    /// Breaks the group: the current and the next call on it throw peer_failed on every rank, with a text that quotes
    /// `why`, and this rank as error::peer(). Not collective. Does nothing where the group is broken already. The ranks
    /// may continue by shrink(). Any thread may call it, also while another one is in a call with the group. Throws
    /// invalid_argument where there is no group.
    void abort(std::string_view why) { handle().by->abort_group(context(), why); }

    /// From now on this group and those that are split from it, directly or not, break together: a rank that waits in
    /// one of them hears within 100 ms that another one is broken, also where it is not a member of that one. Call it
    /// on every rank, before the splits. What shrink returns is tied to none. Throws invalid_argument where there is no
    /// group.
    void tie_parts() { handle().by->tie_parts(context()); }

    /// Sets the deadline of this rank's waits in calls on this communicator, and on those split from it later, instead
    /// of COLLS_TIMEOUT: a std::chrono::duration above 0. Duration::max() means no deadline: a rank then waits for ever
    /// for one that does not come; one that dies is found as before. Not collective. Throws invalid_argument where the
    /// duration is not above 0, or there is no group.
    template <class Duration>
    void set_timeout(Duration duration) {
        using period = typename Duration::period;
        const double seconds =
            static_cast<double>(duration.count()) * static_cast<double>(period::num) / static_cast<double>(period::den);
        handle().by->set_timeout(context(), seconds, duration == Duration::max());
    }

    /// Memory for `count` elements that the transport can move fastest: see class memory. Not collective. It may
    /// outlive the communicator. Throws std::bad_alloc, also where count elements are more bytes than an address space
    /// holds, and invalid_argument where there is no group.
    template <class T>
    colls::memory<T> allocate(std::size_t count) {
        return {handle(), count};
    }

    /// For the library. Throws invalid_argument where there is no group.
    const detail::rank_handle& handle() const {
        if (!handle_.self) detail::throw_no_group();
        return handle_;
    }
    /// For the library. Throws invalid_argument where there is no group.
    detail::rank_context& context() { return *handle().self; }

private:
    void swap(communicator& other) {
        std::swap(handle_, other.handle_);
        std::swap(rank_, other.rank_);
        std::swap(size_, other.size_);
    }
    detail::rank_handle handle_;
    int rank_ = none, size_ = 0;
};

/// Prints to stderr where every rank of the group is, as far as this one can see: in which call and round, and which
/// rank it waits for, and this rank's latest 64 calls. Not collective; over messages it takes 0.2 s, in which ranks
/// that wait answer. A waiting rank prints the same when its process gets SIGUSR1, where ranks are processes.
inline void dump(communicator& comm) { comm.handle().by->dump(comm.context()); }

/// A second thread that advances the started operations of a communicator, and of all that were or will be split from
/// it, from its construction to its destruction, where no call of the rank does. One such
/// thread at a time; it holds the group, as an operation does.
class progress_thread {
public:
    /// Throws colls::error with invalid_argument where the communicator has no group, or a progress_thread serves it
    /// already; std::system_error where the thread cannot be started.
    explicit progress_thread(communicator& comm) : worker_(comm.handle().by->start_progress(comm.context())) {}
    progress_thread(const progress_thread&) = delete;
    progress_thread& operator=(const progress_thread&) = delete;
    ~progress_thread() { worker_->end(); }

private:
    detail::held_by_program* worker_;
};

}  // namespace colls::inline v1
