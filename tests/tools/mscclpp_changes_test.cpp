// Changed plans of MSCCL++ are refuted: what the import says, beside a runner that knows nothing of the import.
#include "catch.hpp"

#include "support/says.hpp"
#include "tools/plan_changes.hpp"

#include <exchange/mscclpp.hpp>
#include <exchange/try_plan.hpp>

#include <nlohmann/json.hpp>

#include <numeric>
#include <set>
#include <tuple>

namespace {

using nlohmann::json;
using value = support::plan_task::value;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// Where an operation is in a plan: in a thread block, or in the pipeline that is there.
struct spot {
    int gpu = 0, block = 0, op = 0, pipeline = -1;
    json& in(json& plan) const { return list_in(plan)[at(op)]; }
    json& list_in(json& plan) const {
        json& ops = plan["gpus"][at(gpu)]["threadblocks"][at(block)]["ops"];
        return pipeline < 0 ? ops : ops[at(pipeline)]["ops"];
    }
};
/// The end of a semaphore that an operation names: the n-th of its channel_ids.
struct semaphore_use {
    spot where;
    int position = 0;
};

/// Runs a plan with memory as weak as a plan may expect: what a thread block stores others see at any time, in any
/// order, but not later than what it signals, or its packet, or its arrival at a barrier. It sees its own stores at
/// once. When all thread blocks of a rank have ended, its result must be there, and its memory is no longer the plan's:
/// others read nonsense there, and may not write. Nor are input and output the plan's before the rank's first
/// operation.
class one_sided_runner {
public:
    /// With chunks in so many parts, of which an iteration of a pipeline has one.
    explicit one_sided_runner(const json& plan, int parts = 1) : plan_(plan), parts_(parts), scratch_parts_(parts) {
        const json& gpus = plan["gpus"];
        task_ = {
            plan["collective"].get<std::string>(), static_cast<int>(gpus.size()), 0, 0, plan["inplace"].get<bool>()};
        for (const json& gpu : gpus)
            task_.chunks = std::max(
                {task_.chunks, parts * gpu["input_chunks"].get<int>(), parts * gpu["output_chunks"].get<int>()});
        if (plan.value("reuse_resources", false)) {  // 64 MiB of scratch memory, used again and again
            const int count = gpus[0]["scratch_chunks"].get<int>(), each = ((1 << 26) + count - 1) / count;
            scratch_parts_ = std::min(parts, (each + 15) / 16 * 16 / unit_of(plan));
        }
        for (int g = 0; g < task_.ranks; ++g)
            for (int t = 0; t < static_cast<int>(gpus[at(g)]["threadblocks"].size()); ++t) read(g, t);
        // All chunks of the user's, whether named or not.
        for (int r = 0; r < task_.ranks; ++r) {
            for (int c = 0; c < task_.inputs(); ++c) number(r, 'i', c);
            for (int c = 0; c < task_.outputs(); ++c) number(r, 'o', c);
        }
    }

    /// Whether it ends, with nothing under way, and with the result of the collective, in the order that a seed draws.
    bool right(unsigned seed) {
        if (broken_) return false;
        start(seed);
        for (;;) {
            for (int r = 0; r < task_.ranks; ++r)
                if (!ended_[at(r)] && all_done(r) && !end(r)) return false;
            if (seed >= 2 && random(8) == 0) shuffle();
            if (seed == 1 || (seed >= 4 && random(3) == 0))
                for (block& b : blocks_)
                    while (!b.stores.empty() && (seed == 1 || random(2) == 0))
                        if (!land(b, seed == 1 ? 0 : random(static_cast<int>(b.stores.size())))) return false;
            const auto next = std::ranges::find_if(order_, [&](int b) { return ready(blocks_[at(b)]); });
            if (next != order_.end()) {
                if (!run(blocks_[at(*next)])) return false;
                continue;
            }
            // Only what is under way can help.
            bool landed = false;
            for (block& b : blocks_)
                if (!landed && !b.stores.empty()) {
                    landed = true;
                    if (!land(b, 0)) return false;
                }
            if (!landed) break;
        }
        return std::ranges::all_of(ended_, [](char e) { return e; }) &&
               std::ranges::all_of(signals_, [](int s) { return s == 0; }) && left_ == begun_with_;
    }

    /// The signals and the waits of each semaphore, in order.
    const std::map<int, std::array<std::vector<semaphore_use>, 2>>& uses() const { return uses_; }

private:
    enum class barrier_side : unsigned char { none, arrive, leave };
    struct operation {
        std::vector<std::vector<int>> from, to;  // chunks, by number
        bool sums = false, packets = false, reads_packets = false;
        std::vector<int> signals, waits;      // semaphores
        std::vector<int> releases, acquires;  // those of one gpu
        barrier_side side = barrier_side::none;
        int barrier = 0, wanted = 0;
    };
    struct store {
        int chunk;
        value x;
        bool packet;
    };
    struct block {
        int gpu = 0;
        std::vector<operation> ops;
        std::size_t next = 0;
        std::vector<store> stores;  // that others do not see yet
    };
    struct cell {
        value x = 0;
        bool packet = false;
    };

    // Reading. What no executor could run makes the plan broken.
    static int unit_of(const json& plan) {
        for (const json& gpu : plan["gpus"])
            for (const json& tb : gpu["threadblocks"])
                for (const json& op : tb["ops"])
                    if (op.contains("iter_context")) return op["iter_context"]["unit_size"].get<int>();
        return 1;
    }
    void read(int g, int t) {
        const json& tb = plan_["gpus"][at(g)]["threadblocks"][at(t)];
        block b{g, {}, 0, {}};
        std::map<int, int> passed;  // barriers
        read(g, t, tb["ops"], -1, b, passed);
        blocks_.push_back(std::move(b));
    }
    void read(int g, int t, const json& ops, int pipeline, block& b, std::map<int, int>& passed) {
        const json& tb = plan_["gpus"][at(g)]["threadblocks"][at(t)];
        for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
            const json& op = ops[at(i)];
            const std::string name = op["name"].get<std::string>();
            if (name == "nop" || name == "flush") continue;
            if (name == "pipeline") {
                for (part_ = 0; part_ < parts_; ++part_) read(g, t, op["ops"], i, b, passed);
                part_ = -1;
                continue;
            }
            operation o;
            if (name.starts_with("sem_")) {
                for (const json& id : op["semaphore_ids"]) {
                    const auto all = plan_["gpus"][at(g)].value("semaphores", json::array());
                    if (id.get<int>() < 0 || id.get<int>() >= static_cast<int>(all.size())) {
                        broken_ = true;
                        continue;
                    }
                    const int s = number_in(counters_, {g, id.get<int>()});
                    begun_with_.resize(counters_.size());
                    begun_with_[at(s)] = all[at(id.get<int>())]["init_value"].get<int>();
                    (name == "sem_acquire" ? o.acquires : o.releases).push_back(s);
                }
                b.ops.push_back(o);
                continue;
            }
            if (name == "barrier") {
                const int id = op["barrier_id"].get<int>();
                o.side = barrier_side::arrive;
                o.barrier = number_in(barriers_, {g, id, passed[id]++});
                o.wanted = op["num_threadblocks"].get<int>();
                b.ops.push_back(o);
                o.side = barrier_side::leave;
                b.ops.push_back(o);
                continue;
            }
            const bool waits = name.ends_with("wait");
            if (name.starts_with("pws") && !op.contains("channel_ids")) broken_ = true;
            if (waits || name.ends_with("signal") || name.starts_with("pws"))
                for (int p = 0; p < static_cast<int>(op.value("channel_ids", json::array()).size()); ++p) {
                    const int s = semaphore(g, tb, op, op["channel_ids"][at(p)].get<int>(), waits);
                    (waits ? o.waits : o.signals).push_back(s);
                    if (part_ <= 0) uses_[s][waits].push_back({{g, t, i, pipeline}, p});
                }
            if (!waits && !name.ends_with("signal")) read_chunks(g, tb, op, name, o);
            b.ops.push_back(std::move(o));
        }
    }
    void read_chunks(int g, const json& tb, const json& op, const std::string& name, operation& o) {
        const bool keeps = name == "recpkt" || name == "recspkt", to_all = name.starts_with("g") && name != "get";
        o.packets =
            name == "ppkt" || name == "rppkt" || name == "cpkt" || name == "respkt" || keeps || name == "gstorepkt";
        o.reads_packets =
            name == "rppkt" || name == "upkt" || name == "respkt" || name == "repkt" || keeps || name == "gstorepkt";
        o.sums = name == "re" || name == "res" || name == "rre" || name == "rres" || name == "repkt" ||
                 name == "respkt" || keeps || name == "glres";
        const bool stores_away = name == "put" || name.starts_with("pws") || name == "ppkt" || name == "rppkt",
                   sends = name == "res" || name == "rres" || name == "respkt" || name == "recspkt",
                   reads_away = name == "rre" || name == "rres";
        int entry = 0;
        for (const json& each : op.value("src_buff", json::array()))
            add_chunks(o.from, g, tb, op, each,
                name == "glres"                                ? where::all
                : name == "get" || (reads_away && entry++ > 0) ? where::away
                                                               : where::here,
                false);
        entry = 0;
        for (const json& each : op.value("dst_buff", json::array())) {
            const bool away = stores_away || (sends && entry > (keeps ? 1 : 0));
            add_chunks(o.to, g, tb, op, each,
                to_all ? where::all
                : away ? where::away
                       : where::here,
                o.packets && (entry > 0 || !o.sums));
            ++entry;
        }
        if (o.from.empty() || o.to.empty() || (keeps && o.to.size() < 2) ||
            (o.sums && !sends && !to_all && o.to.size() != (keeps ? 2 : 1)) ||
            (!o.sums && o.from.size() != 1 && o.from.size() != o.to.size())) {
            broken_ = true;
            return;
        }
        std::set<int> written;
        for (const auto& to : o.to)
            for (const int c : to) broken_ = !written.insert(c).second || broken_;
        for (std::size_t e = 0; e < o.to.size(); ++e)
            for (std::size_t f = 0; f < o.from.size(); ++f) {
                if (o.to[e].size() != o.from[f].size()) {
                    broken_ = true;
                    return;
                }
                // Threads share the elements: each reads those that it writes, but does not wait for the others.
                for (std::size_t j = 0; j < o.to[e].size(); ++j)
                    for (std::size_t k = 0; k < o.to[e].size(); ++k)
                        broken_ = broken_ || (o.to[e][j] == o.from[f][k] && (j != k || (!o.sums && e != f)));
            }
    }
    enum class where : unsigned char { here, away, all };
    void add_chunks(std::vector<std::vector<int>>& into, int g, const json& tb, const json& op, const json& described,
        where place, bool packets) {
        if ((place == where::all) != described.contains("switch_channel_id") ||
            (place == where::away) != described.contains("buffer_id") ||
            (place == where::here) != described.contains("type")) {
            broken_ = true;
            return;
        }
        if (place != where::all) {
            into.push_back(chunks(g, tb, op, described, packets));
            return;
        }
        // Here all gpus have the same switch channels, each of all gpus.
        const json ids = list_for(tb, "channels", "channel_type", "switch", "channel_ids");
        const json id = entry(ids, described["switch_channel_id"].get<int>());
        int number = 0;
        for (const json& c : plan_["gpus"][at(g)]["channels"])
            if (c["channel_type"] == "switch" && !id.is_null() && number++ == id.get<int>())
                for (int r = 0; r < task_.ranks; ++r)
                    into.push_back(
                        numbers((g + r) % task_.ranks, c["buffer_type"].get<std::string>(), op, described, packets));
    }
    std::vector<int> chunks(int g, const json& tb, const json& op, const json& described, bool packets) {
        int owner = g;
        std::string buffer = described.value("type", "");
        if (described.contains("buffer_id")) {
            const json& gpu = plan_["gpus"][at(g)];
            const std::string type = op.value("channel_type", "memory");
            const json ids = list_for(tb, "remote_buffer_refs", "access_channel_type", type, "remote_buffer_ids");
            const json& remote = entry(gpu["remote_buffers"], entry(ids, described["buffer_id"].get<int>()));
            if (remote.is_null()) return {};
            owner = remote["rank"].get<int>();
            buffer = remote["type"].get<std::string>();
            broken_ = broken_ || owner == g;
        }
        return numbers(owner, buffer, op, described, packets);
    }
    /// The parts that the operation is about: all, those of its thread block, or that of the iteration.
    std::vector<int> numbers(
        int owner, const std::string& buffer, const json& op, const json& described, bool packets) {
        const int size = described["size"].get<int>(), all_parts = size * parts_, index = described["index"].get<int>();
        if (size < 1 || (packets && buffer != "s")) broken_ = true;
        std::vector<int> mine;
        int of = 1, id = 0;
        if (op.contains("tbg_info"))
            of = op["tbg_info"]["tbg_size"].get<int>(), id = op["tbg_info"]["tb_id"].get<int>();
        if (id < 0 || id >= of || (part_ >= 0 && size != 1)) return broken_ = true, mine;
        // The first ones have one part more, if it does not come out even.
        for (int i = 0, owner_of = 0, left = 0; i < all_parts; ++i, --left) {
            if (i == 0) left = all_parts / of + (0 < all_parts % of);
            while (left == 0) ++owner_of, left = all_parts / of + (owner_of < all_parts % of);
            if (owner_of == id && (part_ < 0 || part_ == i)) mine.push_back(i);
        }
        const bool again = buffer == "s" && scratch_parts_ < parts_;
        std::vector<int> all;
        for (const int i : mine)
            all.push_back(number(owner, buffer.empty() ? '?' : buffer[0],
                again ? index * scratch_parts_ + i % scratch_parts_ : index * parts_ + i));
        if (again && part_ < 0) broken_ = true;
        // What is beyond the buffer breaks the plan, though this thread block has no part of it.
        for (const int i : {index * parts_, (index + size) * parts_ - 1})
            if (!again) number(owner, buffer.empty() ? '?' : buffer[0], i);
        return all;
    }
    json list_for(const json& tb, const char* lists, const char* key, const std::string& type, const char* ids) {
        for (const json& each : tb.value(lists, json::array()))
            if (each[key] == type) return each[ids];
        broken_ = true;
        return json::array();
    }
    json entry(const json& list, const json& index) {
        const int i = index.is_number() ? index.get<int>() : -1;
        if (i >= 0 && i < static_cast<int>(list.size())) return list[at(i)];
        broken_ = true;
        return nullptr;
    }
    /// The n-th connection of two ranks by channels of a type has one semaphore each way.
    int semaphore(int g, const json& tb, const json& op, int id, bool waits) {
        const std::string type = op.value("channel_type", "memory");
        const json own = entry(list_for(tb, "channels", "channel_type", type, "channel_ids"), id);
        const json peers = list_for(plan_["gpus"][at(g)], "channels", "channel_type", type, "connected_to");
        const json peer = entry(peers, own);
        if (peer.is_null() || peer.get<int>() == g) {
            broken_ = true;
            return 0;
        }
        const long before = std::count(peers.begin(), peers.begin() + own.get<int>(), peer);
        const int other = peer.get<int>();
        return number_in(semaphores_, {waits ? other : g, waits ? g : other, type, static_cast<int>(before)});
    }
    int number(int r, char buffer, int index) {
        if (r < 0 || r >= task_.ranks) return broken_ = true, 0;
        const int size = buffer == 's'   ? plan_["gpus"][at(r)]["scratch_chunks"].get<int>() * scratch_parts_
                         : buffer == 'i' ? task_.inputs()
                         : buffer == 'o' ? task_.outputs()
                                         : 0;
        if (index < 0 || index >= size) return broken_ = true, 0;
        const auto [known, i] = task_.known_as(r, buffer, index);
        return number_in(chunks_, {r, known, i});
    }
    template <class Key>
    static int number_in(std::map<Key, int>& numbers, const Key& key) {
        return numbers.emplace(key, static_cast<int>(numbers.size())).first->second;
    }

    // Running.
    int random(int below) {
        random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<int>((random_ >> 33) % static_cast<value>(below));
    }
    value nonsense() { return task_.mixed(++nonsense_ + (value{1} << 40)); }
    void shuffle() {
        for (int i = static_cast<int>(order_.size()) - 1; i > 0; --i)
            std::swap(order_[at(i)], order_[at(random(i + 1))]);
    }
    /// Seeds 0 to 3: the first, or the last thread block that can go on does so; stores land as late, or as early as
    /// they can. Others: drawn.
    void start(unsigned seed) {
        random_ = task_.mixed(seed + 1);
        order_.resize(blocks_.size());
        std::iota(order_.begin(), order_.end(), 0);
        if (seed % 2 == 1) std::ranges::reverse(order_);
        if (seed >= 2) shuffle();
        for (block& b : blocks_) b.next = 0, b.stores.clear();
        signals_.assign(semaphores_.size(), 0);
        left_ = begun_with_;
        arrived_.assign(barriers_.size(), 0);
        ended_.assign(at(task_.ranks), 0);
        memory_.resize(chunks_.size());
        for (const auto& [key, c] : chunks_) memory_[at(c)] = {nonsense(), false};
        for (int r = 0; r < task_.ranks; ++r)
            for (int c = 0; c < task_.inputs() && task_.has_input(r); ++c)
                memory_[at(number(r, 'i', c))].x = task_.input(r, c);
        owner_.resize(chunks_.size());
        scratch_.resize(chunks_.size());
        for (const auto& [key, c] : chunks_)
            owner_[at(c)] = std::get<0>(key), scratch_[at(c)] = std::get<1>(key) == 's';
        begun_.assign(at(task_.ranks), 0);
    }
    bool all_done(int r) const {
        return std::ranges::all_of(blocks_, [&](const block& b) { return b.gpu != r || b.next == b.ops.size(); });
    }
    bool end(int r) {
        for (block& b : blocks_)  // its own stores to its own memory
            for (std::size_t i = 0; b.gpu == r && i < b.stores.size();)
                if (owner_[at(b.stores[i].chunk)] != r)
                    ++i;
                else if (!land(b, static_cast<int>(i)))
                    return false;
        for (int c = 0; c < task_.outputs() && task_.has_output(r); ++c) {
            const cell& m = memory_[at(number(r, 'o', c))];
            if (m.packet || m.x != task_.output(r, c)) return false;
        }
        ended_[at(r)] = 1;
        for (std::size_t c = 0; c < memory_.size(); ++c)
            if (owner_[c] == r) memory_[c] = {nonsense(), false};
        return true;
    }
    /// The i-th store is seen, or an earlier one to the same chunk. False where the chunk is no longer the plan's.
    bool land(block& b, int i) {
        const auto s = std::ranges::find(b.stores, b.stores[at(i)].chunk, &store::chunk);
        if (ended_[at(owner_[at(s->chunk)])] || early(s->chunk)) return false;
        memory_[at(s->chunk)] = {s->x, s->packet};
        b.stores.erase(s);
        return true;
    }
    bool early(int chunk) const { return !scratch_[at(chunk)] && !begun_[at(owner_[at(chunk)])]; }
    bool land_all(block& b) {
        while (!b.stores.empty())
            if (!land(b, 0)) return false;
        return true;
    }
    cell seen(const block& b, int chunk) const {
        for (auto s = b.stores.rbegin(); s != b.stores.rend(); ++s)
            if (s->chunk == chunk) return {s->x, s->packet};
        return memory_[at(chunk)];
    }
    static bool wants_packet(const operation& o, std::size_t source) {
        return o.reads_packets && (!o.sums || source > 0);
    }
    bool ready(const block& b) const {
        if (b.next == b.ops.size()) return false;
        const operation& o = b.ops[b.next];
        if (o.side == barrier_side::leave) return arrived_[at(o.barrier)] >= o.wanted;
        for (const int w : o.waits)
            if (signals_[at(w)] < std::ranges::count(o.waits, w)) return false;
        for (const int s : o.acquires)
            if (left_[at(s)] < std::ranges::count(o.acquires, s)) return false;
        for (std::size_t f = 0; f < o.from.size(); ++f)
            for (const int c : o.from[f])
                if (wants_packet(o, f) && !seen(b, c).packet) return false;
        return true;
    }
    bool run(block& b) {
        const operation& o = b.ops[b.next++];
        begun_[at(b.gpu)] = 1;
        for (const int w : o.waits) --signals_[at(w)];
        for (const int s : o.acquires) --left_[at(s)];
        if (!o.releases.empty() && !land_all(b)) return false;
        for (const int s : o.releases) ++left_[at(s)];
        if (o.side == barrier_side::arrive) {
            ++arrived_[at(o.barrier)];
            return land_all(b);
        }
        std::vector<std::vector<value>> data;
        for (std::size_t f = 0; f < o.from.size(); ++f) {
            data.emplace_back();
            for (const int c : o.from[f]) {
                const cell m = seen(b, c);
                data.back().push_back(m.packet == wants_packet(o, f) && !early(c) ? m.x : nonsense());
            }
            for (std::size_t j = 0; o.sums && f > 0 && j < data[0].size(); ++j) data[0][j] += data[f][j];
        }
        // A thread block that sees a packet or a signal sees what came before it.
        if (o.packets && !land_all(b)) return false;
        for (std::size_t e = 0; e < o.to.size(); ++e)
            for (std::size_t j = 0; j < o.to[e].size(); ++j)
                b.stores.push_back(
                    {o.to[e][j], data[o.sums ? 0 : std::min(e, data.size() - 1)][j], o.packets && (!o.sums || e > 0)});
        if (!o.signals.empty() && !land_all(b)) return false;
        for (const int s : o.signals) ++signals_[at(s)];
        return true;
    }

    const json& plan_;
    int parts_, scratch_parts_, part_ = -1;  // the last one: of the iteration of a pipeline
    support::plan_task task_;
    std::map<std::pair<int, int>, int> counters_;  // semaphores of a gpu
    std::vector<int> begun_with_, left_;           // of these
    bool broken_ = false;
    std::map<std::tuple<int, char, int>, int> chunks_;
    std::map<std::tuple<int, int, std::string, int>, int> semaphores_;
    std::map<std::tuple<int, int, int>, int> barriers_;  // gpu, id, and how often its thread block came there before
    std::map<int, std::array<std::vector<semaphore_use>, 2>> uses_;
    std::vector<block> blocks_;
    // State of one run:
    std::vector<int> order_, signals_, arrived_, owner_;
    std::vector<char> begun_, ended_, scratch_;
    std::vector<cell> memory_;
    value random_ = 0, nonsense_ = 0;
};

bool always_right(const json& plan) {
    bool divided = false;
    for (const json& gpu : plan["gpus"])
        for (const json& tb : gpu["threadblocks"])
            for (const json& op : tb["ops"]) divided = divided || op.contains("tbg_info") || op["name"] == "pipeline";
    for (int parts = divided ? 4 : 1; parts > 0; --parts) {
        one_sided_runner runner(plan, parts);
        for (unsigned seed = 0; seed < 40; ++seed)
            if (!runner.right(seed)) return false;
    }
    return true;
}

using change = support::plan_change<json>;

/// Changes of an entry of src_buff or dst_buff.
void add_chunk_changes(std::vector<change>& all, const json& plan, const spot& where, const std::string& place) {
    const json& gpu = plan["gpus"][at(where.gpu)];
    json copy = plan;
    const json op = where.in(copy);
    for (const std::string side : {"src_buff", "dst_buff"})
        for (std::size_t e = 0; op.contains(side) && e < op[side].size(); ++e) {
            const std::string what = place + ", " + side + " " + std::to_string(e);
            const auto add = [&](const char* kind, auto f) {
                all.push_back({kind, what, [=](json& p) { f(where.in(p)[side][e]); }});
            };
            const auto plus = [](const char* key, int by) {
                return [=](json& chunk) { chunk[key] = chunk[key].get<int>() + by; };
            };
            add("index", plus("index", 1));
            add("index", plus("index", -1));
            add("size", plus("size", 1));
            if (op[side].size() > 1) all.push_back({"entry", what, [=](json& p) { where.in(p)[side].erase(e); }});
            all.push_back({"entry", what + " twice", [=](json& p) {
                               json& list = where.in(p)[side];
                               list.push_back(json(list[e]));
                           }});
            if (op[side][e].contains("type")) {
                for (const char* const other : {"i", "o", "s"})
                    if (op[side][e]["type"] != other) add("buffer", [=](json& chunk) { chunk["type"] = other; });
                add("buffer", [=](json& chunk) {
                    chunk.erase("type");
                    chunk["buffer_id"] = 0;
                });
            } else if (op[side][e].contains("switch_channel_id")) {
                add("switch",
                    [=](json& chunk) { chunk["switch_channel_id"] = 1 - chunk["switch_channel_id"].get<int>(); });
            } else {
                const int count = static_cast<int>(gpu["remote_buffers"].size());
                add("buffer", [=](json& chunk) { chunk["buffer_id"] = (chunk["buffer_id"].get<int>() + 1) % count; });
                add("buffer", [=](json& chunk) {
                    chunk.erase("buffer_id");
                    chunk["type"] = "i";
                });
            }
        }
    if (op.contains("src_buff"))
        all.push_back({"size", place + ", everywhere", [=](json& p) {
                           for (const char* const side : {"src_buff", "dst_buff"})
                               for (json& chunk : where.in(p)[side]) chunk["size"] = chunk["size"].get<int>() + 1;
                       }});
}

void add_operation_changes(std::vector<change>& all, const json& plan, const spot& where) {
    json copy = plan;
    const json ops = where.list_in(copy);
    const json op = ops[at(where.op)];
    const std::string name = op["name"].get<std::string>();
    if (name == "pipeline") {
        for (int i = 0; i < static_cast<int>(op["ops"].size()); ++i)
            add_operation_changes(all, plan, {where.gpu, where.block, i, where.op});
        return;
    }
    if (name == "nop") return;
    const std::string place = "gpu " + std::to_string(where.gpu) + ", thread block " + std::to_string(where.block) +
                              ", step " + std::to_string(where.op) + " (" + name + ")";
    all.push_back({"drop", place, [=](json& p) { where.list_in(p).erase(at(where.op)); }});
    all.push_back({"twice", place, [=](json& p) {
                       json& list = where.list_in(p);
                       list.insert(list.begin() + where.op, json(list[at(where.op)]));
                   }});
    for (int later = where.op + 1; later < static_cast<int>(ops.size()); ++later)
        if (ops[at(later)]["name"] != "nop") {
            all.push_back({"swap", place,
                [=](json& p) { std::swap(where.list_in(p)[at(where.op)], where.list_in(p)[at(later)]); }});
            break;
        }
    static const std::map<std::string, std::vector<const char*>> other{{"signal", {"wait", "rlxsignal"}},
        {"rlxsignal", {"rlxwait"}}, {"wait", {"signal"}}, {"rlxwait", {"rlxsignal"}}, {"put", {"get", "ppkt", "pws"}},
        {"pws", {"put"}}, {"pwsf", {"put", "pws"}}, {"get", {"put", "copy", "rre"}}, {"copy", {"cpkt", "upkt", "re"}},
        {"ppkt", {"put", "rppkt"}}, {"rppkt", {"ppkt", "put"}}, {"cpkt", {"copy", "ppkt"}}, {"upkt", {"copy", "repkt"}},
        {"re", {"copy", "repkt", "rre"}}, {"rre", {"re", "rres", "get"}}, {"res", {"re", "rres", "respkt"}},
        {"rres", {"rre", "res"}}, {"repkt", {"re", "upkt"}}, {"respkt", {"repkt", "res"}}, {"barrier", {"nop"}},
        {"recpkt", {"repkt", "recspkt"}}, {"recspkt", {"respkt", "recpkt"}}, {"glres", {"gstore"}},
        {"gstore", {"glres"}}, {"gstorepkt", {"gstore"}}, {"sem_acquire", {"sem_release"}},
        {"sem_release", {"sem_acquire"}}};
    if (const auto found = other.find(name); found != other.end())
        for (const char* const o : found->second)
            all.push_back({"operation", place + " to " + o, [=](json& p) {
                               json& changed = where.in(p);
                               changed["name"] = o;
                               if (std::string_view(o) == "nop") changed = {{"name", o}};
                               if (!std::string_view(o).starts_with("r")) changed.erase("reduce_op");
                           }});
    for (const char* const key : {"tb_id", "tbg_size"})
        for (const int by : {1, -1})
            if (op.contains("tbg_info"))
                all.push_back({"group", place + ", " + key, [=](json& p) {
                                   json& n = where.in(p)["tbg_info"][key];
                                   n = n.get<int>() + by;
                               }});
    if (op.contains("tbg_info"))
        all.push_back({"group", place + ", alone", [=](json& p) { where.in(p).erase("tbg_info"); }});
    for (const int by : {1, 2})
        if (op.contains("semaphore_ids"))
            all.push_back({"semaphore", place, [=](json& p) {
                               json& id = where.in(p)["semaphore_ids"][0];
                               id = (id.get<int>() + by) % 3;
                           }});
    if (op.contains("channel_type"))
        all.push_back({"channel", place + ", type", [=](json& p) {
                           json& type = where.in(p)["channel_type"];
                           type = type == "memory" ? "port" : "memory";
                       }});
    for (std::size_t c = 0; op.contains("channel_ids") && c < op["channel_ids"].size(); ++c) {
        all.push_back({"channel", place + ", channel " + std::to_string(c), [=](json& p) {
                           json& id = where.in(p)["channel_ids"][c];
                           id = id.get<int>() > 0 ? id.get<int>() - 1 : 1;
                       }});
        all.push_back({"channel", place + ", without channel " + std::to_string(c),
            [=](json& p) { where.in(p)["channel_ids"].erase(c); }});
        all.push_back({"channel", place + ", channel " + std::to_string(c) + " twice", [=](json& p) {
                           json& ids = where.in(p)["channel_ids"];
                           ids.push_back(json(ids[c]));
                       }});
    }
    if (name == "barrier")
        for (const auto& [key, by] : {std::pair{"num_threadblocks", 1}, {"num_threadblocks", -1}, {"barrier_id", 1}})
            all.push_back({"barrier", place + ", " + key,
                [=, k = key, n = by](json& p) { where.in(p)[k] = where.in(p)[k].get<int>() + n; }});
    add_chunk_changes(all, plan, where, place);
}

/// A wait is dropped with its signal, or with the one before: then what was next on the channel ends the wait.
void add_wait_changes(std::vector<change>& all, const json& plan) {
    const auto words = [](const semaphore_use& u) {
        return "gpu " + std::to_string(u.where.gpu) + ", thread block " + std::to_string(u.where.block) + ", step " +
               std::to_string(u.where.op) + ", channel " + std::to_string(u.position);
    };
    const one_sided_runner runner(plan);
    for (const auto& [semaphore, sides] : runner.uses())
        for (std::size_t k = 0; k < sides[0].size(); ++k)
            for (const std::size_t other : {k, k + 1}) {
                if (other >= sides[1].size()) continue;
                const semaphore_use signal = sides[0][k], wait = sides[1][other];
                all.push_back({"wait", words(signal) + " and " + words(wait), [=](json& p) {
                                   for (const semaphore_use& u : {signal, wait})
                                       u.where.in(p)["channel_ids"].erase(at(u.position));
                               }});
            }
}

std::vector<change> changes_of(const json& plan) {
    std::vector<change> all;
    for (int g = 0; g < static_cast<int>(plan["gpus"].size()); ++g) {
        const json& gpu = plan["gpus"][at(g)];
        const std::string place = "gpu " + std::to_string(g);
        for (int t = 0; t < static_cast<int>(gpu["threadblocks"].size()); ++t)
            for (int i = 0; i < static_cast<int>(gpu["threadblocks"][at(t)]["ops"].size()); ++i)
                add_operation_changes(all, plan, {g, t, i});
        const int ranks = static_cast<int>(plan["gpus"].size());
        for (std::size_t b = 0; b < gpu["remote_buffers"].size(); ++b) {
            const auto remote = [=](json& p) -> json& { return p["gpus"][at(g)]["remote_buffers"][b]; };
            const std::string what = place + ", remote buffer " + std::to_string(b);
            all.push_back(
                {"peer", what, [=](json& p) { remote(p)["rank"] = (remote(p)["rank"].get<int>() + 1) % ranks; }});
            for (const char* const other : {"i", "o", "s"})
                if (gpu["remote_buffers"][b]["type"] != other)
                    all.push_back({"buffer", what, [=](json& p) { remote(p)["type"] = other; }});
        }
        for (std::size_t s = 0; s < gpu.value("semaphores", json::array()).size(); ++s)
            for (const int by : {1, -1})
                all.push_back({"semaphore", place + ", semaphore " + std::to_string(s), [=](json& p) {
                                   json& first = p["gpus"][at(g)]["semaphores"][s]["init_value"];
                                   first = first.get<int>() + by;
                               }});
        for (std::size_t c = 0; c < gpu["channels"].size(); ++c)
            for (std::size_t k = 0; k < gpu["channels"][c].value("connected_to", json::array()).size(); ++k)
                all.push_back({"peer", place + ", channel " + std::to_string(k), [=](json& p) {
                                   json& peer = p["gpus"][at(g)]["channels"][c]["connected_to"][k];
                                   peer = (peer.get<int>() + 1) % ranks;
                               }});
    }
    add_wait_changes(all, plan);
    return all;
}

// Plans with what the samples lack, on three ranks. Each rank knows the others as peers 0 and 1, in order.
struct gpu_plan {
    int rank;
    int peer(int k) const { return k < rank ? k : k + 1; }
    /// What peer k calls this rank.
    int number_at(int k) const { return rank < peer(k) ? rank : rank - 1; }
};
json chunk(const char* buffer, int index, int size = 1) { return {{"type", buffer}, {"index", index}, {"size", size}}; }
/// Scratch memory of peer k, or its input.
json remote(int k, const char* buffer, int index, int size = 1) {
    return {{"buffer_id", 2 * k + (buffer[0] == 's' ? 0 : 1)}, {"index", index}, {"size", size}};
}
using list = std::vector<json>;  // in braces, json alone takes one object for itself
json moves(const char* name, const list& from, const list& to, const char* type = "memory") {
    return {{"name", name}, {"src_buff", from}, {"dst_buff", to}, {"channel_type", type}};
}
json signals(const char* name, const json& channels, const char* type = "memory") {
    return {{"name", name}, {"channel_ids", channels}, {"channel_type", type}};
}
/// `blocks`: the operations of each thread block of a rank.
json three_ranks(const char* name, const char* collective, bool in_place, std::array<int, 3> chunks,
    const std::function<list(const gpu_plan&)>& blocks) {
    json gpus = json::array();
    for (int r = 0; r < 3; ++r) {
        const gpu_plan g{r};
        json threads = json::array(), remotes = json::array(), channels = json::array(), own = json::array(),
             refs = json::array();
        for (const int k : {0, 1})
            for (const char* const buffer : {"s", "i"})
                remotes.push_back(
                    {{"rank", g.peer(k)}, {"type", buffer}, {"access_channel_types", {"memory", "port"}}});
        for (const char* const type : {"memory", "port"}) {
            channels.push_back({{"channel_type", type}, {"connected_to", {g.peer(0), g.peer(1)}}});
            own.push_back({{"channel_type", type}, {"channel_ids", {0, 1}}});
            refs.push_back({{"access_channel_type", type}, {"remote_buffer_ids", {0, 1, 2, 3}}});
        }
        for (const char* const buffer : {"i", "s"})
            channels.push_back({{"channel_type", "switch"}, {"buffer_type", buffer},
                {"rank_groups", json::array({{{"size", 1}, {"ranks", {0, 1, 2}}}})}});
        own.push_back({{"channel_type", "switch"}, {"channel_ids", {0, 1}}});
        for (const json& ops : blocks(g))
            threads.push_back({{"id", threads.size()}, {"ops", ops}, {"channels", own}, {"remote_buffer_refs", refs}});
        gpus.push_back(
            {{"id", r}, {"input_chunks", chunks[0]}, {"output_chunks", chunks[1]}, {"scratch_chunks", chunks[2]},
                {"threadblocks", threads}, {"channels", channels}, {"remote_buffers", remotes},
                {"semaphores", {{{"init_value", 0}}, {{"init_value", 0}}, {{"init_value", 2}}}}});
    }
    const bool packets = std::string(name).find("packets") != std::string::npos;
    return {{"name", name}, {"collective", collective}, {"protocol", packets ? "LL" : "Simple"}, {"inplace", in_place},
        {"gpus", gpus}};
}

/// A chunk of a switch channel: 0 is that of the input, 1 that of scratch memory.
json all(int channel, int index, int size = 1) {
    return {{"switch_channel_id", channel}, {"index", index}, {"size", size}};
}
json shared(json op, int id, int of) {
    op["tbg_info"] = {{"tb_id", id}, {"tbg_size", of}};
    return op;
}

/// Switch channels, groups of thread blocks, pipelines, and packets that are kept.
list plans_of_other_forms() {
    const json both{0, 1};
    const auto meet = [](int id) { return json{{"name", "barrier"}, {"barrier_id", id}, {"num_threadblocks", 2}}; };
    const auto semaphore = [](const char* name, int id) {
        return json{{"name", name}, {"semaphore_ids", json::array({id})}};
    };
    // Scratch memory has room for two iterations.
    constexpr int unit = 11184816;
    const auto pipeline = [&](const json& ops) {
        return json::array(
            {{{"name", "pipeline"}, {"iter_context", {{"unit_size", unit}, {"num_chunks", 1}}}, {"ops", ops}}});
    };
    json last = three_ranks("a pipeline", "allreduce", true, {3, 3, 3}, [&](const gpu_plan& g) {
        json in = json::array({semaphore("sem_acquire", 2)}), out = json::array({semaphore("sem_acquire", 1)});
        for (const char* const each : {"signal", "wait"}) out.push_back(signals(each, both, "port"));
        for (int c = 0; c < 3; ++c) {
            in.push_back(moves("copy", {chunk("i", c)}, {chunk("s", c)}));
            out.push_back(moves("copy", {chunk("s", c)}, {chunk("i", c)}));
        }
        for (const char* const each : {"signal", "wait"}) in.push_back(signals(each, both));
        in.push_back(semaphore("sem_release", 0));
        out.push_back(semaphore("sem_release", 2));
        return list{pipeline(in),
            pipeline(json::array({semaphore("sem_acquire", 0),
                moves("glres", {all(1, g.rank)}, {all(1, g.rank)}, "switch"), semaphore("sem_release", 1)})),
            pipeline(out)};
    });
    last["reuse_resources"] = true;
    return {three_ranks("a switch", "allreduce", true, {3, 3, 0},
                [&](const gpu_plan& g) {
                    return list{json::array({signals("rlxsignal", both), signals("rlxwait", both),
                        moves("glres", {all(0, g.rank)}, {all(0, g.rank)}, "switch"), signals("signal", both),
                        signals("wait", both)})};
                }),
        three_ranks("a switch to scratch memory", "allgather", false, {1, 3, 3},
            [&](const gpu_plan& g) {
                return list{
                    json::array({moves("gstore", {chunk("i", 0)}, {all(1, g.rank)}, "switch"), signals("signal", both),
                        signals("wait", both), moves("copy", {chunk("s", 0, 3)}, {chunk("o", 0, 3)})})};
            }),
        three_ranks("packets by a switch", "allgather", false, {1, 3, 3},
            [&](const gpu_plan& g) {
                return list{json::array({moves("cpkt", {chunk("i", 0)}, {chunk("s", g.rank)})}),
                    json::array({moves("gstorepkt", {chunk("s", g.rank)}, {all(1, g.rank)}, "switch"),
                        moves("upkt", {chunk("s", 0, 3)}, {chunk("o", 0, 3)})})};
            }),
        three_ranks("packets that are kept", "allreduce", false, {1, 1, 3},
            [&](const gpu_plan& g) {
                return list{json::array({moves("ppkt", {chunk("i", 0), chunk("i", 0)},
                                             {remote(0, "s", g.number_at(0)), remote(1, "s", g.number_at(1))}),
                                moves("recpkt", {chunk("i", 0), chunk("s", 0), chunk("s", 1)},
                                    {chunk("i", 0), chunk("s", 2)})}),
                    json::array({moves("upkt", {chunk("s", 2)}, {chunk("o", 0)})})};
            }),
        three_ranks("groups", "allreduce", false, {3, 3, 0},
            [&](const gpu_plan& g) {
                list threads;
                for (const int id : {0, 1}) {
                    json ops = json::array();
                    const auto wait = [&](int barrier) {
                        for (const char* const each : {"signal", "wait"})
                            if (id == 0) ops.push_back(signals(each, both));
                        ops.push_back(meet(barrier));
                    };
                    wait(0);
                    ops.push_back(
                        shared(moves("rres", {chunk("i", g.rank), remote(0, "i", g.rank), remote(1, "i", g.rank)},
                                   {chunk("i", g.rank), remote(0, "i", g.rank), remote(1, "i", g.rank)}),
                            id, 2));
                    ops.push_back(meet(1));
                    wait(0);
                    ops.push_back(shared(moves("copy", {chunk("i", 0, 3)}, {chunk("o", 0, 3)}), id, 2));
                    threads.push_back(ops);
                }
                return threads;
            }),
        three_ranks("packets of groups", "allreduce", true, {3, 3, 5},
            [&](const gpu_plan& g) {
                list threads;
                for (const int id : {0, 1}) {
                    json ops = json::array({moves("ppkt", {chunk("i", g.peer(0)), chunk("i", g.peer(1))},
                                                {remote(0, "s", g.number_at(0)), remote(1, "s", g.number_at(1))}),
                        moves("recspkt", {chunk("i", g.rank), chunk("s", 0), chunk("s", 1)},
                            {chunk("i", g.rank), chunk("s", 4), remote(0, "s", 2 + g.number_at(0)),
                                remote(1, "s", 2 + g.number_at(1))}),
                        moves("upkt", {chunk("s", 2)}, {chunk("i", g.peer(0))}),
                        moves("upkt", {chunk("s", 3)}, {chunk("i", g.peer(1))})});
                    for (json& op : ops) op = shared(op, id, 2);
                    threads.push_back(ops);
                }
                return threads;
            }),
        last};
}

list plans_of_three_ranks() {
    const json both{0, 1};
    return {three_ranks("two thread blocks", "allreduce", false, {3, 3, 2},
                [&](const gpu_plan& g) {
                    json first = json::array(), second = json::array();
                    for (const int k : {0, 1}) {
                        json op = moves(
                            k == 0 ? "pws" : "pwsf", {chunk("i", g.peer(k))}, {remote(k, "s", g.number_at(k))}, "port");
                        op["channel_ids"] = json::array({k});
                        first.push_back(op);
                        if (k == 0)
                            first.push_back(
                                {{"name", "flush"}, {"channel_ids", json::array({0})}, {"channel_type", "port"}});
                    }
                    const auto meet = [&](int id) {
                        for (json* const ops : {&first, &second})
                            ops->push_back({{"name", "barrier"}, {"barrier_id", id}, {"num_threadblocks", 2}});
                    };
                    first.push_back(signals("wait", both, "port"));
                    meet(0);
                    second.push_back(moves("res", {chunk("i", g.rank), chunk("s", 0), chunk("s", 1)},
                        {chunk("i", g.rank), remote(0, "i", g.rank), remote(1, "i", g.rank)}));
                    second.push_back(signals("signal", both));
                    second.push_back(signals("wait", both));
                    meet(0);
                    first.push_back(moves("copy", {chunk("i", 0, 2)}, {chunk("o", 0, 2)}));
                    second.push_back(moves("copy", {chunk("i", 2)}, {chunk("o", 2)}));
                    return list{first, second};
                }),
        three_ranks("packets of a chain", "broadcast", true, {2, 2, 2},
            [](const gpu_plan& g) {
                json ops = json::array();
                if (g.rank == 0) ops.push_back(moves("cpkt", {chunk("i", 0, 2)}, {chunk("s", 0, 2)}));
                if (g.rank < 2) ops.push_back(moves("rppkt", {chunk("s", 0, 2)}, {remote(g.rank, "s", 0, 2)}));
                if (g.rank > 0) ops.push_back(moves("upkt", {chunk("s", 0, 2)}, {chunk("i", 0, 2)}));
                return list{ops};
            }),
        three_ranks("packets to all", "allreduce", true, {1, 1, 2},
            [](const gpu_plan& g) {
                return list{json::array({moves("ppkt", {chunk("i", 0), chunk("i", 0)},
                                             {remote(0, "s", g.number_at(0)), remote(1, "s", g.number_at(1))}),
                    moves("repkt", {chunk("i", 0), chunk("s", 0), chunk("s", 1)}, {chunk("i", 0)})})};
            }),
        three_ranks("gets", "alltoall", false, {3, 3, 0}, [&](const gpu_plan& g) {
            return list{json::array({moves("copy", {chunk("i", g.rank)}, {chunk("o", g.rank)}), signals("signal", both),
                signals("wait", both),
                moves("get", {remote(0, "i", g.rank), remote(1, "i", g.rank)},
                    {chunk("o", g.peer(0)), chunk("o", g.peer(1))}),
                signals("rlxsignal", both), signals("rlxwait", both)})};
        })};
}

}  // namespace

TEST_CASE("exchange: changed plans of MSCCL++ are refuted", "[exchange]") {
    support::changed_plans all;
    const auto check = [&](const std::string& name, const json& plan, std::size_t most) {
        all.check(name, plan, changes_of(plan), most, [](const json& p) { return p.dump(); }, always_right);
    };
    for (const auto& file : support::sample_plans(".json"))
        check(file.filename().string(), json::parse(support::text_of(file)), 250);
    for (const list& plans : {plans_of_three_ranks(), plans_of_other_forms()})
        for (const json& plan : plans) check(plan["name"].get<std::string>() + ".json", plan, 1000);
    // Gets and reductions of remote chunks, as colls writes them.
    for (const char* const name :
        {"ring_all_reduce_4", "direct_gather_4", "pipelined_broadcast_4", "recursive_doubling_all_gather_8"}) {
        const auto read = exchange::read_plan(
            support::text_of(std::string(COLLS_TEST_PLANS "/") + name + ".xml"), std::string(name) + ".xml");
        const std::string text = exchange::write_mscclpp(read->schedule, read->from->table.ranks, name);
        check(std::string(name) + ".json", json::parse(text), 100);
    }
    all.print("MSCCL++");
    CHECK(all.wrong > 1500);
    CHECK(all.missed * 100 <= all.wrong);
}

TEST_CASE("exchange: plans of MSCCL++ of all forms run", "[exchange]") {
    int run = 0;
    for (const list& plans : {plans_of_three_ranks(), plans_of_other_forms()})
        for (const json& plan : plans) {
            INFO(plan["name"]);
            const support::judgement j = support::judge(plan.dump(), "p.json");
            REQUIRE(j.text == "");
            if (j.read->from->table.scratch > 0) continue;  // executors have no scratch slots beside several blocks
            CHECK(exchange::try_plan(j.read->schedule, 3, 12) == "");
            ++run;
        }
    CHECK(run >= 10);
}

TEST_CASE("exchange: of a plan of MSCCL++ it is said where it is wrong", "[exchange]") {
    const auto plan_of = [](const std::string& name) {
        for (const list& plans : {plans_of_three_ranks(), plans_of_other_forms()})
            for (const json& plan : plans)
                if (plan["name"] == name) return plan;
        throw std::runtime_error("there is no plan of that name");
    };
    const auto expect = [&](const std::string& name, const std::function<void(json&)>& change, support::verdict what,
                            const std::string& words) {
        json plan = plan_of(name);
        change(plan);
        const support::judgement j = support::judge(plan.dump(), "p.json");
        INFO(name << ": " << j.text);
        CHECK(j.what == what);
        CHECK(support::lacks(j.text, {words}) == "");
        CHECK(j.text.find('\n') == std::string::npos);
        CHECK(j.text.find("json") == std::string::npos);
    };
    using support::verdict;
    const auto op = [](json& p, int gpu, int block, int i) -> json& { return spot{gpu, block, i}.in(p); };
    // A missing wait, a wrong buffer, a wrong chunk, a wrong number, of each form.
    expect(
        "a switch", [&](json& p) { spot{1, 0, 3}.list_in(p).erase(3); }, verdict::refuted,
        "waits for ever: gpu 1 signals 1 times");
    expect(
        "a switch", [&](json& p) { op(p, 1, 0, 2)["src_buff"][0]["index"] = 0; }, verdict::refuted,
        "gpu 1, thread block 0, step 2 (glres)");
    expect(
        "a switch", [&](json& p) { op(p, 1, 0, 2)["src_buff"][0]["switch_channel_id"] = 2; }, verdict::refused,
        "gpu 1, thread block 0, step 2 (glres), \"src_buff\"[0], \"switch_channel_id\" is 2: it must be from 0 to 1");
    expect(
        "a switch", [&](json& p) { p["gpus"][2]["channels"][2]["rank_groups"][0]["ranks"] = {1, 2}; }, verdict::refused,
        "switch channel 1 of gpu 0 connects gpu 2, which has no such switch channel");
    expect(
        "a switch to scratch memory", [&](json& p) { op(p, 0, 0, 0)["dst_buff"][0]["index"] = 1; }, verdict::refuted,
        "access s[1] of gpu 0, and neither waits for the other");
    expect(
        "packets by a switch", [&](json& p) { spot{2, 1, 0}.list_in(p).erase(0); }, verdict::refuted,
        "waits for ever for a packet in s[2]");
    expect(
        "packets by a switch", [&](json& p) { p["protocol"] = "Simple"; }, verdict::refused,
        "scratch memory has no room: they need \"protocol\": \"LL\"");
    expect(
        "packets that are kept", [&](json& p) { op(p, 0, 1, 0)["src_buff"][0]["index"] = 1; }, verdict::refuted,
        "rank 0 ends without the contribution of rank 0");
    expect(
        "packets that are kept", [&](json& p) { op(p, 0, 0, 1)["dst_buff"].erase(1); }, verdict::refused,
        "gpu 0, thread block 0, step 1 (recpkt) has 3 sources and 1 destinations");
    expect(
        "packets of groups", [&](json& p) { op(p, 0, 1, 1)["tbg_info"]["tb_id"] = 0; }, verdict::refused,
        "where 2 are written");
    expect(
        "packets of groups", [&](json& p) { op(p, 0, 1, 1).erase("tbg_info"); }, verdict::refused,
        "reads a packet from s[2] (part 1 of 2)");
    expect(
        "groups", [&](json& p) { spot{1, 1, 0}.list_in(p).erase(0); }, verdict::refuted,
        "gpu 1 waits for ever: 1 of 2 thread blocks arrive at barrier 0");
    expect(
        "groups", [&](json& p) { op(p, 1, 1, 1)["tbg_info"]["tb_id"] = 2; }, verdict::refused,
        "\"tbg_info\", \"tb_id\" is 2: it must be from 0 to 1");
    expect(
        "groups",
        [&](json& p) {
            for (const int block : {0, 1}) op(p, 0, block, block == 0 ? 3 : 1)["tbg_info"]["tbg_size"] = 3;
        },
        verdict::refuted, "ends without the contribution");
    // Shares that do not meet: thread block 0 waits for the peer's thread block 0 alone, and reads what the other
    // wrote.
    expect(
        "groups",
        [&](json& p) {
            for (int g = 0; g < 3; ++g)
                for (const int block : {0, 1}) {
                    json& ops = spot{g, block, 0}.list_in(p);
                    for (std::size_t i = ops.size(); i-- > 0;)
                        if (ops[i]["name"] == "barrier") ops.erase(i);
                }
        },
        verdict::refuted, "gpu 0, thread block 1, step 0 (rres)");
    expect(
        "a pipeline", [&](json& p) { p["gpus"][1]["semaphores"][2]["init_value"] = 3; }, verdict::refuted,
        "iteration 3 of 3) access s[0] (part 1 of 2) of gpu 1, and neither waits for the other");
    expect(
        "a pipeline", [&](json& p) { p["gpus"][1]["semaphores"][2]["init_value"] = 0; }, verdict::refuted,
        "the plan waits for ever: gpu ");
    expect(
        "a pipeline", [&](json& p) { spot{0, 1, 2, 0}.list_in(p).erase(2); }, verdict::refuted,
        "waits for ever: semaphore 1 begins with 0, and is released 0 times");
    expect(
        "a pipeline", [&](json& p) { spot{0, 2, 0, 0}.list_in(p).erase(0); }, verdict::refuted,
        "semaphore 1 of gpu 0 is "
        "acquired 0 times and released 1 times: the next call would begin with 1, not with 0");
    expect(
        "a pipeline", [&](json& p) { op(p, 0, 1, 0)["iter_context"]["num_chunks"] = 2; }, verdict::refused,
        "\"num_chunks\" above 1 and \"reuse_resources\"");
    expect(
        "a pipeline",
        [&](json& p) {
            p["reuse_resources"] = false;
            op(p, 0, 1, 0)["iter_context"]["num_chunks"] = 2;
        },
        verdict::refused,
        "(pipeline, operation 1, glres) is about 1 chunks, and the iterations of its pipeline about 2");
    expect(
        "a pipeline",
        [&](json& p) {
            json& inner = spot{0, 1, 1, 0}.in(p);
            inner = shared(inner, 0, 2);
        },
        verdict::refused, "is shared by thread blocks in a pipeline");
    expect(
        "a pipeline", [&](json& p) { op(p, 0, 1, 0)["iter_context"]["unit_size"] = 1 << 20; }, verdict::refused,
        "unit");
    expect(
        "packets to all", [&](json& p) { op(p, 0, 0, 0)["src_buff"].erase(1); }, verdict::refused,
        "gpu 0, thread block 0, step 0 (ppkt) has 1 sources and 2 destinations");
    expect(
        "two thread blocks", [&](json& p) { op(p, 0, 0, 0)["channel_ids"][0] = 1; }, verdict::refused,
        "\"channel_ids\"[0] leads to gpu 2, and the destination is at gpu 1");
    expect(
        "two thread blocks", [&](json& p) { op(p, 0, 0, 0)["channel_type"] = "memory"; }, verdict::refused,
        "gpu 0, thread block 0, step 0 (pws) goes by port channels, and not by memory channels");
    expect(
        "two thread blocks", [&](json& p) { op(p, 0, 1, 1)["reduce_op"] = "product"; }, verdict::refused,
        "(res), \"reduce_op\" is \"product\": there are sum, min and max");
    expect(
        "gets", [&](json& p) { op(p, 0, 0, 0)["name"] = "teleport\n"; }, verdict::refused,
        "gpu 0, thread block 0, step 0: \"teleport\\n\" is not a known operation");
    expect(
        "gets", [&](json& p) { op(p, 0, 0, 0)["deps"] = 1; }, verdict::refused,
        "gpu 0, thread block 0, step 0 (copy) has \"deps\", which is not understood");
    expect("gets", [&](json& p) { p["instances"] = 1; }, verdict::refused, "the plan has \"instances\"");
    expect("gets", [&](json& p) { p["gpus"] = json::array(); }, verdict::refused, "the plan has 0 gpus");
    expect(
        "gets", [&](json& p) { p["gpus"][1]["input_chunks"] = 6; }, verdict::refused,
        "\"input_chunks\" is 3: of chunks as large as the others it is 6");
    expect(
        "gets", [&](json& p) { p["gpus"][1]["remote_buffers"][0]["rank"] = 3; }, verdict::refused,
        "gpu 1, \"remote_buffers\"[0], \"rank\" is 3: it must be from 0 to 2");
    expect(
        "gets", [&](json& p) { op(p, 0, 0, 1)["channel_ids"] = json::array(); }, verdict::refused, "names no channels");
    expect(
        "gets", [&](json& p) { op(p, 2, 0, 3)["src_buff"][0]["size"] = 1e9; }, verdict::refused,
        "\"size\" is the number 1000000000.0, and must be a whole number");
    expect(
        "gets", [&](json& p) { op(p, 2, 0, 3)["src_buff"][0]["size"] = 1000000000; }, verdict::refused,
        "\"size\" is 1000000000: it must be from 1 to 65536");
}

TEST_CASE(
    "exchange: where a member of a plan of MSCCL++ is of another type, or missing, one line says so", "[exchange]") {
    const std::vector<json> others{nullptr, true, -1, 70000, 0.5, std::uint64_t(-1), "", "x\n", json::array(),
        json::array({json::array()}), json::object()};
    int refused = 0;
    // Changes one member after another, of all objects and lists in it.
    const std::function<void(const json&, json&, json&)> change = [&](const json& plan, json& whole, json& inside) {
        const auto judged = [&](const char* what) {
            const support::judgement j = support::judge(whole.dump(), "p.json");
            INFO(plan["name"] << ", " << what << ": " << j.text);
            CHECK(j.text.find('\n') == std::string::npos);
            CHECK(j.text.find("exception") == std::string::npos);
            refused += j.what == support::verdict::refused;
        };
        if (inside.is_object()) {
            inside["another"] = 1;
            const support::judgement j = support::judge(whole.dump(), "p.json");
            CHECK(support::lacks(j.text, {"\"another\", which is not understood"}) == "");
            inside.erase("another");
        }
        const json before = inside;
        for (const auto& member : before.items()) {
            json& mine = inside.is_array() ? inside[std::stoul(member.key())] : inside[member.key()];
            const json kept = mine;
            if (mine.is_structured()) change(plan, whole, mine);
            for (const json& other : others) {
                mine = other;
                judged("changed");
            }
            mine = kept;
            if (!inside.is_object()) continue;
            inside.erase(member.key());
            judged("left out");
            inside[member.key()] = kept;
        }
    };
    for (const char* const name : {"packets of groups", "a pipeline"})
        for (json plan : plans_of_other_forms())
            if (plan["name"] == name) {
                json& gpus = plan["gpus"];
                const json first = plan;
                change(first, plan, gpus[1]);
                for (const auto& member : first.items()) {
                    if (member.key() == "gpus") continue;
                    json changed = first;
                    for (const json& other : others) {
                        changed[member.key()] = other;
                        CHECK(support::judge(changed.dump(), "p.json").text.find('\n') == std::string::npos);
                    }
                }
            }
    CHECK(refused > 1500);
    for (const char* const text : {"", "[", "{", "[1]", "null", "{\"gpus\": 1}", "{} {}", "\xff"}) {
        const support::judgement j = support::judge(text, "p.json");
        CHECK(j.what == support::verdict::refused);
        CHECK(j.text.find('\n') == std::string::npos);
        CHECK(j.text.find("exception") == std::string::npos);
    }
    CHECK(support::judge("{\n  \"name\": 1,,}", "p.json").text ==
          "line 2, column 13: this is no JSON: the file may be cut off, or of another kind");
}
