// One rank's end of a group, whatever the transport.
#pragma once

#include <colls/perform.hpp>
#ifndef COLLS_SEPARATE
#include <colls/engine.hpp>
#endif

#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>

namespace colls::inline v1 {

/// Memory for `size()` elements, uninitialised, aligned to 128 bytes, that the group's ranks can reach: see
/// communicator::allocate.
template <class T>
class memory {
    static_assert(std::is_trivially_copyable_v<T>, "colls: elements must be trivially copyable");

public:
    memory(detail::shared_link from, std::size_t count)
        : from_(static_cast<detail::shared_link&&>(from)), data_(reinterpret_cast<T*>(from_->take(count * sizeof(T)))), size_(count) {}
    memory(memory&& other) noexcept = default;
    memory& operator=(memory&& other) noexcept {
        from_.swap(other.from_);
        T* const data = data_;
        const std::size_t size = size_;
        data_ = other.data_, size_ = other.size_;
        other.data_ = data, other.size_ = size;
        return *this;
    }
    ~memory() {
        if (from_) from_->give(reinterpret_cast<std::byte*>(data_), size_ * sizeof(T));
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
    detail::shared_link from_;   // moved from: null
    T* data_;
    std::size_t size_;
};

/// One rank's end of a group. Used by one thread at a time. All members make the same calls on it in the same order.
class communicator {
public:
    /// Of no group: size() is 0.
    communicator() = default;
    explicit communicator(std::unique_ptr<detail::endpoint> end)
        : end_(static_cast<std::unique_ptr<detail::endpoint>&&>(end)), rank_(end_->rank), size_(end_->size) {}
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
    communicator split(int color, int key) {
        std::unique_ptr<detail::endpoint> part = detail::split(endpoint(), color, key);
        return part ? communicator(static_cast<std::unique_ptr<detail::endpoint>&&>(part)) : communicator();
    }

    /// After an error: the ranks that still call, as a group of its own, in their order; for all of them the same one. It ends
    /// this group: calls on it throw. A rank that does not come within the deadline, dead or not, is left out, and gets an
    /// error if it comes later. Throws colls::error.
    communicator shrink() { return communicator(detail::shrink(endpoint())); }

    /// Memory that the transport can move fastest. Not collective. It may outlive the communicator. Throws std::bad_alloc.
    template <class T>
    colls::memory<T> allocate(std::size_t count) {
        return {endpoint().via, count};
    }

    /// For the library: the end itself. Throws invalid_argument where there is no group.
    detail::endpoint& endpoint() {
        if (!end_) detail::throw_no_group();
        return *end_;
    }

private:
    void take(communicator& other) {
        end_ = static_cast<std::unique_ptr<detail::endpoint>&&>(other.end_);
        rank_ = other.rank_;
        size_ = other.size_;
        other.rank_ = none;
        other.size_ = 0;
    }
    void leave() {
        if (!end_) return;
        const detail::turn mine(*end_);
        // Release: all that this rank did for the others is done.
        end_->memory.state(end_->rank).gone.store(1, std::memory_order_release);
        end_->via->close();
        end_.reset();
    }
    std::unique_ptr<detail::endpoint> end_;
    int rank_ = none, size_ = 0;
};

/// Prints where every rank of the group stands, as far as this one can see, to stderr: who is in which call, in which round,
/// and who waits for whom. The same is printed by a rank that waits when its process gets SIGUSR1, in a world or run of
/// processes.
inline void dump(communicator& comm) { detail::print_dump(comm.endpoint(), nullptr); }

/// A second thread that brings started operations forward while the rank computes: of this communicator, and of all that
/// were or will be split from it. It takes turns with the rank's own calls. It goes before the communicators do.
class progress_thread {
public:
    explicit progress_thread(communicator& comm) : e_(&comm.endpoint()) {
        detail::share(*e_, &mutex_);
        thread_ = std::thread([this] {
            while (!over_.load(std::memory_order_relaxed))
                if (detail::progress_in_turn(*e_)) {
                    sched_yield();
                } else {
                    const timespec nap{0, 100'000};
                    nanosleep(&nap, nullptr);
                }
        });
    }
    progress_thread(const progress_thread&) = delete;
    progress_thread& operator=(const progress_thread&) = delete;
    ~progress_thread() {
        over_.store(true, std::memory_order_relaxed);
        thread_.join();
        detail::share(*e_, nullptr);
    }

private:
    detail::endpoint* e_;
    std::mutex mutex_;
    std::atomic<bool> over_{false};
    std::thread thread_;
};

}  // namespace colls::inline v1
