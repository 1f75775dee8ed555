#include "explorer.hpp"

#include "explorer_files.hpp"  // made from the files of explorer/
#include "json_text.hpp"
#include "picture.hpp"

#include <colls/detail/prove/symbolic_execution.hpp>
#include <colls/verify.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace tool {

namespace {

using colls::none;
using colls::detail::fault;
using nlohmann::json;

constexpr double most_page_steps = 20000;  // of all ranks: a page of more is slow, and nobody steps through it

/// "0-3,7,.2": numbers that follow each other as a range, and `.` with their count for those that are `none`.
std::string runs(const std::vector<int>& numbers) {
    std::string text;
    for (std::size_t at = 0, end = 0; at < numbers.size(); at = end) {
        const bool empty = numbers[at] < 0;
        for (end = at + 1; end < numbers.size(); ++end)
            if (empty ? numbers[end] >= 0 : numbers[end] != numbers[end - 1] + 1) break;
        if (at > 0) text += ',';
        const std::size_t count = end - at;
        if (empty)
            text += count > 1 ? fmt::format(".{}", count) : ".";
        else
            text += count > 1 ? fmt::format("{}-{}", numbers[at], numbers[end - 1]) : fmt::format("{}", numbers[at]);
    }
    return text;
}

/// One for each rank; or one for all, where they are equal.
template <class T>
json of_ranks(const std::vector<T>& all) {
    const bool same = std::ranges::all_of(all, [&](const T& x) { return x == all.front(); });
    return same && !all.empty() ? json(all.front()) : json(all);
}

/// The schedule with rank r in the part of rank r - shift, as executors play it in a call with another root.
class rotated final : public colls::detail::schedule_reader {
public:
    rotated(const colls::any_schedule& s, int shift) : schedule_reader(s.implements), s_(s), shift_(shift) {}
    colls::step at(int rank, int n, int round, int port) const override {
        colls::step does = s_.at(role(rank, n), n, round, port);
        for (int* const peer : {&does.send.peer, &does.recv.peer})
            if (*peer != none) *peer = rank_of(*peer, n);
        return does;
    }

private:
    int role(int rank, int n) const { return colls::mod(rank - shift_, n); }
    int rank_of(int role, int n) const { return colls::mod(role + shift_, n); }
    int ask(colls::detail::question q, int, int n, int slot) const override {
        switch (q) {
            case colls::detail::question::rounds:
                return s_.rounds(n);
            case colls::detail::question::ports:
                return s_.ports(n);
            case colls::detail::question::blocks:
                return s_.blocks(n);
            case colls::detail::question::scratch:
                return s_.scratch(n);
            case colls::detail::question::root:
                return rank_of(s_.root(n), n);
            case colls::detail::question::supports:
                return s_.supports(n) ? 1 : 0;
            case colls::detail::question::home: {
                const int home = s_.home(n, slot);
                return home == none ? none : rank_of(home, n);
            }
            default:
                return none;  // input and output: no collective with a root has them
        }
    }

    const colls::any_schedule& s_;
    int shift_;
};

/// The page draws root 0 and rotates it: this must be right for every root.
void expect_every_root(const entry& of, int n) {
    for (int shift = 1; shift < n; ++shift) {
        const rotated other(of.schedule, shift);
        colls::detail::symbolic_execution proof(other, n);
        if (const colls::report found = proof.run(); !found.ok())
            throw std::runtime_error(
                fmt::format("{} {} on {} ranks is right for the root {}, but not for {}: {}", of.family,
                    colls::name_of(of.schedule.implements), n, of.schedule.root(n), other.root(n), found.text()));
    }
}

/// A schedule on n ranks as the page's scripts read it (explorer/schedule.js).
class shape {
public:
    shape(const colls::any_schedule& s, int n) : s_(s), problem_(s, n), n_(n), report_(colls::verify(s, n)) {}

    bool right() const { return report_.ok(); }
    const colls::report& report() const { return report_; }

    json data() {
        json out{{"root", problem_.root}};
        const bool readable = problem_.report_.ok();  // else no extent may be used
        const int rounds = !readable ? 0 : right() || report_.round == none ? problem_.rounds : report_.round + 1;
        out["blocks"] = readable ? problem_.blocks : 0;
        out["slots"] = readable ? problem_.slots : 0;
        if (readable) put_contents(out);
        out["rounds"] = json::array();
        for (int k = 0; k < rounds; ++k) out["rounds"].push_back(round(k));
        if (!right()) out["verdict"] = verdict();
        return out;
    }

private:
    static constexpr bool is_barrier(colls::collective c) { return c == colls::collective::barrier; }

    /// What slots hold at the start, and what they must hold: by rank, the label of each slot. In an all_to_all the
    /// label of a block is source · blocks + destination · blocks of a pair + its number among these.
    void put_contents(json& out) {
        const bool exchange = problem_.kind == colls::collective::all_to_all;
        const auto slots = static_cast<std::size_t>(problem_.slots);
        std::vector<std::string> start, want;
        std::vector<int> parts;
        colls::detail::buffer<int> labels(problem_.slots), counts(n_);
        for (int r = 0; r < n_; ++r) {
            std::vector<int> held(slots, none), wanted(slots, none);
            int combined = 1;
            for (int slot = 0; slot < problem_.slots; ++slot) {
                const auto at = static_cast<std::size_t>(slot);
                const colls::detail::wanted w = problem_.expected(r, slot);
                held[at] = problem_.initial(r, slot);
                wanted[at] = w.label;
                if (w.label != none) combined = w.hi - w.lo;
            }
            for (const bool after : {false, true})
                if (exchange && problem_.exchange(r, after, labels.p, counts.p))
                    for (int slot = 0; slot < problem_.blocks; ++slot) {
                        const int other = labels.p[slot] / problem_.blocks, which = labels.p[slot] % problem_.blocks;
                        const int source = after ? other : r, destination = after ? r : other;
                        (after ? wanted : held)[static_cast<std::size_t>(slot)] =
                            source * problem_.blocks + destination * (problem_.blocks / n_) + which;
                    }
            start.push_back(runs(held));
            want.push_back(runs(wanted));
            parts.push_back(combined);
        }
        out["start"] = of_ranks(start);
        out["want"] = of_ranks(want);
        out["parts"] = of_ranks(parts);
        if (!problem_.is_owned) return;
        std::vector<int> homes;
        bool own = problem_.blocks == n_;
        for (int slot = 0; slot < problem_.blocks; ++slot) {
            homes.push_back(problem_.homes.p[slot]);
            own = own && homes.back() == slot;
        }
        if (!own) out["homes"] = runs(homes);
    }

    /// Blocks of a part of a step; a wrong schedule may name some that no rank has.
    std::vector<int> blocks_of(const colls::block_set& named) const {
        if (is_barrier(problem_.kind)) return {0};
        std::vector<int> all;
        if (colls::detail::well_formed(named, problem_.slots))
            for (int j = 0; j < colls::detail::size_of(named); ++j)
                if (const int b = named[j]; b >= 0 && b < problem_.slots) all.push_back(b);
        return all;
    }
    /// Messages as "FROM>TO+BLOCKS@STORED", with `+` where they are reduced, `=` where they are copied; @STORED where
    /// these are other slots than the sender's. `!`: a send that no receive meets; `?`: a receive that no send meets.
    std::string round(int k) const {
        std::string text;
        const auto put = [&](int from, int to, char kind, const std::vector<int>& sent,
                             const std::vector<int>& stored) {
            if (!text.empty()) text += ';';
            text += fmt::format("{}>{}{}{}", from, to, kind, runs(sent));
            if (stored != sent) text += '@' + runs(stored);
        };
        const auto is_rank = [&](int peer) { return peer >= 0 && peer < n_; };
        for (int r = 0; r < n_; ++r)
            for (int port = 0; port < problem_.ports; ++port) {
                const colls::step does = s_.at(r, n_, k, port);
                if (const int to = does.send.peer; is_rank(to)) {
                    const colls::receive_part in = s_.at(to, n_, k, port).recv;
                    const std::vector<int> sent = blocks_of(does.send.blocks), stored = blocks_of(in.blocks);
                    const bool met = in.peer == r && sent.size() == stored.size(),
                               reduces = in.action == colls::action::reduce || is_barrier(problem_.kind);
                    put(r, to, !met ? '!' : reduces ? '+' : '=', sent, met ? stored : sent);
                }
                if (const int from = does.recv.peer; is_rank(from) && s_.at(from, n_, k, port).send.peer != r) {
                    const std::vector<int> stored = blocks_of(does.recv.blocks);
                    put(from, r, '?', stored, stored);
                }
            }
        return text;
    }

    json verdict() const {
        // The message that is broken leads from the rank to its peer where the finding is about a send.
        const bool sends = report_.kind == fault::sends_undefined || report_.kind == fault::send_unmatched;
        const bool has_block = report_.block >= 0 && report_.block < problem_.slots && report_.rank != none;
        json out{{"text", report_.text()}, {"law", colls::name_of(report_.law)}, {"round", report_.round},
            {"rank", report_.rank}, {"block", has_block ? report_.block : none}, {"peer", report_.peer}};
        if (report_.peer != none) out["sends"] = sends;
        return out;
    }

    const colls::any_schedule& s_;
    colls::detail::problem problem_;
    int n_;
    colls::report report_;
};

/// Why a page does not have this group size; empty: it has it.
std::string objection(const entry& of, int n) {
    const std::string what = fmt::format("{} {}", of.family, colls::name_of(of.schedule.implements));
    if (!of.schedule.supports(n)) return fmt::format("{} does not support {} ranks", what, n);
    const long slots = of.schedule.implements == colls::collective::barrier
                           ? 1L
                           : static_cast<long>(of.schedule.blocks(n)) + of.schedule.scratch(n);
    if (slots > most_page_slots)
        return fmt::format(
            "{} on {} ranks has {} slots a rank, and a page has at most {}", what, n, slots, most_page_slots);
    if (const double steps = of.steps(n); steps > most_page_steps)
        return fmt::format(
            "{} on {} ranks has {:.3g} steps, and a page has at most {:.0f}", what, n, steps, most_page_steps);
    return {};
}

/// The page with each @name@ replaced.
std::string filled(std::string_view page, const std::vector<std::pair<std::string_view, std::string>>& parts) {
    std::string text;
    for (std::size_t at = 0; at < page.size();) {
        const auto found =
            std::ranges::find_if(parts, [&](const auto& p) { return page.substr(at).starts_with(p.first); });
        if (found == parts.end()) {
            text += page[at++];
        } else {
            text += found->second;
            at += found->first.size();
        }
    }
    return text;
}

/// JSON within a <script>, which `</script>` in a name would end.
std::string in_script(const json& data) {
    std::string out;
    for (const char c : text_of(data)) out += c == '<' ? "\\u003c" : std::string(1, c);
    return out;
}

}  // namespace

explorer_page explorer_of(const std::vector<entry>& schedules, const explorer_request& asked) {
    const int plan = schedules.front().ranks, shown = asked.shown > 0 ? asked.shown : plan;
    if (plan > 0 && shown != plan)
        throw std::runtime_error(
            fmt::format("{} is a plan for {} ranks, not {}", schedules.front().family, plan, shown));
    if (shown > most_page_ranks)
        throw std::runtime_error(fmt::format("a page has at most {} ranks, not {}", most_page_ranks, shown));
    const int largest = asked.largest > 0 ? asked.largest : std::max(16, shown);
    if (largest > most_page_ranks)
        throw std::runtime_error(fmt::format("a page has at most {} ranks, not {}", most_page_ranks, largest));
    if (largest < shown)
        throw std::runtime_error(
            fmt::format("the largest group is {}, but {} ranks are shown: give --largest {}", largest, shown, shown));

    explorer_page page;
    json collectives = json::array();
    std::string why;                                          // the first one
    std::optional<std::pair<int, int>> first, first_refuted;  // the collective's number and group size to be shown
    for (const entry& of : schedules) {
        const colls::collective what = of.schedule.implements;
        json sizes = json::object();
        std::vector<int> known;
        std::optional<int> wrong;
        for (int n = plan > 0 ? plan : 1; n <= (plan > 0 ? plan : largest); ++n) {
            if (const std::string objects = objection(of, n); !objects.empty()) {
                if (why.empty() && n == (shown > 0 ? shown : n)) why = objects;
                continue;
            }
            shape drawn(of.schedule, n);
            if (drawn.right() && colls::rooted(what)) expect_every_root(of, n);
            if (!drawn.right() && !wrong) {
                wrong = n;
                page.refuted.push_back(fmt::format(
                    "{} {} refuted on {} ranks: {}", of.family, colls::name_of(what), n, drawn.report().text()));
            }
            sizes[std::to_string(n)] = drawn.data();
            known.push_back(n);
        }
        if (known.empty()) continue;
        const auto number = static_cast<int>(collectives.size());
        const int wanted = shown > 0 ? shown : 8;
        const int nearest = *std::ranges::min_element(known, {}, [&](int n) { return std::abs(n - wanted); });
        if (!first && (shown == 0 || nearest == shown)) first = {number, nearest};
        if (!first_refuted && wrong) first_refuted = {number, *wrong};
        collectives.push_back({{"name", colls::name_of(what)}, {"rooted", colls::rooted(what)},
            {"reduces", colls::reduces(what) || what == colls::collective::barrier}, {"sizes", sizes}});
    }
    if (!first) throw std::runtime_error(why.empty() ? "there is nothing to draw" : why);
    const auto [collective, ranks] = shown == 0 && first_refuted ? *first_refuted : *first;

    const std::string& family = schedules.front().family;
    std::vector<std::string> names;
    for (const json& c : collectives) names.push_back(c.at("name"));
    const json data{{"family", family}, {"collective", collective}, {"ranks", ranks}, {"hosts", asked.hosts},
        {"collectives", collectives},
        {"machine", {{"alpha", asked.machine.alpha}, {"beta", asked.machine.beta}, {"gamma", asked.machine.gamma}}}};
    page.text = filled(explorer_files::page,
        {{"@title@", escaped(fmt::format("{}: {}", family, fmt::join(names, ", ")))},
            {"@description@",
                escaped(fmt::format("The schedule {} ({}), round by round: which rank sends which block to which, "
                                    "what each rank holds, and when each message goes.",
                    family, fmt::join(names, ", ")))},
            {"@style@", std::string(explorer_files::style)}, {"@script@", std::string(explorer_files::script)},
            {"@data@", in_script(data)}});
    return page;
}

}  // namespace tool
