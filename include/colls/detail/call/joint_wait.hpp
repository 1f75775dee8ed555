// Waits for several operations, whatever becomes of one of them.
// IWYU pragma: private, include <colls/wait.hpp>
#pragma once

#include <colls/operation.hpp>

#include <exception>
#include <type_traits>

namespace colls::inline v1::detail {

/// Waits for one operation after the other, and keeps the first error.
class joint_wait {
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

}  // namespace colls::inline v1::detail
