// Words and sizes that a user wrote, as all programs of tools/ read and refuse them.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace input {

/// How many letters must be put in, left out or replaced to make one word of the other.
inline std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
        }
    }
    return row.back();
}

/// "; did you mean 'ring'?", or "" where no known word is like this one.
inline std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
    std::size_t least = 1 + word.size() / 4;
    std::string nearest;
    for (const std::string& each : known) {
        const bool begins = word.size() >= 3 && each.starts_with(word);
        const std::size_t far = begins ? 1 : distance(word, each);
        if (far > least || (far == least && !nearest.empty())) continue;
        least = far;
        nearest = each;
    }
    return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
}

/// "there is no family 'rings'; did you mean 'ring'? There are: direct, ring"
inline std::string unknown(std::string_view kind, std::string_view word, const std::vector<std::string>& known) {
    const std::string meant = did_you_mean(word, known);
    return fmt::format("there is no {} '{}'{} {}: {}", kind, word, meant.empty() ? ";" : meant,
        meant.empty() ? "there are" : "There are", fmt::join(known, ", "));
}

/// Bytes from 8, 64K, 2.5M, 32 MiB as 32MiB, 1G. Throws std::runtime_error for what is no size, and for more than 2 to
/// the power of `bits`: what computes with sizes has room for a few times as much.
inline double parse_size(const std::string& text, int bits = 60) {
    double value = -1;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    std::string unit(end, text.data() + text.size());
    for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (unit.ends_with('B')) unit.pop_back();
    if (unit.size() == 2 && unit[1] == 'I') unit.pop_back();
    const std::size_t power = std::string_view(" KMGT").find(unit.empty() ? " " : unit);
    if (failed != std::errc() || unit.size() > 1 || power > 4 || !(value >= 0))
        throw std::runtime_error(fmt::format("'{}' is not a size; sizes are bytes, or 4K, 2.5M, 1G, 1T", text));
    const double bytes = std::ldexp(value, 10 * static_cast<int>(power));
    if (bytes > std::ldexp(1, bits))
        throw std::runtime_error(fmt::format("'{}' is more than the largest size, 2^{} bytes", text, bits));
    return bytes;
}

}  // namespace input
