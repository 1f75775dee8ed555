#include "picture.hpp"

#include "states.hpp"

#include <colls/verify.hpp>
#include <colls/views.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <tuple>

namespace tool {

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text)
        out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
    return out;
}

namespace {

/// The colour of that hue, in degrees, whose luminance is a quarter of white's: it stands out from light squares and
/// from dark ones.
std::string block_colour(int hue) {
    const double saturation = 0.65, wanted = 0.25;
    std::array<double, 3> rgb{};
    double low = 0, high = 1;
    for (int step = 0; step < 20; ++step) {
        const double lightness = (low + high) / 2, chroma = saturation * std::min(lightness, 1 - lightness);
        double luminance = 0;
        for (const auto& [channel, offset, weight] : {std::tuple{0U, 0, 0.2126}, {1U, 8, 0.7152}, {2U, 4, 0.0722}}) {
            const double k = std::fmod(offset + hue / 30.0, 12);
            rgb[channel] = lightness - chroma * std::max(-1.0, std::min({k - 3, 9 - k, 1.0}));
            luminance += weight * std::pow(rgb[channel], 2.2);
        }
        (luminance < wanted ? low : high) = lightness;
    }
    return fmt::format(
        "#{:02x}{:02x}{:02x}", std::lround(255 * rgb[0]), std::lround(255 * rgb[1]), std::lround(255 * rgb[2]));
}

constexpr int square = 10, gap = 2, margin = 20, title_height = 40, rank_width = 56, arrow_width = 90, least_pitch = 34;
constexpr int per_line = 16;  // squares of a rank beside each other

/// A schedule on n ranks, laid out.
class drawing {
public:
    drawing(const entry& of, int n, const std::vector<int>& hosts) : of_(of), n_(n), hosts_(hosts) {
        const colls::any_schedule& s = of.schedule;
        if (!s.supports(n)) throw std::runtime_error(fmt::format("{} does not support {} ranks", title(), n));
        slots_ = s.blocks(n) + s.scratch(n);
        if (s.implements == colls::collective::barrier) slots_ = 1;
        if (n > most_ranks || slots_ > most_slots)
            throw std::runtime_error(
                fmt::format("{} on {} ranks has {} slots a rank; a picture has at most {} ranks and {} slots", title(),
                    n, slots_, most_ranks, most_slots));
        if (const colls::report proof = colls::verify(s, n); !proof.ok())
            throw std::runtime_error(fmt::format("{} on {} ranks is not right: {}", title(), n, proof.text()));
        states_ = states_of(s, n);
        lines_ = (slots_ + per_line - 1) / per_line;
        pitch_ = std::max(least_pitch, lines_ * (square + gap) + 14);
        column_ = std::min(slots_, per_line) * (square + gap) + 8;
        for (const colls::views::transfer& t : colls::views::transfers(s, n)) transfers_.push_back(t);
    }

    int rounds() const { return static_cast<int>(states_.size()) - 1; }
    std::string title() const { return fmt::format("{}, {}", of_.family, colls::name_of(of_.schedule.implements)); }
    std::string heading() const {
        std::string text = fmt::format("{}: {} ranks, {} round{}", title(), n_, rounds(), rounds() == 1 ? "" : "s");
        if (!hosts_.empty()) text += fmt::format("; {} hosts, dashed: between them", hosts_.back() + 1);
        return escaped(text);
    }
    int height() const { return title_height + n_ * pitch_ + margin; }
    /// With that many moments.
    int width(int moments) const { return rank_width + moments * column_ + (moments - 1) * arrow_width + margin; }
    int moment_x(int moment) const { return rank_width + moment * (column_ + arrow_width); }

    /// The ground of each host's ranks.
    std::string grounds(int width) const {
        std::string out;
        for (int r = 0, first = 0; r < static_cast<int>(hosts_.size()); ++r) {
            const int host = hosts_[static_cast<std::size_t>(r)];
            if (r + 1 < n_ && hosts_[static_cast<std::size_t>(r) + 1] == host) continue;
            out += fmt::format(
                "<rect class=\"{}\" x=\"0\" y=\"{}\" width=\"{}\" height=\"{}\"><title>host {}</title></rect>\n",
                host % 2 == 0 ? "even" : "odd", top(first) - 3, width, (r + 1 - first) * pitch_, host);
            first = r + 1;
        }
        return out;
    }
    std::string ranks() const {
        std::string out;
        for (int r = 0; r < n_; ++r)
            out += fmt::format("<text class=\"ink\" x=\"{}\" y=\"{}\" text-anchor=\"end\">rank {}</text>\n",
                rank_width - 8, middle(r) + 4, r);
        return out;
    }
    /// The squares after `round` rounds, at x.
    std::string moment(int round, int x) const {
        std::string out;
        for (int r = 0; r < n_; ++r)
            for (int slot = 0; slot < slots_; ++slot)
                out += cell(states_[static_cast<std::size_t>(round)][static_cast<std::size_t>(r)]
                                   [static_cast<std::size_t>(slot)],
                    x + slot % per_line * (square + gap), top(r) + slot / per_line * (square + gap));
        return out;
    }
    /// The arrows of a round, from x on, and its number.
    std::string arrows(int round, int x) const {
        std::string out = fmt::format("<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">round {}</text>\n",
            x + arrow_width / 2 - 4, title_height - 4, round);
        for (const colls::views::transfer& t : transfers_) {
            if (t.round != round || t.local()) continue;
            const bool reduces = t.action == colls::action::reduce, far = is_far(t);
            out += fmt::format(
                "<path class=\"{0}\" d=\"M{1} {2} L{3} {4}\" stroke-width=\"{5:.1f}\"{6} marker-end=\"url(#{0}-head)\">"
                "<title>round {7}: rank {8} to rank {9}, {10} block{11}{12}{13}</title></path>\n",
                reduces ? "reduces" : "copies", x, middle(t.from), x + arrow_width - 14, middle(t.to),
                t.blocks.size() > 1 ? 2.0 : 1.2, far ? " stroke-dasharray=\"5 3\"" : "", t.round, t.from, t.to,
                t.blocks.size(), t.blocks.size() == 1 ? "" : "s", reduces ? ", reduced" : "",
                far ? ", between hosts" : "");
        }
        return out;
    }
    /// Colours for light and for dark; a page that is narrower than the picture shows all of it, smaller.
    static std::string opening(int width, int height) {
        std::string heads;
        for (const char* const name : {"copies", "reduces"})
            heads += fmt::format(
                "<marker id=\"{0}-head\" viewBox=\"0 0 6 6\" refX=\"5\" refY=\"3\" markerWidth=\"7\" "
                "markerHeight=\"7\" "
                "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path class=\"{0}-head\" d=\"M0 0 L6 3 L0 6 "
                "z\"/></marker>\n",
                name);
        return fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
            "style=\"max-width:100%;height:auto;color-scheme:light dark\" font-family=\"sans-serif\" "
            "font-size=\"11\">\n<style>\n{2}</style>\n"
            "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n<defs>\n{3}</defs>\n",
            width, height, style, heads);
    }

private:
    static constexpr const char* style =
        ".page{fill:#fff}.ink{fill:#1f2328}.soft{fill:#59636e}\n"
        ".even{fill:#eef4fa}.odd{fill:#fbf5ea}.empty{fill:#f2f2f2;stroke:#ccc;stroke-width:.5}\n"
        ".done{fill:#f2f2f2;stroke:#222}.copies{fill:none;stroke:#1f77b4}.reduces{fill:none;stroke:#d62728}\n"
        ".copies-head{fill:#1f77b4}.reduces-head{fill:#d62728}\n"
        "@media (prefers-color-scheme:dark){\n"
        ".page{fill:#0d1117}.ink{fill:#f0f6fc}.soft{fill:#9ba5b1}\n"
        ".even{fill:#132338}.odd{fill:#2a2113}.empty{fill:#262c36;stroke:#4b545f}\n"
        ".done{fill:#262c36;stroke:#f0f6fc}.copies{stroke:#79c0ff}.reduces{stroke:#ff8d85}\n"
        ".copies-head{fill:#79c0ff}.reduces-head{fill:#ff8d85}}\n";

    bool is_far(const colls::views::transfer& t) const {
        return !hosts_.empty() && hosts_[static_cast<std::size_t>(t.from)] != hosts_[static_cast<std::size_t>(t.to)];
    }
    int top(int rank) const { return title_height + rank * pitch_; }
    int middle(int rank) const { return top(rank) + (lines_ * (square + gap) - gap) / 2; }
    /// Blocks of different ranks have different hues.
    std::string cell(const slot_state& s, int x, int y) const {
        const int labels = std::max(slots_, n_), hue = s.label < 0 ? 0 : s.label % labels * 360 / labels;
        const bool combines =
            colls::reduces(of_.schedule.implements) || of_.schedule.implements == colls::collective::barrier;
        const int filled = s.label < 0 ? 0 : combines ? std::max(1, square * s.parts / n_) : square;
        std::string out = fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            s.done ? "done" : "empty", x, y, square, square);
        if (filled > 0)
            out += fmt::format("<rect class=\"block\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>", x,
                y + square - filled, square, filled, block_colour(hue));
        return out + "\n";
    }

    const entry& of_;
    const int n_;
    const std::vector<int> hosts_;
    int slots_ = 0, lines_ = 1, pitch_ = 0, column_ = 0;
    std::vector<picture_state> states_;
    std::vector<colls::views::transfer> transfers_;
};

}  // namespace

std::string svg_of(const entry& of, int n, const std::vector<int>& hosts) {
    const drawing d(of, n, hosts);
    const int width = std::max(d.width(d.rounds() + 1), hosts.empty() ? 260 : 480);
    std::string out = drawing::opening(width, d.height());
    out += fmt::format("<text class=\"ink\" x=\"{}\" y=\"18\" font-size=\"14\">{}</text>\n", margin, d.heading());
    out += d.grounds(width) + d.ranks();
    for (int k = 0; k <= d.rounds(); ++k) {
        out += d.moment(k, d.moment_x(k));
        if (k < d.rounds()) out += d.arrows(k, d.moment_x(k + 1) - arrow_width);
    }
    return out + "</svg>\n";
}

}  // namespace tool
