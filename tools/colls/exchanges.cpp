#include "exchanges.hpp"

#include "../input.hpp"
#include "commands.hpp"
#include "exchange/dot.hpp"
#include "exchange/msccl.hpp"
#include "exchange/mscclpp.hpp"
#include "exchange/plan_file.hpp"
#include "exchange/trace.hpp"
#include "exchange/try_plan.hpp"
#include "json_text.hpp"
#include "progress.hpp"

#include <colls/error.hpp>
#include <colls/verify.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace tool {

namespace {

using nlohmann::json;

std::string count_of(long count, const std::string& one) {
    return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

}  // namespace

std::vector<exported_file> exported(const entry& e, int n, const export_request& how) {
    if (!e.schedule.supports(n)) throw std::runtime_error(fmt::format("{} does not support {} ranks", e.family, n));
    constexpr double most_counted = 1e8, most_sent = 2e6;  // a block that is sent takes 0.7 to 10 KB
    expect_few(e, n, "steps", e.steps(n), most_counted);
    const progress shown;
    const std::string now = fmt::format("{}: {} ranks", e.family, n);
    shown.say(now);
    const colls::cost c = colls::traffic_of(watched(e.schedule, n, shown, now), n);
    expect_few(e, n, "blocks to send", static_cast<double>(std::max(c.all_sent, c.messages)), most_sent);
    const colls::report proof = colls::verify(watched(e.schedule, n, shown, now + ": proof"), n);
    if (!proof.ok()) throw std::runtime_error("only schedules that are right are exported: " + proof.text());
    shown.say(now + ": proven, being written");
    const std::string name = fmt::format("{} {} on {} ranks", e.family, colls::name_of(e.schedule.implements), n);
    if (how.format == "msccl") return {{"", exchange::write_msccl(e.schedule, n, {name, how.out_of_place})}};
    if (how.format == "mscclpp") return {{"", exchange::write_mscclpp(e.schedule, n, name)}};
    if (how.format == "dot") return {{"", exchange::write_dot(e.schedule, n, name)}};
    if (how.format == "trace") return {{"", exchange::write_trace(e.schedule, n, how.bytes, name)}};
    if (how.format != "chakra")
        throw std::runtime_error(input::unknown("format", how.format, {"msccl", "mscclpp", "dot", "trace", "chakra"}));
    std::vector<exported_file> files;
    for (std::string& content : exchange::write_chakra(e.schedule, n, how.bytes, name))
        files.push_back({fmt::format(".{}.et", files.size()), std::move(content)});
    return files;
}

int import(const std::string& file, double bytes, const colls::model& m, bool run, bool as_json) {
    const auto plan = exchange::load_plan(file);
    const exchange::imported& from = *plan->from;
    const exchange::transfer_table& t = from.table;
    const int n = t.ranks;
    const std::size_t steps = from.plan.events.size() - from.plan.begins.size() - from.plan.ends.size();
    const colls::report proof = colls::verify(plan->schedule, n);
    json row{{"file", file}, {"format", plan->format}, {"name", t.name}, {"collective", colls::name_of(t.implements)},
        {"ranks", n}, {"in_place", from.plan.in_place}, {"steps", steps}, {"rounds", t.rounds}, {"ports", t.ports},
        {"blocks", t.blocks}, {"scratch", t.scratch}, {"proven", proof.ok()}, {"sizes", plan->sizes}};
    if (!as_json)
        fmt::print("{} \"{}\": {} on {} ranks, {}\n{} in {}: {}, {}, {}\n", plan->format, t.name,
            colls::name_of(t.implements), n, from.plan.in_place ? "in place" : "out of place",
            count_of(static_cast<long>(steps), "step"), count_of(t.rounds, "round"), count_of(t.ports, "port"),
            count_of(t.blocks, "block"), count_of(t.scratch, "scratch slot"));
    if (!as_json && plan->sizes > 1)
        fmt::print(
            "proven with chunks of {} other sizes, too: these decide what its thread blocks do\n", plan->sizes - 1);
    if (!as_json && from.apart > 0)
        fmt::print("{} of the output cannot be where the input is: copied at the end\n", count_of(from.apart, "block"));
    if (!as_json && from.copied_ahead > 0)
        fmt::print("{} copied before it is sent: its place is written before it arrives\n",
            from.copied_ahead == 1 ? "1 message is" : fmt::format("{} messages are", from.copied_ahead));
    int status = good;
    if (proof.ok()) {
        const colls::cost c = colls::traffic_of(plan->schedule, n);
        const double seconds = c.seconds(m, bytes);
        row["messages"] = c.messages;
        row["seconds"] = seconds;
        if (!as_json)
            fmt::print("{}\n{}, {} sent by the busiest rank: {} for {}\n", proof.text(),
                count_of(c.messages, "message"), count_of(c.blocks_sent, "block"), show_time(seconds),
                show_size(bytes));
    } else {
        status = refuted;
        const std::string there = proof.round == colls::none ? "" : from.steps_at(proof.rank, proof.round);
        row["finding"] = proof.text();
        row["steps"] = there;
        if (!as_json) fmt::print("refuted: {}\n", proof.text());
        if (!as_json && !there.empty()) fmt::print("there the plan has {}\n", there);
    }
    if (proof.ok() && run) {
        constexpr int elements = 1000;
        try {
            const std::string difference = exchange::try_plan(plan->schedule, n, elements);
            row["run"] = difference.empty() ? "right" : difference;
            if (!as_json)
                fmt::print("run over {} threads: {}\n", n, difference.empty() ? "every element is right" : difference);
            if (!difference.empty()) status = refuted;
        } catch (const colls::error& e) {
            row["run"] = std::string("not run: ") + e.what();
            if (!as_json) fmt::print("proven, and not run: {}\n", e.what());
            status = not_run;
        }
    }
    if (as_json) print(row);
    return status;
}

}  // namespace tool
