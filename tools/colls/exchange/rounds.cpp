#include "rounds.hpp"

#include "block_list.hpp"
#include "index.hpp"
#include "ports.hpp"
#include "slots.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace exchange {

namespace {

/// `later` is in a later round than `first`, or, if not `strict`, in the same one: sends read the state at the start of
/// a round, and reductions into one slot may come in any order.
struct constraint {
    int first = 0, later = 0;
    bool strict = false;
};

std::vector<constraint> constraints_of(const slot_program& p) {
    struct access {
        long time;
        int group;
        bool writes, copies;
    };
    std::map<std::pair<int, int>, std::vector<access>> slots;
    for (const slot_move& m : p.moves) {
        slots[{m.from, m.from_slot}].push_back({m.read_time, m.group, false, false});
        slots[{m.to, m.to_slot}].push_back({m.write_time, m.group, true, m.action == colls::action::copy});
    }
    std::set<std::tuple<int, int, bool>> found;
    const auto add = [&](int first, int later, bool strict) {
        if (first != colls::none && first != later) found.emplace(first, later, strict);
    };
    for (auto& [slot, all] : slots) {
        std::ranges::sort(all, {}, [](const access& a) { return std::pair(a.time, a.group); });
        int copied = colls::none;
        std::vector<int> reduced, read;  // since then
        for (const access& a : all) {
            add(copied, a.group, true);
            if (!a.writes || a.copies)
                for (const int g : reduced) add(g, a.group, true);
            if (a.writes)
                for (const int g : read) add(g, a.group, false);
            if (!a.writes) {
                read.push_back(a.group);
            } else if (a.copies) {
                copied = a.group;
                reduced.clear();
                read.clear();
            } else {
                reduced.push_back(a.group);
            }
        }
    }
    std::vector<constraint> all;
    for (const auto& [first, later, strict] : found) all.push_back({first, later, strict});
    return all;
}

/// Groups that must share a round, since each must not be later than the next: numbered, in an order in which
/// constraints lead from lower to higher numbers.
std::vector<int> components_of(const std::vector<constraint>& constraints, int groups) {
    std::vector<std::vector<int>> later(at(groups)), first(at(groups));
    for (const constraint& c : constraints)
        later[at(c.first)].push_back(c.later), first[at(c.later)].push_back(c.first);
    // Kosaraju: groups in the order in which a search leaves them, then a search against the constraints.
    std::vector<int> left;
    std::vector<char> seen(at(groups));
    for (int root = 0; root < groups; ++root) {
        std::vector<std::pair<int, std::size_t>> path;
        if (!std::exchange(seen[at(root)], 1)) path.emplace_back(root, 0);
        while (!path.empty()) {
            auto& [g, next] = path.back();
            if (next == later[at(g)].size()) {
                left.push_back(g);
                path.pop_back();
            } else if (const int h = later[at(g)][next++]; !std::exchange(seen[at(h)], 1)) {
                path.emplace_back(h, 0);
            }
        }
    }
    std::vector<int> component(at(groups), colls::none);
    int count = 0;
    for (auto root = left.rbegin(); root != left.rend(); ++root) {
        if (component[at(*root)] != colls::none) continue;
        std::vector<int> open{*root};
        component[at(*root)] = count;
        while (!open.empty()) {
            const int g = open.back();
            open.pop_back();
            for (const int h : first[at(g)])
                if (component[at(h)] == colls::none) component[at(h)] = count, open.push_back(h);
        }
        ++count;
    }
    return component;
}

/// A message that would have to be in an earlier round than itself: its data is copied to a slot of its own when the
/// plan sends it. True where there was one.
bool copy_ahead(slot_program& p, const std::vector<constraint>& constraints, const std::vector<int>& component) {
    std::set<int> stuck;  // components
    for (const constraint& c : constraints)
        if (c.strict && component[at(c.first)] == component[at(c.later)]) stuck.insert(component[at(c.first)]);
    if (stuck.empty()) return false;
    for (const constraint& c : constraints) {
        if (c.strict || component[at(c.first)] != component[at(c.later)] || !stuck.contains(component[at(c.first)]))
            continue;
        const int group = c.first, copy = p.groups;
        bool message = false;
        const std::size_t before = p.moves.size();
        for (std::size_t i = 0; i < before; ++i) {
            if (p.moves[i].group != group || p.moves[i].from == p.moves[i].to) continue;
            slot_move own = p.moves[i];
            const int slot = --p.scratch[at(own.from)];  // numbered below 0 until all are known
            own.to = own.from;
            own.to_slot = slot;
            own.action = colls::action::copy;
            own.write_time = own.read_time + 1;
            own.group = copy;
            p.moves[i].from_slot = slot;
            p.moves[i].read_time = own.write_time + 1;
            p.moves.push_back(own);
            message = true;
        }
        if (!message) continue;
        ++p.groups;
        return true;
    }
    throw refused("the plan's local steps depend on each other in a circle");
}

/// What a group needs for itself in a round: one thread block's way to a rank, and another's from a rank.
struct sides {
    int sender = colls::none, receiver = colls::none;
};

/// The round of each component: steps of one thread block keep their order, as far as that is possible.
class round_finder {
public:
    round_finder(const std::vector<constraint>& constraints, const std::vector<int>& component,
        const std::vector<sides>& threads, const std::vector<long>& times)
        : threads_(threads) {
        const int count = component.empty() ? 0 : *std::ranges::max_element(component) + 1;
        members_.resize(at(count));
        round_.assign(at(count), colls::none);
        before_.resize(at(count));
        for (int g = 0; g < static_cast<int>(component.size()); ++g) members_[at(component[at(g)])].push_back(g);
        for (const constraint& c : constraints)
            if (component[at(c.first)] != component[at(c.later)])
                before_[at(component[at(c.later)])].emplace_back(component[at(c.first)], c.strict);
        std::vector<int> groups(component.size());
        for (std::size_t g = 0; g < groups.size(); ++g) groups[g] = static_cast<int>(g);
        std::ranges::sort(groups, {}, [&](int g) { return std::pair(times[at(g)], g); });
        std::vector<char> listed(at(count));
        for (const int g : groups) {
            const int c = component[at(g)];
            if (threads_[at(g)].sender != colls::none) sending_[threads_[at(g)].sender].push_back(c);
            if (threads_[at(g)].receiver != colls::none) receiving_[threads_[at(g)].receiver].push_back(c);
            if (!std::exchange(listed[at(c)], 1)) order_.push_back(c);
        }
    }

    std::vector<int> find() {
        std::vector<int> open = order_;
        for (int round = 0; !open.empty(); ++round) {
            sent_.clear();
            received_.clear();
            bool any = false;
            for (const bool in_order : {true, false}) {
                for (bool more = true; more && (in_order || !any);) {
                    more = false;
                    for (const int c : open)
                        if (round_[at(c)] == colls::none && ready(c, round) && free(c, in_order)) {
                            place(c, round);
                            more = any = true;
                            if (!in_order) break;
                        }
                }
            }
            std::erase_if(open, [&](int c) { return round_[at(c)] != colls::none; });
        }
        return round_;
    }

private:
    bool ready(int c, int round) const {
        return std::ranges::all_of(before_[at(c)], [&](const auto& b) {
            const int r = round_[at(b.first)];
            return r != colls::none && (r < round || !b.second);
        });
    }
    bool free(int c, bool in_order) {
        return std::ranges::all_of(members_[at(c)], [&](int g) {
            const auto [sender, receiver] = threads_[at(g)];
            return (sender == colls::none || (!sent_.contains(sender) && next_is(sending_, sender, c, in_order))) &&
                   (receiver == colls::none ||
                       (!received_.contains(receiver) && next_is(receiving_, receiver, c, in_order)));
        });
    }
    bool next_is(const std::map<int, std::vector<int>>& queues, int thread, int c, bool in_order) {
        if (!in_order || members_[at(c)].size() > 1) return true;
        const auto& queue = queues.at(thread);
        std::size_t& head = heads_[&queue];
        while (round_[at(queue[head])] != colls::none) ++head;
        return queue[head] == c;
    }
    void place(int c, int round) {
        round_[at(c)] = round;
        for (const int g : members_[at(c)])
            sent_.insert(threads_[at(g)].sender), received_.insert(threads_[at(g)].receiver);
    }

    const std::vector<sides>& threads_;
    std::vector<std::vector<int>> members_;                  // of each component
    std::vector<std::vector<std::pair<int, bool>>> before_;  // with whether strictly
    std::vector<int> round_, order_;
    std::map<int, std::vector<int>> sending_, receiving_;   // components of each thread, in order
    std::map<const std::vector<int>*, std::size_t> heads_;  // of these: the first without a round
    std::set<int> sent_, received_;                         // threads, in this round
};

/// The steps of one round: what goes from one rank to another in the same way is one message, if block sets allow it.
struct round_message {
    int from, to;
    colls::action action;
    message_blocks blocks;
};
std::vector<round_message> messages_of(const std::vector<const slot_move*>& moves, int blocks) {
    std::map<std::tuple<int, int, colls::action>, block_pairs> joined;
    for (const slot_move* m : moves) joined[{m->from, m->to, m->action}].emplace_back(m->from_slot, m->to_slot);
    std::vector<round_message> all;
    for (const auto& [key, pairs] : joined)
        for (const message_blocks& part : as_block_sets(pairs, blocks))
            all.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), part});
    return all;
}

void fill(transfer_table& table, const slot_program& p, const std::vector<int>& round_of) {
    for (const slot_move& m : p.moves) table.rounds = std::max(table.rounds, round_of[at(m.group)] + 1);
    std::vector<std::vector<const slot_move*>> moves(at(table.rounds));
    for (const slot_move& m : p.moves) moves[at(round_of[at(m.group)])].push_back(&m);
    std::vector<std::vector<round_message>> messages;
    std::vector<std::vector<int>> ports;
    for (const auto& of_round : moves) {
        messages.push_back(messages_of(of_round, table.blocks));
        std::vector<std::pair<int, int>> ends;
        for (const round_message& m : messages.back()) ends.emplace_back(m.from, m.to);
        auto [port, count] = ports_of(ends, table.ranks);
        ports.push_back(std::move(port));
        table.ports = std::max(table.ports, count);
    }
    table.steps.resize(at(table.rounds) * at(table.ranks) * at(table.ports));
    for (int round = 0; round < table.rounds; ++round)
        for (std::size_t i = 0; i < messages[at(round)].size(); ++i) {
            const round_message& m = messages[at(round)][i];
            const int port = ports[at(round)][i];
            table.at(m.from, round, port).send = {m.to, m.blocks.sent};
            table.at(m.to, round, port).recv = {m.from, m.blocks.stored, m.action};
        }
}

}  // namespace

imported in_rounds(const program& plan) {
    imported plain = in_rounds(plan, false);
    if (plain.table.scratch == 0 || plain.table.blocks == 1) return plain;
    imported packed = in_rounds(plan, true);
    return packed.table.scratch == 0 ? std::move(packed) : std::move(plain);
}

imported in_rounds(const program& plan, bool reuse) {
    imported out{plan, {}, {}, 0, 0};
    slot_program p = slots_of(out.plan, reuse);
    for (const int blocks : p.apart) out.apart += blocks;
    const std::vector<int> scratch = p.scratch;
    p.scratch.assign(scratch.size(), 0);  // from here on: minus the slots that are added
    std::vector<constraint> constraints = constraints_of(p);
    std::vector<int> component = components_of(constraints, p.groups);
    while (copy_ahead(p, constraints, component)) {
        ++out.copied_ahead;
        constraints = constraints_of(p);
        component = components_of(constraints, p.groups);
    }
    for (slot_move& m : p.moves) {
        if (m.from_slot < 0) m.from_slot = out.plan.blocks + scratch[at(m.from)] - 1 - m.from_slot;
        if (m.to_slot < 0) m.to_slot = out.plan.blocks + scratch[at(m.to)] - 1 - m.to_slot;
    }

    std::vector<sides> threads(at(p.groups));
    std::vector<long> times(at(p.groups), std::numeric_limits<long>::max());
    out.groups.assign(at(p.groups), {0, 0, 0, colls::none, colls::none});
    for (const move& m : out.plan.moves) {
        out.groups[at(m.group)].read_at = m.read_at;
        out.groups[at(m.group)].written_at = m.written_at;
        if (m.from.rank == m.to.rank) continue;
        const event &sent = out.plan.events[at(m.read_at)], &received = out.plan.events[at(m.written_at)];
        if (sent.rank == m.from.rank) threads[at(m.group)].sender = sent.thread * plan.ranks + m.to.rank;
        if (received.rank == m.to.rank) threads[at(m.group)].receiver = received.thread * plan.ranks + m.from.rank;
    }
    for (const slot_move& m : p.moves) {
        times[at(m.group)] = std::min(times[at(m.group)], m.read_time);
        out.groups[at(m.group)].from = m.from;
        out.groups[at(m.group)].to = m.to;
    }
    const std::vector<int> rounds = round_finder(constraints, component, threads, times).find();
    std::vector<int> round_of(at(p.groups));
    std::vector<char> used(at(p.groups));
    for (const slot_move& m : p.moves) used[at(m.group)] = 1;
    for (int g = 0; g < p.groups; ++g)
        out.groups[at(g)].round = round_of[at(g)] = used[at(g)] ? rounds[at(component[at(g)])] : colls::none;

    transfer_table& t = out.table;
    t.name = out.plan.name;
    t.implements = out.plan.implements;
    t.ranks = out.plan.ranks;
    t.blocks = out.plan.blocks;
    t.root = out.plan.root;
    t.outputs = p.outputs;
    for (std::size_t r = 0; r < scratch.size(); ++r) t.scratch = std::max(t.scratch, scratch[r] - p.scratch[r]);
    fill(t, p, round_of);
    return out;
}

std::string imported::steps_at(int rank, int round) const {
    std::set<int> steps;
    for (const placed_group& g : groups) {
        if (g.round != round) continue;
        for (const int e : {g.read_at, g.written_at})
            if (e != colls::none && plan.events[at(e)].rank == rank) steps.insert(e);
    }
    std::string text;
    for (const int e : steps) text += (text.empty() ? "" : "; ") + words(plan.events[at(e)]);
    return text;
}

}  // namespace exchange
