#include "types.hpp"

#include <cstring>
#include <string_view>

namespace colls_c {

namespace {

constexpr unsigned wrong_type = 0xff;
constexpr unsigned type_codes = COLLS_BYTES + 1, op_codes = COLLS_EXACT + 1;

#define SAME_TYPE(ours, theirs) static_assert(static_cast<int>(dynamic::type::ours) == (theirs))
SAME_TYPE(int8, COLLS_INT8);
SAME_TYPE(int16, COLLS_INT16);
SAME_TYPE(int32, COLLS_INT32);
SAME_TYPE(int64, COLLS_INT64);
SAME_TYPE(uint8, COLLS_UINT8);
SAME_TYPE(uint16, COLLS_UINT16);
SAME_TYPE(uint32, COLLS_UINT32);
SAME_TYPE(uint64, COLLS_UINT64);
SAME_TYPE(half, COLLS_HALF);
SAME_TYPE(bfloat16, COLLS_BFLOAT16);
SAME_TYPE(float32, COLLS_FLOAT32);
SAME_TYPE(float64, COLLS_FLOAT64);
SAME_TYPE(long_double, COLLS_LONG_DOUBLE);
SAME_TYPE(complex_float32, COLLS_COMPLEX_FLOAT32);
SAME_TYPE(complex_float64, COLLS_COMPLEX_FLOAT64);
SAME_TYPE(boolean, COLLS_BOOL);
SAME_TYPE(float32_index, COLLS_FLOAT32_INDEX);
SAME_TYPE(float64_index, COLLS_FLOAT64_INDEX);
SAME_TYPE(int16_index, COLLS_INT16_INDEX);
SAME_TYPE(int32_index, COLLS_INT32_INDEX);
SAME_TYPE(int64_index, COLLS_INT64_INDEX);
SAME_TYPE(long_double_index, COLLS_LONG_DOUBLE_INDEX);
SAME_TYPE(bytes, COLLS_BYTES);
#undef SAME_TYPE
#define SAME_OP(ours, theirs) static_assert(static_cast<int>(dynamic::op::ours) == (theirs))
SAME_OP(sum, COLLS_SUM);
SAME_OP(prod, COLLS_PROD);
SAME_OP(min, COLLS_MIN);
SAME_OP(max, COLLS_MAX);
SAME_OP(avg, COLLS_AVG);
SAME_OP(logical_and, COLLS_LOGICAL_AND);
SAME_OP(logical_or, COLLS_LOGICAL_OR);
SAME_OP(logical_xor, COLLS_LOGICAL_XOR);
SAME_OP(bit_and, COLLS_BIT_AND);
SAME_OP(bit_or, COLLS_BIT_OR);
SAME_OP(bit_xor, COLLS_BIT_XOR);
SAME_OP(minloc, COLLS_MINLOC);
SAME_OP(maxloc, COLLS_MAXLOC);
SAME_OP(exact, COLLS_EXACT);
#undef SAME_OP

}  // namespace

dynamic::element_type type_of(const char* function, colls_type type) {
    const std::uint64_t code = type & 0xff, k = type >> 8;
    if (k == 0 && code < type_codes) return static_cast<dynamic::type>(code);
    if (code == COLLS_BYTES) {
        // A look-up of its name takes a lock: most programs use one length.
        thread_local std::uint64_t latest_k = 0;
        thread_local dynamic::element_type latest = dynamic::type::bytes;
        if (latest_k != k) {
            latest = dynamic::element_type::bytes(k);
            latest_k = k;
        }
        return latest;
    }
    if (code == wrong_type && k == 0)
        refuse(function,
            error_text()
                << "the element type is colls_bytes of 0, or of 2^55 and more: an element has a byte at least");
    refuse(function, error_text() << "there is no element type " << static_cast<long long>(type)
                                  << ": take a code of colls.h, such as COLLS_FLOAT32, or colls_bytes(k)");
}

dynamic::reduction op_of(const char* function, colls_op op) {
    if (op < op_codes && op != static_cast<unsigned>(dynamic::op::premul_sum)) return static_cast<dynamic::op>(op);
    if (op >> 60 == 0)
        refuse(function, error_text() << "there is no operator " << static_cast<long long>(op)
                                      << ": take a code of colls.h, such as COLLS_SUM, or make one");
    return ops::all().get(function, op);
}

colls_options options_of(const char* function, const colls_options* given) {
    colls_options o = COLLS_OPTIONS_INIT;
    if (given == nullptr) return o;
    if (given->size < sizeof o)
        refuse(function, error_text() << "options.size is " << given->size << " and not " << sizeof o
                                      << ": begin with colls_options options = COLLS_OPTIONS_INIT");
    const auto* const all = reinterpret_cast<const unsigned char*>(given);
    for (std::size_t i = sizeof o; i < given->size; ++i)
        if (all[i] != 0)
            refuse(function, error_text() << "options.size is " << given->size << ", and this library knows "
                                          << sizeof o << " bytes of it: the program uses options of a later version");
    o = *given;
    if (o.reproducible != 0 && o.reproducible != 1)
        refuse(function, error_text() << "options.reproducible is " << o.reproducible << ": it is 0 or 1");
    return o;
}

const dynamic::data_layout* layout_of(const char* function, colls_layout layout) {
    return layout == nullptr ? nullptr : &object_of(function, layout);
}

namespace {

dynamic::unit unit_of(const char* function, colls_unit unit) {
    if (unit != COLLS_ELEMENTS && unit != COLLS_UNIT_BYTES)
        refuse(function, error_text() << "the unit is " << unit << ": it is COLLS_ELEMENTS or COLLS_UNIT_BYTES");
    return unit == COLLS_ELEMENTS ? dynamic::unit::elements : dynamic::unit::bytes;
}
template <class F>
colls_status new_op(const char* function, colls_op* op, const F& make) noexcept {
    return guarded(function, [&] {
        need(function, op, "op");
        *op = ops::all().put(make());
    });
}

}  // namespace

}  // namespace colls_c

using namespace colls_c;

colls_type colls_bytes(size_t k) {
    if (k == 1) return COLLS_BYTES;
    return k == 0 || k >> 55 != 0 ? wrong_type : COLLS_BYTES | static_cast<colls_type>(k) << 8;
}
colls_status colls_type_size(colls_type type, size_t* size) {
    return guarded(__func__, [&, function = __func__] {
        need(function, size, "size");
        *size = type_of(function, type).size();
    });
}

colls_status colls_premul_sum(double factor, colls_op* op) {
    return new_op(__func__, op, [&] { return dynamic::reduction::premul_sum(factor); });
}
colls_status colls_premul_sum_integer(int64_t factor, colls_op* op) {
    return new_op(__func__, op, [&] { return dynamic::reduction::premul_sum(factor); });
}
colls_status colls_op_function(
    colls_function function, void* context, int commutative, const char* name, colls_op* op) {
    return new_op(__func__, op, [&, call = __func__] {
        if (function == nullptr) refuse(call, error_text() << "the function is NULL");
        need(call, name, "name");
        if (commutative != 0 && commutative != 1)
            refuse(call, error_text() << "commutative is " << commutative << ": it is 0 or 1");
        return dynamic::reduction::function(function, context, commutative == 1, name);
    });
}
colls_status colls_op_free(colls_op* op) {
    return guarded(__func__, [&, function = __func__] {
        need(function, op, "op");
        if (*op >> 60 != 0) {
            ops::all().get(function, *op);
            ops::all().drop(*op);
        } else {
            op_of(function, *op);
        }
        *op = COLLS_SUM;
    });
}

colls_status colls_layout_contiguous(size_t length, colls_unit unit, colls_layout* layout) {
    return made(__func__, layout,
        [&, function = __func__] { return dynamic::data_layout::contiguous(length, unit_of(function, unit)); });
}
colls_status colls_layout_vector(size_t blocks, size_t length, size_t stride, colls_unit unit, colls_layout* layout) {
    return made(__func__, layout, [&, function = __func__] {
        return dynamic::data_layout::vector(blocks, length, stride, unit_of(function, unit));
    });
}
colls_status colls_layout_indexed(
    size_t blocks, const size_t* offsets, const size_t* lengths, colls_unit unit, colls_layout* layout) {
    return made(__func__, layout, [&, function = __func__] {
        if (blocks > 0) {
            need(function, offsets, "offsets");
            need(function, lengths, "lengths");
        }
        const dynamic::count_list at(offsets, blocks), long_each(lengths, blocks);
        return dynamic::data_layout::indexed(at, long_each, unit_of(function, unit));
    });
}
colls_status colls_layout_repeated(colls_layout of, size_t times, size_t stride, colls_layout* layout) {
    return made(__func__, layout, [&, function = __func__] { return object_of(function, of).repeated(times, stride); });
}
colls_status colls_layout_with_extent(colls_layout of, size_t extent, colls_layout* layout) {
    return made(__func__, layout, [&, function = __func__] { return object_of(function, of).with_extent(extent); });
}
colls_status colls_layout_free(colls_layout* layout) { return freed(__func__, layout); }
