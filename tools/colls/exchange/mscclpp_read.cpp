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

/// What an operation does, by its name: it copies sources to destinations, one to one, or one to all. A reduction adds
/// the sources into the first destination, and stores the sum into the others, if it has others.
struct kind {
    bool reduces = false;
    bool stores = false;         ///< the destinations are in other ranks' memory; of a reduction all but the first
    bool reads = false;          ///< the sources are there; of a reduction all but the first
    bool packets = false;        ///< what it stores are packets; of a reduction all but the first
    bool reads_packets = false;  ///< the sources are packets; of a reduction all but the first
    bool signals = false;        ///< the receivers
};
const std::map<std::string, kind> data_operations{{"put", {.stores = true}}, {"pws", {.stores = true, .signals = true}},
    {"pwsf", {.stores = true, .signals = true}}, {"ppkt", {.stores = true, .packets = true}},
    {"rppkt", {.stores = true, .packets = true, .reads_packets = true}}, {"get", {.reads = true}}, {"copy", {}},
    {"cpkt", {.packets = true}}, {"upkt", {.reads_packets = true}}, {"re", {.reduces = true}},
    {"rre", {.reduces = true, .reads = true}}, {"res", {.reduces = true, .stores = true}},
    {"rres", {.reduces = true, .stores = true, .reads = true}}, {"repkt", {.reduces = true, .reads_packets = true}},
    {"respkt", {.reduces = true, .stores = true, .packets = true, .reads_packets = true}}};

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
            p_.begins.push_back(add_event({r, threads_++, colls::none, 0, "begin"}));
            for (const json& tb : gpus[at(r)].at("threadblocks")) read_block(r, tb);
            join_barriers(r);
            end(r);
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
        int last = p_.begins.back(), step = 0;
        for (const json& op : tb.at("ops")) {
            const std::string name = op.at("name").get<std::string>();
            const int event = add_event({rank, thread, tb.at("id").get<int>(), step++, name});
            p_.waits.emplace_back(last, event);
            try {
                last = read_operation(rank, tb, op, event);
            } catch (const json::exception& e) {
                throw refused(fmt::format("{}: {}", words(p_.events[at(event)]), e.what()));
            }
        }
        last_.push_back(last);
    }
    /// All thread blocks of a gpu have run.
    void end(int rank) {
        p_.ends.push_back(add_event({rank, threads_++, colls::none, 0, "end"}));
        for (const int last : last_) p_.waits.emplace_back(last, p_.ends.back());
        last_.clear();
    }
    /// The event after which the next operation of the thread block may run.
    int read_operation(int rank, const json& tb, const json& op, int event) {
        const exchange::event at_event = p_.events[at(event)];
        const std::string& name = at_event.type;
        if (op.contains("tbg_info")) throw refused(words(at_event) + " is shared by thread blocks");
        if (name == "nop" || name == "flush") return event;
        if (name == "signal" || name == "rlxsignal" || name == "wait" || name == "rlxwait") {
            for (const json& id : op.at("channel_ids"))
                count(
                    name.ends_with("signal"), rank, tb, op.at("channel_type").get<std::string>(), id.get<int>(), event);
        } else if (name == "barrier") {
            // All arrive before one goes on.
            const int leaves = add_event(at_event);
            p_.waits.emplace_back(event, leaves);
            const int id = op.at("barrier_id").get<int>();
            auto& mine = barriers_[{id, passed_[{at_event.thread, id}]++}];
            mine.members.emplace_back(event, leaves);
            const int wanted = op.at("num_threadblocks").get<int>();
            if (mine.members.size() > 1 && mine.wanted != wanted)
                throw refused(fmt::format(
                    "{} waits for {} thread blocks, another one there for {}", words(at_event), wanted, mine.wanted));
            mine.wanted = wanted;
            return leaves;
        } else if (const auto found = data_operations.find(name); found != data_operations.end()) {
            read_data(rank, tb, op, found->second, event);
        } else {
            throw refused(
                words(at_event) + ": such operations are not copies or reductions between two ranks, or not known");
        }
        return event;
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
            if (owner == rank) throw refused(words(p_.events[at(event)]) + " names its own gpu's memory as remote");
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
        using chunks = std::vector<std::vector<place>>;
        const std::string type = op.value("channel_type", "memory"), name = words(p_.events[at(event)]);
        const auto read = [&](const char* list, bool remote, bool packets) {
            chunks all;
            for (const json& chunk : op.at(list)) {
                const bool own = k.reduces && all.empty();  // into which it reduces
                if (chunk.contains("buffer_id") != (remote && !own))
                    throw refused(fmt::format(
                        "{}: entry {} of {} must be {}", name, all.size(), list, remote && !own ? "remote" : "local"));
                all.push_back(places(rank, tb, chunk, type, event));
                if (packets && !own && all.back()[0].in != memory::scratch)
                    throw refused(
                        fmt::format("{}: packets are in scratch memory, not in {}", name, words(all.back()[0])));
            }
            return all;
        };
        chunks from = read("src_buff", k.reads, k.reads_packets);
        const chunks to = read("dst_buff", k.stores, k.packets);
        if (from.empty() || to.empty()) throw refused(name + " names no chunks");
        if (k.reduces ? to.size() > 1 && !k.stores : from.size() > 1 && from.size() != to.size())
            throw refused(fmt::format("{} has {} sources and {} destinations", name, from.size(), to.size()));
        check_order_inside(from, to, k, name);
        for (std::size_t i = 0; i < from.size(); ++i)
            for (const place& p : from[i])
                k.reads_packets && (i > 0 || !k.reduces) ? packets_read_.emplace_back(p, event)
                                                         : others_.emplace_back(p, event);
        for (std::size_t i = 0; i < to.size(); ++i)
            for (const place& p : to[i])
                if (k.packets && (i > 0 || !k.reduces))
                    packets_written_[p].push_back(event);
                else
                    others_.emplace_back(p, event);
        if (k.reduces) {
            // A sum in any order: what is there already comes first.
            if (const auto there = std::ranges::find(from, to[0]); there != from.end()) std::swap(*there, from[0]);
            if (from[0] != to[0]) add(from[0], to[0], colls::action::copy, 0, event);
            for (std::size_t i = 1; i < from.size(); ++i) add(from[i], to[0], colls::action::reduce, 1, event);
            for (std::size_t i = 1; i < to.size(); ++i) add(to[0], to[i], colls::action::copy, 2, event);
        } else {
            for (std::size_t i = 0; i < to.size(); ++i)
                add(from[std::min(i, from.size() - 1)], to[i], colls::action::copy, 1, event);
        }
        if (k.signals)
            for (const json& id : op.at("channel_ids")) count(true, rank, tb, type, id.get<int>(), event);
    }
    /// Threads share the elements of an operation, and do not wait for each other.
    static void check_order_inside(const std::vector<std::vector<place>>& from,
        const std::vector<std::vector<place>>& to, const kind& k, const std::string& name) {
        std::map<place, std::pair<std::size_t, std::size_t>> written;  // by which entry, and where in it
        for (std::size_t e = 0; e < to.size(); ++e)
            for (std::size_t j = 0; j < to[e].size(); ++j)
                if (!written.emplace(to[e][j], std::pair(e, j)).second)
                    throw refused(fmt::format("{} writes {} twice", name, words(to[e][j])));
        for (std::size_t e = 0; e < from.size(); ++e)
            for (std::size_t j = 0; j < from[e].size(); ++j)
                if (const auto w = written.find(from[e][j]); w != written.end())
                    if (w->second.second != j || (!k.reduces && w->second.first != e))
                        throw refused(fmt::format("{} reads {}, which it writes", name, words(from[e][j])));
    }
    void add(const std::vector<place>& from, const std::vector<place>& to, colls::action action, int phase, int event) {
        if (from.size() != to.size())
            throw refused(fmt::format("{} moves {} chunks to {}", words(p_.events[at(event)]), from.size(), to.size()));
        for (std::size_t i = 0; i < from.size(); ++i)
            p_.moves.push_back({action, from[i], to[i], event, event, phase, phase, p_.groups});
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
    /// A packet says itself that it has come: it is written once in a call, and is no data for what reads no packets.
    void match_packets() {
        for (const auto& [chunk, event] : others_)
            if (const auto written = packets_written_.find(chunk); written != packets_written_.end())
                throw refuted(fmt::format("{} accesses {} of gpu {}, which holds a packet, from {}, as it would data",
                    words(p_.events[at(event)]), words(chunk), chunk.rank, words(p_.events[at(written->second[0])])));
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
    std::vector<std::pair<place, int>> packets_read_, others_;
    std::vector<int> last_;  // of each thread block of the gpu that is being read
};

}  // namespace

program read_mscclpp(const std::string& text) {
    const json plan = json::parse(text);
    return mscclpp_reader(plan).read();
}

}  // namespace exchange
