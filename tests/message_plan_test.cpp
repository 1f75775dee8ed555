// Scripts of messages, checked by a player that is as unkind as a transport may be: a message is read from its sender's
// memory only when the sender waits for it to have left, or at the end; and what is received is written over its place
// as soon as that has been told, if the message is on its way.
#include "catch.hpp"

#include "support/batch.hpp"

#include <colls/detail/plan/plan_cache.hpp>
#include "support/schedules.hpp"

#include <cstdio>
#include <deque>
#include <map>
#include <string>
#include <vector>

using namespace support;

namespace {

using colls::collective;
using colls::none;
using colls::detail::execution_plan;
using colls::detail::instruction;
using colls::detail::location;
using colls::detail::opcode;
using colls::detail::place;
using colls::detail::reach;

struct program {
    std::vector<instruction> body;
    std::vector<location> operands;
};
std::vector<program> programs_of(const execution_plan& s) {
    std::vector<program> all(static_cast<std::size_t>(s.size));
    for (std::size_t r = 0; r < all.size(); ++r) {
        const auto& from = s.ranks[r];
        all[r] = {{from.body.begin(), from.body.end()}, {from.operands.begin(), from.operands.end()}};
    }
    return all;
}

struct value {
    std::vector<int> ranks;  // whose contributions, in the order of their fold; empty: nothing that may be read
    int block = none;
    bool finished = false;
};

class player {
public:
    player(const execution_plan& s, const std::vector<program>& programs)
        : s_(s), what_(s.schedule.implements), programs_(programs), at_(programs.size(), 0) {
        for (int r = 0; r < s.size; ++r)
            for (int u = 0; u < s.blocks * s.parts; ++u) {
                bool has = exists(u) && what_ != collective::barrier;
                if (what_ == collective::broadcast || what_ == collective::scatter) has = has && r == s.root;
                if (what_ == collective::gather || what_ == collective::all_gather) has = has && u / s.parts == r;
                if (has) cell({r, u, place::input}) = {{r}, u, false};
            }
    }
    std::string play() {
        for (bool moved = true; moved && found_.empty();) {
            moved = false;
            for (int r = 0; r < s_.size && found_.empty(); ++r)
                while (found_.empty() && step(r)) moved = true;
        }
        for (int r = 0; r < s_.size && found_.empty(); ++r)
            if (at_[index(r)] < programs_[index(r)].body.size()) return "rank " + std::to_string(r) + " waits for ever";
        for (auto& [key, queue] : channels_)
            for (message& m : queue) {
                read(m);
                if (!m.landed) return "a message is never received";
            }
        for (int r = 0; r < s_.size && found_.empty(); ++r) result_of(r);
        return found_;
    }

private:
    struct message {
        std::vector<location> from, to;
        std::vector<value> held;
        bool was_read = false, told = false, landed = false;
        int sent = none, received = none;  // their numbers in the programs
    };
    static std::size_t index(int i) { return static_cast<std::size_t>(i); }
    bool exists(int unit) const { return s_.parts_of.empty() || unit % s_.parts < s_.parts_of[unit / s_.parts]; }
    value& cell(const location& l) {
        const int kind = l.where == place::scratch                                     ? 2
                         : l.where == place::output && what_ == collective::all_to_all ? 1
                                                                                       : 0;
        return cells_[{l.rank, kind, l.index}];
    }
    void fail(const std::string& why, int r, const location& l) {
        if (found_.empty())
            found_ = why + ": rank " + std::to_string(r) + ", place " + std::to_string(static_cast<int>(l.where)) +
                     " index " + std::to_string(l.index);
    }
    value look(int r, const location& l) {
        const value v = cell(l);
        if (l.rank != r) fail("reads another's memory", r, l);
        if (v.ranks.empty()) fail("reads what is not there (yet, or any more)", r, l);
        return v;
    }
    void read(message& m) {
        if (m.was_read) return;
        for (const location& l : m.from) m.held.push_back(look(l.rank, l));
        m.was_read = true;
    }
    std::vector<location> operands_of(const program& p, const instruction& i) const {
        return {p.operands.begin() + i.first, p.operands.begin() + i.first + i.count};
    }
    bool step(int r) {
        const program& p = programs_[index(r)];
        std::size_t& at = at_[index(r)];
        if (at >= p.body.size()) return false;
        const instruction& i = p.body[at];
        switch (i.op) {
            case opcode::send: {
                message m;
                m.from = operands_of(p, i);
                m.sent = i.value;
                channels_[{r, i.peer}].push_back(m);
                break;
            }
            case opcode::receive: {  // the first of its channel whose place has not been told; it may not be there yet
                const auto to = operands_of(p, i);
                for (const location& l : to) cell(l) = {};  // from now on anything may be there
                waiting_[{i.peer, r}].push_back({to, i.value});
                break;
            }
            case opcode::arrived: {
                auto& queue = channels_[{i.peer, r}];
                auto& told = waiting_[{i.peer, r}];
                std::size_t k = 0;
                while (k < told.size() && told[k].second != i.value) ++k;
                if (k == told.size()) {
                    fail("waits for what it has not asked for", r, {});
                    return false;
                }
                if (k >= queue.size()) return false;
                for (std::size_t j = 0; j <= k; ++j) land(r, queue[j], told[j].first);
                break;
            }
            case opcode::left:
                for (message& m : channels_[{r, i.peer}]) {
                    if (m.sent > i.value) break;
                    read(m);
                }
                break;
            case opcode::copy: {
                const value v = look(r, p.operands[index(i.first)]);
                cell(i.to) = v;
                break;
            }
            case opcode::fold: {
                value sum;
                for (const location& from : operands_of(p, i)) {
                    const value v = look(r, from);
                    if (from.leaf != (v.ranks.size() == 1))
                        fail("takes for a leaf what is none, or none for one", r, from);
                    if (sum.block != none && v.block != sum.block) fail("folds different blocks", r, from);
                    sum.block = v.block;
                    for (const int q : v.ranks) {
                        if (std::find(sum.ranks.begin(), sum.ranks.end(), q) != sum.ranks.end())
                            fail("folds a contribution twice", r, from);
                        sum.ranks.push_back(q);
                    }
                }
                sum.finished = i.finish;
                if (i.finish != (sum.ranks.size() == programs_.size()))
                    fail("is finished too early, or not at all", r, i.to);
                cell(i.to) = sum;
                break;
            }
            default:
                fail("has an instruction that is not of this kind of script", r, i.to);
        }
        ++at;
        return true;
    }
    void land(int r, message& m, const std::vector<location>& to) {
        if (m.landed) return;
        // As late as it can be read: the transport would have to by now.
        read(m);
        if (to.size() != m.held.size()) return fail("a message of another length", r, to.empty() ? location{} : to[0]);
        for (std::size_t k = 0; k < to.size(); ++k) cell(to[k]) = m.held[k];
        m.landed = true;
    }
    void result_of(int r) {
        for (int u = 0; u < s_.blocks * s_.parts; ++u) {
            const int block = u / s_.parts;
            bool owed = exists(u) && what_ != collective::barrier;
            if (what_ == collective::gather || what_ == collective::reduce) owed = owed && r == s_.root;
            if (what_ == collective::scatter || what_ == collective::reduce_scatter) owed = owed && block == r;
            if (what_ == collective::exclusive_scan) owed = owed && r > 0;
            if (!owed) continue;
            const location l{r, u, place::output};
            const value& got = cell(l);
            if (got.ranks.empty()) return fail("ends with nothing", r, l);
            if (colls::reduces(what_)) {
                const int last = what_ == collective::inclusive_scan   ? r
                                 : what_ == collective::exclusive_scan ? r - 1
                                                                       : s_.size - 1;
                std::vector<int> want, have = got.ranks;
                for (int q = 0; q <= last; ++q) want.push_back(q);
                std::sort(have.begin(), have.end());
                if (have != want || got.block != u) return fail("ends with the wrong fold", r, l);
            } else {
                const int source = what_ == collective::broadcast || what_ == collective::scatter ? s_.root : block;
                const int from = what_ == collective::all_to_all ? r * s_.parts + u % s_.parts : u;
                if (got.ranks != std::vector<int>{source} || got.block != from)
                    return fail("ends with the wrong block", r, l);
            }
        }
    }

    const execution_plan& s_;
    const collective what_;
    const std::vector<program>& programs_;
    std::vector<std::size_t> at_;
    std::map<std::tuple<int, int, int>, value> cells_;
    std::map<std::pair<int, int>, std::deque<message>> channels_;
    std::map<std::pair<int, int>, std::vector<std::pair<std::vector<location>, int>>> waiting_;
    std::string found_;
};

}  // namespace

TEST_CASE("message scripts of every schedule give the right result, however late messages leave", "[script]") {
    int played = 0, waits = 0;
    for (const row& r : all_schedules())
        for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 32, 33}) {
            if (!r.supports(n) || (n > 17 && sanitized)) continue;
            const execution_plan& s = *colls::detail::execution_plan_for(r.schedule, n, reach::nothing);
            const auto programs = programs_of(s);
            for (const auto& p : programs)
                for (const auto& i : p.body) waits += i.op == opcode::left;
            const std::string found = player(s, programs).play();
            if (!found.empty())
                FAIL(r.name << ", " << name_of(static_cast<collective>(r.collective)) << ", n " << n << ": " << found);
            ++played;
        }
    std::printf("message scripts: %d played, %d waits for messages to have left\n", played, waits);
    CHECK(played > 1000);
    CHECK(waits > 0);
}

TEST_CASE(
    "what a rank holds from the start goes with the first round's messages, if nothing is overtaken", "[script]") {
    int ahead = 0;
    for (const row& r : all_schedules())
        for (const int n : {2, 3, 5, 8, 13}) {
            if (!r.supports(n)) continue;
            const execution_plan& s = *colls::detail::execution_plan_for(r.schedule, n, reach::nothing);
            INFO(r.name << ", " << name_of(static_cast<collective>(r.collective)) << ", n " << n);
            int here = 0;
            for (int rank = 0; rank < n; ++rank) {
                const auto& p = s.ranks[static_cast<std::size_t>(rank)];
                std::map<int, int> to;
                for (const auto& i : p.body) to[i.peer] += i.op == opcode::send;
                for (std::size_t at = 0; at < p.body.size(); ++at) {
                    const auto& i = p.body[at];
                    if (i.op != opcode::send) continue;
                    bool held = i.count > 0 && to[i.peer] == 1;
                    for (int k = 0; k < i.count; ++k) held = held && p.operands[i.first + k].where == place::input;
                    const bool first = static_cast<int>(at) < p.segments[0];
                    CHECK(first == (held || i.round == 0));
                    here += first && i.round > 0;
                }
            }
            if (r.collective == what::barrier) CHECK(here == 0);
            ahead += here;
        }
    CHECK(ahead > 100);
}

TEST_CASE("a message script with a change is found out", "[script]") {
    int tried = 0, found = 0, waits = 0, needless = 0;
    for (const row& r : all_schedules())
        for (const int n : {2, 3, 5, 8}) {
            if (!r.supports(n) || r.collective == what::barrier) continue;
            const execution_plan& s = *colls::detail::execution_plan_for(r.schedule, n, reach::nothing);
            const auto right = programs_of(s);
            for (std::size_t rank = 0; rank < right.size(); ++rank)
                for (std::size_t i = 0; i < right[rank].body.size(); ++i) {
                    auto changed = right;
                    auto& list = changed[rank].body;
                    const opcode op = list[i].op;
                    if (list[i].keep || (op == opcode::receive && list[i].count == 0) ||
                        (op == opcode::send && list[i].count == 0))
                        continue;
                    // An arrival that a later one on the same channel implies is no fault.
                    if (op == opcode::arrived) continue;
                    list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
                    const bool seen = !player(s, changed).play().empty();
                    if (op == opcode::left) {
                        ++waits;
                        needless += !seen;
                    } else {
                        ++tried;
                        found += seen;
                    }
                }
        }
    std::printf("changed message scripts: %d of %d found out; %d of %d waits could be left out\n", found, tried,
        needless, waits);
    CHECK(tried > 3000);
    CHECK((tried - found) * 50 < tried);  // a scan's transfers that nobody needs, as in direct_plan_test
    CHECK(needless < waits);              // many are implied by answers, in the order in which this player goes
}
