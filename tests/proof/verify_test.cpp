// Each law: schedules that break it and no other, and the report on them.
#include "catch.hpp"

#include <colls/testing/schedule.hpp>
#include <colls/verify.hpp>

#include <colls/schedules/bruck.hpp>
#include <colls/schedules/circulant.hpp>
#include <colls/schedules/direct.hpp>
#include <colls/schedules/double_tree.hpp>
#include <colls/schedules/recursive_doubling.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/schedules/tree.hpp>

#include <functional>

using namespace colls;
using enum colls::collective;

namespace {

/// A schedule whose members tests set one by one.
struct loose {
    collective implements = broadcast;
    std::function<step(int rank, int n, int round, int port)> steps{};
    int round_count = 1, block_count = 1, port_count = 1, scratch_count = 0, root_rank = 0;
    bool legal = true;
    std::function<int(int n, int slot)> home_rule = [](int, int slot) { return slot; };
    std::function<int(int rank, int n, int slot)> input_rule = [](int, int, int slot) { return slot; };
    std::function<int(int rank, int n, int slot)> output_rule = [](int, int, int slot) { return slot; };

    int rounds(int) const { return round_count; }
    int blocks(int) const { return block_count; }
    int ports(int) const { return port_count; }
    int scratch(int) const { return scratch_count; }
    int root(int) const { return root_rank; }
    bool supports(int) const { return legal; }
    int home(int n, int slot) const { return home_rule(n, slot); }
    int input(int rank, int n, int slot) const { return input_rule(rank, n, slot); }
    int output(int rank, int n, int slot) const { return output_rule(rank, n, slot); }
    step at(int rank, int n, int round, int port) const { return steps ? steps(rank, n, round, port) : step{}; }
};

/// Pairwise reduce_scatter of 8 ranks with the distances 1, 3, 4, 2, 5, 6, 7, and one rank's step altered.
loose pairwise(std::function<void(step&, int rank, int round)> alter = {}) {
    loose s{.implements = reduce_scatter};
    s.round_count = 7;
    s.block_count = 8;
    s.steps = [alter](int rank, int n, int round, int) {
        constexpr int distance[] = {1, 3, 4, 2, 5, 6, 7};
        const int to = mod(rank + distance[round], n), from = mod(rank - distance[round], n);
        step st{.send = {to, block(to)}, .recv = {from, block(rank), action::reduce}};
        if (alter) alter(st, rank, round);
        return st;
    };
    return s;
}
/// Rank 0 to all, a rank a round; one rank's step altered.
loose from_root(collective c, int n, std::function<void(step&, int rank, int round)> alter = {}) {
    loose s{.implements = c};
    s.round_count = n - 1;
    s.block_count = c == scatter ? n : 1;
    s.steps = [alter, c](int rank, int, int round, int) {
        step st;
        const block_set b = block(c == scatter ? round + 1 : 0);
        if (rank == 0) st.send = {round + 1, b};
        if (rank == round + 1) st.recv = {0, b};
        if (alter) alter(st, rank, round);
        return st;
    };
    return s;
}

/// An all_to_all that does not say where slots come from, and go to.
struct ruleless {
    int each;  // slots for a rank
    constexpr int blocks(int n) const { return n * each; }
};

/// An all_to_all of fewer slots than ranks, without rules of its own.
struct too_few {
    static constexpr collective implements = all_to_all;
    static constexpr int rounds(int) { return 0; }
    static constexpr int blocks(int) { return 3; }
    static constexpr step at(int, int, int) { return {}; }
};

struct late {  // forgets rank 0's last round in groups of 5
    static constexpr collective implements = reduce_scatter;
    static constexpr int rounds(int n) { return n == 5 ? n - 2 : n - 1; }
    static constexpr step at(int rank, int n, int round) { return ring::reduce_scatter::at(rank, n, round); }
};
struct elsewhere {  // home is not the inverse of owner
    static constexpr collective implements = reduce_scatter;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr int owner(int rank, int n) { return (rank + 1) % n; }
    static constexpr int home(int, int slot) { return slot; }
    static constexpr step at(int rank, int n, int round) { return ring::reduce_scatter::at(rank, n, round); }
};
struct nowhere {
    static constexpr collective implements = reduce_scatter;
    static constexpr bool supports(int) { return false; }
    static constexpr int rounds(int) { return 0; }
    static constexpr step at(int, int, int) { return {}; }
};

struct found {
    law broken;
    int rank, round, port, block, peer;
    bool operator==(const found&) const = default;
};
std::ostream& operator<<(std::ostream& out, const found& f) {
    return out << name_of(f.broken) << " rank " << f.rank << " round " << f.round << " port " << f.port << " block "
               << f.block << " peer " << f.peer;
}
found where(const report& r) { return {r.law, r.rank, r.round, r.port, r.block, r.peer}; }

}  // namespace

TEST_CASE("verify: accepts right schedules", "[verify]") {
    CHECK(verify(pairwise(), 8).text() == "proven for 8 ranks");
    CHECK(verify(from_root(broadcast, 5), 5).ok());
    CHECK(verify(from_root(scatter, 5), 5).ok());
    CHECK(verify<ring::reduce_scatter>(1).text() == "proven for 1 rank");
    static_assert(verify<ring::reduce_scatter>(7).ok());
    static_assert(proven<ring, 8> && proven<circulant<>::reduce_scatter, 16> && proven<bruck<3>, 8>);
    static_assert(prove<circulant<>::reduce_scatter, 16>() && prove<ring, 8>());
}

TEST_CASE("law in_range: rejects extents, roots and homes out of range", "[verify]") {
    loose s = pairwise();
    s.legal = false;
    CHECK(verify(s, 8).text() == "the schedule does not support 8 ranks (law: in_range)");
    CHECK(verify(pairwise(), 0).law == law::in_range);
    for (int loose::* extent : {&loose::round_count, &loose::block_count, &loose::scratch_count}) {
        s = pairwise();
        s.*extent = -1;
        CHECK(verify(s, 8).text() == "rounds, blocks, ports or scratch is out of range (-1) (law: in_range)");
    }
    s = pairwise();
    s.port_count = 0;
    CHECK(verify(s, 8).text() == "rounds, blocks, ports or scratch is out of range (0) (law: in_range)");
    // Without blocks, a schedule that moves nothing would be right.
    for (const collective c : {broadcast, all_reduce, all_to_all, inclusive_scan})
        for (const int n : {1, 2, 70})
            CHECK(verify(loose{.implements = c, .round_count = 0, .block_count = 0}, n).text() ==
                  "rounds, blocks, ports or scratch is out of range (0) (law: in_range)");
    CHECK(verify(loose{.implements = all_reduce, .round_count = 0, .block_count = 1}, 1).ok());
    CHECK(verify(loose{.implements = all_reduce, .round_count = 0, .block_count = 2, .scratch_count = 0x7fffffff}, 1)
              .text() == "rounds, blocks, ports or scratch is out of range (2147483647) (law: in_range)");
    // Its blocks could not be numbered by an int.
    CHECK(verify<direct::all_to_all>(50'000).text() ==
          "rounds, blocks, ports or scratch is out of range (50000) (law: in_range)");
    s = from_root(broadcast, 5);
    for (const int bad : {-1, 5}) {
        s.root_rank = bad;
        CHECK(verify(s, 5).text() ==
              "the root is rank " + std::to_string(bad) + ", but the group has ranks 0 to 4 (law: in_range)");
        CHECK(verify(s, 5).value == bad);
    }
    s = pairwise();
    for (const int bad : {-2, 8}) {
        s.home_rule = [bad](int, int slot) { return slot == 3 ? bad : slot; };
        CHECK(verify(s, 8).text() ==
              "block 3 has home rank " + std::to_string(bad) + ", but the group has ranks 0 to 7 (law: in_range)");
    }
    s.home_rule = [](int, int slot) { return slot == 3 ? none : slot; };
    CHECK(verify(s, 8).text() == "no block has its home at rank 3 (law: in_range)");
    s = loose{.implements = all_to_all, .round_count = 0, .block_count = 2};
    s.input_rule = [](int, int, int) { return 0; };
    CHECK(verify(s, 2).text() ==
          "rank 0 names rank 0 for its block 1: each rank must be named equally often (law: in_range)");
    for (const int n : {4, 70})
        CHECK(verify(too_few{}, n).text() ==
              "rank 0 names no rank for its block 0: each rank must be named equally often (law: in_range)");
}

TEST_CASE("law in_range: rejects peers and blocks out of range, and slots that hold nothing", "[verify]") {
    CHECK(verify(pairwise([](step& s, int rank, int round) {
        if (rank == 4 && round == 3) s.send.peer = 8;
    }),
              8)
              .text() == "round 3: rank 4 on port 0 names rank 8, but the group has ranks 0 to 7 (law: in_range)");
    for (const int bad : {-2, 8}) {
        const report r = verify(pairwise([bad](step& s, int rank, int round) {
            if (rank == 4 && round == 3) s.recv.peer = bad;
        }),
            8);
        CHECK(where(r) == found{law::in_range, 4, 3, 0, none, bad});
        CHECK(r.text() == "round 3: rank 4 on port 0 names rank " + std::to_string(bad) +
                              ", but the group has ranks 0 to 7 (law: in_range)");
    }
    for (const int bad : {-1, 8})
        for (const bool receiving : {false, true}) {
            const report r = verify(pairwise([=](step& s, int rank, int round) {
                if (rank == 4 && round == 3) (receiving ? s.recv.blocks : s.send.blocks) = block(bad);
            }),
                8);
            CHECK(where(r) == found{law::in_range, 4, 3, 0, bad, receiving ? 2 : 6});
            CHECK(r.limit == 8);
            CHECK(r.peer_block == none);
            CHECK(r.text() == "round 3: rank 4 on port 0 names block " + std::to_string(bad) +
                                  ", but has blocks 0 to 7 (law: in_range)");
        }
    for (const block_set bad : {block_set{.count = -1}, block_set{.count = 9}, block_set{.count = 3, .run = 0},
             block_set{.count = 1 << 20, .grain = 1 << 20, .reps = 1 << 20}, block_set{.count = 1, .modulus = -1}}) {
        const report r = verify(pairwise([&](step& s, int rank, int round) {
            if (rank == 4 && round == 3) s.send.blocks = bad;
        }),
            8);
        CHECK(r.law == law::in_range);
        CHECK(r.rank == 4);
        CHECK(r.round == 3);
        CHECK(r.text() ==
              "round 3: rank 4 on port 0 names more than 8 blocks, or a set with an extent below 0 (law: in_range)");
    }
    // Its size is no int, of 2.5e9 blocks.
    CHECK(verify(loose{.implements = all_reduce,
                     .steps =
                         [](int rank, int, int, int) {
                             const block_set many{.count = 50'000, .grain = 50'000};
                             return step{.send = {1 - rank, many}, .recv = {1 - rank, many}};
                         },
                     .block_count = 60'000},
              2)
              .text() ==
          "round 0: rank 0 on port 0 names more than 60000 blocks, or a set with an extent below 0 (law: in_range)");
    CHECK(verify(pairwise([](step& s, int, int) {  // as many blocks as there are
        s.send.blocks = s.recv.blocks = block_range(0, 8);
    }),
              8)
              .law != law::in_range);
    // Rank 1 passes on what it does not have yet.
    CHECK(verify(from_root(broadcast, 4,
                     [](step& s, int rank, int round) {
                         if (round == 0)
                             s = rank == 1   ? step{.send = {2, block(0)}}
                                 : rank == 2 ? step{.recv = {1, block(0)}}
                                             : step{};
                     }),
              4)
              .text() == "round 0: rank 1 sends block 0, which holds nothing yet, to rank 2 (law: in_range)");
    loose s{.implements = all_reduce, .steps = [](int rank, int, int, int) {
                return step{.send = {1 - rank, block(0)}, .recv = {1 - rank, block(1), action::reduce}};
            }};
    s.scratch_count = 1;
    CHECK(verify(s, 2).text() ==
          "round 0: rank 0 reduces block 0 from rank 1 into its block 1, which holds nothing yet (law: in_range)");
    s = loose{.implements = barrier, .steps = [](int rank, int, int, int) {
                  return step{.send = {1 - rank, block(0)}, .recv = {1 - rank, block(0)}};
              }};
    CHECK(verify(s, 2).text() == "round 0: rank 0 on port 0 names blocks, but a barrier sends none (law: in_range)");
}

TEST_CASE("law matched: rejects a send without a receive, the reverse, and unequal counts", "[verify]") {
    CHECK(verify(pairwise([](step& s, int rank, int round) {
        if (rank == 4 && round == 3) s.send.peer = 7;
    }),
              8)
              .text() == "round 3: rank 4 sends to rank 7 on port 0, which receives there from rank 5 (law: matched)");
    const report unheard = verify(pairwise([](step& s, int rank, int round) {
        if (rank == 6 && round == 3) s.recv = {};
    }),
        8);
    CHECK(where(unheard) == found{law::matched, 4, 3, 0, none, 6});
    CHECK(unheard.text() ==
          "round 3: rank 4 sends to rank 6 on port 0, which receives there from no rank (law: matched)");
    const report unsent = verify(pairwise([](step& s, int rank, int round) {
        if (rank == 6 && round == 3) s.send = {};
    }),
        8);
    CHECK(where(unsent) == found{law::matched, 0, 3, 0, none, 6});
    CHECK(
        unsent.text() == "round 3: rank 0 receives from rank 6 on port 0, which sends there to no rank (law: matched)");
    const report sizes = verify(pairwise([](step& s, int rank, int round) {
        if (rank == 4 && round == 3) s.recv.blocks = block_range(4, 2);
    }),
        8);
    CHECK(where(sizes) == found{law::matched, 4, 3, 0, none, 2});
    CHECK(sizes.received == 2);
    CHECK(sizes.sent == 1);
    CHECK(sizes.text() == "round 3: rank 4 receives 2 blocks from rank 2 on port 0, which sends 1 (law: matched)");
    // The same messages, but on another port.
    loose s{.implements = all_reduce, .steps = [](int rank, int, int, int port) {
                if (port == 0 && rank == 0) return step{.send = {1, block(0)}, .recv = {1, block(0), action::reduce}};
                if (port == 1 && rank == 1) return step{.send = {0, block(0)}, .recv = {0, block(0), action::reduce}};
                return step{};
            }};
    s.port_count = 2;
    CHECK(where(verify(s, 2)) == found{law::matched, 0, 0, 0, none, 1});
    // An empty message is a message too.
    CHECK(verify(loose{.implements = barrier,
                     .steps = [](int rank, int, int, int) { return rank == 0 ? step{.send = {1}} : step{}; }},
              2)
              .law == law::matched);
}

TEST_CASE("law exactly_once: rejects a contribution that is reduced twice", "[verify]") {
    // Round 6 repeats the distance of round 3: rank 4 has rank 2's block again.
    loose s = pairwise();
    s.steps = [right = s.steps](
                  int rank, int n, int round, int port) { return right(rank, n, round == 6 ? 3 : round, port); };
    const report r = verify(s, 8);
    CHECK(where(r) == found{law::exactly_once, 0, 6, 0, 0, 6});
    CHECK(r.source == 6);
    CHECK(r.text() ==
          "round 6: rank 0 reduces block 0 from rank 6 into its block 0, with the contribution of rank 6 a "
          "second time (law: exactly_once)");
    // Twice on two ports of one round.
    loose twice{.implements = all_reduce, .steps = [](int rank, int, int, int) {
                    return step{.send = {1 - rank, block(0)}, .recv = {1 - rank, block(0), action::reduce}};
                }};
    twice.port_count = 2;
    CHECK(where(verify(twice, 2)) == found{law::exactly_once, 0, 0, 1, 0, 1});
    // With itself: a local transfer.
    loose self{.implements = all_reduce, .steps = [](int rank, int, int, int) {
                   return step{.send = {rank, block(0)}, .recv = {rank, block(0), action::reduce}};
               }};
    CHECK(where(verify(self, 2)) == found{law::exactly_once, 0, 0, 0, 0, 0});
}

TEST_CASE("law unmixed: rejects a reduction of contributions to different blocks", "[verify]") {
    const report r = verify(pairwise([](step& s, int rank, int round) {
        if (round != 3) return;
        if (rank == 2) s.send.blocks = block(5);
        if (rank == 4) s.recv.blocks = block(6);
    }),
        8);
    CHECK(where(r) == found{law::unmixed, 4, 3, 0, 6, 2});
    CHECK(r.peer_block == 5);
    CHECK(r.text() == "round 3: rank 4 reduces block 5 from rank 2 into its block 6 (law: unmixed)");
    // The slot is right, what lies in it is not: in round 0 rank 2 was handed block 3 into its slot 4.
    const report moved = verify(pairwise([](step& s, int rank, int round) {
        if (round == 0 && rank == 1) s.send.blocks = block(3);
        if (round == 0 && rank == 2) s.recv = {1, block(4), action::copy};
    }),
        8);
    CHECK(where(moved) == found{law::unmixed, 4, 3, 0, 4, 2});
    CHECK(moved.text() ==
          "round 3: rank 4 reduces block 4 from rank 2 into its block 4, but it brings what belongs to "
          "block 3 (law: unmixed)");
}

TEST_CASE("law complete: rejects a result that is missing, incomplete or foreign", "[verify]") {
    loose s = pairwise();
    s.round_count = 6;
    CHECK(verify(s, 8).text() == "rank 0 ends without the contribution of rank 1 in its block 0 (law: complete)");
    CHECK(where(verify(s, 8)) == found{law::complete, 0, none, none, 0, none});
    CHECK(verify(from_root(scatter, 4,
                     [](step& st, int, int round) {
                         if (round == 1) st = {};
                     }),
              4)
              .text() == "rank 2 ends with nothing in its block 2 (law: complete)");
    CHECK(verify(from_root(scatter, 4,
                     [](step& st, int rank, int round) {
                         if (round == 1 && rank == 0) st.send.blocks = block(3);
                     }),
              4)
              .text() == "rank 2 ends with block 3 in its block 2 (law: complete)");
    // A scan that takes in the ranks above as well.
    const loose over{.implements = inclusive_scan, .steps = [](int rank, int, int, int) {
                         return step{.send = {1 - rank, block(0)}, .recv = {1 - rank, block(0), action::reduce}};
                     }};
    CHECK(verify(over, 2).text() ==
          "rank 0 ends with the contribution of rank 1 in its block 0, where it does not belong (law: complete)");
    const loose nothing{.implements = exclusive_scan, .round_count = 0};
    CHECK(verify(nothing, 1).ok());
    CHECK(where(verify(nothing, 2)) == found{law::complete, 1, none, none, 0, none});
    // all_to_all left as it was: every block is at its source.
    loose still{.implements = all_to_all, .round_count = 0, .block_count = 3};
    CHECK(verify(still, 3).law == law::complete);
    const loose deaf{.implements = barrier, .steps = [](int rank, int n, int, int) {
                         return step{.send = {(rank + 1) % n}, .recv = {(rank + n - 1) % n}};
                     }};
    CHECK(verify(deaf, 2).ok());
    CHECK(verify(deaf, 3).text() == "rank 0 ends without depending on rank 1 (law: complete)");
}

TEST_CASE("law live: play finds the deadlocks that law matched excludes", "[verify]") {
    CHECK(testing::play(pairwise(), 8).ok());
    // Each waits in round 0 for what the other sends in round 1: messages in order, but a deadlock.
    loose s{.implements = all_reduce, .steps = [](int rank, int, int round, int) {
                if (round == 0) return step{.recv = {1 - rank, block(0), action::reduce}};
                return step{.send = {1 - rank, block(0)}};
            }};
    s.round_count = 2;
    const report r = testing::play(s, 2);
    CHECK(r.law == law::live);
    CHECK(r.round == 0);
    CHECK(r.peer == 1 - r.rank);
    CHECK(r.text() == "round 0: rank " + std::to_string(r.rank) + " waits for rank " + std::to_string(r.peer) +
                          " on port 0 for ever, with channels that hold one message (law: live)");
    CHECK(verify(s, 2).law == law::matched);
    // With room for two messages on port 0 this would end: rank 0 cannot post its second, nor what rank 1 waits for.
    loose full{.implements = broadcast, .steps = [](int rank, int, int round, int port) {
                   const int used = rank == 0 ? (round < 2 ? 0 : 1) : (round == 0 ? 1 : 0);
                   if (port != used) return step{};
                   return rank == 0 ? step{.send = {1, block(0)}} : step{.recv = {0, block(0)}};
               }};
    full.round_count = 3;
    full.port_count = 2;
    const report blocked = testing::play(full, 2);
    CHECK(blocked.law == law::live);
    CHECK((blocked.rank == 0 ? blocked.round == 1 : blocked.round == 0));
}

TEST_CASE("law hazards: rejects two copies into one slot, and allows what can be staged", "[verify]") {
    loose s{.implements = broadcast, .steps = [](int rank, int, int, int) {
                return rank == 0 ? step{.send = {1, block(0)}} : step{.recv = {0, block(0)}};
            }};
    s.port_count = 2;
    const report r = verify(s, 2);
    CHECK(where(r) == found{law::hazards, 1, 0, 1, 0, 0});
    CHECK(r.text() ==
          "round 0: rank 1 copies block 0 from rank 0 into its block 0, into which another copy lands in this "
          "round (law: hazards)");
    // A set that names a slot twice.
    CHECK(where(verify(from_root(broadcast, 3,
                           [](step& st, int rank, int) {
                               if (rank == 0) st.send.blocks = {.count = 1};
                           }),
              3)) == found{law::none, none, none, none, none, none});
    loose twice{.implements = broadcast, .steps = [](int rank, int, int, int) {
                    return rank == 0 ? step{.send = {1, block_range(0, 2)}}
                                     : step{.recv = {0, block_set{.count = 2, .modulus = 1}}};
                }};
    twice.block_count = 2;
    CHECK(where(verify(twice, 2)) == found{law::hazards, 1, 0, 0, 0, 0});

    // Recursive doubling receives into what it sends, in every round; the ring never.
    CHECK(properties_of<recursive_doubling::all_reduce>(8).staged_rounds == 3);
    CHECK(properties_of<ring::reduce_scatter>(8).staged_rounds == 0);
    for (int r0 = 0; r0 < 8; ++r0) {
        CHECK(overwrites_sent(recursive_doubling::all_reduce{}, r0, 8, 1));
        CHECK_FALSE(overwrites_sent(ring::reduce_scatter{}, r0, 8, 1));
    }
    CHECK(examine(recursive_doubling::all_reduce{}, 8).staged_rounds == 3);
    CHECK(examine(recursive_doubling::all_reduce{}, 8).order_preserving);
    CHECK_FALSE(examine(ring::reduce_scatter{}, 8).order_preserving);
    CHECK(examine(pairwise([](step& st, int, int) { st.recv.action = action::copy; }), 8).proof.law == law::complete);
}

TEST_CASE("slots without a home may hold anything, and their contents are not kept", "[verify]") {
    // Four slots for three ranks; data that passes through the fourth is lost.
    loose s{.implements = all_gather, .steps = [](int rank, int n, int round, int) {
                const int b = mod(rank - round, n);
                return step{.send = {mod(rank + 1, n), block(b)}, .recv = {mod(rank - 1, n), block(mod(b - 1, n))}};
            }};
    s.round_count = 2;
    s.block_count = 4;
    s.home_rule = [](int, int slot) { return slot < 3 ? slot : none; };
    CHECK(verify(s, 3).ok());
    loose through = s;
    through.steps = [right = s.steps](int rank, int n, int round, int port) {
        step st = right(rank, n, round, port);
        if (round == 0 && rank == 1) st.recv.blocks = block(3);
        if (round == 1 && rank == 1) st.send.blocks = block(3);
        return st;
    };
    CHECK(verify(through, 3).law == law::complete);
    // Also where the rank that it passed through has got it by another way.
    loose twice = through;
    twice.round_count = 3;
    twice.steps = [before = through.steps](int rank, int n, int round, int port) {
        if (round < 2) return before(rank, n, round, port);
        if (rank == 0) return step{.send = {1, block(0)}};
        return rank == 1 ? step{.recv = {0, block(0)}} : step{};
    };
    CHECK(verify(twice, 3).law == law::complete);
    CHECK(verify(twice, 3).rank == 2);
    CHECK(verify(twice, 3).block == 0);
    // Sent along with the rest it does no harm.
    loose along = s;
    along.steps = [right = s.steps](int rank, int n, int round, int port) {
        step st = right(rank, n, round, port);
        st.send.blocks = {.first = st.send.blocks.first, .count = 2, .period = 3 - st.send.blocks.first};
        st.recv.blocks = {.first = st.recv.blocks.first, .count = 2, .period = 3 - st.recv.blocks.first};
        return st;
    };
    CHECK(verify(along, 3).ok());
}

TEST_CASE("a round: sends read its start, copies precede reductions, operands are in rank order", "[verify]") {
    // Copies are stored before reductions combine with them, and a local operand goes on the left: rank 1 replaces its
    // own by rank 0's through a copy, and adds its own, set aside in scratch, from the left.
    loose s{.implements = inclusive_scan, .steps = [](int rank, int, int round, int port) {
                if (round == 0 && port == 0) return step{.send = {rank, block(0)}, .recv = {rank, block(1)}};
                if (round == 1 && port == 0 && rank == 0) return step{.send = {1, block(0)}};
                if (round == 1 && port == 0) return step{.recv = {0, block(0)}};
                if (round == 1 && port == 1 && rank == 1)
                    return step{.send = {1, block(1)}, .recv = {1, block(0), action::reduce}};
                return step{};
            }};
    s.round_count = 2;
    s.port_count = 2;
    s.scratch_count = 1;
    CHECK(verify(s, 2).ok());
    CHECK_FALSE(properties_of(s, 2).order_preserving);  // 1 before 0: the local operand is on the left
    // The other way round it is in order: the carry from below is set aside and added from the left.
    loose carry = s;
    carry.steps = [](int rank, int, int round, int) {
        if (round == 0 && rank == 0) return step{.send = {1, block(0)}};
        if (round == 0) return step{.recv = {0, block(1)}};
        if (rank == 1) return step{.send = {1, block(1)}, .recv = {1, block(0), action::reduce}};
        return step{};
    };
    carry.port_count = 1;
    CHECK(verify(carry, 2).ok());
    CHECK(properties_of(carry, 2).order_preserving);

    // Receives of one round fold once in rank order, whatever their ports: 3 ranks to rank 1 on ports 0 and 1.
    loose fold{.implements = reduce, .steps = [](int rank, int, int, int port) {
                   if (rank == 1) return step{.recv = {port == 0 ? 2 : 0, block(0), action::reduce}};
                   if (rank == (port == 0 ? 2 : 0)) return step{.send = {1, block(0)}};
                   return step{};
               }};
    fold.port_count = 2;
    fold.root_rank = 1;
    CHECK(verify(fold, 3).ok());
    CHECK(properties_of(fold, 3).order_preserving);
}

TEST_CASE("properties_of: derived properties of families", "[verify]") {
    STATIC_REQUIRE(order_preserving<recursive_doubling::all_reduce>);
    STATIC_REQUIRE(order_preserving<direct::reduce_scatter>);
    STATIC_REQUIRE(order_preserving<reversed<tree<2>::broadcast>>);
    STATIC_REQUIRE(!order_preserving<ring::reduce_scatter>);
    STATIC_REQUIRE(!order_preserving<circulant<>::reduce_scatter>);
    STATIC_REQUIRE(properties_of<circulant<>::reduce_scatter>(7).round_optimal);
    STATIC_REQUIRE(properties_of<circulant<>::reduce_scatter>(7).symmetric);

    for (int n = 3; n <= 40; ++n) {
        const properties r = properties_of<ring::reduce_scatter>(n), c = properties_of<circulant<>::reduce_scatter>(n);
        CHECK((r.volume_optimal && r.symmetric && r.rank_identical && r.keeps_slots && !r.order_preserving));
        CHECK(r.round_optimal == (n == 3));  // n - 1 against ceil(log2 n)
        CHECK((c.volume_optimal && c.round_optimal && c.symmetric && !c.order_preserving));
        const properties all = properties_of(schedule_of<all_reduce>(circulant<>{}), n);
        CHECK((all.volume_optimal && all.round_optimal && all.rank_identical));
        const properties b = properties_of<bruck<2>::all_to_all>(n);
        CHECK((b.round_optimal && b.symmetric && !b.keeps_slots));
        CHECK(b.volume_optimal == (n == 3));
        const properties d = properties_of<direct::all_to_all>(n);
        CHECK((d.round_optimal && d.volume_optimal && d.symmetric));
        const properties t = properties_of<tree<2>::scatter>(n);
        CHECK((t.round_optimal && t.volume_optimal && !t.symmetric));
    }
    // Every rank adds the others as they come round: equal sums, but not equal bits, and no order.
    loose s{.implements = all_reduce, .steps = [](int rank, int n, int round, int port) {
                const int out = round == 0 ? 0 : 1;
                return step{.send = {mod(rank + 1, n), block(out)},
                    .recv = {mod(rank - 1, n), block(port), port == 0 ? action::reduce : action::copy}};
            }};
    s.port_count = 2;
    s.scratch_count = 1;
    for (const int n : {3, 4, 7}) {
        s.round_count = n - 1;
        CHECK(verify(s, n).ok());
        const properties p = properties_of(s, n);
        CHECK((p.symmetric && !p.rank_identical && !p.order_preserving && !p.volume_optimal));
    }
    s.round_count = 1;
    CHECK(properties_of(s, 2).rank_identical);   // lower rank on the left, on both
    CHECK_FALSE(properties_of(s, 3).symmetric);  // not right: nothing is derived
}

TEST_CASE("least_volume and least_rounds: what each collective takes at least, and nothing of one rank", "[verify]") {
    constexpr detail::width one{1, 1}, two{2, 3};
    for (const collective c : {broadcast, scatter, gather, all_gather, reduce, reduce_scatter, all_reduce, all_to_all,
             barrier, inclusive_scan, exclusive_scan}) {
        INFO(name_of(c));
        CHECK(detail::least_volume(c, 6, 1) == 0);
        CHECK(detail::least_rounds(c, 6, 1, one, true) == 0);
    }
    CHECK(detail::least_volume(barrier, 0, 4) == 0);
    CHECK(detail::least_volume(broadcast, 7, 4) == 7);
    for (const collective c : {scatter, gather, all_gather, reduce_scatter, all_to_all}) {
        CHECK(detail::least_volume(c, 4, 4) == 3);
        CHECK(detail::least_volume(c, 5, 3) == 4);  // 10 / 3, and no part of a block
    }
    CHECK(detail::least_volume(all_reduce, 4, 4) == 6);
    CHECK(detail::least_volume(all_reduce, 1, 3) == 2);
    // Data of one rank reach 2, 4, 8 ranks; with two transfers a round 3, 9, 27.
    CHECK(detail::least_rounds(all_gather, 9, 8, one, true) == 3);
    CHECK(detail::least_rounds(all_gather, 9, 9, one, true) == 4);
    CHECK(detail::least_rounds(all_gather, 9, 9, two, true) == 2);
    CHECK(detail::least_rounds(all_reduce, 9, 9, one, true) == 8);
    CHECK(detail::least_rounds(all_reduce, 9, 9, one, false) == 4);
    CHECK(detail::least_rounds(all_reduce, 9, 9, two, true) == 2);
    CHECK(detail::least_rounds(all_gather, 9, 8, {0, 0}, true) == 0);  // nothing has to move
    for (const collective c : {broadcast, reduce}) {
        CHECK(detail::least_rounds(c, 6, 8, one, true) == 8);
        CHECK(detail::least_rounds(c, 7, 9, two, true) == 4);  // the last of three rounds' blocks takes two rounds
        CHECK(detail::least_rounds(c, 0, 8, {1, 0}, true) == 3);
    }
}

TEST_CASE("folds_of: by which expressions results are computed", "[verify]") {
    STATIC_REQUIRE(single_fold<direct::reduce_scatter>);
    STATIC_REQUIRE(single_fold<one_shot::all_reduce>);
    STATIC_REQUIRE(single_fold<direct::exclusive_scan>);
    STATIC_REQUIRE((one_expression<recursive_doubling::all_reduce> && !single_fold<recursive_doubling::all_reduce>));
    STATIC_REQUIRE((one_expression<reversed<tree<2>::broadcast>> && !single_fold<reversed<tree<2>::broadcast>>));
    STATIC_REQUIRE(!one_expression<ring::reduce_scatter>);
    STATIC_REQUIRE(!one_expression<circulant<>::reduce_scatter>);
    STATIC_REQUIRE(one_expression<ring::broadcast>);  // nothing is reduced
    STATIC_REQUIRE(fold_depth<ring::reduce_scatter>(9) == 8);
    STATIC_REQUIRE(fold_depth<recursive_doubling::all_reduce>(8) == 3);
    STATIC_REQUIRE(fold_depth<direct::reduce_scatter>(9) == 1);
    STATIC_REQUIRE(fold_depth<direct::reduce_scatter>(1) == 0);

    // The same order of operands, but not the same folds: four at once, two and two, one after the other.
    const fold_properties at_once = folds_of<recursive_multiplying<4>::all_reduce>(4),
                          pairs = folds_of<recursive_doubling::all_reduce>(4),
                          chain = folds_of(schedule_of<collective::reduce>(ring{}), 4);
    CHECK(at_once.single_fold);
    CHECK(at_once.hash == folds_of<direct::reduce_scatter>(4).hash);
    CHECK((pairs.one_expression && chain.one_expression));
    CHECK((pairs.hash != at_once.hash && chain.hash != at_once.hash && pairs.hash != chain.hash));
    CHECK((pairs.depth == 2 && chain.depth == 3));

    // Not right: nothing is derived.
    CHECK(folds_of(loose{.implements = all_reduce, .steps = [](int, int, int, int) { return step{}; }}, 3).hash == 0);
    CHECK_FALSE(folds_of(loose{.implements = all_reduce, .steps = [](int, int, int, int) { return step{}; }}, 3)
            .one_expression);
}

TEST_CASE("verify: finds one rank that breaks the symmetry of a large group", "[verify]") {
    const int n = 70;  // from 65 on a symmetric schedule is proven on rank 0 alone
    for (int odd = 0; odd < n; ++odd) {
        loose s{.implements = reduce_scatter};
        s.round_count = n - 1;
        s.block_count = n;
        s.steps = [odd](int rank, int size, int round, int) {
            step st = ring::reduce_scatter::at(rank, size, round);
            if (rank == odd && round == 40) st.recv.action = action::copy;
            return st;
        };
        CAPTURE(odd);
        CHECK(verify(s, n).law == law::complete);
        CHECK(verify(s, n).source >= 0);
        CHECK_FALSE(detail::symmetric_execution(detail::reader_of<loose>(s), n).applies());
    }
}

TEST_CASE("verify: finds one rank of a large group that sends or receives another block than it should", "[verify]") {
    const int n = 70;
    for (const bool sends : {false, true})
        for (const int odd : {0, 1, 2, 35, 69}) {
            loose s{.implements = reduce_scatter};
            s.round_count = n - 1;
            s.block_count = n;
            s.steps = [odd, sends](int rank, int size, int round, int) {
                step st = ring::reduce_scatter::at(rank, size, round);
                block_set& changed = sends ? st.send.blocks : st.recv.blocks;
                if (rank == odd && round == 40) changed = block(mod(changed[0] + 1, size));
                return st;
            };
            CAPTURE(odd, sends);
            CHECK_FALSE(verify(s, n).ok());
            CHECK_FALSE(detail::symmetric_execution(detail::reader_of<loose>(s), n).applies());
        }
}

TEST_CASE("verify: finds what every rank of a large group does wrong alike", "[verify]") {
    const int n = 70;
    loose s{.implements = reduce_scatter};
    s.round_count = n - 1;
    s.block_count = n;
    const auto text = [&](std::function<void(step&, int rank)> alter) {
        s.steps = [alter](int rank, int size, int round, int) {
            step st = ring::reduce_scatter::at(rank, size, round);
            if (round == 40) alter(st, rank);
            return st;
        };
        CHECK(detail::symmetric_execution(detail::reader_of<loose>(s), n).applies());
        return verify(s, n).text();
    };
    CHECK(text([](step& st, int rank) { st.send.peer = (rank + 2) % 70; }) ==
          "round 40: rank 0 sends to rank 2 on port 0, which receives there from rank 1 (law: matched)");
    CHECK(text([](step& st, int) { st.recv = {}; }) ==
          "round 40: rank 0 sends to rank 1 on port 0, which receives there from no rank (law: matched)");
    CHECK(text([](step& st, int) { st.send = {}; }) ==
          "round 40: rank 0 receives from rank 69 on port 0, which sends there to no rank (law: matched)");
    CHECK(text([](step& st, int rank) { st.recv.blocks = block_range(rank, 2, 70); }) ==
          "round 40: rank 0 receives 2 blocks from rank 69 on port 0, which sends 1 (law: matched)");
    // A block of which there is none, on all ranks: not symmetric, so all are executed.
    s.steps = [](int rank, int size, int round, int) {
        step st = ring::reduce_scatter::at(rank, size, round);
        if (round == 40) st.send.blocks = block(70);
        return st;
    };
    CHECK_FALSE(detail::symmetric_execution(detail::reader_of<loose>(s), n).applies());
    CHECK(verify(s, n).text() == "round 40: rank 0 on port 0 names block 70, but has blocks 0 to 69 (law: in_range)");
}

TEST_CASE("folds_of: operands of many ports are in the order of the ranks", "[verify]") {
    for (const int n : {13, 40, 41, 70}) {
        CHECK(folds_of<direct::reduce_scatter>(n).single_fold);
        CHECK(folds_of<direct::inclusive_scan>(n).single_fold);
        CHECK(folds_of(reversed<direct::broadcast>{}, n).single_fold);
    }
}

TEST_CASE("expand: lists the blocks of a set in the order of operator[]", "[verify]") {
    testing::detail::random random(7);
    for (int i = 0; i < 20000; ++i) {
        block_set b{random.below(9) - 4, random.below(60) - 30, random.below(9), 1 + random.below(5),
            random.below(19) - 9, random.below(3) == 0 ? 0 : 1 + random.below(40), 1 + random.below(3),
            1 + random.below(3), random.below(50)};
        if (!detail::well_formed(b, 100)) continue;
        int out[100] = {};
        detail::expand(b, out);
        for (int j = 0; j < b.size(); ++j)
            if (out[j] != b[j]) FAIL("set " << i << ", block " << j << ": " << out[j] << ", not " << b[j]);
    }
    SUCCEED();
}

TEST_CASE("without rules of its own, an all_to_all has the slots of each rank together, in the order of the ranks",
    "[verify]") {
    CHECK(input_of(ruleless{0}, 0, 2, 1) == none);
    CHECK(output_of(ruleless{0}, 0, 2, 1) == none);
    for (const int each : {1, 3})
        for (const int n : {1, 2, 5}) {
            const ruleless s{each};
            for (int slot = 0; slot < n * each; ++slot) {
                CHECK(input_of(s, n - 1, n, slot) == slot / each);
                CHECK(output_of(s, n - 1, n, slot) == slot / each);
            }
        }
}

TEST_CASE("check_schedule: accepts a right schedule, and says why it rejects another", "[verify]") {
    const testing::result good = testing::check_schedule<circulant<>::reduce_scatter>(40);
    CHECK(good.ok);
    CHECK(good.sizes == 40);
    CHECK(good.killed > good.mutants * 9 / 10);
    CHECK(good.text.find("round_optimal symmetric") != std::string::npos);

    const testing::result bad = testing::check_schedule<late>(40);
    CHECK_FALSE(bad.ok);
    CHECK(bad.sizes == 5);
    CHECK(bad.text.find("5 ranks: ") == 0);
    CHECK(bad.text.find("(law: complete)") != std::string::npos);

    CHECK(testing::check_schedule<elsewhere>(8).text.find("owner") != std::string::npos);

    CHECK_FALSE(testing::check_schedule<nowhere>(8).ok);
}
