// The structures of DLPack 1.x (https://github.com/dmlc/dlpack), as they are in memory, and the types of elements.
#pragma once

#include <colls/interop/detail/strided_layout.hpp>

#include <cstddef>
#include <cstdint>

namespace colls::inline v1 {
namespace interop::dlpack {

/// Where memory is. There are more of them, which no call reaches.
enum class device_type : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };
/// A device.
struct device {
    device_type type;  ///< of what kind
    std::int32_t id;   ///< number of the GPU
};

/// What an element's bits mean. There are more of them.
enum class type_code : std::uint8_t {
    integer = 0,
    unsigned_integer = 1,
    floating = 2,
    bfloat = 4,
    complex = 5,
    boolean = 6
};
/// The type of an element.
struct data_type {
    type_code code;       ///< what its bits mean
    std::uint8_t bits;    ///< of a number
    std::uint16_t lanes;  ///< numbers in an element: 1, or a vector's
    friend constexpr bool operator==(const data_type&, const data_type&) = default;
};

/// DLTensor.
struct tensor {
    void* data;                 ///< the memory
    dlpack::device device;      ///< where that is
    std::int32_t dimensions;    ///< how many
    data_type dtype;            ///< of an element
    std::int64_t* shape;        ///< an extent for each dimension
    std::int64_t* strides;      ///< in elements; null: elements follow each other, the last index fastest
    std::uint64_t byte_offset;  ///< of the first element from `data`
};
/// DLManagedTensor.
struct managed_tensor {
    tensor dl_tensor;                       ///< what is handed over
    void* manager;                          ///< the producer's
    void (*deleter)(managed_tensor* self);  ///< gives it back; may be null
};

/// DLPackVersion.
struct version {
    std::uint32_t major;  ///< changes with the structures
    std::uint32_t minor;  ///< changes with codes
};
/// A bit of managed_tensor_versioned::flags: the tensor must not be written.
inline constexpr std::uint64_t flag_read_only = 1;
/// DLManagedTensorVersioned.
struct managed_tensor_versioned {
    dlpack::version version;                          ///< of the producer
    void* manager;                                    ///< the producer's
    void (*deleter)(managed_tensor_versioned* self);  ///< gives it back; may be null
    std::uint64_t flags;                              ///< flag_read_only, and others
    tensor dl_tensor;                                 ///< what is handed over
};

/// T's type as tensors have it, for the typed functions of dlpack.hpp. A program may specialise it for types that the
/// library does not know: template <> constexpr data_type type_of<__half>{type_code::floating, 16, 1};
template <class T>
inline constexpr data_type type_of = [] {
    constexpr auto bits = static_cast<std::uint8_t>(8 * sizeof(T));
    if constexpr (std::is_same_v<T, bool>)
        return data_type{type_code::boolean, bits, 1};
    else if constexpr (std::is_integral_v<T>)
        return data_type{std::is_signed_v<T> ? type_code::integer : type_code::unsigned_integer, bits, 1};
    else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, half>)
        return data_type{type_code::floating, bits, 1};
    else if constexpr (std::is_same_v<T, bfloat16>)
        return data_type{type_code::bfloat, bits, 1};
    else if constexpr (detail::complex_of<T, float> || detail::complex_of<T, double>)
        return data_type{type_code::complex, bits, 1};
    else
        return data_type{};  // of no lanes: no type
}();

}  // namespace interop::dlpack
}  // namespace colls::inline v1
