// Errors of layouts.
// IWYU pragma: private, include <colls/redistribute/layout.hpp>
#pragma once

#include <colls/detail/support/error_text.hpp>
#include <colls/error.hpp>

namespace colls::inline v1::detail {

/// Throws invalid_argument. Not constexpr on purpose: a constant layout that is wrong does not compile.
[[noreturn, gnu::cold]] inline void refuse_layout(const char* why) {
    throw error(errc::invalid_argument, error_text() << "colls: layout: " << why);
}

}  // namespace colls::inline v1::detail
