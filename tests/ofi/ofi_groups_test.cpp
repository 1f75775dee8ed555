// Groups over libfabric that come from endpoints' handles, also between hosts alone, and what is left of them.
#include "catch.hpp"

#include "elastic/gathered.hpp"
#include "support/ports.hpp"

#include <colls/transports/ofi.hpp>

#include <csignal>
#include <string>
#include <vector>

namespace {
constexpr gathered::shape over_ofi[] = {{"ofi", "ofi", gathered::most}, {"hosts", "shm+ofi", 2}};
}  // namespace

// The first one: libfabric's settings are made once, where its processes have none from this one.
TEST_CASE("ofi: messages leave while their receiver makes no call, also where processes answer for COLLS_STATUS",
    "[ofi_groups]") {
    setenv("COLLS_OFI_PROVIDER", "tcp", 1);
    const support::claimed_ports port;
    gathered::processes all(2, over_ofi[0], [&](gathered::process& p) {
        setenv("COLLS_STATUS", std::to_string(port.first()).c_str(), 1);
        colls::communicator comm = colls::join(p.own, "shown", p.list({0, 1}));
        colls::barrier(comm);
        for (int k = 1; k < 4; ++k) {
            if (p.number == 1) p.wait(p.all.step[0], k);
            std::vector<int> x(5000, p.number);
            colls::broadcast(comm, x, 0);
            if (p.number == 0) ++p.all.step[0];
            gathered::expect(x == std::vector<int>(5000), "a broadcast");
        }
    });
    all.end_with_others();
    all.wait();
    for (int i = 0; i < 2; ++i) {
        INFO(all.text(i));
        CHECK(all.of(i).code == 0);
        CHECK(all.of(i).done == 1);
    }
}

TEST_CASE("ofi: groups of a process share its domain, and those of a GPU that has another one do not", "[ofi_groups]") {
    const auto of = [](const char* name, const char* gpu) {
        return colls::ofi::detail::ofi_between_hosts::of_process({.gpu = gpu, .name = name, .domain = nullptr});
    };
    const auto first = of("tcp", "");
    CHECK(first == of("udp", ""));
    CHECK(first == of("tcp", "0000:01:00.0"));
    CHECK(std::string(of("udp", "0000:01:00.0")->name()) == "udp;ofi_rxd");
    CHECK(first == of("udp", ""));
}

TEST_CASE("ofi: groups from handles of endpoints", "[ofi_groups]") {
    setenv("COLLS_OFI_PROVIDER", "tcp", 1);
    for (const gathered::shape& s : over_ofi)
        for (const int n : {2, 3, 5}) CHECK(gathered::joined_twice(n, s) == "");
}

TEST_CASE("ofi: the others of a group shrink it when one is killed, and take a new one in its place", "[ofi_groups]") {
    setenv("COLLS_OFI_PROVIDER", "tcp", 1);
    for (const gathered::shape& s : over_ofi)
        for (const int victim : {0, 2}) {
            gathered::processes all(5, s, [&](gathered::process& p) {
                std::vector<int> left;
                for (int i = 0; i < 4; ++i)
                    if (i != victim) left.push_back(i);
                if (p.number < 4) {
                    colls::communicator comm = colls::join(p.own, "first", p.list({0, 1, 2, 3}));
                    gathered::check_group(comm, {0, 1, 2, 3}, p.number);
                    bool failed = false;
                    try {
                        for (int i = 0;; ++i) {
                            if (p.number == victim && i == 5) raise(SIGKILL);
                            colls::barrier(comm);
                        }
                    } catch (const colls::error& x) {
                        failed = x.code() == colls::errc::peer_failed && x.peer() == victim;
                    }
                    gathered::expect(failed, "the error names the one that was killed");
                    colls::communicator rest = comm.shrink();
                    gathered::check_group(rest, left, p.number);
                }
                left.push_back(4);
                colls::communicator grown = colls::join(p.own, "second", p.list(left));
                gathered::check_group(grown, left, p.number);
            });
            all.end_with_others();
            all.wait();
            for (int i = 0; i < 5; ++i) {
                INFO(s.name << ", without " << victim << ": " << all.text(i));
                CHECK(all.of(i).code == 0);
                CHECK(all.of(i).done == (i != victim));
            }
        }
}
