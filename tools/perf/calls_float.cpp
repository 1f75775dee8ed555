// The calls on floating-point numbers, and the list of all types.
#include "typed_calls.hpp"

#include <algorithm>

namespace perf {

std::vector<element_type> float_types() {
    return {make_type<colls::half>("half"), make_type<float>("float"), make_type<double>("double"),
        make_type<colls::bfloat16>("bfloat16")};
}

std::string_view name_of(reduction op) {
    constexpr std::string_view names[] = {"none", "sum", "prod", "min", "max", "avg", "compose"};
    return names[static_cast<int>(op)];
}

const std::vector<element_type>& element_types() {
    static const std::vector<element_type> all = [] {
        std::vector<element_type> types = integer_types();
        const std::vector<element_type> floats = float_types();
        types.insert(types.end() - 1, floats.begin(), floats.end());  // uint16, which no option names, stays the last
        return types;
    }();
    return all;
}
const element_type* type_named(std::string_view name) {
    const auto at = std::ranges::find(element_types(), name, &element_type::name);
    return at == element_types().end() || name == "uint16" ? nullptr : &*at;
}
const element_type& unsigned_of(std::size_t size) {
    return *std::ranges::find_if(
        element_types(), [&](const element_type& t) { return t.size == size && t.name.starts_with("uint"); });
}

}  // namespace perf
