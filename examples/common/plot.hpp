// Line charts as SVG files, for --plot.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace example {

struct axis {
    std::string label;
    bool logarithmic = false;
};

/// A chart of lines. Points of a line are joined in the order in which they were added; on a logarithmic axis values
/// must be above 0.
class plot {
public:
    plot(std::string title, axis x, axis y) : title_(std::move(title)), x_(std::move(x)), y_(std::move(y)) {}

    /// Adds a point to the line of that name; a new name begins a line.
    void add(const std::string& line, double x, double y) {
        auto at = std::ranges::find(lines_, line, &series::name);
        if (at == lines_.end()) at = lines_.insert(lines_.end(), {line, {}});
        at->points.emplace_back(x, y);
    }

    /// Draws that line thinly, as background to the others.
    void thin(const std::string& line) { thin_.push_back(line); }

    /// Marks a point with a circle.
    void mark(double x, double y) { marks_.emplace_back(x, y); }

    std::string svg() const {
        const range x = range_of(x_, 0), y = range_of(y_, 1);
        std::string out = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
            "<text x=\"{}\" y=\"20\" text-anchor=\"middle\" font-size=\"14\">{}</text>\n",
            width, height, width / 2, escaped(title_));
        for (const double v : ticks(x_, x)) {
            const double px = left + x.part(v) * (width - left - right);
            out += fmt::format(
                "<path d=\"M{0:.1f} {1} V{2}\" stroke=\"#ddd\"/><text x=\"{0:.1f}\" y=\"{3}\" "
                "text-anchor=\"middle\">{4}</text>\n",
                px, top, height - bottom, height - bottom + 16, number(v));
        }
        for (const double v : ticks(y_, y)) {
            const double py = height - bottom - y.part(v) * (height - top - bottom);
            out += fmt::format(
                "<path d=\"M{0} {1:.1f} H{2}\" stroke=\"#ddd\"/><text x=\"{3}\" y=\"{4:.1f}\" "
                "text-anchor=\"end\">{5}</text>\n",
                left, py, width - right, left - 6, py + 4, number(v));
        }
        out += fmt::format(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n"
            "<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
            (left + width - right) / 2, height - 8, escaped(x_.label), (top + height - bottom) / 2, escaped(y_.label));
        std::size_t index = 0;
        for (const series& s : lines_) {
            const char* colour = colours[index % colours.size()];
            std::string path;
            for (const auto& [px, py] : s.points)
                path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L",
                    left + x.part(px) * (width - left - right), height - bottom - y.part(py) * (height - top - bottom));
            const int row = top + 12 + 18 * static_cast<int>(index++);
            out += fmt::format(
                "<path d=\"{0}\" fill=\"none\" stroke=\"{1}\" stroke-width=\"{2}\"/>\n"
                "<path d=\"M{3} {4} h18\" stroke=\"{1}\" stroke-width=\"{2}\"/><text x=\"{5}\" y=\"{6}\">{7}</text>\n",
                path, colour, std::ranges::find(thin_, s.name) == thin_.end() ? 2.0 : 0.7, width - right + 10, row,
                width - right + 34, row + 4, escaped(s.name));
        }
        for (const auto& [mx, my] : marks_)
            out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"none\" stroke=\"black\"/>\n",
                left + x.part(mx) * (width - left - right), height - bottom - y.part(my) * (height - top - bottom));
        return out + "</svg>\n";
    }

    /// Writes the chart. Throws std::runtime_error that names the file.
    void write(const std::string& file) const {
        std::ofstream out(file);
        out << svg();
        if (!out.flush()) throw std::runtime_error("cannot write the plot " + file);
    }

private:
    static constexpr int width = 760, height = 420, left = 70, right = 200, top = 36, bottom = 48;
    static constexpr std::array colours{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b"};

    struct series {
        std::string name;
        std::vector<std::pair<double, double>> points;
    };
    struct range {
        double low, high;
        bool logarithmic;
        double part(double v) const {
            return logarithmic ? (std::log10(v) - std::log10(low)) / (std::log10(high) - std::log10(low))
                               : (v - low) / (high - low);
        }
    };

    range range_of(const axis& a, int coordinate) const {
        double low = std::numeric_limits<double>::infinity(), high = -low;
        for (const series& s : lines_)
            for (const auto& [x, y] : s.points) {
                const double v = coordinate == 0 ? x : y;
                low = std::min(low, v);
                high = std::max(high, v);
            }
        if (!(low <= high)) low = a.logarithmic ? 1 : 0, high = a.logarithmic ? 10 : 1;
        if (!a.logarithmic && coordinate == 1) low = std::min(low, 0.0);  // heights are compared from 0
        if (low == high) high = a.logarithmic ? low * 10 : low + 1;
        return {low, high, a.logarithmic};
    }

    static std::vector<double> ticks(const axis& a, const range& r) {
        std::vector<double> values;
        if (a.logarithmic) {
            for (double v = std::pow(10, std::floor(std::log10(r.low))); v <= r.high * 1.0001; v *= 10)
                if (v >= r.low * 0.9999) values.push_back(v);
            if (values.size() < 2) values = {r.low, r.high};
            return values;
        }
        const double raw = (r.high - r.low) / 5, unit = std::pow(10, std::floor(std::log10(raw)));
        const double step = raw / unit < 1.5   ? unit
                            : raw / unit < 3.5 ? 2 * unit
                            : raw / unit < 7.5 ? 5 * unit
                                               : 10 * unit;
        for (double v = std::ceil(r.low / step) * step; v <= r.high + step / 1000; v += step) values.push_back(v);
        return values;
    }

    static std::string number(double v) {
        const double size = std::abs(v);
        for (const auto& [unit, suffix] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
            if (size >= unit) return fmt::format("{:.4g}{}", v / unit, suffix);
        return fmt::format("{:.4g}", size < 1e-12 ? 0.0 : v);
    }

    static std::string escaped(const std::string& text) {
        std::string out;
        for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
        return out;
    }

    std::string title_;
    axis x_, y_;
    std::vector<series> lines_;
    std::vector<std::string> thin_;
    std::vector<std::pair<double, double>> marks_;
};

}  // namespace example
