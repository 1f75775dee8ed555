// Large groups: the program of one rank is made without those of others, and says the same of values that others make
// as a count over all ranks; what would not fit is refused in words; and `automatic` weighs what it can count.
#include "catch.hpp"

#include "support/random.hpp"
#include "support/says.hpp"
#include "support/schedules.hpp"

#include <colls/colls.hpp>
#include <colls/detail/choose/explanation.hpp>
#include <colls/detail/plan/make_execution_plan.hpp>
#include <colls/detail/prove/symmetric_execution.hpp>
#include <colls/messages/detail/message_lowering.hpp>
#include <colls/messages/detail/two_level_candidates.hpp>
#include <colls/transports/threads.hpp>

#include <cstddef>
#include <string>
#include <vector>

using namespace support;

namespace {

// No group of this program makes it.
[[maybe_unused]] const bool plans_by_messages = (colls::detail::plan_by_messages(), true);

using colls::action;
using colls::any_schedule;
using colls::collective;
using colls::none;
using colls::step;
using colls::detail::instruction;
using colls::detail::location;
using colls::detail::opcode;
using colls::detail::rank_program;
using colls::detail::reach;

/// The contributions in every slot of every rank, counted round by round.
class counts {
public:
    counts(const any_schedule& s, int n) : s_(s), n_(n), slots_(s.blocks(n) + s.scratch(n)) {
        const colls::detail::step_table shape(s, n, 0, 0);
        const colls::detail::unit_map units(shape);
        now_.resize(static_cast<std::size_t>(n) * static_cast<std::size_t>(slots_));
        for (int r = 0; r < n; ++r)
            for (int b = 0; b < s.blocks(n); ++b) at(now_, r, b) = units.input_unit(r, b) != none;
    }
    int of(int rank, int slot) const { return now_[index(rank, slot)]; }
    void play(int round) {
        std::vector<int> next = now_;
        for (const bool reducing : {false, true})
            for (int r = 0; r < n_; ++r)
                for (int p = 0; p < s_.ports(n_); ++p) {
                    const colls::receive_part to = s_.at(r, n_, round, p).recv;
                    if (to.peer == none || (to.action == action::reduce) != reducing) continue;
                    const colls::send_part from = s_.at(to.peer, n_, round, p).send;
                    for (int i = 0; i < to.blocks.size(); ++i) {
                        int& slot = at(next, r, to.blocks[i]);
                        slot = of(to.peer, from.blocks[i]) + (reducing ? slot : 0);
                    }
                }
        now_ = next;
    }

private:
    std::size_t index(int rank, int slot) const {
        return static_cast<std::size_t>(rank) * static_cast<std::size_t>(slots_) + static_cast<std::size_t>(slot);
    }
    int& at(std::vector<int>& of, int rank, int slot) const { return of[index(rank, slot)]; }

    const any_schedule& s_;
    int n_, slots_;
    std::vector<int> now_;
};

/// Compares what the program of each rank says of values with a count over all ranks; returns the first difference.
std::string difference_to_count(const any_schedule& s, int n, long& asked) {
    const int rounds = s.rounds(n), ports = s.ports(n);
    std::vector<counts> at;  // the start of each round, and the end
    at.emplace_back(s, n);
    for (int k = 0; k < rounds; ++k) {
        at.push_back(at.back());
        at.back().play(k);
    }
    for (int rank = 0; rank < n; ++rank) {
        const colls::detail::step_table steps(s, n, rank, 1);
        const colls::detail::unit_map units(steps);
        for (int k = 0; k < rounds; ++k)
            for (int p = 0; p < ports; ++p) {
                const colls::receive_part to = s.at(rank, n, k, p).recv;
                if (to.peer == none || to.action != action::reduce) continue;
                const colls::send_part from = s.at(to.peer, n, k, p).send;
                for (int i = 0; i < to.blocks.size(); ++i, ++asked) {
                    if (units.is_empty(from.blocks[i])) continue;
                    const bool is_all = at[static_cast<std::size_t>(k) + 1].of(rank, to.blocks[i]) == n;
                    const bool found =
                        colls::detail::has_all_contributions(steps, units, rank, to.blocks[i], k, rounds - 1);
                    if (found != is_all)
                        return "rank " + std::to_string(rank) + ", round " + std::to_string(k) + ", port " +
                               std::to_string(p) + ", block " + std::to_string(to.blocks[i]);
                }
            }
    }
    return "";
}

bool same(const location& a, const location& b) { return a.rank == b.rank && a.index == b.index && a.where == b.where; }
bool same(const instruction& a, const instruction& b) {
    return a.op == b.op && a.finish == b.finish && a.keep == b.keep && a.peer == b.peer && a.value == b.value &&
           a.unit == b.unit && a.round == b.round && a.first == b.first && a.count == b.count && a.pushes == b.pushes &&
           same(a.to, b.to);
}
bool same(int a, int b) { return a == b; }
template <class T>
bool same(const colls::detail::list<T>& a, const colls::detail::list<T>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (!same(a[i], b[i])) return false;
    return true;
}
bool same(const rank_program& a, const rank_program& b) {
    return same(a.body, b.body) && same(a.operands, b.operands) && same(a.units, b.units) &&
           same(a.segments, b.segments) && a.scratch == b.scratch && a.sends == b.sends && a.receives == b.receives;
}

/// The error of making the plan; empty: it is made.
std::string refusal(const any_schedule& s, int n, reach within) {
    try {
        colls::detail::make_execution_plan(s, n, within, colls::detail::copying::pushed);
        return "";
    } catch (const colls::error& e) {
        return e.code() == colls::errc::unsupported ? e.what() : "another error: " + std::string(e.what());
    }
}

/// A schedule as one of the library's families has it: not proven at run time.
template <collective C, class Family>
any_schedule known(const Family& family) {
    const auto s = colls::schedule_of<C>(family);
    return any_schedule(s, colls::detail::table_of<std::remove_const_t<decltype(s)>, true>, "known");
}

/// The send of a round and port in a program, or the receive; null: there is none.
const instruction* message_of(const rank_program& p, opcode op, int peer, int round, int port) {
    for (const instruction& i : p.body)
        if (i.op == op && i.peer == peer && i.round == round && i.unit == port) return &i;
    return nullptr;
}

struct shifted_ring : colls::ring::reduce_scatter {  // a user's own: not the library's type
    static constexpr step at(int rank, int n, int round) { return colls::ring::reduce_scatter::at(rank, n, round); }
};
struct wrong_ring : shifted_ring {
    static constexpr step at(int rank, int n, int round) {
        step s = shifted_ring::at(rank, n, round);
        if (round == n / 2) s.recv.blocks = colls::block(rank);
        return s;
    }
};

/// The sum is complete at rank n - 1, from where it passes down to rank 0.
struct relay_reduce : relay_all_reduce {
    static constexpr collective implements = collective::reduce;
};
/// Four ranks: rank 1 folds the contributions of 0 and 1, and rank 2 passes the result on beside its own.
struct detour_reduce {
    static constexpr collective implements = collective::reduce;
    static constexpr bool supports(int n) { return n == 4; }
    static constexpr int scratch(int) { return 1; }
    static constexpr int rounds(int) { return 5; }
    static constexpr step at(int rank, int, int round) {
        constexpr struct {
            int from, slot, to, into;
            action act;
        } moves[] = {{0, 0, 1, 0, action::reduce}, {1, 0, 2, 1, action::copy}, {2, 1, 3, 0, action::reduce},
            {2, 0, 3, 0, action::reduce}, {3, 0, 0, 0, action::copy}};
        const auto& m = moves[round];
        step s;
        if (rank == m.from) s.send = {m.to, colls::block(m.slot)};
        if (rank == m.to) s.recv = {m.from, colls::block(m.into), m.act};
        return s;
    }
};

}  // namespace

TEST_CASE("large groups: a program says of others' values what a count over all ranks says", "[scale]") {
    long asked = 0;
    for (const row& r : all_schedules())
        for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 27, 32, 33}) {
            if (!r.supports(n) || (n > 17 && sanitized) || !colls::reduces(r.schedule.implements)) continue;
            const std::string difference = difference_to_count(r.schedule, n, asked);
            if (!difference.empty()) FAIL(r.name << ", " << name_of(r.collective) << ", n " << n << ": " << difference);
        }
    CHECK(asked > 50'000);
    // Results that ranks pass on as copies before they are folded further, or come to the root.
    for (const any_schedule& s : {any_schedule(relay_reduce{}), any_schedule(detour_reduce{})})
        for (int n = 2; n <= 9; ++n)
            if (s.supports(n)) {
                INFO(s.name() << ", n " << n);
                CHECK(s.prove(n).right);
                CHECK(difference_to_count(s, n, asked) == "");
            }
}

TEST_CASE("large groups: the program of one rank does not depend on which others have been made", "[scale]") {
    for (const row& r : all_schedules())
        for (const int n : {2, 3, 5, 8, 13, 16, 33}) {
            if (!r.supports(n)) continue;
            const auto all =
                colls::detail::make_execution_plan(r.schedule, n, reach::nothing, colls::detail::copying::pushed);
            for (int rank = 0; rank < n; ++rank) static_cast<void>(all->program_of(rank));
            for (const int rank : {0, n / 2, n - 1}) {
                const auto one =
                    colls::detail::make_execution_plan(r.schedule, n, reach::nothing, colls::detail::copying::pushed);
                INFO(r.name << ", " << name_of(r.collective) << ", n " << n << ", rank " << rank);
                if (!same(one->program_of(rank), all->program_of(rank))) FAIL("the programs differ");
                if (one->fingerprint != all->fingerprint) FAIL("the fingerprints differ");
            }
        }
}

TEST_CASE(
    "large groups: at 4,001 ranks each message has a receive of as many blocks, each result one finish", "[scale]") {
    const int n = 4'001;
    const std::vector<any_schedule> all = {known<collective::all_reduce>(colls::circulant<>{}),
        known<collective::all_reduce>(colls::tree<2>{}), known<collective::all_reduce>(colls::double_tree{}),
        known<collective::gather>(colls::tree<4>{}), known<collective::reduce_scatter>(colls::bruck<2>{}),
        known<collective::all_gather>(colls::circulant<>{}), known<collective::barrier>(colls::tree<2>{}),
        known<collective::inclusive_scan>(colls::recursive_doubling{})};
    for (const any_schedule& s : all) {
        INFO(s.type() << ", " << name_of(s.implements));
        const auto plan = colls::detail::make_execution_plan(s, n, reach::nothing, colls::detail::copying::pushed);
        for (const int rank : {0, 1, 1'999, n - 1}) {
            const rank_program& p = plan->program_of(rank);
            int finished = 0;
            for (const instruction& i : p.body) {
                finished += i.finish;
                if (i.op != opcode::send) continue;
                const instruction* const there =
                    message_of(plan->program_of(i.peer), opcode::receive, rank, i.round, i.unit);
                REQUIRE(there != nullptr);
                CHECK(there->count == i.count);
            }
            const bool has_result = s.implements == collective::reduce_scatter ||
                                    (s.implements == collective::all_reduce && s.blocks(n) == n) ||
                                    (s.implements == collective::inclusive_scan && rank == n - 1);
            if (has_result) CHECK(finished == 1);
            if (s.implements == collective::all_reduce && s.blocks(n) < n && rank == 0) CHECK(finished > 0);
            if (!colls::reduces(s.implements)) CHECK(finished == 0);
        }
    }
}

TEST_CASE("large groups: the ring at 4,001 ranks folds n - 1 blocks, the last of them complete", "[scale]") {
    const int n = 4'001;
    const auto plan = colls::detail::make_execution_plan(
        known<collective::all_reduce>(colls::ring{}), n, reach::nothing, colls::detail::copying::pushed);
    const rank_program& p = plan->program_of(7);
    CHECK(p.sends == 2 * (n - 1));
    CHECK(p.receives == 2 * (n - 1));
    CHECK(p.scratch < 4);
    int folds = 0, finished = 0, last = none;
    for (const instruction& i : p.body)
        if (i.op == opcode::fold) {
            ++folds;
            finished += i.finish;
            if (i.finish) last = i.to.index;
        }
    CHECK(folds == n - 1);
    CHECK(finished == 1);
    CHECK(last == 7);
}

TEST_CASE("large groups: what does not fit is refused in words", "[scale]") {
    const int n = 1 << 17;
    CHECK(lacks(refusal(known<collective::all_reduce>(colls::direct{}), n, reach::buffers),
              {"GB", "the programs of all ranks", "COLLS_TRANSPORT=tcp", "131072 ranks"}) == "");
    CHECK(lacks(refusal(known<collective::all_reduce>(colls::ring{}), n, reach::buffers),
              {"30,000 rounds in shared memory", "circulant or tree"}) == "");
    CHECK(refusal(known<collective::all_reduce>(colls::ring{}), n, reach::nothing) == "");
    CHECK(refusal(known<collective::all_reduce>(colls::direct{}), 64, reach::scratch) == "");
    // One rank alone has 16,384 rounds of 255 ports.
    CHECK(lacks(refusal(known<collective::all_reduce>(colls::hierarchical<colls::ring, colls::direct>{.node = 8192}),
                    8192 * 256, reach::nothing),
              {"for one rank", "GB"}) == "");
}

TEST_CASE("large groups: a schedule of a user's own is proven by symmetry, or refused", "[scale]") {
    const int large = 3'000;  // more than 4 GB without symmetry
    const colls::detail::finding right = any_schedule(shifted_ring{}).prove(large);
    CHECK((right.right && !right.unproven && !right.expressions_known));
    const colls::detail::finding wrong = any_schedule(wrong_ring{}).prove(large);
    CHECK((!wrong.right && !wrong.unproven));
    CHECK(lacks(wrong.text.text(), {"round 1500", "rank 0"}) == "");
    const colls::detail::finding other = any_schedule(colls::halving_doubling::reduce_scatter{}).prove(4'096);
    CHECK(other.unproven);
    CHECK(lacks(other.text.text(), {"up to rotation", "GB", "library's families"}) == "");
    CHECK(lacks(refusal(any_schedule(shifted_ring{}), 100'000, reach::nothing), {"too long", "GB"}) == "");
    // One slot a rank, or none, which all others send: it is the messages that take the memory.
    for (const any_schedule& wide : {any_schedule(colls::one_shot::all_reduce{}),
             any_schedule(colls::synchronising<colls::one_shot::all_reduce>{})}) {
        REQUIRE(colls::detail::proof_bytes(wide, 4'000, false) > colls::detail::most_proof_bytes);
        REQUIRE(colls::detail::proof_bytes(wide, 1'000, false) < colls::detail::most_proof_bytes);
        const colls::detail::finding f = wide.prove(4'000);
        CHECK((f.right && !f.expressions_known));
    }
    CHECK(lacks(refusal(any_schedule(colls::direct::broadcast{}), 20'000, reach::nothing), {"too long", "GB"}) == "");
}

TEST_CASE("large groups: families that rotate are what the proof finds, and count the same", "[scale]") {
    using namespace colls;
    constexpr collective all[] = {collective::all_gather, collective::reduce_scatter, collective::all_reduce,
        collective::all_to_all, collective::barrier, collective::broadcast, collective::inclusive_scan};
    int rotating = 0;
    for (const collective c : all) {
        const detail::candidates list = detail::all_candidates_of(c);
        for (int i = 0; i < list.count; ++i)
            for (const int n : {2, 3, 4, 7, 12, 33}) {
                const detail::candidate& of = list.first[i];
                if (of.period == 0 || !of.schedule.supports(n)) continue;
                INFO(of.name << ", " << name_of(c) << ", n " << n);
                CHECK(detail::symmetric_execution(of.schedule, n).applies());
                CHECK(detail::traffic_of_candidate(of, n) == detail::traffic(of.schedule, n));
                for (const bool between : {false, true})
                    if (n == 12)
                        CHECK(detail::traffic_of_candidate(of, n, {4, between}) ==
                              detail::traffic(of.schedule, n, {4, between}));
                ++rotating;
            }
        std::vector<int> host;
        for (int r = 0; r < 24; ++r) host.push_back(r / 4);
        if (const detail::candidates on_hosts = detail::two_level_candidates_on(c, host_map(host), 0);
            on_hosts.count > 0)
            for (const bool between : {false, true}) {
                INFO(on_hosts.first->name << ", " << name_of(c));
                CHECK(detail::traffic_of_candidate(*on_hosts.first, 24, {4, between}) ==
                      detail::traffic(on_hosts.first->schedule, 24, {4, between}));
                CHECK(
                    detail::traffic_of_candidate(*on_hosts.first, 24) == detail::traffic(on_hosts.first->schedule, 24));
                CHECK((on_hosts.first->period == 4) == (!rooted(c) && !is_scan(c)));
            }
    }
    CHECK(rotating > 60);
}

TEST_CASE("large groups: automatic chooses at 8,192 ranks without those that it cannot count", "[scale]") {
    colls::threads::run(1, [](colls::communicator& comm) {
        colls::detail::rank_context& self = comm.context();
        self.size = 8'192;
        self.by_messages = true;
        for (const collective c : {collective::broadcast, collective::inclusive_scan, collective::reduce_scatter}) {
            const auto list = colls::detail::all_candidates_of(c);
            const auto best = colls::detail::choose(self, colls::detail::demand_of(self, c, 1 << 20, false), list);
            REQUIRE(best.of != nullptr);
            CHECK(colls::detail::is_weighed(*best.of, self, reach::nothing));
            int left_out = 0;
            for (int i = 0; i < list.count; ++i)
                left_out += list.first[i].schedule.supports(self.size) &&
                            !colls::detail::is_weighed(list.first[i], self, reach::nothing);
            CHECK(left_out == (c == collective::reduce_scatter ? 0 : 2));  // ring and direct
        }
        // Where direct alone fits it is taken all the same.
        colls::detail::demand d = colls::detail::demand_of(self, collective::gather, 1 << 20, false);
        CHECK(
            colls::detail::choose(self, d, colls::detail::all_candidates_of(collective::gather)).of->name == "direct");
        const std::string table = colls::explain(comm, collective::broadcast, 1 << 20);
        CHECK(lacks(table, {"ring", "not weighed", "tree"}) == "");
        self.size = 1;
        self.by_messages = false;
    });
}
