// What the project's pictures share: the page with its title and its sentence, colours for light and for dark, dashes,
// text and the room it takes, numbers with units. Charts: plot.hpp, gantt.hpp, and benchmarks/peers_report.hpp.
//
// Rules: a picture says in one sentence what is seen; text stands at what it names, without a legend; what differs in
// colour differs in dash or number, too; and no two texts overlap.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace example {

/// What the numbers of an axis are. Values are bytes, seconds, bytes a second; per cent from 0 to 100.
enum class unit { none, bytes, binary_bytes, seconds, bytes_a_second, percent };

/// A number as it is read: "32 KB", "4.2 us", "10k", "80 %". `binary_bytes` has 1024 bytes in a KB, all others 1000.
std::string shown(double value, unit in = unit::none);

/// Puts intervals of these lengths, centred at `wanted`, next to each other where they would overlap, each as near as
/// possible to its wish, between `low` and `high`. Returns their centres.
std::vector<double> spread(
    const std::vector<double>& wanted, const std::vector<double>& lengths, double low, double high);

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

std::string escaped(std::string_view text);

/// Room for the text in the widest of the usual sans-serif fonts.
double width_of(std::string_view text, double size);

/// Lines of at most that width, broken at spaces.
std::vector<std::string> wrapped(std::string_view text, double size, double width);

/// A text. `look`: its classes, of those that `document` defines: ink, soft, f0 to f7 (the colours of lines), bold,
/// over (with an edge of the page's colour, for text over lines). `anchor`: start, middle, end.
std::string text(double x, double y, std::string_view words, std::string_view look = "ink", double size = text_size,
    std::string_view anchor = "start");

/// A part of a page: elements whose place is relative to its upper left corner, and how high it is.
struct part {
    std::string elements;
    double height = 0;
};

/// What stands above a chart: its title, and the sentence that says what is seen.
part heading(std::string_view title, std::string_view says, double width = page_width);

/// The whole document. `title` and `says` are what a screen reader says. `style`: rules beside those of all pictures.
std::string document(std::string_view title, std::string_view says, double width, double height,
    std::string_view elements, std::string_view style = "");

/// Writes a picture. Throws std::runtime_error that names the file.
void write(const std::string& file, const std::string& picture);

}  // namespace svg

}  // namespace example
