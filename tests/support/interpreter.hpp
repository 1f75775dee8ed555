// An independent check of a schedule, which shares only the vocabulary with the proof: it runs the schedule on concrete
// values. A value is the sorted list of the contributions in it, so that two sums are equal only if they are the same
// sum, with the order and the expression in which an operator that does not commute would have combined them.
#pragma once

#include <colls/schedule.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace support {

/// contribution of `rank` to part `part` of the data (all_to_all: to the part-th part of what it has for `to`)
struct contribution {
    int rank, part, to;
    auto operator<=>(const contribution&) const = default;
};
struct concrete {
    std::vector<contribution> sum;    // sorted
    std::vector<contribution> order;  // in the order of the operands
    std::string expression;           // with its brackets, one pair around the operands of each fold
    bool operator==(const concrete& o) const { return sum == o.sum; }
};
inline concrete leaf_of(contribution c) { return {{c}, {c}, std::to_string(c.rank)}; }
/// One fold of all operands, in their order.
inline concrete folded(const std::vector<concrete>& operands) {
    concrete c;
    for (const concrete& o : operands) {
        c.sum.insert(c.sum.end(), o.sum.begin(), o.sum.end());
        c.order.insert(c.order.end(), o.order.begin(), o.order.end());
        c.expression += (c.expression.empty() ? "(" : " ") + o.expression;
    }
    c.expression += ")";
    std::sort(c.sum.begin(), c.sum.end());
    return c;
}
/// The expression of one fold of ranks 0 to end - 1.
inline std::string single_fold(int end) {
    std::string text = "0";
    for (int r = 1; r < end; ++r) text += " " + std::to_string(r);
    return end > 1 ? "(" + text + ")" : text;
}
inline int depth_of(const std::string& expression) {
    int depth = 0, most = 0;
    for (const char c : expression) most = std::max(most, depth += (c == '(') - (c == ')'));
    return most;
}

struct outcome {
    bool right = false;
    std::string why;            // why the result is wrong
    bool in_rank_order = true;  // the results combine in rank order
    bool same_everywhere = true;
    bool one_expression = true;  // all elements of a result, and all ranks' results (scans: each rank's), have one
    bool single_fold = true;     // that is one fold of all contributions in rank order
    int depth = 0;               // folds on the longest path from a contribution to a result
};

template <class S>
class interpreter {
public:
    interpreter(const S& s, int n) : s_(s), n_(n), c_(colls::collective_of(s)), slots_(colls::blocks_of(s, n)) {}

    outcome run() {
        out_.right = true;
        if (c_ == colls::collective::barrier)
            barrier();
        else
            start(), play(), finish();
        return out_;
    }

private:
    using state = std::map<std::pair<int, int>, concrete>;  // (rank, slot), where something is defined
    void wrong(const std::string& why) {
        if (out_.right) out_.why = why;
        out_.right = false;
    }
    int ports() const { return colls::ports_of(s_, n_); }
    int root() const { return colls::root_of(s_, n_); }
    bool has_homes() const { return colls::owned(c_); }
    int home(int slot) const { return colls::home_of(s_, n_, slot); }
    bool void_slot(int slot) const { return has_homes() && slot < slots_ && home(slot) == colls::none; }

    /// all_to_all: the other rank that slot `slot` of `rank` stands for, and the part of the data between the two.
    std::pair<int, int> exchanged(int rank, int slot, bool after) const {
        const auto peer = [&](int x) {
            return after ? colls::output_of(s_, rank, n_, x) : colls::input_of(s_, rank, n_, x);
        };
        int part = 0;
        for (int x = 0; x < slot; ++x) part += peer(x) == peer(slot);
        return {peer(slot), part};
    }

    void start() {
        using enum colls::collective;
        for (int r = 0; r < n_; ++r)
            for (int x = 0; x < slots_; ++x) {
                bool has = true;
                if (c_ == broadcast || c_ == scatter) has = r == root();
                if (c_ == gather || c_ == all_gather) has = home(x) == r;
                contribution mine{r, x, 0};
                if (c_ == all_to_all) {
                    const auto [to, part] = exchanged(r, x, false);
                    mine = {r, part, to};
                }
                if (has && !void_slot(x)) now_[{r, x}] = leaf_of(mine);
            }
    }

    bool legal(const colls::block_set& b, int port) {
        static_cast<void>(port);
        if (b.count < 0 || b.reps < 0 || b.grain < 0) return false;
        if (b.empty()) return true;
        if (b.run < 1 || b.count > 100000) return false;
        for (int i = 0; i < b.size(); ++i)
            if (b[i] < 0 || b[i] >= slots_ + colls::scratch_of(s_, n_)) return false;
        return true;
    }
    static int size_of(const colls::block_set& b) { return b.empty() ? 0 : b.size(); }

    // Reads the steps of a round. Returns false, and calls wrong(), where they name what does not exist or do not
    // match.
    bool read(int round) {
        steps_.clear();
        for (int r = 0; r < n_; ++r)
            for (int p = 0; p < ports(); ++p) {
                const colls::step st = colls::step_of(s_, r, n_, round, p);
                const auto there = [&](int peer) { return peer >= colls::none && peer < n_; };
                if (!there(st.send.peer) || !there(st.recv.peer)) return wrong("no such rank"), false;
                if (st.send.peer != colls::none && !legal(st.send.blocks, p)) return wrong("no such block"), false;
                if (st.recv.peer != colls::none && !legal(st.recv.blocks, p)) return wrong("no such block"), false;
                steps_[{r, p}] = st;
            }
        std::set<std::tuple<int, int, int>> sent, awaited;  // source, destination, port
        for (const auto& [where, st] : steps_) {
            const auto [r, p] = where;
            if (st.send.peer != colls::none) sent.insert({r, st.send.peer, p});
            if (st.recv.peer != colls::none) awaited.insert({st.recv.peer, r, p});
        }
        if (sent != awaited) return wrong("a message that no rank awaits, or one that no rank sends"), false;
        for (const auto& [from, to, p] : sent)
            if (size_of(steps_[{from, p}].send.blocks) != size_of(steps_[{to, p}].recv.blocks))
                return wrong("a message of another length"), false;
        return true;
    }

    void play() {
        for (int round = 0; round < s_.rounds(n_) && out_.right; ++round) {
            if (!read(round)) return;
            state next = now_;
            for (const bool reducing : {false, true}) {
                // (rank, slot) -> operands: (rank it comes from, own value after a local one), in order of arrival
                std::map<std::pair<int, int>, std::vector<std::pair<std::pair<int, int>, concrete>>> operands;
                std::set<std::pair<int, int>> landed;
                for (const auto& [where, st] : steps_) {
                    const auto [r, p] = where;
                    if (st.recv.peer == colls::none || (st.recv.action == colls::action::reduce) != reducing) continue;
                    for (int i = 0; i < size_of(st.recv.blocks); ++i) {
                        const int x = steps_[{st.recv.peer, p}].send.blocks[i], y = st.recv.blocks[i];
                        const auto source = now_.find({st.recv.peer, x});
                        if (source == now_.end() && !void_slot(x)) return wrong("sends what it does not have");
                        if (!reducing && !landed.insert({r, y}).second) return wrong("two copies into one place");
                        if (void_slot(y)) continue;
                        if (!reducing) {
                            next.erase({r, y});
                            if (source != now_.end()) next[{r, y}] = source->second;
                        } else {
                            if (source == now_.end()) return wrong("reduces nothing");
                            operands[{r, y}].push_back({{st.recv.peer, 0}, source->second});
                        }
                    }
                }
                for (auto& [where, list] : operands) {
                    if (!next.count(where)) return wrong("reduces into nothing");
                    list.push_back({{where.first, 1}, next[where]});
                    std::stable_sort(
                        list.begin(), list.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
                    std::vector<concrete> values;
                    for (const auto& [from, value] : list) values.push_back(value);
                    next[where] = folded(values);
                }
            }
            now_ = std::move(next);
        }
        // A message that is sent but not received needs no check here: read() has rejected it.
    }

    void finish() {
        using enum colls::collective;
        if (!out_.right) return;
        std::map<int, std::string> first;       // by slot
        std::map<int, std::string> expression;  // by rank for scans; else one
        for (int r = 0; r < n_; ++r)
            for (int x = 0; x < slots_; ++x) {
                if (void_slot(x)) continue;
                if ((c_ == gather || c_ == reduce) && r != root()) continue;
                if ((c_ == scatter || c_ == reduce_scatter) && home(x) != r) continue;
                if (c_ == exclusive_scan && r == 0) continue;
                std::vector<contribution> want;
                if (c_ == broadcast || c_ == scatter) want = {{root(), x, 0}};
                if (c_ == gather || c_ == all_gather) want = {{home(x), x, 0}};
                if (c_ == all_to_all) {
                    const auto [from, part] = exchanged(r, x, true);
                    want = {{from, part, r}};
                }
                const int up_to = c_ == inclusive_scan ? r + 1 : c_ == exclusive_scan ? r : n_;
                if (colls::reduces(c_))
                    for (int q = 0; q < up_to; ++q) want.push_back({q, x, 0});
                const auto has = now_.find({r, x});
                if (has == now_.end() || has->second.sum != want)
                    return wrong("rank " + std::to_string(r) + " ends with the wrong block " + std::to_string(x));
                if (!std::is_sorted(has->second.order.begin(), has->second.order.end())) out_.in_rank_order = false;
                const bool scan = c_ == inclusive_scan || c_ == exclusive_scan;
                if (colls::reduces(c_)) {
                    const std::string& e = has->second.expression;
                    out_.one_expression =
                        out_.one_expression && expression.insert({scan ? r : 0, e}).first->second == e;
                    out_.single_fold = out_.single_fold && e == support::single_fold(up_to);
                    out_.depth = std::max(out_.depth, depth_of(e));
                }
                if (scan) continue;
                const auto [it, fresh] = first.insert({x, has->second.expression});
                if (!fresh && it->second != has->second.expression && c_ != all_to_all) out_.same_everywhere = false;
            }
    }

    void barrier() {
        std::vector<std::set<int>> heard(static_cast<std::size_t>(n_));
        for (int r = 0; r < n_; ++r) heard[static_cast<std::size_t>(r)].insert(r);
        slots_ = 0;
        for (int round = 0; round < s_.rounds(n_); ++round) {
            if (!read(round)) return;
            const auto before = heard;
            for (const auto& [where, st] : steps_)
                if (st.recv.peer != colls::none) {
                    const auto& control = before[static_cast<std::size_t>(st.recv.peer)];
                    heard[static_cast<std::size_t>(where.first)].insert(control.begin(), control.end());
                }
        }
        for (const auto& h : heard)
            if (static_cast<int>(h.size()) != n_) return wrong("a rank has not heard from every rank");
    }

    const S& s_;
    const int n_;
    const colls::collective c_;
    int slots_;
    state now_;
    std::map<std::pair<int, int>, colls::step> steps_;
    outcome out_;
};

template <class S>
outcome interpret(const S& s, int n) {
    return interpreter<S>(s, n).run();
}

}  // namespace support
