#include "slots.hpp"

#include "index.hpp"
#include "order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace exchange {

namespace {

enum class use : unsigned char { read, copied_to, reduced_to };

struct access {
    long time = 0;
    int move = 0;
    use what = use::read;
    bool reads() const { return what != use::copied_to; }
    bool writes() const { return what != use::read; }
};

/// All chunks that the plan names, with their accesses in order, and which of them share a slot.
class slot_finder {
public:
    explicit slot_finder(const program& plan)
        : plan_(plan), moves_(plan.moves), gone_(plan.moves.size()), position_(positions_of(plan)) {
        for (int r = 0; r < plan.ranks; ++r)
            for (int b = 0; b < plan.blocks; ++b) {
                number({r, memory::input, b});
                if (!plan.in_place) number({r, memory::output, b});
            }
        for (const move& m : moves_) number(m.from), number(m.to);
        find_accesses();
        for (int x = 0; x < count(); ++x) {
            const place& p = places_[at(x)];
            sets_.push_back({x});
            set_of_.push_back(x);
            // A schedule for all_to_all says itself which slot holds which rank's data at the end.
            const bool fixed = p.in == memory::input || (p.in == memory::output && !exchange());
            user_slot_.push_back(fixed ? p.index : colls::none);
        }
    }

    void check() const {
        check_races();
        for (int x = 0; x < count(); ++x) check_contents(x);
        check_remote();
    }

    /// A message that is received only to be reduced into another chunk of the rank is received there.
    void reduce_on_arrival() {
        std::vector<std::pair<int, int>> found;  // message, reduction
        for (int x = 0; x < count(); ++x) {
            const auto& all = accesses_[at(x)];
            for (std::size_t i = 0; i + 1 < all.size(); ++i) {
                const move &message = moves_[at(all[i].move)], &local = moves_[at(all[i + 1].move)];
                const bool dead = i + 2 < all.size() ? !all[i + 2].reads() : !live_at_end(x);
                if (all[i].what == use::copied_to && message.from.rank != message.to.rank &&
                    all[i + 1].what == use::read && local.from.rank == local.to.rank &&
                    local.action == colls::action::reduce && local.from != local.to && dead)
                    found.emplace_back(all[i].move, all[i + 1].move);
            }
        }
        for (const auto& [message, local] : found) {
            move &m = moves_[at(message)], &l = moves_[at(local)];
            m.to = l.to;
            m.action = colls::action::reduce;
            m.written_at = l.written_at;
            m.written_phase = l.written_phase;
            gone_[at(local)] = true;
        }
        find_accesses();
    }

    /// Input and output, and the ends of local copies. all_to_all names the places of its output itself.
    void share_slots() {
        for (int r = 0; r < plan_.ranks && !plan_.in_place && !exchange(); ++r)
            for (int b = 0; b < plan_.blocks; ++b)
                join(numbers_.at({r, memory::input, b}), numbers_.at({r, memory::output, b}));
        for (std::size_t i = 0; i < moves_.size(); ++i)
            if (const move& m = moves_[i]; !gone_[i] && local_copy(m)) join(numbers_.at(m.from), numbers_.at(m.to));
    }

    /// What has no slot of the user's takes one whose content is no longer, or not yet, needed; in the order in which
    /// they are written, so that few are left over. `outputs_only`: only what is the result.
    void reuse_slots(bool outputs_only) {
        std::vector<int> ordered;
        for (int x = 0; x < count(); ++x)
            if (!accesses_[at(x)].empty()) ordered.push_back(x);
        std::ranges::sort(ordered, {}, [&](int x) { return std::pair(accesses_[at(x)].front().time, x); });
        for (const int x : ordered) {
            const place p = places_[at(x)];
            if (has_input(set_of_[at(x)]) || (outputs_only && p.in != memory::output)) continue;
            user_slot_[at(set_of_[at(x)])] = colls::none;
            if (p.index < plan_.blocks) join(numbers_.at({p.rank, memory::input, p.index}), x);
            for (int b = 0; b < plan_.blocks && !has_input(set_of_[at(x)]); ++b)
                join(numbers_.at({p.rank, memory::input, b}), x);
        }
    }

    slot_program result() const {
        slot_program out{{}, plan_.groups, std::vector<int>(at(plan_.ranks)), std::vector<int>(at(plan_.ranks)), {}};
        std::vector<int> slot(at(count()), colls::none);
        for (int x = 0; x < count(); ++x) {
            const int s = set_of_[at(x)], rank = places_[at(x)].rank;
            if (slot[at(s)] != colls::none) continue;
            if (has_input(s))
                slot[at(s)] = user_slot_[at(s)];
            else if (std::ranges::any_of(sets_[at(s)], [&](int y) { return !accesses_[at(y)].empty(); }))
                slot[at(s)] = plan_.blocks + out.scratch[at(rank)]++;
        }
        const auto slot_of = [&](const place& p) { return slot[at(set_of_[at(numbers_.at(p))])]; };
        for (std::size_t i = 0; i < moves_.size(); ++i) {
            const move& m = moves_[i];
            if (gone_[i] || (local_copy(m) && slot_of(m.from) == slot_of(m.to))) continue;
            out.moves.push_back({m.action, m.from.rank, slot_of(m.from), m.to.rank, slot_of(m.to), read_time(m),
                write_time(m), m.group});
        }
        // What lies elsewhere is copied to where the user finds it.
        constexpr long end = std::numeric_limits<long>::max() - 1;
        for (int r = 0; r < plan_.ranks && !plan_.in_place; ++r) {
            if (exchange() && name_outputs(r, slot, out)) continue;
            for (int b = 0; b < plan_.blocks; ++b) {
                const place p{r, memory::output, b};
                if (!plan_.wanted(r, b) || slot_of(p) == b) continue;
                ++out.apart[at(r)];
                out.moves.push_back({colls::action::copy, r, slot_of(p), r, b, end, end + 1, plan_.groups + r});
            }
        }
        out.groups += plan_.ranks;
        return out;
    }

private:
    bool exchange() const { return plan_.implements == colls::collective::all_to_all; }
    bool has_input(int set) const {
        return std::ranges::any_of(sets_[at(set)], [&](int x) { return places_[at(x)].in == memory::input; });
    }
    /// all_to_all: which rank's data the slots of rank r hold at the end. False where that cannot be said, since a
    /// result is in scratch memory, or those of one rank are in another order.
    bool name_outputs(int r, const std::vector<int>& slot, slot_program& out) const {
        const int each = plan_.blocks / plan_.ranks;
        std::vector<int> names(at(plan_.blocks), colls::none);
        int before = colls::none;
        for (int b = 0; b < plan_.blocks; ++b) {
            const int s = slot[at(set_of_[at(numbers_.at({r, memory::output, b}))])];
            if (s >= plan_.blocks || (b % each != 0 && s < before)) return false;
            names[at(s)] = b / each;
            before = s;
        }
        bool as_numbered = true;
        for (int b = 0; b < plan_.blocks; ++b) as_numbered = as_numbered && names[at(b)] == b / each;
        if (as_numbered) return true;
        out.outputs.resize(at(plan_.ranks));
        out.outputs[at(r)] = std::move(names);
        return true;
    }
    int count() const { return static_cast<int>(places_.size()); }
    void number(const place& p) {
        if (numbers_.emplace(p, count()).second) places_.push_back(p);
    }
    long read_time(const move& m) const { return (position_[at(m.read_at)] * 4L + m.read_phase) * 2; }
    long write_time(const move& m) const { return (position_[at(m.written_at)] * 4L + m.written_phase) * 2 + 1; }
    static bool local_copy(const move& m) { return m.from.rank == m.to.rank && m.action == colls::action::copy; }

    void find_accesses() {
        accesses_.assign(places_.size(), {});
        for (std::size_t i = 0; i < moves_.size(); ++i) {
            if (gone_[i]) continue;
            const move& m = moves_[i];
            accesses_[at(numbers_.at(m.from))].push_back({read_time(m), static_cast<int>(i), use::read});
            accesses_[at(numbers_.at(m.to))].push_back({write_time(m), static_cast<int>(i),
                m.action == colls::action::copy ? use::copied_to : use::reduced_to});
        }
        for (auto& all : accesses_)
            std::ranges::sort(all, {}, [](const access& a) { return std::pair(a.time, a.move); });
    }

    bool given(const place& p) const { return p.in == memory::input && plan_.given(p.rank, p.index); }
    bool live_at_end(int x) const {
        const place& p = places_[at(x)];
        return p.in == (plan_.in_place ? memory::input : memory::output) && plan_.wanted(p.rank, p.index);
    }
    bool live_after(int x, long time) const {
        const auto& all = accesses_[at(x)];
        const auto next = std::ranges::upper_bound(all, time, {}, &access::time);
        return next == all.end() ? live_at_end(x) : next->reads();
    }

    int event_of(const access& a) const {
        return a.writes() ? moves_[at(a.move)].written_at : moves_[at(a.move)].read_at;
    }
    // Any two accesses of which one writes must be ordered: of those that follow each other that is enough.
    void check_races() const {
        std::vector<ordered_pair> pairs;
        for (int x = 0; x < count(); ++x) {
            int writer = colls::none;
            std::vector<int> readers;
            for (const access& a : accesses_[at(x)]) {
                const int e = event_of(a);
                if (writer != colls::none && writer != e) pairs.push_back({writer, e, x});
                if (!a.writes()) {
                    readers.push_back(e);
                    continue;
                }
                for (const int r : readers)
                    if (r != e) pairs.push_back({r, e, x});
                readers.clear();
                writer = e;
            }
        }
        if (const ordered_pair* const race = unordered_pair(plan_, position_, pairs))
            throw refuted(fmt::format("{} and {} access {} of gpu {}, and neither waits for the other",
                words(plan_.events[at(race->first)]), words(plan_.events[at(race->second)]),
                words(plan_, places_[at(race->subject)]), places_[at(race->subject)].rank));
    }
    void check_contents(int x) const {
        const place& p = places_[at(x)];
        const auto& all = accesses_[at(x)];
        if (!given(p) && !all.empty() && all[0].reads())
            throw refuted(fmt::format("{} {} {}, which holds nothing yet", words(plan_.events[at(event_of(all[0]))]),
                all[0].writes() ? "reduces into" : "reads", words(plan_, p)));
        if (live_at_end(x) && !given(p) && std::ranges::none_of(all, &access::writes))
            throw refuted(fmt::format("gpu {} ends with nothing in {}", p.rank, words(plan_, p)));
    }

    // What others store into, or read from, a rank's memory must come while that rank runs its steps. Scratch memory
    // may be used before: it is no memory of the user's.
    void check_remote() const {
        if (plan_.ends.empty()) return;
        std::vector<ordered_pair> early, late;
        for (const move& m : moves_)
            for (const auto& [p, e] : {std::pair{m.from, m.read_at}, {m.to, m.written_at}}) {
                if (plan_.events[at(e)].rank == p.rank) continue;
                if (p.in != memory::scratch) early.push_back({plan_.begins[at(p.rank)], e, numbers_.at(p)});
                late.push_back({e, plan_.ends[at(p.rank)], numbers_.at(p)});
            }
        const auto refute = [&](int e, const place& p, const char* why) {
            throw refuted(
                fmt::format("{} accesses {} of gpu {}, {}", words(plan_.events[at(e)]), words(plan_, p), p.rank, why));
        };
        if (const ordered_pair* const x = unordered_pair(plan_, position_, early))
            refute(x->second, places_[at(x->subject)], "but does not wait for that gpu to begin");
        if (const ordered_pair* const x = unordered_pair(plan_, position_, late))
            refute(x->first, places_[at(x->subject)], "which does not wait for that before it ends");
    }

    // Two chunks interfere where one is written, not as a copy of the other, while the other is still wanted.
    bool interfere(int x, int y) const {
        for (const auto& [written, other] : {std::pair{x, y}, {y, x}}) {
            if (given(places_[at(written)]) && live_after(other, -1)) return true;
            for (const access& a : accesses_[at(written)]) {
                if (!a.writes()) continue;
                const bool copies = a.what == use::copied_to && moves_[at(a.move)].from == places_[at(other)];
                if (!copies && live_after(other, a.time)) return true;
            }
        }
        return false;
    }
    void join(int x, int y) {
        int s = set_of_[at(x)], t = set_of_[at(y)];
        if (s == t) return;
        if (user_slot_[at(s)] != colls::none && user_slot_[at(t)] != colls::none &&
            user_slot_[at(s)] != user_slot_[at(t)])
            return;
        for (const int a : sets_[at(s)])
            for (const int b : sets_[at(t)])
                if (interfere(a, b)) return;
        if (sets_[at(t)].size() > sets_[at(s)].size()) std::swap(s, t);
        for (const int b : sets_[at(t)]) set_of_[at(b)] = s;
        sets_[at(s)].insert(sets_[at(s)].end(), sets_[at(t)].begin(), sets_[at(t)].end());
        sets_[at(t)].clear();
        if (user_slot_[at(s)] == colls::none) user_slot_[at(s)] = user_slot_[at(t)];
    }

    const program& plan_;
    std::vector<move> moves_;
    std::vector<char> gone_;
    std::vector<int> position_;
    std::vector<place> places_;
    std::map<place, int> numbers_;
    std::vector<std::vector<access>> accesses_;
    std::vector<std::vector<int>> sets_;
    std::vector<int> set_of_, user_slot_;
};

}  // namespace

slot_program slots_of(const program& plan, bool reuse) {
    slot_finder finder(plan);
    finder.check();
    finder.reduce_on_arrival();
    finder.share_slots();
    finder.reuse_slots(!reuse);
    return finder.result();
}

}  // namespace exchange
