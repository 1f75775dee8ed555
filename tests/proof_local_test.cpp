// The proof by local conditions: it agrees with the proof that plays all ranks, refuses what is wrong and what it
// cannot represent, and takes large groups.
#include "catch.hpp"
#include "support/random.hpp"

#include <colls/algebra.hpp>
#include <colls/detail/prove/local_proof.hpp>
#include <colls/schedules.hpp>
#include <colls/verify.hpp>

#include <cstdlib>
#include <string>

using namespace colls;
using detail::local_proof;
using detail::slot_motion;
using detail::translation_of;

namespace {

/// A mutation of one step, the same on every rank but for its translation.
enum class change { send_peer, receive_peer, first_sent, first_of_both, count, action, dropped };
constexpr change changes[] = {change::send_peer, change::receive_peer, change::first_sent, change::first_of_both,
    change::count, change::action, change::dropped};

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
    }
    return st;
}

/// S with the step of every rank changed in one round, on one port.
template <class S>
struct altered : S {
    change what{};
    int round = 0, port = 0, by = 1;
    step at(int rank, int n, int k, int p) const {
        step st = step_of(static_cast<const S&>(*this), 0, n, k, p);
        if (k == round && p == port) st = changed(st, what, by, n, translation_of<S>::motion);
        detail::translate(st, rank, n, translation_of<S>::motion);
        return st;
    }
};
/// S with the step of one rank changed: no symmetry is left.
template <class S>
struct altered_at_one : S {
    change what{};
    int round = 0, port = 0, by = 1, whose = 0;
    step at(int rank, int n, int k, int p) const {
        const step st = step_of(static_cast<const S&>(*this), rank, n, k, p);
        if (rank != whose || k != round || p != port) return st;
        step moved = changed(st, what, by, n, slot_motion::follows_rank);
        if (moved.send.peer == rank) moved.send.peer = mod(rank + 1, n);
        if (moved.recv.peer == rank) moved.recv.peer = mod(rank + 1, n);
        return moved;
    }
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

template <class F, collective... C, class Do>
void of_family(Do f) {
    (f(schedule_for<F, C>{}), ...);
}
/// The schedules whose types say that they translate. f(schedule, name).
template <class Do>
void each_symmetric(Do f) {
    using enum collective;
    const auto four = [&]<class F>(F, const char* name) {
        of_family<F, reduce_scatter, all_gather, all_reduce>(
            [&](const auto& s) { f(s, name + std::string(" ") + name_of(s.implements)); });
    };
    four(ring{}, "ring");
    four(direct{}, "direct");
    four(circulant<>{}, "circulant");
    four(circulant<doubling>{}, "circulant<doubling>");
    four(circulant<linear>{}, "circulant<linear>");
    four(bruck<2>{}, "bruck");
    four(bruck<4>{}, "bruck<4>");
    four(pat<1>{}, "pat");
    four(pat<4>{}, "pat<4>");
    f(direct::all_to_all{}, "direct all_to_all");
    f(bruck<2>::all_to_all{}, "bruck all_to_all");
    f(bruck<5>::all_to_all{}, "bruck<5> all_to_all");
    f(one_shot::all_reduce{}, "one_shot all_reduce");
    f(recursive_doubling::barrier{}, "recursive_doubling barrier");
    f(recursive_multiplying<3>::barrier{}, "recursive_multiplying<3> barrier");
}
/// Further schedules, of which every rank is read. f(schedule, name).
template <class Do>
void each_other(Do f) {
    using enum collective;
    const auto named = [&](const char* name) {
        return [&f, name](const auto& s) { f(s, name + std::string(" ") + name_of(s.implements)); };
    };
    of_family<tree<2>, broadcast, reduce, scatter, gather, all_reduce>(named("tree"));
    of_family<tree<4>, broadcast, scatter>(named("tree<4>"));
    of_family<direct, broadcast, reduce, scatter, gather>(named("direct"));
    of_family<ring, broadcast, reduce, barrier>(named("ring"));
    of_family<double_tree, broadcast, reduce, all_reduce>(named("double_tree"));
    of_family<pipelined_broadcast, broadcast, all_reduce>(named("pipelined_broadcast"));
    of_family<halving_doubling, reduce_scatter, all_gather, all_reduce, barrier>(named("halving_doubling"));
    of_family<distance_doubling, reduce_scatter, all_reduce>(named("distance_doubling"));
    of_family<swing, reduce_scatter, all_reduce>(named("swing"));
    of_family<folded<halving_doubling>, reduce_scatter, all_reduce>(named("folded<halving_doubling>"));
    of_family<striped<circulant<>, permuted<circulant<>, mirror>>, all_reduce>(named("striped"));
    of_family<hierarchical<circulant<>, circulant<>>, all_reduce, reduce_scatter>(named("hierarchical"));
    f(fan_in::all_reduce{}, "fan_in all_reduce");
}

bool exhaustive() { return std::getenv("COLLS_TEST_EXHAUSTIVE") != nullptr; }

bool same(const step& a, const step& b) {
    return a.send.peer == b.send.peer && a.send.blocks == b.send.blocks && a.recv.peer == b.recv.peer &&
           a.recv.blocks == b.recv.blocks && a.recv.action == b.recv.action;
}

}  // namespace

namespace colls::inline v1::detail {
template <class S>
struct translation_of<altered<S>> : translation_of<S> {
    static constexpr bool at(const altered<S>& s, int n) { return translation_of<S>::at(s, n); }
};
template <class S>
struct translation_of<altered_at_one<S>> {
    static constexpr bool holds = false;
    static constexpr slot_motion motion = slot_motion::stays;
    static constexpr bool at(const altered_at_one<S>&, int) { return false; }
};
}  // namespace colls::inline v1::detail

TEST_CASE("translation: what a type says is what all its ranks do", "[proof]") {
    each_symmetric([](const auto& s, const std::string& name) {
        using S = std::remove_cvref_t<decltype(s)>;
        STATIC_REQUIRE(translation_of<S>::holds);
        long compared = 0, wrong = 0;
        for (int n = 2; n <= (exhaustive() ? 512 : 66); ++n)
            for (int k = 0; k < s.rounds(n); ++k)
                for (int port = 0; port < ports_of(s, n); ++port)
                    for (int r = 0; r < n; ++r, ++compared) {
                        step st = step_of(s, 0, n, k, port);
                        detail::translate(st, r, n, translation_of<S>::motion);
                        wrong += !same(st, step_of(s, r, n, k, port));
                    }
        INFO(name);
        CHECK(wrong == 0);
        CHECK(compared > 5'000);
    });
    STATIC_REQUIRE_FALSE(translation_of<hidden>::holds);
    STATIC_REQUIRE_FALSE(translation_of<compose<hidden, reversed<hidden>>>::holds);
    STATIC_REQUIRE_FALSE(translation_of<halving_doubling::reduce_scatter>::holds);
    STATIC_REQUIRE_FALSE(translation_of<tree<2>::broadcast>::holds);
}

TEST_CASE("local conditions: prove what the proof of all ranks proves", "[proof]") {
    const int largest = exhaustive() ? 512 : 129;
    const auto agree = [&](const auto& s, const std::string& name) {
        local_proof prover(s);
        int sizes = 0;
        for (int n = 1; n <= largest; ++n) {
            if (!supports(s, n) || (!exhaustive() && n > 34 && n % 16 > 1 && n % 31 != 0)) continue;
            const detail::local_finding local = prover.at(n);
            INFO(name << " at " << n << ": " << local.text());
            CHECK(local.proven());
            CHECK(verify(s, n).ok());
            ++sizes;
        }
        CHECK(sizes >= 8);
    };
    each_symmetric(agree);
    each_other(agree);
}

TEST_CASE("local conditions: a changed schedule is refused unless it is still right", "[proof]") {
    int refused = 0, kept = 0;
    const auto check = [&](const auto& bad, int n, const std::string& name) {
        const detail::local_finding local = local_proof(bad).at(n);
        if (local.proven()) {
            INFO(name << " at " << n << ", change " << int(bad.what) << " in round " << bad.round);
            CHECK(verify(bad, n).ok());
        }
        ++(local.proven() ? kept : refused);
    };
    support::random_source random(7);
    const auto change_it = [&](const auto& s, const std::string& name) {
        using S = std::remove_cvref_t<decltype(s)>;
        for (const int n : {3, 4, 7, 8, 16, 21}) {
            if (!supports(s, n)) continue;
            for (const change what : changes) {
                const int round = random.between(0, s.rounds(n) - 1), port = random.between(0, ports_of(s, n) - 1),
                          by = random.between(1, n - 2);
                altered<S> everywhere{s};
                everywhere.what = what, everywhere.round = round, everywhere.port = port, everywhere.by = by;
                if constexpr (translation_of<S>::holds) check(everywhere, n, name);
                altered_at_one<S> once{s};
                once.what = what, once.round = round, once.port = port, once.by = by,
                once.whose = random.between(0, n - 1);
                if constexpr (implemented_by<S> != collective::barrier) check(once, n, name + ", one rank");
            }
        }
    };
    each_symmetric(change_it);
    each_other(change_it);
    CHECK(refused > 2'000);
    CHECK(kept < refused / 5);
}

TEST_CASE("local conditions: every change of a symmetric schedule of a large group is refused", "[proof]") {
    support::random_source random(11);
    int refused = 0;
    each_symmetric([&](const auto& s, const std::string& name) {
        using S = std::remove_cvref_t<decltype(s)>;
        if constexpr (implemented_by<S> == collective::barrier) return;
        for (const int n : {40'961, 65'536})
            for (const change what : changes) {
                altered<S> bad{s};
                bad.what = what, bad.by = random.between(1, n - 2);
                do bad.round = random.between(0, s.rounds(n) - 1), bad.port = random.between(0, ports_of(s, n) - 1);
                while (step_of(s, 0, n, bad.round, bad.port).send.peer == none);
                const detail::local_finding found = local_proof(bad).at(n);
                INFO(name << " at " << n << ", change " << int(what) << " by " << bad.by << " in round " << bad.round);
                CHECK_FALSE(found.proven());
                refused += !found.proven();
            }
    });
    CHECK(refused > 300);
}

TEST_CASE("local conditions: large groups, and every group size up to a bound", "[proof]") {
    each_symmetric([](const auto& s, const std::string& name) {
        local_proof prover(s);
        INFO(name);
        for (const int n : {65'535, 65'536, 40'961}) CHECK(prover.at(n).text() == "proven");
        int proven = 0;
        for (int n = 1; n <= 400; ++n) proven += prover.at(n).proven();
        CHECK(proven == 400);
    });
    CHECK(local_proof<tree<2>::broadcast>().at(40'961).proven());
    CHECK(local_proof<schedule_for<double_tree, collective::all_reduce>>().at(10'007).proven());
    CHECK(local_proof<swing::reduce_scatter>().at(2'048).proven());
}

TEST_CASE("local conditions: what is not represented is refused, and named", "[proof]") {
    const auto says = [](const auto& s, int n) { return local_proof(s).at(n).text(); };
    CHECK(says(ring::inclusive_scan{}, 4) ==
          "not proven by local conditions: group of 4, this collective is not represented");
    CHECK(says(recursive_doubling::all_reduce{}, 4).find("rank 0, round 0, port 0, block 0, ") != std::string::npos);
    CHECK(says(halving_doubling::reduce_scatter{}, 6).find("does not support this group size") != std::string::npos);
    CHECK(says(hidden{}, 8).find("a send meets no receive") != std::string::npos);
    CHECK(says(permuted<direct::all_to_all, mirror>{}, 4).find("not symmetric by construction") != std::string::npos);
}
