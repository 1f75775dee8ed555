#include "collective_names.hpp"
#include "mscclpp.hpp"

#include <colls/views.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace exchange {

namespace {

using nlohmann::json;

/// A chunk as one rank sees it: of another rank, or of its own.
struct chunk {
    int rank;
    char buffer;
    int index;
};
/// An operation on consecutive chunks.
struct operation {
    const char* name;
    std::vector<chunk> from;
    chunk to;
    int size = 1;

    /// Whether `other` does the same to the chunks behind these.
    bool continued_by(const operation& other) const {
        const auto behind = [this](const chunk& a, const chunk& b) {
            return a.rank == b.rank && a.buffer == b.buffer && a.index + size == b.index;
        };
        return std::string_view(name) == other.name && from.size() == other.from.size() && behind(to, other.to) &&
               std::equal(from.begin(), from.end(), other.from.begin(), behind);
    }
};

/// What a rank does in a round: it tells those that read from it that its chunks are there, waits for those from which
/// it reads, reads, tells these, and waits until it is read. A chunk that is received where one is sent from lands in
/// scratch memory first.
class mscclpp_writer {
public:
    mscclpp_writer(const colls::any_schedule& s, int n, std::string name)
        : s_(s),
          n_(n),
          name_(std::move(name)),
          blocks_(s.blocks(n)),
          scratch_(s.scratch(n)),
          transfers_of_(static_cast<std::size_t>(n)) {}

    std::string write() {
        for (const colls::views::transfer& t : colls::views::transfers(s_, n_)) {
            transfers_of_[static_cast<std::size_t>(t.from)].push_back(t);
            if (!t.local()) transfers_of_[static_cast<std::size_t>(t.to)].push_back(t);
        }
        json gpus = json::array();
        for (int r = 0; r < n_; ++r) gpus.push_back(gpu(r));
        for (json& each : gpus) each["scratch_chunks"] = scratch_;
        return json{{"name", name_}, {"collective", plan_name(s_.implements)}, {"protocol", "Simple"},
            {"inplace", true}, {"reuse_resources", false}, {"gpus", gpus}, {"num_threads_per_block", 1024},
            {"use_double_scratch_buffer", false}, {"buffer_alignment", 16}, {"min_message_size", 0},
            {"max_message_size", std::numeric_limits<std::uint64_t>::max()}}
            .dump(1, ' ', false, json::error_handler_t::replace);
    }

private:
    chunk slot(int rank, int number) const {
        if (number >= blocks_) return {rank, 's', number - blocks_};
        return {rank, buffer_of_slots(s_.implements), number};
    }

    json gpu(int r) {
        rank_ = r;
        ops_ = json::array();
        peers_.clear();
        buffers_.clear();
        const auto& mine = transfers_of_[static_cast<std::size_t>(r)];
        for (auto first = mine.begin(); first != mine.end();) {
            const auto last =
                std::find_if(first, mine.end(), [first](const auto& t) { return t.round != first->round; });
            add_round({first, last});
            first = last;
        }
        json remote = json::array(), channels = json::array(), refs = json::array(), own = json::array();
        for (const auto& [rank, buffer] : buffers_)
            remote.push_back({{"rank", rank}, {"type", std::string(1, buffer)}, {"access_channel_types", {"memory"}}});
        const auto numbers = [](std::size_t count) {
            json all = json::array();
            for (std::size_t i = 0; i < count; ++i) all.push_back(i);
            return all;
        };
        if (!peers_.empty()) {
            channels.push_back({{"channel_type", "memory"}, {"connected_to", peers_}});
            own.push_back({{"channel_type", "memory"}, {"channel_ids", numbers(peers_.size())}});
        }
        if (!buffers_.empty())
            refs.push_back({{"access_channel_type", "memory"}, {"remote_buffer_ids", numbers(buffers_.size())}});
        const bool owned = colls::owned(s_.implements);
        const bool gathers =
            s_.implements == colls::collective::all_gather || s_.implements == colls::collective::gather;
        return {{"id", r}, {"input_chunks", owned && gathers ? blocks_ / n_ : blocks_},
            {"output_chunks", owned && !gathers ? blocks_ / n_ : blocks_}, {"scratch_chunks", 0},
            {"threadblocks", {{{"id", 0}, {"ops", ops_}, {"channels", own}, {"remote_buffer_refs", refs}}}},
            {"channels", channels}, {"remote_buffers", remote}, {"semaphores", json::array()}};
    }

    void add_round(std::span<const colls::views::transfer> all) {
        std::set<int> readers, sources, sent;
        std::vector<operation> reads, then;  // then: of what has landed
        int landed = s_.scratch(n_);
        for (const colls::views::transfer& t : all) {
            if (t.from != rank_) continue;
            if (t.to != rank_) readers.insert(t.to);
            for (int i = 0; i < t.blocks.size(); ++i) sent.insert(t.blocks[i]);
        }
        for (const colls::views::transfer& t : all) {
            if (t.to != rank_) continue;
            const bool remote = t.from != rank_, reduces = t.action == colls::action::reduce;
            if (remote) sources.insert(t.from);
            for (int i = 0; i < t.blocks.size(); ++i) {
                const chunk from = slot(t.from, t.blocks[i]), to = slot(rank_, t.stored[i]);
                if (sent.contains(t.stored[i])) {
                    const chunk landing{rank_, 's', landed++};
                    put(reads, {remote ? "get" : "copy", {from}, landing});
                    if (reduces)
                        put_reduction(then, "re", to, landing);
                    else
                        put(then, {"copy", {landing}, to});
                } else if (reduces) {
                    put_reduction(reads, remote ? "rre" : "re", to, from);
                } else {
                    put(reads, {remote ? "get" : "copy", {from}, to});
                }
            }
        }
        scratch_ = std::max(scratch_, landed);
        if (readers.empty() && sources.empty() && reads.empty()) return;
        signal("signal", readers);
        signal("wait", sources);
        write_all(reads);
        signal("signal", sources);
        signal("wait", readers);
        write_all(then);
    }
    /// All that is reduced into a chunk is one operation, if it comes from memory of one kind.
    static void put_reduction(std::vector<operation>& into, const char* name, const chunk& to, const chunk& from) {
        for (operation& o : into)
            if (o.size == 1 && std::string_view(o.name) == name && o.to.buffer == to.buffer && o.to.index == to.index) {
                o.from.push_back(from);
                return;
            }
        into.push_back({name, {to, from}, to});
    }
    static void put(std::vector<operation>& into, operation o) { into.push_back(std::move(o)); }

    void write_all(const std::vector<operation>& all) {
        std::vector<operation> joined;
        for (const operation& o : all)
            if (!joined.empty() && joined.back().continued_by(o))
                ++joined.back().size;
            else
                joined.push_back(o);
        std::set<std::pair<char, int>> written;
        for (const operation& o : joined) {
            bool again = false;  // threads may share the chunk in another way than in the operation before
            for (int i = 0; i < o.size; ++i) again = !written.emplace(o.to.buffer, o.to.index + i).second || again;
            if (again) ops_.push_back({{"name", "nop"}});
            json op{{"name", o.name}, {"src_buff", json::array()}, {"dst_buff", {described(o.to, o.size)}},
                {"channel_type", "memory"}};
            for (const chunk& c : o.from) op["src_buff"].push_back(described(c, o.size));
            if (o.from.size() > 1) op["reduce_op"] = "sum";
            ops_.push_back(op);
        }
        if (!joined.empty()) ops_.push_back({{"name", "nop"}});
    }
    json described(const chunk& c, int size) {
        if (c.rank == rank_) return {{"type", std::string(1, c.buffer)}, {"index", c.index}, {"size", size}};
        return {{"buffer_id", number_of(buffers_, std::pair(c.rank, c.buffer))}, {"index", c.index}, {"size", size}};
    }
    void signal(const char* name, const std::set<int>& peers) {
        if (peers.empty()) return;
        json ids = json::array();
        for (const int peer : peers) ids.push_back(number_of(peers_, peer));
        ops_.push_back({{"name", name}, {"channel_ids", ids}, {"channel_type", "memory"}});
        if (std::string_view(name) == "wait") ops_.push_back({{"name", "nop"}});
    }
    /// The place of x in the list, at whose end it is added if it is new.
    template <class X>
    static std::size_t number_of(std::vector<X>& list, const X& x) {
        const auto found = std::ranges::find(list, x);
        const auto number = static_cast<std::size_t>(found - list.begin());
        if (found == list.end()) list.push_back(x);
        return number;
    }

    const colls::any_schedule& s_;
    const int n_;
    const std::string name_;
    const int blocks_;
    int scratch_;                                                    // chunks
    std::vector<std::vector<colls::views::transfer>> transfers_of_;  // by rank, those that it takes part in
    // State of the rank that is being written:
    int rank_ = 0;
    json ops_;
    std::vector<int> peers_;
    std::vector<std::pair<int, char>> buffers_;
};

}  // namespace

std::string write_mscclpp(const colls::any_schedule& s, int n, const std::string& name) {
    if (!s.supports(n)) throw refused(fmt::format("the schedule does not support {} ranks", n));
    if (!slots_are_chunks(s, n))
        throw refused("its slots are not numbered as the chunks are: MSCCL's XML has copies at both ends for that");
    if (colls::rooted(s.implements) && s.root(n) != 0)
        throw refused("plans of MSCCL++ have no place for a root other than 0");
    return mscclpp_writer(s, n, name).write();
}

}  // namespace exchange
