#include "collective_names.hpp"
#include "index.hpp"
#include "msccl.hpp"
#include "xml.hpp"

#include <colls/views.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace exchange {

namespace {

/// Consecutive chunks of one buffer.
struct span {
    char buffer = 'i';
    int first = 0, count = 1;
    friend bool operator==(const span&, const span&) = default;
};
/// A step of a thread block. A dependency is a thread block of the same rank, and a step of it by its number here.
struct written_step {
    std::string type;
    span from{}, to{};
    std::map<int, int> waits{};
    bool joined = false;  ///< it is part of the step before it
    int number = 0;       ///< in the plan
    bool announced = false;
};
struct written_block {
    int send = colls::none, recv = colls::none, channel = 0;
    std::vector<written_step> steps{};
    std::map<int, int> knows{};  ///< how far other thread blocks are, by what its steps have waited for
};
/// A part of a transfer: consecutive chunks at both ends.
struct piece {
    int from = 0, to = 0, channel = 0;
    colls::action action = colls::action::copy;
    span sent, stored;
};
/// The step by which a chunk was accessed.
struct access_step {
    int block = 0, step = 0;
};

class msccl_writer {
public:
    msccl_writer(const colls::any_schedule& s, int n, const msccl_options& how)
        : s_(s), n_(n), name_(how.name), coll_(plan_name(s.implements)), blocks_(s.blocks(n)), work_(s.scratch(n)) {
        in_place_ = !how.out_of_place && slots_are_chunks(s, n);
        if (!in_place_) work_ += blocks_;
    }

    std::string write() {
        find_pieces();
        for (int r = 0; r < n_; ++r) {
            gpus_.emplace_back();
            make_blocks(r);
            if (!in_place_) copy_in(r);
            for (const auto& round : pieces_) add_round(r, round);
            if (!in_place_) copy_out(r);
            join_steps(gpus_.back());
        }
        return text();
    }

private:
    bool owned() const { return colls::owned(s_.implements) || s_.implements == colls::collective::all_to_all; }
    int each() const { return blocks_ / n_; }
    /// Where a slot is while the plan works: in the user's buffer, or in scratch memory.
    span slot(int number) const {
        if (!in_place_) return {'s', number, 1};
        if (number >= blocks_) return {'s', number - blocks_, 1};
        return {buffer_of_slots(s_.implements), number, 1};
    }

    /// All rounds' transfers in pieces, with a channel for each piece that goes between two ranks in one round.
    void find_pieces() {
        for (int k = 0; k < s_.rounds(n_); ++k) {
            pieces_.emplace_back();
            std::map<std::pair<int, int>, int> used;
            for (const colls::views::transfer& t : colls::views::transfers(s_, n_, k, k + 1))
                for (const piece& p : parts_of(t)) {
                    pieces_.back().push_back(p);
                    constexpr int most = 32;  // channels
                    pieces_.back().back().channel = used[{t.from, t.to}]++ % most;
                }
        }
    }
    std::vector<piece> parts_of(const colls::views::transfer& t) const {
        std::vector<std::pair<int, int>> pairs;
        for (int i = 0; i < t.blocks.size(); ++i) pairs.emplace_back(t.blocks[i], t.stored[i]);
        std::ranges::sort(pairs);
        std::vector<piece> all;
        for (const auto& [from, to] : pairs) {
            const span sent = slot(from), stored = slot(to);
            if (!all.empty() && follows(all.back().sent, sent) && follows(all.back().stored, stored))
                ++all.back().sent.count, ++all.back().stored.count;
            else
                all.push_back({t.from, t.to, 0, t.action, sent, stored});
        }
        return all;
    }
    static bool follows(const span& a, const span& b) { return a.buffer == b.buffer && a.first + a.count == b.first; }

    /// Each connection of a rank has one thread block; one for sending and one for receiving share a thread block where
    /// they are used in the same rounds.
    void make_blocks(int r) {
        using connection = std::pair<int, int>;  // channel, peer
        std::map<std::tuple<int, int, int>, int> together;
        std::map<connection, int> sends, receives;
        for (const auto& round : pieces_)
            for (const piece& a : round) {
                if (a.from == a.to) continue;
                if (a.from == r) sends.emplace(connection{a.channel, a.to}, colls::none);
                if (a.to == r) receives.emplace(connection{a.channel, a.from}, colls::none);
                if (a.from != r) continue;
                for (const piece& b : round)
                    if (b.to == r && b.from != r && b.channel == a.channel) ++together[{a.channel, a.to, b.from}];
            }
        std::vector<std::pair<int, std::tuple<int, int, int>>> ordered;
        for (const auto& [key, count] : together) ordered.emplace_back(-count, key);
        std::ranges::sort(ordered);
        auto& all = gpus_.back();
        for (const auto& [count, key] : ordered) {
            const auto [channel, to, from] = key;
            int &send = sends[{channel, to}], &receive = receives[{channel, from}];
            if (send != colls::none || receive != colls::none) continue;
            send = receive = static_cast<int>(all.size());
            all.push_back({to, from, channel});
        }
        for (auto* const side : {&sends, &receives})
            for (auto& [key, block] : *side) {
                if (block != colls::none) continue;
                block = static_cast<int>(all.size());
                all.push_back(
                    {side == &sends ? key.second : colls::none, side == &sends ? colls::none : key.second, key.first});
            }
        sends_ = sends;
        receives_ = receives;
        local_ = colls::none;
        written_.clear();
        read_.clear();
    }
    int local_block() {
        if (local_ == colls::none) {
            local_ = static_cast<int>(gpus_.back().size());
            gpus_.back().push_back({});
        }
        return local_;
    }

    void add_round(int r, const std::vector<piece>& round) {
        for (const piece& p : round)
            if (p.from == r && p.to != r) add(sends_.at({p.channel, p.to}), {"s", p.sent, p.sent}, true, false);
        // Local steps, each before what it reads is written by another.
        std::vector<const piece*> local;
        for (const piece& p : round)
            if (p.from == r && p.to == r) local.push_back(&p);
        while (!local.empty()) {
            const auto first = std::ranges::find_if(local, [&](const piece* p) {
                return std::ranges::none_of(
                    local, [&](const piece* q) { return p != q && overlap(p->stored, q->sent); });
            });
            if (first == local.end()) throw refused(fmt::format("rank {} exchanges blocks of its own in one round", r));
            const piece& p = **first;
            add(local_block(), {p.action == colls::action::copy ? "cpy" : "re", p.sent, p.stored}, true, true);
            local.erase(first);
        }
        for (const auto action : {colls::action::copy, colls::action::reduce})
            for (const piece& p : round)
                if (p.to == r && p.from != r && p.action == action)
                    add(receives_.at({p.channel, p.from}),
                        {action == colls::action::copy ? "r" : "rrc", p.stored, p.stored}, false, true);
    }
    static bool overlap(const span& a, const span& b) {
        return a.buffer == b.buffer && a.first < b.first + b.count && b.first < a.first + a.count;
    }
    /// Appends a step, with what it must wait for in other thread blocks.
    void add(int block, written_step step, bool reads, bool writes) {
        written_block& own = gpus_.back()[at(block)];
        const auto wait = [&](const access_step& a) {
            if (a.block == block) return;
            auto [known, fresh] = own.knows.try_emplace(a.block, a.step);
            if (!fresh && known->second >= a.step) return;
            known->second = a.step;
            step.waits[a.block] = a.step;
        };
        const access_step here{block, static_cast<int>(own.steps.size())};
        const auto chunks = [](const span& s, const auto& f) {
            for (int i = 0; i < s.count; ++i) f(std::pair{s.buffer, s.first + i});
        };
        const bool reduces = step.type == "rrc" || step.type == "re";
        if (reads || reduces)
            chunks(step.from, [&](const auto& c) {
                if (const auto w = written_.find(c); w != written_.end()) wait(w->second);
            });
        if (writes)
            chunks(step.to, [&](const auto& c) {
                if (const auto w = written_.find(c); w != written_.end()) wait(w->second);
                for (const access_step& a : read_[c]) wait(a);
            });
        if (reads) chunks(step.from, [&](const auto& c) { read_[c].push_back(here); });
        if (writes)
            chunks(step.to, [&](const auto& c) {
                written_[c] = here;
                read_[c].clear();
            });
        own.steps.push_back(std::move(step));
    }

    /// Out of place: the slots are in scratch memory, and the first steps fill them.
    void copy_in(int r) {
        for (int slot = 0; slot < blocks_; ++slot) {
            int chunk = slot;
            switch (s_.implements) {
                case colls::collective::broadcast:
                case colls::collective::scatter:
                    if (r != s_.root(n_)) return;
                    chunk = s_.implements == colls::collective::scatter ? numbered(slot, s_.home(n_, slot), false, r)
                                                                        : slot;
                    break;
                case colls::collective::gather:
                case colls::collective::all_gather:
                    if (s_.home(n_, slot) != r) continue;
                    chunk = numbered(slot, r, false, r) - r * each();
                    break;
                case colls::collective::reduce_scatter:
                    chunk = numbered(slot, s_.home(n_, slot), false, r);
                    break;
                case colls::collective::all_to_all:
                    chunk = numbered(slot, s_.input(r, n_, slot), false, r);
                    break;
                default:
                    break;
            }
            add_copy({'i', chunk, 1}, {'s', slot, 1});
        }
    }
    void copy_out(int r) {
        for (int slot = 0; slot < blocks_; ++slot) {
            int chunk = slot;
            switch (s_.implements) {
                case colls::collective::reduce:
                    if (r != s_.root(n_)) return;
                    break;
                case colls::collective::gather:
                    if (r != s_.root(n_)) return;
                    [[fallthrough]];
                case colls::collective::all_gather:
                    chunk = numbered(slot, s_.home(n_, slot), false, r);
                    break;
                case colls::collective::scatter:
                case colls::collective::reduce_scatter:
                    if (s_.home(n_, slot) != r) continue;
                    chunk = numbered(slot, r, false, r) - r * each();
                    break;
                case colls::collective::all_to_all:
                    chunk = numbered(slot, s_.output(r, n_, slot), true, r);
                    break;
                default:
                    break;
            }
            add_copy({'s', slot, 1}, {'o', chunk, 1});
        }
    }
    /// The plan's number of a slot's block: the slots of one home are its chunks, in order.
    int numbered(int slot, int home, bool after, int r) const {
        int before = 0;
        for (int other = 0; other < slot; ++other) {
            const int h = s_.implements != colls::collective::all_to_all ? s_.home(n_, other)
                          : after                                        ? s_.output(r, n_, other)
                                                                         : s_.input(r, n_, other);
            before += h == home;
        }
        return home * each() + before;
    }
    void add_copy(const span& from, const span& to) {
        auto& steps = gpus_.back()[at(local_block())].steps;
        // One step copies consecutive chunks, if nothing has to be waited for between them.
        if (!steps.empty() && steps.back().type == "cpy" && follows(steps.back().from, from) &&
            follows(steps.back().to, to)) {
            add(local_block(), {"cpy", from, to}, true, true);
            written_step last = std::move(steps.back());
            steps.pop_back();
            ++steps.back().from.count, ++steps.back().to.count;
            for (const auto& [block, step] : last.waits) {
                int& known = steps.back().waits.try_emplace(block, step).first->second;
                known = std::max(known, step);
            }
            for (auto& [chunk, a] : written_)
                if (a.block == local_ && a.step == static_cast<int>(steps.size())) --a.step;
            for (auto& [chunk, all] : read_)
                for (access_step& a : all)
                    if (a.block == local_ && a.step == static_cast<int>(steps.size())) --a.step;
        } else {
            add(local_block(), {"cpy", from, to}, true, true);
        }
    }

    /// A receive whose data the next step sends is one step with it.
    static void join_steps(std::vector<written_block>& blocks) {
        for (written_block& b : blocks)
            for (std::size_t i = 1; i < b.steps.size(); ++i) {
                written_step &received = b.steps[i - 1], &sent = b.steps[i];
                if (sent.type != "s" || !sent.waits.empty() || received.to != sent.from || received.joined) continue;
                if (received.type != "r" && received.type != "rrc") continue;
                received.type = received.type == "r" ? "rcs" : "rrcs";
                sent.joined = true;
            }
        // Numbers, with a nop for each further dependency.
        for (written_block& b : blocks) {
            int number = -1;
            for (written_step& s : b.steps) {
                if (!s.joined) number += std::max<int>(1, static_cast<int>(s.waits.size()));
                s.number = number;
            }
        }
        for (written_block& b : blocks)
            for (written_step& s : b.steps)
                for (auto& [block, step] : s.waits) {
                    written_step* target = &blocks[at(block)].steps[at(step)];
                    if (target->joined) --target;
                    target->announced = true;
                    step = target->number;
                }
    }

    std::string text() const {
        int channels = 1, scratch = work_;
        for (const auto& gpu : gpus_)
            for (const written_block& b : gpu) channels = std::max(channels, b.channel + 1);
        const bool parts = colls::owned(s_.implements);
        const bool gathers =
            s_.implements == colls::collective::all_gather || s_.implements == colls::collective::gather;
        std::string out = fmt::format(
            "<algo name=\"{}\" proto=\"Simple\" nchannels=\"{}\" nchunksperloop=\"{}\" ngpus=\"{}\" coll=\"{}\" "
            "inplace=\"{}\" outofplace=\"{}\" minBytes=\"0\" maxBytes=\"0\"{}>\n",
            escaped(name_), channels, blocks_, n_, coll_, in_place_ ? 1 : 0, in_place_ ? 0 : 1,
            colls::rooted(s_.implements) && s_.root(n_) != 0 ? fmt::format(" root=\"{}\"", s_.root(n_)) : "");
        for (int r = 0; r < n_; ++r) {
            out += fmt::format("  <gpu id=\"{}\" i_chunks=\"{}\" o_chunks=\"{}\" s_chunks=\"{}\">\n", r,
                parts && gathers ? each() : blocks_, parts && !gathers ? each() : blocks_, scratch);
            const auto& blocks = gpus_[at(r)];
            for (std::size_t id = 0; id < blocks.size(); ++id) {
                out += fmt::format("    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"{}\">\n", id, blocks[id].send,
                    blocks[id].recv, blocks[id].channel);
                for (const written_step& s : blocks[id].steps)
                    if (!s.joined) out += lines(s);
                out += "    </tb>\n";
            }
            out += "  </gpu>\n";
        }
        return out + "</algo>\n";
    }
    static std::string lines(const written_step& s) {
        const auto line = [](int number, const std::string& type, char a, int from, char b, int to, int count,
                              int block, int step, bool announced) {
            return fmt::format(
                "      <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" dstoff=\"{}\" "
                "cnt=\"{}\" depid=\"{}\" deps=\"{}\" hasdep=\"{}\"/>\n",
                number, type, a, from, b, to, count, block, step, announced ? 1 : 0);
        };
        std::string out;
        int open = static_cast<int>(s.waits.size()), block = colls::none, step = colls::none;
        for (const auto& [other, target] : s.waits) {
            block = other;
            step = target;
            if (--open > 0) out += line(s.number - open, "nop", 'i', -1, 'o', -1, 0, block, step, false);
        }
        return out + line(s.number, s.type, s.from.buffer, s.from.first, s.to.buffer, s.to.first, s.from.count, block,
                         step, s.announced);
    }

    const colls::any_schedule& s_;
    const int n_;
    const std::string name_, coll_;
    const int blocks_;
    int work_;  // chunks of scratch memory
    bool in_place_ = true;
    std::vector<std::vector<piece>> pieces_;  // of each round
    std::vector<std::vector<written_block>> gpus_;
    // State of the rank that is being written:
    std::map<std::pair<int, int>, int> sends_, receives_;  // of channel and peer: the thread block
    int local_ = colls::none;
    std::map<std::pair<char, int>, access_step> written_;
    std::map<std::pair<char, int>, std::vector<access_step>> read_;
};

}  // namespace

std::string write_msccl(const colls::any_schedule& s, int n, const msccl_options& how) {
    if (!s.supports(n)) throw refused(fmt::format("the schedule does not support {} ranks", n));
    return msccl_writer(s, n, how).write();
}

}  // namespace exchange
