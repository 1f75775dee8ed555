// The variants of our side's calls: by the library's choice, by the eager path, and by each family of schedules.
#pragma once

#include "jobs.hpp"

#include <colls/detail/choose/explanation.hpp>
#include <colls/detail/request/known_families.hpp>
#include <colls/schedule.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

inline constexpr std::uint32_t automatic = 0, eager = 1, first_family = 2;
inline constexpr std::uint32_t variants =
    first_family + std::tuple_size_v<decltype(colls::detail::known_families::names())>;

inline std::string_view variant_name(std::uint32_t v) {
    return v == automatic ? "automatic"
           : v == eager   ? std::string_view(colls::detail::eager_name)
                          : colls::detail::known_names()[v - first_family];
}
inline std::vector<std::string> variant_names() {
    std::vector<std::string> names;
    for (std::uint32_t v = 0; v < variants; ++v) names.emplace_back(variant_name(v));
    return names;
}

constexpr colls::collective collective_of(job what) {
    switch (what) {
        case job::broadcast:
            return colls::collective::broadcast;
        case job::all_gather:
            return colls::collective::all_gather;
        case job::reduce_scatter:
            return colls::collective::reduce_scatter;
        case job::all_to_all:
            return colls::collective::all_to_all;
        default:
            return colls::collective::all_reduce;
    }
}

}  // namespace bench
