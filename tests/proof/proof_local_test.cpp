// The proof by local conditions: it agrees with the proof that plays all ranks, refuses what is wrong and what it
// cannot represent, and takes large groups.
#include "catch.hpp"
#include "support/random.hpp"

#include <colls/algebra.hpp>
#include <colls/schedules.hpp>
#include <colls/verify.hpp>
#include <proof/local_proof.hpp>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

using namespace colls;
using detail::local_proof;
using detail::slot_motion;
using detail::translation_of;

namespace {

/// A mutation of one step, the same on every rank but for its translation.
enum class change { send_peer, receive_peer, first_sent, first_of_both, count, action, dropped, swapped };
constexpr change changes[] = {change::send_peer, change::receive_peer, change::first_sent, change::first_of_both,
    change::count, change::action, change::dropped, change::swapped};

step changed(step st, change what, int by, int n, slot_motion motion) {
    const bool moves = motion == slot_motion::follows_rank;
    const auto move_on = [&](block_set& b) {
        if (!b.empty()) b.first = moves ? mod(b.first + by, n) : b.first + by;
    };
    const auto other = [&](int peer) { return peer == none ? none : 1 + mod(peer - 1 + by, n - 1); };  // not rank 0
    switch (what) {
        case change::send_peer:
            st.send.peer = other(st.send.peer);
            break;
        case change::receive_peer:
            st.recv.peer = other(st.recv.peer);
            break;
        case change::first_sent:
            move_on(st.send.blocks);
            break;
        case change::first_of_both:
            move_on(st.send.blocks);
            move_on(st.recv.blocks);
            break;
        case change::count:
            --st.send.blocks.count;
            --st.recv.blocks.count;
            break;
        case change::action:
            st.recv.action = st.recv.action == action::copy ? action::reduce : action::copy;
            break;
        case change::dropped:
            st = {};
            break;
        case change::swapped:  // the round with the next, in altered::at
            break;
    }
    return st;
}

/// A schedule with one step changed: of every rank alike but for the translation, or of one rank alone.
class altered final : public detail::schedule_reader {
public:
    altered(const schedule_reader& s, slot_motion motion, change what, int round, int port, int by, int whose)
        : schedule_reader(s.implements),
          s_(s),
          motion_(motion),
          what_(what),
          round_(round),
          port_(port),
          by_(by),
          whose_(whose) {}

    step at(int rank, int n, int k, int p) const override {
        if (whose_ == none) {
            if (what_ == change::swapped) {
                const int other = round_ + 1 < s_.rounds(n) ? round_ + 1 : round_ > 0 ? round_ - 1 : round_;
                return s_.at(rank, n, k == round_ ? other : k == other ? round_ : k, p);
            }
            step st = s_.at(0, n, k, p);
            if (k == round_ && p == port_) st = changed(st, what_, by_, n, motion_);
            detail::translate(st, rank, n, motion_);
            return st;
        }
        const step st = s_.at(rank, n, k, p);
        if (rank != whose_ || k != round_ || p != port_) return st;
        step moved = changed(st, what_, by_, n, slot_motion::follows_rank);
        if (moved.send.peer == rank) moved.send.peer = mod(rank + 1, n);
        if (moved.recv.peer == rank) moved.recv.peer = mod(rank + 1, n);
        return moved;
    }

private:
    int ask(detail::question q, int rank, int n, int slot) const override {
        switch (q) {
            case detail::question::rounds:
                return s_.rounds(n);
            case detail::question::ports:
                return s_.ports(n);
            case detail::question::blocks:
                return s_.blocks(n);
            case detail::question::scratch:
                return s_.scratch(n);
            case detail::question::root:
                return s_.root(n);
            case detail::question::supports:
                return s_.supports(n);
            case detail::question::home:
                return s_.home(n, slot);
            case detail::question::input:
                return s_.input(rank, n, slot);
            case detail::question::output:
                return s_.output(rank, n, slot);
        }
        return none;
    }

    const schedule_reader& s_;
    const slot_motion motion_;
    const change what_;
    const int round_, port_, by_, whose_;
};

/// States the steps of rank 0, and then hides what is made of them.
struct hidden : detail::by_translation<hidden> {
    static constexpr collective implements = collective::reduce_scatter;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr step of_rank_0(int n, int round) { return ring::reduce_scatter::of_rank_0(n, round); }
    static constexpr step at(int rank, int n, int round) {
        return ring::reduce_scatter::at(rank == 5 ? 4 : rank, n, round);
    }
};

/// An all_to_all whose blocks reach their destinations, in the slots of other sources.
struct crossed : detail::by_translation<crossed> {
    static constexpr collective implements = collective::all_to_all;
    static constexpr int rounds(int) { return 1; }
    static constexpr int ports(int n) { return n - 1; }
    static constexpr step of_rank_0(int n, int, int port) {
        return {.send = {port + 1, block(port + 1)}, .recv = {n - 1 - port, block(port + 1)}};
    }
};

/// Rank 0 sends one set of blocks, and rank 1 receives another.
struct two_sets {
    block_set sent, received;

    static constexpr collective implements = collective::broadcast;
    static int rounds(int) { return 1; }
    static int blocks(int) { return 1000; }
    step at(int rank, int, int) const { return rank == 0 ? step{.send = {1, sent}} : step{.recv = {0, received}}; }
};

/// A schedule whose members tests set one by one.
struct loose {
    collective implements = collective::broadcast;
    std::function<step(int rank, int n, int round, int port)> steps{};
    int round_count = 1, block_count = 1, port_count = 1, scratch_count = 0, root_rank = 0;
    std::function<int(int slot)> home_rule = [](int slot) { return slot; };
    std::function<int(int slot)> input_rule = [](int slot) { return slot; };

    int rounds(int) const { return round_count; }
    int blocks(int) const { return block_count; }
    int ports(int) const { return port_count; }
    int scratch(int) const { return scratch_count; }
    int root(int) const { return root_rank; }
    bool supports(int) const { return true; }
    int home(int, int slot) const { return home_rule(slot); }
    int input(int, int, int slot) const { return input_rule(slot); }
    int output(int, int, int slot) const { return slot; }
    step at(int rank, int n, int round, int port) const { return steps(rank, n, round, port); }
};
using alter = std::function<void(step&, int rank, int round)>;
/// Between rank 0 and one other rank a round; and one step altered.
loose star_of(collective c, const alter& change = {}) {
    loose s{.implements = c, .round_count = 3};
    s.steps = [c, change](int rank, int, int round, int) {
        const int leaf = round % 3 + 1;
        step st;
        if (rank == (c == collective::reduce ? leaf : 0)) st.send = {leaf - rank, block(0)};
        if (rank == (c == collective::reduce ? 0 : leaf)) st.recv = {leaf - rank, block(0)};
        if (c == collective::reduce) st.recv.action = action::reduce;
        if (change) change(st, rank, round);
        return st;
    };
    return s;
}
/// What rank 0 of 4 does, where each rank sends to each other; and one step altered.
loose exchange_of(collective c, const alter& change = {}) {
    loose s{.implements = c, .round_count = 1, .block_count = 4, .port_count = 3};
    s.steps = [c, change](int rank, int n, int round, int port) {
        const int to = port + 1, from = n - to;
        step st{.send = {to, block(0)}, .recv = {from, block(from)}};
        if (c == collective::all_to_all) st.send.blocks = block(to);
        if (c == collective::all_reduce) st.recv = {from, block(0), action::reduce};
        if (c == collective::barrier) st.send.blocks = st.recv.blocks = {};
        if (change) change(st, rank, 3 * round + port);
        return st;
    };
    if (c == collective::all_reduce) s.block_count = 1;
    return s;
}
std::string words_of(const detail::local_finding& f) {
    if (f.proven()) return "proven";
    return (f.round == none) == (f.port == none) ? f.refused : "a round without a port, or the reverse";
}
std::string of_all(const loose& s, int n = 4, slot_motion motion = slot_motion::stays) {
    const detail::reader_of<loose> reader(s);
    const auto f = detail::local_conditions(reader).at(n, false, motion);
    return words_of(f);
}
std::string of_rank_0(const loose& s, slot_motion motion = slot_motion::follows_rank) {
    const detail::reader_of<loose> reader(s);
    const auto f = detail::local_conditions(reader).at(4, true, motion);
    return words_of(f);
}

/// A schedule behind the library's one interface, and what its type says of its symmetry. (One list, not templates: the
/// file takes a third of the time to compile.)
struct listed {
    std::string name;
    std::shared_ptr<const void> owner;
    const detail::schedule_reader* reader;
    bool one;
    slot_motion motion;

    detail::local_finding prove(int n) const { return detail::local_conditions(*reader).at(n, one, motion); }
};
template <class S>
listed entry_of(const std::string& family, S s = {}) {
    struct pair {
        S s;
        detail::reader_of<S> reader{s};
        explicit pair(const S& from) : s(from) {}
    };
    const auto kept = std::make_shared<const pair>(s);
    return {family + " " + name_of(implemented_by<S>), kept, &kept->reader, translation_of<S>::holds,
        translation_of<S>::motion};
}
template <class F, collective... C>
void add(std::vector<listed>& to, const std::string& family) {
    (to.push_back(entry_of<schedule_for<F, C>>(family)), ...);
}

/// Schedules whose types say that they translate.
const std::vector<listed>& symmetric() {
    static const std::vector<listed> all = [] {
        using enum collective;
        std::vector<listed> l;
        add<ring, reduce_scatter, all_gather, all_reduce>(l, "ring");
        add<direct, reduce_scatter, all_gather, all_reduce, all_to_all>(l, "direct");
        add<circulant<>, reduce_scatter, all_gather, all_reduce>(l, "circulant");
        add<circulant<doubling>, reduce_scatter, all_reduce>(l, "circulant<doubling>");
        add<circulant<linear>, reduce_scatter, all_gather>(l, "circulant<linear>");
        add<bruck<2>, reduce_scatter, all_gather, all_reduce, all_to_all>(l, "bruck");
        add<bruck<5>, all_gather, all_to_all>(l, "bruck<5>");
        add<pat<1>, reduce_scatter, all_gather, all_reduce>(l, "pat");
        add<pat<4>, reduce_scatter, all_gather>(l, "pat<4>");
        add<one_shot, all_reduce>(l, "one_shot");
        add<recursive_doubling, barrier>(l, "recursive_doubling");
        add<recursive_multiplying<3>, barrier>(l, "recursive_multiplying<3>");
        return l;
    }();
    return all;
}
/// And others, of which every rank is read.
const std::vector<listed>& others() {
    static const std::vector<listed> all = [] {
        using enum collective;
        std::vector<listed> l;
        add<tree<2>, broadcast, reduce, scatter, gather, all_reduce>(l, "tree");
        add<tree<4>, broadcast, scatter>(l, "tree<4>");
        add<direct, broadcast, reduce, scatter>(l, "direct");
        add<ring, broadcast, reduce>(l, "ring");
        add<double_tree, broadcast, all_reduce>(l, "double_tree");
        add<pipelined_broadcast, broadcast, all_reduce>(l, "pipelined_broadcast");
        add<halving_doubling, reduce_scatter, all_gather, all_reduce>(l, "halving_doubling");
        add<distance_doubling, reduce_scatter, all_reduce>(l, "distance_doubling");
        add<swing, reduce_scatter, all_reduce>(l, "swing");
        add<bine, broadcast, reduce>(l, "bine");
        add<folded<halving_doubling>, reduce_scatter, all_reduce>(l, "folded<halving_doubling>");
        add<striped<circulant<>, permuted<circulant<>, mirror>>, all_reduce>(l, "striped");
        add<hierarchical<circulant<>, circulant<>>, all_reduce, reduce_scatter>(l, "hierarchical");
        add<fan_in, all_reduce>(l, "fan_in");
        return l;
    }();
    return all;
}

bool exhaustive() { return std::getenv("COLLS_TEST_EXHAUSTIVE") != nullptr; }

bool same(const step& a, const step& b) {
    return a.send.peer == b.send.peer && a.send.blocks == b.send.blocks && a.recv.peer == b.recv.peer &&
           a.recv.blocks == b.recv.blocks && a.recv.action == b.recv.action;
}

}  // namespace

TEST_CASE("translation: what a type says is what all its ranks do", "[proof]") {
    for (const listed& l : symmetric()) {
        const detail::schedule_reader& s = *l.reader;
        CHECK(l.one);
        long compared = 0, wrong = 0;
        for (int n = 2; n <= (exhaustive() ? 512 : 66); ++n)
            for (int k = 0; k < s.rounds(n); ++k)
                for (int port = 0; port < s.ports(n); ++port)
                    for (int r = 0; r < n; ++r, ++compared) {
                        step st = s.at(0, n, k, port);
                        detail::translate(st, r, n, l.motion);
                        wrong += !same(st, s.at(r, n, k, port));
                    }
        INFO(l.name);
        CHECK(wrong == 0);
        CHECK(compared > 5'000);
    }
    for (const listed& l : others()) CHECK_FALSE(l.one);
    STATIC_REQUIRE_FALSE(translation_of<hidden>::holds);
    STATIC_REQUIRE_FALSE(translation_of<compose<hidden, reversed<hidden>>>::holds);
}

TEST_CASE("local conditions: prove what the proof of all ranks proves", "[proof]") {
    const int largest = exhaustive() ? 512 : 129;
    for (const auto* list : {&symmetric(), &others()})
        for (const listed& l : *list) {
            int sizes = 0;
            for (int n = 1; n <= largest; ++n) {
                if (!l.reader->supports(n) || (!exhaustive() && n > 34 && n % 16 > 1 && n % 31 != 0)) continue;
                const detail::local_finding local = l.prove(n);
                INFO(l.name << " at " << n << ": " << local.text());
                CHECK(local.proven());
                CHECK(detail::run_proof(*l.reader, n).ok());
                ++sizes;
            }
            CHECK(sizes >= 8);
        }
}

TEST_CASE("local conditions: a changed schedule is refused unless it is still right", "[proof]") {
    int refused = 0, kept = 0;
    support::random_source random(7);
    for (const auto* list : {&symmetric(), &others()})
        for (const listed& l : *list)
            for (const int n : {3, 4, 7, 8, 16, 21})
                for (const change what : changes)
                    for (const bool everywhere : {true, false}) {
                        if (!l.reader->supports(n) || (everywhere && !l.one)) continue;
                        if (!everywhere && (what == change::swapped || l.reader->implements == collective::barrier))
                            continue;
                        const altered bad(*l.reader, l.motion, what, random.between(0, l.reader->rounds(n) - 1),
                            random.between(0, l.reader->ports(n) - 1), random.between(1, n - 2),
                            everywhere ? none : random.between(0, n - 1));
                        const bool proven = detail::local_conditions(bad).at(n, everywhere, l.motion).proven();
                        INFO(l.name << " at " << n << ", change " << int(what) << (everywhere ? "" : " of one rank"));
                        if (proven) CHECK(detail::run_proof(bad, n).ok());
                        ++(proven ? kept : refused);
                    }
    CHECK(refused > 2'000);
    CHECK(kept < refused / 4);
}

TEST_CASE("local conditions: the blocks that are sent must be those that are received", "[proof]") {
    const auto meet = [](const block_set& sent, const block_set& received) {
        return local_proof(two_sets{sent, received}).at(2).text().find("the blocks sent are not those received") ==
               std::string::npos;
    };
    const block_set all{5, 4, 6, 2, 7, 15, 2, 3, 40};
    CHECK(meet(all, all));
    for (int block_set::* member : {&block_set::base, &block_set::first, &block_set::count, &block_set::run,
             &block_set::period, &block_set::modulus, &block_set::grain, &block_set::reps, &block_set::stride})
        for (const int by : {-1, 1}) {
            block_set other = all;
            other.*member += by;
            INFO("from " << all.*member << " to " << other.*member);
            CHECK_FALSE(meet(all, other));
            CHECK_FALSE(meet(other, all));
        }
    // However a set is written.
    CHECK(meet(block_range(3, 4), {.base = 1, .first = 2, .count = 2, .period = 2, .grain = 2}));
    CHECK(meet(block(7), {.first = 27, .count = 1, .modulus = 20}));
    CHECK(meet({.first = 3}, {.first = 9, .reps = 0}));
    CHECK_FALSE(meet(block_range(3, 4), {.first = 6, .count = 4, .period = -1}));  // in another order
}

TEST_CASE("local conditions: what each of them refuses, read from all ranks", "[proof]") {
    using enum collective;
    const auto changed_at = [](int where, int when, auto change) {
        return [=](step& st, int rank, int round) {
            if (rank == where && round == when) change(st);
        };
    };
    for (const collective c : {broadcast, collective::reduce}) {
        INFO(name_of(c));
        loose s = star_of(c);
        CHECK(of_all(s) == "proven");
        CHECK(of_all(s, 0) == "the schedule does not support this group size");
        for (int loose::* extent : {&loose::round_count, &loose::port_count, &loose::block_count}) {
            s = star_of(c);
            s.*extent = extent == &loose::port_count ? 0 : -1;
            CHECK(of_all(s) == "an extent is negative");
        }
        s = star_of(c);
        s.scratch_count = 1;
        CHECK(of_all(s) == "slots other than blocks are not represented");
        s = star_of(c);
        for (const int bad : {-1, 4}) {
            s.root_rank = bad;
            CHECK(of_all(s) == "the root is not a rank");
        }
        // Rank 3 takes no part in round 0.
        for (const int bad : {-2, 3, 4}) {
            CHECK(of_all(star_of(c, changed_at(3, 0, [=](step& st) { st.send.peer = bad; }))) ==
                  "a peer is not another rank");
            CHECK(of_all(star_of(c, changed_at(3, 0, [=](step& st) { st.recv.peer = bad; }))) ==
                  "a peer is not another rank");
        }
        CHECK(of_all(star_of(c, changed_at(3, 0, [](step& st) { st.send = {1, block(0)}; }))) ==
              "a send meets no receive");
        CHECK(of_all(star_of(c, changed_at(3, 0, [](step& st) { st.recv.peer = 1; }))) == "a receive meets no send");
        for (const int bad : {-1, 1})
            CHECK(of_all(star_of(c, [=](step& st, int, int) { st.send.blocks = st.recv.blocks = block(bad); })) ==
                  "a block does not exist");
        const block_set two = block_range(0, 2);
        CHECK(of_all(star_of(c, [=](step& st, int, int) { st.send.blocks = two; })).find("names a block that does") !=
              std::string::npos);
        CHECK(of_all(star_of(c, [=](step& st, int, int) { st.recv.blocks = two; })) ==
              "a receive names a block that does not exist");
    }
    // Blocks of no transfer; a block that wraps; and where ranks are read one by one nothing needs to follow them.
    const auto idle_blocks = [](step& st, int, int) { st.send.blocks = st.recv.blocks = block(0); };
    CHECK(of_all(star_of(broadcast, idle_blocks)) == "proven");
    CHECK(of_all(star_of(collective::reduce, idle_blocks)) == "proven");
    const auto wrapped = [](step& st, int, int) {
        st.send.blocks = st.recv.blocks = {.first = 1, .count = 1, .modulus = 1};
    };
    CHECK(of_all(star_of(broadcast, wrapped)) == "proven");
    loose pair = star_of(broadcast, [](step& st, int, int) { st.send.blocks = st.recv.blocks = block_range(0, 2); });
    pair.block_count = 2;
    CHECK(of_all(pair, 4, slot_motion::follows_rank) == "proven");
    const auto passed_ahead = [](step& st, int rank, int round) {  // by rank 1 to rank 3, of what it does not have yet
        if (round == 0 && rank == 1) st.send = {3, block(0)};
        if (round == 0 && rank == 3) st.recv = {1, block(0)};
    };
    CHECK(of_all(star_of(broadcast, passed_ahead)) == "a result is sent by a rank that does not hold it");
    loose s = star_of(broadcast);
    s.round_count = 2;
    CHECK(of_all(s) == "the result does not arrive");
    s.round_count = 4;  // the first again
    CHECK(of_all(s) == "a result arrives where there is one, or a partial result not sent on");
    s = star_of(collective::reduce);
    s.round_count = 2;
    CHECK(of_all(s) == "its contributions do not all end at one rank");
    s.round_count = 4;
    CHECK(of_all(s) == "a partial result is sent twice, or where there is none");
    s.round_count = 3;
    s.root_rank = 1;
    CHECK(of_all(s) == "the result does not arrive");
    CHECK(of_all(star_of(collective::reduce, [](step& st, int rank, int round) {
        if (round == 0 && rank == 0) st.send = {2, block(0)};
        if (round == 0 && rank == 2) st.recv = {0, block(0), action::reduce};
    })) == "a contribution arrives in a slot that has been sent on");

    const auto both_ways = [](int rank, int, int, int) {
        return step{.send = {1 - rank, block(1 - rank)}, .recv = {1 - rank, block(rank), action::reduce}};
    };
    s = {.implements = collective::reduce_scatter, .steps = both_ways, .block_count = 2};
    CHECK(of_all(s, 2) == "proven");
    for (const int bad : {-1, 2}) {
        s.home_rule = [bad](int slot) { return slot == 1 ? bad : slot; };
        CHECK(of_all(s, 2) == "a block has no rank that owns it");
    }
    s.home_rule = [](int) { return 0; };
    CHECK(of_all(s, 2) == "a rank owns no block");
    for (const collective c : {inclusive_scan, exclusive_scan, collective::redistribute})
        CHECK(of_all(star_of(c)) == "this collective is not represented");
    CHECK(of_all(exchange_of(all_to_all)) == "an all_to_all that is not symmetric by construction is not represented");
    CHECK(of_all(exchange_of(barrier)) == "a barrier that is not symmetric by construction is not represented");
}

TEST_CASE("local conditions: what each of them refuses, read from rank 0", "[proof]") {
    using enum collective;
    const auto changed_at = [](int when, auto change) {
        return [=](step& st, int, int at) {
            if (at == when) change(st);
        };
    };
    for (const collective c : {all_gather, all_to_all, barrier}) {
        INFO(name_of(c));
        CHECK(of_rank_0(exchange_of(c)) == "proven");
        for (const int bad : {-2, 0, 4}) {
            CHECK(of_rank_0(exchange_of(c, changed_at(1, [=](step& st) { st.send.peer = bad; }))) ==
                  "a peer is not another rank");
            CHECK(of_rank_0(exchange_of(c, changed_at(1, [=](step& st) { st.recv.peer = bad; }))) ==
                  "a peer is not another rank");
        }
        for (const int bad : {none, 1}) {
            CHECK(of_rank_0(exchange_of(c, changed_at(1, [=](step& st) { st.recv.peer = bad; }))) ==
                  "a send meets no receive");
            CHECK(of_rank_0(exchange_of(c, changed_at(1, [=](step& st) { st.send.peer = bad; }))) ==
                  (bad == none ? "a receive meets no send" : "a send meets no receive"));
        }
        for (int port = 0; port < 3; ++port) {
            CHECK(of_rank_0(exchange_of(c, changed_at(port, [](step& st) { st.recv.peer = none; }))) ==
                  "a send meets no receive");
            CHECK(of_rank_0(exchange_of(c, changed_at(port, [](step& st) { st.send.peer = none; }))) ==
                  "a receive meets no send");
        }
        loose idle = exchange_of(c, changed_at(3, [c](step& st) {  // a port with blocks of no transfer
            const block_set unused = c == barrier ? block_set{} : block(1);
            st = {.send = {none, unused}, .recv = {none, unused}};
        }));
        idle.port_count = 4;
        CHECK(of_rank_0(idle) == "proven");
        const std::string rest = of_rank_0(exchange_of(c, changed_at(1, [](step& st) { st = {}; })));
        CHECK(rest == (c == all_gather      ? "the result does not arrive"
                          : c == all_to_all ? "a slot holds a block for another rank"
                                            : "the ranks heard of are not an interval"));
        if (c == barrier) continue;
        for (const block_set& bad : {block(-1), block(4), block_range(0, 2)}) {
            const char* const text = "blocks that follow the rank are one block, or a set modulo n";
            CHECK(of_rank_0(exchange_of(c, changed_at(1, [=](step& st) { st.send.blocks = bad; }))) == text);
            CHECK(of_rank_0(exchange_of(c, changed_at(1, [=](step& st) { st.recv.blocks = bad; }))) == text);
        }
        CHECK(of_rank_0(exchange_of(c, changed_at(1, [](step& st) { st.recv.blocks = {}; }))) ==
              "the blocks sent are not those received");
    }
    CHECK(of_rank_0(exchange_of(all_gather, [](step& st, int, int) { st.send.blocks.modulus = 4; })) == "proven");
    loose s = exchange_of(all_gather);
    CHECK(of_rank_0(s, slot_motion::stays) == "owned slots follow the rank");
    s.home_rule = [](int slot) { return slot ^ 1; };
    CHECK(of_rank_0(s) == "the owners of blocks are not translated with the ranks");
    CHECK(of_rank_0(star_of(broadcast), slot_motion::stays) == "with a root, the ranks do not all do the same");

    // All contributions in one round.
    CHECK(of_rank_0(exchange_of(all_reduce), slot_motion::stays) == "proven");
    CHECK(of_rank_0(exchange_of(all_reduce)) == "slots that follow the rank must be as many as the ranks");
    const auto says = [&](loose of, void (*change)(loose&)) {
        change(of);
        return of_rank_0(of, of.implements == all_reduce ? slot_motion::stays : slot_motion::follows_rank);
    };
    loose at_once = exchange_of(all_reduce,
        changed_at(3, [](step& st) { st = {.send = {none, block(0)}, .recv = {none, block(0), action::reduce}}; }));
    at_once.port_count = 4;
    CHECK(of_rank_0(at_once, slot_motion::stays) == "proven");
    at_once.port_count = 3;
    CHECK(says(at_once, [](loose& x) { x.block_count = 2; }) ==
          "several blocks that do not follow the rank are not represented");
    CHECK(says(at_once, [](loose& x) { x.port_count = 2; }) == "a contribution does not arrive");
    CHECK(says(at_once, [](loose& x) { x.round_count = 2; }) == "contributions arrive in two rounds");
    CHECK(says(exchange_of(all_reduce, [](step& st, int, int) { st.recv.action = action::copy; }), [](loose&) {}) ==
          "a copy replaces a contribution");
    CHECK(says(exchange_of(all_reduce, changed_at(1, [](step& st) { st.send.peer = 1, st.recv.peer = 3; })),
              [](loose&) {}) == "a rank contributes twice");
    CHECK(says(exchange_of(all_reduce, changed_at(1, [](step& st) { st.send.blocks = st.recv.blocks = block(1); })),
              [](loose&) {}) == "a block does not exist");

    CHECK(says(exchange_of(all_to_all), [](loose& x) { x.input_rule = [](int slot) { return slot / 2; }; }) ==
          "no block, or two, for a rank");
    CHECK(says(exchange_of(all_to_all), [](loose& x) { x.input_rule = [](int slot) { return slot + 1; }; }) ==
          "no block, or two, for a rank");
    CHECK(of_rank_0(exchange_of(all_to_all, changed_at(1, [](step& st) { st.recv.action = action::reduce; }))) ==
          "blocks of an all_to_all are combined");
    CHECK(of_rank_0(exchange_of(all_to_all, [](step& st, int, int) { st.recv.blocks = block(3); })) ==
          "two blocks arrive in one slot");
    CHECK(of_rank_0(exchange_of(all_to_all, [](step& st, int, int) { st.recv.blocks.first ^= 2; })) ==
          "a slot holds the block of another rank");
    for (const int bad : {-1, 4}) {  // of slots that do not follow the rank
        CHECK(of_rank_0(exchange_of(all_to_all, changed_at(1, [=](step& st) { st.send.blocks = block(bad); })),
                  slot_motion::stays) == "a block does not exist");
        CHECK(of_rank_0(exchange_of(all_to_all, changed_at(1, [=](step& st) { st.recv.blocks = block(bad); })),
                  slot_motion::stays) == "a block does not exist");
    }
    CHECK(says(exchange_of(barrier), [](loose& x) { x.port_count = 1; }) == "rank 0 does not hear of every rank");
    CHECK(says(exchange_of(barrier), [](loose& x) { x.round_count = 0; }) == "rank 0 does not hear of every rank");
    CHECK(of_rank_0(exchange_of(barrier, [](step& st, int, int at) {
        st.send.peer = at == 0 ? 2 : 1;
        st.recv.peer = 4 - st.send.peer;
    })) == "the ranks heard of are not an interval");
}

TEST_CASE("local conditions: what was found at one group size changes nothing at the next", "[proof]") {
    for (const auto* list : {&symmetric(), &others()})
        for (const listed& l : *list) {
            detail::local_conditions conditions(*l.reader);
            for (const int n : {16, 0, 7, 8, 3, 0, 12, 1, 16}) {
                INFO(l.name << " at " << n);
                const auto again = conditions.at(n, l.one, l.motion);
                CHECK(again.text() == l.prove(n).text());
            }
        }
    loose s = star_of(collective::reduce);
    const detail::reader_of<loose> reader(s);
    detail::local_conditions conditions(reader);
    const std::string begin = "not proven by local conditions: group of 4, ";
    const auto check = [&](const std::string& text) {
        CHECK(conditions.at(4, false, slot_motion::stays).text() == begin + text);
    };
    s.round_count = 4;
    check("rank 1, round 3, port 0, block 0, a partial result is sent twice, or where there is none");
    s.round_count = 2;
    check("block 0, its contributions do not all end at one rank");
    s.root_rank = 4;
    check("the root is not a rank");
    s.root_rank = 1;
    check("rank 1, block 0, the result does not arrive");
    s.round_count = -1;
    check("an extent is negative");
}

TEST_CASE("local conditions: every change of a symmetric schedule of a large group is refused", "[proof]") {
    support::random_source random(11);
    int refused = 0;
    for (const listed& l : symmetric())
        for (const int n : {40'961, 65'536})
            for (const change what : changes) {
                if (l.reader->implements == collective::barrier) continue;           // it has no blocks to change
                if (what == change::swapped && l.name.find("ring ") != 0) continue;  // some are right in either order
                int round = 0, port = 0;
                do round = random.between(0, l.reader->rounds(n) - 1), port = random.between(0, l.reader->ports(n) - 1);
                while (l.reader->at(0, n, round, port).send.peer == none);
                const altered bad(*l.reader, l.motion, what, round, port, random.between(1, n - 2), none);
                const bool proven = detail::local_conditions(bad).at(n, true, l.motion).proven();
                INFO(l.name << " at " << n << ", change " << int(what) << " in round " << round << ", port " << port);
                CHECK_FALSE(proven);
                refused += !proven;
            }
    CHECK(refused > 300);
}

TEST_CASE("local conditions: large groups, and every group size up to a bound", "[proof]") {
    for (const listed& l : symmetric()) {
        INFO(l.name);
        for (const int n : {65'535, 65'536, 40'961}) CHECK(l.prove(n).text() == "proven");
        int proven = 0;
        for (int n = 1; n <= 400; ++n) proven += l.prove(n).proven();
        CHECK(proven == 400);
    }
    CHECK(local_proof<tree<2>::broadcast>().at(40'961).proven());
    CHECK(local_proof<schedule_for<double_tree, collective::all_reduce>>().at(5'003).proven());
    CHECK(local_proof<swing::reduce_scatter>().at(2'048).proven());
    CHECK(local_proof<schedule_for<ring, collective::barrier>>().at(65'536).proven());
    CHECK(local_proof<schedule_for<circulant<>, collective::barrier>>().at(40'961).proven());
}

TEST_CASE("local conditions: what is not represented is refused, and named", "[proof]") {
    const auto says = [](const auto& s, int n) { return local_proof(s).at(n).text(); };
    CHECK(says(ring::inclusive_scan{}, 4) ==
          "not proven by local conditions: group of 4, this collective is not represented");
    CHECK(says(recursive_doubling::all_reduce{}, 4).find("rank 0, round 0, port 0, block 0, ") != std::string::npos);
    CHECK(says(halving_doubling::reduce_scatter{}, 6).find("does not support this group size") != std::string::npos);
    CHECK_FALSE(verify(crossed{}, 5).ok());
    for (const int n : {5, 40'961})
        CHECK(says(crossed{}, n).find("a slot holds the block of another rank") != std::string::npos);
    CHECK(says(hidden{}, 8).find("a send meets no receive") != std::string::npos);
    CHECK(says(permuted<direct::all_to_all, mirror>{}, 4).find("not symmetric by construction") != std::string::npos);
}
