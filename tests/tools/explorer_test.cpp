// The page of `colls draw --page`: its data are the library's schedules, what is refuted has its verdict, and what
// cannot be drawn is refused. tests/tools/explorer_page_test.cpp opens such pages in a browser.
#include "explorer_page.hpp"

#include <colls/detail/choose/explanation.hpp>
#include <colls/views.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using nlohmann::json;
using support::data_of;
using support::numbers_of;

/// A message as the page writes it, apart from how it writes lists of blocks.
struct message {
    int from, to;
    bool reduces;
    std::vector<int> sent, stored;
    friend bool operator==(const message&, const message&) = default;
};

std::vector<message> messages_of(const std::string& round) {
    std::vector<message> all;
    std::istringstream parts(round);
    for (std::string part; std::getline(parts, part, ';');) {
        const std::size_t kind = part.find_first_of("+=!?"), at = part.find('@');
        message m{std::stoi(part), std::stoi(part.substr(part.find('>') + 1)), part[kind] == '+', {}, {}};
        m.sent = numbers_of(part.substr(kind + 1, at == std::string::npos ? at : at - kind - 1));
        m.stored = at == std::string::npos ? m.sent : numbers_of(part.substr(at + 1));
        all.push_back(m);
    }
    return all;
}
std::vector<message> messages_of(const colls::any_schedule& s, int n, int round) {
    std::vector<message> all;
    const bool barrier = s.implements == colls::collective::barrier;
    for (const colls::views::transfer& t : colls::views::transfers(s, n, round, round + 1)) {
        message m{t.from, t.to, barrier || t.action == colls::action::reduce, {}, {}};
        if (barrier) m.sent = m.stored = {0};
        for (int j = 0; !barrier && j < t.blocks.size(); ++j)
            m.sent.push_back(t.blocks[j]), m.stored.push_back(t.stored[j]);
        all.push_back(m);
    }
    return all;
}

const json& of_rank(const json& value, int rank) {
    return value.is_array() ? value[static_cast<std::size_t>(rank)] : value;
}

/// Whether a rank has data in a slot at the start, by what the collective is.
bool given(const colls::any_schedule& s, int n, int rank, int slot) {
    const colls::collective_traits& t = colls::traits_of(s.implements);
    if (slot >= s.blocks(n)) return false;
    return t.in_at_root ? rank == s.root(n) : t.in != colls::content::own_block || s.home(n, slot) == rank;
}
bool asked(const colls::any_schedule& s, int n, int rank, int slot) {
    const colls::collective_traits& t = colls::traits_of(s.implements);
    if (slot >= s.blocks(n) || (s.implements == colls::collective::exclusive_scan && rank == 0)) return false;
    return t.out_at_root ? rank == s.root(n) : t.out != colls::content::own_block || s.home(n, slot) == rank;
}

}  // namespace

TEST_CASE("colls draw --page: every family, collective and group size has the library's messages", "[explorer]") {
    const support::tool_folder folder;
    std::map<std::string, std::vector<colls::any_schedule>> families;
    for (int c = 0; c < colls::collective_count; ++c) {
        const auto list = colls::detail::all_candidates_of(static_cast<colls::collective>(c));
        for (int i = 0; i < list.count; ++i)
            families[std::string(list.first[i].name)].push_back(list.first[i].schedule);
    }
    CHECK(families.size() == 16);
    for (const auto& [family, schedules] : families) {
        INFO(family);
        const support::program_result r = folder.run("draw '" + family + "' --page '" + folder.file("a.html") + "'");
        INFO(r.text);
        REQUIRE(r.status == 0);
        CHECK(r.text.empty());
        const std::string page = folder.read("a.html");
        CHECK(page.size() < 1'000'000);
        for (const char* const loads : {"src=", "href=", "@import", "url(h", "fetch("})
            CHECK(page.find(loads) == std::string::npos);
        const json data = data_of(page);
        CHECK(data.at("family") == family);
        CHECK(data.at("collectives").size() == schedules.size());
        for (const colls::any_schedule& s : schedules) {
            const json* of = nullptr;
            for (const json& c : data.at("collectives"))
                if (c.at("name") == colls::name_of(s.implements)) of = &c;
            REQUIRE(of);
            INFO(colls::name_of(s.implements));
            int differ = 0, sizes = 0;
            for (int n = 1; n <= 16; ++n) {
                if (!s.supports(n)) continue;
                ++sizes;
                const json& size = of->at("sizes").at(std::to_string(n));
                CHECK_FALSE(size.contains("verdict"));
                differ += size.at("rounds").size() != static_cast<std::size_t>(s.rounds(n));
                for (int k = 0; k < s.rounds(n); ++k)
                    differ += messages_of(size.at("rounds").at(static_cast<std::size_t>(k)).get<std::string>()) !=
                              messages_of(s, n, k);
                if (s.implements == colls::collective::barrier) continue;
                for (int rank = 0; rank < n; ++rank) {
                    const std::vector<int> start = numbers_of(of_rank(size.at("start"), rank)),
                                           want = numbers_of(of_rank(size.at("want"), rank));
                    for (int slot = 0; slot < s.blocks(n) + s.scratch(n); ++slot) {
                        differ += (start.at(static_cast<std::size_t>(slot)) >= 0) != given(s, n, rank, slot);
                        differ += (want.at(static_cast<std::size_t>(slot)) >= 0) != asked(s, n, rank, slot);
                    }
                }
            }
            CHECK(differ == 0);
            CHECK(of->at("sizes").size() == static_cast<std::size_t>(sizes));
        }
    }
}

TEST_CASE("colls draw --page: an all_to_all's blocks are those of pairs of ranks", "[explorer]") {
    const support::tool_folder folder;
    REQUIRE(folder.run("draw bruck all_to_all -n 5 --html '" + folder.file("a.html") + "'").status == 0);
    const json data = data_of(folder.read("a.html"));
    CHECK(data.at("ranks") == 5);
    const json& size = data.at("collectives").at(0).at("sizes").at("5");
    for (int r = 0; r < 5; ++r) {
        std::vector<int> start = numbers_of(size.at("start").at(static_cast<std::size_t>(r))),
                         want = numbers_of(size.at("want").at(static_cast<std::size_t>(r)));
        std::ranges::sort(start);
        std::ranges::sort(want);
        for (int other = 0; other < 5; ++other) {
            CHECK(start.at(static_cast<std::size_t>(other)) == 5 * r + other);  // from r to the other
            CHECK(want.at(static_cast<std::size_t>(other)) == 5 * other + r);
        }
    }
}

TEST_CASE("colls draw --page: what is refuted has its verdict, and ends where it goes wrong", "[explorer]") {
    const support::tool_folder folder;
    folder.write("wrong.hpp", support::wrong_schedules());
    const auto drawn = [&](const std::string& type, const std::string& words, const std::string& more = "") {
        const support::program_result r = folder.run("draw --include '" + folder.file("wrong.hpp") + "' '" + type +
                                                     "' --page '" + folder.file("a.html") + "' " + more);
        INFO(type << ": " << r.text);
        CHECK(r.status == 1);
        CHECK(r.says(words));
        return data_of(folder.read("a.html"));
    };
    json data = drawn("wrong::early", "wrong::early all_gather refuted on 2 ranks: round 0: ");
    CHECK(data.at("ranks") == 2);  // the first that is wrong
    const json& early = data.at("collectives").at(0).at("sizes");
    CHECK(early.size() == 16);
    CHECK_FALSE(early.at("1").contains("verdict"));
    const json& verdict = early.at("6").at("verdict");
    CHECK(verdict.at("law") == "in_range");
    CHECK(verdict.at("round") == 0);
    CHECK(verdict.at("rank") == 0);
    CHECK(verdict.at("block") == 5);  // rank 0 sends the block of the rank before it
    CHECK(verdict.at("peer") == 1);
    CHECK(verdict.at("sends") == true);
    CHECK(verdict.at("text").get<std::string>().find("(law: in_range)") != std::string::npos);
    CHECK(early.at("6").at("rounds").size() == 1);
    CHECK(drawn("wrong::early", "refuted", "--ranks 5").at("ranks") == 5);

    data = drawn("wrong::crossed<1>", "wrong::crossed<1> all_gather refuted on 3 ranks: round 0: ");
    CHECK(data.at("family") == "wrong::crossed<1>");
    CHECK(folder.read("a.html").find("crossed<1>") == std::string::npos);  // a text is no tag
    CHECK(folder.read("a.html").find("<title>wrong::crossed&lt;1&gt;: all_gather</title>") != std::string::npos);
    const std::string lost = data.at("collectives").at(0).at("sizes").at("4").at("rounds").at(0);
    CHECK(lost.find("0>1!0") != std::string::npos);
    CHECK(lost.find("1>0?3") != std::string::npos);

    const json hasty = drawn("wrong::hasty", "refuted on 8 ranks: ").at("collectives").at(0).at("sizes");
    CHECK(hasty.size() == 5);
    CHECK_FALSE(hasty.at("4").contains("verdict"));
    CHECK(hasty.at("8").at("verdict").at("round") == -1);  // after the last round
    CHECK(hasty.at("8").at("rounds").size() == 2);
    CHECK(hasty.at("8").at("verdict").at("block") == 0);

    for (const char* const type : {"wrong::outside", "wrong::less_than_none"}) {
        const json size = drawn(type, "refuted on 1 rank").at("collectives").at(0).at("sizes").at("4");
        CHECK(size.at("verdict").at("law") == "in_range");
        CHECK(size.at("verdict").at("block") == -1);
    }
}

TEST_CASE("colls draw --page: what is refused, and how it says so", "[explorer]") {
    const support::tool_folder folder;
    const std::string to = " --page '" + folder.file("a.html") + "' ";
    const auto refused = [&](const std::string& arguments, const std::string& words) {
        const support::program_result r = folder.run(arguments);
        INFO(arguments << ": " << r.text);
        CHECK(r.status == 2);
        CHECK(r.says(words));
        CHECK_FALSE(std::filesystem::exists(folder.file("a.html")));
    };
    refused("draw ring", "name a file to draw to: --page FILE, --svg FILE");
    refused("draw ring --ranks 33" + to, "a page has at most 32 ranks, not 33");
    refused("draw ring --ranks 4..8" + to, "give one group size here, not a range");
    refused("draw ring --largest 33" + to, "--largest");
    refused("draw ring --ranks 8 --largest 4" + to, "the largest group is 4, but 8 ranks are shown: give --largest 8");
    refused("draw halving_doubling all_reduce -n 6" + to, "halving_doubling all_reduce does not support 6 ranks");
    refused("draw ring --page /nowhere/a.html", "cannot write /nowhere/a.html");
    refused("draw '" COLLS_TEST_PLANS "/all_pairs_all_reduce_4.xml' -n 5" + to, "is a plan for 4 ranks, not 5");
    folder.write("large.hpp", R"(#include <colls/schedule.hpp>
struct large {
    static constexpr auto implements = colls::collective::broadcast;
    static constexpr int blocks(int n) { return n == 8 ? 65 : 1; }
    static constexpr int rounds(int) { return 100'000; }
    static constexpr colls::step at(int, int, int) { return {}; }
};)");
    const std::string large = "draw --include '" + folder.file("large.hpp") + "' large" + to;
    refused(large + "-n 8", "large broadcast on 8 ranks has 65 slots a rank, and a page has at most 64");
    refused(large + "-n 4", "large broadcast on 4 ranks has 4e+05 steps, and a page has at most 20000");

    // A plan has the one group size that it is for.
    REQUIRE(folder.run("draw '" COLLS_TEST_PLANS "/all_pairs_all_reduce_4.xml'" + to).status == 0);
    const json data = data_of(folder.read("a.html"));
    CHECK(data.at("ranks") == 4);
    CHECK(data.at("collectives").at(0).at("sizes").size() == 1);
}
