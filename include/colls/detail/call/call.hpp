// A call with its types taken out: what the front end hands to the engine.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/blocks.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/schedules.hpp>

namespace colls::inline v1 {

/// As a call's schedule: the library chooses.
struct automatic {};

namespace detail {

struct op_table;

/// What a caller asks for, with the types taken out. Counts and offsets are in elements.
struct call {
    collective what{};
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::size_t count = 0;      ///< of the whole layout: all user blocks
    std::size_t own_count = 0;  ///< of this rank's own block, where a collective has one
    std::size_t element = 1;    ///< bytes
    const op_table* op = nullptr;
    const void* op_value = nullptr;
    int root = 0;
    const std::size_t* in_offsets = nullptr;  ///< blocks + 1 entries, where blocks are not balanced
    const std::size_t* out_offsets = nullptr;
    bool ragged = false;           ///< each rank knows its own counts only
    bool count_from_root = false;  ///< this rank does not know `count`: the root tells it
    bool non_blocking = false;
    std::uint64_t signature = 0;                                 ///< hash of the element type and the operator
    const std::string_view *type = nullptr, *op_type = nullptr;  ///< their names
};

/// One that `automatic` may choose, by the name that COLLS_SCHEDULE knows it by.
struct candidate {
    std::string_view name;
    any_schedule schedule;
};
struct candidates {
    const candidate* first = nullptr;
    int count = 0;
};

template <class... F>
struct families {};
// In order of preference where predictions are equal. All but `direct` fold in an order of their own.
using known_families = families<direct, ring, circulant<>, halving_doubling, recursive_doubling, distance_doubling,
    one_shot, tree<2>, tree<4>, double_tree, bruck<2>, swing, pat<1>, pipelined_broadcast>;
inline constexpr std::string_view known_names[] = {"direct", "ring", "circulant", "halving_doubling",
    "recursive_doubling", "distance_doubling", "one_shot", "tree", "tree<4>", "double_tree", "bruck", "swing", "pat",
    "pipelined_broadcast"};

/// The candidates of one collective, made when first asked for.
template <collective C>
candidates candidates_for();

/// How a call comes by its schedule: the one given, or the candidates.
struct chooser {
    const any_schedule* given = nullptr;
    candidates (*list)() = nullptr;
    const any_schedule* instead = nullptr;  ///< taken in place of `given`, once that has been checked
};

enum class operation_kind : unsigned char { collective, send, recv };

/// A call's arguments without their types.
struct request {
    call c;  ///< what, in, out, element, op, op_value, root, signature
    std::size_t in_count = 0, out_count = 0;
    bool two = false;  ///< in and out are different arguments
    bool with_counts = false;
    list<std::size_t> sends, receives;          ///< counts of the v-variants
    bool negative = false;                      ///< ... one of them is
    list<std::size_t> in_offsets, out_offsets;  ///< their prefix sums
    void* (*copy_op)(const void*) = nullptr;  ///< for calls that outlive their arguments: how to copy the operator, ...
    void (*drop_op)(void*) = nullptr;         ///< ... and how to end the copy; null: it has no state
    chooser how;

    // Defined with the engine, not in every unit that makes a call.
    request();
    request(request&&) noexcept;
    ~request();
};

}  // namespace detail
}  // namespace colls::inline v1
