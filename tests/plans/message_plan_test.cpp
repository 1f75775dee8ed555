// Execution plans for executors that pass messages, checked by a simulator of the worst transport that is allowed: it
// reads a message from its sender's memory as late as it can, when the sender waits for it to have left or the receiver
// needs it, and it may overwrite the memory of a receive as soon as that is posted. And the executor itself over such a
// transport, with more chunks than it has slots for.
#include "catch.hpp"

#include "support/matrix.hpp"
#include "support/plan_data.hpp"
#include "support/random.hpp"
#include "support/schedules.hpp"
#include "support/worst_transport.hpp"

#include <colls/detail/execute/copy_policy.hpp>
#include <colls/detail/execute/operation_state.hpp>
#include <colls/detail/plan/plan_cache.hpp>
#include <colls/messages/detail/message_lowering.hpp>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace support;

namespace {

// No group of this program makes it.
[[maybe_unused]] const bool plans_by_messages = (colls::detail::plan_by_messages(), true);

using colls::collective;
using colls::none;
using colls::detail::buffer_kind;
using colls::detail::execution_plan;
using colls::detail::execution_plan_for;
using colls::detail::instruction;
using colls::detail::location;
using colls::detail::opcode;
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
                if (data_.has_input(r, u)) cell({r, u, buffer_kind::input}) = {{r}, u};
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
        const bool is_apart = l.where == buffer_kind::output && what_ == collective::all_to_all;
        return cells_[{l.rank, l.where == buffer_kind::scratch || is_apart ? l.where : buffer_kind::input, l.index}];
    }
    void fail(const std::string& what, int r, const location& l) {
        if (fault_.empty())
            fault_ = "rank " + std::to_string(r) + " " + what + ": buffer " +
                     std::to_string(static_cast<int>(l.where)) + ", index " + std::to_string(l.index);
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
                    const std::string wrong = data_.fold(sum, read(r, from));
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
            const location l{r, u, buffer_kind::output};
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
    std::map<std::tuple<int, buffer_kind, int>, plan_value> cells_;
    std::map<std::pair<int, int>, channel> channels_;  // (sender, receiver)
    std::string fault_;
};

/// Rank 0 combines, and rank 1 sends it back what it has received.
struct returned_all_reduce {
    static constexpr collective implements = collective::all_reduce;
    static constexpr bool supports(int n) { return n == 2; }
    static constexpr int blocks(int) { return 1; }
    static constexpr int rounds(int) { return 3; }
    static constexpr colls::step at(int rank, int, int round) {
        const bool sends = rank == (round == 1 ? 0 : 1);
        if (sends) return {.send = {1 - rank, colls::block(0)}};
        return {.recv = {1 - rank, colls::block(0), round == 0 ? colls::action::reduce : colls::action::copy}};
    }
};

/// Likewise, of two blocks, which leave in one message and come back in two.
struct returned_in_parts {
    static constexpr collective implements = collective::all_reduce;
    static constexpr bool supports(int n) { return n == 2; }
    static constexpr int blocks(int) { return 2; }
    static constexpr int rounds(int) { return 3; }
    static constexpr colls::step at(int rank, int, int round) {
        const colls::block_set moved = round == 0 ? colls::block_range(0, 2) : colls::block(round - 1);
        if (rank == (round == 0 ? 1 : 0)) return {.send = {1 - rank, moved}};
        return {.recv = {1 - rank, moved, round == 0 ? colls::action::reduce : colls::action::copy}};
    }
};

/// Elements of a call by which the message executor uses each slot again, and the first of them twice.
std::size_t count_beyond_slots(const execution_plan& plan, std::size_t element) {
    using colls::detail::message_policy;
    const auto segments = static_cast<std::size_t>(plan.rounds) + 1;
    const std::size_t chunk = message_policy::chunk / element, slots = std::min(message_policy::chunks, segments);
    return static_cast<std::size_t>(plan.blocks * plan.fewest_parts) * (slots * chunk + chunk / 16);
}
int scratch_of(const execution_plan& plan) {
    int most = 0;
    for (int r = 0; r < plan.size; ++r) most = std::max(most, plan.program_of(r).scratch);
    return most;
}

/// A sum of int32 by each rank of a group, of contributions whose sum is known without a loop over the ranks.
class reduction {
public:
    reduction(const row& r, int n, int root, std::size_t count)
        : row_(r), n_(n), root_(root), count_(count), counts_(balanced(count, n)), in_(index(n)), out_(index(n)) {
        for (int rank = 0; rank < n; ++rank) {
            in_[index(rank)].resize(count);
            for (std::size_t i = 0; i < count; ++i) in_[index(rank)][i] = element(rank, i);
            out_[index(rank)].assign(out_count(rank), 0);
        }
    }
    colls::operation start(colls::communicator& comm) {
        const int rank = comm.rank();
        arguments a;
        a.collective = row_.collective;
        a.chosen = &row_.schedule;
        a.root = root_;
        a.in = reinterpret_cast<const std::byte*>(in_[index(rank)].data());
        a.in_count = count_;
        a.out = reinterpret_cast<std::byte*>(out_[index(rank)].data());
        a.out_count = out_count(rank);
        flight started;
        static const auto& int32_sum = [&]() -> const entry<colls::communicator>& {
            for (const auto& e : common_kinds<colls::communicator>())
                if (std::string_view(e.kind.name) == "int32 sum") return e;
            throw std::runtime_error("no such kind");
        }();
        int32_sum.run(comm, a, way::started, started);
        return std::move(started.front());
    }
    /// Empty, or which element is wrong.
    std::string wrong() const {
        for (int rank = 0; rank < n_; ++rank) {
            const bool one_block = row_.collective == verb::reduce_scatter;
            std::size_t first = 0;
            for (int b = 0; one_block && b < rank; ++b) first += counts_[index(b)];
            const int ranks = row_.collective == verb::inclusive_scan   ? rank + 1
                              : row_.collective == verb::exclusive_scan ? rank
                                                                        : n_;
            if (ranks == 0) continue;  // the first rank of an exclusive scan keeps what it has
            for (std::size_t i = 0; i < out_count(rank); ++i)
                if (out_[index(rank)][i] != sum_of_first(ranks, first + i))
                    return "rank " + std::to_string(rank) + ": element " + std::to_string(i) + " is wrong";
        }
        return "";
    }

private:
    static std::size_t index(int i) { return static_cast<std::size_t>(i); }
    static std::uint32_t element(int rank, std::size_t i) {
        return static_cast<std::uint32_t>(i) * 2654435761u + static_cast<std::uint32_t>(rank) * 40503u;
    }
    static std::uint32_t sum_of_first(int ranks, std::size_t i) {
        const auto n = static_cast<std::uint32_t>(ranks);
        return n * element(0, i) + n * (n - 1) / 2 * element(1, 0);
    }
    std::size_t out_count(int rank) const {
        if (row_.collective == verb::reduce_scatter) return counts_[index(rank)];
        return row_.collective == verb::reduce && rank != root_ ? 0 : count_;
    }

    const row& row_;
    const int n_, root_;
    const std::size_t count_;
    const std::vector<std::size_t> counts_;
    std::vector<std::vector<std::uint32_t>> in_, out_;
};

}  // namespace

TEST_CASE("chunks hold the bytes that are asked for, or more where there would be too many", "[plan]") {
    using colls::detail::chunk_layout;
    for (const std::size_t longest : {1U, 2U, 7U, 8U, 9U, 63U, 64U, 65U, 1000U})
        for (const std::size_t element : {1U, 4U, 24U})
            for (const std::size_t bytes : {1U, 8U, 64U, 4096U})
                for (const std::size_t most :
                    {std::size_t{1}, std::size_t{2}, std::size_t{8}, chunk_layout::any_number}) {
                    chunk_layout l;
                    l.cut(longest, element, bytes, most);
                    const std::size_t asked = std::max<std::size_t>(bytes / element, 1), least = longest / most + 1;
                    INFO(longest << " of " << element << " in " << bytes << ", at most " << most);
                    CHECK((l.chunks - 1) * l.count < longest);
                    CHECK(longest <= l.chunks * l.count);
                    CHECK(l.chunks <= most);
                    CHECK((l.count <= asked || (l.count == least && least > asked)));
                }
    chunk_layout empty;
    empty.cut(0, 4, 64, 8);
    CHECK((empty.chunks == 1 && empty.count == chunk_layout::whole_unit));
}

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

TEST_CASE("message plans: no rank waits for a message that it knows to have left", "[plan]") {
    const auto check = [](const colls::any_schedule& s, int n) {
        int again = 0, waits = 0;
        for (const program& p : programs_of(*execution_plan_for(s, n, reach::nothing))) {
            std::map<int, int> left;  // by receiver: one more than the number of the last message
            for (const instruction& i : p.body) {
                if (i.op != opcode::left) continue;
                ++waits;
                again += i.value < left[i.peer];
                left[i.peer] = i.value + 1;
            }
        }
        CHECK(again == 0);
        return waits;
    };
    for (const row& r : all_schedules())
        for (const int n : {2, 3, 4, 5, 8, 13}) {
            INFO(r.name << ", " << name_of(r.collective) << ", n " << n);
            if (r.supports(n)) check(r.schedule, n);
        }
    const colls::any_schedule s(returned_in_parts{});
    REQUIRE(s.prove(2).right);
    CHECK(check(s, 2) == 1);
}

TEST_CASE("message plans: a result is marked as complete although its copy comes back and replaces it", "[plan]") {
    const colls::any_schedule s(returned_all_reduce{});
    REQUIRE(s.prove(2).right);
    const execution_plan& plan = *execution_plan_for(s, 2, reach::nothing);
    CHECK(simulator(plan, programs_of(plan)).run() == "");
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
                        goes_ahead = goes_ahead && p.operands[k].where == buffer_kind::input;
                    const bool is_first = static_cast<int>(at) < p.segments[0];
                    CHECK(is_first == (goes_ahead || i.round == 0));
                    ahead_here += is_first && i.round > 0;
                }
            }
            if (r.collective == verb::barrier) CHECK(ahead_here == 0);
            ahead += ahead_here;
        }
    CHECK(ahead > 100);
}

TEST_CASE("message plans: the simulator finds a missing instruction", "[plan]") {
    int tried = 0, found = 0, waits = 0, needless = 0;
    for (const row& r : all_schedules())
        for (const int n : {2, 3, 5, 8}) {
            if (!r.supports(n) || r.collective == verb::barrier) continue;
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

TEST_CASE(
    "message executor: the right result beyond its slots, with one rank late, however late messages leave", "[plan]") {
    constexpr int n = 4;
    int calls = 0, beyond = 0;
    for (const row& r : all_schedules()) {
        if (!reduces(r.collective) || !r.supports(n)) continue;
        worst_ranks ranks(n);
        const auto check = [&](std::size_t count, int late) {
            reduction job(r, n, rooted(r.collective) ? 1 : 0, count);
            // The late rank takes a message where nothing else can happen. A sender learns that a message has left when
            // no other message can arrive.
            const auto rank_of = [&](const worst_network::move& m) { return m.arrives ? 2 * (m.to == late) : 1; };
            const auto choose = [&](const std::vector<worst_network::move>& all) {
                return *std::min_element(
                    all.begin(), all.end(), [&](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); });
            };
            const bool starts_late = ++calls % 2 == 0;
            const std::string fault =
                ranks.run([&](int rank) { return job.start(ranks.all[static_cast<std::size_t>(rank)]); }, choose,
                    starts_late ? late : none);
            INFO(r.name << ", " << name_of(r.collective) << ", " << count << " elements, rank " << late << " is late");
            REQUIRE(fault == "");
            REQUIRE(job.wrong() == "");
        };
        for (int late = 0; late < n; ++late) check(7, late);
        // Partial folds are kept in scratch memory, where a later chunk takes the slot of an earlier one. A schedule
        // with one unit needs the fewest bytes for so many chunks; rings have more.
        const execution_plan& plan = *execution_plan_for(r.schedule, n, reach::nothing);
        const bool is_ring = r.name == "ring" && r.collective == verb::reduce_scatter,
                   is_tree = r.name == "tree<2>" && r.collective == verb::reduce;
        if (scratch_of(plan) == 0 || (plan.blocks * plan.fewest_parts > 1 && !is_ring)) continue;
        for (int late = 0; late < n; ++late)
            if (is_tree || late == beyond % n) check(count_beyond_slots(plan, sizeof(std::uint32_t)), late);
        ++beyond;
    }
    CHECK(calls > 300);
    CHECK(beyond > 20);
}
