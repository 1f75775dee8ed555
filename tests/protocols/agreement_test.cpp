// The agreement of a shrink as a protocol: a group of the library's own agreements, one a rank, in every order of
// messages, deaths, cut links, deadlines and repeated proposals, within bounds that each case states.
//
// A step of an agreement depends on its state and on what it hears alone, so each is made once and remembered; the
// search goes over the states of the whole group. A message that is lost is one that never arrives: lines from one rank
// to another keep their order, and only the last of them are lost, by a death or a cut.
#include "catch.hpp"

#include "support/random.hpp"

#include <colls/colls.hpp>
#include <colls/messages/detail/shrink_agreement.hpp>
#include <colls/net/detail/connection/frame.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace colls::inline v1::detail {

/// All that the next steps of an agreement depend on.
struct agreement_state {
    static std::string of(const shrink_agreement& a, double now) {
        std::string s;
        const auto number = [&](std::uint64_t x) { s.append(reinterpret_cast<const char*>(&x), sizeof x); };
        const auto ranks = [&](const std::vector<bool>& v) {
            number(v.size());
            for (const bool x : v) s += x ? '1' : '0';
        };
        for (const auto* v : {&a.here_, &a.promises_, &a.acceptances_, &a.accepted_.members, &a.own_.members})
            ranks(*v);
        for (const auto x : {a.promised_, a.accepted_ballot_, a.ballot_, a.best_, a.accepted_.place, a.own_.place})
            number(x);
        for (const bool x : {a.asked_, a.decided_, a.again_ == 0, now > a.again_, now > a.until_}) s += x ? '1' : '0';
        for (const auto& l : a.inbox_) {
            for (const auto x : {static_cast<std::uint64_t>(l.from), l.a, l.b, l.c}) number(x);
            s += l.text;
        }
        return s;
    }
    static std::uint64_t accepted_ballot(const shrink_agreement& a) { return a.accepted_ballot_; }
    static const shrink_agreement::value& accepted(const shrink_agreement& a) { return a.accepted_; }
};

}  // namespace colls::inline v1::detail

namespace {

using colls::detail::agreement_state, colls::detail::rank_context, colls::detail::shrink_agreement;
using colls::extend::control_kind, colls::extend::control_message;
using line_kind = shrink_agreement::line;
using mask = unsigned;  // a bit a rank

constexpr int most_ranks = 5;
constexpr double timeout = 1000;  // a repeated proposal comes a second after the one before it

/// A law that an execution breaks.
struct broken_law {
    std::string text;
};
std::string text_of(const char* s) { return s; }
std::string text_of(std::uint64_t x) { return std::to_string(x); }
std::string text_of(int x) { return std::to_string(x); }
template <class T>
std::string text_of(const T& x) {
    return x.text();
}
/// The text is made of the parts, where it is needed.
template <class... Parts>
void law(bool holds, const Parts&... parts) {
    if (!holds) throw broken_law{(text_of(parts) + ...)};
}

/// What the group would be made of. The place says who made it, when it had heard whom, and knew whom to be gone.
struct value {
    mask members;
    std::uint64_t place;
    int maker() const { return static_cast<int>(place & 15) - 1; }
    mask wanted() const { return static_cast<mask>(place >> 4 & 255); }
    bool operator<(const value& o) const { return std::tie(members, place) < std::tie(o.members, o.place); }
    std::string text() const {
        std::string s = "{";
        for (int r = 0; r < most_ranks; ++r)
            if (members >> r & 1) s += " " + std::to_string(r);
        return s + " } at place " + std::to_string(place);
    }
};
std::uint64_t place_of(int maker, mask wanted) { return static_cast<std::uint64_t>(maker + 1) | wanted << 4; }

struct line {
    std::uint64_t a, b, c;
    std::string text;
    line_kind kind() const { return static_cast<line_kind>(a & 0xff); }
    std::uint64_t ballot() const { return a >> 8; }
    value what() const {
        value v{0, c};
        for (unsigned i = 0; i < text.size(); ++i) v.members |= static_cast<mask>(text[i] - '0') << 6 * i;
        return v;
    }
    std::string name() const {
        static constexpr const char* names[] = {"here", "prepare", "promise", "accept", "accepted", "decide"};
        return std::string(names[a & 0xff]) + " " + std::to_string(ballot());
    }
    bool operator<(const line& o) const { return std::tie(a, b, c, text) < std::tie(o.a, o.b, o.c, o.text); }
};

/// Numbers for lines or values, from 1 on.
template <class T>
class numbered {
public:
    std::uint16_t operator()(const T& x) {
        const auto [at, is_new] = numbers_.try_emplace(x, static_cast<std::uint16_t>(all_.size()));
        if (is_new) all_.push_back(x);
        law(all_.size() < 65536, "too many to number");
        return at->second;
    }
    const T& at(std::uint16_t number) const { return all_[number]; }

private:
    std::map<T, std::uint16_t> numbers_;
    std::deque<T> all_ = std::deque<T>(1);  // of number 0: none
};

/// Keeps what an agreement says.
struct recorder final : colls::detail::message_transport {
    std::uint64_t send(int, const colls::detail::message_label&, const colls::detail::piece*, int) override {
        return 0;
    }
    std::uint64_t receive(int, const colls::detail::message_label&, const colls::detail::piece*, int) override {
        return 0;
    }
    std::uint64_t sent(int) const override { return 0; }
    std::uint64_t received(int) const override { return 0; }
    void abandon() override {}
    bool tell(int peer, const control_message& m) override {
        said.push_back({peer, {m.a, m.b, m.c, m.text}});
        return true;
    }
    void tell_all(const control_message&) override {}
    void progress() override {}
    void idle(double) override {}
    std::vector<std::pair<int, line>> said;
};

enum class event : std::uint8_t {
    begins,
    hears,     ///< reads a line at once
    gets,      ///< has it in its inbox, and reads it with the next event
    learns,    ///< that a rank is gone
    waits,     ///< until it may propose again
    gives_up,  ///< its deadline passes
    ends,      ///< so does the second one
    dies,
    stops,      ///< and does not wake; the others do not learn of it
    cut,        ///< the link of two ranks breaks
    partition,  ///< all links between some ranks and the others break
};
enum class outcome : std::uint8_t { running, decided, excluded, refused };

/// One rank.
struct member {
    shrink_agreement agreement;
    int rank = 0;
    double now = 1;           // the first proposal comes after 0
    mask here = 0, gone = 0;  // it has heard `here` from these; it knows these to be gone
    bool made_place = false;
    outcome is = outcome::running;
    std::uint16_t decision = 0;
};

/// What an event does to a rank.
struct effect {
    std::uint32_t next = 0;                             // its state
    std::vector<std::pair<int, std::uint16_t>> said{};  // to whom, and which line
    std::uint64_t accepted = 0;                         // the ballot, where it has accepted another one
};

/// The states of ranks of a group of n, and what events do to them.
class rank_states {
public:
    explicit rank_states(int n) : n_(n) {
        for (int r = 0; r < n; ++r) {
            contexts_.push_back(std::make_unique<rank_context>(r, n, colls::detail::group_memory(), nullptr));
            contexts_.back()->env.timeout = timeout;
        }
        states_.emplace_back();  // no state has number 0
    }
    const member& at(std::uint32_t state) const { return states_[state]; }
    std::uint32_t first(int rank) {
        member m;
        m.rank = rank;
        return number(std::move(m));
    }
    const effect& after(std::uint32_t state, event what, int from, std::uint16_t said) {
        const std::uint64_t key = static_cast<std::uint64_t>(state) << 32 | static_cast<std::uint64_t>(what) << 24 |
                                  static_cast<std::uint64_t>(from) << 16 | said;
        if (const auto known = effects_.find(key); known != effects_.end()) return known->second;
        return effects_[key] = make(states_[state], what, from, said);
    }
    numbered<line> lines;
    numbered<value> values;

private:
    mask all() const { return (1u << n_) - 1; }
    bool is_majority(mask ranks) const { return 2 * std::popcount(ranks) > n_; }

    effect make(member m, event what, int from, std::uint16_t said) {
        wire_.said.clear();
        const std::uint64_t before = agreement_state::accepted_ballot(m.agreement);
        const mask self = 1u << m.rank;
        m.here |= self;
        switch (what) {
            case event::begins:
                m.agreement.begin(*contexts_[static_cast<std::size_t>(m.rank)], wire_, 0);
                break;
            case event::hears:
            case event::gets: {
                const line& l = lines.at(said);
                m.agreement.heard(from, {control_kind::join, l.a, l.b, l.c, l.text.c_str()});
                if (l.kind() == line_kind::here) m.here |= 1u << from;
                break;
            }
            case event::learns:
                m.gone |= 1u << from;
                break;
            case event::waits:
                m.now += 1;
                break;
            case event::gives_up:
                if (m.now <= timeout) m.now += timeout;
                break;
            default:
                m.now += 3 * timeout;
        }
        const mask left = (m.here & ~m.gone) | self;
        const bool late = m.now > timeout;
        const auto gone = [&](int r) { return (m.gone >> r & 1) != 0; };
        const auto make_place = [&] {
            law(!std::exchange(m.made_place, true), "a rank makes two places");
            law(is_majority(left), "a rank proposes without a majority");
            law(late || left == ((all() & ~m.gone) | self),
                "a rank proposes before its deadline, and without all others");
            return place_of(m.rank, left);
        };
        try {
            if (what != event::gets && m.agreement.step(m.now, gone, make_place)) {
                m.is = outcome::decided;
                const auto& v = agreement_state::accepted(m.agreement);
                value decision{0, v.place};
                for (std::size_t i = 0; i < v.members.size(); ++i)
                    decision.members |= static_cast<mask>(v.members[i]) << i;
                law(decision.members != 0, "a decision without members");
                m.decision = values(decision);
                m.agreement.decision();  // throws where it excludes the rank
            }
        } catch (const colls::error& e) {
            if (m.is == outcome::decided) {
                law((values.at(m.decision).members & self) == 0, "a member is excluded");
                m.is = outcome::excluded;
            } else {
                m.is = outcome::refused;
                if (e.code() == colls::errc::timeout)
                    law(what == event::ends, "a rank does not wait for the decision");
                else
                    law(!is_majority(left), "a rank refuses, and yet a majority is left");
            }
        }
        if (m.is == outcome::decided)
            law((values.at(m.decision).members & self) != 0, "a rank returns that is no member");
        const std::uint64_t accepted = agreement_state::accepted_ballot(m.agreement);
        effect e{0, {}, accepted != before ? accepted : 0};
        for (const auto& [to, l] : wire_.said) {
            law(to != m.rank && to >= 0 && to < n_, "a rank says something to itself");
            e.said.push_back({to, lines(l)});
        }
        e.next = number(std::move(m));
        return e;
    }
    std::uint32_t number(member&& m) {
        std::string key;
        if (m.is == outcome::running) {
            key = agreement_state::of(m.agreement, m.now);
            key += static_cast<char>(m.here);
            key += static_cast<char>(m.gone);
            key += static_cast<char>(m.made_place);
        } else {
            m.agreement = {};
        }
        key += static_cast<char>(m.rank);
        key += static_cast<char>(m.is);
        key += static_cast<char>(m.decision & 255);
        key += static_cast<char>(m.decision >> 8);
        const auto [at, is_new] = numbers_.try_emplace(std::move(key), static_cast<std::uint32_t>(states_.size()));
        if (is_new) states_.push_back(std::move(m));
        return at->second;
    }

    const int n_;
    std::vector<std::unique_ptr<rank_context>> contexts_;
    recorder wire_;
    std::deque<member> states_;
    std::unordered_map<std::string, std::uint32_t> numbers_;
    std::unordered_map<std::uint64_t, effect> effects_;
};

/// How often each thing may happen in an execution.
struct bounds {
    std::uint8_t deaths = 0, stops = 0, cuts = 0;
    std::uint8_t again = 0;      ///< proposals that are repeated
    std::uint8_t deadlines = 0;  ///< that pass
    std::uint8_t gets = 0;       ///< lines that a rank reads together with the next one
    bool met = false;            ///< all ranks know from the beginning that all are here
};

/// The lines on their way from one rank to another.
struct pipe {
    std::uint16_t size = 0;
    std::array<std::uint16_t, 15> lines{};
    void push(std::uint16_t l) {
        law(size < lines.size(), "more lines on their way than there is room for");
        lines[size++] = l;
    }
    std::uint16_t pop() {
        law(size > 0, "a line does not come");
        const std::uint16_t l = lines[0];
        std::copy(lines.begin() + 1, lines.end(), lines.begin());
        lines[--size] = 0;
        return l;
    }
};
struct proposal {
    std::uint16_t ballot, value, acceptors;
};
/// A state of the group.
struct world {
    std::array<pipe, most_ranks * most_ranks> pipes{};
    std::array<std::uint32_t, most_ranks> states{};
    std::uint32_t cut = 0;  // of each pair
    std::array<proposal, 24> proposals{};
    std::uint16_t chosen = 0, decided = 0;  // values
    std::uint8_t dead = 0, stopped = 0;
    bounds left;
    std::array<std::uint8_t, 3> unused{};  // to a multiple of 8 bytes
};
static_assert(std::has_unique_object_representations_v<world>);

std::uint64_t hash_of(const world& w) {
    std::uint64_t words[sizeof(world) / 8], h = 0;
    static_assert(sizeof words == sizeof w);
    std::memcpy(words, &w, sizeof w);
    for (std::uint64_t i = 0; i < std::size(words); ++i)  // most are 0
        if (words[i] != 0) h += support::random_source(words[i] ^ i * 0x9e3779b97f4a7c15u).next();
    return h;
}

/// Hashes of the states that were seen.
class visited {
public:
    bool add(std::uint64_t h) {
        if (2 * count_ >= slots_.size()) grow();
        return put(slots_, h | 1) && ++count_ > 0;
    }
    std::size_t count() const { return count_; }

private:
    static bool put(std::vector<std::uint64_t>& slots, std::uint64_t h) {
        std::size_t i = h >> 1;
        for (;; ++i) {
            std::uint64_t& s = slots[i & (slots.size() - 1)];
            if (s == h) return false;
            if (s == 0) return s = h, true;
        }
    }
    void grow() {
        std::vector<std::uint64_t> more(2 * slots_.size());
        for (const std::uint64_t h : slots_)
            if (h != 0) put(more, h);
        slots_.swap(more);
    }
    std::vector<std::uint64_t> slots_ = std::vector<std::uint64_t>(1 << 16);
    std::size_t count_ = 0;
};

struct choice {
    event what;
    int rank, other;  // of `partition`, `other` is the side of `rank`, as a mask
};

class group {
public:
    group(int n, mask absent) : n_(n), absent_(absent), members_(n) {}

    world begin(const bounds& b) {
        world w;
        w.left = b;
        for (int r = 0; r < n_; ++r)
            if (!is(absent_, r)) w.states[at(r)] = members_.first(r);
        for (int r = 0; r < n_; ++r)
            if (!is(absent_, r)) happens(w, {event::begins, r, r});
        for (int p = 0; b.met && p < n_; ++p)
            for (int q = n_ - 1; q >= 0; --q)  // the first to propose is the last that hears
                if (pipe_of(w, p, q).size > 0) happens(w, {event::hears, q, p});
        return w;
    }

    /// Calls f with all that may happen.
    template <class F>
    void choices(const world& w, F f) {
        for (int q = 0; q < n_; ++q) {
            if (runs(w, q)) {
                for (int p = 0; p < n_; ++p) {
                    if (pipe_of(w, p, q).size > 0) {
                        f(choice{event::hears, q, p});
                        if (w.left.gets > 0) f(choice{event::gets, q, p});
                    }
                    if (may_learn(w, q, p)) f(choice{event::learns, q, p});
                }
                if (w.left.again > 0 && matters(w, q, event::waits)) f(choice{event::waits, q, q});
                if (w.left.deadlines > 0 && matters(w, q, event::gives_up)) f(choice{event::gives_up, q, q});
            }
            if (w.left.deaths > 0 && !is(w.dead | w.stopped | absent_, q)) f(choice{event::dies, q, q});
            if (w.left.stops > 0 && runs(w, q)) f(choice{event::stops, q, q});
        }
        if (w.left.cuts == 0) return;
        for (int p = 0; p < n_; ++p)
            for (int q = p + 1; q < n_; ++q) f(choice{event::cut, p, q});
        for (int side = 3; side < 1 << (n_ - 1); ++side)
            if (std::popcount(static_cast<mask>(side)) > 1) f(choice{event::partition, 0, side});
    }

    void happens(world& w, const choice& c) {
        const int r = c.rank;
        std::uint16_t said = 0;
        switch (c.what) {
            case event::hears:
            case event::gets:
                said = pipe_of(w, c.other, r).pop();
                w.left.gets = static_cast<std::uint8_t>(w.left.gets - (c.what == event::gets));
                break;
            case event::waits:
                if (w.left.again > 0) --w.left.again;
                break;
            case event::gives_up:
                if (w.left.deadlines > 0) --w.left.deadlines;
                break;
            case event::dies:
                --w.left.deaths;
                w.dead = static_cast<std::uint8_t>(w.dead | 1u << r);
                w.states[at(r)] = 0;
                return stop(w, r);
            case event::stops:
                --w.left.stops;
                w.stopped = static_cast<std::uint8_t>(w.stopped | 1u << r);
                w.states[at(r)] = 0;
                return stop(w, r);
            case event::cut:
                --w.left.cuts;
                return cut(w, r, c.other);
            case event::partition:
                --w.left.cuts;
                for (int p = 0; p < n_; ++p)
                    for (int q = 0; q < n_; ++q)
                        if (is(static_cast<mask>(c.other), p) && !is(static_cast<mask>(c.other), q)) cut(w, p, q);
                return;
            default:
                break;
        }
        const effect& e = members_.after(w.states[at(r)], c.what, c.other, said);
        w.states[at(r)] = e.next;
        for (const auto& [to, l] : e.said) {
            judge(w, r, members_.lines.at(l));
            if (runs(w, to) && !is_cut(w, r, to)) pipe_of(w, r, to).push(l);
        }
        if (e.accepted != 0) accepts(w, r, e.accepted);
        const member& m = members_.at(e.next);
        if (m.is == outcome::running) return;
        ++counts_[static_cast<std::size_t>(m.is)];
        stop(w, r);
        if (m.decision == 0) return;
        law(w.decided == 0 || w.decided == m.decision, "two decisions: ", value_of(w.decided), ", and ",
            value_of(m.decision));
        w.decided = m.decision;
        law(w.chosen == w.decided, "decided, and not accepted by a majority: ", value_of(w.decided));
    }

    /// From here on no rank dies, all lines arrive and all waits pass: every rank returns, and with the decision where
    /// a majority goes on. `lost`: what was on its way from a dead rank, or over a cut link, does not arrive.
    void becomes_calm(world w, bool lost, std::vector<choice>& path) {
        mask left = 0;  // by a refusal: they are known to have left
        mask going = all() & ~absent_ & ~w.dead & ~w.stopped;
        for (int r = 0; r < n_; ++r)
            if (is(going, r) && members_.at(w.states[at(r)]).is == outcome::refused) left |= 1u << r;
        going &= ~left;
        bool expected = true;
        for (int r = 0; r < n_; ++r) {
            int sees = 0;
            for (int p = 0; p < n_; ++p) sees += is(going, p) && !is_cut(w, r, p);
            expected = expected && (!is(going, r) || 2 * sees > n_);
        }
        const auto take = [&](const choice& c) {
            path.push_back(c);
            happens(w, c);
        };
        if (lost)
            for (int p = 0; p < n_; ++p)
                for (int q = 0; q < n_; ++q)
                    if (is(w.dead, p) || is_cut(w, p, q)) pipe_of(w, p, q) = {};
        const auto settle = [&] {
            for (bool moved = true; moved;) {
                moved = false;
                for (int q = 0; q < n_; ++q)
                    for (int p = 0; p < n_; ++p)
                        while (runs(w, q) && pipe_of(w, p, q).size > 0) take({event::hears, q, p}), moved = true;
                for (int q = 0; !moved && q < n_; ++q)
                    for (int p = 0; p < n_; ++p)
                        if (may_learn(w, q, p) || (runs(w, q) && has_left(w, p) && !knows_gone(w, q, p)))
                            take({event::learns, q, p}), moved = true;
            }
        };
        const auto all_do = [&](event what) {
            for (int r = 0; r < n_; ++r)
                if (runs(w, r)) take({what, r, r});
            settle();
        };
        settle();
        // A proposer that has to pass another one's ballots needs a turn for each.
        if (absent_ != 0 || w.stopped != 0) all_do(event::gives_up);
        for (int i = 0; i < 8; ++i) all_do(event::waits);
        if (expected) check_over(w, going);
        all_do(event::ends);
        for (int r = 0; r < n_; ++r) law(!runs(w, r), "rank ", r, " does not return");
    }

    /// How often a rank has ended in this way.
    std::size_t count(outcome o) const { return counts_[static_cast<std::size_t>(o)]; }
    static std::string name_of(const choice& c) {
        static constexpr const char* names[] = {"begins", "hears", "gets", "learns of the end of", "waits", "gives up",
            "ends", "dies", "stops", "is cut off from", "with 0: partition"};
        std::string s = "rank " + std::to_string(c.rank) + " " + names[static_cast<std::size_t>(c.what)];
        if (c.what == event::hears || c.what == event::gets) s += " from";
        if (c.other != c.rank) s += " " + std::to_string(c.other);
        return s;
    }
    /// What happens on the path, with the lines that are heard.
    std::string story(const bounds& b, const std::vector<choice>& path) {
        std::string s;
        world w = begin(b);
        try {
            for (const choice& c : path) {
                s += "  " + name_of(c);
                if ((c.what == event::hears || c.what == event::gets) && pipe_of(w, c.other, c.rank).size > 0) {
                    const line& l = members_.lines.at(pipe_of(w, c.other, c.rank).lines[0]);
                    s += ": " + l.name();
                    if (l.c != 0) s += ", " + l.what().text();
                }
                s += "\n";
                happens(w, c);
            }
        } catch (const broken_law&) {}
        return s;
    }

private:
    static std::size_t at(int r) { return static_cast<std::size_t>(r); }
    static bool is(mask m, int r) { return (m >> r & 1) != 0; }
    mask all() const { return (1u << n_) - 1; }
    static std::size_t pair_of(int from, int to) { return at(from * most_ranks + to); }
    static pipe& pipe_of(world& w, int from, int to) { return w.pipes[pair_of(from, to)]; }
    static const pipe& pipe_of(const world& w, int from, int to) { return w.pipes[pair_of(from, to)]; }
    static bool is_cut(const world& w, int p, int q) { return (w.cut >> pair_of(p, q) & 1) != 0; }
    static void cut(world& w, int p, int q) { w.cut |= 1u << pair_of(p, q) | 1u << pair_of(q, p); }
    bool runs(const world& w, int r) const {
        return w.states[at(r)] != 0 && members_.at(w.states[at(r)]).is == outcome::running;
    }
    bool has_left(const world& w, int r) const {
        return w.states[at(r)] != 0 && members_.at(w.states[at(r)]).is == outcome::refused;
    }
    bool knows_gone(const world& w, int q, int p) const { return is(members_.at(w.states[at(q)]).gone, p); }
    bool may_learn(const world& w, int q, int p) const {
        return runs(w, q) && (is(w.dead, p) || is_cut(w, p, q)) && !knows_gone(w, q, p);
    }
    bool matters(const world& w, int r, event what) {
        const effect& e = members_.after(w.states[at(r)], what, r, 0);
        return e.next != w.states[at(r)];
    }
    void stop(world& w, int r) {
        for (int p = 0; p < n_; ++p) pipe_of(w, p, r) = {};
    }
    const value& value_of(std::uint16_t v) const { return members_.values.at(v); }

    /// A rank says a line.
    void judge(world& w, int from, const line& l) {
        if (l.kind() == line_kind::accept) {
            const value v = l.what();
            const std::uint16_t number = members_.values(v);
            proposal& p = proposal_of(w, l.ballot());
            law(p.value == 0 || p.value == number, "two values for one ballot: ", value_of(p.value), ", and ", v);
            law(static_cast<int>(l.ballot() % static_cast<std::uint64_t>(n_)) == from, "the ballot of another rank");
            p.value = number;
            law(v.members != 0 && v.maker() >= 0 && (v.members & ~v.wanted()) == 0,
                "members that the rank that made the place did not want: ", v);
            mask doubted = w.dead;
            for (int a = 0; a < n_; ++a)
                for (int b = 0; b < n_; ++b) doubted |= is_cut(w, a, b) ? 1u << a : 0;
            for (int r = 0; r < n_; ++r) doubted |= has_left(w, r) ? 1u << r : 0;
            law((v.wanted() & ~v.members & ~doubted) == 0, "a rank that lives is left out: ", v);
            law(w.chosen == 0 || w.chosen == number || l.ballot() < chosen_ballot(w), "ballot ", l.ballot(), " is for ",
                v, ", when a majority has accepted ", value_of(w.chosen));
        } else if (l.kind() == line_kind::accepted) {
            accepts(w, from, l.ballot());
        }
    }
    void accepts(world& w, int r, std::uint64_t ballot) {
        proposal& p = proposal_of(w, ballot);
        p.acceptors = static_cast<std::uint16_t>(p.acceptors | 1u << r);
        if (2 * std::popcount(p.acceptors) <= n_) return;
        law(w.chosen == 0 || w.chosen == p.value, "majorities have accepted ", value_of(w.chosen), ", and ",
            value_of(p.value));
        w.chosen = p.value;
    }
    proposal& proposal_of(world& w, std::uint64_t ballot) {
        proposal* p = w.proposals.data();
        for (; p->ballot != 0 && p->ballot < ballot; ++p) {}
        if (p->ballot == ballot) return *p;
        law(w.proposals.back().ballot == 0, "more ballots than there is room for");
        std::copy_backward(p, w.proposals.data() + w.proposals.size() - 1, w.proposals.data() + w.proposals.size());
        *p = {static_cast<std::uint16_t>(ballot), 0, 0};
        return *p;
    }
    std::uint64_t chosen_ballot(const world& w) const {
        for (const proposal& p : w.proposals)
            if (p.value == w.chosen && 2 * std::popcount(p.acceptors) > n_) return p.ballot;
        return 0;
    }
    void check_over(const world& w, mask going) {
        for (int r = 0; r < n_; ++r)
            if (is(going, r))
                law(!runs(w, r) && !has_left(w, r), "a majority goes on, and rank ", r, " has no decision");
    }

    const int n_;
    const mask absent_;
    rank_states members_;
    std::array<std::size_t, 4> counts_{};
};

/// The executions of n ranks within bounds, of which those of `absent` never shrink the group.
class executions {
public:
    executions(int n, mask absent, const bounds& most) : group_(n, absent), most_(most) {}

    /// All of them. One state in `every` is also followed to its end. Returns which law is broken, and how; or nothing.
    std::string all(unsigned every) {
        return story([&] { explore(group_.begin(most_), every); });
    }
    /// Some of them, to their end.
    std::string some(std::size_t count, std::uint64_t seed) {
        return story([&] {
            std::vector<choice> may;
            for (std::size_t i = 0; i < count; ++i) {
                support::random_source random = support::stream(seed, i);
                path_.clear();
                for (world w = group_.begin(most_);;) {
                    may.clear();
                    group_.choices(w, [&](const choice& c) { may.push_back(c); });
                    if (may.empty() || random.one_in(40)) {
                        group_.becomes_calm(w, random.one_in(2), path_);
                        break;
                    }
                    choice c = random.pick(may);  // mostly that lines arrive
                    for (int tries = 0; tries < 5 && c.what != event::hears; ++tries) c = random.pick(may);
                    path_.push_back(c);
                    group_.happens(w, path_.back());
                }
            }
        });
    }
    /// One, to its end.
    std::string one(const std::vector<choice>& begins) {
        return story([&] {
            world w = group_.begin(most_);
            for (const choice& c : begins) {
                path_.push_back(c);
                group_.happens(w, c);
            }
            group_.becomes_calm(w, false, path_);
        });
    }
    std::size_t states() const { return seen_.count(); }
    std::size_t count(outcome o) const { return group_.count(o); }

private:
    template <class F>
    std::string story(F f) {
        try {
            f();
        } catch (const broken_law& e) {
            return e.text + "\n" + group_.story(most_, path_);
        }
        return {};
    }
    void explore(const world& w, unsigned every) {
        const std::uint64_t h = hash_of(w);
        if (!seen_.add(h)) return;
        const std::size_t depth = path_.size();
        for (const bool lost : {false, true}) {
            if (h / 2 % every != 0) break;
            group_.becomes_calm(w, lost, path_);
            path_.resize(depth);
        }
        group_.choices(w, [&](const choice& c) {
            world next = w;
            path_.push_back(c);
            group_.happens(next, c);
            explore(next, every);
            path_.pop_back();
        });
    }
    group group_;
    const bounds most_;
    visited seen_;
    std::vector<choice> path_;
};

/// A search: see `executions`.
struct scope {
    int ranks;
    mask absent;
    bounds most;
};
void check_all(const scope& s) {
    executions it(s.ranks, s.absent, s.most);
    const std::string found = it.all(support::long_run ? 1 : 8);
    INFO(s.ranks << " ranks, " << it.states() << " states");
    CHECK(found == "");
    CHECK(it.count(outcome::decided) > 0);
    CHECK((it.count(outcome::excluded) > 0 || s.absent != 0 || s.most.deadlines == 0 || s.most.met));
    CHECK((it.count(outcome::refused) > 0 || 2 * s.most.deaths < s.ranks));
}

}  // namespace

TEST_CASE("agreement: three ranks agree in every order of lines, deaths, cut links and deadlines", "[shrink]") {
    std::vector<scope> scopes = {{3, 0, {.deaths = 1, .again = 1, .gets = 1}}, {3, 0, {.deaths = 2, .deadlines = 1}},
        {3, 0, {.deaths = 1, .cuts = 1, .again = 1, .met = true}}, {3, 0, {.deaths = 2, .again = 2, .met = true}}};
    if (!support::sanitized) scopes.push_back({3, 0, {.deaths = 1, .again = 1, .deadlines = 1}});
    if (support::long_run) {
        scopes.push_back({3, 0, {.deaths = 1, .again = 1, .deadlines = 1, .gets = 1}});
        scopes.push_back({3, 0, {.deaths = 1, .cuts = 1, .again = 1, .deadlines = 1}});
        scopes.push_back({3, 0, {.deaths = 2, .again = 2, .deadlines = 1}});
    }
    for (const scope& s : scopes) check_all(s);
}

TEST_CASE("agreement: two ranks go on in every order where a third one does not come", "[shrink]") {
    for (const mask absent : {1u, 2u, 4u}) check_all({3, absent, {.deaths = 1, .cuts = 1, .again = 2, .deadlines = 2}});
}

TEST_CASE(
    "agreement: the others go on in every order where one stops at any point, also the one that proposes", "[shrink]") {
    std::vector<scope> scopes = {{3, 0, {.stops = 1, .again = 1, .deadlines = 2, .met = true}},
        {4, 0, {.stops = 1, .deadlines = 1, .met = true}}};
    if (!support::sanitized) scopes.push_back({3, 0, {.stops = 1, .again = 1, .deadlines = 1}});
    if (support::long_run) scopes.push_back({4, 0, {.deaths = 1, .stops = 1, .again = 1, .deadlines = 1, .met = true}});
    for (const scope& s : scopes) check_all(s);
}

TEST_CASE("agreement: four ranks that have all come agree in every order", "[shrink]") {
    std::vector<scope> scopes = {{4, 0, {.deaths = 2, .met = true}}, {4, 0, {.deaths = 1, .again = 1, .met = true}}};
    if (support::long_run) {
        scopes.push_back({4, 0, {.cuts = 1, .again = 1, .met = true}});
        scopes.push_back({4, 0, {.deaths = 2, .again = 2, .met = true}});
    }
    for (const scope& s : scopes) check_all(s);
}

TEST_CASE("agreement: three to five ranks agree in random executions", "[shrink]") {
    const std::uint64_t seed = support::setting("COLLS_TEST_SEED", 1);
    const std::size_t trials = support::setting("COLLS_TEST_CASES", support::long_run ? 200'000 : 2'000);
    for (int n = 3; n <= most_ranks; ++n)
        for (const bool met : {false, true}) {
            bounds most{.deaths = 1, .cuts = 1, .again = 2, .deadlines = 2, .gets = 2, .met = met};
            if (n > 3) most.deaths = 2;
            executions it(n, 0, most);
            const std::string found = it.some(trials, seed);
            INFO(n << " ranks, COLLS_TEST_SEED=" << seed);
            CHECK(found == "");
            CHECK(it.count(outcome::decided) > trials / 2);
        }
}

TEST_CASE("agreement: a rank decides what it proposed, also where it has promised not to accept it", "[shrink]") {
    std::vector<choice> path;
    const auto hears = [&](int rank, std::initializer_list<int> from) {
        for (const int p : from) path.push_back({event::hears, rank, p});
    };
    hears(1, {2, 3});
    path.push_back({event::gives_up, 1, 1});  // and proposes, too
    hears(0, {1, 2, 3, 4});
    for (const int r : {2, 3, 4}) hears(r, {0, 0});
    hears(0, {2});
    path.push_back({event::gets, 0, 3});  // the third promise, behind which it reads the ballot of rank 1
    hears(0, {1});
    for (const int r : {2, 3, 4}) hears(r, {0});
    hears(0, {2, 3, 4, 4});
    executions it(5, 0, {.deadlines = 1, .gets = 1});
    CHECK(it.one(path) == "");
    CHECK(it.count(outcome::decided) == 5);
}

TEST_CASE("agreement: the largest group's members arrive in texts as frames cut them; a larger group is refused",
    "[shrink]") {
    constexpr int n = 2400, gone_from = 2390;  // all but one of the last ones remain
    const auto gone = [](int r) { return r >= gone_from && r != n - 1; };
    recorder wire;
    const auto begins = [&](rank_context& self, shrink_agreement& a) {
        self.env.timeout = timeout;
        a.begin(self, wire, 0);
        for (int r = 0; r < n; ++r)
            if (!gone(r)) a.heard(r, {control_kind::join, static_cast<std::uint64_t>(line_kind::here), 0, 0, ""});
    };
    // What rank `from` has said to rank `to`, which hears it as a frame brings it.
    const auto passes = [&](int from, shrink_agreement& a, int to) {
        for (const auto& [peer, l] : std::exchange(wire.said, {}))
            if (peer == to)
                a.heard(from, {control_kind::join, l.a, l.b, l.c, l.text.substr(0, colls::detail::most_text).c_str()});
    };
    rank_context first(0, n, colls::detail::group_memory(), nullptr);
    rank_context last(n - 1, n, colls::detail::group_memory(), nullptr);
    shrink_agreement proposer, other;
    begins(first, proposer);
    begins(last, other);
    wire.said.clear();
    const auto make_place = [] { return std::uint64_t{7}; };
    const auto answer = [&](line_kind what) {
        std::uint64_t ballot = 0;
        for (const auto& [peer, l] : wire.said) ballot = l.a >> 8;
        for (int r = 1; r < n - 1; ++r)
            if (!gone(r))
                proposer.heard(r, {control_kind::join, ballot << 8 | static_cast<std::uint64_t>(what), 0, 0, ""});
        passes(0, other, n - 1);
        CHECK(!other.step(1, gone, make_place));
        wire.said.clear();
    };
    CHECK(!proposer.step(1, gone, make_place));  // it proposes
    answer(line_kind::promise);
    CHECK(!proposer.step(1.1, gone, make_place));
    answer(line_kind::accepted);
    CHECK(proposer.step(1.2, gone, make_place));
    passes(0, other, n - 1);
    CHECK(other.step(1.2, gone, make_place));
    const auto& decided = agreement_state::accepted(proposer);
    CHECK(std::count(decided.members.begin(), decided.members.end(), true) == gone_from + 1);
    CHECK((agreement_state::accepted(other).members == decided.members));
    CHECK(agreement_state::accepted(other).place == 7);
    other.decision();  // does not throw: it is a member

    wire.said.clear();
    rank_context larger(0, n + 1, colls::detail::group_memory(), nullptr);
    shrink_agreement refused;
    try {
        refused.begin(larger, wire, 0);
        CHECK(false);
    } catch (const colls::error& x) {
        INFO(x.what());
        CHECK(x.code() == colls::errc::unsupported);
        CHECK(std::string(x.what()).find("more than 2400 ranks") != std::string::npos);
    }
    CHECK(wire.said.empty());
}
