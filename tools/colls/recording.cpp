#include "recording.hpp"

#include "catalogue.hpp"
#include "json_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <stdexcept>

namespace tool {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;
using colls::none;
constexpr double far = std::numeric_limits<double>::infinity();

/// A file, and where it was not named itself, the host and the process in its name.
struct trace_file {
    fs::path path;
    std::string process{};
    bool operator<(const trace_file& o) const { return path < o.path; }
};
/// TRACE.json stands for TRACE.HOST.PROCESS.json in the same folder.
std::vector<trace_file> files_of(const std::string& name) {
    const fs::path path = name;
    if (fs::is_regular_file(path)) return {{fs::canonical(path)}};
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    const std::string begin = path.stem().string() + ".", end = path.extension().string();
    std::vector<trace_file> found;
    if (fs::is_directory(folder))
        for (const fs::directory_entry& each : fs::directory_iterator(folder)) {
            const std::string file = each.path().filename().string();
            if (each.is_regular_file() && file.starts_with(begin) && file.ends_with(end) &&
                file.size() > begin.size() + end.size())
                found.push_back(
                    {fs::canonical(each.path()), file.substr(begin.size(), file.size() - begin.size() - end.size())});
        }
    if (found.empty())
        throw std::runtime_error("there is no " + name + ", and no file that COLLS_TRACE=" + name + " makes");
    return found;
}

json events_in(const fs::path& file) {
    std::ifstream in(file);
    std::string text(std::istreambuf_iterator<char>(in), {});
    json all = json::parse(text, nullptr, false);
    const bool is_cut = all.is_discarded() && text.starts_with('[');
    // The last whole event ends with one of the last braces: each event has two, or three.
    for (int i = 0; i < 4 && is_cut && all.is_discarded() && text.rfind('}') != text.npos; ++i) {
        text.resize(text.rfind('}') + 1);
        all = json::parse(text + "]", nullptr, false);
        text.pop_back();
    }
    if (is_cut && all.is_array())
        fmt::print(stderr, "colls: {} is cut: it has {} whole events, and those after them are missing\n",
            file.string(), all.size());
    if (!all.is_array()) throw std::runtime_error(file.string() + " is not a trace: it must be a JSON array of events");
    return all;
}

/// When the ranks of one clock were in a call: no rank's part ends before the last one has begun.
struct presence {
    std::size_t clock;
    double last_begin, first_end;
};
/// The calls on several clocks in which each rank waits for each other.
std::vector<std::vector<presence>> calls_on_several_clocks(const recording& r) {
    std::vector<std::vector<presence>> all;
    for (const auto& [key, ranks] : r.calls) {
        if (!colls::traits_of(collective_named(ranks.front().name)).synchronises()) continue;
        std::map<std::size_t, presence> by_clock;
        for (const recorded_span& s : ranks) {
            const auto clock = static_cast<std::size_t>(r.threads[static_cast<std::size_t>(s.thread)].clock);
            presence& p = by_clock.try_emplace(clock, presence{clock, s.begin, s.end}).first->second;
            p.last_begin = std::max(p.last_begin, s.begin);
            p.first_end = std::min(p.first_end, s.end);
        }
        if (by_clock.size() < 2) continue;
        all.emplace_back();
        for (const auto& [clock, p] : by_clock) all.back().push_back(p);
    }
    return all;
}

/// Sets `ahead` and `unsure` of each clock. A call bounds the difference of two clocks from both sides.
void set_clocks(recording& r) {
    const std::size_t clocks = r.clocks.size();
    for (std::size_t c = 1; c < clocks; ++c) r.clocks[c].unsure = far;
    if (clocks == 1) return;
    const auto calls = calls_on_several_clocks(r);
    for (bool more = true; more;) {
        more = false;
        std::vector<double> least(clocks, -far), most(clocks, far);
        for (const auto& ranks : calls)
            for (const presence& known : ranks)
                for (const presence& other : ranks) {
                    const recorded_clock& clock = r.clocks[known.clock];
                    if (clock.unsure == far || r.clocks[other.clock].unsure != far) continue;
                    // other.first_end - ahead >= known.last_begin, and known.first_end >= other.last_begin - ahead
                    double &low = least[other.clock], &high = most[other.clock];
                    high = std::min(high, other.first_end - (known.last_begin - clock.ahead));
                    low = std::max(low, other.last_begin - (known.first_end - clock.ahead));
                }
        for (std::size_t b = 0; b < clocks; ++b) {
            if (r.clocks[b].unsure != far || most[b] == far) continue;
            r.clocks[b].ahead = (least[b] + most[b]) / 2;
            r.clocks[b].unsure = std::abs(most[b] - least[b]) / 2;
            more = true;
        }
    }
}

double middle(std::vector<double> x, double part = 0.5) {
    const auto at = x.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(x.size() - 1));
    std::nth_element(x.begin(), at, x.end());
    return *at;
}

std::string time(double us) {
    return us < 1e3   ? fmt::format("{:.1f} us", us)
           : us < 1e6 ? fmt::format("{:.2f} ms", us / 1e3)
                      : fmt::format("{:.2f} s", us / 1e6);
}

struct lateness {
    long long last = 0;  ///< calls to which it came last
    double total = 0;    ///< microseconds after the one before it, in these calls
};
/// The waits of one rank for another. `due_to_it`: while that one was in the call, and did not wait itself.
struct link {
    double waited = 0, due_to_it = 0;
};

/// Reads files into a recording, whose clocks are not set yet.
class reader {
public:
    explicit reader(recording& r) : r_(r) { r_.events = json::array(); }

    void read(const trace_file& from) {
        const fs::path& file = from.path;
        const json all = events_in(file);
        std::string clock = "?", host;
        for (const json& e : all)
            if (e.is_object() && e.value("name", json()) == "colls" && e.contains("args")) {
                const json& args = e["args"];
                if (!args.is_object()) continue;
                if (const json c = args.value("clock", json()); c.is_string()) clock = c.get<std::string>();
                if (const json h = args.value("host", json()); h.is_string()) host = h.get<std::string>();
            }
        // One that `merge` made, or that of COLLS_TRACE=TRACE.MORE.json.
        if (!from.process.empty() && !host.empty() &&
            (!from.process.starts_with(host + ".") ||
                from.process.find_first_not_of("0123456789", host.size() + 1) != std::string::npos))
            return;
        const auto [at, is_new] = clocks_.try_emplace(clock, static_cast<int>(clocks_.size()));
        if (is_new) r_.clocks.push_back({host, 0, 0});
        clock_ = at->second;
        processes_.clear();
        threads_.clear();
        groups_.clear();
        for (std::size_t i = 0; i < all.size(); ++i) try {
                take(all[i]);
            } catch (const json::exception& e) {
                throw std::runtime_error(fmt::format("{}: event {} is not one that COLLS_TRACE writes: {}",
                    file.string(), i, without_exception_names(e.what())));
            } catch (const std::out_of_range&) {
                throw std::runtime_error(
                    fmt::format("{}: event {} is of a thread that no event before introduces", file.string(), i));
            }
        for (const auto& [number, p] : processes_)
            add({{"name", "process_name"}, {"ph", "M"}, {"pid", p.number}, {"args", {{"name", p.name}}}});
    }
    /// On the first clock.
    void move_events() {
        for (std::size_t i = 0; i < clock_of_event_.size(); ++i)
            if (json& e = r_.events[i]; e.contains("ts"))
                e["ts"] = e["ts"].get<double>() - r_.clocks[static_cast<std::size_t>(clock_of_event_[i])].ahead;
    }

private:
    struct process {
        int number;  ///< in r_.events: those of several hosts may have one number in their files
        std::string name;
    };

    void take(json e) {
        const std::string name = e.at("name").get<std::string>();
        const json& args = e.at("args");
        if (e.contains("ts")) static_cast<void>(e["ts"].get<double>());
        const long long number = e.at("pid").get<long long>();
        const auto [p, is_new] = processes_.try_emplace(number, process{processes_in_all_ + 1, ""});
        processes_in_all_ += is_new;
        if (name == "process_name") {  // of a file that `merge` has made
            p->second.name = args.at("name").get<std::string>();
            return;
        }
        const std::pair id{number, e.at("tid").get<long long>()};
        if (name == "colls") introduce(id, args, p->second);
        if (e.at("ph") == "X" && name != "round") {
            recorded_span s;
            s.name = name;
            s.schedule = args.value("schedule", "");
            s.thread = threads_.at(id);
            s.rank = args.at("rank").get<int>();
            s.peer = args.value("peer", -1);
            s.begin = e.at("ts").get<double>();
            s.end = s.begin + e.at("dur").get<double>();
            s.bytes = args.value("bytes", 0.0);
            if (!args.contains("call"))
                r_.parts.push_back(s);
            else if (const long long call = args.at("call").get<long long>(); call < 0)
                r_.messages.push_back(s);
            else
                r_.calls[{groups_.at({number, args.at("group").get<std::string>()}), call}].push_back(s);
        }
        e["pid"] = p->second.number;
        add(std::move(e));
    }
    void introduce(const std::pair<long long, long long>& id, const json& args, process& p) {
        const std::string group = args.at("group").get<std::string>(), host = args.at("host").get<std::string>();
        const std::string whole = groups_[{id.first, group}] = group + " " + args.value("number", "");
        r_.sizes[whole] = args.at("size").get<int>();
        if (p.name.empty()) p.name = fmt::format("{}, process {}", host, id.first);
        if (threads_.try_emplace(id, static_cast<int>(r_.threads.size())).second)
            r_.threads.push_back({host, fmt::format("rank {} of group {}", args.at("rank").get<int>(), group), clock_});
    }
    void add(json e) {
        r_.events.push_back(std::move(e));
        clock_of_event_.push_back(clock_);
    }

    recording& r_;
    std::map<std::string, int> clocks_;
    std::vector<int> clock_of_event_;
    int processes_in_all_ = 0;
    // State of the file at hand:
    int clock_ = 0;
    std::map<long long, process> processes_;                           // by their number in the file
    std::map<std::pair<long long, long long>, int> threads_;           // by process and thread
    std::map<std::pair<long long, std::string>, std::string> groups_;  // as in r_.calls, by process and label
};

/// What a recording says, summed up. Indices are those of recording::threads; times in microseconds.
struct summary {
    std::map<std::string, std::vector<double>> kinds;  ///< durations by collective, schedule and size
    std::vector<lateness> late;
    std::vector<std::size_t> by_lateness;  ///< the latest rank first
    std::vector<std::pair<std::pair<std::size_t, std::size_t>, link>>
        waits;                               ///< of a rank for another, the longest first
    int late_rank = none, slow_rank = none;  ///< what stands out: a rank that comes late, and one that is slow in calls
    int slow_link = none;                    ///< of `waits`, where `slow_rank` keeps one rank alone waiting
    long long complete = 0;                  ///< calls that all ranks of their group recorded
    double begin = far, end = 0, in_calls = 0, waited = 0, copied = 0, folded = 0;
};

void sum_up_calls(const recording& r, summary& out) {
    out.late.resize(r.threads.size());
    const auto sum_up = [&](const recorded_span& s) {
        out.kinds[fmt::format("{:<16} {:<24} {:>12.0f}", s.name, s.schedule, s.bytes)].push_back(s.took());
        out.begin = std::min(out.begin, s.begin);
        out.end = std::max(out.end, s.end);
        out.in_calls += s.took();
    };
    std::ranges::for_each(r.messages, sum_up);
    for (const auto& [key, ranks] : r.calls) {
        for (const recorded_span& s : ranks) sum_up(s);
        const auto size = r.sizes.find(key.first);
        if (ranks.size() < 2 || size == r.sizes.end() || ranks.size() != static_cast<std::size_t>(size->second))
            continue;
        ++out.complete;
        std::vector<const recorded_span*> order;
        for (const recorded_span& s : ranks) order.push_back(&s);
        std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
        lateness& last = out.late[static_cast<std::size_t>(order.back()->thread)];
        last.last += 1;
        last.total += order.back()->begin - order[order.size() - 2]->begin;
    }
    for (std::size_t i = 0; i < out.late.size(); ++i) out.by_lateness.push_back(i);
    std::sort(out.by_lateness.begin(), out.by_lateness.end(), [&](std::size_t a, std::size_t b) {
        return out.late[a].total != out.late[b].total ? out.late[a].total > out.late[b].total : a < b;
    });
}

void sum_up_parts(const recording& r, summary& out) {
    // The calls of each rank in the order of time, for the waits in them.
    struct part_of_call {
        const recorded_span* own;
        const std::vector<recorded_span>* ranks;
        double until = 0;  ///< when it and those before it are over
    };
    std::map<int, std::vector<part_of_call>> of_thread;
    for (const auto& [key, ranks] : r.calls)
        for (const recorded_span& s : ranks) of_thread[s.thread].push_back({&s, &ranks});
    for (auto& [thread, all] : of_thread) {
        std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.own->begin < b.own->begin; });
        for (double until = -far; part_of_call & c : all) c.until = until = std::max(until, c.own->end);
    }
    std::map<int, std::vector<const recorded_span*>> waits_of;
    for (const recorded_span& s : r.parts)
        if (s.name == "wait") waits_of[s.thread].push_back(&s);
    for (auto& [thread, all] : waits_of)
        std::sort(all.begin(), all.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
    const auto waiting = [&](int thread, double begin, double end) {  // how long, of that time
        const auto& all = waits_of[thread];
        auto at = std::lower_bound(
            all.begin(), all.end(), begin, [](const recorded_span* a, double t) { return a->end < t; });
        double sum = 0;
        for (; at != all.end() && (*at)->begin < end; ++at)
            sum += std::max(0.0, std::min((*at)->end, end) - std::max((*at)->begin, begin));
        return sum;
    };
    std::map<std::pair<std::size_t, std::size_t>, link> links;
    for (const recorded_span& s : r.parts) {
        (s.name == "wait" ? out.waited : s.name == "copy" ? out.copied : out.folded) += s.took();
        if (s.name != "wait" || s.peer < 0) continue;
        const auto& calls = of_thread[s.thread];
        constexpr double rounding = 4e-3;  // of times to 1 ns
        auto in = std::upper_bound(calls.begin(), calls.end(), s.begin + rounding,
            [](double at, const auto& call) { return at < call.own->begin; });
        // The latest call that it lies in; of a send or a receive in none.
        while (in != calls.begin() && std::prev(in)->own->end + rounding < s.end)
            if (std::prev(in)->until + rounding < s.end)
                in = calls.begin();
            else
                --in;
        if (in == calls.begin()) continue;
        --in;
        for (const recorded_span& peer : *in->ranks)
            if (peer.rank == s.peer) {
                link& l = links[{static_cast<std::size_t>(s.thread), static_cast<std::size_t>(peer.thread)}];
                l.waited += s.took();
                const double from = std::max(s.begin, peer.begin);
                if (from < s.end) l.due_to_it += s.end - from - waiting(peer.thread, from, s.end);
            }
    }
    out.waits.assign(links.begin(), links.end());
    std::sort(out.waits.begin(), out.waits.end(),
        [](const auto& a, const auto& b) { return a.second.waited > b.second.waited; });
}

/// Index of the greatest, if it is at least three times as much as the next, and a twentieth of `of`; or none.
int standing_out(const std::vector<double>& all, double of) {
    int most = none;
    double next = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
        if (most == none || all[i] > all[static_cast<std::size_t>(most)]) {
            if (most != none) next = all[static_cast<std::size_t>(most)];
            most = static_cast<int>(i);
        } else {
            next = std::max(next, all[i]);
        }
    if (most == none) return none;
    const double value = all[static_cast<std::size_t>(most)];
    return value > 3 * next && value > of / 20 ? most : none;
}
void judge(const recording& r, summary& s) {
    const double in_calls = s.in_calls / static_cast<double>(r.threads.size());
    std::vector<double> late, slow(r.threads.size());
    for (const lateness& l : s.late) late.push_back(l.total);
    s.late_rank = standing_out(late, in_calls);
    for (const auto& [ranks, l] : s.waits) slow[ranks.second] += l.due_to_it;
    s.slow_rank = standing_out(slow, in_calls);
    if (s.slow_rank == none) return;
    std::vector<double> of_it;
    for (const auto& [ranks, l] : s.waits)
        of_it.push_back(ranks.second == static_cast<std::size_t>(s.slow_rank) ? l.due_to_it : 0);
    s.slow_link = standing_out(of_it, in_calls);
}

std::string name_of(const recorded_thread& t) { return fmt::format("{} ({})", t.name, t.host); }

json in_json(const recording& r, const summary& s) {
    json out{{"calls", s.complete}, {"seconds", (s.end - s.begin) * 1e-6}, {"wait_share", s.waited / s.in_calls},
        {"copy_share", s.copied / s.in_calls}, {"fold_share", s.folded / s.in_calls}, {"late", json::array()},
        {"waits", json::array()}, {"clocks", json::array()}};
    for (const std::size_t i : s.by_lateness)
        out["late"].push_back({{"rank", r.threads[i].name}, {"host", r.threads[i].host}, {"last", s.late[i].last},
            {"microseconds", s.late[i].total}});
    for (const auto& [ranks, l] : s.waits)
        out["waits"].push_back({{"rank", name_of(r.threads[ranks.first])}, {"for", name_of(r.threads[ranks.second])},
            {"microseconds", l.waited}, {"due_to_it", l.due_to_it}});
    out["late_rank"] = s.late_rank == none ? json() : json(r.threads[static_cast<std::size_t>(s.late_rank)].name);
    out["slow_rank"] = s.slow_rank == none ? json() : json(r.threads[static_cast<std::size_t>(s.slow_rank)].name);
    for (const recorded_clock& c : r.clocks)
        out["clocks"].push_back({{"host", c.host}, {"ahead", c.ahead}, {"unsure", c.unsure}});
    return out;
}

void print_summary(const recording& r, const summary& s) {
    fmt::print("{} ranks, {} collective calls, {}\n\n", r.threads.size(), r.calls.size(), time(s.end - s.begin));
    for (std::size_t c = 1; c < r.clocks.size(); ++c)
        if (const recorded_clock& clock = r.clocks[c]; clock.unsure == far)
            fmt::print("The clock of {} is not set: no call joins it with that of {}.\n", clock.host, r.clocks[0].host);
        else
            fmt::print("The clock of {} is ahead of that of {} by {}, known to {}.\n", clock.host, r.clocks[0].host,
                time(clock.ahead), time(clock.unsure));
    fmt::print("{:<16} {:<24} {:>12} {:>9} {:>12} {:>12} {:>12}\n", "call", "schedule", "bytes", "times", "median",
        "p99", "worst");
    for (const auto& [kind, times] : s.kinds)
        fmt::print("{} {:>9} {:>12} {:>12} {:>12}\n", kind, times.size(), time(middle(times)),
            time(middle(times, 0.99)), time(middle(times, 1)));
    fmt::print("\nIn calls, ranks waited for {:.0f} % of the time, copied for {:.0f} % and folded for {:.0f} %.\n",
        100 * s.waited / s.in_calls, 100 * s.copied / s.in_calls, 100 * s.folded / s.in_calls);
    constexpr std::size_t shown = 5;
    if (s.complete > 0) {
        fmt::print(
            "\nThe rank that came last to a call, of {} that all ranks recorded, and how long after the one before "
            "it:\n",
            s.complete);
        for (std::size_t i = 0; i < std::min(shown, s.by_lateness.size()); ++i) {
            const lateness& l = s.late[s.by_lateness[i]];
            if (l.last > 0)
                fmt::print("    {:<32} {:>9} times, {:>10} on average, {:>10} in all\n",
                    name_of(r.threads[s.by_lateness[i]]), l.last, time(l.total / static_cast<double>(l.last)),
                    time(l.total));
        }
    }
    if (s.waits.empty()) return;
    fmt::print(
        "\nThe waits that took the most time; of it, while the other was in the call and did not wait itself:\n");
    for (std::size_t i = 0; i < std::min(shown, s.waits.size()); ++i)
        fmt::print("    {} for {}: {}; {}\n", name_of(r.threads[s.waits[i].first.first]),
            name_of(r.threads[s.waits[i].first.second]), time(s.waits[i].second.waited),
            time(s.waits[i].second.due_to_it));
    const auto named = [&](int thread) { return name_of(r.threads[static_cast<std::size_t>(thread)]); };
    fmt::print("\n");
    if (s.late_rank != none) fmt::print("{} comes to calls late: the others wait for it.\n", named(s.late_rank));
    if (s.slow_link != none)
        fmt::print("In calls, {} waits for {}, which is slow, or the link from it.\n",
            name_of(r.threads[s.waits[static_cast<std::size_t>(s.slow_link)].first.first]), named(s.slow_rank));
    else if (s.slow_rank != none)
        fmt::print("{} is slow in calls: several ranks wait for it.\n", named(s.slow_rank));
    if (s.late_rank == none && s.slow_rank == none) fmt::print("No rank is late, or slower than the others.\n");
}

}  // namespace

recording read_recording(const std::vector<std::string>& names) {
    recording r;
    std::set<trace_file> files;
    for (const std::string& name : names)
        for (trace_file& file : files_of(name)) files.insert(std::move(file));
    reader in(r);
    for (const trace_file& file : files) in.read(file);
    if (r.calls.empty() && r.messages.empty()) throw std::runtime_error("the trace has no call in it");
    set_clocks(r);
    const auto moved = [&](recorded_span& s) {
        const auto clock = static_cast<std::size_t>(r.threads[static_cast<std::size_t>(s.thread)].clock);
        s.begin -= r.clocks[clock].ahead;
        s.end -= r.clocks[clock].ahead;
    };
    for (auto& [key, ranks] : r.calls) std::for_each(ranks.begin(), ranks.end(), moved);
    std::ranges::for_each(r.messages, moved);
    std::ranges::for_each(r.parts, moved);
    in.move_events();
    return r;
}

int summarise(const recording& r, bool as_json) {
    summary s;
    sum_up_calls(r, s);
    sum_up_parts(r, s);
    judge(r, s);
    if (as_json)
        print(in_json(r, s));
    else
        print_summary(r, s);
    return 0;
}

}  // namespace tool
