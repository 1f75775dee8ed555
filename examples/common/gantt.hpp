// Charts of which rank does what when, for --plot: a row for each rank, a box for each piece of work.
#pragma once

#include "svg.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace example {

/// A chart of boxes in rows. A new row name begins a row; time runs to the right, in seconds from 0. Between boxes the
/// grey of the row is idle time.
class gantt {
public:
    explicit gantt(std::string title) : title_(std::move(title)) {}

    /// Adds a box to the row of that name. `label` is written where it fits. A box is filled, or only has an edge: two
    /// kinds of work that differ without colour, too.
    void add(const std::string& row, double begin, double end, const std::string& label, bool filled);

    /// What is seen, in one sentence.
    void says(std::string sentence) { says_ = std::move(sentence); }

    /// Begins another set of rows, which may have the names of rows before, below these words.
    void section(std::string words) {
        first_ = rows_.size();
        sections_.emplace_back(first_, std::move(words));
    }

    std::string svg() const;

    /// Writes the chart. Throws std::runtime_error that names the file.
    void write(const std::string& file) const { svg::write(file, svg()); }

private:
    struct box {
        std::size_t row;
        double begin, end;
        std::string label;
        bool filled;
    };
    std::string title_, says_;
    std::vector<std::string> rows_;
    std::vector<std::pair<std::size_t, std::string>> sections_;
    std::vector<box> boxes_;
    std::size_t first_ = 0;  // row of the last section
    double end_ = 0;
};

}  // namespace example
