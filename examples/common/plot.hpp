// Line charts, for --plot as SVG files and for the terminal. Each line has its name at its right end.
#pragma once

#include "svg.hpp"

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace example {

struct axis {
    std::string label;
    bool logarithmic = false;
    unit in = unit::none;
    bool from_zero = true;  ///< of heights on a scale that is not logarithmic
};

/// A chart of lines. Points of a line are joined in the order in which they were added; on a logarithmic axis values
/// must be above 0. Lines that lie upon each other are drawn as one, with all their names.
class plot {
public:
    plot(std::string title, axis x, axis y) : title_(std::move(title)), x_(std::move(x)), y_(std::move(y)) {}

    /// Adds a point to the line of that name; a new name begins a line.
    void add(const std::string& line, double x, double y);

    /// What is seen, in one sentence.
    void says(std::string sentence) { says_ = std::move(sentence); }

    /// A line of text below the chart.
    void note(std::string words) { notes_.push_back(std::move(words)); }

    /// Draws that line thinly, as background to the others.
    void thin(const std::string& line) { thin_.insert(line); }

    /// Marks a point with a circle, and says what is there.
    void mark(double x, double y, std::string words = "") { marks_.push_back({x, y, std::move(words)}); }

    /// A stretch of the x axis, and the line that it belongs to.
    struct stretch {
        double from, to;
        std::string line;
    };
    /// Draws a band below the chart, of stretches in the colours of lines. `label` stands before it.
    void band(std::string label, std::vector<stretch> stretches) {
        band_label_ = std::move(label);
        band_ = std::move(stretches);
    }

    /// Keeps at most `most` lines, where lines upon each other count as one: first those that are the lowest somewhere,
    /// from left to right, then those that are the nearest to the lowest on average. Returns the names of the others.
    std::vector<std::string> keep_lowest(std::size_t most);

    std::string svg() const;

    /// Writes the chart. Throws std::runtime_error that names the file.
    void write(const std::string& file) const { svg::write(file, svg()); }

    friend class plots;

    /// The chart in characters, as many as given, for a terminal.
    std::string text(int columns = 76, int rows = 14) const;

private:
    struct series {
        std::string name;
        std::vector<std::pair<double, double>> points;
    };
    struct marked {
        double x, y;
        std::string words;
    };
    /// Lines that lie upon each other.
    struct group {
        std::vector<std::size_t> members;
        bool thin = false;
    };
    struct range {
        double low, high;
        bool logarithmic;
        double part(double v) const;  // of the way from low to high
    };
    struct box {
        double left, top, right, bottom;
        bool meets(const box& other) const {
            return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
        }
        bool holds(double x, double y) const { return left < x && x < right && top < y && y < bottom; }
    };
    struct place {
        double x, y;
    };

    static constexpr double least_height = 290, label_width = 172, gap = 26;

    range range_of(const axis& a, int coordinate) const;

    /// At most about 7 round values in that range. On a logarithmic scale powers of 2 for sizes in memory and for
    /// numbers of ranks, else of 10.
    std::vector<double> ticks(const range& r, unit in, std::size_t coordinate) const;

    bool coincide(const series& a, const series& b, const range& y) const;
    std::vector<group> groups(const range& y) const;
    std::string label_of(const group& g) const;

    /// Where the words of a mark stand: near it, off the lines and off other words as far as possible; and how bad that
    /// place is.
    static std::pair<double, box> room_for(const place& at, double width, double height, const box& inside,
        const std::vector<std::vector<place>>& lines, const std::vector<box>& taken);

    /// Words near a point, in one of several widths; their room is then taken.
    static std::string words_near(const place& at, const std::string& words, const std::string& look, double size,
        const box& inside, const std::vector<std::vector<place>>& paths, std::vector<box>& taken);

    svg::part drawn() const;

    /// The band, and below it the names for which their stretch is too short. `below`: where the numbers of the x axis
    /// stand, which it moves down.
    std::string band_below(const std::function<double(double)>& x_of, double left, double right, double bottom,
        double& below, const std::vector<group>& all) const;
    std::size_t line_of(const std::string& name, const std::vector<group>& all) const;

    std::string title_, says_, band_label_;
    axis x_, y_;
    std::vector<series> lines_;
    std::vector<stretch> band_;
    std::set<std::string> thin_;
    std::vector<marked> marks_;
    std::vector<std::string> notes_;
};

/// Charts one above the other, as one picture: quantities with different units of the same runs.
class plots {
public:
    explicit plots(std::vector<plot> charts) : charts_(std::move(charts)) {}

    plot& operator[](std::size_t i) { return charts_[i]; }

    std::string svg() const;

    /// Writes the picture. Throws std::runtime_error that names the file.
    void write(const std::string& file) const { svg::write(file, svg()); }

private:
    std::vector<plot> charts_;
};

}  // namespace example
