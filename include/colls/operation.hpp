// class operation: a collective or message that has been started.
#pragma once

#include <colls/detail/call/perform.hpp>

#include <exception>

namespace colls::inline v1 {

/// A started collective or message, as start::... and plan::start return it.
///
/// All ranks start their collectives in the same order; they may wait for them in any order, for each test and each
/// wait also advances all other operations of the thread. The buffers of the call must outlive the operation. It holds
/// the group: where the communicator is destroyed first, the rank leaves the group once its last operation is
/// destroyed. After an error it is over, and its buffers may be used again.
class [[nodiscard]] operation {
public:
    /// An empty operation: over from the start.
    operation() = default;
    /// For the library: takes over o.
    operation(detail::rank_context& e, detail::operation_state* o) : e_(&e), o_(o) {}
    operation(operation&& other) noexcept : e_(other.e_), o_(other.o_) { other.o_ = nullptr; }
    /// Finishes its own operation first, as the destructor does.
    operation& operator=(operation&& other) noexcept {
        if (this != &other) {
            finish();
            e_ = other.e_;
            o_ = other.o_;
            other.o_ = nullptr;
        }
        return *this;
    }
    /// Waits until it is over. While an exception unwinds the stack it waits for a second at most and then breaks the
    /// group: the exception may be why the other ranks do not finish.
    ~operation() { finish(); }

    /// True where there is nothing to wait for: it was default-made or moved from, or a test or wait has found it over.
    bool empty() const { return o_ == nullptr; }
    /// Advances it without waiting; true where it is over. Throws colls::error where it has failed.
    bool test() {
        if (o_) detail::test_operation(*e_, o_);
        return o_ == nullptr;
    }
    /// Returns when it is over. Throws colls::error where it has failed.
    void wait() {
        if (o_) detail::wait_operation(*e_, o_);
    }
    /// Waits for at most `duration`, a std::chrono::duration; true where it is over. Throws colls::error where it has
    /// failed.
    template <class Duration>
    bool wait_for(Duration duration) {
        using period = typename Duration::period;
        const double seconds =
            static_cast<double>(duration.count()) * static_cast<double>(period::num) / static_cast<double>(period::den);
        if (o_) detail::wait_operation_for(*e_, o_, seconds);
        return o_ == nullptr;
    }

private:
    void finish() noexcept {
        if (o_) detail::finish_operation(*e_, o_, std::uncaught_exceptions() > 0);
    }
    detail::rank_context* e_ = nullptr;
    detail::operation_state* o_ = nullptr;
};

}  // namespace colls::inline v1
