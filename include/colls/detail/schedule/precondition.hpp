// Violated preconditions in constexpr code.
// IWYU pragma: private, include <colls/step.hpp>
#pragma once

#include <colls/config.hpp>

namespace colls::inline v1::detail {

/// Not constexpr on purpose: in a constant expression the call is a compile error that shows `what`.
inline void precondition_failed([[maybe_unused]] const char* what) { __builtin_trap(); }

}  // namespace colls::inline v1::detail
