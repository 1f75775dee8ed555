// How members go over to another group: every interleaving of their steps and deaths, with what collective calls
// promise and no more.
#include "catch.hpp"

#include <colls/elastic/detail/admission.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace {

using colls::detail::endpoints::admission;

constexpr int most = 4;
enum stage : std::uint8_t {
    joins,
    votes,
    confirms,
    settles,
    tells,
    spreads,
    over,
    over_and_shrinks,
    stays,
    fails,
    dead
};

/// A member of S, by its number; the last one is a newcomer, which is in N alone.
struct member {
    stage at = joins;
    std::uint8_t group = 0;                           ///< the members of what S has been shrunk to, as bits
    bool voted = false, in_n = false;                 ///< it has entered the vote; the confirmation
    bool formed = true;                               ///< what it votes
    std::uint16_t told = 0, decided = 0, spread = 0;  ///< by group: it has entered these calls, and what it has told
    admission of{};
};
struct world {
    member all[most + 1];
    int n = 0, deaths = 0;
    bool messages = false;

    std::string key() const {
        std::string k;
        for (int i = 0; i <= n; ++i) {
            const member& m = all[i];
            for (const int x : {int{m.at}, int{m.group}, m.voted + 2 * m.in_n + 4 * m.of.has_decided() + 8 * m.formed,
                     m.told & 255, m.told >> 8, m.decided & 255, m.decided >> 8, m.spread & 255, m.spread >> 8})
                k += static_cast<char>(x);
        }
        return k + static_cast<char>(deaths);
    }
    std::uint8_t everybody() const { return static_cast<std::uint8_t>((1 << n) - 1); }
    template <class F>
    bool each(std::uint8_t group, F f) const {
        for (int i = 0; i < n; ++i)
            if ((group >> i & 1) && !f(all[i])) return false;
        return true;
    }
    /// A call on that group may fail: a member has died, or has gone on to shrink it, or left it.
    bool broken(std::uint8_t group) const {
        return !each(group, [&](const member& m) {
            return m.at != dead && m.at != fails && m.at != over_and_shrinks &&
                   !(m.at == settles && m.group == group) && (m.group & group) == group;
        });
    }
    bool n_broken() const {
        for (int i = 0; i <= n; ++i)
            if (all[i].at >= settles && all[i].at != over && all[i].at != over_and_shrinks) return true;
        return false;
    }
};

struct exploration {
    std::set<std::string> seen;
    int ends = 0, went_over = 0, stayed = 0;
    std::string wrong;

    void from(const world& w) {
        if (!wrong.empty() || !seen.insert(w.key()).second) return;
        bool some_over = false, some_stay = false;
        for (int i = 0; i < w.n; ++i) {
            some_over = some_over || w.all[i].at == over || w.all[i].at == over_and_shrinks;
            some_stay = some_stay || w.all[i].at == stays;
        }
        if (some_over && some_stay) wrong = "members end in two groups";
        if (w.all[w.n].at == over && some_stay)
            wrong = "a newcomer is in a group that the members have not gone over to";
        const int before = steps;
        for (int i = 0; i < w.n; ++i) step(w, i);
        newcomer(w);
        shrink(w);
        if (steps == before) {
            ++ends;
            went_over += some_over, stayed += some_stay;
            for (int i = 0; i <= w.n; ++i)
                if (w.all[i].at < over)
                    wrong = "member " + std::to_string(i) + " waits for ever in " + std::to_string(w.all[i].at);
        }
        for (int i = 0; i <= w.n && w.deaths > 0; ++i)
            if (w.all[i].at != dead) {
                world next = w;
                next.all[i].at = dead;
                --next.deaths;
                from(next);
            }
    }

private:
    int steps = 0;

    void go(world next, int i, stage to, std::uint8_t group) {
        ++steps;
        member& m = next.all[i];
        m.at = to;
        m.group = group;
        if (to == votes) m.voted = true;
        if (to == confirms) m.in_n = true;
        from(next);
    }
    static stage of(admission::next n) {
        using next = admission::next;
        return n == next::vote                 ? votes
               : n == next::confirm            ? confirms
               : n == next::settle             ? settles
               : n == next::stay               ? stays
               : n == next::spread             ? spreads
               : n == next::go_over            ? over
               : n == next::go_over_and_shrink ? over_and_shrinks
                                               : fails;
    }
    void step(const world& w, int i) {
        const std::uint8_t s = w.everybody(), g = w.all[i].group;
        world next = w;
        member& m = next.all[i];
        const auto advance = [&](admission::next to) {
            const stage t = of(to);
            if (t == spreads) m.spread |= static_cast<std::uint16_t>(1 << g);
            go(next, i, t, g);
        };
        switch (m.at) {
            case joins:
                advance(admission::next::vote);
                break;
            case votes:
                if (w.each(s, [](const member& x) { return x.voted; }))
                    advance(m.of.voted(w.each(s, [](const member& x) { return x.formed; })));
                next = w;
                if (w.broken(s)) advance(admission::next::settle);
                break;
            case confirms:
                if (w.each(s, [](const member& x) { return x.in_n; }) && w.all[w.n].in_n)
                    advance(admission::next::go_over);
                next = w;
                if (w.n_broken()) advance(admission::next::settle);
                break;
            case tells:
                if (w.each(g, [&](const member& x) { return x.told >> g & 1; }))
                    advance(m.of.settled(!w.each(g, [&](const member& x) { return !(x.decided >> g & 1); })));
                next = w;
                if (w.broken(g)) advance(admission::next::settle);
                break;
            case spreads:
                if (w.each(g, [&](const member& x) { return x.spread >> g & 1; }))
                    advance(admission::next::go_over_and_shrink);
                next = w;
                if (w.broken(g)) advance(admission::next::settle);
                break;
            case stays:  // its next call fails, and it shrinks what is left of S again
                if (w.broken(g)) m.of = {}, go(next, i, settles, g);
                break;
            default:
                break;
        }
    }
    void newcomer(const world& w) {
        const member& m = w.all[w.n];
        if (m.at == joins) go(w, w.n, confirms, 0);
        if (m.at != confirms) return;
        if (w.each(w.everybody(), [](const member& x) { return x.in_n; })) go(w, w.n, over, 0);
        if (w.n_broken()) go(w, w.n, fails, 0);
    }
    /// Those of a group that are alive and have not left it agree, once all of them have called shrink.
    void shrink(const world& w) {
        for (std::uint8_t g = 1; g <= w.everybody(); ++g) {
            std::uint8_t here = 0;
            bool waits = false;
            for (int i = 0; i < w.n; ++i) {
                const member& m = w.all[i];
                if (m.at == settles && m.group == g)
                    here = static_cast<std::uint8_t>(here | 1 << i);
                else if ((g >> i & 1) && m.at < over && m.group == g)
                    waits = true;
                else if ((g >> i & 1) && m.at == stays && m.group == g)
                    waits = true;
            }
            if (here == 0 || waits) continue;
            world next = w;
            const bool majority = 2 * __builtin_popcount(here) > __builtin_popcount(g);
            for (int i = 0; i < w.n; ++i) {
                member& m = next.all[i];
                if (!(here >> i & 1)) continue;
                if (w.messages && !majority) {
                    m.at = of(m.of.no_majority());
                    continue;
                }
                m.at = tells, m.group = here;
                m.told = static_cast<std::uint16_t>(m.told | 1 << here);
                if (m.of.has_decided()) m.decided = static_cast<std::uint16_t>(m.decided | 1 << here);
            }
            ++steps;
            from(next);
        }
    }
};

}  // namespace

TEST_CASE("admission: members end in one group, in every interleaving of their steps and deaths", "[elastic]") {
    for (const bool messages : {false, true})
        for (const int n : {1, 2, 3})
            for (const bool formed : {true, false})
                for (const int deaths : {0, 1, 2, 3}) {
                    if (n == 3 && deaths == 3) continue;
                    world w;
                    w.n = n, w.deaths = deaths, w.messages = messages;
                    for (int i = 0; i < n; ++i) w.all[i].group = w.everybody();
                    w.all[n - 1].formed = formed;
                    exploration e;
                    e.from(w);
                    INFO((messages ? "messages, " : "memory, ")
                         << n << " members, " << deaths << " deaths, " << (formed ? "formed" : "not formed") << ": "
                         << e.seen.size() << " states: " << e.wrong);
                    CHECK(e.wrong.empty());
                    CHECK(e.ends > 0);
                    CHECK((e.went_over > 0) == formed);
                    if (!formed || (n > 1 && !messages && deaths > 0)) CHECK(e.stayed > 0);
                }
}
