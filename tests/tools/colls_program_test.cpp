// The tool colls as a user runs it: what it lists, proves, predicts and draws, schedules of a user's header, and what
// is refused.
#include "chakra_files.hpp"
#include "spoiled.hpp"
#include "support/schedules.hpp"
#include "svg_text.hpp"
#include "tool_folder.hpp"

#include <colls/config.hpp>
#include <colls/cost.hpp>
#include <colls/family.hpp>
#include <colls/files/detail/tuning_file.hpp>
#include <colls/schedules.hpp>
#include <colls/simulate.hpp>
#include <colls/verify.hpp>
#include <colls/views.hpp>

#include <nlohmann/json.hpp>

#include <range/v3/range/primitives.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using nlohmann::json;
using support::program_result;
using support::tool_folder;

long count_of(const std::string& text, const std::string& word) {
    long count = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + word.size())) ++count;
    return count;
}

/// A ring's all_gather; with `wrong`, each rank sends what it does not have yet.
std::string header(bool wrong) {
    return std::string(
               "#include <colls/step.hpp>\n#include <colls/schedule.hpp>\nnamespace my {\nstruct hand_round {\n"
               "    static constexpr auto implements = colls::collective::all_gather;\n"
               "    static constexpr int rounds(int n) { return n - 1; }\n"
               "    static constexpr colls::step at(int rank, int n, int round) {\n"
               "        const int sent = colls::mod(rank - round") +
           (wrong ? " - 1" : "") +
           ", n), got = colls::mod(rank - round - 1, n);\n"
           "        return {.send = {(rank + 1) % n, colls::block(sent)},\n"
           "            .recv = {(rank + n - 1) % n, colls::block(got)}};\n    }\n};\n}\n";
}

}  // namespace

TEST_CASE("colls list: every family, with the counted cost", "[tool]") {
    const tool_folder folder;
    const program_result r = folder.run("list --ranks 8 --json");
    INFO(r.text);
    REQUIRE(r.status == 0);
    std::set<std::string> families;
    bool found = false;
    for (const json& row : json::parse(r.text)) {
        families.insert(row["family"]);
        if (row["family"] != "circulant" || row["collective"] != "all_reduce") continue;
        found = true;
        const colls::cost c =
            colls::cost_of(colls::schedule_of<colls::collective::all_reduce>(colls::circulant<>{}), 8);
        CHECK(row["rounds"] == c.rounds);
        CHECK(row["volume"] == static_cast<double>(c.blocks_sent) / c.blocks);
        CHECK(row["scratch"] == c.scratch);
    }
    CHECK(found);
    CHECK(families.size() == 16);
    CHECK(folder.run("list allreduce -n 6").says("not on so many ranks"));  // halving_doubling
}

namespace {

using colls::collective;

/// What the tests' list calls the families of the tool, where they are in it.
const std::map<std::string, std::string>& rows_of_families() {
    static const std::map<std::string, std::string> all{{"direct", "direct"}, {"ring", "ring"},
        {"circulant", "circulant"}, {"halving_doubling", "halving_doubling"},
        {"recursive_doubling", "recursive_doubling"}, {"distance_doubling", "distance_doubling"},
        {"one_shot", "one_shot"}, {"fan_in", "fan_in"}, {"tree", "tree<2>"}, {"double_tree", "double_tree"},
        {"bruck", "bruck<2>"}, {"swing", "swing"}, {"bine", "bine"}};
    return all;
}
/// Their schedule for a collective, or null.
const colls::any_schedule* schedule_of(const std::string& family, const std::string& of) {
    const auto name = rows_of_families().find(family);
    if (name == rows_of_families().end()) return nullptr;
    for (const support::row& row : support::all_schedules())
        if (row.name == name->second && colls::name_of(row.schedule.implements) == of) return &row.schedule;
    return nullptr;
}
bool is_supported(const std::string& family, int n) {
    for (int c = 0; c < colls::collective_count; ++c)
        if (const auto* const s = schedule_of(family, std::string(colls::name_of(static_cast<colls::collective>(c)))))
            if (s->supports(n)) return true;
    return false;
}
std::string key_of(const json& row) {
    return row.at("family").get<std::string>() + " " + row.at("collective").get<std::string>();
}

/// The figures of a table: where "4.5 MB" or "12 us" is in it, bytes or seconds. `digits`: as many are printed.
struct printed {
    double value = 0;
    int digits = 4;
    bool right_unit = true;

    bool is(double expected) const {
        return right_unit && std::abs(value - expected) <= 0.5001 * std::pow(10.0, 1 - digits) * std::abs(expected);
    }
};
std::istream& operator>>(std::istream& in, printed& p) {
    static const std::map<std::string, std::array<double, 3>> units{{"B", {1, 0, 1024}}, {"KB", {0x1p10, 1, 1024}},
        {"MB", {0x1p20, 1, 1024}}, {"GB", {0x1p30, 1, 1e300}}, {"us", {1e-6, 0, 1e4}}, {"ms", {1e-3, 10, 1e4}},
        {"s", {1, 10, 1e300}}};
    std::string unit;
    double number = 0;
    if (!(in >> number >> unit) || !units.contains(unit)) {
        in.setstate(std::ios::failbit);
        return in;
    }
    const auto [one, least, below] = units.at(unit);
    p.value = number * one;
    p.right_unit = number >= least && number < below + 1;  // 1023.9 is printed as 1024
    return in;
}

/// Seconds of a schedule by the alpha-beta-gamma model: each round takes as long as its busiest rank needs.
double modelled(const colls::cost& c, double bytes, double alpha_us, double beta_ns, double gamma_ns) {
    const double block = bytes / c.blocks;
    return 1e-6 * alpha_us * c.rounds + 1e-9 * beta_ns * block * static_cast<double>(c.critical_sent) +
           1e-9 * gamma_ns * block * static_cast<double>(c.critical_reduced);
}
bool near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b)); }

}  // namespace

TEST_CASE("colls list: each column is that of the count and of the proof, as JSON and in the table", "[tool]") {
    const tool_folder folder;
    std::string wrong;
    int rows = 0;
    for (const int n : {1, 2, 5, 8}) {
        const std::string group = " -n " + std::to_string(n);
        std::set<std::string> expected;
        for (const auto& [family, name] : rows_of_families())
            for (const support::row& row : support::all_schedules())
                if (row.name == name && row.schedule.supports(n))
                    expected.insert(family + " " + colls::name_of(row.schedule.implements));
        std::map<std::string, json> listed;
        for (const json& row : json::parse(folder.run("list --json" + group).text)) {
            const std::string key = key_of(row);
            listed[key] = row;
            const colls::any_schedule* const s = schedule_of(row.at("family"), row.at("collective"));
            if (s == nullptr) continue;
            expected.erase(key);
            ++rows;
            const colls::cost c = colls::cost_of(*s, n);
            const colls::properties p = colls::properties_of(*s, n);
            std::vector<std::string> words;
            if (p.round_optimal) words.push_back("fewest rounds");
            if (p.volume_optimal) words.push_back("least volume");
            if (p.order_preserving && colls::reduces(s->implements)) words.push_back("order kept");
            if (p.symmetric) words.push_back("symmetric");
            const json same{{"family", row.at("family")}, {"collective", row.at("collective")}, {"ranks", n},
                {"rounds", c.rounds}, {"ports", c.ports}, {"scratch", c.scratch}, {"properties", words},
                {"volume", static_cast<double>(c.blocks_sent) / static_cast<double>(c.blocks)}};
            if (row != same) wrong += row.dump() + " is not " + same.dump() + "\n";
        }
        for (const std::string& key : expected) wrong += key + group + " is not listed\n";

        std::istringstream table(folder.run("list" + group).text);
        std::size_t lines = 0;
        for (std::string line; std::getline(table, line);) {
            std::istringstream columns(line);
            std::string family, of, properties;
            int rounds = 0, ports = 0, scratch_slots = 0;
            printed volume{0, 3, true};
            if (!(columns >> family >> of >> rounds >> ports >> volume.value >> scratch_slots)) continue;
            ++lines;
            std::getline(columns >> std::ws, properties);
            const json& row = listed[family + " " + of];
            std::string joined;
            for (const json& word : row.at("properties"))
                joined += (joined.empty() ? "" : ", ") + word.get<std::string>();
            if (row.at("rounds") != rounds || row.at("ports") != ports || row.at("scratch") != scratch_slots ||
                !volume.is(row.at("volume")) || properties != joined)
                wrong += "table: " + line + "\n";
        }
        if (lines != listed.size()) wrong += "the table has other rows" + group + "\n";
    }
    CHECK(wrong == "");
    CHECK(rows > 150);
}

TEST_CASE("colls cost and compare: each column is that of the count, and each time that of the model", "[tool]") {
    const tool_folder folder;
    std::string wrong;
    int rows = 0;
    // Machines in which each of the three figures matters in turn.
    struct machine {
        int n;
        double alpha, beta, gamma;
        std::string bytes;
        double user;
    };
    const machine machines[] = {
        {2, 9, 0.03, 11, "3G", 3 * 0x1p30}, {5, 3, 0.2, 0.7, "1000", 1000}, {8, 0.25, 7, 0.01, "5M", 5 << 20}};
    for (const auto& [n, alpha, beta, gamma, bytes, user] : machines) {
        std::ostringstream options;
        options << " -n " << n << " --alpha " << alpha << " --beta " << beta << " --gamma " << gamma;
        std::map<std::string, double> all_reduces;
        for (const auto& [family, name] : rows_of_families()) {
            const std::string command = "cost '" + family + "'" + options.str() + " --bytes " + bytes;
            std::map<std::string, json> priced;
            const program_result counted = folder.run(command + " --json");
            if (!is_supported(family, n)) {
                if (counted.status != 2 || !counted.says("does not support " + std::to_string(n) + " ranks"))
                    wrong += command + ": " + counted.text + "\n";
                continue;
            }
            for (const json& row : json::parse(counted.text)) {
                priced[key_of(row)] = row;
                const colls::any_schedule* const s = schedule_of(family, row.at("collective"));
                if (s == nullptr) continue;
                ++rows;
                const colls::cost c = colls::cost_of(*s, n);
                const double block = user / c.blocks, seconds = modelled(c, user, alpha, beta, gamma);
                if (row.at("collective") == "all_reduce") all_reduces[family] = seconds;
                if (row.size() != 9 || row.at("ranks") != n || row.at("rounds") != c.rounds ||
                    row.at("ports") != c.ports || row.at("messages") != c.messages ||
                    !near(row.at("bytes_sent"), block * static_cast<double>(c.blocks_sent)) ||
                    !near(row.at("bytes_reduced"), block * static_cast<double>(c.blocks_reduced)) ||
                    !near(row.at("seconds"), seconds))
                    wrong += command + ": " + row.dump() + "\n";
            }
            std::istringstream table(folder.run(command).text);
            std::string line, of, none;
            std::getline(table, line);
            printed size, sent, folded, time;
            std::istringstream head(line.substr(line.find("time of ") + 8));
            if (!(head >> size) || !size.is(user)) wrong += command + ": " + line + "\n";
            std::size_t lines = 0;
            for (; std::getline(table, line); ++lines) {
                std::istringstream columns(line);
                int rounds = 0, ports = 0;
                long messages = 0;
                const bool read = !!(columns >> none >> of >> rounds >> ports >> messages >> sent >> folded >> time);
                const json& row = priced[family + " " + of];
                if (!read || none != family || row.at("rounds") != rounds || row.at("ports") != ports ||
                    row.at("messages") != messages || !sent.is(row.at("bytes_sent")) ||
                    !folded.is(row.at("bytes_reduced")) || !time.is(row.at("seconds")))
                    wrong += command + ": " + line + "\n";
            }
            if (lines != priced.size()) wrong += command + ": the table has other rows\n";
        }

        const std::string command = "compare all_reduce" + options.str() + " --sizes " + bytes;
        const json row = json::parse(folder.run(command + " --json").text).at(0);
        std::vector<std::pair<double, std::string>> ordered;
        for (const auto& [family, seconds] : row.at("seconds").items()) {
            ordered.emplace_back(seconds, family);
            if (all_reduces.contains(family) && !near(seconds, all_reduces.at(family)))
                wrong += command + ": " + family + "\n";
        }
        for (const auto& [family, seconds] : all_reduces)
            if (!row.at("seconds").contains(family)) wrong += command + ": " + family + " is missing\n";
        std::ranges::sort(ordered);
        if (row.at("bytes") != user || row.at("best") != ordered.at(0).second) wrong += command + ": the best\n";
        // The table: a line about the machine, names of columns, a line for the size.
        const std::string text = folder.run(command).text;
        std::ostringstream head;
        head << "all_reduce on " << n << " ranks, alpha " << alpha << " us, beta " << beta << " ns/B, gamma " << gamma
             << " ns/B\n";
        std::istringstream columns(text.substr(text.find("next\n") + 5));
        printed size, time, ratio{0, 3, true};
        std::string best, next;
        if (!text.starts_with(head.str()) || !(columns >> size >> best >> time >> next >> ratio.value) ||
            !size.is(user) || best != ordered[0].second || !time.is(ordered[0].first) || next != ordered[1].second ||
            std::abs(ratio.value - ordered[1].first / ordered[0].first) > 0.00501)
            wrong += command + ": " + text + "\n";
    }
    CHECK(wrong == "");
    CHECK(rows > 150);
}

TEST_CASE("colls import: what a plan costs, as JSON and in words", "[tool]") {
    const tool_folder folder;
    const std::string file = "'" + folder.file("plan.xml") + "'";
    const std::string how = " --alpha 3 --beta 0.2 --gamma 0.7 --bytes 5M";
    for (const auto& [family, n] : {std::pair{"ring", 4}, {"halving_doubling", 8}, {"direct", 3}}) {
        INFO(family);
        REQUIRE(folder.run("export " + std::string(family) + " all_reduce -n " + std::to_string(n) + " -o " + file)
                    .status == 0);
        const colls::any_schedule* const s = schedule_of(family, "all_reduce");
        REQUIRE(s != nullptr);
        const colls::cost c = colls::cost_of(*s, n);
        const double seconds = modelled(c, 5 << 20, 3, 0.2, 0.7);
        const json row = json::parse(folder.run("import " + file + how + " --json").text);
        INFO(row.dump());
        const bool same = row.at("ranks") == n && row.at("rounds") == c.rounds && row.at("blocks") == c.blocks &&
                          row.at("messages") == c.messages && row.at("scratch") == 0 && row.at("proven") == true &&
                          row.at("collective") == "all_reduce" && near(row.at("seconds"), seconds);
        CHECK(same);
        const std::string text = folder.run("import " + file + how).text;
        INFO(text);
        const std::string counted = "\n" + std::to_string(c.messages) + " messages, " + std::to_string(c.blocks_sent) +
                                    " blocks sent by the busiest rank: ";
        REQUIRE(text.find(counted) != std::string::npos);
        std::istringstream rest(text.substr(text.find(counted) + counted.size()));
        printed time, size;
        std::string word;
        const bool read = !!(rest >> time >> word >> size);
        CHECK((read && time.is(seconds) && size.is(5 << 20)));
    }
}

TEST_CASE("colls simulate, choose and place: the table has the figures of the JSON", "[tool]") {
    const tool_folder folder;
    std::ofstream(folder.file("n.json"))
        << R"({"kind": "torus", "sides": [4, 2], "link": {"latency_us": 1, "gb_s": 10}, "overhead_us": 1})";
    const std::string on = " --topology '" + folder.file("n.json") + "'";
    std::string wrong;

    const std::string simulate = "simulate all_reduce --groups 3,8 --bytes 5M" + on;
    std::map<std::string, std::map<int, double>> simulated;
    for (const json& row : json::parse(folder.run(simulate + " --json").text)) {
        simulated[row.at("family")][row.at("ranks")] = row.at("seconds");
        CHECK(row.at("bytes") == 5 << 20);
    }
    const std::string text = folder.run(simulate).text;
    CHECK(text.starts_with("all_reduce of 5 MB, simulated\n\nranks                          3           8\n"));
    std::istringstream table(text.substr(text.find("8\n") + 2));
    std::size_t lines = 0;
    for (std::string line; std::getline(table, line);) {
        std::string family = line.substr(0, line.find(' '));
        std::size_t at = family.size();
        for (const int n : {3, 8}) {
            at = line.find_first_not_of(' ', at);
            const bool none = line.compare(at, 1, "-") == 0;
            const bool has = simulated[family].contains(n);
            std::istringstream column(line.substr(at));
            printed time;
            if (none ? has : !has || !(column >> time) || !time.is(simulated[family][n])) wrong += line + "\n";
            at += none ? 1 : line.substr(at).find('s') + 1;
        }
        ++lines;
    }
    CHECK(wrong == "");
    CHECK(lines == simulated.size());

    const std::string choose = "choose all_reduce --sizes 64,64K,64M" + on;
    const std::string chosen = folder.run(choose).text;
    INFO(chosen);
    CHECK(chosen.starts_with("all_reduce on 8 ranks, simulated\n"));
    std::istringstream of_sizes(chosen.substr(chosen.find("next\n") + 5));
    for (const json& row : json::parse(folder.run(choose + " --json").text)) {
        std::string line, best, next;
        std::getline(of_sizes, line);
        std::istringstream columns(line);
        printed size, time;
        double ratio = 0;
        const bool read = !!(columns >> size >> best >> time >> next >> ratio);
        const double least = row.at("seconds").at(best), second = row.at("seconds").at(next);
        CHECK((read && size.is(row.at("bytes")) && best == row.at("best").get<std::string>() && time.is(least)));
        CHECK(std::abs(ratio - second / least) <= 0.00501);
        for (const auto& [family, seconds] : row.at("seconds").items())
            if (family != best) CHECK(seconds.get<double>() >= second * (1 - 1e-9));
    }

    const std::string place = "place ring all_reduce --bytes 5M --tries 5" + on;
    const json placed = json::parse(folder.run(place + " --json").text).at(0);
    std::istringstream columns(folder.run(place).text);
    std::string family, of;
    printed before, after;
    double ratio = 0;
    CHECK(!!(columns >> family >> of >> before >> after >> ratio));
    const double was = placed.at("before"), is = placed.at("after");
    CHECK((family == "ring" && of == "all_reduce" && before.is(was) && after.is(is)));
    CHECK(std::abs(ratio - was / is) <= 0.00501);
}

TEST_CASE("colls prove: families, and a header's schedule, right and wrong", "[tool]") {
    const tool_folder folder;
    const program_result tree = folder.run("prove tree --ranks 2..16");
    INFO(tree.text);
    CHECK(tree.status == 0);
    CHECK(count_of(tree.text, "proven for 15 group sizes from 2 to 16") == count_of(tree.text, "\n"));
    // Nothing is proven of sizes that a family does not support: that is no success.
    CHECK(folder.run("prove halving_doubling reduce_scatter --ranks 2..16")
            .says("proven for 4 group sizes: 2, 4, 8, 16"));
    const program_result none = folder.run("prove halving_doubling reduce_scatter --ranks 5..7");
    CHECK(none.says("supports no group size from 5 to 7: nothing is proven"));
    CHECK(none.status == 4);
    CHECK(folder.run("prove halving_doubling all_reduce --ranks 5..7 --json").status == 4);
    CHECK(folder.run("prove halving_doubling all_reduce --ranks 5..7 --local").status == 4);
    CHECK(folder.run("prove halving_doubling --ranks 5..8").status == 0);

    std::ofstream(folder.file("right one.hpp")) << header(false);
    std::ofstream(folder.file("wrong.hpp")) << header(true);
    const program_result right =
        folder.run("prove --include '" + folder.file("right one.hpp") + "' my::hand_round --ranks 1..9");
    INFO(right.text);
    CHECK(right.status == 0);
    CHECK(right.says("all_gather      proven for 9 group sizes"));
    CHECK(right.says("compiling"));
    const program_result again =
        folder.run("cost --include '" + folder.file("right one.hpp") + "' my::hand_round all_gather -n 5 --json");
    INFO(again.text);
    CHECK(again.status == 0);
    CHECK_FALSE(again.says("compiling"));  // it is kept
    CHECK(json::parse(again.text)[0]["rounds"] == 4);

    const program_result wrong =
        folder.run("prove --include '" + folder.file("wrong.hpp") + "' my::hand_round --ranks 1..9");
    INFO(wrong.text);
    CHECK(wrong.status == 1);
    CHECK(wrong.says("refuted on 2 ranks: round 0: "));
    CHECK(wrong.says("(law: in_range)"));
    // In another container a process of the same number may be at work in the same folder.
    const program_result beside = support::execute(
        "sh -c 'mkdir \"$0/colls/schedules/$$.cpp\" && export XDG_CACHE_HOME=\"$0\" && exec \"$@\"' '" +
        folder.file("cache") + "' '" COLLS_TEST_TOOL "' prove my::hand_round --ranks 1..9 --include '" +
        folder.file("right one.hpp") + "'");
    INFO(beside.text);
    CHECK(beside.status == 0);
    // Nothing is left but the compiled libraries.
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder.file("cache")))
        CHECK((file.is_directory() || file.path().extension() == ".so"));
}

TEST_CASE("colls compare: the best schedule is that of the least predicted time, and changes where it says", "[tool]") {
    const tool_folder folder;
    const program_result r =
        folder.run("compare all_reduce -n 8 --alpha 3 --beta 0.2 --gamma 0.1 --sizes 64,1M --json");
    INFO(r.text);
    REQUIRE(r.status == 0);
    const colls::model machine{3e-6, 0.2e-9, 0.1e-9};
    for (const json& row : json::parse(r.text)) {
        const double bytes = row["bytes"], circulant = row["seconds"]["circulant"];
        CHECK(circulant ==
              Approx(colls::cost_of(colls::schedule_of<colls::collective::all_reduce>(colls::circulant<>{}), 8)
                      .seconds(machine, bytes)));
        for (const json& seconds : row["seconds"]) CHECK(seconds >= row["seconds"][row["best"].get<std::string>()]);
    }
    const program_result table = folder.run("compare all_reduce -n 8 --svg '" + folder.file("c.svg") + "'");
    INFO(table.text);
    CHECK(table.status == 0);
    // On 8 ranks and x bytes one_shot takes 5 us + 7 (0.1 + 0.05) x ns, direct 10 us + 7/8 (2 * 0.1 + 0.05) x ns.
    CHECK(table.says("from 5.87"));
    CHECK(table.says("on direct, not one_shot"));
    CHECK(count_of(folder.read("c.svg"), "<circle") == count_of(table.text, "\nfrom "));
    const program_result none = folder.run("compare all_to_all -n 16777216");
    CHECK(none.status == 2);
    CHECK(none.says("no schedule can be counted on 16777216 ranks: too many steps"));
}

TEST_CASE("colls compare: at most eight lines, each with its name; the fastest in a band; the others named", "[tool]") {
    const tool_folder folder;
    for (const char* input : {"all_reduce -n 16 --alpha 5 --beta 0.1 --gamma 0.05", "all_reduce -n 8",
             "all_reduce -n 61", "broadcast -n 7 --alpha 50", "reduce_scatter -n 32 --sizes 64,1M,1G",
             "all_gather -n 5 --beta 3", "all_to_all -n 12", "gather -n 2", "all_reduce -n 2 --sizes 8,16"}) {
        INFO(input);
        const program_result rows = folder.run(std::string("compare ") + input + " --json");
        REQUIRE(rows.status == 0);
        const program_result table =
            folder.run(std::string("compare ") + input + " --svg '" + folder.file("c.svg") + "'");
        REQUIRE(table.status == 0);
        const std::string svg = folder.read("c.svg");
        support::check_texts_are_apart(svg);
        const auto lines = support::lines_of(svg);
        CHECK(lines.size() <= 8);
        std::set<std::string> drawn, all, named;
        for (const auto& names : lines)
            for (const std::string& name : names) CHECK(drawn.insert(name).second);
        std::string note, beside;
        for (const support::svg_text& t : support::texts_of(svg)) {
            if (t.look == "soft") note += t.words + ' ';
            if (t.look == "page" || t.look.starts_with("f")) beside += t.words + ' ';  // within the band, and below it
        }
        for (const json& row : json::parse(rows.text)) {
            CHECK(drawn.contains(row["best"].get<std::string>()));
            CHECK(beside.find(row["best"].get<std::string>()) != std::string::npos);
            for (const auto& [name, seconds] : row["seconds"].items()) all.insert(name);
        }
        for (const std::string& name : all) {
            INFO(name);
            CHECK((drawn.contains(name) || note.find(' ' + name) != std::string::npos));
        }
        CHECK(count_of(svg, "<circle") == count_of(table.text, "\nfrom "));
    }
}

TEST_CASE("colls draw --svg: an arrow for each message", "[tool]") {
    const tool_folder folder;
    const program_result r = folder.run("draw circulant reduce_scatter -n 6 --svg '" + folder.file("a.svg") + "'");
    INFO(r.text);
    REQUIRE(r.status == 0);
    constexpr auto schedule = colls::circulant<>::reduce_scatter{};
    const std::string svg = folder.read("a.svg");
    CHECK(count_of(svg, "marker-end") == ranges::distance(colls::views::transfers(schedule, 6)));
    CHECK(count_of(svg, ">rank ") == 6);
    // Each rank ends with its own block, of all contributions, and with no other.
    CHECK(count_of(svg, "<rect class=\"done\"") == 6);
    CHECK(count_of(svg, "http://") == count_of(svg, "http://www.w3.org/2000/svg"));  // nothing is loaded

    // As many ranks, and slots, as a picture may have.
    REQUIRE(folder.run("draw bruck all_to_all -n 32 --svg '" + folder.file("b.svg") + "'").status == 0);
    CHECK(count_of(folder.read("b.svg"), "<rect ") == 1 + 64 * 32 * (5 + 1));
}

TEST_CASE("colls draw --svg: squares, arrows and grounds lie where their rounds, ranks and hosts are", "[tool]") {
    struct box {
        std::string look;
        double x, y, right, bottom;
    };
    struct arrow {
        double x, y, to_x, to_y;
    };
    struct range {
        double low = 1e9, high = 0;
        void add(double from, double to) { low = std::min(low, from), high = std::max(high, to); }
    };
    struct asked {
        std::string schedule;
        std::vector<int> hosts;  ///< the host of each rank
        std::string option;
        std::size_t slots;
        int rounds;
    };
    const tool_folder folder;
    // 20 slots are two lines of squares, a rank.
    const asked all[] = {
        {"ring all_gather", {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, " --hosts 8,12", 20, 19},
        {"circulant all_reduce", {0, 0, 1, 2, 2}, " --hosts 2,1,2", 5, 6},
        {"tree broadcast", std::vector<int>(7, 0), "", 1, 3}};
    for (const auto& [schedule, hosts, option, slots, rounds] : all) {
        INFO(schedule);
        const std::size_t n = hosts.size();
        const program_result r = folder.run(
            "draw " + schedule + " -n " + std::to_string(n) + option + " --svg '" + folder.file("g.svg") + "'");
        REQUIRE(r.status == 0);
        const std::string svg = folder.read("g.svg");
        const auto value = [](std::string_view e, const char* name) {
            return std::atof(support::attribute(e, name).c_str());
        };
        range page_x, page_y;
        support::for_each_element(svg, "svg", [&](std::string_view e, std::string_view, double) {
            page_x.add(0, value(e, "width"));
            page_y.add(0, value(e, "height"));
        });
        std::vector<box> squares, blocks, grounds;
        support::for_each_element(svg, "rect", [&](std::string_view e, std::string_view, double) {
            const box b{support::attribute(e, "class"), value(e, "x"), value(e, "y"), value(e, "x") + value(e, "width"),
                value(e, "y") + value(e, "height")};
            if (b.look == "page") return;
            (b.look == "block" ? blocks : b.look == "even" || b.look == "odd" ? grounds : squares).push_back(b);
            CHECK((b.x >= 0 && b.y >= 0 && b.right <= page_x.high && b.bottom <= page_y.high));
        });

        // In the file they are in the order of moments, ranks and slots. None lies on another one.
        REQUIRE(squares.size() == slots * n * static_cast<std::size_t>(rounds + 1));
        std::vector<range> columns(static_cast<std::size_t>(rounds + 1)), rows(n);
        std::set<std::pair<double, double>> places;
        int meet = 0;
        for (std::size_t i = 0; i < squares.size(); ++i) {
            const box& b = squares[i];
            columns[i / slots / n].add(b.x, b.right);
            rows[i / slots % n].add(b.y, b.bottom);
            for (double x = -9; x <= 9; x += 9)
                for (double y = -9; y <= 9; y += 9) meet += places.contains({b.x + x, b.y + y});
            places.emplace(b.x, b.y);
        }
        CHECK(meet == 0);
        for (std::size_t m = 1; m < columns.size(); ++m) CHECK(columns[m].low > columns[m - 1].high + 50);
        for (std::size_t i = 1; i < n; ++i) CHECK(rows[i].low > rows[i - 1].high + 13);
        int outside = 0;
        for (const box& b : blocks)  // it fills its square from below
            outside +=
                !places.contains({b.x, b.bottom - 10}) || b.y < b.bottom - 10 || b.y >= b.bottom || b.right != b.x + 10;
        CHECK(outside == 0);

        const int host_count = option.empty() ? 0 : hosts.back() + 1;
        REQUIRE(grounds.size() == static_cast<std::size_t>(host_count));
        for (std::size_t i = 0; i < n && host_count > 0; ++i)
            for (std::size_t h = 0; h < grounds.size(); ++h) {
                const bool within = rows[i].low > grounds[h].y && rows[i].high < grounds[h].bottom;
                CHECK(within == (hosts[i] == static_cast<int>(h)));
                CHECK(grounds[h].look == (h % 2 == 0 ? "even" : "odd"));
                CHECK((grounds[h].x <= 0 && grounds[h].right >= columns.back().high));
            }

        std::size_t named = 0, numbered = 0;
        support::for_each_element(svg, "text", [&](std::string_view e, std::string_view words, double) {
            const double x = value(e, "x"), y = value(e, "y");
            if (words.starts_with("rank ")) {
                const range& row = rows.at(named);
                CHECK(words == "rank " + std::to_string(named++));
                CHECK((y > row.low && y <= row.high + 1 && x > 0 && x < columns[0].low));
            } else if (words.starts_with("round ")) {
                CHECK(words == "round " + std::to_string(numbered));
                CHECK((x > columns.at(numbered).high && x < columns.at(numbered + 1).low && y < rows[0].low));
                ++numbered;
            }
        });
        CHECK(named == n);
        CHECK(numbered == static_cast<std::size_t>(rounds));

        std::size_t arrows = 0;
        for (std::size_t at = 0; (at = svg.find("\" d=\"M", at)) != std::string::npos; ++at) {
            if (svg.compare(at + 6, 4, "0 0 ") == 0) continue;  // a head
            arrow a{};
            int round = 0;
            std::size_t from = 0, to = 0;
            REQUIRE(std::sscanf(svg.c_str() + at, "\" d=\"M%lf %lf L%lf %lf", &a.x, &a.y, &a.to_x, &a.to_y) == 4);
            REQUIRE(std::sscanf(svg.c_str() + svg.find("<title>", at), "<title>round %d: rank %zu to rank %zu,", &round,
                        &from, &to) == 3);
            const range &before = columns.at(static_cast<std::size_t>(round)),
                        &after = columns.at(static_cast<std::size_t>(round) + 1);
            CHECK((a.x > before.high && a.to_x > a.x + 50 && a.to_x < after.low));
            CHECK((a.y > rows.at(from).low && a.y < rows.at(from).high));
            CHECK((a.to_y > rows.at(to).low && a.to_y < rows.at(to).high));
            ++arrows;
        }
        CHECK(arrows > 0);
    }
}

TEST_CASE("colls: on a terminal, what is said of the work is gone before the result is printed", "[tool]") {
    if (support::execute("script -qec true /dev/null < /dev/null").status != 0) {
        WARN("left out: script(1) gives no terminal here");
        return;
    }
    const tool_folder folder;
    folder.write("n.json", R"({"kind": "flat", "ranks": 4, "link": {"latency_us": 1, "gb_s": 25}})");
    const std::string on = " --topology '" + folder.file("n.json") + "'";
    for (const std::string& command : {std::string("list all_gather -n 4"), std::string("prove tree --ranks 2..16"),
             std::string("prove ring --ranks 2..16 --local"), std::string("cost ring"),
             std::string("compare all_gather"), "simulate all_gather" + on, "choose all_gather" + on,
             "place ring --tries 1" + on, "synthesise all_gather" + on}) {
        INFO(command);
        const program_result plain = folder.run(command);
        const program_result r =
            support::execute("script -qec \"'" COLLS_TEST_TOOL "' " + command + "\" /dev/null < /dev/null");
        INFO(r.text);
        REQUIRE(r.status == plain.status);
        std::string left;  // on the terminal at the end
        std::istringstream in(r.text);
        for (std::string line; std::getline(in, line);) {
            const std::string gone = "\r\033[K";
            const std::size_t last = line.rfind(gone);
            if (last != std::string::npos) line.erase(0, last + gone.size());
            if (line.ends_with('\r')) line.pop_back();
            if (!line.empty() || !in.eof()) left += line + "\n";
        }
        const auto without_times = [](std::string text) {
            for (std::size_t at = 0; (at = text.find(" s\n", at)) != std::string::npos;) {
                const std::size_t begin = text.rfind(' ', at - 1);
                text.erase(begin, at + 2 - begin);
            }
            return text;
        };
        CHECK(r.says("\033[K"));
        CHECK(without_times(left) == without_times(plain.text));
    }
    // One group that takes long: how far it is. (Of an all_to_all first what its slots hold.)
    for (const auto& [command, words] : {std::pair{"prove ring all_reduce -n 6000", "ring all_reduce: 6000 ranks: "},
             {"export direct reduce_scatter -n 1200 --format dot -o /dev/null", "direct: 1200 ranks: proven"},
             {"cost ring all_reduce -n 6000", "ring all_reduce: "},
             {"prove bruck all_to_all -n 6000", " of its slots"}}) {
        const program_result r = support::execute(
            std::string("script -qec \"'" COLLS_TEST_TOOL "' ") + command + "\" /dev/null < /dev/null");
        INFO(command << ": " << r.text);
        CHECK(r.status == 0);
        CHECK(r.says(words));
        CHECK((r.says(" % of its ") || r.says("being written")));
    }
}

TEST_CASE("colls cost and draw --hosts: what goes between hosts", "[tool]") {
    const tool_folder folder;
    const std::vector<std::pair<std::string, std::vector<int>>> cases{{"4", {0, 0, 0, 0, 1, 1, 1, 1}},
        {"3", {0, 0, 0, 1, 1, 1, 2, 2}}, {"2,1,5", {0, 0, 1, 2, 2, 2, 2, 2}}, {"8", std::vector<int>(8, 0)},
        {"100", std::vector<int>(8, 0)}, {"1", {0, 1, 2, 3, 4, 5, 6, 7}}};
    for (const auto& [text, hosts] : cases)
        for (const std::string family : {"ring", "halving_doubling", "tree"}) {
            INFO(family << " --hosts " << text);
            const colls::any_schedule& s = *schedule_of(family, "all_reduce");
            long messages = 0;
            double rank_most = 0, host_most = 0;
            std::set<int> rounds;
            std::map<int, double> of_host;
            for (int r = 0; r < 8; ++r) {
                double of_rank = 0;
                for (int k = 0; k < s.rounds(8); ++k)
                    for (int p = 0; p < colls::ports_of(s, 8); ++p) {
                        const auto send = colls::step_of(s, r, 8, k, p).send;
                        const auto at = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
                        if (send.peer == colls::none || at(send.peer) == at(r)) continue;
                        ++messages;
                        rounds.insert(k);
                        of_rank += send.blocks.size() * 8000.0 / s.blocks(8);
                        host_most = std::max(host_most, of_host[at(r)] += send.blocks.size() * 8000.0 / s.blocks(8));
                    }
                rank_most = std::max(rank_most, of_rank);
            }
            const std::string of = family + " all_reduce -n 8 --hosts " + text;
            const json row = json::parse(folder.run("cost " + of + " --bytes 8000 --json").text).at(0);
            CHECK(row.at("far_rounds") == rounds.size());
            CHECK(near(row.at("far_bytes_of_a_rank"), rank_most));
            CHECK(near(row.at("far_bytes_of_a_host"), host_most));
            std::istringstream table(folder.run("cost " + of + " --bytes 8000").text);
            std::string line, word;
            std::getline(table, line);
            CHECK(line.find("between hosts") != std::string::npos);
            std::getline(table, line);
            printed value, sent_by_rank, sent_by_host;
            std::istringstream columns(line);
            int number = 0;
            columns >> word >> word >> number >> number >> number >> value >> value >> value >> number;
            CHECK(number == static_cast<int>(rounds.size()));
            CHECK(!!(columns >> sent_by_rank >> sent_by_host));
            CHECK(sent_by_rank.is(rank_most));
            CHECK(sent_by_host.is(host_most));
            REQUIRE(folder.run("draw " + of + " --svg '" + folder.file("h.svg") + "'").status == 0);
            const std::string svg = folder.read("h.svg");
            CHECK(count_of(svg, "stroke-dasharray") == messages);
            CHECK(count_of(svg, ", between hosts</title>") == messages);
            CHECK(count_of(svg, "<title>host ") == hosts.back() + 1);
        }
    // Two levels: each rank sends its share of the buffer's 2 (h - 1) / h between hosts, and no more.
    std::ofstream(folder.file("two.hpp")) << "#include <colls/schedules.hpp>\n"
                                             "struct two_levels : colls::hierarchical<colls::direct, colls::ring> {\n"
                                             "    constexpr two_levels() { node = 4; }\n};\n";
    const program_result two = folder.run(
        "cost --include '" + folder.file("two.hpp") + "' two_levels all_reduce -n 12 --hosts 4 --bytes 12000 --json");
    INFO(two.text);
    REQUIRE(two.status == 0);
    CHECK(near(
        json::parse(two.text.substr(two.text.find("[\n"))).at(0).at("far_bytes_of_a_rank"), 12000 * 2.0 * 2 / 3 / 4));
    REQUIRE(folder.run("draw ring --hosts 3 -n 6 --page '" + folder.file("h.html") + "'").status == 0);
    CHECK(count_of(folder.read("h.html"), "\"hosts\":3") == 1);
}

TEST_CASE("colls export: a graph has an edge for each message, a trace a pair of nodes", "[tool]") {
    const tool_folder folder;
    for (const int n : {2, 3, 6}) {
        INFO(n);
        constexpr auto schedule = colls::schedule_of<colls::collective::all_reduce>(colls::ring{});
        const long messages = ranges::distance(colls::views::transfers(schedule, n));
        const std::string of = "export ring all_reduce -n " + std::to_string(n);
        const program_result graph = folder.run(of + " --format dot");
        REQUIRE(graph.status == 0);
        CHECK(count_of(graph.text, "constraint=false") == messages);
        CHECK(count_of(graph.text, "[label=\"rank ") == n * (schedule.rounds(n) + 1));
        CHECK(count_of(graph.text, "->") == messages + n * schedule.rounds(n));  // and each rank from round to round

        const program_result trace = folder.run(of + " --format trace --bytes 6000");
        REQUIRE(trace.status == 0);
        const json all = json::parse(trace.text);
        std::map<std::array<int, 3>, int> sent, received;  // by sender, receiver and tag
        double bytes = 0;
        for (const json& rank : all.at("traces")) {
            std::map<int, json> before;
            int sends_of_rank = 0;
            for (const json& node : rank.at("nodes")) {
                const json& a = node.at("attr");
                for (const char* const kind : {"data_deps", "ctrl_deps"})
                    for (const int id : node.at(kind)) CHECK(before.contains(id));
                const std::string type = node.at("type");
                if (type == "COMP_NODE") {
                    const json& from = before.at(node.at("data_deps").at(0));
                    CHECK(from.at("type") == "COMM_RECV_NODE");
                    CHECK(from.at("attr").at("comm_size") == a.at("num_bytes"));
                } else {
                    const bool sends = type == "COMM_SEND_NODE";
                    CHECK(a.at(sends ? "comm_src" : "comm_dst") == rank.at("rank"));
                    if (sends) bytes += a.at("comm_size").get<double>();
                    // What a ring sends after its first round has come in the round before.
                    if (sends) CHECK(node.at("data_deps").size() == (sends_of_rank++ > 0 ? 1 : 0));
                    ++(sends ? sent : received)[{a.at("comm_src"), a.at("comm_dst"), a.at("comm_tag")}];
                }
                CHECK(before.emplace(node.at("id"), node).second);
            }
        }
        CHECK(static_cast<long>(sent.size()) == messages);
        CHECK(sent == received);
        CHECK(bytes == 2.0 * (n - 1) * 6000);

        // The same nodes as Chakra's execution traces, a file for each rank.
        REQUIRE(folder.run(of + " --format chakra --bytes 6000 -o '" + folder.file("ring") + "'").status == 0);
        CHECK_FALSE(std::filesystem::exists(folder.file("ring." + std::to_string(n) + ".et")));
        for (const json& rank : all.at("traces")) {
            const auto file = chakra::read(folder.read("ring." + rank.at("rank").dump() + ".et"));
            REQUIRE(file.nodes.size() == rank.at("nodes").size());
            for (std::size_t i = 0; i < file.nodes.size(); ++i) {
                const chakra::node& node = file.nodes[i];
                const json& same = rank.at("nodes").at(i);
                CHECK(node.id == same.at("id"));
                CHECK(node.name == same.at("name").get<std::string>());
                CHECK(json(node.data) == same.at("data_deps"));
                CHECK(json(node.control) == same.at("ctrl_deps"));
                CHECK(node.with.size() == same.at("attr").size() + 1);  // is_cpu_op
                for (const auto& [key, value] : same.at("attr").items()) CHECK(node.with.at(key).number == value);
            }
        }
    }
}

TEST_CASE(
    "colls export: the edges of a graph name the blocks, in runs, and where they are stored elsewhere", "[tool]") {
    const tool_folder folder;
    const auto numbers = [](std::string words) {  // "0-2, 5" is 0, 1, 2, 5
        std::vector<int> all;
        std::ranges::replace(words, ',', ' ');
        std::istringstream in(words);
        for (std::string run; in >> run;) {
            const std::size_t dash = run.find('-');
            const int first = std::stoi(run),
                      last = dash == std::string::npos ? first : std::stoi(run.substr(dash + 1));
            CHECK((dash == std::string::npos || last > first));
            CHECK((all.empty() || first != all.back() + 1));  // that would be one run
            for (int b = first; b <= last; ++b) all.push_back(b);
        }
        return all;
    };
    bool runs = false, apart = false;
    for (const auto& [family, of] : {std::pair{"halving_doubling", "reduce_scatter"}, {"bruck", "all_to_all"}}) {
        const int n = 8;
        const colls::any_schedule* const s = schedule_of(family, of);
        REQUIRE(s != nullptr);
        const program_result r = folder.run("export " + std::string(family) + " " + of + " -n 8 --format dot");
        REQUIRE(r.status == 0);
        std::size_t at = 0;
        for (const colls::views::transfer& t : colls::views::transfers(*s, n)) {
            const std::string edge = "r" + std::to_string(t.from) + "_" + std::to_string(t.round) + " -> r" +
                                     std::to_string(t.to) + "_" + std::to_string(t.round + 1) + " [label=\"";
            INFO(edge);
            at = r.text.find(edge, at);
            REQUIRE(at != std::string::npos);
            at += edge.size();
            const std::string label = r.text.substr(at, r.text.find('"', at) - at);
            const std::size_t to = label.find(" to ");
            std::vector<int> sent, stored;
            for (int i = 0; i < t.blocks.size(); ++i) sent.push_back(t.blocks[i]);
            for (int i = 0; i < t.stored.size(); ++i) stored.push_back(t.stored[i]);
            CHECK(numbers(label.substr(0, to)) == sent);
            CHECK((to == std::string::npos) == (sent == stored));
            if (to != std::string::npos) CHECK(numbers(label.substr(to + 4)) == stored);
            runs = runs || label.find('-') != std::string::npos;
            apart = apart || label.find(',') != std::string::npos;
        }
    }
    CHECK((runs && apart));
}

TEST_CASE("colls prove --local: large groups, every size, and what is not represented", "[tool]") {
    const tool_folder folder;
    const program_result ring = folder.run("prove ring reduce_scatter --ranks 65000..65010 --local");
    INFO(ring.text);
    CHECK(ring.status == 0);
    CHECK(ring.says("proven for 11 group sizes from 65000 to 65010, from the steps of rank 0, by translation"));
    const auto rows = json::parse(folder.run("prove swing all_reduce --ranks 2..100 --local --json").text);
    CHECK(rows.size() == 1);
    CHECK(rows.at(0).at("proven") == 6);
    CHECK(rows.at(0).at("steps_of") == "every rank");

    const program_result scan = folder.run("prove ring inclusive_scan --ranks 8 --local");
    CHECK(scan.status == 1);
    CHECK(scan.says("not proven by local conditions: group of 8, this collective is not represented"));
    const program_result unknown = folder.run("prove rings --local");
    CHECK(unknown.status == 2);
    CHECK(unknown.says("--local: there is no family 'rings'; did you mean 'ring'? There are: direct, ring, "));
    const program_result small =
        support::execute("( ulimit -v 300000; '" COLLS_TEST_TOOL "' prove ring all_gather --ranks 16777216 --local )");
    INFO(small.text);
    CHECK(small.status == 2);
    CHECK(count_of(small.text, "\n") == 1);
}

TEST_CASE("colls import: an exported plan is proven, priced and run, and a changed one is refuted", "[tool]") {
    const tool_folder folder;
    const std::string file = folder.file("ring.xml"), quoted = "'" + file + "'";
    REQUIRE(folder.run("export ring all_reduce -n 4 -o " + quoted).status == 0);
    const program_result r = folder.run("import " + quoted + " --run");
    INFO(r.text);
    CHECK(r.status == 0);
    CHECK(r.says("proven for 4 ranks"));
    CHECK(r.says("24 messages, 6 blocks sent by the busiest rank"));
    CHECK(r.says("run over 4 threads: every element is right"));
    CHECK(json::parse(folder.run("import " + quoted + " --run --json").text).at("run") == "right");
    CHECK(folder.run("prove " + quoted).status == 0);
    CHECK(folder.run("draw " + quoted + " --svg '" + folder.file("ring.svg") + "'").status == 0);
    const std::string other = "'" + folder.file("ring.json") + "'";
    REQUIRE(folder.run("export ring all_reduce -n 4 --format mscclpp -o " + other).status == 0);
    CHECK(folder.run("import " + other + " --run").says("run over 4 threads: every element is right"));

    std::string plan = folder.read("ring.xml");
    const std::string block = "srcoff=\"1\"";
    REQUIRE(plan.find(block) != std::string::npos);
    plan.replace(plan.find(block), block.size(), "srcoff=\"0\"");
    std::ofstream(file) << plan;
    const program_result wrong = folder.run("import " + quoted + " --run");
    INFO(wrong.text);
    CHECK(wrong.status == 1);
    CHECK(wrong.says("refuted: round 1: rank 0 reduces block 1 from rank 3"));
    CHECK_FALSE(wrong.says("run over"));
}

TEST_CASE("colls import: a proven plan of a form that is not run is no refuted one", "[tool]") {
    const tool_folder folder;
    int run = 0, not_run = 0;
    for (const auto& file : std::filesystem::directory_iterator(COLLS_TEST_PLANS)) {
        const program_result r = folder.run("import '" + file.path().string() + "' --run");
        INFO(file.path().string() << ": " << r.text);
        run += r.status == 0;
        not_run += r.status == 3;
        CHECK(r.says(r.status == 3 ? "proven, and not run: " : "every element is right"));
        CHECK((r.status == 0 || r.status == 3));
    }
    CHECK(run > 10);
    CHECK(not_run > 0);
}

TEST_CASE("colls perf: colls_perf with the options that follow", "[tool]") {
    const tool_folder folder;
    CHECK(folder.run("perf --help").says("COLLS_TUNE"));
    const program_result r =
        folder.run("perf all_gather --ranks 3 -b 1200 -e 1200 -n 2 -w 1 --json '" + folder.file("times.json") + "'");
    INFO(r.text);
    CHECK(r.status == 0);
    CHECK(json::parse(folder.read("times.json")).dump().find("all_gather") != std::string::npos);
    CHECK(folder.run("perf --no-such-option").status != 0);

    // Where there is none beside the tool, nor in PATH.
    std::filesystem::copy_file(COLLS_TEST_TOOL, folder.file("colls"));
    const program_result none = support::execute("PATH=/nowhere '" + folder.file("colls") + "' perf --help");
    CHECK(none.status == 2);
    CHECK(none.says("there is no colls_perf beside this program"));
}

TEST_CASE("colls simulate: times on a network are those of the simulation", "[tool]") {
    const tool_folder folder;
    std::ofstream(folder.file("tree.json")) << R"({"kind": "fat_tree", "gamma_ns": 0.1, "overhead_us": 0.5,
               "levels": [{"down": 8, "up": 1, "latency_us": 1, "gb_s": 10},
                          {"down": 4, "up": 2, "latency_us": 1, "gb_s": 10}]})";
    const std::string on = " --topology '" + folder.file("tree.json") + "' ";
    namespace sim = colls::simulation;
    const sim::topology tree = sim::fat_tree({{8, 1, {1e-6, 1e10}}, {4, 2, {1e-6, 1e10}}});
    const auto ring = colls::schedule_of<colls::collective::all_reduce>(colls::ring{});
    const auto expected = [&](int n) {
        return sim::simulate(ring, n, tree, 1 << 20, {.gamma = 0.1e-9, .overhead = 0.5e-6}).seconds;
    };
    const program_result r = folder.run("simulate all_reduce --groups 8,32 --bytes 1M --json" + on);
    INFO(r.text);
    REQUIRE(r.status == 0);
    int found = 0;
    for (const json& row : json::parse(r.text)) {
        if (row["family"] != "ring") continue;
        CHECK(row["seconds"].get<double>() == Approx(expected(row["ranks"])));
        ++found;
    }
    CHECK(found == 2);
    const auto one = [&](const std::string& more) {
        const program_result got = folder.run("simulate all_reduce ring --groups 32 --bytes 1M --json" + on + more);
        INFO(got.text);
        REQUIRE(got.status == 0);
        return json::parse(got.text).at(0)["seconds"].get<double>();
    };
    CHECK(one("") == Approx(expected(32)));
    CHECK(one("--noise 50 --trials 3") > expected(32) + 50e-6);
    CHECK(one("--stragglers 1:700") == Approx(expected(32) + 700e-6));
    const program_result table = folder.run("simulate allreduce" + on);
    INFO(table.text);
    CHECK(table.says("         2           4           8          16          32\n"));

    // As the library's messages go: the same network with buffers, in chunks of 512 KB.
    const auto buffered = [&](const std::string& more) {
        std::ofstream(folder.file("buffered.json"))
            << R"({"kind": "flat", "ranks": 8, "link": {"latency_us": 0, "gb_s": 1}, "buffered": true)" << more << "}";
        return folder.run(
            "simulate broadcast tree --groups 8 --bytes 4M --json --topology '" + folder.file("buffered.json") + "'");
    };
    const auto tree_broadcast = colls::schedule_of<colls::collective::broadcast>(colls::tree<2>{});
    const sim::topology hub = sim::flat(8, {0, 1e9});
    const auto seconds = [](const program_result& of) { return json::parse(of.text).at(0)["seconds"].get<double>(); };
    for (const auto& [chunk, more] : std::vector<std::pair<double, const char*>>{
             {524288, ""}, {0, R"(, "chunk_kb": 0)"}, {131072, R"(, "chunk_kb": 128)"}})
        CHECK(seconds(buffered(more)) ==
              Approx(sim::simulate(tree_broadcast, 8, hub, 4 << 20, {.buffered = true, .chunk = chunk}).seconds));

    // A graph of the same network: one leaf.
    std::string leaf = R"({"ranks": 8, "gamma_ns": 0.1, "overhead_us": 0.5, "links": [)";
    for (int i = 0; i < 8; ++i)
        leaf +=
            (i > 0 ? ", " : "") + ("{\"from\": " + std::to_string(i)) + R"(, "to": 8, "latency_us": 1, "gb_s": 10})";
    std::ofstream(folder.file("leaf.json")) << leaf << "]}";
    const program_result star =
        folder.run("simulate all_reduce ring --groups 8 --json --topology '" + folder.file("leaf.json") + "'");
    INFO(star.text);
    REQUIRE(star.status == 0);
    CHECK(json::parse(star.text).at(0)["seconds"].get<double>() == Approx(expected(8)));
}

TEST_CASE("colls choose: a file that COLLS_TUNE reads, with the best schedule of each size", "[tool]") {
    const tool_folder folder;
    std::ofstream(folder.file("torus.json"))
        << R"({"kind": "torus", "sides": [16], "link": {"latency_us": 1, "gb_s": 10}, "overhead_us": 1})";
    const std::string on = " --topology '" + folder.file("torus.json") + "' ";
    const program_result r =
        folder.run("choose --collective all_reduce --sizes 64,64K,64M --tune '" + folder.file("a.tune") + "'" + on);
    INFO(r.text);
    REQUIRE(r.status == 0);
    const std::string written = folder.read("a.tune");
    INFO(written);
    colls::detail::tuning_file file;
    colls::detail::read_tuning(folder.file("a.tune").c_str(), file);
    REQUIRE(file.schedules.size() > 1);
    CHECK(file.schedules[0].from == 0);
    CHECK(static_cast<long>(file.schedules.size()) == count_of(r.text, "\nfrom ") + 1);

    // At each size, what the file names takes the least time of all.
    const program_result table = folder.run("choose all_reduce --sizes 64,64K,64M --json" + on);
    REQUIRE(table.status == 0);
    for (const json& row : json::parse(table.text)) {
        std::string name;
        for (const auto& line : file.schedules) {
            CHECK(line.ranks == 16);
            CHECK(std::string(line.collective) == "all_reduce");
            if (static_cast<double>(line.from) <= row["bytes"].get<double>()) name = line.name;
        }
        CHECK(name == row["best"].get<std::string>());
        for (const auto& [family, seconds] : row["seconds"].items())
            CHECK(seconds.get<double>() >= row["seconds"][name].get<double>() * (1 - 1e-9));
    }
    // On a ring of links, the schedule with neighbours alone is the best for many bytes.
    CHECK(std::string(file.schedules[static_cast<int>(file.schedules.size()) - 1].name) == "ring");
}

TEST_CASE("colls synthesise: schedules within 5 % of the bound of the links, proven", "[tool]") {
    const tool_folder folder;
    const auto network = [&](const std::string& name, const std::string& text) {
        std::ofstream(folder.file(name)) << text;
        return " --topology '" + folder.file(name) + "'";
    };
    const std::string torus =
        network("torus.json", R"({"kind": "torus", "sides": [4, 4], "link": {"latency_us": 1, "gb_s": 10}})");
    std::string links;
    for (const auto& [from, to, rate] : {std::array{0, 1, 10}, {1, 2, 25}, {2, 3, 40}, {3, 4, 10}, {4, 5, 25},
             {5, 0, 40}, {0, 3, 17}, {1, 4, 8}, {2, 5, 30}})
        links +=
            (links.empty() ? "" : ", ") + json{{"from", from}, {"to", to}, {"latency_us", 1}, {"gb_s", rate}}.dump();
    const std::string uneven = network("uneven.json", R"({"kind": "graph", "ranks": 6, "links": [)" + links + "]}");
    const std::string hosts = network("hosts.json", R"({"kind": "two_level", "nodes": 2, "per_node": 4,
        "inside": {"latency_us": 0.5, "gb_s": 400}, "rail": {"latency_us": 2, "gb_s": 10}})");
    const std::string mesh = " --topology '" COLLS_TEST_NETWORKS "/dgx1.json'";
    const auto made = [&](const std::string& what, const std::string& on, const std::string& more = "") {
        const program_result r = folder.run("synthesise " + what + on + " --bytes 1G --json" + more);
        INFO(what << on << ": " << r.text);
        REQUIRE(r.status == 0);
        const json j = json::parse(r.text);
        CHECK(j.at("proven") == true);
        const double bound = j.at("bound_seconds"), seconds = j.at("seconds");
        CHECK(seconds >= bound);
        CHECK(seconds <= 1.05 * bound);
        for (const json& tried : j.at("tried")) CHECK(tried.at("seconds").get<double>() >= seconds);
        CHECK(j.at("library").at("seconds").get<double>() >= bound);
        return j;
    };
    constexpr double bytes = 0x1p30;
    // Four links of 10 GB/s into each rank; six of 25; 50, 43, 95, 67, 43 and 95 GB/s, of which the least counts.
    CHECK(made("all_gather", torus).at("bound_seconds").get<double>() == Approx(bytes * 15 / 16 / 40e9));
    CHECK(made("all_reduce", mesh).at("bound_seconds").get<double>() == Approx(2 * bytes * 7 / 8 / 150e9));
    CHECK(made("reduce_scatter", uneven).at("bound_seconds").get<double>() == Approx(bytes * 5 / 6 / 43e9));
    CHECK(made("broadcast", torus).at("library").at("seconds").get<double>() > 2 * bytes / 40e9);
    made("reduce", mesh);
    // Half of the data goes over the four rails between the hosts.
    CHECK(made("all_gather", hosts).at("bound_seconds").get<double>() == Approx(bytes / 2 / 40e9));

    // As a header: a schedule like any other.
    const std::string header = " -o '" + folder.file("own.hpp") + "' --type my::mesh --cut 6";
    CHECK(made("all_reduce", mesh, header).at("rounds") == 14);
    const std::string first = folder.read("own.hpp");
    const std::string prove = "prove --include '" + folder.file("own.hpp") + "' my::mesh -n 8";
    CHECK(folder.run(prove).says("proven for 1 group size from 8 to 8"));
    made("all_reduce", mesh, header);
    CHECK(folder.read("own.hpp") == first);  // the same numbers each time
    made("all_reduce", mesh, header + " --seed 2");
    CHECK(folder.read("own.hpp") != first);
    std::string wrong = first;
    const std::size_t table = wrong.find("        {", wrong.find("transfers[] = {"));
    REQUIRE(table != std::string::npos);
    const std::size_t block = wrong.find(',', table) + 1;  // the first block that rank 0 sends
    wrong.replace(block, wrong.find(',', block) - block, wrong.compare(block, 2, "7,") == 0 ? "8" : "7");
    std::ofstream(folder.file("own.hpp")) << wrong;
    CHECK(folder.run(prove).status == 1);

    CHECK(folder.run("synthesise all_to_all" + torus).says("all_to_all is not synthesised; these are: all_gather,"));
    CHECK(folder.run("synthesise all_gather" + torus + " -n 17").says("the network has 16 ranks, not 17"));
    CHECK(folder.run("synthesise all_gather" + torus + " -n 1").says("for two ranks or more"));
    const std::string kept = folder.read("own.hpp");
    CHECK(folder.run("synthesise all_gather" + torus + " --cut 1 -o '" + folder.file("own.hpp") + "' --type 'a b'")
            .says("'a b' is not the name of a type"));
    CHECK(folder.read("own.hpp") == kept);
}

TEST_CASE("colls place: ranks that are out of order are put in order", "[tool]") {
    const tool_folder folder;
    // Two switches with slow links between them; even ranks are at one, odd ones at the other.
    std::string text = R"({"kind": "graph", "ranks": 8, "links": [{"from": 8, "to": 9, "latency_us": 1, "gb_s": 1})";
    for (int i = 0; i < 8; ++i)
        text += ", {\"from\": " + std::to_string(i) + ", \"to\": " + std::to_string(8 + i % 2) +
                R"(, "latency_us": 1, "gb_s": 10})";
    std::ofstream(folder.file("two.json")) << text << "]}";
    const program_result r =
        folder.run("place ring all_reduce --json --topology '" + folder.file("two.json") + "' --tries 10");
    INFO(r.text);
    REQUIRE(r.status == 0);
    const json found = json::parse(r.text).at(0);
    // All messages of a round cross, four each way; in order one each way does.
    CHECK(found["before"].get<double>() > 3 * found["after"].get<double>());
    int changes = 0;
    for (std::size_t i = 0; i < 8; ++i)
        changes += found["places"][i].get<int>() % 2 != found["places"][(i + 1) % 8].get<int>() % 2;
    CHECK(changes == 2);
    const program_result said = folder.run("place ring all_reduce --topology '" + folder.file("two.json") + "'");
    CHECK(said.says("times as fast"));
    CHECK(said.says("places: "));
}

TEST_CASE("colls: hosts that NCCL's file describes", "[tool]") {
    const tool_folder folder;
    // Two GPUs with four NVLinks each to a switch, and a card of 100 Gb/s, behind one PCIe switch of 16 GT/s x16.
    const auto gpu = [](int dev) {
        const std::string bus = "0000:0" + std::to_string(dev) + ":00.0";
        return "<pci busid=\"" + bus + R"(" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">)" +
               "<gpu dev=\"" + std::to_string(dev) + R"(" sm="80" rank="0" gdr="1">)" +
               R"(<nvlink target="0000:0a:00.0" count="4" tclass="0x068000"/></gpu></pci>)";
    };
    const auto write = [&](const std::string& cards, int hosts) {
        std::ofstream(folder.file("host.xml"))
            << "<!-- a host -->\n<system version=\"1\">\n<cpu numaid=\"0\" arch=\"x86_64\">\n"
            << R"(<pci busid="0000:0f:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">)" << "\n"
            << gpu(1) << gpu(0) << cards << "</pci>\n</cpu>\n</system>\n";
        std::ofstream(folder.file("hosts.json"))
            << R"({"kind": "nccl", "latency_us": 1, "network_latency_us": 3, "hosts": )" << hosts << R"(, "file": ")"
            << folder.file("host.xml") << "\"}";
        return folder.run("simulate all_reduce recursive_doubling --groups 2," + std::to_string(2 * hosts) +
                          " --bytes 8M --json --topology '" + folder.file("hosts.json") + "'");
    };
    const std::string card =
        R"(<pci busid="0000:0e:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="16">)"
        R"(<nic><net name="mlx5_0" dev="0" speed="100000" port="1"/></nic></pci>)";
    const program_result r = write(card, 2);
    INFO(r.text);
    REQUIRE(r.status == 0);
    const json rows = json::parse(r.text);
    const double bytes = 8 << 20, within = 2e-6 + bytes / 80e9;
    CHECK(rows.at(0)["seconds"].get<double>() == Approx(within));
    // Between the hosts two ranks share a card: PCIe up, to the card, to the switch, and back.
    CHECK(rows.at(1)["seconds"].get<double>() == Approx(within + 10e-6 + 2 * bytes / 12.5e9));
    CHECK(write("", 2).says("there is no <net>: the hosts are not joined"));
    CHECK(write(card, 1'000'000).says("1000000 hosts of 2 GPUs are more than 16384 ranks"));
    CHECK(write("<nic>", 1).says("Start-end tags mismatch"));
    CHECK(write("<pci link_width=\"16\"/>", 1).says("a <pci> lacks 'busid'"));
}

TEST_CASE("colls: what real machines have in NCCL's and RCCL's files", "[tool]") {
    const tool_folder folder;
    const double bytes = 8 << 20, latency = 0.5e-6;
    // Two GPUs on one processor or, with two hashes, on one each. The seconds of an exchange between them say the way
    // that it takes.
    const auto seconds = [&](const std::string& pci, const std::string& gpu, const std::string& links0,
                             const std::string& links1, bool two_hosts, const std::string& words = "") {
        const auto one = [&](int dev, const std::string& links) {
            const std::string bus = two_hosts ? "0000:01:00.0" : "000" + std::to_string(dev) + ":01:00.0";
            return "<pci busid=\"" + bus + "\" class=\"0x030200\" " + pci + "><gpu dev=\"" +
                   std::to_string(two_hosts ? 0 : dev) + "\" rank=\"" + std::to_string(dev) + "\" gdr=\"1\" " + gpu +
                   ">" + links + "</gpu></pci>";
        };
        const std::string next = two_hosts ? R"(</cpu><cpu host_hash="0x2" numaid="0">)" : "";
        std::ofstream(folder.file("host.xml"))
            << R"(<system version="2"><cpu host_hash="0x1" numaid="-1" arch="arm64">)" << one(0, links0) << next
            << one(1, links1) << "</cpu></system>";
        const std::string what = "simulate all_reduce recursive_doubling --groups 2 --bytes 8M --topology '" +
                                 folder.file("host.xml") + "' --json";
        const program_result r = folder.run(what);
        INFO(r.text);
        REQUIRE(r.status == 0);
        if (words.empty()) return json::parse(r.text).at(0)["seconds"].get<double>();
        CHECK(r.says(words));
        return 0.0;
    };
    const std::string x16 = R"(link_speed="8.0 GT/s PCIe" link_width="16")", v100 = R"(sm="70")";
    const auto nvlink = [](const std::string& target, int count, const std::string& kind) {
        return "<nvlink target=\"" + target + "\" count=\"" + std::to_string(count) + "\" tclass=\"" + kind + "\"/>";
    };
    const std::string other[] = {"0001:01:00.0", "0000:01:00.0"};

    // A guest's system does not know a link of PCIe.
    for (const std::string unknown :
        {R"(link_speed="" link_width="16")", R"(link_speed="Unknown speed" link_width="0")",
            R"(link_speed="8 GT/s" link_width="0")", "", R"(link_width="16" link_speed="8.0 GT/s PCIe")"})
        CHECK(seconds(unknown, v100, "", "", false) == Approx(2 * latency + bytes / 12e9));
    CHECK(seconds(R"(link_speed="2.5 GT/s PCIe" link_width="8")", v100, "", "", false) ==
          Approx(2 * latency + bytes / 1.5e9));
    CHECK(seconds(R"(link_speed="64.0 GT/s PCIe" link_width="16")", v100, "", "", false) ==
          Approx(2 * latency + bytes / 96e9));
    // NVLinks: between the GPUs, to GPUs that the job does not have, to the processor, to switches.
    CHECK(seconds(x16, v100, nvlink(other[0], 2, "0x030200"), nvlink(other[1], 2, "0x030200"), false) ==
          Approx(latency + bytes / 40e9));
    const std::string gone = nvlink("0000:8a:00.0", 4, "0x030200"), processor = nvlink("0006:00:00.0", 3, "0x068001");
    seconds(x16, v100, gone, gone, false, "2 links of GPUs lead to devices that the file does not describe");
    CHECK(seconds(x16, v100, processor, processor, false) == Approx(2 * latency + bytes / 60e9));
    const std::string to_switch = nvlink("fffffff:ffff:ff", 18, "0x068000");
    CHECK(seconds(x16, R"(sm="100")", to_switch, to_switch, false) == Approx(2 * latency + bytes / 721.8e9));
    CHECK(seconds(x16, R"(sm="100")", to_switch, to_switch, true) == Approx(2 * latency + bytes / 721.8e9));
    // C2C, whose bandwidth is in MB/s, beside PCIe of one GPU in a low-power state; and xGMI, named by RCCL in two
    // ways.
    const std::string c2c = R"(<c2c bw="43125" count="8"/>)";
    CHECK(seconds(R"(link_speed="2.5 GT/s PCIe" link_width="16")", R"(sm="90")", c2c, c2c, false) ==
          Approx(2 * latency + bytes / 345e9));
    const auto xgmi = [](const std::string& target) {
        return "<xgmi target=\"" + target + R"(" count="1" tclass="0x120000"/>)";
    };
    for (const auto& [architecture, bandwidth] :
        {std::pair(R"(sm="94" gcn="gfx942")", 48e9), std::pair(R"(sm="94")", 48e9),
            std::pair(R"(gcn="gfx90a" sm="90")", 36e9), std::pair(R"(gcn="906" sm="90")", 24e9)})
        CHECK(seconds(x16, architecture, xgmi(other[0]), xgmi(other[1]), false) == Approx(latency + bytes / bandwidth));
    // Two PCIe switches with slow ways to the processor, which are ports of one switch or are not.
    const auto behind_switches = [&](const std::string& joined) {
        const auto one = [&](int dev) {
            const std::string number = std::to_string(dev);
            return "<pci busid=\"000" + number +
                   R"(:0f:00.0" class="0x060400" link_speed="2.5 GT/s PCIe" link_width="1">)" + "<pci busid=\"000" +
                   number + ":01:00.0\" class=\"0x030200\" " + x16 + "><gpu dev=\"" + number +
                   R"(" sm="70" rank="0" gdr="1"/></pci>)" + (joined.empty() || dev == 1 ? "" : joined) + "</pci>";
        };
        std::ofstream(folder.file("host.xml"))
            << R"(<system version="2"><cpu host_hash="0x1" numaid="0" arch="x86_64">)" << one(0) << one(1)
            << "</cpu></system>";
        const program_result r =
            folder.run("simulate all_reduce recursive_doubling --groups 2 --bytes 8M --topology '" +
                       folder.file("host.xml") + "' --json");
        INFO(r.text);
        REQUIRE(r.status == 0);
        return json::parse(r.text).at(0)["seconds"].get<double>();
    };
    CHECK(behind_switches("") > bytes / 1e9);
    CHECK(behind_switches(R"(<pcilink target="0001:0f:00.0"/>)") < bytes / 11e9);
    // What is not known is named.
    seconds(x16, v100, "<photon/>", "", false, "<photon> is not known, and is left out");
    seconds(
        x16, R"(sm="70" colour="red")", "", "", false, "the attribute colour of <gpu> is not known, and is left out");
}

TEST_CASE("colls: networks that are refused", "[tool]") {
    const tool_folder folder;
    for (const char* const command : {"choose", "synthesise"}) {
        const program_result r = folder.run(std::string(command) + " --topology torus -n 4");
        CHECK((r.status == 2 && r.says("name a collective, such as all_reduce")));
    }
    const auto refused = [&](const std::string& network, const std::string& words, const std::string& more = "") {
        std::ofstream(folder.file("n.json")) << network;
        const program_result r = folder.run("simulate all_reduce --topology '" + folder.file("n.json") + "' " + more);
        INFO(network << ": " << r.text);
        CHECK(r.status == 2);
        CHECK(r.says(words));
    };
    refused("{", "parse error");
    refused("[]", "this is not an object");
    refused(R"({"kind": "cube"})", "there is no kind 'cube'; there are: flat, two_level, fat_tree, torus, dragonfly");
    refused(R"({"kind": "flat", "ranks": 4})", "the network lacks 'link'");
    refused(R"({"kind": "flat", "ranks": 4, "link": {"latency_us": 1, "gbps": 1}})", "link has 'gbps'; it may have");
    refused(R"({"kind": "flat", "ranks": 4, "link": {"latency_us": "1", "gb_s": 1}})", "'latency_us' is no number");
    refused(R"({"kind": "flat", "ranks": 4, "link": 5})", "link is not an object");
    refused(R"({"kind": "flat", "ranks": 4, "link": {"latency_us": 1}})", "link lacks 'gb_s'");
    refused(R"({"kind": "flat", "ranks": 4, "link": {"latency_us": 1, "gb_s": 1}, "gamma_ns": -1})", "is below 0");
    refused(R"({"kind": "flat", "ranks": 4, "link": {"latency_us": 1, "gb_s": 1}, "buffered": 1})",
        "the network: 'buffered' is not true or false");
    refused(R"({"kind": "flat", "ranks": 4, "link": {"latency_us": 1, "gb_s": 1}, "chunk_kb": 64})",
        "'chunk_kb' needs 'buffered': true");
    refused(R"({"ranks": 2, "links": 7})", "the network: 'links' is no list");
    refused(R"({"ranks": 2, "links": [{"from": 0, "to": 1, "latency_us": 1, "gb_s": 1, "both_ways": "no"}]})",
        "a link: 'both_ways' is not true or false");
    const std::string level = R"([{"down": 4, "up": 1, "latency_us": 1, "gb_s": 1}])";
    refused(R"({"kind": "fat_tree", "levels": []})", "a fat tree has one level or more");
    refused(R"({"kind": "fat_tree", "levels": )" + level + R"(, "spread": 3})", "the network: 'spread' is no text");
    refused(R"({"kind": "fat_tree", "levels": )" + level + R"(, "spread": "even"})",
        "'spread' is by_destination or hashed, not 'even'");
    refused(R"({"kind": "torus", "sides": [0, 4], "link": {"latency_us": 1, "gb_s": 1}})", "is not positive");
    refused(
        R"({"kind": "torus", "sides": [65536, 65536], "link": {"latency_us": 1, "gb_s": 1}})", "there are more than");
    refused(R"({"kind": "nccl", "file": "/nowhere.xml", "hosts": 1, "latency_us": 1, "network_latency_us": 1})",
        "'file': '/nowhere.xml' cannot be opened");
    refused(R"({"kind": "flat", "ranks": 4.5, "link": {"latency_us": 1, "gb_s": 1}})", "'ranks' is no integer");
    refused(R"({"kind": "flat", "ranks": 4, "link": {"latency_us": 1, "gb_s": 0}})", "it is above 0");
    refused(R"({"kind": "flat", "ranks": 4, "link": {"latency_us": -1, "gb_s": 1}})", "it is not negative");
    refused(R"({"ranks": 2, "links": [{"from": 0, "to": 2147483647, "latency_us": 1, "gb_s": 1}]})",
        "a cable joins two different nodes, not 0 and 2147483647");
    for (const char* const node : {"2147483646", "100000", "8"})  // 4 nodes are named at most
        refused(
            R"({"ranks": 3, "links": [{"from": 0, "to": )" + std::string(node) + R"(, "latency_us": 1, "gb_s": 1}]})",
            "number nodes without gaps");
    refused(R"({"ranks": 99999999999, "links": []})", "'ranks' is 99999999999: it must be from 0 to 2147483647");
    refused(R"({"kind": "torus", "sides": [], "link": {"latency_us": 1, "gb_s": 1}})", "a torus has one side or more");
    refused(R"({"kind": "flat", "ranks": 1, "link": {"latency_us": 1, "gb_s": 1}})", "joins two ranks or more");
    refused(R"({"ranks": 3, "links": [{"from": 0, "to": 1, "latency_us": 1, "gb_s": 1}]})",
        "rank 2 has no route to rank 0");
    const std::string good = R"({"kind": "flat", "ranks": 4, "link": {"latency_us": 1, "gb_s": 1}})";
    refused(good, "the network has 4 ranks, not 8", "--groups 8");
    refused(good, "--groups takes numbers", "--groups 2..4");
    refused(good, "--stragglers takes ONE_IN:MICROSECONDS", "--stragglers many");
    refused(good, "--stragglers takes ONE_IN:MICROSECONDS", "--stragglers 2:nan");
    refused(good, "is not a time of 0 or more", "--noise -5");
    CHECK(folder.run("simulate all_reduce --topology /nowhere.json").says("/nowhere.json cannot be opened"));
    CHECK(
        folder.run("choose gather --tune x --topology '" + folder.file("n.json") + "'").says("always goes by direct"));
    CHECK(folder.run("choose all_reduce --tune /nowhere/x --topology '" + folder.file("n.json") + "'")
            .says("cannot write /nowhere/x"));
}

TEST_CASE(
    "colls: a user's type is simulated, placed and compared; family and collective come in either order", "[tool]") {
    const tool_folder folder;
    std::ofstream(folder.file("own.hpp"))
        << "#include <colls/schedules/ring.hpp>\nnamespace my {\nusing schedule = colls::ring;\n}\n";
    std::ofstream(folder.file("n.json"))
        << R"({"kind": "torus", "sides": [2, 3], "link": {"latency_us": 1, "gb_s": 10}})";
    const std::string on = " --json --topology '" + folder.file("n.json") + "'",
                      own = " --include '" + folder.file("own.hpp") + "' my::schedule ";
    const auto answer = [&](const std::string& arguments) {
        const program_result r = folder.run(arguments);
        INFO(arguments << ": " << r.text);
        REQUIRE(r.status == 0);
        return json::parse(r.text.substr(r.text.find_first_of("[{")));  // behind a line on what is compiled
    };
    const json ring = answer("simulate ring all_reduce --groups 6" + on);
    CHECK(answer("simulate all_reduce ring --groups 6" + on) == ring);
    json of_type = answer("simulate" + own + "all_reduce --groups 6" + on);
    CHECK(of_type.at(0).at("family") == "my::schedule");
    CHECK(of_type.at(0).at("seconds") == ring.at(0).at("seconds"));
    CHECK(answer("cost all_gather ring --json") == answer("cost ring all_gather --json"));
    CHECK(answer("place" + own + "all_gather --tries 1" + on).at(0).at("family") == "my::schedule");
    const json chosen = answer("choose" + own + "all_gather --sizes 1M" + on);
    CHECK(chosen.at(0).at("seconds").at("my::schedule") == chosen.at(0).at("seconds").at("ring"));
    CHECK(answer("synthesise" + own + "all_gather --cut 1 --bytes 1M" + on).at("proven") == true);
    for (const char* const wrong : {"choose ring all_gather", "choose", "simulate ring", "synthesise --cut 1"}) {
        INFO(wrong);
        CHECK(folder.run(wrong + on).status == 2);
    }
}

TEST_CASE("colls: spoiled networks are simulated, or refused in one line", "[tool]") {
    const tool_folder folder;
    const json link{{"latency_us", 1}, {"gb_s", 10}};
    const json level{{"down", 2}, {"up", 2}, {"latency_us", 1}, {"gb_s", 10}};
    const json cable{{"from", 0}, {"to", 1}, {"latency_us", 1}, {"gb_s", 10}, {"both_ways", true}};
    int count = 0;
    for (const json& good : {json{{"kind", "flat"}, {"ranks", 4}, {"link", link}, {"buffered", true}, {"chunk_kb", 64}},
             json{{"kind", "two_level"}, {"nodes", 2}, {"per_node", 2}, {"inside", link}, {"rail", link}},
             json{{"kind", "fat_tree"}, {"levels", {level, level}}, {"spread", "hashed"}},
             json{{"kind", "torus"}, {"sides", {2, 2}}, {"link", link}, {"buffered", true}},
             json{{"kind", "dragonfly"}, {"groups", 3}, {"routers", 2}, {"ranks", 1}, {"global", 1},
                 {"rank_link", link}, {"local_link", link}, {"global_link", link}},
             json{{"ranks", 2}, {"links", {cable}}, {"gamma_ns", 0.1}, {"overhead_us", 1}}})
        support::spoiled(good, [&](const json& network) {
            std::ofstream(folder.file("n.json")) << network;
            const program_result r = folder.run(
                "simulate all_reduce ring --bytes 1K --groups 2 --topology '" + folder.file("n.json") + "' 2>&1");
            INFO(network << ": " << r.text);
            CHECK((r.status == 0 || r.status == 2));
            CHECK_FALSE(r.says("json.exception"));
            if (r.status == 2) CHECK(count_of(r.text, "\n") == 1);
            ++count;
        });
    CHECK(count > 300);
}

TEST_CASE("colls: what is refused, and how it says so", "[tool]") {
    const tool_folder folder;
    const auto refused = [&](const std::string& arguments, const std::string& words) {
        const program_result r = folder.run(arguments);
        INFO(arguments << ": " << r.text);
        CHECK(r.status == 2);
        CHECK(r.says(words));
    };
    refused("prove xyz", "there is no family 'xyz'; there are: direct, ring, ");
    refused("cost ring all_to_all", "ring has no schedule for all_to_all; it has: ");
    refused("cost ring everything", "there is no collective 'everything'; there are: ");
    refused("prove ring --ranks 4..2", "'4..2' is not a range of group sizes");
    refused("cost ring --ranks 2..4", "give one group size");
    refused("cost ring --bytes 5X", "'5X' is not a size");
    for (const char* const json : {"", " --json"})
        refused(std::string("cost halving_doubling -n 6") + json, "halving_doubling does not support 6 ranks");
    CHECK(folder.run("list everything").text.find("On 8 ranks") == std::string::npos);  // no table before the error
    refused("cost ring --hosts 2,3", "these are 5 ranks, and the group has 8");
    for (const char* const text : {"2,,6", "2,x", "0", "2,-1,7", "8,", "99999999999", " 8"})
        refused(std::string("cost ring --hosts '") + text + "'", "write how many ranks each host has");
    refused("draw ring --hosts 2,6 --page x.html", "give --hosts one number");
    refused("draw ring --svg x.svg", "name one collective");
    refused("draw ring all_gather", "name a file to draw to");
    refused("draw ring all_gather -n 33 --svg x.svg", "a picture has at most 32 ranks");
    refused("draw halving_doubling all_reduce -n 6 --svg x.svg", "does not support 6 ranks");
    refused("draw ring all_gather -n 4 --svg /nowhere/x.svg", "cannot write /nowhere/x.svg");
    for (const char* const command : {"cost ring", "list", "prove ring --local", "compare all_reduce"})
        for (const char* const n : {"16777217", "2147483647"})
            refused(std::string(command) + " --ranks " + n,
                "a group has at most 16777216 ranks here, not " + std::string(n));
    folder.write("flat.json", R"({"kind": "flat", "ranks": 8, "link": {"latency_us": 1, "gb_s": 25}})");
    for (const char* const n : {"0", "-5"})
        refused("choose all_reduce --sizes 8 --topology '" + folder.file("flat.json") + "' -n " + n, "--ranks");
    for (const char* const what : {"halving_doubling all_reduce -n 6", "ring inclusive_scan"})
        refused(std::string("place ") + what + " --topology '" + folder.file("flat.json") + "'", "nothing to place on");
    refused("compare all_reduce -n 1 --svg '" + folder.file("x.svg") + "'", "there is nothing to draw");
    refused("compare all_reduce --sizes 0 --svg '" + folder.file("x.svg") + "'", "there is nothing to draw");
    refused("prove --include nowhere.hpp my::s", "there is no header nowhere.hpp");
    refused("prove --include /tmp my::s", "this is not a file: /tmp");
    refused("cost ring all_reduce --alpha -5", "-5 is not a time of 0 or more");
    refused("compare all_reduce --beta nan", "nan is not a time of 0 or more");
    refused("cost ring --frob", "--frob");
    refused("cost", "family");
    std::ofstream(folder.file("broken.hpp")) << "struct s {";
    refused("prove --include '" + folder.file("broken.hpp") + "' s", "does not compile:");
    std::ofstream(folder.file("empty.hpp")) << "struct s {};";
    refused("prove --include '" + folder.file("empty.hpp") + "' s", "s is neither a schedule nor a family");
    refused("import /nowhere/plan.xml", "cannot read /nowhere/plan.xml");
    refused("export ring all_reduce --format svg",
        "there is no format 'svg'; there are: msccl, mscclpp, dot, trace, chakra");
    refused("export ring all_reduce --format chakra", "a file for each rank: give the start of their names, -o PREFIX");
    CHECK(folder.run("").status != 0);
    CHECK(folder.run("--help").says("colls prove --include my.hpp my::schedule"));
    CHECK(folder.run("--help").says("4: prove has proven nothing"));
}

TEST_CASE("colls compare: sizes of 0, and in any order", "[tool]") {
    const tool_folder folder;
    const auto compared = [&](const std::string& sizes) {
        return support::execute("timeout 100 '" COLLS_TEST_TOOL "' compare all_reduce --sizes " + sizes + " --svg '" +
                                folder.file("x.svg") + "'");
    };
    const program_result r = compared("0,1M");
    INFO(r.text);
    REQUIRE(r.status == 0);
    const std::size_t none = r.text.find("  0 B  one_shot "), most = r.text.find("  1 MB  direct ");
    REQUIRE(none != std::string::npos);
    CHECK(none < most);
    CHECK(count_of(r.text, " on direct, not one_shot\n") == 1);
    CHECK(compared("1M,0").text == r.text);
    CHECK(folder.read("x.svg").find("nan") == std::string::npos);
    // One rank takes no time.
    const program_result alone = folder.run("compare all_reduce -n 1 --sizes 8");
    CHECK(alone.status == 0);
    CHECK(alone.says(" 1.00 times as long"));
}

TEST_CASE("colls: large groups are priced at once, and listed without what would take too long", "[tool]") {
    const tool_folder folder;
    const program_result r =
        support::execute("timeout 100 '" COLLS_TEST_TOOL "' cost bruck all_to_all -n 100000 --json");
    INFO(r.text);
    REQUIRE(r.status == 0);
    CHECK(json::parse(r.text).at(0).at("messages") == 1'700'000);
    const program_result listed = folder.run("list all_to_all -n 20000 --json");
    INFO(listed.text);
    REQUIRE(listed.status == 0);
    for (const json& row : json::parse(listed.text)) {
        CHECK(row.at("rounds").is_number());
        CHECK(row.at("scratch").is_null());
        CHECK(row.at("properties").is_null());
    }
    CHECK(folder.run("list all_to_all -n 20000").says(" -  not looked for in so large a group\n"));
    // What would take minutes, or the machine's memory, is refused before it begins.
    for (const auto& [command, words] : {std::pair{"export ring all_reduce -n 20000", "on 20000 ranks has 8e+08 steps"},
             {"export bruck all_to_all -n 4000", " blocks to send, and 2e+06 are taken at most"},
             {"prove bruck all_to_all -n 50000", "on 50000 ranks has 2.5e+09 slots"}}) {
        const program_result refused = folder.run(command);
        INFO(command << ": " << refused.text);
        CHECK(refused.status == 2);
        CHECK(refused.says(words));
    }
}

TEST_CASE("colls: output that cannot be written is an error, however short", "[tool]") {
    for (const char* const command : {"cost ring all_reduce", "list --json", "--version", "--help",
             "export tree broadcast -n 2 --format dot", "import '" COLLS_TEST_PLANS "/ring_all_reduce_4.xml'"}) {
        const program_result r = support::execute(std::string("( '" COLLS_TEST_TOOL "' ") + command + " > /dev/full )");
        INFO(command << ": " << r.text);
        CHECK(r.status == 2);
        CHECK(r.text.starts_with("colls: cannot write to "));
        CHECK(count_of(r.text, "\n") == 1);
    }
}

TEST_CASE("colls simulate: blocks of too many chunks are left out, not played as none", "[tool]") {
    const tool_folder folder;
    folder.write("n.json", R"({"kind": "flat", "ranks": 8, "link": {"latency_us": 1, "gb_s": 25}, "buffered": true})");
    const std::string on = "simulate ring all_reduce --groups 8 --json --topology '" + folder.file("n.json") + "'";
    CHECK(json::parse(folder.run(on + " --bytes 1G").text).size() == 1);
    for (const char* const bytes : {"1024T", "1048576T"})
        CHECK(json::parse(support::execute("timeout 100 '" COLLS_TEST_TOOL "' " + on + " --bytes " + bytes).text)
                .empty());
}

TEST_CASE("colls: names of files with any characters make no broken output", "[tool]") {
    const tool_folder folder;
    const std::string plan = support::execute("cat '" COLLS_TEST_PLANS "/ring_all_reduce_4.xml'").text;
    for (const std::string name : {"caf\xe9.xml", "a\"b\\.xml"}) {
        folder.write(name, plan);
        const std::string file = "'" + folder.file(name) + "'";
        INFO(file);
        for (const std::string& command : {"cost " + file + " --json", "import " + file + " --json",
                 "export " + file + " --format trace", "export " + file + " --format mscclpp"}) {
            const program_result r = folder.run(command);
            INFO(command << ": " << r.text);
            REQUIRE(r.status == 0);
            CHECK(json::accept(r.text));
        }
        CHECK(folder.run("draw " + file + " --page '" + folder.file("x.html") + "'").status == 0);
    }
    CHECK(folder.run("export '" + folder.file("a\"b\\.xml") + "' --format dot").says("a\\\"b\\\\.xml all_reduce on"));
    const std::string network = folder.file("a\nb.json");
    std::ofstream(network) << R"({"kind": "flat", "ranks": 4, "link": {"latency_us": 1, "gb_s": 25}})";
    REQUIRE(
        folder.run("choose all_reduce --sizes 8 --tune '" + folder.file("x.tune") + "' --topology '" + network + "'")
            .status == 0);
    colls::detail::tuning_file tuning;
    CHECK_NOTHROW(colls::detail::read_tuning(folder.file("x.tune").c_str(), tuning));
    REQUIRE(folder
                .run("synthesise all_gather --cut 1 --tries 1 -o '" + folder.file("x.hpp") + "' --topology '" +
                     network + "'")
                .status == 0);
    std::istringstream header(folder.read("x.hpp"));
    std::string line;
    std::getline(header, line);
    CHECK(line.ends_with("3 rounds, 4 blocks."));
}

TEST_CASE("colls: an unknown word is refused in one line, with the known word that is most like it", "[tool]") {
    const tool_folder folder;
    const auto answer = [&](const std::string& arguments) {
        const program_result r = folder.run(arguments);
        INFO(arguments << ": " << r.text);
        CHECK(r.status == 2);
        CHECK(r.text.starts_with("colls: "));
        CHECK(count_of(r.text, "\n") == 1);
        return r.text;
    };
    const std::string commands =
        "list, prove, cost, compare, draw, simulate, choose, place, synthesise, trace, status, run, perf, "
        "export, import";
    CHECK(answer("prov ring") ==
          "colls: there is no command 'prov'; did you mean 'prove'? There are: " + commands + " (colls --help)\n");
    CHECK(answer("--verson") == "colls: there is no option '--verson'; did you mean '--version'? (colls --help)\n");
    CHECK(answer("cost ring --rank 8") ==
          "colls: cost: there is no option '--rank'; did you mean '--ranks'? (colls cost --help)\n");
    CHECK(answer("cost --byte=8") ==
          "colls: cost: there is no option '--byte=8'; did you mean '--bytes'? (colls cost --help)\n");
    CHECK(answer("cost ring --frobnicate") == "colls: cost: there is no option '--frobnicate' (colls cost --help)\n");
    CHECK(answer("cost ring all_reduce more") == "colls: cost: 'more' is one word too many (colls cost --help)\n");
    CHECK(answer("cost") == "colls: cost: family is required (colls cost --help)\n");
    CHECK(answer("") == "colls: name a command: " + commands + " (colls --help)\n");
    CHECK(answer("trace sumary x") ==
          "colls: trace: there is no command 'sumary'; did you mean 'summary'? There are: "
          "summary, merge (colls trace --help)\n");
    const std::string range = answer("draw ring --largest 99 --page x");  // the rest differs from CLI11 to CLI11
    CHECK(range.starts_with("colls: draw: --largest: Value 99 not in range "));
    CHECK(range.ends_with(" (colls draw --help)\n"));
    for (const auto& [arguments, meant] :
        std::vector<std::array<const char*, 2>>{{"prove rings", "ring"}, {"prove pipelined", "pipelined_broadcast"},
            {"cost ring al_reduce", "all_reduce"}, {"export ring all_reduce --format mscl", "msccl"}}) {
        const std::string said = answer(arguments);
        INFO(said);
        CHECK(said.find("; did you mean '" + std::string(meant) + "'? There are: ") != std::string::npos);
    }

    const std::string version = std::to_string(COLLS_VERSION_MAJOR) + '.' + std::to_string(COLLS_VERSION_MINOR) + '.' +
                                std::to_string(COLLS_VERSION_PATCH) + '\n';
    const program_result r = folder.run("--version");
    CHECK(r.status == 0);
    CHECK(r.text == "colls " + version);
    CHECK(folder.run("perf --version").text == "colls_perf " + version);
}

TEST_CASE("colls: sizes up to 2^60 bytes are computed right, larger ones and no sizes are refused", "[tool]") {
    const tool_folder folder;
    const auto sent = [&](const std::string& size) {
        const program_result r = folder.run("cost ring all_gather -n 2 --json --bytes " + size);
        INFO(size << ": " << r.text);
        REQUIRE(r.status == 0);
        return json::parse(r.text).at(0).at("bytes_sent").get<double>();
    };
    CHECK(sent("1152921504606846976") == 0x1p59);
    CHECK(sent("1048576T") == 0x1p59);
    CHECK(sent("2.5M") == 1310720);
    CHECK(sent("4kib") == 2048);
    CHECK(sent("1e6") == 500000);
    CHECK(folder.run("cost ring all_gather -n 2 --bytes 1048576T").says("512 PB"));
    const auto refused = [&](const std::string& size, const std::string& words) {
        for (const char* const command : {"cost ring all_gather --bytes ", "compare all_reduce --sizes 8,",
                 "export ring all_gather --format trace --bytes "}) {
            const program_result r = folder.run(command + size);
            INFO(command << size << ": " << r.text);
            CHECK(r.status == 2);
            CHECK(r.text.starts_with("colls: '" + size + "' is " + words));
        }
    };
    for (const char* const size : {"100000000000000000000", "1152921504606847233", "1048577T", "1e20", "1e300T", "inf"})
        refused(size, "more than the largest size, 2^60 bytes");
    for (const char* const size : {"nan", "-1", "1e400", "5X", "5KM", "K"})
        refused(size, "not a size; sizes are bytes, or 4K, 2.5M, 1G, 1T");
    // Traces have whole numbers of 64 bits.
    const program_result trace = folder.run("export ring all_gather -n 2 --format trace --bytes 1048576T");
    CHECK(json::parse(trace.text).at("traces").at(0).at("nodes").at(0).at("attr").at("comm_size") == 1LL << 59);
}

TEST_CASE("colls: XML with UTF-8's byte order mark is read, and UTF-16 is refused in words", "[tool]") {
    const tool_folder folder;
    const std::string plan = support::execute("cat '" COLLS_TEST_PLANS "/ring_all_reduce_4.xml'").text,
                      host =
                          R"(<system version="2"><cpu host_hash="0x1" numaid="-1" arch="arm64">)"
                          R"(<pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" rank="0" sm="70" gdr="1"/></pci>)"
                          R"(<pci busid="0001:01:00.0" class="0x030200"><gpu dev="1" rank="1" sm="70" gdr="1"/></pci>)"
                          "</cpu></system>";
    const auto utf_16 = [](const std::string& text, bool little) {
        std::string out = little ? "\xFF\xFE" : "\xFE\xFF";
        for (const char c : text) out += little ? std::string{c, '\0'} : std::string{'\0', c};
        return out;
    };
    for (const auto& [text, command] : {std::pair(plan, std::string("import '") + folder.file("a.xml") + "'"),
             {host, "simulate all_reduce --topology '" + folder.file("a.xml") + "'"}}) {
        folder.write("a.xml", text);
        const program_result plain = folder.run(command);
        INFO(command << ": " << plain.text);
        REQUIRE(plain.status == 0);
        folder.write("a.xml", "\xEF\xBB\xBF" + text);
        const program_result marked = folder.run(command);
        CHECK(marked.status == 0);
        CHECK(marked.text == plain.text);
        for (const bool little : {true, false}) {
            folder.write("a.xml", utf_16(text, little));
            const program_result r = folder.run(command);
            INFO(r.text);
            CHECK(r.status == 2);
            CHECK(r.text == "colls: " + folder.file("a.xml") +
                                ": line 1: this is UTF-16, and UTF-8 is expected: iconv -f "
                                "UTF-16 -t UTF-8 converts it\n");
        }
    }
}
