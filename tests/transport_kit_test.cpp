// The kit for transports: it passes those of the library, and one written here; and finds out those that are broken.
#include "catch.hpp"

#include "support/broken_transports.hpp"
#include "support/launch.hpp"
#include "support/own_transport.hpp"

#include <colls/testing/transport.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>

#include <algorithm>
#include <deque>
#include <map>

using namespace support;

namespace {

using way_to_run = std::function<void(int, const rank_function&)>;  // one type, so that the kit is compiled once

colls::testing::transport_report judged(const way_to_run& run, const colls::testing::transport_limits& limits = {}) {
    return colls::testing::transport(run, limits);
}

/// Whatever is wrong is found, and nothing that is lost is waited for longer than a second.
std::string found_in(const way_to_run& run) {
    const auto report = judged(run, {.deadline = 1, .groups = {2, 3}});
    CHECK_FALSE(report.ok());
    return report.text();
}
bool has(const std::string& text, const std::string& part) {
    UNSCOPED_INFO(text);
    return text.find(part) != std::string::npos;
}

// ---- transports that do one thing wrong ----

/// Rank 0's 100th message has one other bit, in its middle.
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

/// A message that is offered together with the next goes after it.
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

/// Rank 0's 60th message never leaves.
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

/// Says that messages have left as soon as they are offered.
struct hasty : passing_transport {
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

/// Says that messages have arrived as soon as they are asked for.
struct optimistic : passing_transport {
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

/// Never hears that a rank has left.
struct deaf : passing_transport {
    using passing_transport::passing_transport;
    void heard(int peer, const control_message& what) override {
        if (what.what != control_kind::leave) passing_transport::heard(peer, what);
    }
};

/// Never says that the group is broken.
struct mute : passing_transport {
    using passing_transport::passing_transport;
    bool tell(int peer, const control_message& what) override {
        return what.what == control_kind::broken || to_->tell(peer, what);
    }
    void tell_all(const control_message& what) override {
        if (what.what != control_kind::broken) to_->tell_all(what);
    }
};

/// On all ranks, or on rank 0 alone.
template <class Wire>
way_to_run with_transport(bool all) {
    return [all](int n, const rank_function& f) {
        run_by_messages(
            n, f, [all](int rank, std::unique_ptr<message_transport> plain) -> std::unique_ptr<message_transport> {
                if (!all && rank > 0) return plain;
                return std::make_unique<Wire>(std::move(plain));
            });
    };
}

// ---- links that do one thing wrong ----

/// Members of a group in the order of their ranks, whatever their keys.
struct keyless : passing_backend {
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

/// Colors are mixed: a member of every group of several comes into one of its own.
struct colorless : passing_backend {
    using passing_backend::passing_backend;
    std::unique_ptr<rank_context> attach(
        rank_context& from, std::uint64_t place, int rank, const list<int>& members) override {
        if (members.size() != 2) return to_->attach(from, place, rank, members);
        list<int> self;
        self.push_back(from.rank);
        return to_->attach(from, to_->create(1), 0, self);
    }
};

struct misaligned : passing_backend {
    using passing_backend::passing_backend;
    std::byte* take(std::size_t bytes) override { return to_->take(bytes + 64) + 64; }
    void give(std::byte* at, std::size_t bytes) noexcept override { to_->give(at - 64, bytes + 64); }
};

/// Memory that is still in use is given once more.
struct forgetful : passing_backend {
    explicit forgetful(shared_backend to) : passing_backend(std::move(to)), same(to_->take(most)) {}
    ~forgetful() override { to_->give(same, most); }
    std::byte* take(std::size_t) override { return same; }
    void give(std::byte*, std::size_t) noexcept override {}
    static constexpr std::size_t most = std::size_t{4} << 20;
    std::byte* const same;
};

/// Around the link of each rank of threads, processes over shared memory, or messages.
template <class Link>
way_to_run with_backend(const way_to_run& run) {
    return [run](int n, const rank_function& f) {
        run(n, [&](colls::communicator& comm) {
            rank_context& e = comm.context();
            e.backend = std::make_shared<Link>(e.backend);
            f(comm);
        });
    };
}

const way_to_run by_threads = [](int n, const rank_function& f) { colls::threads::run(n, f); };
const way_to_run by_messages = [](int n, const rank_function& f) { run_by_messages(n, f); };
way_to_run by_processes_over(const char* name) {
    return [name](int n, const rank_function& f) {
        setenv("COLLS_TRANSPORT", name, 1);
        const std::shared_ptr<void> after(nullptr, [](void*) { unsetenv("COLLS_TRANSPORT"); });
        colls::processes::run(n, f);
    };
}

}  // namespace

TEST_CASE("the library's transports pass, and one that a user may write", "[kit]") {
    const auto passes = [](const char* name, const way_to_run& run) {
        const auto report = judged(run, {.deadline = 300});  // nothing is to pass it
        INFO(name << ": " << report.text());
        CHECK(report.ok());
        CHECK(report.checks() > 20'000);
    };
    passes("threads", by_threads);
    passes("messages", by_messages);
    passes("shared memory", by_processes_over("shm"));
    passes("TCP", by_processes_over("tcp"));
}

TEST_CASE("wires that lose, change or reorder are found out", "[kit]") {
    CHECK(has(found_in(with_transport<flipping>(false)), "and should be"));
    CHECK(has(found_in(with_transport<swapping>(true)), "rank"));
    CHECK(has(found_in(with_transport<losing>(false)), "waited"));
    CHECK(has(found_in(with_transport<hasty>(true)), "rank"));
    CHECK(has(found_in(with_transport<optimistic>(true)), "rank"));
}

TEST_CASE("wires that keep news to themselves are found out", "[kit]") {
    CHECK(has(found_in(with_transport<deaf>(true)), "a rank that leaves"));
    CHECK(has(found_in(with_transport<mute>(true)), "waited"));
}

TEST_CASE("groups of the wrong members are found out", "[kit]") {
    for (const way_to_run& run : {by_threads, by_messages, by_processes_over("shm"), by_processes_over("tcp")}) {
        CHECK(has(found_in(with_backend<keyless>(run)), "groups split off"));
        CHECK(has(found_in(with_backend<colorless>(run)), "split gives a group of 1, and should give one of 2"));
    }
}

TEST_CASE("wrong memory is found out", "[kit]") {
    for (const way_to_run& run : {by_threads, by_processes_over("shm")}) {
        CHECK(has(found_in(with_backend<misaligned>(run)), "not aligned"));
        CHECK(has(found_in(with_backend<forgetful>(run)), "rank"));
    }
}

TEST_CASE("a run that is none is found out", "[kit]") {
    CHECK(has(found_in([](int n, const rank_function& f) { colls::threads::run(n + 1, f); }), "size is"));
    CHECK(
        has(found_in([](int n, const rank_function& f) { colls::threads::run(n - 1, f); }), "the function of rank 2"));
    CHECK(has(found_in([](int n, const rank_function& f) {
        for (int r = 0; r < n; ++r) colls::threads::run(1, f);
    }),
        "the function of rank 1"));
    CHECK(has(found_in([](int, const rank_function&) {}), "as if nothing had happened"));
    CHECK(has(found_in([](int n, const rank_function& f) {
        try {
            colls::threads::run(n, f);
        } catch (const std::exception&) {}
    }),
        "as if nothing had happened"));
    CHECK(has(found_in([](int n, const rank_function& f) {
        try {
            colls::threads::run(n, f);
        } catch (const std::exception&) {
            throw std::runtime_error("something went wrong");
        }
    }),
        "something went wrong"));
}
