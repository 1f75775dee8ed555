// The test kit of transports (colls/testing/transport.hpp): it passes the library's transports and one written as a
// user would write it, and finds what is wrong with broken ones.
#include "catch.hpp"

#include "support/broken_transports.hpp"
#include "support/launch.hpp"
#include "support/own_transport.hpp"
#include "support/random.hpp"

#include <colls/testing/transport.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <thread>
#include <utility>

using namespace support;

namespace {

/// What the kit calls `run`: one type, so that the kit is compiled once.
using group_runner = std::function<void(int, const rank_function&)>;

colls::testing::transport_report report_of(
    const group_runner& run, const colls::testing::transport_limits& limits = {}) {
    return colls::testing::transport(run, limits);
}

/// The finding about a broken transport. `deadline`: shorter where the kit waits for what is lost, else longer than any
/// wait of a slow machine.
std::string finding_about(const group_runner& run, double deadline = 20) {
    const auto report = report_of(run, {.deadline = deadline, .groups = {2, 3}});
    CHECK_FALSE(report.ok());
    return report.text();
}
bool has(const std::string& text, const std::string& part) {
    UNSCOPED_INFO(text);
    return text.find(part) != std::string::npos;
}

// ---- message transports that do one thing wrong ----

/// Flips one bit in the middle of the 100th message.
struct flipping : passing_transport {
    using passing_transport::passing_transport;
    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        std::size_t bytes = 0;
        for (int i = 0; i < count; ++i) bytes += pieces[i].bytes;
        if (++messages < 100 || bytes == 0 || !copy.empty()) return to_->send(peer, label, pieces, count);
        for (int i = 0; i < count; ++i) copy.insert(copy.end(), pieces[i].data, pieces[i].data + pieces[i].bytes);
        copy[bytes / 2] ^= std::byte{4};
        const piece changed{copy.data(), bytes};
        return to_->send(peer, label, &changed, 1);
    }
    int messages = 0;
    std::vector<std::byte> copy;
};

/// Swaps two messages to one peer that are sent before the next call of `progress`.
struct swapping : passing_transport {
    using passing_transport::passing_transport;
    struct offer {
        message_label label;
        std::vector<piece> pieces;
    };
    void pass(int peer, const offer& o) {
        to_->send(peer, o.label, o.pieces.data(), static_cast<int>(o.pieces.size()));
    }
    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        const offer now{label, {pieces, pieces + count}};
        if (const auto before = held.find(peer); before != held.end()) {
            pass(peer, now);
            pass(peer, before->second);
            held.erase(before);
        } else {
            held[peer] = now;
        }
        return offered[peer]++;
    }
    void progress() override {
        for (const auto& [peer, o] : held) pass(peer, o);
        held.clear();
        to_->progress();
    }
    void abandon() override {
        held.clear();
        to_->abandon();
    }
    std::map<int, offer> held;
    std::map<int, std::uint64_t> offered;
};

/// Never sends the 60th message, and counts it as sent.
struct losing : passing_transport {
    using passing_transport::passing_transport;
    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        if (++messages != 60) return to_->send(peer, label, pieces, count) + (lost_to == peer);
        lost_to = peer;
        return to_->sent(peer);
    }
    std::uint64_t sent(int peer) const override { return to_->sent(peer) + (lost_to == peer); }
    int messages = 0, lost_to = colls::none;
};

/// Counts messages as sent as soon as `send` is called.
struct counts_sent_early : passing_transport {
    using passing_transport::passing_transport;
    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        const std::uint64_t number = to_->send(peer, label, pieces, count);
        offered[peer] = number + 1;
        return number;
    }
    std::uint64_t sent(int peer) const override {
        const auto at = offered.find(peer);
        return at == offered.end() ? 0 : at->second;
    }
    std::map<int, std::uint64_t> offered;
};

/// Counts messages as received as soon as `receive` is called.
struct counts_received_early : passing_transport {
    using passing_transport::passing_transport;
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override {
        const std::uint64_t number = to_->receive(peer, label, pieces, count);
        asked[peer] = number + 1;
        return number;
    }
    std::uint64_t received(int peer) const override {
        const auto at = asked.find(peer);
        return at == asked.end() ? 0 : at->second;
    }
    std::map<int, std::uint64_t> asked;
};

/// Drops the control messages that say that a rank leaves.
struct drops_leave : passing_transport {
    using passing_transport::passing_transport;
    void heard(int peer, const control_message& what) override {
        if (what.what != control_kind::leave) passing_transport::heard(peer, what);
    }
};

/// Does not send the control messages that say that the group is broken.
struct drops_broken : passing_transport {
    using passing_transport::passing_transport;
    bool tell(int peer, const control_message& what) override {
        return what.what == control_kind::broken || to_->tell(peer, what);
    }
    void tell_all(const control_message& what) override {
        if (what.what != control_kind::broken) to_->tell_all(what);
    }
};

/// Ranks are threads that pass messages, with a Transport around the message transports of all ranks, or of rank 0
/// alone.
template <class Transport>
group_runner with_transport(bool all) {
    return [all](int n, const rank_function& f) {
        run_by_messages(
            n, f, [all](int rank, std::unique_ptr<message_transport> plain) -> std::unique_ptr<message_transport> {
                if (!all && rank > 0) return plain;
                return std::make_unique<Transport>(std::move(plain));
            });
    };
}

// ---- group backends that do one thing wrong ----

/// Orders the members of a new group by rank, not by key.
struct ignores_keys : passing_backend {
    using passing_backend::passing_backend;
    std::unique_ptr<rank_context> attach(
        rank_context& from, std::uint64_t place, int, const list<int>& members) override {
        list<int> sorted;
        for (int r = 0; r < from.size; ++r)
            for (const int m : members)
                if (m == r) sorted.push_back(r);
        int rank = 0;
        while (sorted[rank] != from.rank) ++rank;
        return to_->attach(from, place, rank, sorted);
    }
};

/// Splits a new group of two into two groups of one.
struct ignores_colors : passing_backend {
    using passing_backend::passing_backend;
    std::unique_ptr<rank_context> attach(
        rank_context& from, std::uint64_t place, int rank, const list<int>& members) override {
        if (members.size() != 2) return to_->attach(from, place, rank, members);
        list<int> self;
        self.push_back(from.rank);
        return to_->attach(from, to_->create(1), 0, self);
    }
};

/// Allocates memory that is aligned to 64 bytes only.
struct misaligned : passing_backend {
    using passing_backend::passing_backend;
    std::byte* take(std::size_t bytes) override { return to_->take(bytes + 64) + 64; }
    void give(std::byte* at, std::size_t bytes) noexcept override { to_->give(at - 64, bytes + 64); }
};

/// Allocates the same memory each time, though it is still in use.
struct allocates_twice : passing_backend {
    explicit allocates_twice(shared_backend to) : passing_backend(std::move(to)), same(to_->take(most)) {}
    ~allocates_twice() override { to_->give(same, most); }
    std::byte* take(std::size_t) override { return same; }
    void give(std::byte*, std::size_t) noexcept override {}
    static constexpr std::size_t most = std::size_t{4} << 20;
    std::byte* const same;
};

/// Puts a Backend around the group backend of each rank that `run` makes.
template <class Backend>
group_runner with_backend(const group_runner& run) {
    return [run](int n, const rank_function& f) {
        run(n, [&](colls::communicator& comm) {
            rank_context& self = comm.context();
            self.backend = std::make_shared<Backend>(self.backend);
            f(comm);
        });
    };
}

const group_runner by_threads = [](int n, const rank_function& f) { colls::threads::run(n, f); };
const group_runner by_messages = [](int n, const rank_function& f) { run_by_messages(n, f); };
group_runner by_processes_over(const char* name) {
    return [name](int n, const rank_function& f) {
        setenv("COLLS_TRANSPORT", name, 1);
        const std::shared_ptr<void> after(nullptr, [](void*) { unsetenv("COLLS_TRANSPORT"); });
        colls::processes::run(n, f);
    };
}

}  // namespace

TEST_CASE("transport kit: passes the library's transports, and one as a user writes it", "[kit]") {
    const auto passes = [](const char* name, const group_runner& run, const std::vector<int>& selection) {
        colls::testing::transport_limits limits{.deadline = 300};  // longer than any wait of a slow machine
        if (!support::long_run) limits.groups = selection;
        const auto report = report_of(run, limits);
        INFO(name << ": " << report.text());
        CHECK(report.ok());
        CHECK(report.checks() > (support::long_run ? 20'000 : 1000 * selection.size()));
    };
    passes("threads", by_threads, {1, 5});
    passes("messages", by_messages, {2, 3});
    passes("shared memory", by_processes_over("shm"), {4});
    passes("TCP", by_processes_over("tcp"), {3});
}

TEST_CASE("transport kit: finds transports that lose, change or reorder messages, or count them early", "[kit]") {
    CHECK(has(finding_about(with_transport<flipping>(false)), ", expected "));
    CHECK(has(finding_about(with_transport<swapping>(true)), "rank"));
    CHECK(has(finding_about(with_transport<losing>(false), 1), "waited"));
    CHECK(has(finding_about(with_transport<counts_sent_early>(true)), "rank"));
    CHECK(has(finding_about(with_transport<counts_received_early>(true)), "rank"));
}

namespace {

/// Tells the listener at once of the control messages that come while the rank sends one.
struct reports_at_once : passing_transport {
    using passing_transport::passing_transport;
    bool tell(int peer, const control_message& what) override {
        const bool told = to_->tell(peer, what);
        to_->progress();
        return told;
    }
};
/// Does not report a message that does not match.
struct silent : passing_transport {
    using passing_transport::passing_transport;
    void unexpected(int, const message_label&, const message_label&, std::size_t, std::size_t) override {}
};
/// Reports the label that is wanted as the one that has come.
struct reports_wrong_label : passing_transport {
    using passing_transport::passing_transport;
    void unexpected(int q, const message_label& wanted, const message_label&, std::size_t a, std::size_t b) override {
        passing_transport::unexpected(q, wanted, wanted, a, b);
    }
};
/// Goes on with its messages after `abandon`.
struct goes_on : passing_transport {
    using passing_transport::passing_transport;
    void abandon() override {}
};
/// Tells rank 0 alone what is to be told to all.
struct tells_some : passing_transport {
    using passing_transport::passing_transport;
    void tell_all(const control_message& what) override { to_->tell(0, what); }
};
/// Sends control messages of more than 100 characters without their ends.
struct cuts_texts : passing_transport {
    using passing_transport::passing_transport;
    bool tell(int peer, control_message const& what) override {
        const std::string text = std::string(what.text).substr(0, 100);
        return to_->tell(peer, {what.what, what.a, what.b, what.c, text.c_str()});
    }
};
/// Reports what a rank tells twice.
struct hears_twice : passing_transport {
    using passing_transport::passing_transport;
    void heard(int peer, const control_message& what) override {
        passing_transport::heard(peer, what);
        if (what.what == control_kind::board) passing_transport::heard(peer, what);
    }
};
/// Sends the second word of control messages with its highest bit changed.
struct changes_words : passing_transport {
    using passing_transport::passing_transport;
    bool tell(int peer, const control_message& what) override {
        return to_->tell(peer, {what.what, what.a, what.b ^ std::uint64_t{1} << 63, what.c, what.text});
    }
};
/// Reports a rank that leaves as lost.
struct takes_leave_for_loss : passing_transport {
    using passing_transport::passing_transport;
    void heard(int peer, const control_message& what) override {
        what.what == control_kind::leave ? lost(peer, "it is gone") : passing_transport::heard(peer, what);
    }
};
/// Reports `leave` twice.
struct leaves_twice : passing_transport {
    using passing_transport::passing_transport;
    void heard(int peer, const control_message& what) override {
        passing_transport::heard(peer, what);
        if (what.what == control_kind::leave) passing_transport::heard(peer, what);
    }
};
/// Sleeps on though something has come.
struct sleeps_on : passing_transport {
    using passing_transport::passing_transport;
    void idle(double seconds) override { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
};

/// Transports that are queues in this process, each within a Transport.
template <class Transport>
colls::testing::message_transports_of_group queues(int n) {
    const auto network = std::make_shared<queue_network>(n);
    colls::testing::message_transports_of_group all;
    for (int r = 0; r < n; ++r) {
        auto own = std::make_unique<queue_transport>(network, r);
        if constexpr (std::is_same_v<Transport, queue_transport>)
            all.push_back(std::move(own));
        else
            all.push_back(std::make_unique<Transport>(std::move(own)));
    }
    return all;
}
template <class Transport>
std::string breach() {
    const auto report = colls::testing::message_transports(queues<Transport>, {.deadline = 1});
    CHECK_FALSE(report.ok());
    return report.text();
}

}  // namespace

TEST_CASE("transport kit: a transport as a user writes it keeps the contract, and breaches are found", "[kit]") {
    const auto report = colls::testing::message_transports(queues<queue_transport>, {.deadline = 300});
    CHECK(report.text().find("checks in groups of up to 3 ranks") != std::string::npos);
    CHECK(has(breach<flipping>(), "wrong bytes"));
    CHECK(has(breach<losing>(), "small messages"));
    CHECK(has(breach<swapping>(), "as unexpected that is not"));
    CHECK(has(breach<counts_sent_early>(), "before messages that had left"));
    CHECK(has(breach<counts_received_early>(), "wrong bytes"));
    CHECK(has(breach<drops_leave>(), "leave is reported"));
    CHECK(has(breach<drops_broken>(), "broken is reported"));
    CHECK(has(breach<reports_at_once>(), "outside progress"));
    CHECK(has(breach<silent>(), "the mismatch is reported"));
    CHECK(has(breach<reports_wrong_label>(), "wrong labels"));
    CHECK(has(breach<goes_on>(), "abandon"));
    CHECK(has(breach<tells_some>(), "broken is reported"));
    CHECK(has(breach<cuts_texts>(), "another control message"));
    CHECK(has(breach<hears_twice>(), "another control message"));
    CHECK(has(breach<changes_words>(), "another control message"));
    CHECK(has(breach<takes_leave_for_loss>(), "reported lost"));
    CHECK(has(breach<leaves_twice>(), "after leave"));
    CHECK(has(breach<sleeps_on>(), "idle does not end"));
}

TEST_CASE("transport kit: finds transports that drop control messages", "[kit]") {
    CHECK(has(finding_about(with_transport<drops_leave>(true), 10), "a rank that leaves"));
    CHECK(has(finding_about(with_transport<drops_broken>(true), 1), "waited"));
}

namespace {

/// Counts the groups that break.
struct counts_broken_groups : passing_transport {
    using passing_transport::passing_transport;
    static inline std::atomic<int> broken{0};
    void abandon() override {
        if (!std::exchange(is_broken, true)) broken.fetch_add(1, std::memory_order_relaxed);
        to_->abandon();
    }
    bool is_broken = false;
};

}  // namespace

TEST_CASE(
    "transport kit: breaks a group by each kind of mismatch, while its ranks stay, and while they leave", "[kit]") {
    constexpr int n = 2, transports = 2, kinds = 9;
    const auto report = report_of(with_transport<counts_broken_groups>(true), {.deadline = 300, .groups = {n}});
    CHECK(report.ok());
    CHECK(counts_broken_groups::broken >= n * transports * 2 * kinds);
}

TEST_CASE("transport kit: finds a split that makes groups of wrong members or order", "[kit]") {
    std::vector<group_runner> runs{by_threads, by_processes_over("tcp")};
    if (support::long_run) runs.insert(runs.end(), {by_messages, by_processes_over("shm")});
    for (const group_runner& run : runs) {
        CHECK(has(finding_about(with_backend<ignores_keys>(run)), "split groups"));
        CHECK(has(finding_about(with_backend<ignores_colors>(run)), "split made a group of 1, expected 2"));
    }
}

TEST_CASE("transport kit: finds memory that is misaligned or allocated twice", "[kit]") {
    for (const group_runner& run : {by_threads, by_processes_over("shm")}) {
        CHECK(has(finding_about(with_backend<misaligned>(run)), "not aligned"));
        CHECK(has(finding_about(with_backend<allocates_twice>(run)), "rank"));
    }
}

TEST_CASE("transport kit: finds a run of a wrong size, and one that loses exceptions", "[kit]") {
    CHECK(has(finding_about([](int n, const rank_function& f) { colls::threads::run(n + 1, f); }), "size is"));
    CHECK(has(
        finding_about([](int n, const rank_function& f) { colls::threads::run(n - 1, f); }), "the function of rank 2"));
    CHECK(has(finding_about([](int n, const rank_function& f) {
        for (int r = 0; r < n; ++r) colls::threads::run(1, f);
    }),
        "the function of rank 1"));
    CHECK(has(finding_about([](int, const rank_function&) {}), "run returned normally"));
    CHECK(has(finding_about([](int n, const rank_function& f) {
        try {
            colls::threads::run(n, f);
        } catch (const std::exception&) {}
    }),
        "run returned normally"));
    CHECK(has(finding_about([](int n, const rank_function& f) {
        try {
            colls::threads::run(n, f);
        } catch (const std::exception&) {
            throw std::runtime_error("something went wrong");
        }
    }),
        "something went wrong"));
}
