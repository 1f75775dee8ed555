// The page of `colls draw --page`, opened in a browser at the widths of a phone, a tablet and a desk: where things
// stand, how far blocks are filled, and when messages go. Positions are compared, no pixels. Left out where there is no
// Chromium.
#include "explorer_page.hpp"

#include <colls/any_schedule.hpp>
#include <colls/detail/choose/explanation.hpp>
#include <colls/simulate.hpp>
#include <colls/views.hpp>

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

namespace {

using nlohmann::json;

constexpr std::array widths{360, 800, 1400};

/// What runs Chromium here; ends this program where there is none.
std::string browser() {
    for (const char* const name : {"chromium", "chromium-browser", "google-chrome"})
        if (support::execute("command -v " + std::string(name)).status == 0) return name;
    std::printf("left out: chromium is not installed (scripts/setup --all installs it)\n");
    std::fflush(stdout);
    std::_Exit(77);
}

/// The page, or the picture, in a frame of each width, where `script` is run. Returns what it leaves in `found`, by
/// width. `dark`: to a reader who prefers dark pages.
std::vector<json> opened(
    const support::tool_folder& folder, const std::string& page, const std::string& script, bool dark = false) {
    static const std::string program = browser();
    const bool picture = page.ends_with(".svg");
    const std::string probed = picture ? "probed.svg" : "probed.html";
    std::string text = folder.read(page);
    if (picture) text.resize(text.rfind("</svg>"));
    folder.write(probed, text + R"(<script>//<![CDATA[
const found = {};
const boxOf = e => {
  const b = e.getBoundingClientRect();
  return [b.left + scrollX, b.top + scrollY, b.width, b.height];
};
const boxesOf = selector => [...document.querySelectorAll(selector)].filter(e => e.getClientRects().length).map(boxOf);
document.head?.append(Object.assign(document.createElement('style'),
  {textContent: '* { transition: none !important; }'}));
addEventListener('load', () => {
  try {)" + script + R"(} catch (e) { found.error = String(e.stack); }
  parent.postMessage(JSON.stringify(found), '*');
});
//]]></script>)" + (picture ? "</svg>" : ""));
    std::string frames;
    for (const int width : widths)
        frames += "<iframe src=\"" + probed + "\" width=\"" + std::to_string(width) +
                  "\" height=\"900\" style=\"border:0\"></iframe>\n";
    folder.write("frames.html", R"(<!DOCTYPE html><script>
const all = {};
addEventListener('message', e => {
  const i = Array.from({length: frames.length}, (_, at) => frames[at]).indexOf(e.source);
  all[i] = JSON.parse(e.data);
  if (Object.keys(all).length === frames.length)
    document.getElementById('found').textContent = btoa(JSON.stringify(all));
});
</script><pre id="found"></pre>)" + frames);
    const support::program_result r = support::execute(
        "(HOME='" + folder.file("home") + "' timeout 600 " + program + (getuid() == 0 ? " --no-sandbox" : "") +
        " --headless --disable-gpu --blink-settings=preferredColorScheme=" + (dark ? "0" : "1") +
        " --window-size=1500,1000 --user-data-dir='" + folder.file("browser") +
        "' --virtual-time-budget=30000 --dump-dom 'file://" + folder.file("frames.html") + "' 2>/dev/null)");
    const std::string begin = "<pre id=\"found\">";
    const std::size_t at = r.text.find(begin);
    INFO(r.text.substr(0, 2000));
    REQUIRE(at != std::string::npos);
    // The DOM's text is base64, since markup would be escaped.
    text.clear();
    unsigned bits = 0, count = 0;
    for (std::size_t i = at + begin.size(); r.text[i] != '<' && r.text[i] != '='; ++i) {
        const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        bits = (bits << 6 | static_cast<unsigned>(letters.find(r.text[i]))) & 0xffffff;
        if ((count += 6) >= 8) text += static_cast<char>(bits >> (count -= 8) & 0xff);
    }
    REQUIRE_FALSE(text.empty());
    std::vector<json> all;
    const json found = json::parse(text);
    for (std::size_t i = 0; i < widths.size(); ++i) {
        all.push_back(found.at(std::to_string(i)));
        INFO(all.back().value("error", ""));
        REQUIRE_FALSE(all.back().contains("error"));
    }
    return all;
}

struct box {
    double x, y, width, height;
    explicit box(const json& of) : x(of.at(0)), y(of.at(1)), width(of.at(2)), height(of.at(3)) {}
    bool overlaps(const box& o) const {
        constexpr double slack = 0.5;  // boxes are rounded to fractions of a pixel
        return x + slack < o.x + o.width && o.x + slack < x + width && y + slack < o.y + o.height &&
               o.y + slack < y + height;
    }
    bool within(const box& o) const {
        constexpr double slack = 1;
        return x >= o.x - slack && y >= o.y - slack && x + width <= o.x + o.width + slack &&
               y + height <= o.y + o.height + slack;
    }
};
std::vector<box> boxes(const json& of) { return {of.begin(), of.end()}; }
int overlaps(const std::vector<box>& all) {
    int count = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) count += all[i].overlaps(all[j]);
    return count;
}

colls::any_schedule schedule_of(const std::string& family, colls::collective what) {
    const auto list = colls::detail::all_candidates_of(what);
    for (int i = 0; i < list.count; ++i)
        if (list.first[i].name == family) return list.first[i].schedule;
    FAIL(family << " has no " << colls::name_of(what));
    return list.first[0].schedule;
}

/// How many ranks' contributions each slot combines after so many rounds, by [rank][slot]: for collectives that reduce,
/// or whose slots keep their blocks.
std::vector<std::vector<std::size_t>> parts_of(const colls::any_schedule& s, int n, int rounds) {
    const auto ranks = static_cast<std::size_t>(n), slots = static_cast<std::size_t>(s.blocks(n) + s.scratch(n));
    std::vector now(ranks, std::vector<std::set<int>>(slots));
    for (int r = 0; r < n; ++r)
        for (int slot = 0; slot < s.blocks(n); ++slot)
            if (colls::reduces(s.implements) || s.home(n, slot) == r)
                now[static_cast<std::size_t>(r)][static_cast<std::size_t>(slot)] = {r};
    for (int k = 0; k < rounds; ++k) {
        const auto before = now;
        for (const colls::views::transfer& t : colls::views::transfers(s, n, k, k + 1))
            for (int j = 0; j < t.blocks.size(); ++j) {
                const auto& given = before[static_cast<std::size_t>(t.from)][static_cast<std::size_t>(t.blocks[j])];
                auto& kept = now[static_cast<std::size_t>(t.to)][static_cast<std::size_t>(t.stored[j])];
                if (t.action == colls::action::copy) kept.clear();
                kept.insert(given.begin(), given.end());
            }
    }
    std::vector counts(ranks, std::vector<std::size_t>(slots));
    for (std::size_t r = 0; r < ranks; ++r)
        for (std::size_t slot = 0; slot < slots; ++slot) counts[r][slot] = now[r][slot].size();
    return counts;
}

/// The network of the page: a link out of each rank and into it, and of each host.
colls::simulation::topology network(int n, int per_host, double latency, double host_latency, double bandwidth) {
    const int hosts = (n + per_host - 1) / per_host;
    std::vector<colls::simulation::link> links(static_cast<std::size_t>(2 * n), {latency / 2, bandwidth});
    links.resize(links.size() + static_cast<std::size_t>(2 * hosts), {host_latency / 2, bandwidth});
    return {n, links, [=](int from, int to, std::vector<int>& route) {
                const int a = from / per_host, b = to / per_host;
                route.push_back(from);
                if (a != b) route.insert(route.end(), {2 * n + a, 2 * n + hosts + b});
                route.push_back(n + to);
            }};
}

}  // namespace

TEST_CASE("explorer page: nothing overlaps, and nothing is wider than the page", "[explorer]") {
    const support::tool_folder folder;
    for (const char* const what : {"double_tree --ranks 16", "bruck --ranks 32", "ring --ranks 1"}) {
        INFO(what);
        REQUIRE(folder.run("draw " + std::string(what) + " --page '" + folder.file("a.html") + "'").status == 0);
        const std::vector<json> found = opened(folder, "a.html", R"(
found.layouts = [];
for (const layout of ['ring', 'grid', 'tree', 'hosts'])
  for (const [number, c] of data.collectives.entries()) {
    if (!['all_reduce', 'all_gather', 'all_to_all', 'broadcast'].includes(c.name)) continue;
    for (const hosts of layout === 'hosts' ? [1, 3, 32] : [4]) {
      choose({layout, hosts, collective: number, ranks: data.ranks, round: 1});
      const text = document.querySelectorAll('#picture text');
      found.layouts.push({
        what: `${c.name} ${layout} ${hosts}`, scroll: document.documentElement.scrollWidth,
        client: document.documentElement.clientWidth,
        picture: boxOf(document.querySelector('#picture')), cards: boxesOf('.card'), boxes: boxesOf('.box'),
        squares: boxesOf('.rank[data-rank="0"] .frame'), label: boxesOf('.rank[data-rank="0"] text'),
        rows: boxesOf('#times .bar'),
        times: boxOf(document.querySelector('#times')),
        parts: boxesOf('h1, #meaning, label, #bar > *, #state, #picture, #detail, #legend > li, #figures > div, ' +
          '#times, #times-text, .note'),
        smallest: Math.min(...[...document.querySelectorAll('p, label, li, dt, text, button, select')]
          .map(e => parseFloat(getComputedStyle(e).fontSize))),
      });
    }
  })");
        for (std::size_t w = 0; w < widths.size(); ++w) {
            REQUIRE(found[w].at("layouts").size() >= 6);
            for (const json& layout : found[w].at("layouts")) {
                INFO("width " << widths[w] << ": " << layout.at("what"));
                const double client = layout.at("client");
                const box picture(layout.at("picture")), times(layout.at("times"));
                const std::vector<box> cards = boxes(layout.at("cards")), squares = boxes(layout.at("squares")),
                                       parts = boxes(layout.at("parts"));
                CHECK(layout.at("scroll") <= client);
                CHECK(client > widths[w] - 20);
                CHECK(layout.at("smallest") >= 12);
                CHECK(cards.size() == (std::string(what) == "ring --ranks 1"  ? 1
                                          : std::string(what).ends_with("32") ? 32
                                                                              : 16));
                CHECK(overlaps(cards) == 0);
                CHECK(overlaps(boxes(layout.at("boxes"))) == 0);
                CHECK(overlaps(squares) == 0);
                CHECK(overlaps(parts) == 0);
                CHECK(std::ranges::all_of(cards, [&](const box& b) { return b.within(picture); }));
                CHECK(std::ranges::all_of(squares, [&](const box& b) { return b.within(cards[0]) && b.width >= 5.9; }));
                CHECK(box(layout.at("label").at(0)).within(cards[0]));
                CHECK_FALSE(squares[0].overlaps(box(layout.at("label").at(0))));
                CHECK(std::ranges::all_of(
                    parts, [&](const box& b) { return b.x >= 0 && b.x + b.width <= client + 0.5 && b.width > 0; }));
                for (const box& host : boxes(layout.at("boxes"))) CHECK(host.within(picture));
                const std::vector<box> rows = boxes(layout.at("rows"));
                CHECK(std::ranges::all_of(rows, [&](const box& b) { return b.within(times); }));
                CHECK(rows.empty() == (cards.size() == 1));
            }
        }
    }
}

TEST_CASE("explorer page: the numbers that it offers are round", "[explorer]") {
    const support::tool_folder folder;
    REQUIRE(folder.run("draw ring all_reduce --alpha 3 --beta 0.3 --page '" + folder.file("a.html") + "'").status == 0);
    for (const json& found : opened(folder, "a.html", R"JS(
found.ticks = [];
for (const bytes of Object.values(sizes))
  for (const latency of [0, 0.7, 3, 1234.5]) {
    choose({bytes, latency, bandwidth: 3.333});
    found.ticks.push([...document.querySelectorAll('#times text')].map(e => e.textContent).filter(t => /s$/.test(t))
      .map(t => t.replace('µ', 'u')));
  }
location.hash = '#bytes=1048571';
window.onhashchange();
found.bytes = [choice.bytes, element('bytes').selectedOptions[0]?.textContent,
  [...document.querySelectorAll('#figures dt')].at(-1).textContent];
found.steps = ['bandwidth', 'latency'].map(id => {
  const field = element(id), at = [];
  choose({[id]: id === 'latency' ? 0 : 3.333});
  const key = name => {
    field.dispatchEvent(new KeyboardEvent('keydown', {key: name, cancelable: true}));
    at.push([choice[id], field.value]);
  };
  for (let i = 0; i < 4; ++i) key('ArrowUp');
  for (let i = 0; i < 6; ++i) key('ArrowDown');
  return at;
});
)JS")) {
        INFO(found.dump());
        std::size_t ticks = 0;
        for (const json& axis : found.at("ticks")) {
            // The first tick behind 0 is 1, 2 or 5 times a power of ten, and the others are its multiples.
            double first = 0;
            for (const json& tick : axis) {
                const std::string text = tick, unit = text.substr(text.find(' '));
                const double x = std::stod(text) * (unit == " us" ? 1e-6 : unit == " ms" ? 1e-3 : 1);
                INFO(axis.dump() << ", " << text);
                if (first == 0) {
                    first = x;
                    const double mantissa = x / std::pow(10, std::floor(std::log10(x) + 1e-9));
                    CHECK((std::abs(mantissa - 1) < 1e-9 || std::abs(mantissa - 2) < 1e-9 ||
                           std::abs(mantissa - 5) < 1e-9));
                }
                CHECK(std::abs(x / first - std::round(x / first)) < 1e-9);
                ++ticks;
            }
        }
        CHECK(ticks > 60);
        CHECK(found.at("bytes") == json::array({1 << 20, "1 MB", "with 1 MB"}));
        const auto both = [](const std::vector<std::pair<double, const char*>>& all) {
            json made = json::array();
            for (const auto& [value, text] : all) made.push_back({value, text});
            return made;
        };
        CHECK(found.at("steps").at(0) == both({{5, "5"}, {10, "10"}, {20, "20"}, {50, "50"}, {20, "20"}, {10, "10"},
                                             {5, "5"}, {2, "2"}, {1, "1"}, {0.5, "0.5"}}));
        CHECK(found.at("steps").at(1) == both({{1, "1"}, {2, "2"}, {5, "5"}, {10, "10"}, {5, "5"}, {2, "2"}, {1, "1"},
                                             {0.5, "0.5"}, {0.2, "0.2"}, {0.1, "0.1"}}));
    }
}

TEST_CASE("pictures: whole at the width of a phone, and readable in light and in dark", "[explorer]") {
    const support::tool_folder folder;
    REQUIRE(folder.run("draw ring all_reduce -n 6 --hosts 3 --svg '" + folder.file("schedule.svg") + "'").status == 0);
    REQUIRE(folder.run("draw tree broadcast -n 7 --svg '" + folder.file("copies.svg") + "'").status == 0);
    REQUIRE(folder.run("compare all_reduce -n 16 --svg '" + folder.file("chart.svg") + "'").status == 0);
    for (const char* const picture : {"schedule.svg", "copies.svg", "chart.svg"})
        for (const bool dark : {false, true}) {
            const std::vector<json> all = opened(folder, picture, R"(
const colours = (selector, property) => {
  const all = [...document.querySelectorAll(selector)].map(e => getComputedStyle(e)[property]);
  return [...new Set(all)].filter(c => c !== 'none').map(c => c.match(/[\d.]+/g).slice(0, 3).map(x => x / 255));
};
const light = rgb => rgb.map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
  .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
const least = (above, below) => {
  const all = above.flatMap(a => below.map(b => [light(a) + 0.05, light(b) + 0.05]));
  return Math.min(99, ...all.map(([a, b]) => Math.max(a, b) / Math.min(a, b)));
};
const grounds = [...colours('.page', 'fill'), ...colours('.even, .odd', 'fill')];
const b = document.documentElement.getBoundingClientRect();
Object.assign(found, {
  scroll: document.documentElement.scrollWidth, width: b.width, ratio: b.width / b.height,
  view: document.documentElement.viewBox.baseVal.width / document.documentElement.viewBox.baseVal.height,
  inner: innerWidth, page: light(colours('.page, rect', 'fill')[0]),
  text: least(colours('text.ink, text.soft', 'fill'), grounds),
  lines: least([...colours('.copies, .reduces, path.line', 'stroke'), ...colours('marker path', 'fill'),
    ...colours('.done', 'stroke')], grounds),
  fills: least(colours('.block', 'fill'), colours('.empty, .done', 'fill')),
  count: document.querySelectorAll('text, path').length,
});
)",
                dark);
            for (std::size_t w = 0; w < widths.size(); ++w) {
                const json& found = all[w];
                INFO(picture << (dark ? ", dark" : ", light") << ", width " << widths[w] << ": " << found.dump());
                CHECK(found.at("width") <= widths[w]);
                CHECK(found.at("inner") <= widths[w]);
                CHECK(std::abs(found.at("ratio").get<double>() / found.at("view").get<double>() - 1) < 0.02);
                CHECK((found.at("page") < 0.1) == dark);
                CHECK(found.at("text") >= 4.5);
                CHECK(found.at("lines") >= 3);
                CHECK(found.at("fills") >= 3);
                CHECK(found.at("count") > 15);
            }
        }
}

TEST_CASE("explorer page: a block is filled as far as it combines the ranks' contributions", "[explorer]") {
    const support::tool_folder folder;
    for (const auto& [family, what, n] : {std::tuple("circulant", colls::collective::all_reduce, 6),
             {"ring", colls::collective::all_gather, 5}, {"double_tree", colls::collective::all_reduce, 7},
             {"recursive_doubling", colls::collective::inclusive_scan, 6}}) {
        INFO(family);
        const colls::any_schedule s = schedule_of(family, what);
        REQUIRE(folder.run("draw " + std::string(family) + " --page '" + folder.file("a.html") + "'").status == 0);
        const std::vector<json> found = opened(folder, "a.html",
            "choose({ranks: " + std::to_string(n) + ", collective: data.collectives.findIndex(c => c.name === '" +
                colls::name_of(what) + R"('), round: 0});
found.rounds = [];
for (element('first').click();; element('on').click()) {
  found.rounds.push({
    round: choice.round, frames: boxesOf('#picture .frame'), fills: [...document.querySelectorAll('.fill')].map(boxOf),
    arrows: document.querySelectorAll('.arrow').length, state: element('state').textContent,
    done: document.querySelectorAll('#picture .frame.done').length,
  });
  if (element('on').disabled) break;
})");
        for (std::size_t w = 0; w < widths.size(); ++w) {
            REQUIRE(found[w].at("rounds").size() == static_cast<std::size_t>(s.rounds(n)) + 1);
            int wrong = 0;
            for (int k = 0; k <= s.rounds(n); ++k) {
                const json& shown = found[w].at("rounds").at(static_cast<std::size_t>(k));
                INFO("width " << widths[w] << ", " << k << " rounds: " << shown.at("state"));
                CHECK(shown.at("round") == k);
                const auto parts = parts_of(s, n, k);
                const std::size_t slots = parts[0].size();
                for (std::size_t r = 0; r < parts.size(); ++r)
                    for (std::size_t slot = 0; slot < slots; ++slot) {
                        const box frame(shown.at("frames").at(r * slots + slot)),
                            fill(shown.at("fills").at(r * slots + slot));
                        const double whole =
                            colls::reduces(what) ? std::max(0.12, static_cast<double>(parts[r][slot]) / n) : 1;
                        const double share = parts[r][slot] == 0 ? 0 : whole;
                        wrong += std::abs(fill.height / fill.width - share) > 0.02 ||
                                 std::abs(fill.y + fill.height - frame.y - frame.height) > 1.6;
                    }
                long arrows = 0;
                for (const colls::views::transfer& t : colls::views::transfers(s, n, std::max(0, k - 1), k))
                    arrows += !t.local();
                CHECK(shown.at("arrows") == arrows);
                CHECK((shown.at("state").get<std::string>().find("Every rank has all") != std::string::npos) ==
                      (k == s.rounds(n)));
            }
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("explorer page: every root ends with what is asked for; messages take the simulator's time", "[explorer]") {
    const support::tool_folder folder;
    for (const char* const family : {"direct", "tree", "pipelined_broadcast", "bruck"}) {
        INFO(family);
        REQUIRE(folder
                    .run("draw " + std::string(family) + " --alpha 3 --beta 0.2 --gamma 0.1 --page '" +
                         folder.file("a.html") + "'")
                    .status == 0);
        const json found = opened(folder, "a.html", R"(
Object.assign(found, {roots: 0, wrong: [], times: []});
if (innerWidth > 400 && innerWidth < 1000) {
  for (const [number, c] of data.collectives.entries())
    for (const n of supported(number)) {
      for (let root = 0; root < (c.rooted ? n : 1); ++root, ++found.roots) {
        const s = scheduleOf(c, n, root), end = statesOf(s).at(-1);
        const all = s.ranks.every(r => s.want[r].every((label, at) => label === null || end[r][at].done));
        const asked = s.ranks.filter(r => s.want[r].some(label => label !== null)),
          given = s.ranks.filter(r => s.start[r].some(label => label !== null));
        const at_root = ['reduce', 'gather'].includes(c.name) ? asked :
          ['broadcast', 'scatter'].includes(c.name) ? given : [root];
        if (!all || at_root.length !== 1 || at_root[0] !== root) found.wrong.push(`${c.name} ${n} ${root}`);
      }
      for (const [hosts, bytes] of [[32, 2 ** 20], [3, 2 ** 20], [4, 8]])
        found.times.push([c.name, n, hosts, bytes, play(scheduleOf(c, n, 0), bytes, hosts, {
          rank: {latency: 1.5e-6, bandwidth: 5e9}, host: {latency: 2e-6, bandwidth: 5e9}, gamma: data.machine.gamma})]);
    }
  choose({hosts: 4, ranks: 16, bytes: 2 ** 20, latency: 3, bandwidth: 5, hostLatency: 4, hostBandwidth: 5});
  found.shown = [schedule.name, schedule.n, 4, 2 ** 20, seconds];
})")[1];
        INFO(found.at("wrong").dump());
        CHECK(found.at("roots") > 30);
        CHECK(found.at("wrong").empty());
        json times = found.at("times");
        CHECK(times.size() > 90);
        times.push_back(found.at("shown"));
        for (const json& time : times) {
            INFO(time.dump());
            const std::string name = time.at(0);
            colls::collective what = colls::collective::broadcast;
            while (colls::name_of(what) != name) what = static_cast<colls::collective>(static_cast<int>(what) + 1);
            const int n = time.at(1);
            const double expected = colls::simulation::simulate(
                schedule_of(family, what), n, network(n, time.at(2), 3e-6, 4e-6, 5e9), time.at(3), {.gamma = 0.1e-9})
                                        .seconds;
            const double played = time.at(4);
            CHECK(std::abs(played - expected) <= 1e-6 * expected);
        }
    }
}

TEST_CASE("explorer page: keys, buttons and pointers do what they say", "[explorer]") {
    const support::tool_folder folder;
    REQUIRE(folder.run("draw ring -n 4 --page '" + folder.file("a.html") + "'").status == 0);
    const std::vector<json> found = opened(folder, "a.html", R"(
const named = name => data.collectives.findIndex(c => c.name === name);
choose({collective: named('all_gather'), round: 0});
const key = (name, target = document.body) =>
  target.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true, cancelable: true}));
const shown = [];
const note = what => shown.push([what, choice.round, selected && [selected.rank, selected.slot],
  element('detail').textContent, timer !== null]);
key('End'); note('End');
key('Home'); note('Home');
key('ArrowRight'); note('ArrowRight');
key('ArrowLeft'); key('ArrowLeft'); note('ArrowLeft');
key(' '); note('space');
key(' '); note('space again');
key('End');
document.querySelector('.block[tabindex="0"]').focus(); note('focus');
key('ArrowDown', document.activeElement); note('ArrowDown');
key('PageDown', document.activeElement); note('PageDown');
key('ArrowLeft', document.querySelector('#ranks')); note('in a slider');
key('Escape'); note('Escape');
const block = document.querySelector('.block[data-rank="2"][data-slot="1"]');
block.dispatchEvent(new PointerEvent('pointerover', {bubbles: true, pointerType: 'mouse'})); note('hover');
document.querySelector('#picture').dispatchEvent(new PointerEvent('pointerleave')); note('leave');
const card = document.querySelector('.rank[data-rank="3"] .card'), [x, y] = boxOf(card);
card.dispatchEvent(new MouseEvent('click', {bubbles: true, clientX: x - scrollX + 1, clientY: y - scrollY + 1}));
note('tap beside the first block');
for (const [type, clientX, clientY] of [['pointerdown', 200, 10], ['pointerup', 280, 20]])
  document.querySelector('#picture').dispatchEvent(new PointerEvent(type, {pointerType: 'touch', clientX, clientY}));
note('swipe');
Object.assign(found, {shown, label: block.getAttribute('aria-label')});
location.hash = '#collective=all_gather&ranks=3&round=1&layout=tree';
window.onhashchange();
found.address = [choice.ranks, choice.round, choice.layout, element('layout').value,
  document.querySelectorAll('.card').length];
choose({ranks: 99, root: -0, round: 77}); found.clamped = [choice.ranks, choice.round];
choose({collective: named('all_reduce'), ranks: 4, round: 2});
found.reduced = states[2][0].flatMap((slot, at) => sizeOf(slot.who) === 3 ? [describe(0, at)] : [])
  .map(lines => lines.join(' ').replace(/slot \d+/, 'slot S').replace(/block \d+/, 'block B'));
)");
    for (const json& at : found) {
        std::vector<json> shown(at.at("shown").begin(), at.at("shown").end());
        const auto check = [&](const char* what, int round, const json& selected, const std::string& words,
                               bool playing = false) {
            const auto found_at = std::ranges::find_if(shown, [&](const json& s) { return s.at(0) == what; });
            REQUIRE(found_at != shown.end());
            INFO(found_at->dump());
            CHECK(found_at->at(1) == round);
            CHECK(found_at->at(2) == selected);
            CHECK(found_at->at(3).get<std::string>().find(words) != std::string::npos);
            CHECK(found_at->at(4) == playing);
        };
        const std::string hint = "Point at a block";
        check("End", 3, nullptr, hint);
        check("Home", 0, nullptr, hint);
        check("ArrowRight", 1, nullptr, hint);
        check("ArrowLeft", 0, nullptr, hint);
        check("space", 0, nullptr, hint, true);
        check("space again", 0, nullptr, hint);
        check("focus", 3, {0, 0}, "Rank 0, slot 0 holds block 0, of rank 0.It was there from the start.");
        check("ArrowDown", 3, {0, 1}, "Rank 1 gave it in round 0, as a copy.That is what all_gather asks for.");
        check("PageDown", 3, {1, 1}, "Rank 1, slot 1");
        check("in a slider", 3, {1, 1}, "Rank 1, slot 1");
        check("Escape", 3, nullptr, hint);
        check("hover", 3, nullptr, "Rank 2, slot 1 holds block 1, of rank 1.Rank 3 gave it in round 2");
        check("leave", 3, nullptr, hint);
        check("tap beside the first block", 3, {3, 0},
            "Rank 3, slot 0 holds block 0, of rank 0.Rank 0 gave it in round 0");
        check("swipe", 2, {3, 0}, "Rank 3, slot 0 holds block 0");
        CHECK(at.at("label") == "Rank 2, slot 1 is empty.");
        CHECK(at.at("address") == json{3, 1, "tree", "tree", 3});
        CHECK(at.at("clamped") == json{16, 15});
        CHECK(at.at("reduced") ==
              json::array({"Rank 0, slot S holds block B of 4, with the contributions of ranks 0, 2 and 3. "
                           "Rank 3 gave the part of ranks 2 and 3 in round 1."}));
    }
}

TEST_CASE("explorer page: a refuted schedule stands there in red, with the verdict's words", "[explorer]") {
    const support::tool_folder folder;
    folder.write("wrong.hpp", support::wrong_schedules());
    for (const char* const type :
        {"wrong::early", "wrong::crossed<1>", "wrong::hasty", "wrong::outside", "wrong::less_than_none"}) {
        INFO(type);
        REQUIRE(folder
                    .run("draw --include '" + folder.file("wrong.hpp") + "' '" + type + "' -n 8 --page '" +
                         folder.file("a.html") + "'")
                    .status == 1);
        const json verdict =
            support::data_of(folder.read("a.html")).at("collectives").at(0).at("sizes").at("8").at("verdict");
        for (const json& found : opened(folder, "a.html", R"(
const red = getComputedStyle(document.documentElement).getPropertyValue('--bad').trim();
const colour = Object.assign(document.createElement('i'), {style: `color: ${red}`});
document.body.append(colour);
const strokes = selector => [...document.querySelectorAll(selector)].map(e => getComputedStyle(e).stroke);
Object.assign(found, {
  scroll: document.documentElement.scrollWidth, client: document.documentElement.clientWidth,
  red: getComputedStyle(colour).color,
  verdict: boxesOf('#verdict'), text: element('verdict').textContent, cards: boxesOf('.rank.broken .card'),
  picture: boxOf(element('picture')),
  ranks: [...document.querySelectorAll('.rank.broken')].map(e => Number(e.dataset.rank)),
  blocks: [...document.querySelectorAll('.block.broken')].map(e => [Number(e.dataset.rank), Number(e.dataset.slot)]),
  squares: boxesOf('.block.broken .frame'), strokes: [...strokes('.rank.broken .card'),
    ...strokes('.block.broken .frame'), ...strokes('.arrow.broken')],
  arrows: [...document.querySelectorAll('.arrow.broken')].map(e => [Number(e.dataset.from), Number(e.dataset.to)]),
  detail: '',
  times: element('times-text').textContent,
});
element('verdict-show').click();
found.detail = element('detail').textContent;
colour.remove();
)")) {
            INFO(found.dump());
            const std::string text = found.at("text");
            CHECK(text.find("Refuted.") != std::string::npos);
            CHECK(text.find(verdict.at("text").get<std::string>()) != std::string::npos);
            CHECK(found.at("scroll") <= found.at("client"));
            REQUIRE(found.at("verdict").size() == 1);
            const box banner(found.at("verdict").at(0));
            CHECK(banner.width > 200);
            CHECK(banner.x + banner.width <= found.at("client"));
            CHECK(found.at("times") == "A schedule that is refuted has no times.");
            for (const json& stroke : found.at("strokes")) CHECK(stroke == found.at("red"));
            const int rank = verdict.at("rank"), block = verdict.at("block");
            CHECK(found.at("ranks") == (rank < 0 ? json::array() : json::array({rank})));
            CHECK(found.at("blocks") == (block < 0 ? json::array() : json::array({json::array({rank, block})})));
            CHECK(found.at("squares").size() == found.at("blocks").size());
            for (const json& square : found.at("squares")) {
                CHECK(box(square).within(box(found.at("picture"))));
                CHECK(box(square).width >= 6);
            }
            if (block >= 0)
                CHECK(found.at("detail").get<std::string>().find("Broken: " + verdict.at("text").get<std::string>()) !=
                      std::string::npos);
            if (std::string(type) == "wrong::early") CHECK(found.at("arrows") == json::array({json::array({0, 1})}));
            if (std::string(type) == "wrong::crossed<1>") CHECK(found.at("arrows").empty() == false);
        }
    }
}
