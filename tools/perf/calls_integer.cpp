// The calls on integers.
#include "typed_calls.hpp"

namespace perf {

std::vector<element_type> integer_types() {
    return {make_type<std::int8_t>("int8"), make_type<std::uint8_t>("uint8"), make_type<std::int32_t>("int32"),
        make_type<std::uint32_t>("uint32"), make_type<std::int64_t>("int64"), make_type<std::uint64_t>("uint64"),
        make_type<std::uint16_t>("uint16")};
}

}  // namespace perf
