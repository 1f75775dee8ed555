#include "commands.hpp"

#include "hosts.hpp"
#include "json_text.hpp"
#include "progress.hpp"

#include "../../examples/common/plot.hpp"

#include <colls/detail/prove/examine.hpp>
#include <colls/verify.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <optional>
#include <stdexcept>

namespace tool {

namespace {

using nlohmann::json;

std::string_view collective_of(const entry& e) { return colls::name_of(e.schedule.implements); }

/// How many times the user's buffer the busiest rank sends.
double volume(const colls::cost& c) { return c.blocks > 0 ? static_cast<double>(c.blocks_sent) / c.blocks : 0; }

/// "4 group sizes: 1, 2, 4, 8", "511 group sizes from 2 to 512".
std::string sizes_text(const std::vector<int>& sizes) {
    const auto count = static_cast<int>(sizes.size());
    const std::string begin = fmt::format("{} group size{}", count, count == 1 ? "" : "s");
    if (sizes.back() - sizes.front() + 1 == count)
        return fmt::format("{} from {} to {}", begin, sizes.front(), sizes.back());
    if (count <= 16) return fmt::format("{}: {}", begin, fmt::join(sizes, ", "));
    return fmt::format("{}: {}, ..., {}", begin, fmt::join(sizes.begin(), sizes.begin() + 15, ", "), sizes.back());
}

}  // namespace

std::string show_size(double bytes) {
    for (const auto& [unit, suffix] :
        {std::pair{0x1p60, "EB"}, {0x1p50, "PB"}, {0x1p40, "TB"}, {0x1p30, "GB"}, {0x1p20, "MB"}, {0x1p10, "KB"}})
        if (bytes >= unit) return fmt::format("{:.4g} {}", bytes / unit, suffix);
    return fmt::format("{:.4g} B", bytes);
}
std::string show_time(double seconds) {
    const double us = seconds * 1e6;
    return us < 1e4   ? fmt::format("{:.4g} us", us)
           : us < 1e7 ? fmt::format("{:.4g} ms", us / 1e3)
                      : fmt::format("{:.4g} s", us / 1e6);
}

std::string show_ratio(double seconds, double best) {
    return fmt::format("{:.2f}", seconds == best ? 1 : seconds / best);
}

std::pair<int, int> parse_range(const std::string& text) {
    constexpr int most = 1 << 24;  // beyond it the numbers of rounds, slots and steps exceed an int
    const std::size_t dots = text.find("..");
    std::size_t used = 0, more = 0;
    int first = 0, last = 0;
    bool is_range = false;
    try {
        first = last = std::stoi(text, &used);
        is_range = dots == std::string::npos && used == text.size();
        if (dots != std::string::npos && used == dots) {
            last = std::stoi(text.substr(dots + 2), &more);
            is_range = dots + 2 + more == text.size();
        }
    } catch (const std::exception&) {
        is_range = false;
    }
    if (!is_range || first < 1 || last < first)
        throw std::runtime_error(fmt::format("'{}' is not a range of group sizes: write 8, or 2..64", text));
    if (last > most) throw std::runtime_error(fmt::format("a group has at most {} ranks here, not {}", most, last));
    return {first, last};
}

void expect_few(const entry& e, int n, const char* of, double number, double most, const std::string& instead) {
    if (number > most)
        throw std::runtime_error(
            fmt::format("{} {} on {} ranks has {:.2g} {}, and {:.0g} are taken at most: name fewer ranks{}", e.family,
                collective_of(e), n, number, of, most, instead));
}

int list(const std::string& collective, int n, bool as_json) {
    std::optional<colls::collective> only;
    if (!collective.empty()) only = collective_named(collective);
    json rows = json::array();
    progress shown;
    if (!as_json)
        fmt::print(
            "On {} ranks. Volume: what the busiest rank sends, in user's buffers. Order kept: folded in rank order.\n\n"
            "{:<20} {:<15} {:>6} {:>5} {:>7} {:>7}  {}\n",
            n, "family", "collective", "rounds", "ports", "volume", "scratch", "properties");
    for (const entry& e : catalogue()) {
        if (only && e.schedule.implements != *only) continue;
        if (!e.schedule.supports(n)) {
            if (!as_json) fmt::print("{:<20} {:<15} {:>6}\n", e.family, collective_of(e), "not on so many ranks");
            continue;
        }
        if (e.steps(n) > most_steps / 10) {  // there are eighty rows
            if (!as_json)
                fmt::print("{:<20} {:<15} {:>6} rounds, too many to count\n", e.family, collective_of(e),
                    e.schedule.rounds(n));
            continue;
        }
        shown.say(fmt::format("{} {}", e.family, collective_of(e)));
        colls::cost c = colls::traffic_of(e.schedule, n);
        // What takes minutes or the machine's memory in large groups is left open: the walk over the blocks that all
        // ranks send, and the proof.
        const bool walks = 2.0 * static_cast<double>(c.all_sent) <= most_steps / 10,
                   proves = colls::detail::proof_bytes(e.schedule, n, false) <= colls::detail::most_proof_bytes;
        if (walks) c = colls::cost_of(e.schedule, n);
        std::vector<std::string> words;
        if (proves) {
            const colls::properties p = colls::properties_of(e.schedule, n);
            if (p.round_optimal) words.emplace_back("fewest rounds");
            if (p.volume_optimal) words.emplace_back("least volume");
            if (colls::reduces(e.schedule.implements) && p.order_preserving) words.emplace_back("order kept");
            if (p.symmetric) words.emplace_back("symmetric");
        }
        shown.say("");
        if (as_json) {
            rows.push_back({{"family", e.family}, {"collective", collective_of(e)}, {"ranks", n}, {"rounds", c.rounds},
                {"ports", c.ports}, {"volume", volume(c)}, {"scratch", walks ? json(c.scratch) : json()},
                {"properties", proves ? json(words) : json()}});
        } else {
            fmt::print("{:<20} {:<15} {:>6} {:>5} {:>7.3g} {:>7}  {}\n", e.family, collective_of(e), c.rounds, c.ports,
                volume(c), walks ? fmt::to_string(c.scratch) : "-",
                proves ? fmt::format("{}", fmt::join(words, ", ")) : "not looked for in so large a group");
        }
    }
    if (as_json) print(rows);
    return good;
}

int prove(const std::vector<entry>& schedules, int first, int last, bool as_json) {
    json rows = json::array();
    bool all_right = true, any_proven = false;
    for (const entry& e : schedules) {
        std::vector<int> proven;  // group sizes
        std::string finding;
        progress shown;
        for (int n = first; n <= last && finding.empty(); ++n) {
            if (!e.schedule.supports(n)) continue;
            expect_few(e, n, "steps", e.steps(n), most_steps, ", or --local");
            if (colls::detail::names_contents(e.schedule.implements))  // of each slot the proof asks where it goes
                expect_few(e, n, "slots", double(n) * e.schedule.blocks(n), most_steps, ", or --local");
            const std::string now = fmt::format("{} {}: {} ranks", e.family, collective_of(e), n);
            shown.say(now);
            const colls::report found = colls::verify(watched(e.schedule, n, shown, now), n);
            if (found.ok())
                proven.push_back(n);
            else
                finding = fmt::format("{} ranks: {}", n, found.text());
        }
        shown.say("");
        all_right = all_right && finding.empty();
        any_proven = any_proven || !proven.empty();
        if (as_json)
            rows.push_back({{"family", e.family}, {"collective", collective_of(e)}, {"first", first}, {"last", last},
                {"proven", proven.size()}, {"sizes", proven}, {"finding", finding}});
        else if (finding.empty())
            fmt::print("{:<20} {:<15} {}\n", e.family, collective_of(e),
                !proven.empty() ? "proven for " + sizes_text(proven)
                                : fmt::format("supports no group size from {} to {}: nothing is proven", first, last));
        else
            fmt::print("{:<20} {:<15} refuted on {}\n", e.family, collective_of(e), finding);
    }
    if (as_json) print(rows);
    return !all_right ? refuted : any_proven ? good : nothing_proven;
}

int cost(const std::vector<entry>& schedules, int n, double bytes, const colls::model& m, const std::vector<int>& hosts,
    bool as_json) {
    if (std::ranges::none_of(schedules, [n](const entry& e) { return e.schedule.supports(n); }))
        throw std::runtime_error(fmt::format("{} does not support {} ranks", schedules.front().family, n));
    json rows = json::array();
    if (!as_json)
        fmt::print("{:<20} {:<15} {:>6} {:>5} {:>9} {:>12} {:>12}  {}\n", "family", "collective", "rounds", "ports",
            "messages", "bytes sent", "folded",
            hosts.empty() ? fmt::format("time of {}", show_size(bytes))
                          : fmt::format("{:<14} between hosts: {:>6} {:>12} {:>12}",
                                fmt::format("time of {}", show_size(bytes)), "rounds", "of a rank", "of a host"));
    progress shown;
    for (const entry& e : schedules) {
        if (!e.schedule.supports(n)) continue;
        expect_few(e, n, "steps", e.steps(n), most_steps);
        const std::string now = fmt::format("{} {}", e.family, collective_of(e));
        shown.say(now);
        // What it prints needs no scratch slots.
        const colls::cost c = colls::traffic_of(watched(e.schedule, n, shown, now), n);
        const double block = c.blocks > 0 ? bytes / c.blocks : 0, seconds = c.seconds(m, bytes),
                     sent = block * static_cast<double>(c.blocks_sent),
                     folded = block * static_cast<double>(c.blocks_reduced);
        const far_traffic far = hosts.empty() ? far_traffic{} : far_traffic_of(e.schedule, hosts);
        shown.say("");
        const double far_rank = block * static_cast<double>(far.blocks),
                     far_host = block * static_cast<double>(far.of_a_host);
        if (as_json)
            rows.push_back({{"family", e.family}, {"collective", collective_of(e)}, {"ranks", n}, {"rounds", c.rounds},
                {"ports", c.ports}, {"messages", c.messages}, {"bytes_sent", sent}, {"bytes_reduced", folded},
                {"seconds", seconds}});
        else
            fmt::print("{:<20} {:<15} {:>6} {:>5} {:>9} {:>12} {:>12}  {}\n", e.family, collective_of(e), c.rounds,
                c.ports, c.messages, show_size(sent), show_size(folded),
                hosts.empty() ? show_time(seconds)
                              : fmt::format("{:<14} {:>21} {:>12} {:>12}", show_time(seconds), far.rounds,
                                    show_size(far_rank), show_size(far_host)));
        if (as_json && !hosts.empty())
            rows.back().update(
                {{"far_rounds", far.rounds}, {"far_bytes_of_a_rank", far_rank}, {"far_bytes_of_a_host", far_host}});
    }
    if (as_json) print(rows);
    return good;
}

int compare(const std::string& collective, int n, const std::vector<double>& sizes, const colls::model& m,
    const std::string& svg, bool as_json) {
    const colls::collective which = collective_named(collective);
    std::vector<std::pair<std::string, colls::cost>> all;
    std::vector<std::string> left_out;
    progress shown;
    for (const entry& e : catalogue())
        if (e.schedule.implements == which && e.schedule.supports(n)) {
            shown.say(e.family);
            if (e.steps(n) <= most_steps / 10)
                all.emplace_back(e.family, colls::traffic_of(watched(e.schedule, n, shown, e.family), n));
            else
                left_out.push_back(e.family);
        }
    shown.say("");
    if (all.empty()) throw std::runtime_error(fmt::format("no schedule can be counted on {} ranks: too many steps", n));
    if (!left_out.empty())
        fmt::print(stderr, "colls: not counted, since they have too many steps: {}\n", fmt::join(left_out, ", "));
    const auto best_at = [&](double bytes) {  // of equals the one that the table has
        return *std::ranges::min_element(
            all, {}, [&](const auto& of) { return std::pair(of.second.seconds(m, bytes), of.first); });
    };
    json rows = json::array();
    if (!as_json)
        fmt::print("{} on {} ranks, alpha {}, beta {:.4g} ns/B, gamma {:.4g} ns/B\n\n{:>10}  {:<20} {:>12}  {}\n",
            colls::name_of(which), n, show_time(m.alpha), m.beta * 1e9, m.gamma * 1e9, "size", "best", "time", "next");
    for (const double bytes : sizes) {
        std::vector<std::pair<double, std::string>> ordered;  // seconds and family
        for (const auto& [family, c] : all) ordered.emplace_back(c.seconds(m, bytes), family);
        std::ranges::sort(ordered);
        if (as_json) {
            json times;
            for (const auto& [seconds, family] : ordered) times[family] = seconds;
            rows.push_back({{"bytes", bytes}, {"best", ordered[0].second}, {"seconds", times}});
        } else {
            fmt::print("{:>10}  {:<20} {:>12}  {}\n", show_size(bytes), ordered[0].second, show_time(ordered[0].first),
                ordered.size() > 1 ? fmt::format("{} {} times as long", ordered[1].second,
                                         show_ratio(ordered[1].first, ordered[0].first))
                                   : std::string());
        }
    }
    // Where the best one changes: by bisection between two sizes, and again from there, since it may change twice.
    struct crossing {
        double bytes, seconds;
        std::string family;
    };
    std::vector<crossing> crossings;
    for (std::size_t i = 1; i < sizes.size(); ++i) {
        double from = sizes[i - 1];
        const std::string last = best_at(sizes[i]).first;
        for (std::string before = best_at(from).first; before != last; before = best_at(from).first) {
            double low = from, high = sizes[i];
            while (high - low > 1 && high / low > 1.001) {
                const double middle = std::sqrt(std::max(low, 1.0) * high);
                (best_at(middle).first == before ? low : high) = middle;
            }
            from = high;
            const auto& [family, c] = best_at(high);
            crossings.push_back({high, c.seconds(m, high), family});
            if (!as_json) fmt::print("from {} on {}, not {}\n", show_size(high), family, before);
        }
    }
    if (as_json) print(rows);
    if (!svg.empty()) {
        // Both axes are logarithmic.
        std::vector<double> drawn;
        std::ranges::copy_if(sizes, std::back_inserter(drawn), [](double bytes) { return bytes > 0; });
        if (drawn.empty() || !(best_at(drawn.front()).second.seconds(m, drawn.front()) > 0))
            throw std::runtime_error("there is nothing to draw: sizes and times have to be above 0");
        example::plot chart(fmt::format("{} on {} ranks, predicted", colls::name_of(which), n),
            {"size", true, example::unit::binary_bytes}, {"time", true, example::unit::seconds});
        // More sizes than the table has, so that lines are curves.
        constexpr double finer = 4;
        for (const auto& [family, c] : all)
            for (std::size_t i = 0; i < drawn.size(); ++i) {
                chart.add(family, drawn[i], c.seconds(m, drawn[i]));
                for (double part = 1; part < finer && i + 1 < drawn.size(); ++part) {
                    const double bytes = drawn[i] * std::pow(drawn[i + 1] / drawn[i], part / finer);
                    chart.add(family, bytes, c.seconds(m, bytes));
                }
            }
        const std::vector<std::string> others = chart.keep_lowest(8);
        std::vector<example::plot::stretch> stretches{{drawn.front(), drawn.back(), best_at(drawn.front()).first}};
        std::string says;
        for (const crossing& at : crossings) {
            if (at.bytes <= drawn.front()) continue;
            chart.mark(at.bytes, at.seconds, show_size(at.bytes));
            says += fmt::format(
                "{}{} up to {}", says.empty() ? "The fastest: " : ", ", stretches.back().line, show_size(at.bytes));
            stretches.back().to = at.bytes;
            stretches.push_back({at.bytes, drawn.back(), at.family});
        }
        chart.says(says.empty() ? stretches.back().line + " is the fastest at every size."
                                : fmt::format("{}, {} for larger ones.", says, stretches.back().line));
        chart.band("fastest", stretches);
        chart.note(fmt::format(
            "alpha {}, beta {:.4g} ns/B, gamma {:.4g} ns/B", show_time(m.alpha), m.beta * 1e9, m.gamma * 1e9));
        if (!others.empty())
            chart.note(fmt::format("Slower at every size, and not drawn: {}.", fmt::join(others, ", ")));
        chart.write(svg);
    }
    return good;
}

}  // namespace tool
