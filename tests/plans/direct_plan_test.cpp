// Execution plans for executors that load from and store to peers' memory, checked by a simulator that is independent
// of the planner. It follows every access of every rank with vector clocks, so a missing wait shows as a race whatever
// the threads' timing, and the values show whether each output is right.
#include "catch.hpp"

#include "support/plan_data.hpp"
#include "support/random.hpp"
#include "support/schedules.hpp"

#include <colls/algebra/permuted.hpp>
#include <colls/algebra/striped.hpp>
#include <colls/detail/plan/plan_cache.hpp>
#include <colls/schedules/bruck.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace support;

namespace {

using colls::any_schedule;
using colls::collective;
using colls::none;
using colls::schedule_of;
using colls::detail::buffer_kind;
using colls::detail::copied_otherwise;
using colls::detail::copying;
using colls::detail::execution_plan;
using colls::detail::execution_plan_for;
using colls::detail::instruction;
using colls::detail::location;
using colls::detail::opcode;
using colls::detail::reach;

/// A copy of one rank's program that a test may change.
struct program {
    std::vector<instruction> reuse_waits, body, exit;
    std::vector<location> operands;
};
std::vector<program> programs_of(const execution_plan& plan) {
    std::vector<program> all(static_cast<std::size_t>(plan.size));
    for (std::size_t r = 0; r < all.size(); ++r) {
        const auto& from = plan.program_of(static_cast<int>(r));
        all[r] = {{from.reuse_waits.begin(), from.reuse_waits.end()}, {from.body.begin(), from.body.end()},
            {from.exit.begin(), from.exit.end()}, {from.operands.begin(), from.operands.end()}};
    }
    return all;
}

class simulator {
public:
    simulator(const execution_plan& plan, const std::vector<program>& programs, bool in_place)
        : plan_(plan),
          what_(plan.schedule.implements),
          in_place_(in_place && what_ != collective::all_to_all),
          data_(plan),
          programs_(programs),
          n_(static_cast<std::size_t>(plan.size)),
          at_(n_),
          chunk_(n_),
          chunks_(plan.within == reach::scratch ? 2 * chunks_in_flight + 1 : 1),
          clocks_(n_, std::vector<int>(n_, 0)) {
        for (int r = 0; r < plan.size; ++r) {
            clocks_[index(r)][index(r)] = 1;
            publish(r, 0);
            for (int chunk = 0; chunk < chunks_; ++chunk)
                for (int u = 0; u < data_.units(); ++u)
                    if (data_.has_input(r, u)) {
                        memory_cell& c = cell({r, u, buffer_kind::input}, chunk);
                        c.held = {{r}, u + chunk * chunk_offset};
                        c.is_defined = true;
                    }
        }
    }
    /// Runs all ranks, always the lowest that can go on; returns the first fault, or nothing.
    std::string run() {
        for (bool moved = true; moved && fault_.empty();) {
            moved = false;
            for (int r = 0; r < plan_.size && fault_.empty(); ++r)
                while (fault_.empty() && step(r)) moved = true;
        }
        if (!fault_.empty()) return fault_;
        for (int r = 0; r < plan_.size; ++r)
            if (!is_over(r)) return "rank " + std::to_string(r) + " waits for ever";
        for (int r = 0; r < plan_.size; ++r) check_exit(r);
        for (int r = 0; r < plan_.size && fault_.empty(); ++r) check_output(r);
        return fault_;
    }

private:
    struct access {
        int rank = none, tick = 0;
    };
    struct memory_cell {
        plan_value held;
        bool is_defined = false;
        access writer;
        std::vector<access> readers;  // since the last write
        std::vector<access> all;
    };

    static std::size_t index(int i) { return static_cast<std::size_t>(i); }
    // In place, input and output of a unit are one cell, except for all_to_all. Staged, a scratch slot serves several
    // chunks in turn.
    memory_cell& cell(const location& l, int chunk) {
        const bool is_scratch = l.where == buffer_kind::scratch;
        const bool is_apart = l.where == buffer_kind::output && !in_place_;
        const buffer_kind kind = is_scratch ? buffer_kind::scratch
                                 : is_apart ? buffer_kind::output
                                            : buffer_kind::input;
        return cells_[{l.rank, kind, l.index + (is_scratch ? chunk % chunks_in_flight : chunk) * chunk_offset}];
    }
    memory_cell& cell_of(int r, const location& l) {
        if (l.rank != r && l.where != buffer_kind::scratch && plan_.within == reach::scratch)
            fail("accesses a buffer that it cannot reach", r, l);
        return cell(l, chunk_[index(r)]);
    }
    void publish(int r, int v) { published_[{r, v}] = clocks_[index(r)]; }
    bool is_over(int r) const { return chunk_[index(r)] == chunks_; }

    void fail(const std::string& what, int r, const location& l) {
        if (fault_.empty())
            fault_ = "rank " + std::to_string(r) + " " + what + ": memory of rank " + std::to_string(l.rank) +
                     ", buffer " + std::to_string(static_cast<int>(l.where)) + ", index " + std::to_string(l.index);
    }
    // Has rank r seen that the access is done?
    bool knows(int r, const access& a) const { return a.rank == none || clocks_[index(r)][index(a.rank)] >= a.tick; }
    access now(int r) const { return {r, clocks_[index(r)][index(r)]}; }
    void check_entered(int r, const location& l) {
        if (l.rank != r && clocks_[index(r)][index(l.rank)] < 1)
            fail("accesses memory before it has seen the owner's entry", r, l);
    }
    plan_value read(int r, const location& l) {
        memory_cell& c = cell_of(r, l);
        check_entered(r, l);
        if (!knows(r, c.writer)) fail("reads what another rank may be writing", r, l);
        if (!c.is_defined) fail("reads undefined data", r, l);
        c.readers.push_back(now(r));
        c.all.push_back(now(r));
        return c.held;
    }
    void write(int r, const location& l, const plan_value& v) {
        memory_cell& c = cell_of(r, l);
        check_entered(r, l);
        if (!knows(r, c.writer)) fail("writes what another rank may be writing", r, l);
        for (const access& a : c.readers)
            if (!knows(r, a)) fail("writes what another rank may be reading", r, l);
        c.readers.clear();
        c.writer = now(r);
        c.all.push_back(c.writer);
        c.held = v;
        c.is_defined = true;
    }

    // What is moved must be as long as the data. Blocks of an all_to_all have one length, unlike their parts.
    void check_length(int r, const instruction& i, int unit) {
        const int of_data = unit % chunk_offset, parts = what_ == collective::all_to_all ? plan_.parts : data_.units();
        if (i.unit % parts != of_data % parts) fail("moves as much as another unit has", r, i.to);
    }

    // The rank's next instruction; false where it has to wait, or is over.
    bool step(int r) {
        if (is_over(r)) return false;
        const program& p = programs_[index(r)];
        std::size_t& at = at_[index(r)];
        int& chunk = chunk_[index(r)];
        const std::size_t body_end = p.reuse_waits.size() + p.body.size();
        const std::size_t end = body_end + (chunk + 1 == chunks_ ? p.exit.size() : 0);
        if (at == end) {
            ++chunk;
            at = 0;
            return true;
        }
        const bool is_reuse_wait = at < p.reuse_waits.size();
        const instruction& i = is_reuse_wait   ? p.reuse_waits[at]
                               : at < body_end ? p.body[at - p.reuse_waits.size()]
                                               : p.exit[at - body_end];
        const int waited_chunk = is_reuse_wait ? chunk - chunks_in_flight : chunk;
        if (waited_chunk >= 0 && !perform(r, i, waited_chunk)) return false;
        ++at;
        return true;
    }
    bool perform(int r, const instruction& i, int chunk) {
        const std::vector<location>& operands = programs_[index(r)].operands;
        // A rank enters once, for all chunks.
        const int value = i.value == 0 ? 0 : chunk * plan_.values() + i.value;
        switch (i.op) {
            case opcode::wait: {
                // A value is reached when it or a later one has been published. The waiting rank learns what the peer
                // knew at the first of these.
                const auto seen = published_.lower_bound({i.peer, value});
                if (seen == published_.end() || seen->first.first != i.peer) return false;
                for (std::size_t q = 0; q < n_; ++q)
                    clocks_[index(r)][q] = std::max(clocks_[index(r)][q], seen->second[q]);
                break;
            }
            case opcode::publish:
                publish(r, value);
                break;
            case opcode::copy: {
                const location& from = operands[index(i.first)];
                const plan_value copied = read(r, from);
                check_length(r, i, copied.unit);
                // In place, what is already where it belongs is not written.
                if (&cell_of(r, from) != &cell_of(r, i.to)) write(r, i.to, copied);
                break;
            }
            case opcode::fold: {
                plan_value sum;
                for (int k = i.first; k < i.first + i.count; ++k) {
                    const location& from = operands[index(k)];
                    const std::string wrong = data_.fold(sum, read(r, from));
                    if (!wrong.empty()) fail(wrong, r, from);
                }
                const std::string wrong = data_.complete(sum, i.finish);
                if (!wrong.empty()) fail(wrong, r, i.to);
                check_length(r, i, sum.unit);
                write(r, i.to, sum);
                break;
            }
            default:
                fail("has an instruction of message plans", r, i.to);
        }
        ++clocks_[index(r)][index(r)];
        return true;
    }

    // A rank that has left must know that all accesses to its memory are done.
    void check_exit(int r) {
        for (const auto& [key, c] : cells_) {
            const auto& [rank, kind, i] = key;
            if (rank != r) continue;
            for (const access& a : c.all)
                if (!knows(r, a))
                    fail("leaves while rank " + std::to_string(a.rank) + " may access its memory", r,
                        {r, i % chunk_offset, kind});
        }
    }
    void check_output(int r) {
        if (what_ == collective::barrier) {
            for (std::size_t q = 0; q < n_; ++q)
                if (clocks_[index(r)][q] < 1)
                    fault_ = "rank " + std::to_string(r) + " leaves a barrier that rank " + std::to_string(q) +
                             " may not have entered";
            return;
        }
        for (int chunk = 0; chunk < chunks_; ++chunk)
            for (int u = 0; u < data_.units(); ++u) {
                if (!data_.has_output(r, u)) continue;
                const location l{r, u, buffer_kind::output};
                const memory_cell& c = cell(l, chunk);
                if (!c.is_defined) return fail("ends without a result", r, l);
                if (!data_.is_output(r, u, c.held, chunk * chunk_offset)) return fail("ends with a wrong result", r, l);
            }
    }

    static constexpr int chunks_in_flight = 2;      // whose scratch slots are apart
    static constexpr int chunk_offset = 1'000'000;  // between the numbers of one chunk and those of the next

    const execution_plan& plan_;
    const collective what_;
    const bool in_place_;
    const plan_data data_;
    const std::vector<program>& programs_;
    const std::size_t n_;
    std::vector<std::size_t> at_;
    std::vector<int> chunk_;
    const int chunks_;
    std::vector<std::vector<int>> clocks_;
    std::map<std::pair<int, int>, std::vector<int>> published_;  // (rank, value) -> its clock then
    std::map<std::tuple<int, buffer_kind, int>, memory_cell> cells_;
    std::string fault_;
};

/// Three ranks, of which rank 0 has its contribution back with that of rank 1, and then that of rank 2: in the same
/// round, or in the next one.
template <bool AtOnce>
struct returned_reduce {
    static constexpr collective implements = collective::reduce;
    static constexpr bool supports(int n) { return n == 3; }
    static constexpr int blocks(int) { return 1; }
    static constexpr int ports(int) { return 2; }
    static constexpr int rounds(int) { return AtOnce ? 2 : 3; }
    static constexpr colls::step at(int rank, int, int round, int port) {
        const auto moves = [&](int from, int to, colls::action what) {
            colls::step s;
            if (rank == from) s.send = {to, colls::block(0)};
            if (rank == to) s.recv = {from, colls::block(0), what};
            return s;
        };
        if (round == 0) return port == 0 ? moves(0, 1, colls::action::reduce) : colls::step{};
        if (port == 0) return round == 1 ? moves(1, 0, colls::action::copy) : colls::step{};
        return round == (AtOnce ? 1 : 2) ? moves(2, 0, colls::action::reduce) : colls::step{};
    }
};

/// The kinds of plans at a group size, with a name for texts.
std::vector<std::pair<const execution_plan*, const char*>> plans_of(const colls::any_schedule& s, int n) {
    const execution_plan* const usual = execution_plan_for(s, n);
    std::vector<std::pair<const execution_plan*, const char*>> all{{usual, ""},
        {&copied_otherwise(*usual), usual->copies == copying::pushed ? ", pulled" : ", pushed"},
        {execution_plan_for(s, n, reach::scratch), ", staged"}};
    if (!colls::reduces(s.implements))
        all.emplace_back(execution_plan_for(s, n, reach::processes), ", by single copies");
    return all;
}

std::string simulate(const execution_plan& plan, const std::vector<program>& programs) {
    const collective c = plan.schedule.implements;
    const std::string fault = simulator(plan, programs, true).run();
    // Out of place too where ranks copy blocks of their own: in place these are left out.
    const bool copies_own = c == collective::gather || c == collective::scatter || c == collective::all_gather;
    return copies_own && fault.empty() ? simulator(plan, programs, false).run() : fault;
}

}  // namespace

TEST_CASE("direct plans: no race, no undefined data, the right result, for every schedule", "[plan]") {
    int plans = 0, waits = 0;
    for (const row& r : all_schedules())
        for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 33}) {
            if (!r.supports(n) || (n > 17 && (sanitized || !long_run))) continue;
            for (const auto& [made, kind] : plans_of(r.schedule, n)) {
                const execution_plan& plan = *made;
                const auto programs = programs_of(plan);
                for (const auto& p : programs)
                    for (const auto& i : p.body) waits += i.op == opcode::wait;
                const std::string fault = simulate(plan, programs);
                if (!fault.empty())
                    FAIL(r.name << ", " << name_of(r.collective) << ", n " << n << kind << ": " << fault);
                ++plans;
            }
        }
    std::printf("direct plans: %d simulated, %d waits in their bodies\n", plans, waits);
    CHECK(plans > 1000);
}

TEST_CASE("direct plans: parts of an all_to_all that pass through other ranks", "[plan]") {
    using lane = colls::bruck<2>::all_to_all;
    const colls::any_schedule s(colls::striped<lane, colls::permuted<lane, backwards>>{});
    for (const int n : {2, 3, 4, 5, 8, 13})
        for (const auto& [made, kind] : plans_of(s, n)) {
            INFO("n " << n << kind);
            CHECK(made->parts == 2);
            CHECK(simulate(*made, programs_of(*made)) == "");
        }
}

TEST_CASE("direct plans: a round that copies and reduces into one block is refused, two rounds are not", "[plan]") {
    const colls::any_schedule at_once(returned_reduce<true>{}), in_turn(returned_reduce<false>{});
    REQUIRE(at_once.prove(3).right);
    for (const reach within : {reach::buffers, reach::scratch, reach::nothing}) {
        std::string text = "nothing";
        try {
            static_cast<void>(execution_plan_for(at_once, 3, within));
        } catch (const colls::error& e) {
            if (e.code() == colls::errc::unsupported) text = e.what();
        }
        CHECK(text.find(" at 3 ranks: one round copies and reduces into one block") != std::string::npos);
    }
    for (const auto& [made, kind] : plans_of(in_turn, 3)) CHECK(simulate(*made, programs_of(*made)) == "");
}

TEST_CASE("direct plans: one is made for each schedule, size, reach and direction of copies, and kept", "[plan]") {
    std::map<const execution_plan*, int> times;
    int asked = 0;
    for (int turn = 0; turn < 2; ++turn)
        for (const verb what : {verb::all_gather, verb::all_to_all})
            for (const int n : {2, 3})
                for (const reach within : {reach::buffers, reach::scratch})
                    for (const copying how : {copying::pulled, copying::pushed}) {
                        const any_schedule s = what == verb::all_gather
                                                   ? any_schedule(schedule_of<verb::all_gather>(colls::direct{}))
                                                   : any_schedule(schedule_of<verb::all_to_all>(colls::direct{}));
                        const execution_plan* const p = execution_plan_for(s, n, within, how);
                        CHECK(p->size == n);
                        CHECK(p->within == within);
                        CHECK(p->copies == how);
                        CHECK(p->schedule == s);
                        ++times[p];
                        ++asked;
                        if (within != reach::buffers) continue;
                        const execution_plan& other = copied_otherwise(*p);
                        CHECK(other.copies != how);
                        CHECK(&copied_otherwise(other) == p);
                    }
    CHECK(times.size() == static_cast<std::size_t>(asked) / 2);
    for (const auto& [p, count] : times) CHECK(count == 2);
}

TEST_CASE("direct plans: what a rank keeps as well as stages is copied right behind it", "[plan]") {
    for (const row& r : all_schedules())
        for (const int n : {2, 3, 5, 8}) {
            if (r.collective != verb::all_gather || (r.name != "direct" && r.name != "ring")) continue;
            for (const program& p : programs_of(*execution_plan_for(r.schedule, n, reach::scratch))) {
                int together = 0;
                for (std::size_t i = 0; i < p.body.size(); ++i) {
                    if (p.body[i].op != opcode::copy || p.body[i].pushes == 0) continue;
                    ++together;
                    REQUIRE(p.body[i].to.where == buffer_kind::scratch);
                    REQUIRE(p.body[i].pushes == 1);
                    REQUIRE(i + 1 < p.body.size());
                    const location &staged = p.operands[static_cast<std::size_t>(p.body[i].first)],
                                   &kept = p.operands[static_cast<std::size_t>(p.body[i + 1].first)];
                    CHECK(
                        (p.body[i + 1].keep && staged.where == buffer_kind::input && kept.where == buffer_kind::input));
                    CHECK((staged.rank == kept.rank && staged.index == kept.index));
                }
                INFO(r.name << ", n " << n);
                CHECK(together == 1);
            }
        }
}

TEST_CASE("direct plans: the simulator finds a missing wait, and other changes", "[plan]") {
    int tried = 0, found = 0, waits = 0, needless = 0, missed = 0;
    std::map<std::string, int> missed_by_change;
    for (const row& r : all_schedules())
        for (const int n : {2, 3, 5, 8}) {
            // The rounds of a barrier tell each rank of each other several times.
            if (!r.supports(n) || r.collective == verb::barrier) continue;
            for (const auto& [made, kind] : plans_of(r.schedule, n)) {
                const execution_plan& plan = *made;
                if (&plan != execution_plan_for(r.schedule, n) && n > 5) continue;
                const auto right = programs_of(plan);
                const auto finds = [&](const std::vector<program>& changed) {
                    const bool is_found = !simulate(plan, changed).empty();
                    ++tried;
                    found += is_found;
                    return is_found;
                };
                const auto expect_found = [&](const std::vector<program>& changed, const char* change) {
                    if (finds(changed)) return;
                    ++missed;
                    ++missed_by_change[change];
                };
                for (std::size_t rank = 0; rank < right.size(); ++rank)
                    for (const auto part : {&program::body, &program::exit, &program::reuse_waits})
                        for (std::size_t i = 0; i < (right[rank].*part).size(); ++i) {
                            auto changed = right;
                            auto& list = changed[rank].*part;
                            if (list[i].op == opcode::wait) {
                                list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
                                ++waits;
                                needless += !finds(changed);
                            } else if (list[i].op == opcode::publish) {
                                if (i == 0 || list[i - 1].op == opcode::wait || list[i - 1].op == opcode::publish ||
                                    list[i - 1].keep)
                                    continue;
                                std::swap(list[i], list[i - 1]);
                                expect_found(changed, "published too early");
                            } else if (list[i].op == opcode::fold) {
                                list[i].finish = !list[i].finish;
                                expect_found(changed, "wrong finish mark");
                                auto other = right;
                                auto& fold = (other[rank].*part)[i];
                                if (fold.count > 1) {
                                    --fold.count;
                                    expect_found(other, "missing operand");
                                }
                            } else if (!list[i].keep) {
                                list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
                                expect_found(changed, "missing copy");
                            }
                        }
            }
        }
    std::printf(
        "changed direct plans: %d of %d found; %d of %d waits could be left out\n", found, tried, needless, waits);
    for (const auto& [change, times] : missed_by_change)
        std::printf("    missed: %s, %d times\n", change.c_str(), times);
    // What is missed is work without effect (the last transfers of a scan), and publications that no longer protect
    // what they were moved before, but something else. Some waits are needless because the planner emits a wait by what
    // the rank knows then, not by what it would learn from the next one.
    CHECK(tried > 5000);
    CHECK(missed * 100 < tried);
    CHECK(needless * 20 < waits);
}
