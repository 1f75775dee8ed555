// expect: colls: the layout of this view has no strides
// errors: 1
#include <colls/interop/mdspan.hpp>

#include <cstddef>

struct view {
    using element_type = float;
    using reference = float&;
    float* data;
    static constexpr std::size_t rank() { return 1; }
    std::size_t extent(std::size_t) const { return 4; }
    float* data_handle() const { return data; }
    bool is_unique() const { return true; }
    bool is_exhaustive() const { return true; }
    bool is_strided() const { return true; }
#ifdef RIGHT
    static constexpr bool is_always_strided() { return true; }
    std::size_t stride(std::size_t) const { return 1; }
#endif
};

std::size_t size_of(const view& v) { return colls::interop::strided(v).size(); }
