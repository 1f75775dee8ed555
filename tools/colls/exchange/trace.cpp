#include "trace.hpp"

#include <colls/views.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>
#include <set>
#include <vector>

namespace exchange {

namespace {

using nlohmann::json;

/// The nodes of one rank, with what touched its slots last.
struct rank_trace {
    json nodes = json::array();
    std::map<int, std::set<int>> written, read;  ///< of a slot: nodes since it was last copied to, or written

    template <class Set>
    int add(const std::string& type, const std::string& name, const Set& reads, const Set& writes, json attributes) {
        const int id = static_cast<int>(nodes.size());
        std::set<int> data, control;
        for (int i = 0; i < reads.size(); ++i) data.insert(written[reads[i]].begin(), written[reads[i]].end());
        for (int i = 0; i < writes.size(); ++i) {
            control.insert(read[writes[i]].begin(), read[writes[i]].end());
            control.insert(written[writes[i]].begin(), written[writes[i]].end());
        }
        for (const int d : data) control.erase(d);
        nodes.push_back({{"id", id}, {"name", name}, {"type", type}, {"data_deps", data}, {"ctrl_deps", control},
            {"attr", std::move(attributes)}});
        return id;
    }
    template <class Set>
    void reads(int id, const Set& slots) {
        for (int i = 0; i < slots.size(); ++i) read[slots[i]].insert(id);
    }
    template <class Set>
    void writes(int id, const Set& slots) {
        for (int i = 0; i < slots.size(); ++i) {
            written[slots[i]] = {id};
            read[slots[i]].clear();
        }
    }
};

}  // namespace

std::string write_trace(const colls::any_schedule& s, int n, double bytes, const std::string& name) {
    const int blocks = s.blocks(n);
    const auto size = [&](const colls::block_set& set) {
        return static_cast<long>(blocks > 0 ? bytes / blocks * set.size() : 0);
    };
    std::vector<rank_trace> ranks(static_cast<std::size_t>(n));
    const colls::block_set nothing{};
    int tag = 0;
    for (int round = 0; round < s.rounds(n); ++round) {
        struct effect {
            int rank, id;
            colls::block_set read, written;
        };
        std::vector<effect> effects;  // the round's nodes read the state at its start
        for (const colls::views::transfer& t : colls::views::transfers(s, n, round, round + 1)) {
            rank_trace &from = ranks[static_cast<std::size_t>(t.from)], &to = ranks[static_cast<std::size_t>(t.to)];
            const bool reduces = t.action == colls::action::reduce;
            if (t.local()) {
                const int id = from.add("COMP_NODE", fmt::format("{} in round {}", reduces ? "reduce" : "copy", round),
                    t.blocks, t.stored, {{"num_bytes", size(t.blocks)}});
                effects.push_back({t.from, id, t.blocks, t.stored});
                continue;
            }
            const json attributes{
                {"comm_src", t.from}, {"comm_dst", t.to}, {"comm_tag", tag++}, {"comm_size", size(t.blocks)}};
            const int sent = from.add(
                "COMM_SEND_NODE", fmt::format("to {} in round {}", t.to, round), t.blocks, nothing, attributes);
            effects.push_back({t.from, sent, t.blocks, nothing});
            const int got = to.add(
                "COMM_RECV_NODE", fmt::format("from {} in round {}", t.from, round), nothing, t.stored, attributes);
            effects.push_back({t.to, got, nothing, t.stored});
            if (!reduces) continue;
            json reduction{{"num_bytes", size(t.stored)}};
            const int id =
                to.add("COMP_NODE", fmt::format("reduce in round {}", round), t.stored, t.stored, std::move(reduction));
            to.nodes[static_cast<std::size_t>(id)]["data_deps"].push_back(got);
            effects.back() = {t.to, id, t.stored, t.stored};
        }
        for (const effect& e : effects) ranks[static_cast<std::size_t>(e.rank)].reads(e.id, e.read);
        for (const effect& e : effects) ranks[static_cast<std::size_t>(e.rank)].writes(e.id, e.written);
    }
    json all = json::array();
    for (int r = 0; r < n; ++r) all.push_back({{"rank", r}, {"nodes", ranks[static_cast<std::size_t>(r)].nodes}});
    const json trace{
        {"schema", "nodes of Chakra, as JSON"}, {"name", name}, {"ranks", n}, {"bytes", bytes}, {"traces", all}};
    return trace.dump(1) + "\n";
}

}  // namespace exchange
