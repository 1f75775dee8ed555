#include "gantt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace example {

void gantt::add(const std::string& row, double begin, double end, const std::string& label, bool filled) {
    auto at = std::find(rows_.begin() + static_cast<std::ptrdiff_t>(first_), rows_.end(), row);
    if (at == rows_.end()) at = rows_.insert(rows_.end(), row);
    boxes_.push_back({static_cast<std::size_t>(at - rows_.begin()), begin, end, label, filled});
    end_ = std::max(end_, end);
}

std::string gantt::svg() const {
    namespace s = svg;
    constexpr double pitch = 30;
    double names = 0;
    for (const std::string& row : rows_) names = std::max(names, s::width_of(row, s::small_size));
    const double left = s::margin + names + 8, right = s::page_width - s::margin;
    const s::part head = s::heading(title_, says_);
    std::string out = head.elements;
    std::vector<double> tops;
    double y = head.height;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
        for (const auto& [before, words] : sections_)
            if (before == r) {
                out += s::text(s::margin, y + 20, words, "ink bold", s::small_size);
                y += 30;
            }
        tops.push_back(y);
        out += fmt::format("<rect class=\"idle\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"/>\n", left,
            y + 2, right - left, pitch - 4);
        out += s::text(left - 8, y + pitch / 2 + 4.5, rows_[r], "ink", s::small_size, "end");
        y += pitch;
    }
    const double scale = end_ > 0 ? (right - left) / end_ : 1;
    for (const box& b : boxes_) {
        const double x = left + b.begin * scale, wide = std::max(0.5, (b.end - b.begin) * scale), top = tops[b.row] + 2;
        const double edge = b.filled ? 0.5 : 1;
        out += fmt::format("<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\"/>\n",
            b.filled ? "full" : "hollow", x + edge, top + edge, std::max(0.3, wide - 2 * edge), pitch - 4 - 2 * edge);
        if (wide > s::width_of(b.label, s::small_size) + 4)
            out += s::text(
                x + wide / 2, top + pitch / 2 + 2.5, b.label, b.filled ? "page" : "f1", s::small_size, "middle");
    }
    const double step = std::pow(10, std::floor(std::log10(end_ > 0 ? end_ : 1)));
    const double tick = end_ / step > 5 ? step : end_ / step > 2 ? step / 2 : step / 5;
    for (double v = 0; v <= end_ * (1 + 1e-9); v += tick) {
        const double x = left + v * scale;
        out += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}v5\"/>\n", x, y + 2);
        const double half = s::width_of(shown(v, unit::seconds), s::small_size) / 2;
        if (x + half <= s::page_width - 4)
            out += s::text(x, y + 20, shown(v, unit::seconds), "soft", s::small_size, "middle");
    }
    return s::document(title_, says_, s::page_width, y + 34, out,
        ".idle{fill:#eaeef2}.full{fill:#0550ae}.hollow{fill:#fff;stroke:#bc4c00;stroke-width:1.6}\n"
        "@media (prefers-color-scheme:dark){.idle{fill:#21262d}.full{fill:#79c0ff}"
        ".hollow{fill:#0d1117;stroke:#ffa657}}\n");
}

}  // namespace example
