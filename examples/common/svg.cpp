#include "svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

std::string shown(double value, unit in) {
    const auto digits = [](double v) {
        return std::abs(v) >= 100 || v == std::round(v) ? fmt::format("{:.0f}", v) : fmt::format("{:.3g}", v);
    };
    const double size = std::abs(value);
    const auto with_prefix = [&](double step, const auto& suffixes) {
        double scale = 1;
        std::size_t at = 0;
        while (at + 1 < suffixes.size() && size >= 0.9995 * scale * step) scale *= step, ++at;
        return digits(value / scale) + suffixes[at];
    };
    switch (in) {
        case unit::bytes:
            return with_prefix(1000, std::array{" B", " KB", " MB", " GB", " TB"});
        case unit::binary_bytes:
            return with_prefix(1024, std::array{" B", " KB", " MB", " GB", " TB"});
        case unit::bytes_a_second:
            return with_prefix(1000, std::array{" B/s", " KB/s", " MB/s", " GB/s", " TB/s"});
        case unit::seconds:
            if (value == 0) return "0";
            for (const auto& [scale, suffix] : {std::pair{1.0, " s"}, {1e-3, " ms"}, {1e-6, " us"}})
                if (size >= 0.9995 * scale) return digits(value / scale) + suffix;
            return digits(value * 1e9) + " ns";
        case unit::percent:
            return digits(value) + " %";
        case unit::none:
            break;
    }
    if (size < 1e-12) return "0";
    if (size < 1e4) return fmt::format("{:.4g}", value);
    if (size < 1e6 && std::fmod(size, 1000) != 0)
        return fmt::format("{:.0f},{:03.0f}", std::trunc(value / 1000), std::fmod(size, 1000));
    return with_prefix(1000, std::array{"", "k", "M", "G"});
}

std::vector<double> spread(
    const std::vector<double>& wanted, const std::vector<double>& lengths, double low, double high) {
    struct cluster {
        std::vector<std::size_t> members;
        double length = 0, sum = 0;  // of the wishes for its begin
        double begin(double low, double high) const {
            const double wish = sum / static_cast<double>(members.size());
            return std::max(low, std::min(wish, high - length));
        }
    };
    std::vector<std::size_t> order(wanted.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return wanted[i]; });
    std::vector<cluster> clusters;
    for (const std::size_t i : order) {
        clusters.push_back({{i}, lengths[i], wanted[i] - lengths[i] / 2});
        while (clusters.size() > 1) {
            cluster &before = clusters[clusters.size() - 2], &last = clusters.back();
            if (before.begin(low, high) + before.length <= last.begin(low, high)) break;
            before.sum += last.sum - before.length * static_cast<double>(last.members.size());
            before.length += last.length;
            before.members.insert(before.members.end(), last.members.begin(), last.members.end());
            clusters.pop_back();
        }
    }
    std::vector<double> centres(wanted.size());
    for (const cluster& c : clusters) {
        double at = c.begin(low, high);
        for (const std::size_t i : c.members) {
            centres[i] = at + lengths[i] / 2;
            at += lengths[i];
        }
    }
    return centres;
}

namespace svg {

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) switch (c) {
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '&':
                out += "&amp;";
                break;
            case '"':
                out += "&quot;";
                break;
            default:
                out += c;
        }
    return out;
}

double width_of(std::string_view text, double size) {
    double em = 0;
    for (const char c : text) {
        if ((static_cast<unsigned char>(c) & 0xc0) == 0x80) continue;  // a character counts once
        em += std::string_view("ijl'|").find(c) != std::string_view::npos             ? 0.30
              : std::string_view(" .,:;ft()/-I[]r").find(c) != std::string_view::npos ? 0.39
              : std::string_view("mwMW%<>=+@").find(c) != std::string_view::npos      ? 0.93
              : c >= 'A' && c <= 'Z'                                                  ? 0.70
                                                                                      : 0.63;
    }
    return em * size;
}

std::vector<std::string> wrapped(std::string_view text, double size, double width) {
    std::vector<std::string> lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(' '), text.size());
        const std::string word(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (lines.empty() || width_of(lines.back() + ' ' + word, size) > width)
            lines.push_back(word);
        else
            lines.back() += ' ' + word;
    }
    return lines;
}

std::string text(
    double x, double y, std::string_view words, std::string_view look, double size, std::string_view anchor) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" font-size=\"{}\" text-anchor=\"{}\">{}</text>\n",
        x, y, look, size, anchor, escaped(words));
}

part heading(std::string_view title, std::string_view says, double width) {
    part out;
    double y = margin + title_size - 4;
    for (const std::string& line : wrapped(title, title_size * 1.08, width - 2 * margin)) {
        out.elements += text(margin, y, line, "ink bold", title_size);
        y += title_pitch;
    }
    for (const std::string& line : wrapped(says, text_size, width - 2 * margin)) {
        out.elements += text(margin, y, line, "soft");
        y += text_pitch;
    }
    out.height = y;
    return out;
}

std::string document(std::string_view title, std::string_view says, double width, double height,
    std::string_view elements, std::string_view style) {
    std::string light, dark;
    for (std::size_t i = 0; i < colours.size(); ++i) {
        light += fmt::format(".c{0}{{stroke:{1}}}.f{0}{{fill:{1}}}", i, colours[i].light);
        dark += fmt::format(".c{0}{{stroke:{1}}}.f{0}{{fill:{1}}}", i, colours[i].dark);
    }
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "style=\"max-width:100%;height:auto;color-scheme:light dark\" role=\"img\" aria-labelledby=\"title desc\" "
        "font-family=\"-apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\">\n"
        "<title id=\"title\">{2}</title>\n<desc id=\"desc\">{3}</desc>\n"
        "<style>\n"
        "path{{fill:none}}.bold{{font-weight:600}}.page{{fill:#fff}}.ink{{fill:#1f2328}}.soft{{fill:#59636e}}\n"
        ".grid{{stroke:#e2e6ea}}.axis{{stroke:#818b98}}.dot{{fill:#fff;stroke:#1f2328}}.lead{{stroke-width:1}}\n"
        ".over{{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}}\n"
        "{4}\n"
        "@media (prefers-color-scheme:dark){{\n"
        ".page{{fill:#0d1117}}.ink{{fill:#f0f6fc}}.soft{{fill:#9ba5b1}}\n"
        ".grid{{stroke:#262c36}}.axis{{stroke:#6e7681}}.dot{{fill:#0d1117;stroke:#f0f6fc}}.over{{stroke:#0d1117}}\n"
        "{5}}}\n{6}</style>\n"
        "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{7}</svg>\n",
        width, height, escaped(title), escaped(says), light, dark, style, elements);
}

void write(const std::string& file, const std::string& picture) {
    std::ofstream out(file);
    out << picture;
    if (!out.flush()) throw std::runtime_error("cannot write the plot " + file);
}

}  // namespace svg

}  // namespace example
