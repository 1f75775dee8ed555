#include "collective_names.hpp"
#include "mscclpp.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace exchange {

namespace {

using nlohmann::json;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// What an operation does, by its name.
struct kind {
    bool put = false;            ///< sources are stored into remote destinations
    bool reduces = false;        ///< sources into the first destination
    bool sends = false;          ///< and that into the remote ones
    bool packets = false;        ///< what is sent are packets
    bool reads_packets = false;  ///< the sources are packets; of a reduction all but the first
    bool signals = false;        ///< the receivers
};
const std::map<std::string, kind> data_operations{{"put", {true}}, {"pws", {true, false, false, false, false, true}},
    {"pwsf", {true, false, false, false, false, true}}, {"ppkt", {true, false, false, true}},
    {"rppkt", {true, false, false, true, true}}, {"get", {true}}, {"copy", {true}},
    {"cpkt", {true, false, false, true}}, {"upkt", {true, false, false, false, true}}, {"re", {false, true}},
    {"rre", {false, true}}, {"res", {false, true, true}}, {"rres", {false, true, true}},
    {"repkt", {false, true, false, false, true}}, {"respkt", {false, true, true, true, true}}};

class mscclpp_reader {
public:
    explicit mscclpp_reader(const json& plan) : plan_(plan) {}

    program read() {
        const json& gpus = plan_.at("gpus");
        p_.name = plan_.value("name", "plan");
        p_.implements = collective_of_plan(plan_.at("collective").get<std::string>());
        p_.ranks = static_cast<int>(gpus.size());
        p_.in_place = plan_.value("inplace", true);
        for (const json& gpu : gpus)
            p_.blocks = std::max({p_.blocks, gpu.at("input_chunks").get<int>(), gpu.at("output_chunks").get<int>()});
        const bool divided = colls::owned(p_.implements) || p_.implements == colls::collective::all_to_all;
        if (p_.ranks < 1 || p_.blocks < 1 || p_.blocks > (1 << 16) || (divided && p_.blocks % p_.ranks != 0))
            throw refused(fmt::format("{} chunks cannot be divided among {} ranks", p_.blocks, p_.ranks));
        for (int r = 0; r < p_.ranks; ++r) {
            if (gpus[at(r)].at("id").get<int>() != r) throw refused(fmt::format("gpu {} is not in its place", r));
            for (const json& tb : gpus[at(r)].at("threadblocks")) read_block(r, tb);
            join_barriers(r);
        }
        match_signals();
        match_packets();
        return std::move(p_);
    }

private:
    using channel = std::tuple<int, int, std::string, int>;  // from, to, type, number among those
    struct counted {
        std::vector<int> events;
        std::set<int> threads;
    };

    void read_block(int rank, const json& tb) {
        const int thread = threads_++;
        int last = colls::none, step = 0;
        for (const json& op : tb.at("ops")) {
            const std::string name = op.at("name").get<std::string>();
            const int event = add_event({rank, thread, tb.at("id").get<int>(), step++, name});
            if (last != colls::none) p_.waits.emplace_back(last, event);
            last = event;
            if (op.contains("tbg_info")) throw refused(words(p_.events[at(event)]) + " is shared by thread blocks");
            if (name == "nop" || name == "flush") continue;
            if (name == "signal" || name == "rlxsignal" || name == "wait" || name == "rlxwait") {
                for (const json& id : op.at("channel_ids"))
                    count(name.ends_with("signal"), rank, tb, op.at("channel_type").get<std::string>(), id.get<int>(),
                        event);
            } else if (name == "barrier") {
                // All arrive before one goes on.
                last = add_event(p_.events[at(event)]);
                p_.waits.emplace_back(event, last);
                const int id = op.at("barrier_id").get<int>();
                auto& mine = barriers_[{id, passed_[{thread, id}]++}];
                mine.members.emplace_back(event, last);
                mine.wanted = op.at("num_threadblocks").get<int>();
            } else if (const auto found = data_operations.find(name); found != data_operations.end()) {
                read_data(rank, tb, op, found->second, event);
            } else {
                throw refused(words(p_.events[at(event)]) +
                              ": such operations are not copies or reductions between "
                              "two ranks, or not known");
            }
        }
    }
    int add_event(event e) {
        p_.events.push_back(std::move(e));
        return static_cast<int>(p_.events.size()) - 1;
    }

    /// An entry of a list in the plan, by number.
    const json& listed(const json& list, int index, int event) const {
        if (index < 0 || index >= static_cast<int>(list.size()))
            throw refused(
                fmt::format("{} names number {} of a list of {}", words(p_.events[at(event)]), index, list.size()));
        return list[at(index)];
    }
    /// A thread block's list for one type of channel.
    const json& own_list(
        const json& tb, const char* lists, const char* key, const char* ids, const std::string& type, int event) const {
        if (tb.contains(lists))
            for (const json& each : tb.at(lists))
                if (each.at(key).get<std::string>() == type) return each.at(ids);
        throw refused(
            fmt::format("{} uses {} channels, of which its thread block has none", words(p_.events[at(event)]), type));
    }
    channel channel_of(int rank, const json& tb, const std::string& type, int id, int event) const {
        const int own =
            listed(own_list(tb, "channels", "channel_type", "channel_ids", type, event), id, event).get<int>();
        for (const json& each : plan_.at("gpus")[at(rank)].at("channels")) {
            if (each.at("channel_type").get<std::string>() != type || !each.contains("connected_to")) continue;
            const json& peers = each.at("connected_to");
            const int to = listed(peers, own, event).get<int>();
            if (to < 0 || to >= p_.ranks || to == rank)
                throw refused(fmt::format("{} names gpu {}", words(p_.events[at(event)]), to));
            int before = 0;
            for (int i = 0; i < own; ++i) before += peers[at(i)].get<int>() == to;
            return {rank, to, type, before};
        }
        throw refused(fmt::format("{}: gpu {} has no {} channels to another", words(p_.events[at(event)]), rank, type));
    }
    void count(bool signal, int rank, const json& tb, const std::string& type, int id, int event) {
        channel c = channel_of(rank, tb, type, id, event);
        if (!signal) std::swap(std::get<0>(c), std::get<1>(c));  // the peer's end
        counted& side = (signal ? signals_ : waits_)[c];
        side.events.push_back(event);
        side.threads.insert(p_.events[at(event)].thread);
        if (side.threads.size() > 1)
            throw refused(words(p_.events[at(event)]) + ": another thread block uses this channel, in no known order");
    }

    std::vector<place> places(int rank, const json& tb, const json& chunk, const std::string& type, int event) const {
        int owner = rank;
        std::string buffer;
        if (chunk.contains("buffer_id")) {
            const json& ids =
                own_list(tb, "remote_buffer_refs", "access_channel_type", "remote_buffer_ids", type, event);
            const json& remote = listed(plan_.at("gpus")[at(rank)].at("remote_buffers"),
                listed(ids, chunk.at("buffer_id").get<int>(), event).get<int>(), event);
            owner = remote.at("rank").get<int>();
            buffer = remote.at("type").get<std::string>();
        } else if (chunk.contains("type")) {
            buffer = chunk.at("type").get<std::string>();
        } else {
            throw refused(words(p_.events[at(event)]) + " names neither a local nor a remote buffer");
        }
        if (owner < 0 || owner >= p_.ranks)
            throw refused(fmt::format("{} names a buffer of gpu {}", words(p_.events[at(event)]), owner));
        const int size = chunk.at("size").get<int>(),
                  scratch = plan_.at("gpus")[at(owner)].at("scratch_chunks").get<int>();
        if (size < 1 || size > p_.blocks + scratch)
            throw refused(fmt::format("{} is about {} chunks", words(p_.events[at(event)]), size));
        std::vector<place> all;
        for (int i = 0; i < size; ++i)
            all.push_back(
                place_of(p_, owner, buffer, chunk.at("index").get<int>() + i, scratch, words(p_.events[at(event)])));
        return all;
    }
    void read_data(int rank, const json& tb, const json& op, const kind& k, int event) {
        const std::string type = op.value("channel_type", "memory");
        std::vector<std::vector<place>> from, to;
        for (const json& chunk : op.at("src_buff")) from.push_back(places(rank, tb, chunk, type, event));
        for (const json& chunk : op.at("dst_buff")) to.push_back(places(rank, tb, chunk, type, event));
        if (from.empty() || to.empty()) throw refused(words(p_.events[at(event)]) + " names no chunks");
        if (k.reads_packets)
            for (std::size_t i = k.reduces ? 1 : 0; i < from.size(); ++i)
                for (const place& p : from[i]) packets_read_.emplace_back(p, event);
        if (k.put) {
            for (std::size_t i = 0; i < to.size(); ++i)
                add(from.size() == 1 ? from[0] : from.at(std::min(i, from.size() - 1)), to[i], colls::action::copy, 1,
                    k.packets, event);
        } else {
            if (from[0] != to[0]) add(from[0], to[0], colls::action::copy, 0, false, event);
            for (std::size_t i = 1; i < from.size(); ++i) add(from[i], to[0], colls::action::reduce, 1, false, event);
            if (k.sends)
                for (std::size_t i = 1; i < to.size(); ++i) add(to[0], to[i], colls::action::copy, 2, k.packets, event);
        }
        if (k.signals)
            for (const json& id : op.at("channel_ids")) count(true, rank, tb, type, id.get<int>(), event);
    }
    void add(const std::vector<place>& from, const std::vector<place>& to, colls::action action, int phase,
        bool packets, int event) {
        if (from.size() != to.size())
            throw refused(fmt::format("{} moves {} chunks to {}", words(p_.events[at(event)]), from.size(), to.size()));
        for (std::size_t i = 0; i < from.size(); ++i) {
            if (from[i] != to[i] && std::ranges::find(from, to[i]) != from.end())
                throw refused(words(p_.events[at(event)]) + " reads chunks that it writes");
            p_.moves.push_back({action, from[i], to[i], event, event, phase, phase, p_.groups});
            if (packets) packets_written_[to[i]].push_back(event);
        }
        ++p_.groups;
    }

    void join_barriers(int rank) {
        for (const auto& [key, met] : barriers_) {
            if (static_cast<int>(met.members.size()) != met.wanted)
                throw refuted(fmt::format("gpu {} waits for ever: {} of {} thread blocks arrive at barrier {}", rank,
                    met.members.size(), met.wanted, key.first));
            for (const auto& [arrives, unused] : met.members)
                for (const auto& [unused_too, leaves] : met.members) p_.waits.emplace_back(arrives, leaves);
        }
        barriers_.clear();
    }
    /// The k-th wait on a channel ends with the k-th signal.
    void match_signals() {
        for (const auto& [key, waits] : waits_) {
            const auto& signals = signals_[key].events;
            if (waits.events.size() > signals.size())
                throw refuted(fmt::format("{} waits for ever: gpu {} signals {} times",
                    words(p_.events[at(waits.events[signals.size()])]), std::get<0>(key), signals.size()));
        }
        for (const auto& [key, signals] : signals_) {
            const auto& waits = waits_[key].events;
            if (signals.events.size() > waits.size())
                throw refuted(fmt::format(
                    "gpu {} never waits for {}", std::get<1>(key), words(p_.events[at(signals.events[waits.size()])])));
            for (std::size_t i = 0; i < waits.size(); ++i) p_.waits.emplace_back(signals.events[i], waits[i]);
        }
    }
    /// A packet says itself that it has come: it is written once in a call.
    void match_packets() {
        for (const auto& [chunk, event] : packets_read_) {
            const auto written = packets_written_.find(chunk);
            if (written == packets_written_.end())
                throw refuted(
                    fmt::format("{} waits for ever for a packet in {}", words(p_.events[at(event)]), words(chunk)));
            if (written->second.size() > 1)
                throw refused(fmt::format("{} reads a packet from {}, where {} are written",
                    words(p_.events[at(event)]), words(chunk), written->second.size()));
            p_.waits.emplace_back(written->second[0], event);
        }
    }

    struct barrier {
        std::vector<std::pair<int, int>> members;  // events of arriving, and of leaving
        int wanted = 0;
    };
    const json& plan_;
    program p_;
    int threads_ = 0;
    std::map<channel, counted> signals_, waits_;
    std::map<std::pair<int, int>, barrier> barriers_;  // of one gpu: id, and how often
    std::map<std::pair<int, int>, int> passed_;        // thread and id
    std::map<place, std::vector<int>> packets_written_;
    std::vector<std::pair<place, int>> packets_read_;
};

}  // namespace

program read_mscclpp(const std::string& text) {
    const json plan = json::parse(text);
    return mscclpp_reader(plan).read();
}

}  // namespace exchange
