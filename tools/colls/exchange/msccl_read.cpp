#include "collective_names.hpp"
#include "index.hpp"
#include "msccl.hpp"
#include "xml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace exchange {

namespace {

/// A thread block while it is read.
struct thread_block {
    int rank = 0, id = 0, send = colls::none, recv = colls::none, channel = 0, scratch = 0;
    std::vector<int> events;
    std::vector<bool> announced;  ///< hasdep of each step
};

/// One end of a message.
struct end {
    int event = 0;
    std::vector<place> places;
    colls::action action = colls::action::copy;
};
using channel_key = std::tuple<int, int, int>;  // from, to, channel

class msccl_reader {
public:
    explicit msccl_reader(const element& algo) : algo_(algo) {}

    program read() {
        if (algo_.name != "algo") throw refused(fmt::format("<algo> is expected, not <{}>", algo_.name));
        read_head();
        std::vector<bool> seen(at(p_.ranks));
        for (const element& gpu : algo_.children) {
            if (gpu.name != "gpu")
                throw refused(fmt::format("line {}: <gpu> is expected, not <{}>", gpu.line, gpu.name));
            const int rank = gpu.integer("id");
            if (rank < 0 || rank >= p_.ranks || seen[at(rank)])
                throw refused(fmt::format("line {}: gpu {} is out of range, or there twice", gpu.line, rank));
            seen[at(rank)] = true;
            for (const element& tb : gpu.children) read_block(tb, rank, gpu.integer_or("s_chunks", 0));
        }
        if (const auto missing = std::ranges::find(seen, false); missing != seen.end())
            throw refused(fmt::format("there is no <gpu> with id {}", missing - seen.begin()));
        for (const auto& [element, event] : steps_) read_dependency(*element, event);
        match();
        return std::move(p_);
    }

private:
    void read_head() {
        p_.name = algo_.attributes.contains("name") ? algo_.text("name") : "plan";
        p_.ranks = algo_.integer_or("ngpus", static_cast<int>(algo_.children.size()));
        if (p_.ranks < 1 || p_.ranks != static_cast<int>(algo_.children.size()))
            throw refused(fmt::format("ngpus is {}, but there are {} gpus", p_.ranks, algo_.children.size()));
        p_.implements = collective_of_plan(algo_.text("coll"));
        p_.root = algo_.integer_or("root", 0);
        if (p_.root < 0 || p_.root >= p_.ranks) throw refused(fmt::format("root {} is not a gpu", p_.root));
        p_.blocks = algo_.integer_or("nchunksperloop", 0);
        bool both = false;
        for (const element& gpu : algo_.children) {
            const int in = gpu.integer_or("i_chunks", 0), out = gpu.integer_or("o_chunks", 0);
            if (!algo_.attributes.contains("nchunksperloop")) p_.blocks = std::max({p_.blocks, in, out});
            both = both || (in > 0 && out > 0);
        }
        constexpr int most = 1 << 16;
        if (p_.blocks < 1 || p_.blocks > most) throw refused(fmt::format("{} chunks are out of range", p_.blocks));
        if ((colls::owned(p_.implements) || p_.implements == colls::collective::all_to_all) &&
            p_.blocks % p_.ranks != 0)
            throw refused(fmt::format("{} chunks cannot be divided among {} ranks", p_.blocks, p_.ranks));
        // A plan for calls of both kinds must be right for those with two buffers.
        p_.in_place = algo_.integer_or("inplace", both ? 0 : 1) != 0 && algo_.integer_or("outofplace", 0) == 0;
    }

    void read_block(const element& e, int rank, int scratch) {
        if (e.name != "tb") throw refused(fmt::format("line {}: <tb> is expected, not <{}>", e.line, e.name));
        thread_block tb{
            rank, e.integer("id"), e.integer("send"), e.integer("recv"), e.integer_or("chan", 0), scratch, {}, {}};
        const std::string name = fmt::format("gpu {}, thread block {}", rank, tb.id);
        for (const int peer : {tb.send, tb.recv})
            if (peer < -1 || peer >= p_.ranks || peer == rank)
                throw refused(fmt::format(
                    "{} names peer {}; there are -1 and the other gpus up to {}", name, peer, p_.ranks - 1));
        const int thread = static_cast<int>(blocks_.size());
        if (!numbers_.emplace(std::pair{rank, tb.id}, thread).second) throw refused(name + " is there twice");
        if (tb.send >= 0 && !senders_.emplace(channel_key{rank, tb.send, tb.channel}, thread).second)
            throw refused(
                fmt::format("{}: another thread block sends to gpu {} on channel {}", name, tb.send, tb.channel));
        if (tb.recv >= 0 && !receivers_.emplace(channel_key{tb.recv, rank, tb.channel}, thread).second)
            throw refused(
                fmt::format("{}: another thread block receives from gpu {} on channel {}", name, tb.recv, tb.channel));
        for (const element& step : e.children) {
            if (step.name != "step")
                throw refused(fmt::format("line {}: <step> is expected, not <{}>", step.line, step.name));
            const int event = static_cast<int>(p_.events.size());
            p_.events.push_back({rank, thread, tb.id, step.integer("s"), step.text("type")});
            if (p_.events.back().step != static_cast<int>(tb.events.size()))
                throw refused(words(p_.events.back()) + " is out of order: steps are numbered from 0 on");
            if (!tb.events.empty()) p_.waits.emplace_back(tb.events.back(), event);
            tb.events.push_back(event);
            tb.announced.push_back(step.integer_or("hasdep", 0) != 0);
            steps_.emplace_back(&step, event);
            read_step(step, event, tb);
        }
        blocks_.push_back(std::move(tb));
    }

    std::vector<place> places(
        const element& step, const std::string& side, int count, int event, const thread_block& tb) const {
        std::vector<place> all;
        for (int i = 0; i < count; ++i)
            all.push_back(place_of(p_, tb.rank, step.text(side + "buf"), step.integer(side + "off") + i, tb.scratch,
                words(p_.events[at(event)])));
        return all;
    }
    void read_step(const element& step, int event, const thread_block& tb) {
        const std::string& type = p_.events[at(event)].type;
        if (type == "nop") return;
        const bool receives = type[0] == 'r' && type != "re", reduces = type.starts_with("rr") || type == "re",
                   sends = type == "s" || type == "rcs" || type == "rrs" || type == "rrcs",
                   local = type == "cpy" || type == "re";
        const bool known =
            local || type == "s" || type == "r" || type == "rcs" || type == "rrc" || type == "rrs" || type == "rrcs";
        const std::string name = words(p_.events[at(event)]);
        if (!known) throw refused(name + " has a type that is not known");
        const int count = step.integer_or("cnt", 1);
        if (count < 1 || count > p_.blocks + tb.scratch)
            throw refused(fmt::format("{} is about {} chunks", name, count));
        if (sends && tb.send < 0) throw refused(name + " sends, but its thread block has no gpu to send to");
        if (receives && tb.recv < 0) throw refused(name + " receives, but its thread block has no gpu to receive from");
        const std::vector<place> source =
            type == "r" || type == "rcs" ? std::vector<place>() : places(step, "src", count, event, tb);
        std::vector<place> target =
            type == "s" || type == "rrs" ? std::vector<place>() : places(step, "dst", count, event, tb);
        const auto action = reduces ? colls::action::reduce : colls::action::copy;
        if (local) return add_local(source, target, action, event);
        if (type == "rrs")
            for (int i = 0; i < count; ++i) target.push_back({tb.rank, memory::passing, passing_++});
        if (receives) {
            // A reduction takes what it finds in `source` as its operand.
            if (reduces && source != target) {
                for (int i = 0; i < count; ++i)
                    p_.moves.push_back(
                        {colls::action::copy, source[at(i)], target[at(i)], event, event, 0, 0, p_.groups});
                ++p_.groups;
            }
            received_[{tb.recv, tb.rank, tb.channel}].push_back({event, target, action});
        }
        if (sends) sent_[{tb.rank, tb.send, tb.channel}].push_back({event, receives ? target : source, {}});
    }
    void add_local(
        const std::vector<place>& source, const std::vector<place>& target, colls::action action, int event) {
        for (const place& p : source)
            if (source != target && std::ranges::find(target, p) != target.end())
                throw refused(words(p_.events[at(event)]) + " reads chunks that it writes");
        for (std::size_t i = 0; i < source.size(); ++i)
            p_.moves.push_back({action, source[i], target[i], event, event, 1, 1, p_.groups});
        ++p_.groups;
    }

    void read_dependency(const element& step, int event) {
        const int block = step.integer_or("depid", -1), target = step.integer_or("deps", -1);
        if (block < 0) return;
        const std::string name = words(p_.events[at(event)]);
        const auto found = numbers_.find({p_.events[at(event)].rank, block});
        if (found == numbers_.end())
            throw refused(fmt::format("{} waits for thread block {}, and there is none", name, block));
        const thread_block& tb = blocks_[at(found->second)];
        if (target < 0 || target >= static_cast<int>(tb.events.size()))
            throw refused(fmt::format(
                "{} waits for step {} of thread block {}, which has {}", name, target, block, tb.events.size()));
        // A thread block announces how far it is at the steps that have hasdep.
        int announced = target;
        while (announced < static_cast<int>(tb.events.size()) && !tb.announced[at(announced)]) ++announced;
        if (announced == static_cast<int>(tb.events.size()))
            throw refuted(
                fmt::format("{} waits for step {} of thread block {} for ever: neither that step nor a later "
                            "one has hasdep",
                    name, target, block));
        p_.waits.emplace_back(tb.events[at(announced)], event);
    }

    /// The k-th send on a channel meets the k-th receive.
    void match() {
        for (const auto& [key, all] : received_)
            if (const std::size_t sent = sent_[key].size(); all.size() > sent)
                throw refuted(
                    fmt::format("{} waits for ever: gpu {} sends {} messages to gpu {} on channel {}, and {} "
                                "are received",
                        words(p_.events[at(all[sent].event)]), std::get<0>(key), sent, std::get<1>(key),
                        std::get<2>(key), all.size()));
        for (const auto& [key, all] : sent_) {
            const auto& received = received_[key];
            if (all.size() > received.size())
                throw refuted(fmt::format("what {} sends to gpu {} on channel {} is never received",
                    words(p_.events[at(all[received.size()].event)]), std::get<1>(key), std::get<2>(key)));
            for (std::size_t i = 0; i < all.size(); ++i) {
                const end &from = all[i], &to = received[i];
                if (from.places.size() != to.places.size())
                    throw refuted(
                        fmt::format("{} sends {} chunks to {}, which receives {}", words(p_.events[at(from.event)]),
                            from.places.size(), words(p_.events[at(to.event)]), to.places.size()));
                p_.waits.emplace_back(from.event, to.event);
                for (std::size_t j = 0; j < from.places.size(); ++j)
                    p_.moves.push_back(
                        {to.action, from.places[j], to.places[j], from.event, to.event, 2, 1, p_.groups});
                ++p_.groups;
            }
        }
    }

    const element& algo_;
    program p_;
    std::vector<thread_block> blocks_;
    std::map<std::pair<int, int>, int> numbers_;  // of rank and id
    std::map<channel_key, int> senders_, receivers_;
    std::map<channel_key, std::vector<end>> sent_, received_;
    std::vector<std::pair<const element*, int>> steps_;
    int passing_ = 0;
};

}  // namespace

program read_msccl(const std::string& xml) {
    const element algo = read_xml(xml);
    return msccl_reader(algo).read();
}

}  // namespace exchange
