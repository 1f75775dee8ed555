// Waits for several operations, whatever becomes of one of them.
// IWYU pragma: private, include <colls/operation.hpp>
#pragma once

#include <exception>

namespace colls::inline v1::detail {

/// Waits for one operation after the other, and keeps the first error.
class joint_wait {
public:
    template <class Operation>
    void wait(Operation& o) {
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

}  // namespace colls::inline v1::detail
