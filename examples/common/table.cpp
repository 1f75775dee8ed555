#include "table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace example {

std::string table::text() const {
    std::vector<std::size_t> widths(rows_.front().size());
    for (const auto& row : rows_)
        for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    std::string out;
    for (const auto& row : rows_) {
        std::string line = " ";
        for (std::size_t c = 0; c < row.size(); ++c)
            line += c == 0 ? fmt::format(" {:<{}}", row[c], widths[c]) : fmt::format("  {:>{}}", row[c], widths[c]);
        out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return out;
}

}  // namespace example
