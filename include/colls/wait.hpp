// Waiting for several operations: wait_all, wait_any.
#pragma once

#include <colls/detail/call/joint_wait.hpp>

namespace colls::inline v1 {

/// Waits for all operations of a range, of which empty ones count as over. Where one fails it still waits for the
/// others, so that all buffers may be used again, and then throws the first error.
template <class Range>
    requires(!detail::is_operation<Range>)
void wait_all(Range&& operations) {
    detail::joint_wait all;
    for (operation& o : operations) all.wait(o);
    all.rethrow();
}
/// The same for the operations given.
template <class... Operation>
    requires(sizeof...(Operation) > 0 && (detail::is_operation<Operation> && ...))
void wait_all(Operation&&... operations) {
    detail::joint_wait all;
    (all.wait(operations), ...);
    all.rethrow();
}

/// Waits until one operation of a range is over, makes it empty, and returns its index; or `none` at once where all are
/// empty already (default-made, moved from, or found over by wait, test or wait_any). So repeated calls return each
/// index once, and then `none`. Throws the error of the first operation that it finds failed, which is empty then.
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
