// What `automatic` would choose, for a rank context: defined in detail/choose/.
// IWYU pragma: private, include <colls/explain.hpp>
#pragma once

#include <colls/cost.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace colls::inline v1::detail {

struct rank_context;

// Templates, so that they, and with them every family of schedules, are compiled only where they are called.
template <int>
std::string explanation(const rank_context& self, collective what, std::size_t bytes, bool reproducible);
template <int>
std::string_view choice(const rank_context& self, collective what, std::size_t bytes, bool reproducible);

model group_model(const rank_context& self);

}  // namespace colls::inline v1::detail
