// The element types and operators that have codes: their names and folds.
// IWYU pragma: private, include <colls/dynamic.hpp>
//
// A pair of type and operator has the bits of the typed call. Few pairs have loops of their own, since each costs a
// tenth of a second to compile: averages and sums by a factor fold as sums; bitwise folds do not depend on the type;
// complex numbers are added as two numbers each; signed integers are as unsigned ones to logical operators. What is
// rare has one plain loop.
#pragma once

#include <colls/detail/call/make_request.hpp>
#include <colls/dynamic/codes.hpp>
#include <colls/exact/exact_sum.hpp>
#include <colls/types.hpp>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace colls::inline v1::detail {

using real_factor = premul_sum_t<double>;
using integer_factor = premul_sum_t<std::int64_t>;

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O2", "fp-contract=off")  // as in fold.hpp
#endif
/// A fold of one loop, for one processor.
template <class T, class Op>
void plain_fold(void* dst, const operand* x, int k, std::size_t count, const void* op) {
    scalar_fold<accumulator_of<T, Op>>(static_cast<T*>(dst), x, k, 0, count, *static_cast<const Op*>(op));
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
/// A fold with loops for the oldest processors alone, of two operands at a time.
template <class T, class Op>
void small_fold(void* dst, const operand* x, int k, std::size_t count, const void* op) {
    fold_by_fours(&fold_baseline<T, Op>, sizeof(T), dst, x, k, count, op);
}
/// Folds elements that are `parts` numbers each.
template <auto fold, std::size_t parts>
void fold_parts(void* dst, const operand* x, int k, std::size_t count, const void* op) {
    fold(dst, x, k, count * parts, op);
}
template <auto finish, std::size_t parts>
void finish_parts(void* data, std::size_t count, int n, const void* op) {
    finish(data, count * parts, n, op);
}
template <auto leaf, std::size_t parts>
void leaf_parts(void* to, const void* from, std::size_t count, const void* op) {
    leaf(to, from, count * parts, op);
}
/// Folds elements of any number of bytes, to which op_value points.
template <class Op>
void fold_bytes(void* dst, const operand* x, int k, std::size_t count, const void* op) {
    fold_entry<unsigned char, Op>(dst, x, k, count * *static_cast<const std::size_t*>(op), op);
}

template <class T, class Op>
inline constexpr op_table plain_table{sizeof(T), &plain_fold<T, Op>, nullptr, nullptr, is_commutative<Op, T>};
template <std::size_t size>
using unsigned_of_size = std::conditional_t<size == 1, unsigned char,
    std::conditional_t<size == 2, unsigned short, std::conditional_t<size == 4, unsigned, unsigned long>>>;
/// The operator on an unsigned integer of as many bytes.
template <std::size_t size, class Op>
inline constexpr op_table logical_table{size, &small_fold<unsigned_of_size<size>, Op>, nullptr, nullptr, true};
template <std::size_t size, class Op>
inline constexpr op_table bitwise_table{size,
    size == 8 ? &fold_entry<unsigned long, Op> : &fold_parts<&fold_entry<unsigned char, Op>, size>, nullptr, nullptr,
    true};
template <class Op>
inline constexpr op_table bytes_table{0, &fold_bytes<Op>, nullptr, nullptr, true};

/// All sums of T fold by the table of its plain ones.
template <class T>
inline constexpr op_table sum_table = op_table_for<T, sum_t>;
template <>
inline constexpr op_table sum_table<long double> = plain_table<long double, sum_t>;
constexpr op_table with_finish(op_table t, decltype(op_table::finish) finish) {
    t.finish = finish;
    return t;
}
constexpr op_table with_leaf(op_table t, decltype(op_table::leaf) leaf) {
    t.leaf = leaf;
    return t;
}
template <class T>
inline constexpr op_table avg_table = with_finish(sum_table<T>, &finish_entry<T, avg_t>);
template <class T, class Factor>
inline constexpr op_table premul_table = with_leaf(sum_table<T>, &leaf_entry<T, Factor>);
/// For complex numbers whose parts are Ts: sums of twice as many numbers.
template <class T>
inline constexpr op_table complex_table{2 * sizeof(T), &fold_parts<&fold_entry<T, sum_t>, 2>, nullptr, nullptr, true};
template <class T>
inline constexpr op_table complex_avg_table = with_finish(complex_table<T>, &finish_parts<&finish_entry<T, avg_t>, 2>);
template <class T, class Factor>
inline constexpr op_table complex_premul_table = with_leaf(complex_table<T>, &leaf_parts<&leaf_entry<T, Factor>, 2>);

template <std::size_t size>
const op_table* logical_or_bitwise(dynamic::op code) {
    switch (code) {
        case dynamic::op::logical_and:
            return &logical_table<size, logical_and_t>;
        case dynamic::op::logical_or:
            return &logical_table<size, logical_or_t>;
        case dynamic::op::logical_xor:
            return &logical_table<size, logical_xor_t>;
        case dynamic::op::bit_and:
            return &bitwise_table<size, bit_and_t>;
        case dynamic::op::bit_or:
            return &bitwise_table<size, bit_or_t>;
        case dynamic::op::bit_xor:
            return &bitwise_table<size, bit_xor_t>;
        default:
            return nullptr;
    }
}
/// The table of an operator, null where the type has none. `by_integer`: the factor of premul_sum is an integer.
template <class T>
const op_table* table_of_number(dynamic::op code, bool by_integer) {
    constexpr bool rare = std::is_same_v<T, long double>;
    switch (code) {
        case dynamic::op::sum:
            return &sum_table<T>;
        case dynamic::op::avg:
            return &avg_table<T>;
        case dynamic::op::premul_sum:
            return by_integer ? &premul_table<T, integer_factor> : &premul_table<T, real_factor>;
        default:
            break;
    }
    if constexpr (rare) {
        switch (code) {
            case dynamic::op::prod:
                return &plain_table<T, prod_t>;
            case dynamic::op::min:
                return &plain_table<T, min_t>;
            case dynamic::op::max:
                return &plain_table<T, max_t>;
            default:
                return nullptr;
        }
    } else {
        switch (code) {
            case dynamic::op::prod:
                return &op_table_for<T, prod_t>;
            case dynamic::op::min:
                return &op_table_for<T, min_t>;
            case dynamic::op::max:
                return &op_table_for<T, max_t>;
            default:
                break;
        }
        if constexpr (std::is_integral_v<T>)
            return logical_or_bitwise<sizeof(T)>(code);
        else
            return nullptr;
    }
}
template <class T>
const op_table* table_of_complex(dynamic::op code, bool by_integer) {
    switch (code) {
        case dynamic::op::sum:
            return &complex_table<T>;
        case dynamic::op::prod:
            return &plain_table<std::complex<T>, prod_t>;
        case dynamic::op::avg:
            return &complex_avg_table<T>;
        case dynamic::op::premul_sum:
            return by_integer ? &complex_premul_table<T, integer_factor> : &complex_premul_table<T, real_factor>;
        default:
            return nullptr;
    }
}
inline const op_table* table_of_bool(dynamic::op code, bool) {
    switch (code) {
        case dynamic::op::sum:
        case dynamic::op::max:
            return &bitwise_table<1, bit_or_t>;
        case dynamic::op::prod:
        case dynamic::op::min:
            return &bitwise_table<1, bit_and_t>;
        default:
            return logical_or_bitwise<1>(code);
    }
}
template <class T>
const op_table* table_of_pair(dynamic::op code, bool) {
    switch (code) {
        case dynamic::op::minloc:
            return &plain_table<T, minloc_t>;
        case dynamic::op::maxloc:
            return &plain_table<T, maxloc_t>;
        default:
            return nullptr;
    }
}
inline const op_table* table_of_bytes(dynamic::op code, bool) {
    switch (code) {
        case dynamic::op::bit_and:
            return &bytes_table<bit_and_t>;
        case dynamic::op::bit_or:
            return &bytes_table<bit_or_t>;
        case dynamic::op::bit_xor:
            return &bytes_table<bit_xor_t>;
        default:
            return nullptr;
    }
}

struct known_type {
    std::size_t size;
    const hashed_name* name;
    const op_table* (*table)(dynamic::op code, bool by_integer);
};
template <class T, auto table>
inline constexpr known_type known{sizeof(T), &name_of_type<T>, table};
template <class T>
inline constexpr known_type known_number = known<T, &table_of_number<T>>;
template <class T>
inline constexpr known_type known_complex = known<std::complex<T>, &table_of_complex<T>>;
template <class Pair>
inline constexpr known_type known_pair = known<Pair, &table_of_pair<Pair>>;

/// In the order of dynamic::type.
inline constexpr known_type known_types[] = {known_number<std::int8_t>, known_number<std::int16_t>,
    known_number<std::int32_t>, known_number<std::int64_t>, known_number<std::uint8_t>, known_number<std::uint16_t>,
    known_number<std::uint32_t>, known_number<std::uint64_t>, known_number<half>, known_number<bfloat16>,
    known_number<float>, known_number<double>, known_number<long double>, known_complex<float>, known_complex<double>,
    known<bool, &table_of_bool>, known_pair<value_index<float>>, known_pair<value_index<double>>,
    known_pair<value_index<short>>, known_pair<value_index<int>>, known_pair<value_index<long>>,
    known_pair<value_index<long double>>, known<std::byte, &table_of_bytes>};
inline constexpr std::size_t known_type_count = sizeof known_types / sizeof known_types[0];
static_assert(known_type_count == static_cast<std::size_t>(dynamic::type::bytes) + 1);

/// In the order of dynamic::op, without op::function. premul_sum stands for that by a double.
inline constexpr const hashed_name* known_operators[] = {&name_of_type<sum_t>, &name_of_type<prod_t>,
    &name_of_type<min_t>, &name_of_type<max_t>, &name_of_type<avg_t>, &name_of_type<real_factor>,
    &name_of_type<logical_and_t>, &name_of_type<logical_or_t>, &name_of_type<logical_xor_t>, &name_of_type<bit_and_t>,
    &name_of_type<bit_or_t>, &name_of_type<bit_xor_t>, &name_of_type<minloc_t>, &name_of_type<maxloc_t>,
    &name_of_type<exact_t>};
inline constexpr std::size_t known_operator_count = sizeof known_operators / sizeof known_operators[0];
static_assert(known_operator_count == static_cast<std::size_t>(dynamic::op::function));

}  // namespace colls::inline v1::detail
