// COLLS_TRACE, and `colls trace`: what is recorded of calls over shared memory and over messages, which rank is named
// as the slowest, and how clocks of several hosts are set.
#include "execute.hpp"
#include "spoiled.hpp"

#include "support/every_transport.hpp"
#include "support/fault.hpp"

#include <colls/operation.hpp>
#include <colls/schedules.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <clocale>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>
#include <vector>

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class folder {
public:
    folder() {
        static int number = 0;  // the file of a path is opened once in a process
        path_ =
            fs::temp_directory_path() / ("colls trace " + std::to_string(getpid()) + "." + std::to_string(number++));
        fs::create_directory(path_);
    }
    ~folder() { fs::remove_all(path_); }
    folder(const folder&) = delete;
    folder& operator=(const folder&) = delete;

    std::string file(const std::string& name) const { return (path_ / name).string(); }
    /// All events of the files that COLLS_TRACE=trace.json has made.
    json events() const {
        json all = json::array();
        for (const fs::directory_entry& each : fs::directory_iterator(path_)) {
            std::ifstream in(each.path());
            for (const json& e : json::parse(in)) all.push_back(e);
        }
        return all;
    }
    /// What a rank, process 7 of its host, has recorded of all_reduces.
    struct rank_file {
        int rank;
        std::string host, clock;
        double ahead;                                  ///< of its clock, in microseconds
        std::vector<std::pair<double, double>> calls;  ///< their begin and end, from the call's true begin
        std::string group = "0";
        int size = 2;
        struct wait {
            double begin, end;
            int peer;
            const char* name = "wait";  ///< or "copy", "fold"
        };
        std::vector<wait> waits{};  ///< in each call
        int bytes = 8;              ///< of each call
        std::string number = "";    ///< of the group
    };
    void write(const rank_file& of) const {
        json all = json::array();
        const json self{{"group", of.group}, {"rank", of.rank}};
        json introduction = self;
        introduction.update({{"size", of.size}, {"host", of.host}, {"clock", of.clock}});
        if (!of.number.empty()) introduction["number"] = of.number;
        all.push_back({{"name", "colls"}, {"ph", "M"}, {"pid", 7}, {"tid", 7}, {"args", introduction}});
        for (std::size_t i = 0; i < of.calls.size(); ++i) {
            const auto [begin, end] = of.calls[i];
            json args = self;
            args.update({{"call", i}, {"schedule", "ring"}, {"bytes", of.bytes}, {"peer", -1}});
            all.push_back(
                {{"name", "all_reduce"}, {"ph", "X"}, {"ts", 1000.0 * static_cast<double>(i) + begin + of.ahead},
                    {"dur", end - begin}, {"pid", 7}, {"tid", 7}, {"args", args}});
            for (const rank_file::wait& w : of.waits) {
                json part = self;
                part["peer"] = w.peer;
                all.push_back(
                    {{"name", w.name}, {"ph", "X"}, {"ts", 1000.0 * static_cast<double>(i) + w.begin + of.ahead},
                        {"dur", w.end - w.begin}, {"pid", 7}, {"tid", 7}, {"args", part}});
            }
        }
        std::ofstream(file("trace." + of.host + ".7.json")) << all.dump();
    }
    json summary() const { return json::parse(text("--json ")); }
    std::string text(const std::string& option = "") const {
        const support::program_result r =
            support::execute("'" COLLS_TEST_TOOL "' trace summary " + option + "'" + file("trace.json") + "'");
        REQUIRE(r.status == 0);
        return r.text;
    }

private:
    fs::path path_;
};

// Which rank is in which call, as the hook sees ranks that wait, and how often it has seen them.
constexpr int ranks = 4, laggard = 2;
std::array<std::atomic<int>, ranks> waits_in, seen;
thread_local int own_rank = 0, own_call = -1;
void note_wait(void*) {
    if (own_call < 0) return;
    seen[static_cast<std::size_t>(own_rank)].fetch_add(1, std::memory_order_relaxed);
    waits_in[static_cast<std::size_t>(own_rank)].store(own_call, std::memory_order_release);
}
/// Returns when all others wait for the laggard in the call: once they have entered it and looked twice since, they
/// can wait for none else.
void come_last(int call) {
    const auto for_others = [](auto f) {
        for (std::size_t r = 0; r < ranks; ++r)
            if (r != laggard) f(r);
    };
    for_others([&](std::size_t r) {
        while (waits_in[r].load(std::memory_order_acquire) < call) std::this_thread::yield();
    });
    std::array<int, ranks> before{};
    for_others([&](std::size_t r) { before[r] = seen[r].load(std::memory_order_relaxed); });
    for_others([&](std::size_t r) {
        while (seen[r].load(std::memory_order_relaxed) < before[r] + 2) std::this_thread::yield();
    });
}

double number(const json& e, const char* name) { return e.at(name).get<double>(); }

}  // namespace

TEST_CASE("trace: a rank that comes last to every call is named in all of them", "[tool]") {
    const folder f;
    const support::with_environment traced("COLLS_TRACE", f.file("trace.json").c_str());
    constexpr int calls = 1000;
    for (auto& call : waits_in) call = -1;
    colls::set_wait_hook(&note_wait);
    colls::threads::run(ranks, [&](colls::communicator& comm) {
        own_rank = comm.rank();
        std::vector<float> x(1000, 1);
        for (int i = 0; i < calls; ++i) {
            own_call = i;
            if (own_rank == laggard) come_last(i);
            colls::all_reduce(comm, x, colls::max);
        }
        own_call = -1;
    });
    colls::set_wait_hook(nullptr);
    const json s = f.summary();
    CHECK(s.at("calls") == calls);
    CHECK(s.at("late").at(0).at("rank").get<std::string>().starts_with("rank 2 of group "));
    CHECK(s.at("late").at(0).at("last") == calls);
    int wait_for_it = 0;  // for how long is left to chance
    for (const json& w : s.at("waits")) wait_for_it += w.at("for").get<std::string>().starts_with("rank 2 of group ");
    CHECK(wait_for_it == ranks - 1);
    CHECK(s.at("wait_share").get<double>() > 0);
}

TEST_CASE("trace: a rank that is late, or slow, is named, not those that wait for it in turn", "[tool]") {
    struct rank_in_call {
        double begin;
        folder::rank_file::wait wait;
    };
    const auto of = [](const std::vector<rank_in_call>& all) {
        const folder f;
        for (std::size_t r = 0; r < all.size(); ++r)
            f.write({.rank = static_cast<int>(r),
                .host = std::string("host") + std::to_string(r),
                .clock = "one",
                .ahead = 0,
                .calls = std::vector<std::pair<double, double>>(10, {all[r].begin, 700.0}),
                .size = static_cast<int>(all.size()),
                .waits = {all[r].wait}});
        const json s = f.summary();
        const auto name = [](const json& rank) {
            return rank.is_null() ? "none" : rank.get<std::string>().substr(0, 6);
        };
        return name(s.at("late_rank")) + ", " + name(s.at("slow_rank"));
    };
    CHECK(of({{0, {0, 510, 3}}, {0, {0, 520, 0}}, {490, {530, 540, 1}}, {0, {0, 500, 2}}}) == "rank 2, none");
    CHECK(of({{0, {0, 510, 3}}, {0, {0, 520, 0}}, {0, {530, 540, 1}}, {0, {0, 500, 2}}}) == "none, rank 2");
    CHECK(of({{0, {0, 60, 3}}, {1, {5, 62, 0}}, {2, {3, 64, 1}}, {1, {2, 66, 2}}}) == "none, none");
}

TEST_CASE("trace: what is summed up of three ranks, word for word and number for number", "[tool]") {
    const folder f;
    const auto ten = [](double begin, double end, double last) {
        std::vector<std::pair<double, double>> calls(10, {begin, end});
        calls.back().second = last;
        return calls;
    };
    // In each call rank 0 waits 500 us for rank 1, which waits 10 of these for rank 2, and rank 2 waits 20 us for rank
    // 0, which waits all the while.
    f.write({0, "a", "one", 0, ten(0, 700, 800), "7", 3, {{10, 510, 1}, {600, 635, -1, "copy"}, {640, 654, -1, "fold"}},
        65'536});
    f.write({1, "b", "one", 0, ten(5, 700, 700), "7", 3, {{20, 30, 2}}, 65'536});
    f.write({2, "c", "two", 50, ten(3, 700, 700), "7", 3, {{40, 60, 0}}, 65'536});
    CHECK(f.text() ==
          "3 ranks, 10 collective calls, 9.80 ms\n\n"
          "The clock of c is ahead of that of a by 49.0 us, known to 696.0 us.\n"
          "call             schedule                        bytes     times       median          p99        worst\n"
          "all_reduce       ring                            65536        30     697.0 us     700.0 us     800.0 us\n\n"
          "In calls, ranks waited for 25 % of the time, copied for 2 % and folded for 1 %.\n\n"
          "The rank that came last to a call, of 10 that all ranks recorded, and how long after the one before it:\n"
          "    rank 1 of group 7 (b)                   10 times,     1.0 us on average,    10.0 us in all\n\n"
          "The waits that took the most time; of it, while the other was in the call and did not wait itself:\n"
          "    rank 0 of group 7 (a) for rank 1 of group 7 (b): 5.00 ms; 4.90 ms\n"
          "    rank 2 of group 7 (c) for rank 0 of group 7 (a): 200.0 us; 0.0 us\n"
          "    rank 1 of group 7 (b) for rank 2 of group 7 (c): 100.0 us; 100.0 us\n\n"
          "In calls, rank 0 of group 7 (a) waits for rank 1 of group 7 (b), which is slow, or the link from it.\n");

    const json s = f.summary();
    CHECK(number(s, "seconds") == Approx(0.0098));
    CHECK(number(s, "wait_share") == Approx(5300.0 / 21020));
    CHECK(number(s, "copy_share") == Approx(350.0 / 21020));
    CHECK(number(s, "fold_share") == Approx(140.0 / 21020));
    CHECK(s.at("late_rank").is_null());
    CHECK(s.at("slow_rank") == "rank 1 of group 7");
    REQUIRE(s.at("waits").size() == 3);
    CHECK(s.at("waits").at(0).at("rank") == "rank 0 of group 7 (a)");
    CHECK(s.at("waits").at(0).at("for") == "rank 1 of group 7 (b)");
    CHECK(number(s.at("waits").at(0), "microseconds") == Approx(5000));
    CHECK(number(s.at("waits").at(0), "due_to_it") == Approx(4900));
}

TEST_CASE("trace: calls and waits that begin at one time are summed up like others", "[tool]") {
    const folder f;
    constexpr int many = 40;
    // Clocks have steps: all waits of a call, and the calls of many ranks, may have one time.
    const std::vector<folder::rank_file::wait> waits(many, {0, 1, 0});
    for (int r = 0; r < many; ++r)
        f.write({r, "h" + std::to_string(r), "one", 0, {{0, 100}, {0, 100}}, "0", many,
            r > 0 ? waits : std::vector<folder::rank_file::wait>{}});
    const json s = f.summary();
    CHECK(number(s, "wait_share") == Approx((many - 1) * many * 1.0 / (many * 100)));
    REQUIRE(!s.at("waits").empty());
    CHECK(number(s.at("waits").at(0), "microseconds") == Approx(2 * many));
    CHECK(number(s.at("waits").at(0), "due_to_it") == Approx(2 * many));
}

TEST_CASE("trace: the summary shows five ranks and five waits, and leaves out what is not there", "[tool]") {
    const folder f;
    constexpr int all = 7;
    // Each rank comes last to one call, and all others wait for rank 0 in each.
    for (int r = 0; r < all; ++r) {
        std::vector<std::pair<double, double>> calls(all, {0, 40});
        calls[static_cast<std::size_t>(r)].first = r + 1;
        std::vector<folder::rank_file::wait> waits;
        if (r > 0) waits.push_back({10, 12.0 + r, 0});
        f.write({r, "h" + std::to_string(r), "one", 0, calls, "0", all, waits});
    }
    CHECK(f.text() ==
          "7 ranks, 7 collective calls, 6.04 ms\n\n"
          "call             schedule                        bytes     times       median          p99        worst\n"
          "all_reduce       ring                                8        49      40.0 us      40.0 us      40.0 us\n\n"
          "In calls, ranks waited for 12 % of the time, copied for 0 % and folded for 0 %.\n\n"
          "The rank that came last to a call, of 7 that all ranks recorded, and how long after the one before it:\n"
          "    rank 6 of group 0 (h6)                   1 times,     7.0 us on average,     7.0 us in all\n"
          "    rank 5 of group 0 (h5)                   1 times,     6.0 us on average,     6.0 us in all\n"
          "    rank 4 of group 0 (h4)                   1 times,     5.0 us on average,     5.0 us in all\n"
          "    rank 3 of group 0 (h3)                   1 times,     4.0 us on average,     4.0 us in all\n"
          "    rank 2 of group 0 (h2)                   1 times,     3.0 us on average,     3.0 us in all\n\n"
          "The waits that took the most time; of it, while the other was in the call and did not wait itself:\n"
          "    rank 6 of group 0 (h6) for rank 0 of group 0 (h0): 56.0 us; 56.0 us\n"
          "    rank 5 of group 0 (h5) for rank 0 of group 0 (h0): 49.0 us; 49.0 us\n"
          "    rank 4 of group 0 (h4) for rank 0 of group 0 (h0): 42.0 us; 42.0 us\n"
          "    rank 3 of group 0 (h3) for rank 0 of group 0 (h0): 35.0 us; 35.0 us\n"
          "    rank 2 of group 0 (h2) for rank 0 of group 0 (h0): 28.0 us; 28.0 us\n\n"
          "rank 0 of group 0 (h0) is slow in calls: several ranks wait for it.\n");

    // A call that one rank alone has recorded, and no waits.
    const folder alone;
    alone.write({0, "h0", "one", 0, {{0, 2e6}}});
    CHECK(alone.text() ==
          "1 ranks, 1 collective calls, 2.00 s\n\n"
          "call             schedule                        bytes     times       median          p99        worst\n"
          "all_reduce       ring                                8         1       2.00 s       2.00 s       2.00 s\n\n"
          "In calls, ranks waited for 0 % of the time, copied for 0 % and folded for 0 %.\n");

    const folder late;
    late.write({0, "h0", "one", 0, {{0, 700}, {0, 700}}, "0", 2, {{0, 500, 1}}});
    late.write({1, "h1", "one", 0, {{490, 700}, {490, 700}}});
    CHECK(late.text().ends_with("\n\nrank 1 of group 0 (h1) comes to calls late: the others wait for it.\n"));

    const folder even;
    even.write({0, "h0", "one", 0, {{0, 700}}, "0", 2, {{0, 5, 1}}});
    even.write({1, "h1", "one", 0, {{1, 700}}});
    CHECK(even.text().ends_with("\n\nNo rank is late, or slower than the others.\n"));
}

TEST_CASE(
    "trace: waits are summed up in any order of events; those outside of calls, or for no rank, are not", "[tool]") {
    const folder f;
    const std::vector<std::pair<double, double>> calls(3, {0, 700});
    f.write({0, "h0", "one", 0, calls, "0", 2, {{10, 100, 1}, {120, 160, 1}}});
    f.write({1, "h1", "one", 0, calls, "0", 2, {{20, 50, 0}, {90, 130, 0}}});
    const auto check = [&](double waited, int calls_in_all) {
        const json s = f.summary();
        CHECK(s.at("calls") == 3);
        CHECK(number(s, "wait_share") == Approx(waited / (calls_in_all * 700)));
        REQUIRE(s.at("waits").size() == 2);
        // Rank 1 itself waits for 30 + 10 of the first 90 us, and for 10 of the other 40.
        CHECK(s.at("waits").at(0).at("rank") == "rank 0 of group 0 (h0)");
        CHECK(number(s.at("waits").at(0), "microseconds") == Approx(3 * 130));
        CHECK(number(s.at("waits").at(0), "due_to_it") == Approx(3 * (50 + 30)));
        CHECK(number(s.at("waits").at(1), "microseconds") == Approx(3 * 70));
        CHECK(number(s.at("waits").at(1), "due_to_it") == Approx(3 * 20));
    };
    check(3 * 200, 6);

    const std::string name = f.file("trace.h0.7.json");
    json all;
    std::ifstream(name) >> all;
    json sent = all.at(1), early = all.at(2), of_none = all.at(2);
    sent["name"] = "send";
    sent["args"]["call"] = -1;
    early["ts"] = -200;
    of_none["ts"] = 300;
    of_none["args"]["peer"] = -1;
    for (const json& e : {sent, early, of_none}) all.push_back(e);
    std::reverse(all.begin() + 1, all.end());
    std::ofstream(name) << all;
    check(3 * 200 + 2 * 90, 7);
}

TEST_CASE("trace: waits, copies and folds lie in their call, and folds add up to what a ring folds", "[tool]") {
    for (const std::string transport : {"threads", "shm", "tcp"}) {
        INFO(transport);
        const folder f;
        const support::with_environment traced("COLLS_TRACE", f.file("trace.json").c_str());
        constexpr std::size_t count = 30'000;
        support::run_over(transport, 3, [&](auto& comm) {
            std::vector<float> x(count, 1), y(count);
            for (int i = 0; i < 20; ++i) colls::all_reduce<colls::ring>(comm, x, y, colls::sum);
            colls::broadcast(comm, x, 1);
            auto started = colls::start::all_gather(comm, std::span(y).first(10), std::span(x).first(30));
            started.wait();
            if (comm.rank() == 0) colls::send(comm, x, 2);
            if (comm.rank() == 2) colls::recv(comm, x, 0);
        });
        std::map<std::string, std::map<int, std::vector<json>>> by_name;  // and rank
        for (const json& e : f.events())
            if (e.at("ph") == "X") by_name[e.at("name")][e.at("args").at("rank")].push_back(e);
        CHECK(by_name["send"].size() == 1);
        CHECK(by_name["recv"].size() == 1);
        for (int r = 0; r < 3; ++r) {
            CHECK(by_name["all_reduce"][r].size() == 20);
            CHECK(by_name["broadcast"][r].size() == 1);
            REQUIRE(by_name["all_gather"][r].size() == 1);
            CHECK(by_name["all_gather"][r][0].at("args").at("started") == true);
            double folded = 0;
            for (const json& e : by_name["fold"][r]) folded += number(e.at("args"), "bytes");
            CHECK(folded == 20 * 2 * count * 4 / 3);  // n - 1 blocks of a third
            long long next = by_name["all_reduce"][r][0].at("args").at("call").get<long long>();
            for (const json& e : by_name["all_reduce"][r]) {
                CHECK(e.at("args").at("call") == next++);
                CHECK(e.at("args").at("schedule") == "ring");
                CHECK(e.at("args").at("bytes") == count * 4);
            }
            for (const char* const part : {"fold", "copy", "wait"})
                for (const json& e : by_name[part][r]) {
                    bool within = false;
                    for (const char* const call : {"all_reduce", "broadcast", "all_gather", "send", "recv"})
                        for (const json& c : by_name[call][r])
                            within = within || (number(c, "ts") <= number(e, "ts") + 0.002 &&
                                                   number(e, "ts") + number(e, "dur") <=
                                                       number(c, "ts") + number(c, "dur") + 0.004);
                    CHECK(within);
                }
        }
    }
}

TEST_CASE("trace: a call that fails is recorded as such, and without the variable there is no file", "[tool]") {
    const folder f;
    const auto mistake = [&] {
        colls::threads::run(2, [](colls::communicator& comm) {
            std::vector<int> x(comm.rank() == 0 ? 100'000 : 99'999);
            try {
                colls::all_reduce(comm, x, colls::sum);
            } catch (const colls::error&) {}
        });
    };
    mistake();
    CHECK(f.events().empty());
    {
        const support::with_environment traced("COLLS_TRACE", f.file("trace.json").c_str());
        mistake();
    }
    int failed = 0;
    for (const json& e : f.events())
        failed += e.at("ph") == "X" && e.at("name") == "all_reduce" && e.at("args").value("failed", false);
    CHECK(failed == 2);
}

TEST_CASE("trace: a file that cannot be written costs a warning, and nothing else", "[tool]") {
    const support::program_result r = support::execute(
        "COLLS_TRACE=/nowhere/trace.json '" COLLS_TEST_PERF "' --ranks 2 -b 1K -e 1K -n 2 -w 0 all_reduce");
    INFO(r.text);
    CHECK(r.status == 0);
    const std::string warning = "cannot open /nowhere/trace.";
    REQUIRE(r.text.find(warning) != std::string::npos);
    CHECK(r.text.find(warning, r.text.find(warning) + 1) == std::string::npos);
}

TEST_CASE("trace: clocks of two hosts are set by the calls", "[tool]") {
    const folder f;
    f.write({0, "h0", "a", 0, {{0, 100}, {0, 60}, {10, 50}}});
    f.write({1, "h1", "b", 5e6, {{90, 101}, {-50, 2}, {0, 60}}});
    const json s = f.summary();
    // The first call says that it is ahead by 4,999,990 us or more, the second by 5,000,002 or less.
    CHECK(s.at("clocks").at(1).at("ahead").get<double>() == Approx(4'999'996));
    CHECK(s.at("clocks").at(1).at("unsure").get<double>() == Approx(6));
    CHECK(s.at("calls") == 3);
    CHECK(s.at("late").at(0).at("rank") == "rank 1 of group 0");  // 94 us in the first call
    CHECK(s.at("late").at(0).at("microseconds").get<double>() == Approx(94));
    CHECK(s.at("late").at(1).at("microseconds").get<double>() == Approx(46 + 6));

    const support::program_result merged = support::execute(
        "'" COLLS_TEST_TOOL "' trace merge '" + f.file("trace.json") + "' -o '" + f.file("all.json") + "'");
    REQUIRE(merged.status == 0);
    double last = 0;
    std::map<int, std::set<int>> ranks_of;  // by process
    std::map<int, std::string> names;
    std::ifstream in(f.file("all.json"));
    for (const json& e : json::parse(in)) {
        if (e.at("name") == "process_name") names[e.at("pid").get<int>()] = e.at("args").at("name").get<std::string>();
        if (e.at("ph") != "X") continue;
        last = std::max(last, number(e, "ts"));
        ranks_of[e.at("pid").get<int>()].insert(e.at("args").at("rank").get<int>());
    }
    CHECK(last == Approx(2010));
    CHECK(ranks_of == std::map<int, std::set<int>>{{1, {0}}, {2, {1}}});  // both are process 7 of their hosts
    CHECK(names == std::map<int, std::string>{{1, "h0, process 7"}, {2, "h1, process 7"}});

    // What merge has made, it reads again.
    fs::remove(f.file("trace.h0.7.json"));
    fs::remove(f.file("trace.h1.7.json"));
    fs::rename(f.file("all.json"), f.file("trace.json"));
    const json again = f.summary();
    CHECK(again.at("late") == s.at("late"));
    CHECK(again.at("calls") == 3);
}

TEST_CASE("trace: ranks of two containers, with the same process and thread on one clock, are two", "[tool]") {
    const folder f;
    f.write({0, "c0", "boot", 0, {{0, 100}}});
    f.write({1, "c1", "boot", 0, {{90, 101}}});
    const json s = f.summary();
    CHECK(s.at("clocks").size() == 1);
    CHECK(s.at("late").size() == 2);
    CHECK(s.at("late").at(0).at("host") == "c1");
}

TEST_CASE(
    "trace: of several ranks with one clock, the last to begin and the first to end set the other clock", "[tool]") {
    const folder f;
    f.write({0, "c0", "a", 0, {{10, 100}}, "0", 3});
    f.write({1, "c1", "a", 0, {{40, 70}}, "0", 3});
    f.write({2, "h2", "b", 1000, {{20, 90}}, "0", 3});
    const json clock = f.summary().at("clocks").at(1);
    // Not before rank 1 had begun, at 40, does rank 2 end; it has begun when rank 1 ends, at 70.
    CHECK(clock.at("ahead").get<double>() == Approx((1090 - 40 + 1020 - 70) / 2.0));
    CHECK(clock.at("unsure").get<double>() == Approx(50));
}

TEST_CASE("trace: waits of messages are of no call, and count with the messages' time", "[tool]") {
    const folder f;
    f.write({0, "h0", "one", 0, {{0, 100}}, "0", 2, {{10, 60, 1}}});
    f.write({1, "h1", "one", 0, {{0, 100}}});
    const std::string name = f.file("trace.h0.7.json");
    json all;
    std::ifstream(name) >> all;
    json sent = all.at(1), waited = all.at(2);
    sent["name"] = "send";
    sent["args"]["call"] = -1;
    sent["ts"] = 300;
    waited["ts"] = 310;
    waited["dur"] = 80;
    for (const json& e : {sent, waited}) all.push_back(e);
    std::ofstream(name) << all;
    json s = f.summary();
    CHECK(number(s, "wait_share") == Approx(130.0 / 300));
    CHECK(number(s, "seconds") == Approx(400e-6));
    REQUIRE(s.at("waits").size() == 1);
    CHECK(number(s.at("waits").at(0), "microseconds") == Approx(50));
    // Messages alone:
    std::ofstream(name) << json::array({all.at(0), sent, waited});
    fs::remove(f.file("trace.h1.7.json"));
    const std::string text = f.text();
    INFO(text);
    CHECK(text.starts_with("1 ranks, 0 collective calls, 100.0 us\n"));
    CHECK(text.find("waited for 80 % of the time") != std::string::npos);
    CHECK(text.find("nan") == std::string::npos);
}

TEST_CASE("trace: runs that left their files in one folder are not mixed up", "[tool]") {
    const folder f;
    const std::vector<std::pair<double, double>> calls(3, {0, 100});
    f.write({0, "h0", "one", 0, calls, "0", 2, {}, 8, "a.0"});
    f.write({1, "h1", "one", 0, {{90, 100}, {90, 100}, {90, 100}}, "0", 2, {}, 8, "a.0"});
    f.write({0, "h2", "one", 1e6, calls, "0", 2, {{20, 60, 1}}, 8, "b.0"});
    f.write({1, "h3", "one", 1e6, calls, "0", 2, {}, 8, "b.0"});
    json s = f.summary();
    CHECK(s.at("calls") == 6);
    CHECK(s.at("late").at(0).at("host") == "h1");
    REQUIRE(s.at("waits").size() == 1);
    CHECK(s.at("waits").at(0).at("for") == "rank 1 of group 0 (h3)");
    // Neither is what merge has made of them, nor the trace of another name that begins like this one.
    REQUIRE(support::execute("'" COLLS_TEST_TOOL "' trace merge '" + f.file("trace.json") + "' -o '" +
                             f.file("trace.all.json") + "'")
                .status == 0);
    fs::copy(f.file("trace.h1.7.json"), f.file("trace.2.h1.7.json"));
    CHECK(f.summary() == s);
}

TEST_CASE("trace: a program whose locale has a comma in numbers writes JSON, and reads what has points", "[tool]") {
    const folder f;
    if (support::execute("localedef -i de_DE -f UTF-8 '" + f.file("de_DE.UTF-8") + "'").status != 0) {
        WARN("left out: localedef makes no locale here");
        return;
    }
    const folder traces;
    {
        const std::string folder_of_locales = fs::path(f.file("x")).parent_path().string();
        const support::with_environment where("LOCPATH", folder_of_locales.c_str()), timeout("COLLS_TIMEOUT", "20.5"),
            traced("COLLS_TRACE", traces.file("trace.json").c_str());
        REQUIRE(std::setlocale(LC_NUMERIC, "de_DE.UTF-8") != nullptr);
        std::array<char, 8> text{};
        std::snprintf(text.data(), text.size(), "%.1f", 0.5);
        CHECK(std::string_view(text.data()) == "0,5");
        colls::threads::run(2, [](colls::communicator& comm) {
            std::vector<int> x(10);
            colls::all_reduce(comm, x, colls::sum);
        });
        std::setlocale(LC_NUMERIC, "C");
    }
    int calls = 0;
    std::set<std::string> numbers;
    for (const json& e : traces.events()) {
        calls += e.at("name") == "all_reduce" && e.at("dur").is_number_float();
        if (e.at("name") == "colls") numbers.insert(e.at("args").at("number").get<std::string>());
    }
    CHECK(calls == 2);
    CHECK(numbers.size() == 1);
}

TEST_CASE("trace: a clock that no call joins with the first is said to be unknown", "[tool]") {
    const folder f;
    f.write({0, "h0", "a", 0, {{0, 100}}});
    f.write({1, "h1", "b", 0, {{90, 101}}, "1"});
    CHECK(f.summary().at("clocks").at(1).at("unsure").is_null());
    const support::program_result r =
        support::execute("'" COLLS_TEST_TOOL "' trace summary '" + f.file("trace.json") + "'");
    CHECK(r.status == 0);
    INFO(r.text);
    CHECK(r.text.find("The clock of h1 is not set: no call joins it with that of h0.") != std::string::npos);
}

TEST_CASE("trace: what is no trace is refused", "[tool]") {
    const folder f;
    const auto refusal = [&](const std::string& name) {
        const support::program_result r =
            support::execute("'" COLLS_TEST_TOOL "' trace summary '" + f.file(name) + "'");
        CHECK(r.status == 2);
        return r.text;
    };
    CHECK(refusal("missing.json").find("no file that COLLS_TRACE=") != std::string::npos);
    std::ofstream(f.file("text.json")) << "hello";
    CHECK(refusal("text.json").find("is not a trace") != std::string::npos);
    std::ofstream(f.file("other.json")) << "[{\"a\":1}]";
    CHECK(refusal("other.json").find("event 0 is not one that COLLS_TRACE writes: ") != std::string::npos);
    std::ofstream(f.file("empty.json")) << "[]";
    CHECK(refusal("empty.json").find("no call in it") != std::string::npos);
}

TEST_CASE("trace: of a file that was cut the whole events are summed up, and the cut is said", "[tool]") {
    const folder f;
    f.write({0, "h0", "c0", 0, {{0, 10}, {20, 30}}, "0", 2, {{1, 3, 1}}});
    const std::string file = f.file("trace.h0.7.json");
    std::ifstream in(file);
    const std::string whole(std::istreambuf_iterator<char>(in), {});
    const std::size_t events = json::parse(whole).size(), end = whole.rfind('}');
    const auto summary = [&](std::size_t bytes) {
        std::ofstream(file) << whole.substr(0, bytes);
        return support::execute("'" COLLS_TEST_TOOL "' trace summary '" + file + "'");
    };
    for (const std::size_t bytes : {end + 1, end, end - 1, end - 30}) {
        const support::program_result r = summary(bytes);
        INFO(whole.substr(0, bytes) << ": " << r.text);
        CHECK(r.status == 0);
        const std::size_t left = bytes > end ? events : events - 1;
        CHECK(r.text.find(" is cut: it has " + std::to_string(left) + " whole events") != std::string::npos);
    }
    CHECK(summary(whole.find('}')).status == 2);
    CHECK(summary(whole.size()).text.find("is cut") == std::string::npos);
}

TEST_CASE("trace: spoiled traces are summed up, or refused in one line", "[tool]") {
    const folder f;
    f.write({0, "h0", "c0", 0, {{0, 10}, {0, 12}}, "0", 2, {{1, 3, 1}}});
    f.write({1, "h1", "c1", 50, {{0, 10}, {0, 12}}});
    std::ifstream in(f.file("trace.h0.7.json"));
    const json whole = json::parse(in);
    support::spoiled(whole, [&](const json& trace) {
        std::ofstream(f.file("trace.h0.7.json")) << trace;
        const support::program_result r =
            support::execute("'" COLLS_TEST_TOOL "' trace summary '" + f.file("trace.json") + "'");
        INFO(trace << ": " << r.text);
        CHECK((r.status == 0 || r.status == 2));
        CHECK(r.text.find("json.exception") == std::string::npos);
        if (r.status == 2) CHECK(std::count(r.text.begin(), r.text.end(), '\n') == 1);
    });
}
