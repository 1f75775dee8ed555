// A call of the program's that is made of several calls.
// IWYU pragma: private
#pragma once

#include <colls/schedule.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace colls::inline v1::detail {

/// What ranks compare, and errors name, in place of its parts.
struct composite_call {
    const char* name;
    collective what;
    std::size_t count = 0;
    const std::string_view *type = nullptr, *op = nullptr;
    int root = 0;
    bool own_lengths = false;
    std::uint64_t hash = 0;  ///< of all of it
};

}  // namespace colls::inline v1::detail
