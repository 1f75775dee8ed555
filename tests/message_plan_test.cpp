// Execution plans for executors that pass messages, checked by a simulator of the worst transport that is allowed: it
// reads a message from its sender's memory as late as it can, when the sender waits for it to have left or the receiver
// needs it, and it may overwrite the memory of a receive as soon as that is posted.
#include "catch.hpp"

#include "support/plan_data.hpp"
#include "support/random.hpp"
#include "support/schedules.hpp"

#include <colls/detail/plan/plan_cache.hpp>

#include <cstdio>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace support;

namespace {

using colls::collective;
using colls::none;
using colls::detail::execution_plan;
using colls::detail::execution_plan_for;
using colls::detail::instruction;
using colls::detail::location;
using colls::detail::opcode;
using colls::detail::place;
using colls::detail::reach;

/// A copy of one rank's program that a test may change.
struct program {
    std::vector<instruction> body;
    std::vector<location> operands;
};
std::vector<program> programs_of(const execution_plan& plan) {
    std::vector<program> all(static_cast<std::size_t>(plan.size));
    for (std::size_t r = 0; r < all.size(); ++r) {
        const auto& from = plan.program_of(static_cast<int>(r));
        all[r] = {{from.body.begin(), from.body.end()}, {from.operands.begin(), from.operands.end()}};
    }
    return all;
}

class simulator {
public:
    simulator(const execution_plan& plan, const std::vector<program>& programs)
        : plan_(plan), what_(plan.schedule.implements), data_(plan), programs_(programs), at_(programs.size(), 0) {
        for (int r = 0; r < plan.size; ++r)
            for (int u = 0; u < data_.units(); ++u)
                if (data_.has_input(r, u)) cell({r, u, place::input}) = {{r}, u};
    }
    /// Runs all ranks, always the lowest that can go on; returns the first fault, or nothing.
    std::string run() {
        for (bool moved = true; moved && fault_.empty();) {
            moved = false;
            for (int r = 0; r < plan_.size && fault_.empty(); ++r)
                while (fault_.empty() && step(r)) moved = true;
        }
        for (int r = 0; r < plan_.size && fault_.empty(); ++r)
            if (at_[index(r)] < programs_[index(r)].body.size()) return "rank " + std::to_string(r) + " waits for ever";
        for (auto& [key, c] : channels_)
            for (message& m : c.sent) {
                take(m);
                if (!m.is_received) return "a message is not received";
            }
        for (int r = 0; r < plan_.size && fault_.empty(); ++r) check_output(r);
        return fault_;
    }

private:
    struct message {
        int number = none;  // in its sender's program
        std::vector<location> from;
        std::vector<plan_value> held;  // once the transport has taken it
        bool is_taken = false, is_received = false;
    };
    struct posted_receive {
        int number = none;  // in the receiver's program
        std::vector<location> to;
    };
    // From one rank to another. The k-th message goes to the k-th receive.
    struct channel {
        std::deque<message> sent;
        std::vector<posted_receive> receives;
    };

    static std::size_t index(int i) { return static_cast<std::size_t>(i); }
    // Without contributions: must not be read. Input and output of a unit are one cell, except for all_to_all.
    plan_value& cell(const location& l) {
        const bool is_apart = l.where == place::output && what_ == collective::all_to_all;
        return cells_[{l.rank, l.where == place::scratch || is_apart ? l.where : place::input, l.index}];
    }
    void fail(const std::string& what, int r, const location& l) {
        if (fault_.empty())
            fault_ = "rank " + std::to_string(r) + " " + what + ": place " + std::to_string(static_cast<int>(l.where)) +
                     ", index " + std::to_string(l.index);
    }
    plan_value read(int r, const location& l) {
        const plan_value v = cell(l);
        if (l.rank != r) fail("reads another rank's memory", r, l);
        if (v.ranks.empty()) fail("reads undefined data", r, l);
        return v;
    }
    std::vector<location> operands_of(int r, const instruction& i) const {
        const auto first = programs_[index(r)].operands.begin() + i.first;
        return {first, first + i.count};
    }

    // The rank's next instruction; false where it has to wait, or is over.
    bool step(int r) {
        std::size_t& at = at_[index(r)];
        if (at >= programs_[index(r)].body.size()) return false;
        if (!perform(r, programs_[index(r)].body[at])) return false;
        ++at;
        return true;
    }
    bool perform(int r, const instruction& i) {
        switch (i.op) {
            case opcode::send:
                channels_[{r, i.peer}].sent.push_back({i.value, operands_of(r, i), {}});
                return true;
            case opcode::receive: {
                const auto to = operands_of(r, i);
                for (const location& l : to) cell(l) = {};  // anything may be there from now on
                channels_[{i.peer, r}].receives.push_back({i.value, to});
                return true;
            }
            case opcode::arrived:
                return receive(r, channels_[{i.peer, r}], i.value);
            case opcode::left:
                for (message& m : channels_[{r, i.peer}].sent)
                    if (m.number <= i.value) take(m);
                return true;
            case opcode::copy:
                cell(i.to) = read(r, operands_of(r, i)[0]);
                return true;
            case opcode::fold: {
                plan_value sum;
                for (const location& from : operands_of(r, i)) {
                    const std::string wrong = data_.fold(sum, read(r, from), from.leaf);
                    if (!wrong.empty()) fail(wrong, r, from);
                }
                const std::string wrong = data_.complete(sum, i.finish);
                if (!wrong.empty()) fail(wrong, r, i.to);
                cell(i.to) = sum;
                return true;
            }
            default:
                fail("has an instruction of direct plans", r, i.to);
                return true;
        }
    }
    // The transport reads the message from its sender's memory.
    void take(message& m) {
        if (m.is_taken) return;
        for (const location& l : m.from) m.held.push_back(read(l.rank, l));
        m.is_taken = true;
    }
    // Completes the channel's receives up to the one of that number; false where its message has not been posted.
    bool receive(int r, channel& c, int number) {
        std::size_t k = 0;
        while (k < c.receives.size() && c.receives[k].number != number) ++k;
        if (k == c.receives.size()) {
            fail("waits for a receive that it has not posted", r, {});
            return false;
        }
        if (k >= c.sent.size()) return false;
        for (std::size_t i = 0; i <= k; ++i) {
            message& m = c.sent[i];
            if (m.is_received) continue;
            take(m);
            const std::vector<location>& to = c.receives[i].to;
            if (to.size() != m.held.size()) {
                fail("receives a message of another length", r, to.empty() ? location{} : to[0]);
                return true;
            }
            for (std::size_t j = 0; j < to.size(); ++j) cell(to[j]) = m.held[j];
            m.is_received = true;
        }
        return true;
    }
    void check_output(int r) {
        for (int u = 0; u < data_.units(); ++u) {
            if (!data_.has_output(r, u)) continue;
            const location l{r, u, place::output};
            const plan_value& got = cell(l);
            if (got.ranks.empty()) return fail("ends without a result", r, l);
            if (!data_.is_output(r, u, got)) return fail("ends with a wrong result", r, l);
        }
    }

    const execution_plan& plan_;
    const collective what_;
    const plan_data data_;
    const std::vector<program>& programs_;
    std::vector<std::size_t> at_;
    std::map<std::tuple<int, place, int>, plan_value> cells_;
    std::map<std::pair<int, int>, channel> channels_;  // (sender, receiver)
    std::string fault_;
};

}  // namespace

TEST_CASE("message plans: the right result, however late messages leave, for every schedule", "[plan]") {
    int plans = 0, waits = 0;
    for (const row& r : all_schedules())
        for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 32, 33}) {
            if (!r.supports(n) || (n > 17 && sanitized)) continue;
            const execution_plan& plan = *execution_plan_for(r.schedule, n, reach::nothing);
            const auto programs = programs_of(plan);
            for (const auto& p : programs)
                for (const auto& i : p.body) waits += i.op == opcode::left;
            const std::string fault = simulator(plan, programs).run();
            if (!fault.empty()) FAIL(r.name << ", " << name_of(r.collective) << ", n " << n << ": " << fault);
            ++plans;
        }
    std::printf("message plans: %d simulated, %d waits for messages to have left\n", plans, waits);
    CHECK(plans > 1000);
    CHECK(waits > 0);
}

TEST_CASE("message plans: a message of input alone is posted with the first round, unless another would be overtaken",
    "[plan]") {
    int ahead = 0;
    for (const row& r : all_schedules())
        for (const int n : {2, 3, 5, 8, 13}) {
            if (!r.supports(n)) continue;
            const execution_plan& plan = *execution_plan_for(r.schedule, n, reach::nothing);
            INFO(r.name << ", " << name_of(r.collective) << ", n " << n);
            int ahead_here = 0;
            for (int rank = 0; rank < n; ++rank) {
                const auto& p = plan.program_of(rank);
                std::map<int, int> messages;  // by receiver
                for (const auto& i : p.body) messages[i.peer] += i.op == opcode::send;
                for (std::size_t at = 0; at < p.body.size(); ++at) {
                    const auto& i = p.body[at];
                    if (i.op != opcode::send) continue;
                    bool goes_ahead = i.count > 0 && messages[i.peer] == 1;
                    for (int k = i.first; k < i.first + i.count; ++k)
                        goes_ahead = goes_ahead && p.operands[k].where == place::input;
                    const bool is_first = static_cast<int>(at) < p.segments[0];
                    CHECK(is_first == (goes_ahead || i.round == 0));
                    ahead_here += is_first && i.round > 0;
                }
            }
            if (r.collective == what::barrier) CHECK(ahead_here == 0);
            ahead += ahead_here;
        }
    CHECK(ahead > 100);
}

TEST_CASE("message plans: the simulator finds a missing instruction", "[plan]") {
    int tried = 0, found = 0, waits = 0, needless = 0;
    for (const row& r : all_schedules())
        for (const int n : {2, 3, 5, 8}) {
            if (!r.supports(n) || r.collective == what::barrier) continue;
            const execution_plan& plan = *execution_plan_for(r.schedule, n, reach::nothing);
            const auto right = programs_of(plan);
            for (std::size_t rank = 0; rank < right.size(); ++rank)
                for (std::size_t i = 0; i < right[rank].body.size(); ++i) {
                    const instruction& left_out = right[rank].body[i];
                    const bool is_empty =
                        left_out.count == 0 && (left_out.op == opcode::send || left_out.op == opcode::receive);
                    // A wait for an arrival may be implied by a later one on the same channel.
                    if (left_out.keep || is_empty || left_out.op == opcode::arrived) continue;
                    auto changed = right;
                    auto& body = changed[rank].body;
                    body.erase(body.begin() + static_cast<std::ptrdiff_t>(i));
                    const bool is_found = !simulator(plan, changed).run().empty();
                    if (left_out.op == opcode::left) {
                        ++waits;
                        needless += !is_found;
                    } else {
                        ++tried;
                        found += is_found;
                    }
                }
        }
    std::printf(
        "changed message plans: %d of %d found; %d of %d waits could be left out\n", found, tried, needless, waits);
    CHECK(tried > 3000);
    CHECK((tried - found) * 50 < tried);  // what is missed: transfers of a scan that have no effect
    CHECK(needless < waits);              // replies imply many waits, in the one order that the simulator tries
}
