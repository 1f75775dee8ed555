// Requests that end with an error, on a real device: one request of a rank, chosen at random, has a wrong key, its own
// or the peer's. Each rank must get a colls::error that names the rank and the completion's status, and the group must
// shrink and go on. COLLS_TEST_TRIALS and COLLS_TEST_SEED say how often, and with which choices. Needs a device:
// scripts/test-verbs.
#include "../catch.hpp"

#include "../support/fault.hpp"
#include "../support/says.hpp"

#include <colls/transports/verbs.hpp>

#include <sys/mman.h>
#include <optional>

using namespace support;

namespace {

namespace rdma = colls::detail::rdma;

enum class fault { remote_key, own_key };

/// Which request of a process gets a wrong key.
struct planned_fault {
    fault how = fault::remote_key;
    std::uint64_t in = 0;  ///< requests from now; 0: none
    bool done = false;

    // Requests after the one with the wrong key are not carried out: the queue pair has failed.
    void corrupt(std::vector<rdma::write_request>& chain, std::vector<rdma::gather>& gathers) {
        for (rdma::write_request& r : chain) {
            if (in == 0 || --in > 0) continue;
            if (how == fault::own_key &&
                (r.inlined || r.count == 0)) {  // it does not use its own key: take the next one
                in = 1;
                continue;
            }
            done = true;
            if (how == fault::remote_key)
                r.remote ^= 0x5a5a00;
            else
                gathers[r.first].local ^= 0x5a5a00;
        }
    }
};
planned_fault& planned() {
    static planned_fault p;
    return p;
}

class faulty_queue final : public rdma::queue {
public:
    explicit faulty_queue(std::unique_ptr<rdma::queue> q) : queue_(std::move(q)) {}
    rdma::queue_limits limits() const override { return queue_->limits(); }
    rdma::queue_name name() const override { return queue_->name(); }
    const char* connect(const rdma::queue_name& peer) override { return queue_->connect(peer); }
    const char* post(const rdma::write_request* chain, int count, const rdma::gather* gathers) override {
        std::vector<rdma::write_request> own(chain, chain + count);
        std::size_t used = 0;
        for (const rdma::write_request& r : own) used = std::max<std::size_t>(used, r.first + r.count);
        std::vector<rdma::gather> pieces(gathers, gathers + used);
        planned().corrupt(own, pieces);
        return queue_->post(own.data(), count, pieces.data());
    }
    const char* receive(int count) override { return queue_->receive(count); }
    int poll(rdma::completion* into, int most) override { return queue_->poll(into, most); }

private:
    const std::unique_ptr<rdma::queue> queue_;
};

class faulty_device final : public rdma::device {
public:
    explicit faulty_device(const colls::detail::address& own) : device_(own) {}
    const char* name() const override { return device_.name(); }
    rdma::region add(std::byte* at, std::size_t bytes) override { return device_.add(at, bytes); }
    void drop(const rdma::region& r) noexcept override { device_.drop(r); }
    std::unique_ptr<rdma::queue> open(const rdma::queue_limits& wanted) override {
        return std::make_unique<faulty_queue>(device_.open(wanted));
    }

private:
    rdma::verbs_device device_;
};

class faulty_between_hosts final : public colls::detail::hosts::inter_node_transport {
public:
    explicit faulty_between_hosts(const colls::detail::address& own)
        : registry_(std::make_shared<rdma::memory_registry>(std::make_shared<faulty_device>(own))) {}
    std::unique_ptr<colls::detail::message_transport> over(
        std::unique_ptr<colls::detail::message_transport> control, int rank, int size) override {
        return std::make_unique<colls::detail::verbs_transport>(std::move(control), registry_, rank, size);
    }
    std::string try_out(std::unique_ptr<colls::detail::message_transport>, int, int, const std::vector<int>&,
        const std::vector<int>&, double) override {
        return {};
    }
    std::byte* take(std::size_t bytes) override { return registry_->take(bytes); }
    void give(std::byte* at, std::size_t bytes) noexcept override { registry_->give(at, bytes); }

private:
    const std::shared_ptr<rdma::memory_registry> registry_;
};

/// What a rank reports to the test.
struct report {
    int code, peer, calls, wrong;
    bool corrupted, finished;
    double waited;  ///< in the call that failed
    char text[512], later[512];
};
struct group_report {
    report of[8];
};
common<group_report>& reported() {
    static common<group_report> all;
    return all;
}

/// The call with that number, and whether its result is right.
bool turn(colls::communicator& comm, std::uint64_t seed, std::uint64_t number, std::size_t most, bool allocated) {
    random_source random = stream(seed, number);
    const int n = comm.size();
    const auto c = static_cast<verb>(random.below(colls::collective_count));
    const judged_call call(c, n, rooted(c) ? random.between(0, n - 1) : 0, 8 + random.below(most), number);
    const std::size_t count = most / judged_call::element + 8;
    std::optional<colls::memory<std::uint64_t>> known[2];
    std::vector<std::uint64_t> other[2];
    std::uint64_t* at[2];
    for (int i = 0; i < 2; ++i) {
        if (allocated)
            at[i] = known[i].emplace(comm.allocate<std::uint64_t>(count)).data();
        else
            at[i] = (other[i].assign(count, 0), other[i].data());
    }
    call.fill(comm.rank(), at[0], at[1]);
    make<blocking_way>(comm, call, at[0], at[1]);
    return call.right(comm.rank(), at[1]);
}

std::string trial(fault how, std::uint64_t seed, double& latest) {
    random_source random = stream(seed, 7);
    const int n = random.between(2, 4), culprit = random.between(0, n - 1);
    constexpr std::size_t sizes[] = {64, 4 << 10, 100 << 10, 400 << 10};
    // Small messages are inlined, which does not use the sender's own key.
    const std::size_t most = how == fault::own_key ? sizes[1 + random.below(3)] : sizes[random.below(4)];
    const bool allocated = random.one_in(2);
    const std::uint64_t from = random.below(6), in = 1 + random.below(12);
    // A wrong key of its own is a protection error on some devices, and an operation error on soft-RoCE.
    const char* const status =
        how == fault::remote_key ? "ended with status: remote access error" : "ended with status: local ";
    std::memset(static_cast<void*>(&*reported()), 0, sizeof(group_report));
    const remains before;
    std::string wrong;
    try {
        colls::processes::run(n, [&](colls::communicator& comm) {
            alarm(400);  // ends a hang, but only after the library's deadline, since its error says more
            report& mine = reported()->of[comm.rank()];
            double begun = 0;
            try {
                for (std::uint64_t k = 0; k < 2000; ++k) {
                    if (comm.rank() == culprit && k == from) planned() = {how, in, false};
                    begun = colls::detail::seconds_now();
                    mine.wrong += !turn(comm, seed, k, most, allocated);
                    ++mine.calls;
                }
            } catch (const colls::error& e) {
                mine.waited = colls::detail::seconds_now() - begun;
                mine.code = static_cast<int>(e.code());
                mine.peer = e.peer();
                std::snprintf(mine.text, sizeof mine.text, "%s", e.what());
            }
            mine.corrupted = planned().done;
            planned() = {};
            std::string after;
            try {
                colls::communicator rest = comm.shrink();
                if (rest.size() != n) after = "after shrink there are " + std::to_string(rest.size()) + " ranks";
                for (std::uint64_t k = 0; k < 3; ++k)
                    if (!turn(rest, seed + 1, k, most, allocated)) after += "; a call after shrink has a wrong result";
            } catch (const std::exception& e) {
                after = std::string("shrink: ") + e.what();
            }
            std::snprintf(mine.later, sizeof mine.later, "%s", after.c_str());
            mine.finished = true;
        });
    } catch (const std::exception& e) {
        wrong += std::string("run: ") + e.what();
    }
    wrong += before.left();
    const std::string me = "rank " + std::to_string(culprit);
    if (!reported()->of[culprit].corrupted) wrong += "no request had a wrong key; ";
    for (int r = 0; r < n; ++r) {
        const report& got = reported()->of[r];
        const std::string rank = "\n  rank " + std::to_string(r) + ": ";
        if (!got.finished) wrong += rank + "did not finish";
        if (got.wrong > 0) wrong += rank + std::to_string(got.wrong) + " wrong results";
        if (got.code != static_cast<int>(colls::errc::peer_failed))
            wrong += rank + "the error's kind is " + std::to_string(got.code);
        // The queue pair of the rank that posted the request has the status. Other ranks are told.
        if (const std::string missing = lacks(got.text, {status, me}); !missing.empty()) wrong += rank + missing;
        if (got.later[0]) wrong += rank + got.later;
        latest = std::max(latest, got.waited);
    }
    if (seed % 50 == 0) std::printf("%s\n", reported()->of[(culprit + 1) % n].text);
    if (wrong.empty()) return wrong;
    return "seed " + std::to_string(seed) + ", n " + std::to_string(n) + ", culprit " + std::to_string(culprit) +
           ", request " + std::to_string(in) + " from call " + std::to_string(from) + ", at most " +
           std::to_string(most) + " bytes" + (allocated ? ", allocated" : "") + ": " + wrong;
}

void trials(const char* name, fault how) {
    setenv("COLLS_TRANSPORT", "verbs", 1);
    colls::detail::hosts::open_verbs = [](int, const colls::detail::address& own,
                                           int) -> std::shared_ptr<colls::detail::hosts::inter_node_transport> {
        return std::make_shared<faulty_between_hosts>(own);
    };
    const std::uint64_t count = setting("COLLS_TEST_TRIALS", 100), seed = setting("COLLS_TEST_SEED", 1);
    double latest = 0;
    std::uint64_t failures = 0, t = 0;
    for (; t < count && failures < 5; ++t) {
        const std::string wrong = trial(how, seed * 1'000'000 + t, latest);
        INFO(wrong);
        CHECK(wrong.empty());
        failures += !wrong.empty();
    }
    std::printf("%s: %llu trials, the longest that a call took to fail: %.3f s\n", name,
        static_cast<unsigned long long>(t), latest);
}

}  // namespace

// A refusal names the reason, and leaves nothing registered or open.
TEST_CASE("memory that the device cannot write is refused, with the reason and what to do") {
    const std::size_t bytes = 64 << 10;
    const auto refused = [&](int protection) {
        auto* const at =
            static_cast<std::uint64_t*>(mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        REQUIRE(at != MAP_FAILED);
        std::string text;
        try {
            const colls::verbs::registered known(std::span(at, bytes / 8));
        } catch (const colls::error& e) {
            text = e.what();
            CHECK(e.code() == colls::errc::unsupported);
        }
        munmap(at, bytes);
        return text;
    };
    const remains before;
    for (const int protection : {PROT_READ, PROT_NONE})
        CHECK(lacks(refused(protection), {"cannot register 65536 bytes", "Bad address", "must be mapped, writable"}) ==
              "");
    CHECK(refused(PROT_READ | PROT_WRITE) == "");
    CHECK(before.left() == "");
}
TEST_CASE("verbs: a request with a wrong key of the peer fails on all ranks, with its status") {
    trials("wrong key of the peer", fault::remote_key);
}
TEST_CASE("verbs: a request with a wrong key of its own fails on all ranks, with its status") {
    trials("wrong key of its own", fault::own_key);
}
