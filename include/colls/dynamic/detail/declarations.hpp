// What dynamic.hpp and data_layout.hpp know of their definitions.
// IWYU pragma: private, include <colls/dynamic.hpp>
#pragma once

#include <cstddef>

namespace colls::inline v1::detail {

struct hashed_name;
class dynamic_request;
class element_sequence;

/// `rows` blocks of `length`, the first one at `offset`, each `stride` behind the one before.
struct strided_blocks {
    std::size_t offset, rows, length, stride;
};

}  // namespace colls::inline v1::detail
