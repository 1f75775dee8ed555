// Waiting for several operations.
#pragma once

#include <colls/operation.hpp>

#include <exception>
#include <type_traits>

namespace colls::inline v1 {
namespace detail {

/// Waits for operations one after the other; an error of one is kept, and the others are waited for.
class completion {
public:
    void wait(operation& o) {
        try {
            o.wait();
        } catch (...) {
            if (!first_) first_ = std::current_exception();
        }
    }
    void rethrow() const {
        if (first_) std::rethrow_exception(first_);
    }

private:
    std::exception_ptr first_;
};
template <class O>
inline constexpr bool is_operation = std::is_same_v<std::remove_cvref_t<O>, operation>;

}  // namespace detail

/// Waits for all operations of a range. After an error of one it still waits for the others, whose buffers are the
/// caller's again whatever happens; then it throws the first error. Empty operations count as over.
template <class Range>
    requires(!detail::is_operation<Range>)
void wait_all(Range&& operations) {
    detail::completion all;
    for (operation& o : operations) all.wait(o);
    all.rethrow();
}
/// The same of the operations given.
template <class... O>
    requires(sizeof...(O) > 0 && (detail::is_operation<O> && ...))
void wait_all(O&&... operations) {
    detail::completion all;
    (all.wait(operations), ...);
    all.rethrow();
}

/// Waits until one operation of a range is over, makes it empty, and returns its index. Empty operations (default-made,
/// moved from, or already said to be over by wait, test or wait_any) are passed over; where all are empty it returns
/// `none` at once. So called again and again it returns each index once, and then `none`. Throws the error of the first
/// that it finds failed, which is empty then.
template <class Range>
int wait_any(Range&& operations) {
    for (double since = 0;; since = detail::pause_between_tests(since)) {
        int i = 0;
        bool all_empty = true;
        for (operation& o : operations) {
            if (!o.empty()) {
                all_empty = false;
                if (o.test()) return i;
            }
            ++i;
        }
        if (all_empty) return none;
    }
}

}  // namespace colls::inline v1
