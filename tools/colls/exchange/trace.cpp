#include "trace.hpp"

#include <colls/views.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <utility>

namespace exchange {

namespace {

using nlohmann::json;
using attributes = std::vector<std::pair<std::string, trace_node::value>>;

/// The nodes of one rank, with what touched its slots last.
struct rank_trace {
    std::vector<trace_node> nodes;
    std::map<int, std::set<std::uint64_t>> written, read;  ///< of a slot: nodes since it was last copied to, or written

    template <class Set>
    trace_node& add(node_type type, std::string name, const Set& reads, const Set& writes, attributes with) {
        std::set<std::uint64_t> data, control;
        for (int i = 0; i < reads.size(); ++i) data.insert(written[reads[i]].begin(), written[reads[i]].end());
        for (int i = 0; i < writes.size(); ++i) {
            control.insert(read[writes[i]].begin(), read[writes[i]].end());
            control.insert(written[writes[i]].begin(), written[writes[i]].end());
        }
        for (const std::uint64_t d : data) control.erase(d);
        nodes.push_back({nodes.size(), std::move(name), type, data, control, std::move(with)});
        return nodes.back();
    }
    template <class Set>
    void reads(std::uint64_t id, const Set& slots) {
        for (int i = 0; i < slots.size(); ++i) read[slots[i]].insert(id);
    }
    template <class Set>
    void writes(std::uint64_t id, const Set& slots) {
        for (int i = 0; i < slots.size(); ++i) {
            written[slots[i]] = {id};
            read[slots[i]].clear();
        }
    }
};

/// Attributes of a rank's own work on this many bytes. A reduction reads two and writes one, a copy reads one and
/// writes one.
attributes work_on(std::int64_t bytes, bool reduces) {
    constexpr std::int64_t element = 4;
    return {{"num_bytes", bytes}, {"tensor_size", static_cast<std::uint64_t>(bytes * (reduces ? 3 : 2))},
        {"num_ops", std::max<std::int64_t>(1, bytes / element)}};
}

std::string schema_name(node_type type) {
    return type == node_type::send ? "COMM_SEND_NODE" : type == node_type::receive ? "COMM_RECV_NODE" : "COMP_NODE";
}

json as_json(const trace_node& node) {
    json attr = json::object();
    for (const auto& [name, value] : node.attributes) std::visit([&](const auto v) { attr[name] = v; }, value);
    return {{"id", node.id}, {"name", node.name}, {"type", schema_name(node.type)}, {"data_deps", node.data_deps},
        {"ctrl_deps", node.ctrl_deps}, {"attr", attr}};
}

}  // namespace

std::vector<std::vector<trace_node>> trace_of(const colls::any_schedule& s, int n, double bytes) {
    const int blocks = s.blocks(n);
    const auto size = [&](const colls::block_set& set) {
        return static_cast<std::int64_t>(blocks > 0 ? bytes * set.size() / blocks : 0);
    };
    std::vector<rank_trace> ranks(static_cast<std::size_t>(n));
    const auto of = [&](int rank) -> rank_trace& { return ranks[static_cast<std::size_t>(rank)]; };
    const colls::block_set nothing{};
    std::int32_t tag = 0;
    for (int round = 0; round < s.rounds(n); ++round) {
        struct effect {
            int rank;
            std::uint64_t id;
            colls::block_set read, written;
        };
        // The round's nodes read the state at its start. A rank's sends come first, then its receives, which wait for
        // no send of the round: so ranks that run one node after another do not wait for each other, and neither do
        // those whose sends end when they are received. What the rank then writes itself waits for the sends that read
        // it.
        std::vector<effect> sends, effects;
        std::vector<std::uint64_t> receives;
        const auto transfers = colls::views::transfers(s, n, round, round + 1) | ranges::to<std::vector>();
        const auto message = [&](const colls::views::transfer& t, std::int32_t number) -> attributes {
            return {{"comm_src", t.from}, {"comm_dst", t.to}, {"comm_tag", number}, {"comm_size", size(t.blocks)}};
        };
        const std::int32_t first = tag;
        for (const colls::views::transfer& t : transfers) {
            if (t.local()) continue;
            const std::string name = fmt::format("to {} in round {}", t.to, round);
            const trace_node& sent = of(t.from).add(node_type::send, name, t.blocks, nothing, message(t, tag++));
            sends.push_back({t.from, sent.id, t.blocks, nothing});
        }
        tag = first;
        for (const colls::views::transfer& t : transfers) {
            if (t.local()) continue;
            const std::string name = fmt::format("from {} in round {}", t.from, round);
            const trace_node& got = of(t.to).add(node_type::receive, name, nothing, t.stored, message(t, tag++));
            receives.push_back(got.id);
            if (t.action != colls::action::reduce) effects.push_back({t.to, got.id, nothing, t.stored});
        }
        for (const effect& e : sends) of(e.rank).reads(e.id, e.read);
        std::map<std::pair<int, int>, std::uint64_t> folded;  // of a rank's slot: the round's latest reduction into it
        std::size_t at = 0;
        for (const colls::views::transfer& t : transfers) {
            const bool reduces = t.action == colls::action::reduce, local = t.local();
            const std::uint64_t got = local ? 0 : receives[at++];
            if (!local && !reduces) continue;
            const colls::block_set& operand = local ? t.blocks : t.stored;
            trace_node& own =
                of(t.to).add(node_type::compute, fmt::format("{} in round {}", reduces ? "reduce" : "copy", round),
                    operand, t.stored, work_on(size(t.stored), reduces));
            if (!local) own.data_deps.insert(got);
            for (int i = 0; reduces && i < t.stored.size(); ++i) {
                const auto [last, first_one] = folded.try_emplace({t.to, t.stored[i]}, own.id);
                if (!first_one) own.data_deps.insert(std::exchange(last->second, own.id));
            }
            effects.push_back({t.to, own.id, operand, t.stored});
        }
        for (const effect& e : effects) of(e.rank).reads(e.id, e.read);
        for (const effect& e : effects) of(e.rank).writes(e.id, e.written);
    }
    std::vector<std::vector<trace_node>> all;
    for (rank_trace& r : ranks) {
        if (r.nodes.empty()) r.add(node_type::compute, "nothing to do", nothing, nothing, work_on(0, false));
        all.push_back(std::move(r.nodes));
    }
    return all;
}

std::string write_trace(const colls::any_schedule& s, int n, double bytes, const std::string& name) {
    json all = json::array();
    for (const std::vector<trace_node>& nodes : trace_of(s, n, bytes)) {
        json of_rank = json::array();
        for (const trace_node& node : nodes) of_rank.push_back(as_json(node));
        all.push_back({{"rank", all.size()}, {"nodes", of_rank}});
    }
    const json trace{
        {"schema", "nodes of Chakra, as JSON"}, {"name", name}, {"ranks", n}, {"bytes", bytes}, {"traces", all}};
    return trace.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace exchange
