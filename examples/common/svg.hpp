// What the project's pictures share: the page with its title and its sentence, colours for light and for dark, dashes,
// text and the room it takes, numbers with units. Charts: plot.hpp, gantt.hpp, and benchmarks/peers_report.hpp.
//
// Rules: a picture says in one sentence what is seen; text stands at what it names, without a legend; what differs in
// colour differs in dash or number, too; and no two texts overlap.
#pragma once

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

/// What the numbers of an axis are. Values are bytes, seconds, bytes a second; per cent from 0 to 100.
enum class unit { none, bytes, binary_bytes, seconds, bytes_a_second, percent };

/// A number as it is read: "32 KB", "4.2 us", "10k", "80 %". `binary_bytes` has 1024 bytes in a KB, all others 1000.
inline std::string shown(double value, unit in = unit::none) {
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

/// Puts intervals of these lengths, centred at `wanted`, next to each other where they would overlap, each as near as
/// possible to its wish, between `low` and `high`. Returns their centres.
inline std::vector<double> spread(
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

inline constexpr double page_width = 680, margin = 16;
inline constexpr double title_size = 19, text_size = 14, small_size = 13;
inline constexpr double title_pitch = 25, text_pitch = 19;

/// Colours of lines, all of them readable as text on the page: as they are on a light page and on a dark one.
struct colour {
    const char *light, *dark;
};
inline constexpr std::array<colour, 8> colours{
    {{"#0550ae", "#79c0ff"}, {"#bc4c00", "#ffa657"}, {"#116329", "#56d364"}, {"#8250df", "#d2a8ff"},
        {"#a0005f", "#ff7bb9"}, {"#0b7285", "#39d3d8"}, {"#7a5c00", "#e3c341"}, {"#57606a", "#b1bac4"}}};
/// Dashes, so that lines differ without colour, too. Line i has colour i % 8 and dash (i + i / 8) % 8.
inline constexpr std::array dashes{"none", "9 4", "2.5 3", "12 4 2.5 4", "5 3", "18 5", "9 3 2.5 3 2.5 3", "1.5 5"};

inline std::size_t colour_of(std::size_t line) { return line % colours.size(); }
inline std::string_view dash_of(std::size_t line) { return dashes[(line + line / dashes.size()) % dashes.size()]; }

inline std::string escaped(std::string_view text) {
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

/// Room for the text in the widest of the usual sans-serif fonts.
inline double width_of(std::string_view text, double size) {
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

/// Lines of at most that width, broken at spaces.
inline std::vector<std::string> wrapped(std::string_view text, double size, double width) {
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

/// A text. `look`: its classes, of those that `document` defines: ink, soft, f0 to f7 (the colours of lines), bold,
/// over (with an edge of the page's colour, for text over lines). `anchor`: start, middle, end.
inline std::string text(double x, double y, std::string_view words, std::string_view look = "ink",
    double size = text_size, std::string_view anchor = "start") {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" font-size=\"{}\" text-anchor=\"{}\">{}</text>\n",
        x, y, look, size, anchor, escaped(words));
}

/// A part of a page: elements whose place is relative to its upper left corner, and how high it is.
struct part {
    std::string elements;
    double height = 0;
};

/// What stands above a chart: its title, and the sentence that says what is seen.
inline part heading(std::string_view title, std::string_view says, double width = page_width) {
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

/// The whole document. `title` and `says` are what a screen reader says. `style`: rules beside those of all pictures.
inline std::string document(std::string_view title, std::string_view says, double width, double height,
    std::string_view elements, std::string_view style = "") {
    std::string light, dark;
    for (std::size_t i = 0; i < colours.size(); ++i) {
        light += fmt::format(".c{0}{{stroke:{1}}}.f{0}{{fill:{1}}}", i, colours[i].light);
        dark += fmt::format(".c{0}{{stroke:{1}}}.f{0}{{fill:{1}}}", i, colours[i].dark);
    }
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "role=\"img\" aria-labelledby=\"title desc\" "
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

/// Writes a picture. Throws std::runtime_error that names the file.
inline void write(const std::string& file, const std::string& picture) {
    std::ofstream out(file);
    out << picture;
    if (!out.flush()) throw std::runtime_error("cannot write the plot " + file);
}

}  // namespace svg

}  // namespace example
