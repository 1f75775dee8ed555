// A table of text: columns as wide as their widest cell, numbers to the right.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace example {

class table {
public:
    explicit table(std::vector<std::string> headings) : rows_{std::move(headings)} {}

    /// One row, with a cell for each column. Cells are what fmt::format("{}", cell) makes of them; format numbers
    /// before.
    template <class... Cells>
    void add(const Cells&... cells) {
        rows_.push_back({fmt::format("{}", cells)...});
        rows_.back().resize(rows_.front().size());
    }

    std::string text() const {
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

private:
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace example
