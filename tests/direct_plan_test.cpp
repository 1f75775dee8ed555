// Scripts, checked by an independent player: every access of every rank is followed with vector clocks, so that a wait
// that is missing shows as a race whatever the threads' timing, and the values show whether the right things arrive.
#include "catch.hpp"

#include "support/batch.hpp"

#include <colls/detail/plan/plan_cache.hpp>
#include "support/schedules.hpp"

#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

using namespace support;

namespace {

using colls::collective;
using colls::none;
using colls::detail::execution_plan;
using colls::detail::instruction;
using colls::detail::list;
using colls::detail::location;
using colls::detail::opcode;
using colls::detail::place;
using colls::detail::reach;

/// A copy of one rank's program that a test may change.
struct program {
    std::vector<instruction> reuse_waits, body, exit;
    std::vector<location> operands;
};
std::vector<program> programs_of(const execution_plan& s) {
    std::vector<program> all(static_cast<std::size_t>(s.size));
    for (std::size_t r = 0; r < all.size(); ++r) {
        const auto& from = s.ranks[r];
        all[r] = {{from.reuse_waits.begin(), from.reuse_waits.end()}, {from.body.begin(), from.body.end()},
            {from.exit.begin(), from.exit.end()}, {from.operands.begin(), from.operands.end()}};
    }
    return all;
}

/// What lies in a place: the ranks whose contributions were folded, in the order of the fold, and the block that it is
/// of (all_to_all: the block of the source's input).
struct value {
    std::vector<int> ranks;
    int block = none;
    bool finished = false;
};

class player {
public:
    player(const execution_plan& s, const std::vector<program>& programs)
        : s_(s),
          what_(s.schedule.implements),
          programs_(programs),
          n_(static_cast<std::size_t>(s.size)),
          at_(n_),
          chunk_(n_),
          chunks_(s.within == reach::scratch ? 2 * ring_slots + 1 : 1),
          clocks_(n_, std::vector<int>(n_, 0)) {
        values_ = 2 * s.rounds;
        for (int r = 0; r < s.size; ++r) {
            clocks_[index(r)][index(r)] = 1;
            publish(r, 0);
            for (int chunk = 0; chunk < chunks_; ++chunk)
                for (const int unit : inputs(r)) {
                    auto& c = cell({r, unit, place::input}, chunk);
                    c.held = {{r}, (reduces() ? unit / s.parts : unit) + chunk * apart, false};
                    c.defined = true;
                }
        }
    }
    /// Plays all ranks, always the lowest that can go on; returns the first finding, or nothing.
    std::string play() {
        for (bool moved = true; moved && found_.empty();) {
            moved = false;
            for (int r = 0; r < s_.size && found_.empty(); ++r)
                while (found_.empty() && step(r)) moved = true;
        }
        if (!found_.empty()) return found_;
        for (int r = 0; r < s_.size; ++r)
            if (!over(r)) return "rank " + std::to_string(r) + " waits for ever";
        for (int r = 0; r < s_.size; ++r) left(r);
        for (int r = 0; r < s_.size && found_.empty(); ++r) result_of(r);
        return found_;
    }

private:
    struct access {
        int rank = none, tick = 0;
    };
    struct memory_cell {
        value held;
        bool defined = false;
        access writer;
        std::vector<access> readers, all;
    };

    static std::size_t index(int i) { return static_cast<std::size_t>(i); }
    bool reduces() const { return colls::reduces(what_); }
    int units() const { return s_.blocks * s_.parts; }
    bool exists(int unit) const { return s_.parts_of.empty() || unit % s_.parts < s_.parts_of[unit / s_.parts]; }
    std::vector<int> inputs(int r) const {
        std::vector<int> all;
        for (int u = 0; u < units(); ++u) {
            const bool own = u / s_.parts == r;
            bool has = exists(u);
            if (what_ == collective::broadcast || what_ == collective::scatter) has = has && r == s_.root;
            if (what_ == collective::gather || what_ == collective::all_gather) has = has && own;
            if (what_ == collective::barrier) has = false;
            if (has) all.push_back(u);
        }
        return all;
    }
    // In place: input and output of a unit are one cell, but for all_to_all. Staged, scratch slots serve several chunks
    // in turn.
    memory_cell& cell(const location& l, int chunk) {
        const int kind = l.where == place::scratch                                     ? 2
                         : l.where == place::output && what_ == collective::all_to_all ? 1
                                                                                       : 0;
        return cells_[{l.rank, kind, l.index + (kind == 2 ? chunk % ring_slots : chunk) * apart}];
    }
    memory_cell& cell_of(int r, const location& l) {
        if (l.rank != r && l.where != place::scratch && s_.within == reach::scratch)
            fail("touches what is out of its reach", r, l);
        return cell(l, chunk_[index(r)]);
    }
    void publish(int r, int v) { published_[{r, v}] = clocks_[index(r)]; }
    bool over(int r) const { return chunk_[index(r)] == chunks_; }

    void fail(const std::string& why, int r, const location& l) {
        if (found_.empty())
            found_ = why + ": rank " + std::to_string(r) + ", at rank " + std::to_string(l.rank) + " place " +
                     std::to_string(static_cast<int>(l.where)) + " index " + std::to_string(l.index);
    }
    // Does rank r know of the access?
    bool knows(int r, const access& a) const { return a.rank == none || clocks_[index(r)][index(a.rank)] >= a.tick; }
    void entered(int r, const location& l) {
        if (l.rank != r && clocks_[index(r)][index(l.rank)] < 1)
            fail("touches memory whose owner's entry it has not seen", r, l);
    }
    value read(int r, const location& l) {
        memory_cell& c = cell_of(r, l);
        entered(r, l);
        if (!knows(r, c.writer)) fail("reads what another rank may be writing", r, l);
        if (!c.defined) fail("reads what nobody has written", r, l);
        c.readers.push_back({r, clocks_[index(r)][index(r)]});
        c.all.push_back(c.readers.back());
        return c.held;
    }
    void write(int r, const location& l, const value& v) {
        memory_cell& c = cell_of(r, l);
        entered(r, l);
        if (!knows(r, c.writer)) fail("writes what another rank may be writing", r, l);
        for (const access& a : c.readers)
            if (a.rank != r && !knows(r, a)) fail("writes what another rank may be reading", r, l);
        c.readers.clear();
        c.writer = {r, clocks_[index(r)][index(r)]};
        c.all.push_back(c.writer);
        c.held = v;
        c.defined = true;
    }

    bool step(int r) {
        const program& p = programs_[index(r)];
        std::size_t& at = at_[index(r)];
        int& chunk = chunk_[index(r)];
        if (over(r)) return false;
        const std::size_t chunk_end = p.reuse_waits.size() + p.body.size(),
                          end = chunk_end + (chunk + 1 == chunks_ ? p.exit.size() : 0);
        if (at == end) {
            ++chunk;
            at = 0;
            return true;
        }
        const bool waits_for_slots = at < p.reuse_waits.size();
        const instruction& i = waits_for_slots  ? p.reuse_waits[at]
                               : at < chunk_end ? p.body[at - p.reuse_waits.size()]
                                                : p.exit[at - chunk_end];
        const int of = waits_for_slots ? chunk - ring_slots : chunk;
        if (of < 0) {
            ++at;
            return true;
        }
        // Entries are of all chunks.
        const auto numbered = [&](int v) { return v == 0 ? 0 : of * values_ + v; };
        switch (i.op) {
            case opcode::wait: {
                // A value is reached when it, or a later one, has been published; what is seen is that of the first.
                auto seen = published_.lower_bound({i.peer, numbered(i.value)});
                if (seen == published_.end() || seen->first.first != i.peer) return false;
                for (std::size_t q = 0; q < n_; ++q)
                    clocks_[index(r)][q] = std::max(clocks_[index(r)][q], seen->second[q]);
                break;
            }
            case opcode::publish:
                publish(r, numbered(i.value));
                break;
            case opcode::copy: {
                const value v = read(r, p.operands[index(i.first)]);
                write(r, i.to, v);
                break;
            }
            case opcode::fold: {
                value sum;
                for (int k = 0; k < i.count; ++k) {
                    const location& from = p.operands[index(i.first + k)];
                    const value v = read(r, from);
                    if (v.finished) fail("folds what was finished", r, from);
                    if (from.leaf != (v.ranks.size() == 1))
                        fail("takes for a leaf what is none, or none for one", r, from);
                    if (k > 0 && v.block != sum.block) fail("folds different blocks", r, from);
                    sum.block = v.block;
                    for (const int q : v.ranks) {
                        if (std::find(sum.ranks.begin(), sum.ranks.end(), q) != sum.ranks.end())
                            fail("folds a contribution twice", r, from);
                        sum.ranks.push_back(q);
                    }
                }
                sum.finished = i.finish;
                if (i.finish != (sum.ranks.size() == n_)) fail("is finished too early, or not at all", r, i.to);
                write(r, i.to, sum);
                break;
            }
            default:
                fail("has an instruction that is not of this kind of script", r, i.to);
        }
        ++clocks_[index(r)][index(r)];
        ++at;
        return true;
    }
    // A rank that has left knows of every access that there ever was to its memory: nobody touches it any more.
    void left(int r) {
        for (const auto& [key, c] : cells_)
            if (std::get<0>(key) == r)
                for (const access& a : c.all)
                    if (a.rank != r && !knows(r, a))
                        fail("leaves while rank " + std::to_string(a.rank) + " may be at its memory", r,
                            {r, std::get<2>(key) % apart, static_cast<place>(std::get<1>(key))});
    }

    void result_of(int r) {
        if (what_ == collective::barrier) {
            for (std::size_t q = 0; q < n_; ++q)
                if (clocks_[index(r)][q] < 1)
                    found_ = "rank " + std::to_string(r) + " leaves without having heard of all";
            return;
        }
        for (int x = 0; x < chunks_ * units(); ++x) {
            const int chunk = x / units(), u = x % units();
            const int block = u / s_.parts;
            bool owed = exists(u);
            if (what_ == collective::gather || what_ == collective::reduce) owed = owed && r == s_.root;
            if (what_ == collective::scatter || what_ == collective::reduce_scatter) owed = owed && block == r;
            if (what_ == collective::exclusive_scan) owed = owed && r > 0;
            if (!owed) continue;
            const location l{r, u, place::output};
            const memory_cell& c = cell(l, chunk);
            if (!c.defined) return fail("ends with nothing", r, l);
            value want;
            if (reduces()) {
                const int last = what_ == collective::inclusive_scan   ? r
                                 : what_ == collective::exclusive_scan ? r - 1
                                                                       : s_.size - 1;
                for (int q = 0; q <= last; ++q) want.ranks.push_back(q);
                value got = c.held;
                if (!s_.order_preserving) std::sort(got.ranks.begin(), got.ranks.end());
                if (got.ranks != want.ranks || got.block != block + chunk * apart)
                    return fail("ends with the wrong fold", r, l);
            } else {
                const int source = what_ == collective::broadcast || what_ == collective::scatter ? s_.root : block;
                const int from = what_ == collective::all_to_all ? r * s_.parts + u % s_.parts : u;
                if (c.held.ranks != std::vector<int>{source} || c.held.block != from + chunk * apart)
                    return fail("ends with the wrong block", r, l);
            }
        }
    }

    const execution_plan& s_;
    const collective what_;
    const std::vector<program>& programs_;
    const std::size_t n_;
    int values_ = 0;
    static constexpr int ring_slots = 2;     // chunks whose scratch slots are apart
    static constexpr int apart = 1'000'000;  // numbers of one chunk from those of the next
    std::vector<std::size_t> at_;
    std::vector<int> chunk_;
    const int chunks_;
    std::vector<std::vector<int>> clocks_;
    std::map<std::pair<int, int>, std::vector<int>> published_;  // (rank, value) -> its clock then
    std::map<std::tuple<int, int, int>, memory_cell> cells_;
    std::string found_;
};

std::string play(const execution_plan& s, const std::vector<program>& programs) { return player(s, programs).play(); }

}  // namespace

TEST_CASE("scripts of every schedule: no race, nothing undefined, the right result", "[script]") {
    int played = 0, waits = 0;
    for (const row& r : all_schedules())
        for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 32, 33}) {
            if (!r.supports(n) || (n > 17 && sanitized)) continue;
            for (const reach within : {reach::buffers, reach::scratch}) {
                const execution_plan& s = *colls::detail::execution_plan_for(r.schedule, n, within);
                const auto programs = programs_of(s);
                for (const auto& p : programs)
                    for (const auto& i : p.body) waits += i.op == opcode::wait;
                const std::string found = play(s, programs);
                if (!found.empty())
                    FAIL(r.name << ", " << name_of(static_cast<collective>(r.collective)) << ", n " << n
                                << (within == reach::scratch ? ", staged: " : ": ") << found);
                ++played;
            }
        }
    std::printf("scripts: %d played, %d waits in their bodies\n", played, waits);
    CHECK(played > 1000);
}

TEST_CASE("a script with one wait less, or with another change, is found out", "[script]") {
    int tried = 0, found = 0, waits = 0, needless = 0;
    std::map<std::string, int> survivors;
    for (const row& r : all_schedules())
        for (const int n : {2, 3, 5, 8}) {
            // A barrier's rounds make everyone hear of everyone several times over.
            if (!r.supports(n) || r.collective == what::barrier) continue;
            for (const reach within : {reach::buffers, reach::scratch}) {
                if (within == reach::scratch && n > 5) continue;
                const execution_plan& s = *colls::detail::execution_plan_for(r.schedule, n, within);
                const auto right = programs_of(s);
                const auto judge = [&](const std::vector<program>& changed, const char* what) {
                    ++tried;
                    if (!play(s, changed).empty())
                        ++found;
                    else
                        ++survivors[what];
                };
                for (std::size_t rank = 0; rank < right.size(); ++rank)
                    for (const auto part : {&program::body, &program::exit, &program::reuse_waits}) {
                        const auto& all = right[rank].*part;
                        for (std::size_t i = 0; i < all.size(); ++i) {
                            auto changed = right;
                            auto& list = changed[rank].*part;
                            if (list[i].op == opcode::wait) {
                                ++waits;
                                list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
                                ++tried;
                                if (play(s, changed).empty())
                                    ++needless;
                                else
                                    ++found;
                            } else if (list[i].op == opcode::publish) {
                                if (i == 0 || list[i - 1].op == opcode::wait || list[i - 1].op == opcode::publish ||
                                    list[i - 1].keep)
                                    continue;
                                std::swap(list[i], list[i - 1]);
                                judge(changed, "published before it is done");
                            } else if (list[i].op == opcode::fold) {
                                list[i].finish = !list[i].finish;
                                judge(changed, "finish");
                                auto other = right;
                                auto& fold = (other[rank].*part)[i];
                                if (fold.count > 1) {
                                    --fold.count;
                                    judge(other, "an operand less");
                                }
                            } else if (!list[i].keep) {
                                list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
                                judge(changed, "a copy left out");
                            }
                        }
                    }
            }
        }
    std::printf(
        "changed scripts: %d of %d found out; %d of %d waits could be left out\n", found, tried, needless, waits);
    for (const auto& [what, times] : survivors) std::printf("    survives: %s, %d times\n", what.c_str(), times);
    // What survives is work that is done for nothing (a scan's last transfers) or publications that protect something
    // else than what they were moved before. Waits are elided against what a rank knows when it waits, not what it will
    // know.
    int surviving = 0;
    for (const auto& [what, times] : survivors) surviving += times;
    CHECK(tried > 5000);
    CHECK(surviving * 100 < tried);
    CHECK(needless * 20 < waits);
}
