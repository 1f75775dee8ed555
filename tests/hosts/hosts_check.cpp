// One rank of a world on several hosts. The script `check` makes the hosts and starts the ranks.
//
// hosts_check suite SEED CALLS PER_HOST [SIZES]
//     Runs the differential suite. PER_HOST is the number of ranks per host that the world must have found; 0 if it is
//     to find one host, or hosts that are not alike. SIZES, such as 3,5,1, are the ranks of each host. Rank 0 prints
//     how many calls were checked.
// hosts_check lost SEED cut|killed FIRST LAST FOLDER
//     Calls back to back until ranks FIRST to LAST, which are those of one host, are cut off or killed; then shrinks
//     the group. Each rank writes a file into FOLDER when its calls are under way.
//
// The exit status is 0 if all was right.
#include "../mpi/calls.hpp"

#include "support/random.hpp"

#include <colls/colls.hpp>
#include <colls/detail/group/backoff.hpp>
#include <colls/explain.hpp>
#include <colls/world.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace {

using mpi_tests::tally;
using two_level = colls::hierarchical<colls::direct, colls::ring>;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Element i of rank r's input.
long element(int r, std::size_t i) { return (r + 1) * 1000L + static_cast<long>(i % 977); }
std::vector<long> input(int r, std::size_t count) {
    std::vector<long> v(count);
    for (std::size_t i = 0; i < count; ++i) v[i] = element(r, i);
    return v;
}
long sum_of(int n, std::size_t i) {
    long sum = 0;
    for (int r = 0; r < n; ++r) sum += element(r, i);
    return sum;
}

/// Makes call number `which`, the same on all ranks, by schedule S. Returns whether the result is right.
template <class S>
bool call(colls::communicator& comm, int which, int root, std::size_t count) {
    const int n = comm.size(), rank = comm.rank();
    const auto ranks = static_cast<std::size_t>(n);
    const auto own = static_cast<std::size_t>(rank);
    bool right = true;
    switch (which) {
        case 0: {
            std::vector<long> x = input(rank, count);
            colls::all_reduce<S>(comm, x, colls::sum);
            for (std::size_t i = 0; i < count; ++i) right = right && x[i] == sum_of(n, i);
            break;
        }
        case 1: {
            std::vector<long> x = rank == root ? input(root, count) : std::vector<long>(count, -1);
            colls::broadcast<S>(comm, x, root);
            right = x == input(root, count);
            break;
        }
        case 2: {
            std::vector<long> all(count * ranks, -1);
            colls::all_gather<S>(comm, input(rank, count), all);
            for (std::size_t i = 0; i < all.size(); ++i)
                right = right && all[i] == element(static_cast<int>(i / count), i % count);
            break;
        }
        default: {
            std::vector<long> part(count, -1);
            colls::reduce_scatter<S>(comm, input(rank, count * ranks), part, colls::sum);
            for (std::size_t i = 0; i < count; ++i) right = right && part[i] == sum_of(n, own * count + i);
        }
    }
    return right;
}
constexpr int kinds = 4;

/// Returns whether all ranks have the same bytes as rank 0.
bool same_everywhere(colls::communicator& comm, std::span<const std::byte> own) {
    std::vector<std::byte> first(own.begin(), own.end());
    colls::broadcast<colls::direct>(comm, first, 0);
    return std::equal(own.begin(), own.end(), first.begin());
}

/// "3,5,1": how many ranks each host has, by its lowest rank; empty where the group does not know.
std::string sizes_of(const colls::host_map& hosts) {
    std::string text;
    for (int h = 0; h < hosts.hosts(); ++h) text += (h > 0 ? "," : "") + std::to_string(hosts.size_of(h));
    return text;
}

/// `sizes`: of the hosts, which the world must have found; null: not asked.
int suite(std::uint64_t seed, std::uint64_t calls, int per_host, const std::string* sizes) {
    colls::communicator comm = colls::world();
    tally t;
    t.rank = comm.rank();
    const int found = comm.context().layout.hosts.ranks_per_host();
    t.check(found == per_host,
        "the world has found " + std::to_string(found) + " ranks a host, not " + std::to_string(per_host));
    const std::string weighed = colls::explain(comm, colls::collective::all_reduce, 1 << 20);
    t.check((weighed.find("hierarchical") != weighed.npos) == (per_host > 0), "automatic weighs\n" + weighed);
    const bool uneven = per_host == 0 && comm.context().layout.hosts.known();
    t.check((weighed.find("host_hierarchy") != weighed.npos) == uneven, "automatic weighs\n" + weighed);
    if (sizes)
        t.check(sizes_of(comm.context().layout.hosts) == *sizes, "hosts of " + sizes_of(comm.context().layout.hosts));
    mpi_tests::works(comm, t);
    mpi_tests::random_calls(comm, seed, calls, {[] {}, [] {}, [&](auto own) { return same_everywhere(comm, own); }}, t);
    mpi_tests::messages(comm, seed, t);
    mpi_tests::exact_bits(comm, seed, t);
    mpi_tests::splits(comm, seed, t);
    mpi_tests::several_threads(comm, t);
    for (const std::size_t count : {1u, 7u, 512u, 4099u, 100'003u})
        for (int which = 0; which < kinds; ++which)
            for (int root = 0; root < (which == 1 ? comm.size() : 1); ++root) {
                const bool right = per_host > 0 ? call<two_level>(comm, which, root, count)
                                   : uneven     ? call<colls::host_hierarchy<colls::ring>>(comm, which, root, count)
                                                : call<colls::automatic>(comm, which, root, count);
                t.check(right, "two levels, call " + std::to_string(which) + ", root " + std::to_string(root) +
                                   ", count " + std::to_string(count));
            }
    unsigned long long all[2] = {t.checked, t.wrong};
    colls::all_reduce(comm, all, colls::sum);
    if (comm.rank() == 0)
        std::printf("hosts_check: seed %llu, %d ranks, %llu calls checked, %llu wrong\n",
            static_cast<unsigned long long>(seed), comm.size(), all[0], all[1]);
    return all[1] == 0 ? 0 : 1;
}

/// Returns whether the text names one of the ranks `first` to `last`, apart from its opening, which names `speaker`.
bool names(std::string_view text, int first, int last, int speaker) {
    const std::string opening = "colls: rank " + std::to_string(speaker);
    if (text.starts_with(opening)) text.remove_prefix(opening.size());
    for (std::size_t at = text.find("rank "); at != text.npos; at = text.find("rank ", at + 1)) {
        const int r = std::atoi(std::string(text.substr(at + 5, 8)).c_str());
        if (r >= first && r <= last) return true;
    }
    return false;
}

int lost(std::uint64_t seed, bool cut, int first, int last, const std::string& folder) {
    colls::communicator comm = colls::world();
    const int n = comm.size(), rank = comm.rank(), left = n - (last - first + 1);
    const bool beyond = rank >= first && rank <= last;
    tally t;
    t.rank = rank;
    support::random_source random = support::stream(seed, 3);
    const double begun = now();
    double called = begun, failed = 0;
    std::string text;
    colls::errc code{};
    int peer = colls::none;
    for (int done = 0; failed == 0; ++done) {
        if (done == 40) std::ofstream(folder + "/" + std::to_string(rank)) << "under way\n";
        const int which = random.between(0, kinds - 1), root = random.between(0, n - 1), by = random.between(0, 3);
        const std::size_t count = 1 + random.below(random.one_in(4) ? 30'000 : 300);
        called = now();
        try {
            const bool right = by == 0   ? call<two_level>(comm, which, root, count)
                               : by == 1 ? call<colls::ring>(comm, which, root, count)
                               : by == 2 ? call<colls::direct>(comm, which, root, count)
                                         : call<colls::automatic>(comm, which, root, count);
            t.check(right, "call " + std::to_string(done) + ", before any fault was seen");
        } catch (const colls::error& e) {
            failed = now();
            text = e.what();
            code = e.code();
            peer = e.peer();
        }
        if (failed == 0 && called > begun + 200) {
            t.check(false, "no error in 200 seconds");
            return 1;
        }
    }
    const double waited = failed - called;
    std::printf("rank %d: after %.2f s, peer %d: %s\n", rank, waited, peer, text.c_str());
    t.check(code == colls::errc::timeout || code == colls::errc::peer_failed,
        "the error's kind is " + std::to_string(static_cast<int>(code)));
    // The ranks that are cut off see the others as lost.
    t.check(
        beyond ? names(text, 0, first - 1, rank) || names(text, last + 1, n - 1, rank) : names(text, first, last, rank),
        "the text names no lost rank: " + text);
    // A dead rank is found without the deadline, which here is far away.
    if (!cut)
        t.check(code == colls::errc::peer_failed, "the error's kind is " + std::to_string(static_cast<int>(code)));
    std::fflush(stdout);

    std::string refused;
    try {
        colls::communicator rest = comm.shrink();
        t.check(!beyond, "cut off from most of the group, and yet it shrinks");
        t.check(rest.size() == left, "shrunk to " + std::to_string(rest.size()) + " of " + std::to_string(left));
        t.check(rest.rank() == (rank > last ? rank - (last - first + 1) : rank),
            "rank " + std::to_string(rest.rank()) + " in the new group");
        for (const std::size_t count : {1u, 300u, 20'000u})
            for (int which = 0; which < kinds; ++which) {
                t.check(call<colls::automatic>(rest, which, left - 1, count), "a call after shrink");
                t.check(call<two_level>(rest, which, 0, count), "a call on two levels after shrink");
            }
        std::printf("rank %d: shrunk to %d after %.2f s\n", rank, rest.size(), now() - failed);
    } catch (const colls::error& e) {
        refused = e.what();
        std::printf("rank %d: shrink, after %.2f s: %s\n", rank, now() - failed, e.what());
    }
    t.check(beyond == !refused.empty(), "shrink: " + refused);
    if (beyond) t.check(refused.find("not a majority") != std::string::npos, "shrink does not say why: " + refused);
    return t.wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view mode = argc > 1 ? argv[1] : "";
    try {
        const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 1;
        if (mode == "suite" && (argc == 5 || argc == 6)) {
            const std::string sizes = argc == 6 ? argv[5] : "";
            return suite(seed, std::strtoull(argv[3], nullptr, 0), std::atoi(argv[4]), argc == 6 ? &sizes : nullptr);
        }
        if (mode == "lost" && argc == 7)
            return lost(seed, std::string_view(argv[3]) == "cut", std::atoi(argv[4]), std::atoi(argv[5]), argv[6]);
    } catch (const std::exception& e) {
        std::printf("failed: %s\n", e.what());
        return 1;
    }
    std::printf("usage: %s suite SEED CALLS PER_HOST [SIZES] | lost SEED cut|killed FIRST LAST FOLDER\n", argv[0]);
    return 2;
}
