// The number of blocks in a set.
// IWYU pragma: private, include <colls/cost.hpp>
#pragma once

#include <colls/step.hpp>

namespace colls::inline v1::detail {

/// b.size(), and 0 for a set with a negative extent, which a wrong schedule may name.
constexpr long size_of(const block_set& b) { return b.empty() ? 0 : b.size(); }

}  // namespace colls::inline v1::detail
