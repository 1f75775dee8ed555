// expect: colls: this view computes its elements when they are read
// errors: 1
#include <colls/interop/mdspan.hpp>

#include <cstddef>

struct view {
    using element_type = float;
#ifdef RIGHT
    using reference = float&;
#else
    using reference = float;
#endif
    float* data;
    static constexpr std::size_t rank() { return 1; }
    std::size_t extent(std::size_t) const { return 4; }
    float* data_handle() const { return data; }
    bool is_unique() const { return true; }
    bool is_exhaustive() const { return true; }
    bool is_strided() const { return true; }
};

std::size_t size_of(const view& v) { return colls::interop::elements(v).size(); }
