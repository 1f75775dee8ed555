// What calls need of a DLPack tensor, and the errors where it has not got that. All are invalid_argument.
// IWYU pragma: private, include <colls/interop/dlpack.hpp>
#pragma once

#include <colls/interop/dlpack_abi.hpp>
#include <colls/interop/strided_buffer.hpp>

#include <utility>

namespace colls::inline v1::detail {

using interop::dlpack::data_type;
using interop::dlpack::device_type;
using interop::dlpack::type_code;

/// "a DLPack tensor of 3 x 4 elements".
[[gnu::cold]] inline error_text name_tensor(const interop::dlpack::tensor& t) {
    error_text text;
    put_extents(text << "colls: a DLPack tensor of ", t.dimensions, [&](int d) { return t.shape[d]; });
    return text << " elements";
}
[[gnu::cold]] inline error_text& put_type(error_text& text, data_type t) {
    const auto code = static_cast<unsigned>(t.code);
    constexpr const char* names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
    if (code < 7)
        text << names[code] << static_cast<int>(t.bits);
    else
        text << "code " << static_cast<int>(code) << " of " << static_cast<int>(t.bits) << " bits";
    return t.lanes == 1 ? text : text << " in vectors of " << static_cast<int>(t.lanes);
}
[[gnu::cold]] inline error_text& put_device(error_text& text, interop::dlpack::device d) {
    switch (d.type) {
        case device_type::cpu:
            return text << "the CPU";
        case device_type::cuda:
            return text << "CUDA device " << static_cast<int>(d.id);
        case device_type::cuda_host:
            return text << "the CPU, of CUDA";
        case device_type::cuda_managed:
            return text << "managed memory of CUDA";
        default:
            return text << "device type " << static_cast<int>(d.type);
    }
}

/// Throws where the structure itself is wrong.
inline void expect_tensor(const interop::dlpack::tensor& t) {
    if (t.dimensions < 0 || (t.dimensions > 0 && t.shape == nullptr))
        refuse_tensor(error_text() << "colls: a DLPack tensor of " << static_cast<int>(t.dimensions)
                                   << " dimensions has no shape");
    if (t.data != nullptr) return;
    for (int d = 0; d < t.dimensions; ++d)
        if (t.shape[d] == 0) return;
    refuse_tensor(name_tensor(t) << " has no data: its pointer is null");
}
inline void expect_on_host(const interop::dlpack::tensor& t) {
    expect_tensor(t);
    const device_type at = t.device.type;
    if (at == device_type::cpu || at == device_type::cuda_host || at == device_type::cuda_managed) return;
    error_text text = name_tensor(t) << " is on ";
    put_device(text, t.device) << ", and this call takes memory of the host";
    refuse_tensor(at == device_type::cuda ? text << ": pass interop::device_elements<T> to a call of colls::cuda"
                                          : text << ": copy it there");
}
inline void expect_on_device(const interop::dlpack::tensor& t, int device) {
    expect_tensor(t);
    if ((t.device.type == device_type::cuda && t.device.id == device) || t.device.type == device_type::cuda_managed)
        return;
    error_text text = name_tensor(t) << " is on ";
    refuse_tensor(
        put_device(text, t.device) << ", and this call takes memory of CUDA device " << device << ": copy it there");
}

inline void* tensor_data(const interop::dlpack::tensor& t) {
    return t.data == nullptr ? nullptr : static_cast<std::byte*>(t.data) + t.byte_offset;
}
inline strided_layout layout_of(const interop::dlpack::tensor& t) {
    long long compact = 0;
    return layout_of(
        t.dimensions, [&](int d) { return t.shape[d]; },
        [&](int d) {
            if (t.strides != nullptr) return static_cast<long long>(t.strides[d]);
            compact = 1;
            for (int inner = d + 1; inner < t.dimensions; ++inner) compact *= t.shape[inner];
            return compact;
        });
}

/// As dynamic calls have it.
inline dynamic::element_type element_type_of(data_type t) {
    using dynamic::type;
    struct known {
        type_code code;
        int bits;
        type is;
    };
    constexpr known all[] = {{type_code::integer, 8, type::int8}, {type_code::integer, 16, type::int16},
        {type_code::integer, 32, type::int32}, {type_code::integer, 64, type::int64},
        {type_code::unsigned_integer, 8, type::uint8}, {type_code::unsigned_integer, 16, type::uint16},
        {type_code::unsigned_integer, 32, type::uint32}, {type_code::unsigned_integer, 64, type::uint64},
        {type_code::floating, 16, type::half}, {type_code::floating, 32, type::float32},
        {type_code::floating, 64, type::float64}, {type_code::bfloat, 16, type::bfloat16},
        {type_code::complex, 64, type::complex_float32}, {type_code::complex, 128, type::complex_float64},
        {type_code::boolean, 8, type::boolean}};
    if (t.lanes == 1)
        for (const known& k : all)
            if (k.code == t.code && k.bits == t.bits) return k.is;
    error_text text;
    put_type(text << "colls: a DLPack tensor has elements of type ", t);
    refuse_tensor(text << ", which has no code in dynamic.hpp: to move it, make a buffer of "
                          "element_type::bytes(k) of its memory");
}

/// How many elements, which must be of type `wanted`, and follow each other.
inline std::size_t count_in_row(const interop::dlpack::tensor& t, data_type wanted) {
    if (t.dtype != wanted) {
        error_text text = name_tensor(t) << " of type ";
        put_type(text, t.dtype) << ": this call takes ";
        refuse_tensor(wanted.lanes == 0 ? text << "a type that DLPack does not know: specialise dlpack::type_of"
                                        : put_type(text, wanted));
    }
    const strided_layout l = layout_of(t);
    if (!l.in_row)
        refuse_tensor(name_tensor(t) << " does not lie in a row, as a typed call needs it: pass "
                                        "interop::strided(tensor) to a dynamic call, or copy it");
    return l.count;
}

}  // namespace colls::inline v1::detail
