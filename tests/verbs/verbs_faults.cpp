// Requests that end with an error, on a real device: a rank's requests name a key that is none, its own or the peer's,
// from a moment of chance on. Every rank gets a colls::error that names both ranks and the completion's status, and all
// go on as a group of their own. COLLS_TEST_TRIALS, COLLS_TEST_SEED. See execution plans/test-verbs: it needs a device.
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

/// Which of a process's requests is spoilt.
struct plot {
    fault how = fault::remote_key;
    std::uint64_t in = 0;  ///< requests from now; 0: none
    bool done = false;

    // Of a request that is spoilt all later ones are never made: the queue has failed.
    void spoil(std::vector<rdma::request>& chain, std::vector<rdma::gather>& gathers) {
        for (rdma::request& r : chain) {
            if (in == 0 || --in > 0) continue;
            if (how == fault::own_key && (r.inlined || r.count == 0)) {  // it has no use for its own key: the next one
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
plot& planned() {
    static plot p;
    return p;
}

class spoilt_queue final : public rdma::queue {
public:
    explicit spoilt_queue(std::unique_ptr<rdma::queue> q) : queue_(std::move(q)) {}
    rdma::queue_limits limits() const override { return queue_->limits(); }
    rdma::queue_name name() const override { return queue_->name(); }
    const char* connect(const rdma::queue_name& peer) override { return queue_->connect(peer); }
    const char* post(const rdma::request* chain, int count, const rdma::gather* gathers) override {
        std::vector<rdma::request> own(chain, chain + count);
        std::size_t used = 0;
        for (const rdma::request& r : own) used = std::max<std::size_t>(used, r.first + r.count);
        std::vector<rdma::gather> pieces(gathers, gathers + used);
        planned().spoil(own, pieces);
        return queue_->post(own.data(), count, pieces.data());
    }
    const char* receive(int count) override { return queue_->receive(count); }
    int poll(rdma::completion* into, int most) override { return queue_->poll(into, most); }

private:
    const std::unique_ptr<rdma::queue> queue_;
};

class spoilt_device final : public rdma::device {
public:
    explicit spoilt_device(const colls::detail::address& own) : device_(own) {}
    rdma::region add(std::byte* at, std::size_t bytes) override { return device_.add(at, bytes); }
    void drop(const rdma::region& r) noexcept override { device_.drop(r); }
    std::unique_ptr<rdma::queue> open(const rdma::queue_limits& wanted) override {
        return std::make_unique<spoilt_queue>(device_.open(wanted));
    }

private:
    rdma::verbs_device device_;
};

class spoilt_way final : public colls::net::inter_node_transport {
public:
    explicit spoilt_way(const colls::detail::address& own)
        : book_(std::make_shared<rdma::memory_book>(std::make_shared<spoilt_device>(own))) {}
    std::unique_ptr<colls::detail::message_transport> over(
        std::unique_ptr<colls::detail::message_transport> control, int rank, int size) override {
        return std::make_unique<colls::detail::verbs_transport>(std::move(control), book_, rank, size);
    }
    std::byte* take(std::size_t bytes) override { return book_->take(bytes); }
    void give(std::byte* at, std::size_t bytes) noexcept override { book_->give(at, bytes); }

private:
    const std::shared_ptr<rdma::memory_book> book_;
};

/// What a rank tells the test.
struct report {
    int code, peer, calls, wrong;
    bool spoilt, finished;
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
    const auto c = static_cast<what>(random.below(what_count));
    const judged_call call(c, n, has_root(c) ? random.between(0, n - 1) : 0, 8 + random.below(most), number);
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
    // What is small goes without the sender's own key.
    const std::size_t most = how == fault::own_key ? sizes[1 + random.below(3)] : sizes[random.below(4)];
    const bool allocated = random.one_in(2);
    const std::uint64_t from = random.below(6), in = 1 + random.below(12);
    // Some devices call the latter a protection error, soft-RoCE an operation error.
    const char* const status =
        how == fault::remote_key ? "ended with status: remote access error" : "ended with status: local ";
    std::memset(static_cast<void*>(&*reported()), 0, sizeof(group_report));
    const remains before;
    std::string wrong;
    try {
        colls::processes::run(n, [&](colls::communicator& comm) {
            alarm(400);  // a hang ends, later than by the library's own deadline, whose error says more
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
            mine.spoilt = planned().done;
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
    if (!reported()->of[culprit].spoilt) wrong += "no request was spoilt; ";
    for (int r = 0; r < n; ++r) {
        const report& got = reported()->of[r];
        const std::string who = "\n  rank " + std::to_string(r) + ": ";
        if (!got.finished) wrong += who + "did not come to its end";
        if (got.wrong > 0) wrong += who + std::to_string(got.wrong) + " wrong results";
        if (got.code != static_cast<int>(colls::errc::peer_failed))
            wrong += who + "the error's kind is " + std::to_string(got.code);
        // The queue of the one who asked has the status; its peer's may only know that the other end is broken, but is
        // told.
        if (const std::string missing = lacks(got.text, {status, me}); !missing.empty()) wrong += who + missing;
        if (got.later[0]) wrong += who + got.later;
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
    colls::net::open_verbs =
        [](int, const colls::detail::address& own) -> std::shared_ptr<colls::net::inter_node_transport> {
        return std::make_shared<spoilt_way>(own);
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

// What a span of memory cannot be registered for is said by name; what was asked for before stays as it was.
TEST_CASE("memory that the device cannot write is refused, by name and with what to do") {
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
TEST_CASE("a request with a key that the peer does not have") { trials("wrong key of the peer", fault::remote_key); }
TEST_CASE("a request with a key that the device does not have") { trials("wrong key of its own", fault::own_key); }
