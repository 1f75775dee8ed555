#include "collective_names.hpp"
#include "index.hpp"
#include "mscclpp.hpp"
#include "plan_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace exchange {

namespace {

using nlohmann::json;

constexpr int most_chunks = 1 << 16, most_moves = 1 << 21, most_events = 1 << 21;

/// What an operation does, by its name: it copies sources to destinations, one to one, or one to all. A reduction adds
/// the sources into the first destination, and stores the sum into the others, if it has others.
struct kind {
    bool reduces = false;
    bool stores = false;         ///< the destinations are in other ranks' memory; of a reduction all but the first
    bool reads = false;          ///< the sources are there; of a reduction all but the first
    bool packets = false;        ///< what it stores are packets; of a reduction all but the first
    bool reads_packets = false;  ///< the sources are packets; of a reduction all but the first
    bool signals = false;        ///< the receivers
    bool copies = false;         ///< a reduction whose second destination is a packet in local memory
    bool from_all = false;       ///< the source is a switch channel: the sum of what all its ranks have
    bool to_all = false;         ///< the destination is one: all its ranks get it
    bool one_source = false;     ///< executors look at the first source alone,
    bool one_result = false;     ///< and at the first destination
    bool ports = false;          ///< by port channels, too
};
const std::map<std::string, kind> data_operations{{"put", {.stores = true, .ports = true}},
    {"pws", {.stores = true, .signals = true, .ports = true}},
    {"pwsf", {.stores = true, .signals = true, .ports = true}},
    {"ppkt", {.stores = true, .packets = true, .ports = true}},
    {"rppkt", {.stores = true, .packets = true, .reads_packets = true, .one_source = true, .ports = true}},
    {"get", {.reads = true}}, {"copy", {.one_source = true, .one_result = true}},
    {"cpkt", {.packets = true, .one_source = true, .one_result = true}},
    {"upkt", {.reads_packets = true, .one_source = true, .one_result = true}},
    {"re", {.reduces = true, .one_result = true}}, {"rre", {.reduces = true, .reads = true, .one_result = true}},
    {"res", {.reduces = true, .stores = true}}, {"rres", {.reduces = true, .stores = true, .reads = true}},
    {"repkt", {.reduces = true, .reads_packets = true, .one_result = true}},
    {"respkt", {.reduces = true, .stores = true, .packets = true, .reads_packets = true}},
    {"recpkt", {.reduces = true, .packets = true, .reads_packets = true, .copies = true}},
    {"recspkt", {.reduces = true, .stores = true, .packets = true, .reads_packets = true, .copies = true}},
    {"glres", {.reduces = true, .from_all = true, .to_all = true, .one_source = true, .one_result = true}},
    {"gstore", {.to_all = true, .one_source = true, .one_result = true}},
    {"gstorepkt", {.packets = true, .reads_packets = true, .to_all = true, .one_source = true, .one_result = true}}};
bool known(const std::string& name) {
    static const std::set<std::string> others{
        "nop", "flush", "signal", "rlxsignal", "wait", "rlxwait", "barrier", "sem_acquire", "sem_release", "pipeline"};
    return others.contains(name) || data_operations.contains(name);
}

/// How large a chunk is taken to be. Thread blocks that share an operation, and the iterations of a pipeline, have
/// parts of a chunk each; which ones depends on its size. So a plan is read with chunks of several sizes.
struct size {
    int parts = 1;          ///< of a chunk
    int unit_bytes = 1;     ///< of pipelines: what all their unit sizes are multiples of,
    int unit_parts = 1;     ///< and in parts
    int scratch_parts = 0;  ///< of a chunk of scratch memory, where larger chunks use it again and again, or 0
    std::string words{};
};

/// The part of `all` that thread block `mine` has of an operation that `of` of them share, as executors divide it.
std::pair<int, int> share(int all, int mine, int of) {
    const auto begin = [&](int i) { return i * (all / of) + std::min(i, all % of); };
    return {begin(mine), begin(mine + 1)};
}

/// As it can be printed.
std::string one_line(std::string text) {
    std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
    return text;
}

class mscclpp_reader {
public:
    mscclpp_reader(const json& plan, size s) : plan_(plan, "the plan"), size_(std::move(s)) {}

    program read() {
        const json_value gpus = plan_.at("gpus");
        p_.name = one_line(plan_.at("name").text());
        p_.implements = collective_of_plan(one_line(plan_.at("collective").text()));
        p_.in_place = plan_.at("inplace").flag();
        const std::string protocol = plan_.at("protocol").text();
        if (protocol != "Simple" && protocol != "LL")
            throw refused(
                fmt::format("the plan's protocol is {}: there are Simple, and LL for packets", quoted(protocol)));
        packets_allowed_ = protocol == "LL";
        const std::vector<json_value> all = gpus.list();
        if (all.empty() || all.size() > most_chunks) throw refused(fmt::format("the plan has {} gpus", all.size()));
        p_.ranks = static_cast<int>(all.size());
        read_chunks(all);
        for (int r = 0; r < p_.ranks; ++r) gpus_.push_back(read_gpu(r, all[at(r)]));
        check_switches();
        for (int r = 0; r < p_.ranks; ++r) {
            p_.begins.push_back(add_event({r, threads_++, colls::none, 0, "begin"}));
            int number = 0;
            for (const json_value& tb : all[at(r)].at("threadblocks").list()) read_block(r, tb, number++);
            join_barriers(r);
            end(r);
        }
        match_signals();
        match_semaphores();
        match_packets();
        return std::move(p_);
    }

private:
    using channel = std::tuple<int, int, std::string, int>;  // from, to, type, number among those
    using chunks = std::vector<std::vector<place>>;
    struct counted {
        std::vector<int> events;
        std::set<int> threads;
    };
    struct remote_buffer {
        int rank = 0;
        std::string type;
        std::set<std::string> channels;
    };
    struct switch_channel {
        std::string buffer;
        std::vector<int> ranks;
    };
    struct gpu {
        int scratch = 0;                                // chunks
        std::map<std::string, std::vector<int>> peers;  // by type of channel
        std::vector<remote_buffer> remote;
        std::vector<switch_channel> switches;
        std::vector<int> semaphores;  // what they begin with
    };
    struct thread_block {
        std::map<std::string, std::vector<int>> channels, buffers;  // by type of channel: numbers in the gpu's lists
    };
    /// What one iteration of a pipeline does: this unit of each operation.
    struct portion {
        int iteration = 0, unit = 0, chunks = 0;
    };

    void read_chunks(const std::vector<json_value>& gpus) {
        const bool in = p_.implements == colls::collective::all_gather || p_.implements == colls::collective::gather;
        const bool owned = colls::owned(p_.implements);
        int blocks = 0;
        for (const json_value& each : gpus)
            for (const char* const key : {"input_chunks", "output_chunks"})
                blocks = std::max(blocks, each.at(key).integer(0, most_chunks));
        const bool divided = owned || p_.implements == colls::collective::all_to_all;
        if (blocks < 1 || (divided && blocks % p_.ranks != 0))
            throw refused(fmt::format("{} chunks cannot be divided among {} ranks", blocks, p_.ranks));
        if (blocks > most_chunks / size_.parts)
            throw refused(fmt::format("the plan has {} chunks in {} parts each, and can have {} parts in all", blocks,
                size_.parts, most_chunks));
        if (static_cast<long>(blocks) * size_.parts * p_.ranks > most_moves)
            throw refused(fmt::format("the plan has {} gpus with {} chunks: too many to examine", p_.ranks, blocks));
        p_.blocks = coarse_.blocks = blocks;
        for (const json_value& each : gpus)
            for (const bool input : {true, false}) {
                const int wanted = owned && in == input ? blocks / p_.ranks : blocks;
                const json_value number = each.at(input ? "input_chunks" : "output_chunks");
                // Zero: executors then look at the other number.
                if (const int n = number.integer(0, most_chunks); n != 0 && n != wanted)
                    throw refused(
                        fmt::format("{} is {}: of chunks as large as the others it is {}", number.where(), n, wanted));
            }
        coarse_.implements = p_.implements;
        coarse_.ranks = p_.ranks;
        coarse_.in_place = p_.in_place;
        p_.blocks *= size_.parts;
        p_.parts = size_.parts;
        p_.scratch_parts = size_.scratch_parts > 0 ? std::min(size_.scratch_parts, size_.parts) : size_.parts;
    }
    int rank_in(const json_value& v) const { return v.integer(0, p_.ranks - 1); }
    static std::string channel_type(const json_value& v) {
        const std::string type = v.text();
        if (type != "memory" && type != "port" && type != "switch")
            throw refused(fmt::format("{} is {}: there are memory, port and switch", v.where(), quoted(type)));
        return type;
    }
    static std::string buffer_type(const json_value& v) {
        const std::string type = v.text();
        if (type != "i" && type != "o" && type != "s")
            throw refused(fmt::format("{} is {}: there are i, o and s", v.where(), quoted(type)));
        return type;
    }

    gpu read_gpu(int r, const json_value& listed) const {
        const json_value all = listed.named(fmt::format("gpu {}", r));
        all.only({"id", "input_chunks", "output_chunks", "scratch_chunks", "threadblocks", "channels", "remote_buffers",
            "semaphores"});
        if (all.at("id").integer(0, most_chunks) != r) throw refused(fmt::format("gpu {} is not in its place", r));
        gpu g;
        g.scratch = all.at("scratch_chunks").integer(0, most_chunks / size_.parts);
        for (const json_value& each : all.at("channels").list()) {
            const std::string type = channel_type(each.at("channel_type"));
            if (type != "switch") {
                each.only({"channel_type", "connected_to"});
                for (const json_value& peer : each.at("connected_to").list()) {
                    g.peers[type].push_back(rank_in(peer));
                    if (g.peers[type].back() == r)
                        throw refused(peer.where() + " is the gpu itself: channels lead to others");
                }
                continue;
            }
            each.only({"channel_type", "buffer_type", "buff", "rank_groups"});
            const std::string buffer = buffer_type(each.at(each.has("buff") ? "buff" : "buffer_type"));
            for (const json_value& group : each.at("rank_groups").list()) {
                group.only({"size", "ranks"});
                group.at("size").integer(1, most_chunks);
                switch_channel s{buffer, {}};
                for (const json_value& rank : group.at("ranks").list()) s.ranks.push_back(rank_in(rank));
                if (std::ranges::count(s.ranks, r) != 1 ||
                    std::set(s.ranks.begin(), s.ranks.end()).size() != s.ranks.size())
                    throw refused(group.where() + " must have gpus once each, and the gpu itself");
                g.switches.push_back(std::move(s));
            }
        }
        for (const json_value& each : all.at("remote_buffers").list()) {
            each.only({"rank", "type", "access_channel_types"});
            remote_buffer b{rank_in(each.at("rank")), buffer_type(each.at("type")), {}};
            if (b.rank == r) throw refused(each.where() + " is the gpu's own memory, and must be another's");
            for (const json_value& type : each.at("access_channel_types").list()) b.channels.insert(channel_type(type));
            g.remote.push_back(std::move(b));
        }
        if (all.has("semaphores"))
            for (const json_value& each : all.at("semaphores").list()) {
                each.only({"init_value"});
                g.semaphores.push_back(each.at("init_value").integer(0, std::numeric_limits<int>::max()));
            }
        return g;
    }
    /// The k-th switch channel of some ranks is one for all of them: each has it, with memory of its own.
    void check_switches() const {
        for (int r = 0; r < p_.ranks; ++r)
            for (std::size_t i = 0; i < gpus_[at(r)].switches.size(); ++i)
                for (const int other : gpus_[at(r)].switches[i].ranks)
                    if (!same_switch(r, static_cast<int>(i), other))
                        throw refused(
                            fmt::format("switch channel {} of gpu {} connects gpu {}, which has no such switch "
                                        "channel: all gpus of a group list it, in the same order",
                                i, r, other));
    }
    const switch_channel* same_switch(int rank, int number, int other) const {
        const auto& own = gpus_[at(rank)].switches;
        const auto before = std::count_if(own.begin(), own.begin() + number,
            [&](const switch_channel& s) { return s.ranks == own[at(number)].ranks; });
        auto left = before;
        for (const switch_channel& s : gpus_[at(other)].switches)
            if (s.ranks == own[at(number)].ranks && left-- == 0) return &s;
        return nullptr;
    }

    void read_block(int rank, const json_value& listed, int number) {
        const json_value tb = listed.named(fmt::format("gpu {}, thread block {}", rank, number));
        tb.only({"id", "ops", "channels", "remote_buffer_refs"});
        if (tb.at("id").integer(0, most_chunks) != number)
            throw refused(fmt::format("{} is not in its place: thread blocks are numbered from 0 on", tb.where()));
        block_ = {};
        const auto add = [](const char* key, const json_value& from, std::vector<int>& into, std::size_t count) {
            for (const json_value& id : from.at(key).list()) {
                if (count == 0) throw refused(id.where() + " is a number in a list of the gpu's that is empty");
                into.push_back(id.integer(0, static_cast<int>(count) - 1));
            }
        };
        const gpu& g = gpus_[at(rank)];
        for (const json_value& each : tb.at("channels").list()) {
            each.only({"channel_type", "channel_ids", "buff"});
            const std::string type = channel_type(each.at("channel_type"));
            const auto peers = g.peers.find(type);
            add("channel_ids", each, block_.channels[type],
                type == "switch"         ? g.switches.size()
                : peers == g.peers.end() ? 0
                                         : peers->second.size());
        }
        if (tb.has("remote_buffer_refs"))
            for (const json_value& each : tb.at("remote_buffer_refs").list()) {
                each.only({"access_channel_type", "remote_buffer_ids"});
                const std::string type = channel_type(each.at("access_channel_type"));
                add("remote_buffer_ids", each, block_.buffers[type], g.remote.size());
                for (const int id : block_.buffers[type])
                    if (!g.remote[at(id)].channels.contains(type))
                        throw refused(
                            fmt::format("{}: remote buffer {} is not for {} channels", each.where(), id, type));
            }
        here_ = {rank, threads_++, number, 0, ""};
        last_ = p_.begins.back();
        for (const json_value& op : tb.at("ops").list()) {
            const std::string name = name_of(op);
            here_.type = name;
            if (name == "pipeline")
                read_pipeline(op.named(words(here_)));
            else
                read_operation(op.named(words(here_)), name, nullptr);
            ++here_.step;
        }
        lasts_.push_back(last_);
    }
    std::string name_of(const json_value& op) const {
        const std::string place = fmt::format("gpu {}, thread block {}, step {}", here_.rank, here_.block, here_.step);
        const std::string name = op.named(place).at("name").text();
        if (!known(name))
            throw refused(fmt::format(
                "{}: {} is not a known operation: docs/exchange.md lists those that are read", place, quoted(name)));
        return name;
    }
    void read_pipeline(const json_value& op) {
        op.only({"name", "iter_context", "ops"});
        const json_value how = op.at("iter_context");
        how.only({"unit_size", "num_chunks"});
        const int unit = how.at("unit_size").integer(1, std::numeric_limits<int>::max()) / size_.unit_bytes *
                         size_.unit_parts,
                  chunks_of_all = how.at("num_chunks").integer(1, most_chunks),
                  iterations = (chunks_of_all * size_.parts + unit - 1) / unit;
        const std::vector<json_value> inner = op.at("ops").list();
        std::vector<std::string> names;
        for (const json_value& each : inner) names.push_back(name_of(each));
        for (int i = 0; i < iterations; ++i)
            for (std::size_t k = 0; k < inner.size(); ++k) {
                here_.type = iterations == 1 ? fmt::format("pipeline, operation {}, {}", k, names[k])
                                             : fmt::format("pipeline, operation {}, {}, iteration {} of {}", k,
                                                   names[k], i + 1, iterations);
                const portion part{i, unit, chunks_of_all};
                read_operation(inner[k].named(words(here_)), names[k], &part);
            }
    }
    /// All thread blocks of a gpu have run.
    void end(int rank) {
        p_.ends.push_back(add_event({rank, threads_++, colls::none, 0, "end"}));
        for (const int last : lasts_) p_.waits.emplace_back(last, p_.ends.back());
        lasts_.clear();
    }
    void read_operation(const json_value& op, const std::string& name, const portion* part) {
        if (name == "pipeline") throw refused(op.where() + ": a pipeline cannot contain another one");
        if (name == "nop") {
            op.only({"name"});
            next_event();
        } else if (name == "flush" || name.ends_with("signal") || name.ends_with("wait")) {
            op.only({"name", "channel_ids", "channel_type"});
            const std::string type = channel_type(op.at("channel_type"));
            const int event = next_event();
            const std::vector<json_value> ids = op.at("channel_ids").list();
            if (ids.empty()) throw refused(op.where() + " names no channels");
            for (const json_value& id : ids)
                if (name == "flush")
                    channel_of(type, id, op);
                else
                    count(name.ends_with("signal"), type, id, op, event);
        } else if (name == "barrier") {
            read_barrier(op);
        } else if (name.starts_with("sem_")) {
            op.only({"name", "semaphore_ids"});
            const int event = next_event();
            const auto& all = gpus_[at(here_.rank)].semaphores;
            const std::vector<json_value> ids = op.at("semaphore_ids").list();
            if (ids.empty()) throw refused(op.where() + " names no semaphores");
            for (const json_value& id : ids) {
                if (all.empty()) throw refused(op.where() + " names a semaphore, and the gpu has none");
                const std::pair key{here_.rank, id.integer(0, static_cast<int>(all.size()) - 1)};
                use((name == "sem_acquire" ? acquired_ : released_)[key], event, "semaphore", name);
            }
        } else {
            read_data(op, name, data_operations.at(name), part);
        }
    }
    /// All arrive before one goes on.
    void read_barrier(const json_value& op) {
        op.only({"name", "barrier_id", "num_threadblocks"});
        const int arrives = next_event(), leaves = next_event();
        const int id = op.at("barrier_id").integer(0, std::numeric_limits<int>::max());
        auto& mine = barriers_[{id, passed_[{here_.thread, id}]++}];
        mine.members.emplace_back(arrives, leaves);
        const int wanted = op.at("num_threadblocks").integer(1, most_chunks);
        if (mine.members.size() > 1 && mine.wanted != wanted)
            throw refused(fmt::format(
                "{} waits for {} thread blocks, another one there for {}", op.where(), wanted, mine.wanted));
        mine.wanted = wanted;
    }
    int add_event(event e) {
        if (p_.events.size() >= most_events)
            throw refused(fmt::format("the plan has more than {} steps, with those of its pipelines", most_events));
        p_.events.push_back(std::move(e));
        return static_cast<int>(p_.events.size()) - 1;
    }
    /// What the thread block does next.
    int next_event() {
        const int event = add_event(here_);
        p_.waits.emplace_back(last_, event);
        return last_ = event;
    }

    /// An entry of the thread block's lists for one type of channel.
    int own_entry(const std::map<std::string, std::vector<int>>& lists, const std::string& type, const json_value& id,
        const json_value& op) const {
        const auto found = lists.find(type);
        if (found == lists.end() || found->second.empty())
            throw refused(fmt::format("{} uses {} channels, of which its thread block has none", op.where(), type));
        return found->second[at(id.integer(0, static_cast<int>(found->second.size()) - 1))];
    }
    channel channel_of(const std::string& type, const json_value& id, const json_value& op) const {
        if (type == "switch")
            throw refused(op.where() + " is about memory and port channels, and names switch channels");
        const int own = own_entry(block_.channels, type, id, op);
        const std::vector<int>& peers = gpus_[at(here_.rank)].peers.at(type);
        const int to = peers[at(own)];
        return {here_.rank, to, type, static_cast<int>(std::count(peers.begin(), peers.begin() + own, to))};
    }
    void count(bool signal, const std::string& type, const json_value& id, const json_value& op, int event) {
        channel c = channel_of(type, id, op);
        if (!signal) std::swap(std::get<0>(c), std::get<1>(c));  // the peer's end
        use((signal ? signals_ : waits_)[c], event, "channel", "");
    }
    void use(counted& all, int event, const char* what, const std::string& how) const {
        all.events.push_back(event);
        all.threads.insert(here_.thread);
        if (all.threads.size() > 1)
            throw refused(fmt::format("{}: another thread block uses this {}{}{}, in no known order", words(here_),
                what, how.empty() ? "" : " for ", how));
    }

    /// Which parts of the chunks that an operation names it is about.
    std::pair<int, int> parts_of(const json_value& op, int chunks_of_op, const portion* part) const {
        const int all = chunks_of_op * size_.parts;
        if (part != nullptr) {
            if (op.has("tbg_info"))
                throw refused(op.where() +
                              " is shared by thread blocks in a pipeline: its iterations are those for the "
                              "whole, and go beyond each share; share it outside of pipelines");
            if (chunks_of_op != part->chunks)
                throw refused(fmt::format("{} is about {} chunks, and the iterations of its pipeline about {}",
                    op.where(), chunks_of_op, part->chunks));
            const int begin = part->iteration * part->unit;
            return {begin, std::min(begin + part->unit, all)};
        }
        if (!op.has("tbg_info")) return {0, all};
        const json_value group = op.at("tbg_info");
        group.only({"tb_id", "tbg_size"});
        const int of = group.at("tbg_size").integer(1, most_chunks);
        return share(all, group.at("tb_id").integer(0, of - 1), of);
    }
    /// The parts of one chunk, or of several, that are at one rank.
    std::vector<place> places_at(int owner, const std::string& buffer, int index, int count, std::pair<int, int> parts,
        const json_value& op, bool in_pipeline) const {
        const int scratch = gpus_[at(owner)].scratch;
        for (const int i : {index, index + count - 1}) place_of(coarse_, owner, buffer, i, scratch, op.where());
        const bool again = buffer == "s" && p_.scratch_parts < size_.parts;
        if (again && !in_pipeline)
            throw refused(op.where() +
                          " uses scratch memory outside of a pipeline: \"reuse_resources\" holds a part of "
                          "large chunks there alone; a \"max_message_size\" says how large they are");
        std::vector<place> all;
        for (int i = parts.first; i < parts.second; ++i)
            all.push_back(
                again ? place{owner, memory::scratch, index * p_.scratch_parts + i % p_.scratch_parts}
                      : place_of(p_, owner, buffer, index * size_.parts + i, scratch * size_.parts, op.where()));
        return all;
    }
    enum class side : unsigned char { local, remote, all };
    struct entry {
        chunks at_ranks;  // one, or for a switch channel those of all ranks, its own first
        std::string buffer;
        int owner = 0, count = 0;
    };
    entry read_entry(const json_value& chunk, side wanted, const std::string& type, const json_value& op,
        const portion* part) const {
        chunk.only({"type", "buffer_id", "switch_channel_id", "index", "size", "rank"});
        if (chunk.has("rank")) chunk.at("rank").integer(here_.rank, here_.rank);  // beside "type", by some operations
        if (chunk.has("type") + chunk.has("buffer_id") + chunk.has("switch_channel_id") != 1)
            throw refused(chunk.where() + " must have one of \"type\", \"buffer_id\" and \"switch_channel_id\"");
        const side is = chunk.has("type") ? side::local : chunk.has("buffer_id") ? side::remote : side::all;
        if (is != wanted)
            throw refused(fmt::format("{} must be {}", chunk.where(),
                wanted == side::local    ? "local"
                : wanted == side::remote ? "remote"
                                         : "a switch channel's"));
        const int index = chunk.at("index").integer(0, most_chunks), count = chunk.at("size").integer(1, most_chunks);
        const std::pair<int, int> parts = parts_of(op, count, part);
        const auto add = [&](entry& e, int owner, const std::string& buffer) {
            e.at_ranks.push_back(places_at(owner, buffer, index, count, parts, op, part != nullptr));
        };
        entry e{{}, "", here_.rank, count};
        if (is == side::all) {
            const int number = own_entry(block_.channels, "switch", chunk.at("switch_channel_id"), op);
            const switch_channel& own = gpus_[at(here_.rank)].switches[at(number)];
            add(e, here_.rank, own.buffer);
            for (const int other : own.ranks)
                if (other != here_.rank) add(e, other, same_switch(here_.rank, number, other)->buffer);
            e.buffer = own.buffer;
            return e;
        }
        e.buffer = is == side::local ? buffer_type(chunk.at("type")) : "";
        if (is == side::remote) {
            const remote_buffer& remote =
                gpus_[at(here_.rank)].remote[at(own_entry(block_.buffers, type, chunk.at("buffer_id"), op))];
            e.owner = remote.rank;
            e.buffer = remote.type;
        }
        add(e, e.owner, e.buffer);
        return e;
    }
    void read_data(const json_value& op, const std::string& name, const kind& k, const portion* part) {
        op.only({"name", "src_buff", "dst_buff", "channel_type", "channel_ids", "reduce_op", "tbg_info"});
        const std::string what = op.where();
        const bool switches = k.from_all || k.to_all;
        const std::string type = op.has("channel_type") ? channel_type(op.at("channel_type"))
                                 : switches             ? "switch"
                                                        : "memory";
        if ((type == "switch") != switches || (type == "port" && !k.ports) || (k.signals && type != "port"))
            throw refused(fmt::format("{} goes by {} channels, and not by {} channels", what,
                switches    ? "switch"
                : k.signals ? "port"
                : k.ports   ? "memory and port"
                            : "memory",
                type));
        if ((k.packets || k.reads_packets) && (!packets_allowed_ || part != nullptr))
            throw refused(
                what + (part != nullptr ? " is in a pipeline: each iteration would move all its packets"
                                        : " is about packets, for which scratch memory has no room: they need "
                                          "\"protocol\": \"LL\""));
        check_reduction(op, k);
        // Packets are sent by port channels as they lie there, whether they have come or not.
        const bool as_they_lie = name == "ppkt" && type == "port";
        const auto is_packet = [&](std::size_t i, bool source) {
            if (k.reduces && i == 0) return false;  // into which it reduces
            return source ? k.reads_packets || as_they_lie : k.packets;
        };
        std::vector<entry> from, to;
        for (const bool source : {true, false})
            for (const json_value& chunk : op.at(source ? "src_buff" : "dst_buff").list()) {
                std::vector<entry>& all = source ? from : to;
                const bool own = k.reduces && (all.empty() || (!source && k.copies && all.size() == 1));
                const bool remote = !own && (source ? k.reads : k.stores), any = source ? k.from_all : k.to_all;
                const std::size_t i = all.size();
                all.push_back(read_entry(chunk, any ? side::all : remote ? side::remote : side::local, type, op, part));
                if (is_packet(i, source) && all.back().buffer != "s")
                    throw refused(
                        fmt::format("{}: packets are in scratch memory, not in {}", chunk.where(), all.back().buffer));
                if (!from.empty() && all.back().count != from[0].count)
                    throw refused(fmt::format("{} moves {} chunks to {}", what, from[0].count, all.back().count));
            }
        check_counts(op, name, k, from, to);
        if (type == "port" || k.signals) check_ports(op, type, to);
        // A gpu that stores to all from where it stores changes nothing there.
        if (k.to_all && !k.reduces && to[0].at_ranks[0] == from[0].at_ranks[0])
            to[0].at_ranks.erase(to[0].at_ranks.begin());
        const int event = next_event();
        if (k.signals)
            for (const json_value& id : op.at("channel_ids").list()) count(true, type, id, op, event);
        if (from[0].at_ranks[0].empty()) return;  // shares can be empty
        check_order_inside(from, to, k, what);
        // Each packet is waited for alone, and says nothing of the others.
        events_.assign(from[0].at_ranks[0].size(), event);
        if ((k.packets || k.reads_packets) && events_.size() > 1) {
            for (int& each : events_) p_.waits.emplace_back(event, each = add_event(here_));
            last_ = add_event(here_);
            for (const int each : events_) p_.waits.emplace_back(each, last_);
        }
        for (const bool source : {true, false})
            for (std::size_t i = 0; i < (source ? from : to).size(); ++i)
                for (const std::vector<place>& each : (source ? from : to)[i].at_ranks)
                    for (std::size_t j = 0; j < each.size(); ++j)
                        if (!is_packet(i, source))
                            others_.emplace_back(each[j], events_[j]);
                        else if (source)
                            packets_read_.push_back({each[j], events_[j], !as_they_lie});
                        else
                            packets_written_[each[j]].push_back(events_[j]);
        move_all(flat(from), flat(to), k.reduces);
    }
    static chunks flat(const std::vector<entry>& entries) {
        chunks all;
        for (const entry& e : entries) all.insert(all.end(), e.at_ranks.begin(), e.at_ranks.end());
        return all;
    }
    void check_reduction(const json_value& op, const kind& k) {
        if (!k.reduces) {
            if (op.has("reduce_op")) throw refused(op.where() + " has \"reduce_op\", and reduces nothing");
            return;
        }
        const std::string by = op.has("reduce_op") ? op.at("reduce_op").text() : "sum";
        if (by != "sum" && by != "min" && by != "max")
            throw refused(fmt::format("{} is {}: there are sum, min and max", op.at("reduce_op").where(), quoted(by)));
        if (reduction_.empty()) reduction_ = by;
        if (by != reduction_)
            throw refused(
                fmt::format("{} reduces by {}, and others by {}: no collective does", op.where(), by, reduction_));
    }
    static void check_counts(const json_value& op, const std::string& name, const kind& k,
        const std::vector<entry>& from, const std::vector<entry>& to) {
        const std::size_t least = k.copies ? 2 : 1;
        const bool wrong = (k.one_source && from.size() > 1) || (k.one_result && to.size() > 1) || from.empty() ||
                           to.size() < least || (k.copies && !k.stores && to.size() > 2) ||
                           (!k.reduces && !k.one_source && from.size() != to.size());
        if (wrong)
            throw refused(fmt::format("{} has {} sources and {} destinations", op.where(), from.size(), to.size()));
        if (name == "put" || name == "ppkt")
            for (const entry& e : from)
                if (e.buffer != from[0].buffer)
                    throw refused(fmt::format("{} has sources in {} and in {}: it must have them in one", op.where(),
                        from[0].buffer, e.buffer));
    }
    /// Each destination has its own channel, to its gpu.
    void check_ports(const json_value& op, const std::string& type, const std::vector<entry>& to) const {
        const std::vector<json_value> ids = op.at("channel_ids").list();
        if (ids.size() != to.size())
            throw refused(fmt::format("{} has {} channels for {} destinations", op.where(), ids.size(), to.size()));
        for (std::size_t i = 0; i < to.size(); ++i)
            if (const int leads = std::get<1>(channel_of(type, ids[i], op)); leads != to[i].owner)
                throw refused(fmt::format(
                    "{} leads to gpu {}, and the destination is at gpu {}", ids[i].where(), leads, to[i].owner));
    }
    void move_all(chunks from, const chunks& to, bool reduces) {
        if (reduces) {
            // A sum in any order: what is there already comes first.
            if (const auto there = std::ranges::find(from, to[0]); there != from.end()) std::swap(*there, from[0]);
            if (from[0] != to[0]) add(from[0], to[0], colls::action::copy, 0);
            for (std::size_t i = 1; i < from.size(); ++i) add(from[i], to[0], colls::action::reduce, 1);
            for (std::size_t i = 1; i < to.size(); ++i) add(to[0], to[i], colls::action::copy, 2);
        } else {
            for (std::size_t i = 0; i < to.size(); ++i)
                add(from[std::min(i, from.size() - 1)], to[i], colls::action::copy, 1);
        }
    }
    /// Threads share the elements of an operation, and do not wait for each other.
    void check_order_inside(const std::vector<entry>& sources, const std::vector<entry>& destinations, const kind& k,
        const std::string& name) const {
        const chunks from = flat(sources), to = flat(destinations);
        std::map<place, std::pair<std::size_t, std::size_t>> written;  // by which entry, and where in it
        for (std::size_t e = 0; e < to.size(); ++e)
            for (std::size_t j = 0; j < to[e].size(); ++j)
                if (!written.emplace(to[e][j], std::pair(e, j)).second)
                    throw refused(fmt::format("{} writes {} twice", name, words(p_, to[e][j])));
        for (std::size_t e = 0; e < from.size(); ++e)
            for (std::size_t j = 0; j < from[e].size(); ++j)
                if (const auto w = written.find(from[e][j]); w != written.end())
                    if (w->second.second != j || (!k.reduces && w->second.first != e))
                        throw refused(fmt::format("{} reads {}, which it writes", name, words(p_, from[e][j])));
    }
    void add(const std::vector<place>& from, const std::vector<place>& to, colls::action action, int phase) {
        if (p_.moves.size() + from.size() > most_moves)
            throw refused(fmt::format("the plan moves more than {} chunks, or parts of them", most_moves));
        for (std::size_t i = 0; i < from.size(); ++i)
            p_.moves.push_back({action, from[i], to[i], events_[i], events_[i], phase, phase, p_.groups});
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
    /// The first ones are there at the beginning. At the end there are as many: the next call begins with them.
    void match_semaphores() {
        for (int r = 0; r < p_.ranks; ++r)
            for (int id = 0; id < static_cast<int>(gpus_[at(r)].semaphores.size()); ++id) {
                const auto& acquired = acquired_[{r, id}].events;
                const auto& released = released_[{r, id}].events;
                const auto first = static_cast<std::size_t>(gpus_[at(r)].semaphores[at(id)]);
                if (acquired.size() > first + released.size())
                    throw refuted(
                        fmt::format("{} waits for ever: semaphore {} begins with {}, and is released {} times",
                            words(p_.events[at(acquired[first + released.size()])]), id, first, released.size()));
                if (acquired.size() != released.size())
                    throw refuted(
                        fmt::format("semaphore {} of gpu {} is acquired {} times and released {} times: the "
                                    "next call would begin with {}, not with {}",
                            id, r, acquired.size(), released.size(), first + released.size() - acquired.size(), first));
                for (std::size_t i = first; i < acquired.size(); ++i)
                    p_.waits.emplace_back(released[i - first], acquired[i]);
            }
    }
    /// A packet says itself that it has come: it is written once in a call, and is no data for what reads no packets.
    void match_packets() {
        for (const auto& [chunk, event] : others_) {
            if (const auto written = packets_written_.find(chunk); written != packets_written_.end())
                throw refuted(fmt::format("{} accesses {} of gpu {}, which holds a packet, from {}, as it would data",
                    words(p_.events[at(event)]), words(p_, chunk), chunk.rank,
                    words(p_.events[at(written->second[0])])));
            if (chunk.in != memory::scratch) continue;
            // Packets take twice the room of what they carry.
            const place there{chunk.rank, memory::scratch, chunk.index / 2};
            if (const auto written = packets_written_.find(there); written != packets_written_.end())
                throw refuted(fmt::format("{} accesses {} of gpu {}, which is in the room of the packet in {}, from {}",
                    words(p_.events[at(event)]), words(p_, chunk), chunk.rank, words(p_, there),
                    words(p_.events[at(written->second[0])])));
        }
        for (const auto& [chunk, event, waits] : packets_read_) {
            const auto written = packets_written_.find(chunk);
            if (written == packets_written_.end())
                throw refuted(fmt::format("{} {} {}", words(p_.events[at(event)]),
                                  waits ? "waits for ever for a packet in" : "sends the packet of", words(p_, chunk)) +
                              (waits ? "" : ", where there is none"));
            if (written->second.size() > 1)
                throw refused(fmt::format("{} reads a packet from {}, where {} are written",
                    words(p_.events[at(event)]), words(p_, chunk), written->second.size()));
            if (waits) p_.waits.emplace_back(written->second[0], event);
        }
    }

    struct barrier {
        std::vector<std::pair<int, int>> members;  // events of arriving, and of leaving
        int wanted = 0;
    };
    struct packet_read {
        place from;
        int event = 0;
        bool waits = true;  // for the packet
    };
    const json_value plan_;
    const size size_;
    program p_, coarse_;  // coarse_: with whole chunks
    std::vector<gpu> gpus_;
    bool packets_allowed_ = false;
    std::string reduction_;
    int threads_ = 0;
    std::map<channel, counted> signals_, waits_;
    std::map<std::pair<int, int>, counted> acquired_, released_;  // gpu and semaphore
    std::map<std::pair<int, int>, barrier> barriers_;             // of one gpu: id, and how often
    std::map<std::pair<int, int>, int> passed_;                   // thread and id
    std::map<place, std::vector<int>> packets_written_;
    std::vector<packet_read> packets_read_;
    std::vector<std::pair<place, int>> others_;
    std::vector<int> lasts_;  // of each thread block of the gpu that is being read
    // State of the thread block:
    thread_block block_;
    event here_;  // the step that is being read
    int last_ = 0;
    std::vector<int> events_;  // of its operation, for each part
};

/// What decides how large chunks must be for all that the plan does to be seen.
class size_finder {
public:
    explicit size_finder(const json& plan) : plan_(plan, "the plan") {}

    std::vector<size> find() {
        plan_.only({"name", "collective", "protocol", "inplace", "reuse_resources", "gpus", "num_threads_per_block",
            "use_double_scratch_buffer", "buffer_alignment", "min_message_size", "max_message_size"});
        for (const char* const key : {"reuse_resources", "use_double_scratch_buffer"})
            if (plan_.has(key)) plan_.at(key).flag();
        for (const char* const key : {"min_message_size", "max_message_size"})
            if (plan_.has(key)) plan_.at(key).bytes();
        if (plan_.has("num_threads_per_block")) plan_.at("num_threads_per_block").integer(1, 1024);
        alignment_ = plan_.has("buffer_alignment") ? plan_.at("buffer_alignment").integer(16, 1 << 20) : 16;
        for (const json_value& gpu : plan_.at("gpus").list()) {
            scratch_.insert(gpu.at("scratch_chunks").integer(0, most_chunks));
            for (const char* const key : {"input_chunks", "output_chunks"})
                chunks_ = std::max(chunks_, gpu.at(key).integer(0, most_chunks));
            for (const json_value& tb : gpu.at("threadblocks").list())
                for (const json_value& op : tb.at("ops").list()) look_at(op);
        }
        if (!units_.empty()) return of_pipelines();
        if (const int held = bytes_in_scratch(); held > 0)
            throw refused(
                fmt::format("\"reuse_resources\" holds chunks of {} bytes in scratch memory, and larger ones "
                            "overflow it: a \"max_message_size\" says that there are none",
                    held));
        return of_groups();
    }

private:
    void look_at(const json_value& op) {
        if (op.has("iter_context")) {
            const json_value how = op.at("iter_context"), unit = how.at("unit_size");
            units_.insert(unit.integer(1, std::numeric_limits<int>::max()));
            if (*units_.begin() % alignment_ != 0 || *units_.rbegin() % alignment_ != 0)
                throw refused(fmt::format("{} must be a multiple of {} bytes", unit.where(), alignment_));
            most_ = std::max(most_, how.at("num_chunks").integer(1, 64));
        }
        if (!op.has("tbg_info")) return;
        const json_value group = op.at("tbg_info").at("tbg_size");
        const int of = group.integer(1, 1024);
        for (const char* const key : {"src_buff", "dst_buff"})
            if (op.has(key))
                for (const json_value& chunk : op.at(key).list()) {
                    const int shared = chunk.at("size").integer(1, most_chunks);
                    divisions_.emplace(of, shared);
                    group_ = std::lcm(group_, of / std::gcd(of, shared));
                    if (group_ > 64)
                        throw refused(
                            fmt::format("{}: thread blocks divide chunks into {} parts, with the other groups of "
                                        "the plan; the most is 64",
                                group.where(), group_));
                }
    }
    /// If all groups divide one chunk into as many shares, these meet whatever its size. Else those of some sizes
    /// that are no multiples meet others, too.
    std::vector<size> of_groups() const {
        std::vector<size> all{named({.parts = group_})};
        const bool alike = divisions_.size() <= 1 && (divisions_.empty() || divisions_.begin()->second == 1);
        for (int parts = 1; !alike && parts < 2 * group_; ++parts)
            if (parts == 1 || parts > group_) all.push_back(named({.parts = parts}));
        return all;
    }
    std::vector<size> of_pipelines() const {
        const int common =
            std::accumulate(units_.begin(), units_.end(), 0, [](int a, int b) { return std::gcd(a, b); });
        const int fine = group_ * most_;
        if (static_cast<long>(*units_.rbegin() / common) * fine > 64)
            throw refused(fmt::format("unit sizes of pipelines from {} to {} bytes have too small a common measure",
                *units_.begin(), *units_.rbegin()));
        const int longest = *units_.rbegin() / common * fine;
        size s{.parts = group_, .unit_bytes = common, .unit_parts = fine};
        std::vector<int> parts;
        for (int i = 1; i <= 3 * longest; ++i) parts.push_back(i);
        if (const int again = bytes_in_scratch(); again > 0) {
            for (const int unit : units_)
                if (again % unit != 0)
                    throw refused(
                        fmt::format("a unit size of {} bytes does not divide the {} bytes of a chunk in scratch "
                                    "memory, which \"reuse_resources\" uses again and again",
                            unit, again));
            if (most_ > 1) throw refused("pipelines with \"num_chunks\" above 1 and \"reuse_resources\" are not read");
            if (again / common > 512)
                throw refused(
                    fmt::format("\"reuse_resources\" uses scratch memory again after {} iterations: too many to "
                                "be looked at; a \"max_message_size\" says that it does not",
                        again / common));
            s.scratch_parts = again / common * fine;
            for (const int more : {1, longest, longest + 1}) parts.push_back(s.scratch_parts + more);
        }
        std::vector<size> all;
        all.push_back(named(s));
        for (const int p : std::set(parts.begin(), parts.end())) {
            if (p == s.parts) continue;
            size other = s;
            other.parts = p;
            all.push_back(named(other));
        }
        return all;
    }
    /// Bytes of a chunk, where larger ones can come; else 0.
    int bytes_in_scratch() const {
        if (!plan_.has("reuse_resources") || !plan_.at("reuse_resources").flag() || *scratch_.rbegin() == 0) return 0;
        if (scratch_.size() > 1) throw refused("\"reuse_resources\" needs as many \"scratch_chunks\" on every gpu");
        const bool twice = plan_.has("use_double_scratch_buffer") && plan_.at("use_double_scratch_buffer").flag();
        const int held = (1 << 26) / (twice ? 2 : 1), count = *scratch_.begin();
        const int each = ((held + count - 1) / count + alignment_ - 1) / alignment_ * alignment_;
        const auto most = plan_.has("max_message_size") ? plan_.at("max_message_size").bytes()
                                                        : std::numeric_limits<unsigned long long>::max();
        return most / static_cast<unsigned long long>(std::max(1, chunks_)) > static_cast<unsigned long long>(each)
                   ? each
                   : 0;
    }
    size named(size s) const {
        const long bytes = units_.empty() ? static_cast<long>(s.parts) * alignment_
                                          : static_cast<long>(s.parts) * s.unit_bytes / s.unit_parts;
        s.words = fmt::format("with chunks of {} bytes", bytes);
        return s;
    }

    const json_value plan_;
    int alignment_ = 16, chunks_ = 0, most_ = 1, group_ = 1;
    std::set<int> units_, scratch_;
    std::set<std::pair<int, int>> divisions_;  // thread blocks, and chunks that they share
};

}  // namespace

void read_mscclpp(const std::string& text, const std::function<void(program, const std::string&)>& each) {
    const json plan = parse_json(text);
    bool first = true;
    for (const size& s : size_finder(plan).find()) {
        std::optional<program> read;
        try {
            read = mscclpp_reader(plan, s).read();
        } catch (const refuted& e) {
            throw refuted(first ? e.what() : s.words + ": " + e.what());
        }
        each(std::move(*read), s.words);
        first = false;
    }
}

}  // namespace exchange
