// A table of text: columns as wide as their widest cell, numbers to the right.
#pragma once

#include <fmt/format.h>

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

    std::string text() const;

private:
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace example
