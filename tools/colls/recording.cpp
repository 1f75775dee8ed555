#include "recording.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <stdexcept>

namespace tool {
namespace {

using json = nlohmann::json;
namespace fs = std::filesystem;

/// TRACE.json stands for TRACE.HOST.PROCESS.json in the same folder.
std::vector<fs::path> files_of(const std::string& name) {
    const fs::path path = name;
    if (fs::is_regular_file(path)) return {path};
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    const std::string begin = path.stem().string() + ".", end = path.extension().string();
    std::vector<fs::path> found;
    if (fs::is_directory(folder))
        for (const fs::directory_entry& each : fs::directory_iterator(folder)) {
            const std::string file = each.path().filename().string();
            if (each.is_regular_file() && file.starts_with(begin) && file.ends_with(end) &&
                file.size() > begin.size() + end.size())
                found.push_back(each.path());
        }
    if (found.empty())
        throw std::runtime_error("there is no " + name + ", and no file that COLLS_TRACE=" + name + " makes");
    std::sort(found.begin(), found.end());
    return found;
}

json events_in(const fs::path& file) {
    std::ifstream in(file);
    const json all = json::parse(in, nullptr, false);
    if (!all.is_array()) throw std::runtime_error(file.string() + " is no trace: a JSON array of events is wanted");
    return all;
}

bool all_wait_for_all(const std::string& name) {
    return name == "all_reduce" || name == "all_gather" || name == "reduce_scatter" || name == "all_to_all" ||
           name == "barrier";
}

/// Sets `ahead` and `unsure` of each clock. A call bounds the difference of two clocks from both sides.
void set_clocks(recording& r, std::size_t clocks) {
    constexpr double far = std::numeric_limits<double>::infinity();
    r.ahead.assign(clocks, 0);
    r.unsure.assign(clocks, far);
    r.unsure[0] = 0;
    for (bool more = true; more;) {
        more = false;
        std::vector<double> least(clocks, -far), most(clocks, far);
        for (const auto& [key, ranks] : r.calls)
            for (const recorded_span& known : ranks)
                for (const recorded_span& other : ranks) {
                    const auto a = static_cast<std::size_t>(r.threads[static_cast<std::size_t>(known.thread)].clock);
                    const auto b = static_cast<std::size_t>(r.threads[static_cast<std::size_t>(other.thread)].clock);
                    if (r.unsure[a] == far || r.unsure[b] != far || !all_wait_for_all(known.name)) continue;
                    // other.end - ahead >= known.begin, and known.end >= other.begin - ahead
                    most[b] = std::min(most[b], other.end - (known.begin - r.ahead[a]));
                    least[b] = std::max(least[b], other.begin - (known.end - r.ahead[a]));
                }
        for (std::size_t b = 0; b < clocks; ++b) {
            if (r.unsure[b] != far || most[b] == far) continue;
            r.ahead[b] = (least[b] + most[b]) / 2;
            r.unsure[b] = std::abs(most[b] - least[b]) / 2;
            more = true;
        }
    }
}

double middle(std::vector<double> x, double part = 0.5) {
    if (x.empty()) return 0;
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
struct link {
    double waited = 0, after_entry = 0;
};

}  // namespace

recording read_recording(const std::vector<std::string>& names) {
    recording r;
    r.events = json::array();
    std::set<fs::path> files;
    for (const std::string& name : names)
        for (const fs::path& file : files_of(name)) files.insert(fs::canonical(file));
    std::map<std::string, int> clocks;
    std::map<std::string, int> threads;  // by clock, process and thread
    std::vector<int> clock_of_event;
    try {
        for (const fs::path& file : files) {
            std::string clock = "?";
            const json all = events_in(file);
            for (const json& e : all)
                if (e.at("name") == "colls") clock = e.at("args").at("clock").get<std::string>();
            const int c = clocks.try_emplace(clock, static_cast<int>(clocks.size())).first->second;
            for (const json& e : all) {
                r.events.push_back(e);
                clock_of_event.push_back(c);
                const std::string name = e.at("name").get<std::string>();
                const json& args = e.at("args");
                const std::string id =
                    fmt::format("{}/{}/{}", clock, e.at("pid").get<long long>(), e.at("tid").get<long long>());
                if (name == "colls") {
                    const std::string group = args.at("group").get<std::string>();
                    r.sizes[group] = args.at("size").get<int>();
                    if (threads.try_emplace(id, static_cast<int>(threads.size())).second)
                        r.threads.push_back({args.at("host").get<std::string>(),
                            fmt::format("rank {} of group {}", args.at("rank").get<int>(), group), c});
                }
                if (e.at("ph") != "X" || name == "round") continue;
                recorded_span s;
                s.name = name;
                s.schedule = args.value("schedule", "");
                s.thread = threads.at(id);
                s.rank = args.at("rank").get<int>();
                s.peer = args.value("peer", -1);
                s.begin = e.at("ts").get<double>();
                s.end = s.begin + e.at("dur").get<double>();
                s.bytes = args.value("bytes", 0.0);
                if (!args.contains("call"))
                    r.parts.push_back(s);
                else if (args.at("call").get<long long>() >= 0)
                    r.calls[{args.at("group").get<std::string>(), args.at("call").get<long long>()}].push_back(s);
            }
        }
    } catch (const json::exception& e) {
        throw std::runtime_error(fmt::format("this is no trace of colls: {}", e.what()));
    } catch (const std::out_of_range&) {
        throw std::runtime_error("this is no trace of colls: events of a thread that no event introduces");
    }
    if (r.threads.empty()) throw std::runtime_error("the trace has no call in it");
    set_clocks(r, clocks.size());
    const auto moved = [&](recorded_span& s) {
        const double by = r.ahead[static_cast<std::size_t>(r.threads[static_cast<std::size_t>(s.thread)].clock)];
        s.begin -= by;
        s.end -= by;
    };
    for (auto& [key, ranks] : r.calls) std::for_each(ranks.begin(), ranks.end(), moved);
    std::for_each(r.parts.begin(), r.parts.end(), moved);
    for (std::size_t i = 0; i < clock_of_event.size(); ++i)
        if (r.events[i].contains("ts"))
            r.events[i]["ts"] = r.events[i]["ts"].get<double>() - r.ahead[static_cast<std::size_t>(clock_of_event[i])];
    return r;
}

int summarise(const recording& r, bool as_json) {
    std::map<std::string, std::vector<double>> kinds;  // durations by collective, schedule and size
    std::vector<lateness> late(r.threads.size());
    long long complete = 0;
    double begin = std::numeric_limits<double>::infinity(), end = 0, in_calls = 0;
    for (const auto& [key, ranks] : r.calls) {
        for (const recorded_span& s : ranks) {
            kinds[fmt::format("{:<16} {:<24} {:>12.0f}", s.name, s.schedule, s.bytes)].push_back(s.took());
            begin = std::min(begin, s.begin);
            end = std::max(end, s.end);
            in_calls += s.took();
        }
        const auto size = r.sizes.find(key.first);
        if (ranks.size() < 2 || size == r.sizes.end() || ranks.size() != static_cast<std::size_t>(size->second))
            continue;
        ++complete;
        std::vector<const recorded_span*> order;
        for (const recorded_span& s : ranks) order.push_back(&s);
        std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
        lateness& last = late[static_cast<std::size_t>(order.back()->thread)];
        last.last += 1;
        last.total += order.back()->begin - order[order.size() - 2]->begin;
    }
    // When each rank of a group has entered which call, for the waits in it.
    std::map<int, std::vector<std::pair<const recorded_span*, const std::vector<recorded_span>*>>> of_thread;
    for (const auto& [key, ranks] : r.calls)
        for (const recorded_span& s : ranks) of_thread[s.thread].push_back({&s, &ranks});
    for (auto& [thread, all] : of_thread)
        std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.first->begin < b.first->begin; });
    double waited = 0, copied = 0, folded = 0;
    std::map<std::pair<int, int>, link> links;  // threads
    for (const recorded_span& s : r.parts) {
        (s.name == "wait" ? waited : s.name == "copy" ? copied : folded) += s.took();
        if (s.name != "wait" || s.peer < 0) continue;
        const auto& calls = of_thread[s.thread];
        auto in = std::upper_bound(calls.begin(), calls.end(), s.begin + 1e-3,
            [](double at, const auto& call) { return at < call.first->begin; });
        if (in == calls.begin()) continue;
        --in;
        for (const recorded_span& peer : *in->second)
            if (peer.rank == s.peer) {
                link& l = links[{s.thread, peer.thread}];
                l.waited += s.took();
                l.after_entry += std::max(0.0, s.end - std::max(s.begin, peer.begin));
            }
    }
    std::vector<std::size_t> by_lateness(r.threads.size());
    for (std::size_t i = 0; i < by_lateness.size(); ++i) by_lateness[i] = i;
    std::sort(by_lateness.begin(), by_lateness.end(), [&](std::size_t a, std::size_t b) {
        return late[a].total != late[b].total ? late[a].total > late[b].total : a < b;
    });
    std::vector<std::pair<std::pair<int, int>, link>> by_wait(links.begin(), links.end());
    std::sort(
        by_wait.begin(), by_wait.end(), [](const auto& a, const auto& b) { return a.second.waited > b.second.waited; });
    const auto name = [&](int thread) {
        const recorded_thread& t = r.threads[static_cast<std::size_t>(thread)];
        return fmt::format("{} ({})", t.name, t.host);
    };
    const auto slowest_link = std::max_element(by_wait.begin(), by_wait.end(),
        [](const auto& a, const auto& b) { return a.second.after_entry < b.second.after_entry; });

    if (as_json) {
        json out{{"calls", complete}, {"seconds", (end - begin) * 1e-6}, {"wait_share", waited / in_calls},
            {"copy_share", copied / in_calls}, {"fold_share", folded / in_calls}, {"late", json::array()},
            {"waits", json::array()}, {"clocks", json::array()}};
        for (const std::size_t i : by_lateness)
            out["late"].push_back({{"rank", r.threads[i].name}, {"host", r.threads[i].host}, {"last", late[i].last},
                {"microseconds", late[i].total}});
        for (const auto& [who, l] : by_wait)
            out["waits"].push_back({{"rank", name(who.first)}, {"for", name(who.second)}, {"microseconds", l.waited},
                {"after_entry", l.after_entry}});
        for (std::size_t c = 0; c < r.ahead.size(); ++c)
            out["clocks"].push_back({{"ahead", r.ahead[c]}, {"unsure", r.unsure[c]}});
        fmt::print("{}\n", out.dump(2));
        return 0;
    }
    fmt::print("{} ranks, {} collective calls, {}\n\n", r.threads.size(), r.calls.size(), time(end - begin));
    for (std::size_t c = 1; c < r.ahead.size(); ++c)
        fmt::print("clock {}: ahead by {}, known to {}\n", c, time(r.ahead[c]), time(r.unsure[c]));
    fmt::print("{:<16} {:<24} {:>12} {:>9} {:>12} {:>12} {:>12}\n", "call", "schedule", "bytes", "times", "median",
        "p99", "worst");
    for (const auto& [kind, times] : kinds)
        fmt::print("{} {:>9} {:>12} {:>12} {:>12}\n", kind, times.size(), time(middle(times)),
            time(middle(times, 0.99)), time(middle(times, 1)));
    fmt::print("\nIn calls, ranks waited for {:.0f} % of the time, copied for {:.0f} % and folded for {:.0f} %.\n",
        100 * waited / in_calls, 100 * copied / in_calls, 100 * folded / in_calls);
    if (complete > 0) {
        fmt::print("\nWho came last to the {} calls that all ranks recorded, and how long after the one before it:\n",
            complete);
        for (std::size_t i = 0; i < std::min<std::size_t>(5, by_lateness.size()); ++i) {
            const lateness& l = late[by_lateness[i]];
            if (l.last > 0)
                fmt::print("    {:<32} {:>9} times, {:>10} on average, {:>10} in all\n",
                    name(static_cast<int>(by_lateness[i])), l.last, time(l.total / static_cast<double>(l.last)),
                    time(l.total));
        }
    }
    if (!by_wait.empty()) {
        fmt::print("\nThe waits that took the most time; of it, while both ranks were in the call:\n");
        for (std::size_t i = 0; i < std::min<std::size_t>(5, by_wait.size()); ++i)
            fmt::print("    {} for {}: {}; {}\n", name(by_wait[i].first.first), name(by_wait[i].first.second),
                time(by_wait[i].second.waited), time(by_wait[i].second.after_entry));
        fmt::print("\n");
        if (complete > 0) fmt::print("Slowest rank: {}. ", name(static_cast<int>(by_lateness[0])));
        fmt::print("Slowest link: from {} to {}.\n", name(slowest_link->first.second), name(slowest_link->first.first));
    }
    return 0;
}

}  // namespace tool
