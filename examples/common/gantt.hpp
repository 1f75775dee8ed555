// Charts of which rank does what when, as SVG files, for --plot: a row for each rank, a box for each piece of work.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace example {

/// A chart of boxes in rows. A new row name begins a row; time runs to the right, in seconds from 0.
class gantt {
public:
    explicit gantt(std::string title) : title_(std::move(title)) {}

    /// Adds a box to the row of that name. `label` is written where it fits.
    void add(const std::string& row, double begin, double end, const std::string& label, const std::string& colour) {
        auto at = std::ranges::find(rows_, row);
        if (at == rows_.end()) at = rows_.insert(rows_.end(), row);
        boxes_.push_back({static_cast<int>(at - rows_.begin()), begin, end, label, colour});
        end_ = std::max(end_, end);
    }

    std::string svg() const {
        const int height = top + bottom + static_cast<int>(rows_.size()) * pitch;
        std::string out = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
            "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
            "<text x=\"{}\" y=\"18\" text-anchor=\"middle\" font-size=\"14\">{}</text>\n",
            width, height, width / 2, title_);
        const double scale = end_ > 0 ? (width - left - right) / end_ : 1;
        for (std::size_t r = 0; r < rows_.size(); ++r)
            out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", left - 8,
                top + static_cast<int>(r) * pitch + pitch / 2 + 4, rows_[r]);
        for (const box& b : boxes_) {
            const double x = left + b.begin * scale, wide = (b.end - b.begin) * scale;
            const int y = top + b.row * pitch + 2;
            out += fmt::format(
                "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" "
                "stroke=\"white\" stroke-width=\"0.5\"/>\n",
                x, y, wide, pitch - 4, b.colour);
            if (wide > 6.5 * static_cast<double>(b.label.size()))
                out += fmt::format("<text x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\" fill=\"white\">{}</text>\n",
                    x + wide / 2, y + pitch / 2 + 2, b.label);
        }
        return out + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.0f} ms</text>\n</svg>\n",
                         width - right, height - 8, end_ * 1e3);
    }

    /// Writes the chart. Throws std::runtime_error that names the file.
    void write(const std::string& file) const {
        std::ofstream out(file);
        out << svg();
        if (!out.flush()) throw std::runtime_error("cannot write the plot " + file);
    }

private:
    static constexpr int width = 900, left = 120, right = 16, top = 30, bottom = 26, pitch = 30;
    struct box {
        int row;
        double begin, end;
        std::string label, colour;
    };
    std::string title_;
    std::vector<std::string> rows_;
    std::vector<box> boxes_;
    double end_ = 0;
};

}  // namespace example
