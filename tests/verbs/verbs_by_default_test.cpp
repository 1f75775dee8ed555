// RDMA that nothing asks for: it is taken where all ranks have it and reach one another by it. The devices are TCP
// here; scripts/test-verbs has the same with real ones.
#include "catch.hpp"

#include "support/every_transport.hpp"
#include "support/fault.hpp"
#include "support/says.hpp"

#include <colls/bootstrap.hpp>
#include <colls/collectives.hpp>
#include <colls/net/detail/forming/host_group.hpp>
#include <colls/net/detail/node/trial.hpp>
#include <colls/operators.hpp>
#include <colls/transports/shm.hpp>

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

using namespace support;
namespace hosts = colls::detail::hosts;
using colls::detail::address;
using colls::extend::message_label;
using colls::extend::message_transport;
using colls::extend::piece;

namespace {

enum class fate { works, absent, no_device, mute, deaf, dies };

/// TCP in place of a device. `mute`: what this rank sends does not leave it; `deaf`: what is for it does not arrive.
class device_of_tcp final : public hosts::inter_node_transport {
public:
    explicit device_of_tcp(fate f) : fate_(f) {}
    std::unique_ptr<message_transport> over(std::unique_ptr<message_transport> control, int, int) override {
        ++groups;
        return control;
    }
    std::string try_out(std::unique_ptr<message_transport> control, int, int, const std::vector<int>& to,
        const std::vector<int>& from, double seconds) override {
        ++trials;
        if (fate_ == fate::dies) raise(SIGKILL);
        if (fate_ == fate::mute) return colls::detail::hosts::try_out(*control, {}, from, seconds);
        const std::string why = colls::detail::hosts::try_out(*control, to, from, seconds);
        // Not before what others expect of it has left.
        if (fate_ == fate::deaf && why.empty()) return colls::detail::hosts::try_out(*control, {}, {own_rank()}, 0.05);
        return why;
    }
    std::byte* take(std::size_t bytes) override { return new std::byte[bytes]; }
    void give(std::byte* at, std::size_t) noexcept override { delete[] at; }
    static int own_rank() { return rank; }

    static inline int groups = 0, trials = 0, opened = 0, rank = 0;

private:
    const fate fate_;
};

/// All processes of a group, as they exchange bytes.
class exchange_over_group final : public colls::member_exchange {
public:
    explicit exchange_over_group(colls::communicator& comm) : comm_(comm) {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        colls::all_gather(comm_, std::span(static_cast<const std::byte*>(own), bytes),
            std::span(static_cast<std::byte*>(all), bytes * static_cast<std::size_t>(comm_.size())));
    }

private:
    colls::communicator& comm_;
};

fate own_fate;

struct formed {
    std::string said;  ///< on stderr, by all ranks
    int groups = 0, trials = 0, opened = 0;
};

/// Forms a group of ranks whose devices have these fates, of which two at a time are on a host, and checks a call.
/// `variable`: COLLS_TRANSPORT; empty: not set.
formed form(const std::vector<fate>& fates, const char* variable, double timeout = 20, bool works = true,
    const char* debug = "info") {
    std::FILE* const output = std::tmpfile();
    REQUIRE(output != nullptr);
    common<std::atomic<int>[3]> counts;
    const auto body = [&](colls::communicator& processes) {
        const int rank = processes.rank();
        own_fate = fates[static_cast<std::size_t>(rank)];
        device_of_tcp::rank = rank;
        setenv("COLLS_HOST", ("host" + std::to_string(rank / 2)).c_str(), 1);
        setenv("COLLS_DEBUG", debug, 1);
        setenv("COLLS_TRANSPORT", variable, 1);
        if (own_fate != fate::absent)
            hosts::open_verbs = [](int r, const address&, int place) -> std::shared_ptr<hosts::inter_node_transport> {
                ++device_of_tcp::opened;
                if (place != r % 2) throw colls::error(colls::errc::unsupported, "colls: another place on its host", r);
                if (own_fate == fate::no_device)
                    throw colls::error(colls::errc::unsupported, "colls: no RDMA device", r);
                return std::make_shared<device_of_tcp>(own_fate);
            };
        dup2(fileno(output), 2);
        exchange_over_group exchange(processes);
        try {
            colls::communicator comm =
                colls::bootstrap(rank, processes.size(), exchange, {.interface_name = "lo", .timeout = timeout});
            for (const std::size_t count : {1u, 300'000u}) {
                std::vector<int> x(count, rank + 1);
                colls::all_reduce(comm, x, colls::sum);
                const int n = comm.size();
                expect(std::count(x.begin(), x.end(), n * (n + 1) / 2) == std::ssize(x), "all_reduce");
            }
            expect(works, "an error");
        } catch (const colls::error& e) {
            std::fprintf(stderr, "rank %d throws: %s\n", rank, e.what());
            if (works) throw;
        }
        (*counts)[0] += device_of_tcp::groups;
        (*counts)[1] += device_of_tcp::trials;
        (*counts)[2] += device_of_tcp::opened;
    };
    bool died = false;
    try {
        colls::processes::run(static_cast<int>(fates.size()), body);
    } catch (const colls::error& e) {
        INFO(e.what());
        died = true;
        CHECK(std::find(fates.begin(), fates.end(), fate::dies) != fates.end());
    }
    CHECK(died == (std::find(fates.begin(), fates.end(), fate::dies) != fates.end()));
    formed f{{}, (*counts)[0], (*counts)[1], (*counts)[2]};
    std::rewind(output);
    for (int c; (c = std::fgetc(output)) != EOF;) f.said += static_cast<char>(c);
    std::fclose(output);
    return f;
}

constexpr auto works = fate::works;

}  // namespace

TEST_CASE("RDMA is taken between hosts where all ranks can and nothing else is asked for", "[verbs]") {
    const formed f = form({works, works, works, works, works}, "");
    CHECK(lacks(f.said, {"5 ranks on 3 hosts, as bootstrap says: shared memory within hosts, between them RDMA\n"})
            .empty());
    CHECK(f.opened == 5);
    CHECK(f.trials == 5);
    CHECK(f.groups > 0);
}

TEST_CASE("RDMA is not tried where COLLS_TRANSPORT says otherwise, or on one host", "[verbs]") {
    for (const char* const transport : {"shm", "tcp"}) {
        const formed f = form({works, works, works, works}, transport);
        CHECK(says(f.said, "TCP\n"));
        CHECK(f.opened == 0);
    }
    const formed alone = form({works, works}, "");
    CHECK(says(alone.said, "2 ranks on 1 host, as bootstrap says: shared memory\n"));
    CHECK(alone.opened == 0);
    const formed asked = form({works, works, works}, "shm+verbs");
    CHECK(says(asked.said, "between them RDMA\n"));
    CHECK(asked.opened == 3);
    CHECK(asked.trials == 0);
}

TEST_CASE("where one rank cannot take RDMA, all take TCP, and the text says which rank, and why", "[verbs]") {
    for (const fate bad : {fate::absent, fate::no_device, fate::deaf})
        for (const int culprit : {0, 2, 4}) {
            std::vector<fate> fates(5, works);
            fates[static_cast<std::size_t>(culprit)] = bad;
            const formed f = form(fates, "");
            const std::string who = "rank " + std::to_string(culprit);
            INFO(static_cast<int>(bad) << ", " << who << ": " << f.said);
            CHECK(says(f.said, "between them TCP, since " + who + " cannot take RDMA\n"));
            CHECK(f.groups == 0);
            CHECK(f.trials == (bad == fate::deaf ? 5 : 0));
            CHECK(f.opened == (bad == fate::absent ? 0 : 5));
            if (bad == fate::no_device) CHECK(says(f.said, who + ": no RDMA between hosts: colls: no RDMA device\n"));
            if (bad == fate::deaf) CHECK(says(f.said, who + ": no RDMA between hosts: to rank "));
        }
}

TEST_CASE("a warning says so if a rank names a device, a port or an address that it cannot take", "[verbs]") {
    CHECK(form({works, works, fate::no_device}, "", 20, true, "warn").said.empty());
    for (const char* const name : {"COLLS_VERBS_DEVICE", "COLLS_VERBS_PORT", "COLLS_VERBS_GID"}) {
        setenv(name, "1", 1);
        const formed f = form({works, works, fate::no_device}, "", 20, true, "warn");
        unsetenv(name);
        CHECK(f.said == "colls: rank 2: no RDMA between hosts: colls: no RDMA device\n");
    }
}

TEST_CASE("a device whose messages do not arrive is found by the rank that waits for one", "[verbs]") {
    const formed f = form({works, fate::mute, works, works}, "");
    INFO(f.said);
    CHECK(says(f.said, "between them TCP, since rank 3 cannot take RDMA\n"));
    CHECK(says(f.said, "rank 3: no RDMA between hosts: to rank 1: no message passes between the devices\n"));
    CHECK(f.groups == 0);
}

TEST_CASE("all ranks without RDMA in their programs take TCP, and say nothing of RDMA", "[verbs]") {
    const formed f = form({fate::absent, fate::absent, fate::absent}, "");
    CHECK(says(f.said, "between them TCP\n"));
    CHECK(!says(f.said, "RDMA"));
}

TEST_CASE("a rank that dies in the trial ends the forming of all", "[verbs]") {
    const formed f = form({works, works, fate::dies, works}, "", 5, false);
    INFO(f.said);
    for (const int r : {0, 1, 3}) CHECK(says(f.said, "rank " + std::to_string(r) + " throws: colls: rank "));
    CHECK(f.groups == 0);
}
