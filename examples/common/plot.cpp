#include "plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace example {

double plot::range::part(double v) const {
    return logarithmic ? (std::log10(v) - std::log10(low)) / (std::log10(high) - std::log10(low))
                       : (v - low) / (high - low);
}

void plot::add(const std::string& line, double x, double y) {
    auto at = std::ranges::find(lines_, line, &series::name);
    if (at == lines_.end()) at = lines_.insert(lines_.end(), {line, {}});
    at->points.emplace_back(x, y);
}

std::vector<std::string> plot::keep_lowest(std::size_t most) {
    std::map<double, double> lowest;
    for (const series& s : lines_)
        for (const auto& [x, y] : s.points) {
            const auto at = lowest.try_emplace(x, y).first;
            at->second = std::min(at->second, y);
        }
    struct candidate {
        double wins_from, distance;
        std::vector<std::size_t> members;
    };
    std::vector<candidate> candidates;
    for (const group& g : groups(range_of(y_, 1))) {
        candidate c{std::numeric_limits<double>::infinity(), 0, g.members};
        for (const std::size_t m : g.members)
            for (const auto& [x, y] : lines_[m].points)
                if (y <= lowest[x]) c.wins_from = std::min(c.wins_from, x);
        const series& first = lines_[g.members.front()];
        for (const auto& [x, y] : first.points)
            c.distance += std::log(y / lowest[x]) / static_cast<double>(first.points.size());
        candidates.push_back(std::move(c));
    }
    std::ranges::stable_sort(candidates, [](const candidate& a, const candidate& b) {
        return std::pair(a.wins_from, a.distance) < std::pair(b.wins_from, b.distance);
    });
    std::vector<series> kept;
    std::vector<std::string> others;
    for (std::size_t i = 0; i < candidates.size(); ++i)
        for (const std::size_t m : candidates[i].members) {
            if (i < most)
                kept.push_back(std::move(lines_[m]));
            else
                others.push_back(lines_[m].name);
        }
    lines_ = std::move(kept);
    return others;
}

std::string plot::svg() const {
    const svg::part p = drawn();
    return svg::document(title_, says_, svg::page_width, p.height, p.elements);
}

std::string plot::text(int columns, int rows) const {
    const range x = range_of(x_, 0), y = range_of(y_, 1);
    std::vector<std::string> labels(static_cast<std::size_t>(rows));
    std::size_t left = 0;
    const auto row_of = [&](double v) { return static_cast<std::size_t>(std::lround((1 - y.part(v)) * (rows - 1))); };
    for (const double v : ticks(y, y_.in, 1)) {
        labels[row_of(v)] = shown(v, y_.in);
        left = std::max(left, labels[row_of(v)].size());
    }
    const std::size_t wide = static_cast<std::size_t>(std::max(columns, static_cast<int>(left) + 20)) - left - 2;
    std::vector<std::string> cells(static_cast<std::size_t>(rows), std::string(wide, ' '));
    const auto column_of = [&](double v) {
        return static_cast<std::size_t>(std::lround(x.part(v) * static_cast<double>(wide - 1)));
    };
    std::string key;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
        const char sign = "*o+x#@%&"[i % 8];
        const auto& points = lines_[i].points;
        for (std::size_t p = 0; p < points.size(); ++p) {
            const std::size_t to = column_of(points[p].first);
            const std::size_t from = p == 0 ? to : std::min(to, column_of(points[p - 1].first) + 1);
            for (std::size_t c = from; c <= to; ++c) {
                const double whole = p == 0 ? 0 : points[p].first - points[p - 1].first;
                const double along = static_cast<double>(c) / static_cast<double>(wide - 1) * (x.high - x.low) + x.low;
                const double share =
                    whole > 0 && !x_.logarithmic ? std::clamp((along - points[p - 1].first) / whole, 0.0, 1.0) : 1.0;
                const double height = p == 0 ? points[p].second
                                             : points[p - 1].second + share * (points[p].second - points[p - 1].second);
                cells[row_of(height)][c] = sign;
            }
        }
        if (lines_.size() > 1) key += fmt::format("{}{} {}", key.empty() ? "" : "   ", sign, lines_[i].name);
    }
    std::string out = fmt::format("{:>{}}  {}\n", "", left, y_.label);
    for (std::size_t r = 0; r < cells.size(); ++r) {
        cells[r].erase(cells[r].find_last_not_of(' ') + 1);
        out += fmt::format("{:>{}} |{}\n", labels[r], left, cells[r]);
    }
    out += fmt::format("{:>{}} +{}\n", "", left, std::string(wide, '-'));
    std::string below(wide + 8, ' ');
    std::size_t free = 0;
    for (const double v : ticks(x, x_.in, 0)) {
        const std::string number = shown(v, x_.in);
        const std::size_t middle = column_of(v), begin = middle - std::min(middle, number.size() / 2);
        if (begin < free) continue;
        below.replace(begin, number.size(), number);
        free = begin + number.size() + 2;
    }
    below.erase(below.find_last_not_of(' ') + 1);
    out += fmt::format("{:>{}}  {}  {}\n", "", left, below, x_.label);
    return key.empty() ? out : out + fmt::format("{:>{}}  {}\n", "", left, key);
}

plot::range plot::range_of(const axis& a, int coordinate) const {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (const series& s : lines_)
        for (const auto& [x, y] : s.points) {
            const double v = coordinate == 0 ? x : y;
            low = std::min(low, v);
            high = std::max(high, v);
        }
    if (!(low <= high)) low = a.logarithmic ? 1 : 0, high = a.logarithmic ? 10 : 1;
    if (!a.logarithmic && coordinate == 1 && a.from_zero) low = std::min(low, 0.0);
    if (low == high) high = a.logarithmic ? low * 10 : low + 1;
    if (coordinate == 1) {  // so that no line lies on the frame
        if (a.logarithmic) {
            const double edge = std::pow(high / low, 0.03);
            return {low / (edge * edge * edge), high * edge, true};  // words of marks have room below
        }
        const double edge = (high - low) * 0.04;
        return {low == 0 ? 0 : low - edge, high + edge, false};
    }
    return {low, high, a.logarithmic};
}

std::vector<double> plot::ticks(const range& r, unit in, std::size_t coordinate) const {
    constexpr std::size_t most = 7;
    if (r.logarithmic) {
        bool twos = in == unit::binary_bytes;
        if (in == unit::none && coordinate == 0) {
            twos = true;
            for (const series& s : lines_)
                for (const auto& point : s.points) {
                    int exponent = 0;
                    twos &= std::frexp(point.first, &exponent) == 0.5;
                }
        }
        const double base = twos ? 2 : 10, lowest = std::log(r.low) / std::log(base) - 1e-9,
                     highest = std::log(r.high) / std::log(base) + 1e-9;
        if (!twos) {  // 1, 2, 5, 10, ..., where that is not too many
            std::vector<double> values;
            for (double decade = std::pow(10, std::floor(lowest)); decade <= r.high; decade *= 10)
                for (const double v : {decade, 2 * decade, 5 * decade})
                    if (v >= r.low * 0.9999 && v <= r.high * 1.0001) values.push_back(v);
            if (values.size() > 1 && values.size() <= most + 1) return values;
        }
        for (const int step : {1, 2, 3, 5, 10, 20, 40}) {
            std::vector<double> values;
            for (double e = std::ceil(lowest / step) * step; e <= highest; e += step)
                values.push_back(std::pow(base, e));
            if (values.size() <= most && values.size() > 1) return values;
            if (values.size() < 2) break;
        }
        return {r.low, r.high};
    }
    const double raw = (r.high - r.low) / 5, power = std::pow(10, std::floor(std::log10(raw)));
    const double step = raw / power < 1.5   ? power
                        : raw / power < 3.5 ? 2 * power
                        : raw / power < 7.5 ? 5 * power
                                            : 10 * power;
    std::vector<double> values;
    for (double i = std::ceil(r.low / step - 1e-9); i * step <= r.high * (1 + 1e-9); ++i)
        values.push_back(i * step + 0.0);  // no -0
    return values;
}

bool plot::coincide(const series& a, const series& b, const range& y) const {
    return std::ranges::equal(a.points, b.points, [&](const auto& p, const auto& q) {
        return p.first == q.first &&
               std::abs(y.part(p.second) - y.part(q.second)) < 0.006;  // within the width of a line
    });
}

std::vector<plot::group> plot::groups(const range& y) const {
    std::vector<group> all;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
        const auto same = std::ranges::find_if(
            all, [&](const group& g) { return coincide(lines_[g.members.front()], lines_[i], y); });
        const bool thin = thin_.contains(lines_[i].name);
        if (same == all.end()) {
            all.push_back({{i}, thin});
        } else {
            same->members.push_back(i);
            same->thin &= thin;
        }
    }
    return all;
}

std::string plot::label_of(const group& g) const {
    std::string out;
    for (const std::size_t m : g.members) out += (out.empty() ? "" : ", ") + lines_[m].name;
    return out;
}

std::pair<double, plot::box> plot::room_for(const place& at, double width, double height, const box& inside,
    const std::vector<std::vector<place>>& lines, const std::vector<box>& taken) {
    box best{};
    double least = std::numeric_limits<double>::infinity();
    for (const double away : {7.0, 12.0, 20.0, 34.0, 52.0, 76.0, 110.0, 150.0})
        for (const auto& [sideways, upwards] :
            {std::pair{1, 1}, {-1, 1}, {1, -1}, {-1, -1}, {0, 1}, {0, -1}, {1, 0}, {-1, 0}}) {
            const double left = sideways > 0   ? at.x + away
                                : sideways < 0 ? at.x - away - width
                                               : at.x - width / 2,
                         top = upwards > 0   ? at.y - away - height
                               : upwards < 0 ? at.y + away
                                             : at.y - height / 2;
            const box room{left, top, left + width, top + height};
            double cost = away / 25;
            if (room.left < inside.left || room.right > inside.right || room.top < inside.top ||
                room.bottom > inside.bottom)
                cost += 1000;
            for (const box& other : taken) cost += room.meets(other) ? 100 : 0;
            for (const auto& line : lines)
                for (std::size_t i = 1; i < line.size(); ++i) {
                    const int steps =
                        1 + static_cast<int>(std::hypot(line[i].x - line[i - 1].x, line[i].y - line[i - 1].y) / 3);
                    for (int s = 0; s <= steps; ++s) {
                        const double t = static_cast<double>(s) / steps;
                        if (room.holds(line[i - 1].x + t * (line[i].x - line[i - 1].x),
                                line[i - 1].y + t * (line[i].y - line[i - 1].y)))
                            cost += 0.1;
                    }
                }
            if (cost < least) least = cost, best = room;
        }
    return {least, best};
}

std::string plot::words_near(const place& at, const std::string& words, const std::string& look, double size,
    const box& inside, const std::vector<std::vector<place>>& paths, std::vector<box>& taken) {
    double least = std::numeric_limits<double>::infinity();
    std::vector<std::string> lines;
    box room{};
    for (const double width : {label_width, label_width * 0.65, label_width * 0.45}) {
        auto broken = svg::wrapped(words, size, width);
        double wide = 0;
        for (const std::string& line : broken) wide = std::max(wide, svg::width_of(line, size));
        const auto [cost, found] =
            room_for(at, wide, (size + 3) * static_cast<double>(broken.size()) + 1, inside, paths, taken);
        if (cost < least - 0.3) least = cost, room = found, lines = std::move(broken);
    }
    taken.push_back(room);
    const bool from_left = room.left >= at.x;
    std::string out;
    const place near{std::clamp(at.x, room.left, room.right), std::clamp(at.y, room.top, room.bottom)};
    if (const double away = std::hypot(near.x - at.x, near.y - at.y); away > 22) {  // so far that a line leads there
        const double part = 8 / away;
        out += fmt::format("<path class=\"lead axis\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke-dasharray=\"1 2\"/>\n",
            at.x + part * (near.x - at.x), at.y + part * (near.y - at.y), near.x, near.y);
    }
    double baseline = room.top + size;
    for (const std::string& line : lines) {
        out += svg::text(from_left ? room.left : room.right, baseline, line, look, size, from_left ? "start" : "end");
        baseline += size + 3;
    }
    return out;
}

svg::part plot::drawn() const {
    namespace s = svg;
    const range x = range_of(x_, 0), y = range_of(y_, 1);
    const std::vector<group> all = groups(y);

    // The columns of the page: numbers of the y axis, lines, names of lines.
    double numbers = band_.empty() ? 0 : s::width_of(band_label_, s::small_size), names = 0, names_height = 0;
    const std::vector<double> heights = ticks(y, y_.in, 1);
    for (const double v : heights) numbers = std::max(numbers, s::width_of(shown(v, y_.in), s::small_size));
    std::vector<std::vector<std::string>> labels;
    std::vector<double> label_heights;
    std::vector<bool> early;  // lines that end before the others: their names stand there, not in the column
    for (const group& g : all) {
        double last = 0;
        for (const auto& point : lines_[g.members.front()].points) last = std::max(last, x.part(point.first));
        early.push_back(last < 5.0 / 6);
        labels.push_back(s::wrapped(label_of(g), s::text_size, label_width));
        if (early.back()) {
            label_heights.push_back(0);
            continue;
        }
        for (const std::string& line : labels.back()) names = std::max(names, s::width_of(line, s::text_size));
        label_heights.push_back(17.0 * static_cast<double>(labels.back().size()) + 3);
        names_height += label_heights.back();
    }
    const double left = s::margin + numbers + 8, right = s::page_width - s::margin - names - gap;
    const s::part head = s::heading(title_, says_);
    const double top = head.height + 22, bottom = top + std::max(least_height, names_height);
    const auto x_of = [&](double v) { return left + x.part(v) * (right - left); };
    const auto y_of = [&](double v) { return bottom - y.part(v) * (bottom - top); };

    std::string out = head.elements;
    out += s::text(s::margin, top - 12, y_.label, "soft", s::small_size);
    for (const double v : heights) {
        out += fmt::format(
            "<path class=\"{}\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", v == 0 ? "axis" : "grid", left, y_of(v), right);
        out += s::text(left - 8, y_of(v) + 4.5, shown(v, y_.in), "soft", s::small_size, "end");
    }
    double below = bottom + 19;
    std::string foot;
    if (!band_.empty()) foot = band_below(x_of, left, right, bottom, below, all);
    double free = -1e9;
    for (const double v : ticks(x, x_.in, 0)) {
        out += fmt::format("<path class=\"grid\" d=\"M{0:.1f} {1:.1f}V{2:.1f}\"/>\n", x_of(v), top, bottom);
        const std::string number = shown(v, x_.in);
        const double half = s::width_of(number, s::small_size) / 2;
        if (x_of(v) - half < free) continue;
        free = x_of(v) + half + 6;
        out += s::text(x_of(v), below, number, "soft", s::small_size, "middle");
    }
    out += foot;
    out += s::text((left + right) / 2, below + 20, x_.label, "soft", s::small_size, "middle");
    below += 20;

    // The lines, thin ones below the others, and their names.
    std::vector<std::vector<place>> paths;
    std::vector<double> ends;
    for (const group& g : all) {
        auto& path = paths.emplace_back();
        for (const auto& [px, py] : lines_[g.members.front()].points) path.push_back({x_of(px), y_of(py)});
        ends.push_back(std::ranges::max_element(path, {}, &place::x)->y);
    }
    for (const bool thin : {true, false})
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (all[i].thin != thin) continue;
            std::string d;
            for (const place& p : paths[i]) d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", p.x, p.y);
            out += fmt::format(
                "<path class=\"line c{}\" d=\"{}\" stroke-width=\"{}\" stroke-dasharray=\"{}\" "
                "stroke-linejoin=\"round\"/>\n",
                s::colour_of(i), d, thin ? 1.2 : 2.4, s::dash_of(i));
        }
    std::vector<box> taken;
    for (const marked& m : marks_) taken.push_back({x_of(m.x) - 6, y_of(m.y) - 6, x_of(m.x) + 6, y_of(m.y) + 6});
    const box inside{left + 2, top - 4, right - 2, bottom - 2};
    std::string words;  // of marks: placed first, since they are short and belong to a point; drawn last
    for (const marked& m : marks_)
        if (!m.words.empty())
            words += words_near({x_of(m.x), y_of(m.y)}, m.words, "ink over", s::small_size, inside, paths, taken);
    const std::vector<double> centres = spread(ends, label_heights, top - 8, bottom + 8);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const place end = *std::ranges::max_element(paths[i], {}, &place::x);
        if (early[i]) {
            out += words_near(end, label_of(all[i]), fmt::format("label over f{}", s::colour_of(i)), s::text_size,
                inside, paths, taken);
            continue;
        }
        out += fmt::format("<path class=\"lead c{}\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke-dasharray=\"1 2\"/>\n",
            s::colour_of(i), end.x + 2, end.y, right + gap - 5, centres[i]);
        double baseline = centres[i] - 17.0 * static_cast<double>(labels[i].size() - 1) / 2 + 5;
        for (const std::string& line : labels[i]) {
            out += s::text(right + gap, baseline, line, fmt::format("label f{}", s::colour_of(i)));
            baseline += 17;
        }
    }

    for (const marked& m : marks_)
        out += fmt::format(
            "<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\" stroke-width=\"2\"/>\n", x_of(m.x), y_of(m.y));
    out += words;
    for (const std::string& note : notes_)
        for (const std::string& line : s::wrapped(note, s::small_size, s::page_width - 2 * s::margin)) {
            below += 20;
            out += s::text(s::margin, below, line, "soft", s::small_size);
        }
    return {out, below + s::margin};
}

std::string plot::band_below(const std::function<double(double)>& x_of, double left, double right, double bottom,
    double& below, const std::vector<group>& all) const {
    namespace s = svg;
    const double top = bottom + 7, high = 20;
    std::string out = s::text(left - 8, top + 14.5, band_label_, "soft", s::small_size, "end");
    std::vector<double> middles, widths;
    std::vector<std::size_t> outside;
    for (std::size_t i = 0; i < band_.size(); ++i) {
        const double from = std::max(left, x_of(band_[i].from)), to = std::min(right, x_of(band_[i].to));
        const std::size_t line = line_of(band_[i].line, all);
        out += fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"/>\n",
            line < all.size() ? fmt::format("f{}", s::colour_of(line)) : "soft", from, top,
            std::max(1.0, to - from - (i + 1 < band_.size() ? 2 : 0)), high);
        const double wide = s::width_of(band_[i].line, s::small_size);
        if (wide + 8 < to - from) {
            out += s::text((from + to) / 2, top + 14.5, band_[i].line, "page", s::small_size, "middle");
        } else {
            middles.push_back((from + to) / 2);
            widths.push_back(wide + 10);
            outside.push_back(i);
        }
    }
    below = top + high + 16;
    if (outside.empty()) return out;
    const std::vector<double> at = spread(middles, widths, left, s::page_width - s::margin);
    for (std::size_t i = 0; i < outside.size(); ++i) {
        const std::size_t line = line_of(band_[outside[i]].line, all);
        const std::string colour = line < all.size() ? fmt::format("f{}", s::colour_of(line)) : "soft";
        out += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n", middles[i], top + high + 1,
            at[i], top + high + 8);
        out += s::text(at[i], top + high + 20, band_[outside[i]].line, colour, s::small_size, "middle");
    }
    below += 22;
    return out;
}

std::size_t plot::line_of(const std::string& name, const std::vector<group>& all) const {
    const auto found = std::ranges::find_if(all, [&](const group& g) {
        return std::ranges::any_of(g.members, [&](std::size_t m) { return lines_[m].name == name; });
    });
    return static_cast<std::size_t>(found - all.begin());
}

std::string plots::svg() const {
    std::string elements, titles, sentences;
    double height = 0;
    for (const plot& chart : charts_) {
        const svg::part p = chart.drawn();
        elements += fmt::format("<g transform=\"translate(0 {:.0f})\">\n{}</g>\n", height, p.elements);
        height += p.height;
        titles += (titles.empty() ? "" : "; ") + chart.title_;
        sentences += (sentences.empty() ? "" : " ") + chart.says_;
    }
    return svg::document(titles, sentences, svg::page_width, height, elements);
}

}  // namespace example
