// A call of the program's that is made of several calls.
// IWYU pragma: private
#pragma once

#include <colls/schedule.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace colls::inline v1::detail {

/// What errors name of a call.
struct named_call {
    const char* name = nullptr;  ///< null: that of `what`
    collective what{};
    std::size_t count = 0;
    const std::string_view *type = nullptr, *op = nullptr;  ///< names; null: none
    int root = 0;
    bool own_lengths = false;  ///< each rank knows its own count only
    friend bool operator==(const named_call&, const named_call&) = default;
};
/// What ranks compare, and errors name, in place of its parts.
struct composite_call : named_call {
    std::uint64_t hash = 0;  ///< of all of it
};

}  // namespace colls::inline v1::detail
