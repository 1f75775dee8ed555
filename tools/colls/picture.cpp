#include "picture.hpp"

#include "states.hpp"

#include <colls/verify.hpp>
#include <colls/views.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace tool {

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text)
        out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
    return out;
}

namespace {

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
                "<rect x=\"0\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"><title>host {}</title></rect>\n",
                top(first) - 3, width, (r + 1 - first) * pitch_, host % 2 == 0 ? "#eef4fa" : "#fbf5ea", host);
            first = r + 1;
        }
        return out;
    }
    std::string ranks() const {
        std::string out;
        for (int r = 0; r < n_; ++r)
            out += fmt::format(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">rank {}</text>\n", rank_width - 8, middle(r) + 4, r);
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
        std::string out = fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">round {}</text>\n",
            x + arrow_width / 2 - 4, title_height - 4, round);
        for (const colls::views::transfer& t : transfers_) {
            if (t.round != round || t.local()) continue;
            const bool reduces = t.action == colls::action::reduce, far = is_far(t);
            out += fmt::format(
                "<path d=\"M{} {} L{} {}\" stroke=\"{}\" stroke-width=\"{:.1f}\"{} fill=\"none\" "
                "marker-end=\"url(#{})\"><title>round {}: rank {} to rank {}, {} block{}{}{}</title></path>\n",
                x, middle(t.from), x + arrow_width - 14, middle(t.to), reduces ? reduce_colour : copy_colour,
                t.blocks.size() > 1 ? 2.0 : 1.2, far ? " stroke-dasharray=\"5 3\"" : "", reduces ? "reduces" : "copies",
                t.round, t.from, t.to, t.blocks.size(), t.blocks.size() == 1 ? "" : "s", reduces ? ", reduced" : "",
                far ? ", between hosts" : "");
        }
        return out;
    }
    static std::string definitions() {
        std::string out = "<defs>\n";
        for (const auto& [name, colour] : {std::pair{"copies", copy_colour}, {"reduces", reduce_colour}})
            out += fmt::format(
                "<marker id=\"{}\" viewBox=\"0 0 6 6\" refX=\"5\" refY=\"3\" markerWidth=\"7\" markerHeight=\"7\" "
                "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0 L6 3 L0 6 z\" fill=\"{}\"/></marker>\n",
                name, colour);
        return out + "</defs>\n";
    }
    static std::string opening(int width, int height) {
        return fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
            "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}",
            width, height, definitions());
    }

private:
    static constexpr const char *copy_colour = "#1f77b4", *reduce_colour = "#d62728";

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
        std::string out = fmt::format(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#f2f2f2\" stroke=\"{}\" stroke-width=\"{}\"/>",
            x, y, square, square, s.done ? "#222" : "#ccc", s.done ? "1" : "0.5");
        if (filled > 0)
            out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"hsl({},65%,55%)\"/>", x,
                y + square - filled, square, filled, hue);
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
    out += fmt::format("<text x=\"{}\" y=\"18\" font-size=\"14\">{}</text>\n", margin, d.heading());
    out += d.grounds(width) + d.ranks();
    for (int k = 0; k <= d.rounds(); ++k) {
        out += d.moment(k, d.moment_x(k));
        if (k < d.rounds()) out += d.arrows(k, d.moment_x(k + 1) - arrow_width);
    }
    return out + "</svg>\n";
}

}  // namespace tool
