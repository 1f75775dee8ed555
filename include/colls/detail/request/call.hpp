// A collective or a message, its types erased: what executors are handed.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/blocks.hpp>
#include <colls/detail/request/packed_arguments.hpp>
#include <colls/detail/support/hash.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace colls::inline v1::detail {

struct op_table;

enum class operation_kind : unsigned char { collective, send, recv };

/// Counts and offsets are in elements.
struct call {
    collective what{};
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::size_t count = 0;      ///< of the whole layout: the blocks of all ranks
    std::size_t own_count = 0;  ///< of this rank's own block, where the collective has one
    std::size_t element = 1;    ///< bytes of an element
    const op_table* op = nullptr;
    const void* op_value = nullptr;
    int root = 0;
    const std::size_t* in_offsets = nullptr;  ///< blocks + 1 entries; null: balanced blocks
    const std::size_t* out_offsets = nullptr;
    bool ragged = false;           ///< each rank knows its own counts only
    bool count_from_root = false;  ///< this rank does not know `count`: the root tells it
    bool non_blocking = false;
    bool reproducible = false;    ///< chosen among schedules of a single fold, as the call or the environment asks
    std::uint64_t signature = 0;  ///< hash of the element type and the operator
    const std::string_view *type = nullptr, *op_type = nullptr;  ///< their names
    shared_packing packed{};  ///< buffers that `in` and `out` are packed copies of, or none
};

}  // namespace colls::inline v1::detail
