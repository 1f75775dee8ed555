// The text of mismatch errors: it names the part of the call that differs, and both values.
#include "catch.hpp"

#include "support/batch.hpp"
#include "support/every_transport.hpp"
#include "support/fault.hpp"
#include "support/says.hpp"

#include <colls/detail/group/backoff.hpp>
#include <colls/exact.hpp>
#include <colls/extend/message_group.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace support;

namespace {

/// The error of a group of three in which rank 1 calls `odd` and the others call `usual`. Each rank goes on with
/// barriers until it has the error.
std::string mismatch_text(
    const std::string& transport, void (*usual)(colls::communicator&), void (*odd)(colls::communicator&)) {
    std::string text = "no error";
    const auto f = [&](colls::communicator& comm) {
        std::vector<int> x(5);
        colls::all_reduce(comm, x, colls::sum);
        (comm.rank() == 1 ? odd : usual)(comm);
        for (int i = 0; i < 5; ++i) colls::barrier(comm);
    };
    try {
        run_over(transport, 3, f);
    } catch (const colls::error& e) {
        text = (e.code() == colls::errc::mismatch ? "" : "another code: ") + std::string(e.what());
    }
    return text;
}

struct oddity {
    const char *part, *usual_value, *odd_value;
    void (*usual)(colls::communicator&);
    void (*odd)(colls::communicator&);
};

template <std::size_t count>
void reduce_ints(colls::communicator& comm) {
    std::vector<int> x(count);
    colls::all_reduce(comm, x, colls::sum);
}
template <class T>
void reduce_of(colls::communicator& comm) {
    std::vector<T> x(6000);
    colls::all_reduce(comm, x, colls::sum);
}
template <class Op>
void reduce_by(colls::communicator& comm) {
    std::vector<int> x(6000);
    colls::all_reduce(comm, x, Op{});
}
template <class S>
void reduce_in(colls::communicator& comm) {
    std::vector<int> x(6000);
    colls::all_reduce<S>(comm, x, colls::sum);
}
template <int root>
void from_root(colls::communicator& comm) {
    std::vector<int> x(6000);
    colls::broadcast(comm, x, root);
    colls::barrier(comm);
}
void started(colls::communicator& comm) {
    std::vector<int> x(6000);
    colls::start::all_reduce<colls::ring>(comm, x, colls::sum).wait();
}
void gathers(colls::communicator& comm) {
    std::vector<int> x(6000), all(18000);
    colls::all_gather(comm, x, all);
}

/// Several calls each, which are compared as the one that they are.
template <int count>
void reduce_exactly(colls::communicator& comm) {
    std::vector<float> x(count, 1);
    colls::all_reduce<colls::ring>(comm, x, colls::exact);
    colls::barrier(comm);
}
void reduce_halves(colls::communicator& comm) {
    std::vector<colls::half> x(10);
    colls::all_reduce<colls::ring>(comm, x, colls::exact);
}
void gathers_as_exact(colls::communicator& comm) {
    std::vector<float> x(10), all(30);
    colls::all_gather(comm, x, all);
    colls::barrier(comm);
}
void splits(colls::communicator& comm) { comm.split(0, 0); }

/// Two lambdas and two functions, which the compiler spells alike.
template <bool adds>
void by_lambda(colls::communicator& comm) {
    std::vector<int> x(5);
    const auto add = [](int a, int b) { return a + b; };
    const auto multiply = [](int a, int b) { return a * b; };
    if (adds)
        colls::all_reduce(comm, x, colls::commutative(add));
    else
        colls::all_reduce(comm, x, colls::commutative(multiply));
}
int sum_of(int a, int b) { return a + b; }
int product_of(int a, int b) { return a * b; }
template <bool adds>
void by_function(colls::communicator& comm) {
    std::vector<int> x(5);
    colls::all_reduce(comm, x, adds ? &sum_of : &product_of);
}

template <class S>
void gathers_parts(colls::communicator& comm) {
    const std::vector<std::size_t> counts{5, 6, 7};
    std::vector<int> x(counts[static_cast<std::size_t>(comm.rank())]), all(comm.rank() == 0 ? 18 : 0);
    colls::gather_v<S>(comm, x, all, counts, 0);
}

template <int factor>
void by_factor(colls::communicator& comm) {
    std::vector<int> x(5);
    colls::all_reduce(comm, x, colls::premul_sum(factor));
}

constexpr oddity oddities[] = {
    {"the count", "5", "6", &reduce_ints<5>, &reduce_ints<6>},
    {"the count", "6000", "60000", &reduce_ints<6000>, &reduce_ints<60000>},
    {"the element type", "int", "float", &reduce_of<int>, &reduce_of<float>},
    {"the operator", "sum", "max", &reduce_by<colls::sum_t>, &reduce_by<colls::max_t>},
    {"the schedule", "ring", "direct", &reduce_in<colls::ring>, &reduce_in<colls::direct>},
    {"the root", "0", "2", &from_root<0>, &from_root<2>},
    {"the call", "blocking", "started", &reduce_in<colls::ring>, &started},
    {"the collective", "all_reduce", "all_gather", &reduce_of<int>, &gathers},
    {"the count", "10", "11", &reduce_exactly<10>, &reduce_exactly<11>},
    {"the count", "100000", "100001", &reduce_exactly<100000>, &reduce_exactly<100001>},
    {"the collective", "all_reduce", "all_gather", &reduce_exactly<10>, &gathers_as_exact},
    {"the element type", "float", "half", &reduce_exactly<10>, &reduce_halves},
    {"the collective", "split", "all_reduce", &splits, &reduce_of<int>},
};

}  // namespace

TEST_CASE("mismatch: the error names the part that differs, its values, a rank and the call", "[mismatch]") {
    for (const std::string& transport : every_transport())
        for (const oddity& o : oddities) {
            const std::string text = mismatch_text(transport, o.usual, o.odd);
            INFO(transport << ", " << o.part << ": " << text);
            CHECK(says(text, std::string(o.part) + " is "));
            CHECK(says(text, o.usual_value));
            CHECK(says(text, o.odd_value));
            CHECK(says(text, "on rank 1"));
            CHECK(says(text, "call 1 of this group"));
            CHECK(!says(text, "with a different count"));
        }
}

TEST_CASE("mismatch: gather_v by direct, where the others leave the schedule to the library, which takes another one",
    "[mismatch]") {
    for (const std::string transport : {"threads", "shm"})
        for (const bool by_odd : {false, true}) {
            using colls::automatic, colls::direct;
            const std::string text = by_odd
                                         ? mismatch_text(transport, &gathers_parts<automatic>, &gathers_parts<direct>)
                                         : mismatch_text(transport, &gathers_parts<direct>, &gathers_parts<automatic>);
            INFO(transport << ": " << text);
            CHECK(says(text, "the schedule is "));
            CHECK(says(text, by_odd ? "direct on rank 1" : "eager on rank 1"));
            const std::string other = by_odd ? "eager on rank " : "direct on rank ";  // rank 1 or 2 reports it first
            CHECK((says(text, other + "0") || says(text, other + "2")));
        }
    // Over messages it takes direct, too.
    CHECK(mismatch_text("tcp", &gathers_parts<colls::automatic>, &gathers_parts<colls::direct>) == "no error");
}

TEST_CASE("mismatch: two lambdas or functions of one spelling are two operators; factors may differ", "[mismatch]") {
    for (const std::string& transport : every_transport()) {
        const std::string lambdas = mismatch_text(transport, &by_lambda<true>, &by_lambda<false>);
        INFO(transport << ": " << lambdas);
        CHECK(says(lambdas, "the operator is "));
        CHECK(says(lambdas, "lambda"));
        const std::string functions = mismatch_text(transport, &by_function<true>, &by_function<false>);
        INFO(functions);
        CHECK(says(functions, "perhaps another function of the same type"));
        CHECK(mismatch_text(transport, &by_factor<2>, &by_factor<3>) == "no error");
        CHECK(mismatch_text(transport, &by_lambda<true>, &by_lambda<true>) == "no error");
        CHECK(mismatch_text(transport, &by_function<true>, &by_function<true>) == "no error");
    }
}

TEST_CASE("mismatch: a call that did not match is named when a later call finds it", "[mismatch]") {
    for (const std::string& transport : every_transport()) {
        const std::string text = mismatch_text(
            transport,
            [](colls::communicator& comm) {
                std::vector<int> x(2);
                if (comm.rank() == 0) colls::broadcast(comm, x, 0);  // it does not wait for the others
                colls::barrier(comm);
            },
            [](colls::communicator& comm) { colls::barrier(comm); });
        INFO(transport << ": " << text);
        CHECK(says(text, "the collective is "));
        CHECK(says(text, "call 1 of this group"));
        CHECK(says(text, "broadcast on rank 0"));
    }
}

namespace {

/// A transport of rank 0 whose messages are sent at once, and which counts the questions for calls that rank 0 asks.
/// The test plays the peer, also in `meanwhile`, when rank 0 looks at it.
struct asked_transport final : colls::extend::message_transport {
    std::uint64_t posted = 0;
    int questions = 0;
    std::function<void()> meanwhile;
    std::uint64_t send(int, const colls::extend::message_label&, const colls::extend::piece*, int) override {
        return posted++;
    }
    std::uint64_t receive(int, const colls::extend::message_label&, const colls::extend::piece*, int) override {
        return 0;
    }
    std::uint64_t sent(int) const override { return posted; }
    std::uint64_t received(int) const override { return 0; }
    void abandon() override {}
    bool tell(int, const colls::extend::control_message& what) override {
        questions += what.what == colls::extend::control_kind::inquire;
        return true;
    }
    void tell_all(const colls::extend::control_message&) override {}
    void progress() override {
        if (meanwhile) meanwhile();
    }
    void idle(double) override {}
};
struct lonely_group final : colls::extend::message_group {
    std::uint64_t create(int) override { return 0; }
    colls::extend::message_member join(const colls::extend::message_formation&) override { return {}; }
    const colls::extend::machine& figures() const override {
        static const colls::extend::machine usual{};
        return usual;
    }
};
/// Rank 0 of two; `*at` is the transport of its collectives.
colls::communicator rank_0(asked_transport** at) {
    auto collectives = std::make_unique<asked_transport>();
    *at = collectives.get();
    colls::extend::message_member m;
    m.group = std::make_shared<lonely_group>();
    m.collectives = std::move(collectives);
    m.messages = std::make_unique<asked_transport>();
    return colls::extend::join(std::move(m), 0, 2);
}

}  // namespace

TEST_CASE("mismatch: where a peer waits in a later call, this rank compares when it comes to that call, each time",
    "[mismatch]") {
    constexpr int calls = 72;  // more than a rank keeps of its calls
    std::vector<int> x(5);
    asked_transport* at = nullptr;
    colls::communicator twin = rank_0(&at);  // makes the same calls before, so that their fingerprints are known
    std::vector<std::uint64_t> fingerprints;
    for (int i = 0; i < calls; ++i) {
        colls::broadcast<colls::direct>(twin, x, 0);
        colls::detail::rank_context& self = twin.context();
        fingerprints.push_back(self.log.history);
    }
    // The peer waits one call or more ahead, always in the right call but for the last time.
    for (const int ahead : {1, 2})
        for (const bool right : {false, true}) {
            INFO(ahead << " ahead, right " << right);
            colls::communicator comm = rank_0(&at);
            for (int i = 0; i < calls; ++i) {
                const int there = i + ahead - 1;
                if (i % ahead == 0) {
                    const auto number = static_cast<std::size_t>(there);
                    const std::uint64_t wrong = there == calls - 1 && !right;
                    at->listening->heard(
                        1, {colls::extend::control_kind::board, number, fingerprints[number] + wrong, 1, ""});
                }
                CHECK(at->questions == 0);
                colls::broadcast<colls::direct>(comm, x, 0);
            }
            CHECK(at->questions == (right ? 0 : 1));
        }
}

TEST_CASE("mismatch: a peer that says late how its call differs is waited for, also where the wait itself finds it",
    "[mismatch]") {
    asked_transport* at = nullptr;
    colls::communicator comm = rank_0(&at);
    colls::detail::rank_context& self = comm.context();
    at->meanwhile = [&] {
        if (self.log.count == 0) return;
        using colls::extend::control_kind;
        const std::uint64_t other = self.log.history + 1;
        if (at->questions == 0) at->listening->heard(1, {control_kind::board, 0, other, 1, ""});
        // Rank 0 has published in which call it waits, and so has compared it with the one of the peer.
        if (self.memory.state(0).board_call.load() == 0) return;
        colls::detail::call_record theirs = self.log.of(0);
        theirs.count = 6;
        at->listening->heard(1, {control_kind::told, 0, other, 0, colls::detail::parts_of(theirs).text()});
    };
    std::vector<int> x(5);
    std::string text = "no error";
    try {
        colls::all_reduce<colls::direct>(comm, x, colls::sum);
    } catch (const colls::error& e) {
        text = (e.code() == colls::errc::mismatch ? "" : "another code: ") + std::string(e.what());
    }
    INFO(text);
    CHECK(at->questions == 1);
    CHECK(says(text, "the count is 5 on rank 0 and 6 on rank 1"));
}

TEST_CASE("errors: calls that are alike share a line, those that differ in anything do not", "[mismatch]") {
    using colls::collective;
    using colls::detail::call_record;
    static constexpr std::string_view type = "float", other_type = "int", op = "sum_t", other_op = "max_t";
    const call_record usual{{.what = collective::reduce, .count = 30, .type = &type, .op = &op, .root = 1}, 0, "tree"};
    const auto lines = [&](std::uint64_t calls, std::uint64_t odd, const call_record& c) {
        call_record recent[call_record::kept];
        for (std::uint64_t i = 0; i < calls; ++i) recent[i % call_record::kept] = i == odd ? c : usual;
        std::vector<std::string> all;
        colls::detail::for_latest_calls(
            recent, calls, [&](const colls::detail::error_text& text) { all.emplace_back(text.text()); });
        return all;
    };
    const std::string alike = "reduce of 30 float, sum_t, root 1, by tree";
    using list = std::vector<std::string>;
    CHECK(lines(0, 9, usual) == list{});
    CHECK(lines(1, 9, usual) == list{"call 0: " + alike});
    CHECK(lines(64, 99, usual) == list{"call 0 to 63: " + alike});
    CHECK(lines(65, 99, usual) == list{"call 1 to 64: " + alike});
    CHECK(lines(1000, 9999, usual) == list{"call 936 to 999: " + alike});
    const auto changed = [&](auto change) {
        call_record c = usual;
        change(c);
        const list all = lines(4, 2, c);
        REQUIRE(all.size() == 3);
        CHECK((all[0] == "call 0 to 1: " + alike && all[2] == "call 3: " + alike));
        return all[1];
    };
    CHECK(changed([](call_record& c) { c.what = collective::all_reduce; }) ==
          "call 2: all_reduce of 30 float, sum_t, by tree");
    CHECK(changed([](call_record& c) { c.count = 31; }) == "call 2: reduce of 31 float, sum_t, root 1, by tree");
    CHECK(changed([](call_record& c) { c.type = &other_type; }) == "call 2: reduce of 30 int, sum_t, root 1, by tree");
    CHECK(changed([](call_record& c) { c.op = &other_op; }) == "call 2: reduce of 30 float, max_t, root 1, by tree");
    CHECK(changed([](call_record& c) { c.op = nullptr; }) == "call 2: reduce of 30 float, root 1, by tree");
    CHECK(changed([](call_record& c) { c.root = 0; }) == "call 2: reduce of 30 float, sum_t, root 0, by tree");
    CHECK(changed([](call_record& c) { c.schedule = "ring"; }) == "call 2: reduce of 30 float, sum_t, root 1, by ring");
    CHECK(changed([](call_record& c) { c.own_lengths = true; }) ==
          "call 2: reduce of each rank's own count float, sum_t, root 1, by tree");
    CHECK(changed([](call_record& c) { c.non_blocking = true; }) == "call 2: " + alike + ", started");
    CHECK(changed([](call_record& c) { c.reproducible = true; }) == "call 2: " + alike + ", reproducible");
}

TEST_CASE("errors: an error has the rank's latest calls", "[mismatch]") {
    common<std::atomic<int>> failed;
    const auto f = [&](colls::communicator& comm) {
        std::vector<float> x(30), whole(90);
        std::vector<int> y(5);
        for (int i = 0; i < 70; ++i) colls::all_reduce<colls::ring>(comm, x, colls::sum);
        colls::broadcast<colls::tree<>>(comm, y, 2);
        auto started = colls::start::all_gather<colls::direct>(comm, x, whole);
        started.wait();
        comm.set_timeout(std::chrono::seconds(2));  // within which both others have made the call that fails
        const std::string before =
            "call 9 to 69: all_reduce of 30 float, sum_t, by ring\n"
            "call 70: broadcast of 5 int, root 2, by tree\n"
            "call 71: all_gather of 90 float, by direct, started\n";
        std::string calls = "no error", refused = "not refused";
        try {
            colls::broadcast(comm, y, 3);
        } catch (const colls::error& e) {
            refused = e.calls();
        }
        try {
            if (comm.rank() != 1) {
                colls::barrier<colls::direct>(comm);
                colls::all_reduce<colls::ring>(comm, x, colls::max);
            }
            for (int i = 0; comm.rank() == 1 && i < 60'000 && *failed < 2; ++i)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        } catch (const colls::error& e) {
            const colls::error copy = e;
            calls = copy.calls();
            ++*failed;
        }
        if (!refused.empty()) throw std::runtime_error("a refused call has calls: " + refused);
        const std::string right = comm.rank() == 1 ? "no error" : before + "call 72: barrier, by direct\n";
        if (calls != right) throw std::runtime_error("it has these calls: " + calls);
    };
    for (const std::string& transport : every_transport()) {
        INFO(transport);
        *failed = 0;
        CHECK_NOTHROW(run_over(transport, 3, f));
    }
}
