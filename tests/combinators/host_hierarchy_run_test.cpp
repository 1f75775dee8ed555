// host_hierarchy in calls: on threads with given hosts, and in worlds whose hosts are of different sizes, where it is
// chosen, and made anew by split and shrink.
#include "catch.hpp"

#include "support/launch.hpp"
#include "support/random.hpp"

#include <colls/collectives.hpp>
#include <colls/detail/choose/explanation.hpp>
#include <colls/explain.hpp>
#include <colls/messages/detail/two_level_candidates.hpp>
#include <colls/schedules/circulant.hpp>
#include <colls/schedules/direct.hpp>
#include <colls/schedules/host_hierarchy.hpp>
#include <colls/schedules/tree.hpp>
#include <colls/world.hpp>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

using namespace colls;

namespace {

/// For ranks, which may be other processes: CHECK has no effect there.
void expect(bool right, const std::string& what) {
    if (!right) throw std::runtime_error(what);
}

/// Element i of rank r's buffer.
long element(int r, std::size_t i) { return (r + 1) * 100'000L + static_cast<long>(i % 977); }
std::vector<long> buffer_of(int r, std::size_t count) {
    std::vector<long> x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = element(r, i);
    return x;
}
/// Elements [first, first + count) of the sum of all ranks' buffers.
std::vector<long> sum_of(int n, std::size_t first, std::size_t count) {
    std::vector<long> sum(count);
    for (int r = 0; r < n; ++r)
        for (std::size_t i = 0; i < count; ++i) sum[i] += element(r, first + i);
    return sum;
}

/// Compares the calls of every collective that F provides with serial loops, by f or by its type, with that root.
template <class F, class... Value>
void check_calls(communicator& comm, int root, std::size_t count, const Value&... f) {
    const int n = comm.size(), rank = comm.rank();
    const auto own = block_of(count, n, rank);
    const std::string at = "root " + std::to_string(root) + ", count " + std::to_string(count) + ": ";
    std::vector<long> all;  // the blocks of all ranks' buffers that are their own
    for (int r = 0; r < n; ++r)
        for (std::size_t i = 0; i < block_of(count, n, r).size; ++i) all.push_back(element(r, i));
    if constexpr (provides<F, collective::all_reduce>) {
        std::vector<long> x = buffer_of(rank, count);
        all_reduce<F>(comm, x, sum, f...);
        expect(x == sum_of(n, 0, count), at + "all_reduce");
        barrier<F>(comm, f...);
    }
    if constexpr (provides<F, collective::reduce>) {
        std::vector<long> x(rank == root ? count : 0);
        reduce<F>(comm, buffer_of(rank, count), x, sum, root, f...);
        if (rank == root) expect(x == sum_of(n, 0, count), at + "reduce");
    }
    if constexpr (provides<F, collective::broadcast>) {
        std::vector<long> x = rank == root ? buffer_of(root, count) : std::vector<long>(count, -1);
        broadcast<F>(comm, x, root, f...);
        expect(x == buffer_of(root, count), at + "broadcast");
    }
    if constexpr (provides<F, collective::all_gather>) {
        std::vector<long> x(count, -1);
        all_gather<F>(comm, buffer_of(rank, own.size), x, f...);
        expect(x == all, at + "all_gather");
    }
    if constexpr (provides<F, collective::reduce_scatter>) {
        std::vector<long> x(own.size, -1);
        reduce_scatter<F>(comm, buffer_of(rank, count), x, sum, f...);
        expect(x == sum_of(n, own.offset, own.size), at + "reduce_scatter");
    }
    if constexpr (provides<F, collective::gather>) {
        std::vector<long> x(rank == root ? count : 0);
        gather<F>(comm, buffer_of(rank, own.size), x, root, f...);
        if (rank == root) expect(x == all, at + "gather");
    }
    if constexpr (provides<F, collective::scatter>) {
        const std::vector<long> from = rank == root ? buffer_of(root, count) : std::vector<long>();
        std::vector<long> x(own.size, -1);
        scatter<F>(comm, from, x, root, f...);
        const std::vector<long> whole = buffer_of(root, count);
        const auto first = whole.begin() + static_cast<std::ptrdiff_t>(own.offset);
        expect(x == std::vector<long>(first, first + static_cast<std::ptrdiff_t>(own.size)), at + "scatter");
    }
}

/// Runs f on ranks of a world, each on the host with its number in `host`.
template <class F>
void run_on_hosts(const std::vector<int>& host, F f) {
    support::launch_world(static_cast<int>(host.size()), 1, f,
        [&](int r) { setenv("COLLS_HOST", ("host " + std::to_string(host[static_cast<std::size_t>(r)])).c_str(), 1); });
}
bool names(const std::string& text, const std::string& name) { return text.find(name) != text.npos; }

/// x -> a x + b, modulo a prime: composition of such maps does not commute.
struct affine {
    long a, b;
    bool operator==(const affine&) const = default;
};
constexpr auto then = [](const affine& f, const affine& g) {
    return affine{f.a * g.a % 10'007, (f.b * g.a + g.b) % 10'007};
};
affine affine_of(int r, std::size_t i) { return {r + 2, static_cast<long>(i % 89) + 3 * r}; }

/// An all_reduce by a schedule, of an operator that does not commute.
template <class S>
bool folds_in_order(communicator& comm, std::size_t count) {
    std::vector<affine> x;
    for (std::size_t i = 0; i < count; ++i) x.push_back(affine_of(comm.rank(), i));
    all_reduce<S>(comm, x, then);
    for (std::size_t i = 0; i < count; ++i) {
        affine all = affine_of(0, i);
        for (int r = 1; r < comm.size(); ++r) all = then(all, affine_of(r, i));
        if (!(x[i] == all)) return false;
    }
    return true;
}

const std::vector<int> three_five_one{0, 0, 0, 1, 1, 1, 1, 1, 2}, interleaved{0, 1, 0, 1, 1, 2, 0, 1};

}  // namespace

TEST_CASE("host_hierarchy: calls on threads with given hosts have the results of serial loops") {
    for (const std::vector<int>& host : {three_five_one, interleaved, {0, 0, 0, 0, 1, 1, 1}, {3, 2, 1, 1}}) {
        const host_map hosts(host);
        CHECK_NOTHROW(threads::run(hosts.ranks(), [&](communicator& comm) {
            for (const std::size_t count : {1u, 13u, 1001u, 40'003u}) {
                if (!support::long_run && count == (comm.size() < 8 ? 40'003 : 13)) continue;
                for (const int lanes : {0, 1, 2})
                    for (const int root : {0, 1, comm.size() - 1}) {
                        using rings = host_hierarchy<circulant<>>;
                        using trees = host_hierarchy<tree<>>;
                        check_calls<rings>(comm, root, count, rings{.hosts = hosts, .lanes = lanes});
                        check_calls<trees>(comm, root, count, trees{.hosts = hosts, .lanes = lanes, .root = root});
                        // A schedule for another root is rotated.
                        check_calls<trees>(comm, root, count, trees{.hosts = hosts, .lanes = lanes, .root = 2});
                    }
            }
        }));
    }
}

TEST_CASE("host_hierarchy: a group that does not know its hosts takes it for one host") {
    CHECK_NOTHROW(threads::run(3, [&](communicator& comm) {
        check_calls<host_hierarchy<tree<>>>(comm, 2, 101);
        expect(folds_in_order<host_hierarchy<circulant<>>>(comm, 101), "in order");
    }));
}

TEST_CASE("host_hierarchy: a map of another group is refused with an error") {
    CHECK_NOTHROW(threads::run(4, [&](communicator& comm) {
        std::vector<long> x(10);
        try {
            all_reduce(comm, x, sum, host_hierarchy<circulant<>>{.hosts = host_map(three_five_one)});
        } catch (const error& e) {
            return expect(e.code() == errc::unsupported, e.what());
        }
        expect(false, "no error");
    }));
}

TEST_CASE("host_hierarchy: worlds of uneven and interleaved hosts know and weigh it, and calls are right") {
    if (support::sanitized_threads) return;
    for (const std::vector<int>& host : {three_five_one, interleaved})
        CHECK_NOTHROW(run_on_hosts(host, [&](communicator& comm) {
            expect(comm.context().layout.hosts == host_map(host), "the world's hosts");
            expect(comm.context().layout.hosts.ranks_per_host() == 0, "hosts are not alike");
            const std::string weighed = explain(comm, collective::all_reduce, 1 << 20);
            expect(names(weighed, "host_hierarchy<circulant>  ") && names(weighed, "host_hierarchy<circulant>, 1 lane"),
                "automatic weighs\n" + weighed);
            expect(names(explain(comm, collective::broadcast, 1 << 20), "host_hierarchy<tree>"), "of a broadcast");
            for (const std::size_t count : {1u, 1001u, 40'003u})
                for (const int root : {0, 4, comm.size() - 1}) {
                    check_calls<host_hierarchy<circulant<>>>(comm, root, count);
                    check_calls<host_hierarchy<tree<>>>(comm, root, count);
                    check_calls<direct>(comm, root, count);
                    check_calls<automatic>(comm, root, count);
                }
            // Groups within groups have hosts of their own.
            communicator odd = comm.split(comm.rank() % 2, comm.rank());
            std::vector<int> left;
            for (std::size_t r = static_cast<std::size_t>(comm.rank()) % 2; r < host.size(); r += 2)
                left.push_back(host[r]);
            expect(odd.context().layout.hosts == host_map(left), "hosts after split");
            check_calls<host_hierarchy<tree<>>>(odd, 1, 1001);
            communicator alone = comm.split(host[static_cast<std::size_t>(comm.rank())], comm.rank());
            expect(!alone.context().layout.hosts.known(), "a group of one host");
            check_calls<host_hierarchy<circulant<>>>(alone, 0, 1001);
        }));
}

TEST_CASE("host_hierarchy: an operator that does not commute is folded in rank order, or refused") {
    if (support::sanitized_threads) return;
    for (const bool in_order : {true, false})
        CHECK_NOTHROW(run_on_hosts(in_order ? three_five_one : interleaved, [&](communicator& comm) {
            expect(folds_in_order<automatic>(comm, 1001), "automatic");
            try {
                expect(folds_in_order<host_hierarchy<direct>>(comm, 1001), "hosts of consecutive ranks");
                expect(in_order, "no error where ranks are interleaved");
            } catch (const error& e) {
                expect(!in_order && names(e.what(), "does not keep the order of ranks"), e.what());
            }
        }));
}

TEST_CASE("host_hierarchy: shrink makes the hierarchy anew: 4 + 4 ranks that lose one are 4 + 3") {
    if (support::sanitized_threads) return;
    const std::vector<int> host{0, 0, 0, 0, 1, 1, 1, 1}, left{0, 0, 0, 0, 1, 1, 1};
    std::string ended;
    try {
        run_on_hosts(host, [&](communicator& comm) {
            expect(comm.context().layout.hosts.ranks_per_host() == 4, "equal hosts");
            expect(comm.context().layout.hosts == host_map(host), "the map of equal hosts");
            const std::string table = explain(comm, collective::all_reduce, 1 << 20);
            expect(names(table, "hierarchical<direct, circulant>"), "equal");
            // The second and the third of its four rounds cross. In each round of the ring some message does.
            const auto between = [&](const std::string& name) {
                const std::size_t at = table.find(name + " ");
                const std::string line = table.substr(at, table.find('\n', at) - at);
                std::istringstream words(line.substr(name.size()));
                std::string rounds, sent, chunk, us, far;
                words >> rounds >> sent >> chunk >> us >> far;
                return far;
            };
            expect(between("hierarchical<direct, circulant>") == "1-2", table);
            expect(between("ring") == "0-13", table);
            check_calls<automatic>(comm, 0, 1001);
            if (comm.rank() == 5) {
                barrier(comm);  // the first of the others'
                raise(SIGKILL);
            }
            bool failed = false;
            try {
                for (int i = 0; i < 1'000'000; ++i) barrier(comm);
            } catch (const error&) {
                failed = true;
            }
            expect(failed, "no rank noticed");
            communicator rest = comm.shrink();
            expect(rest.size() == 7, "size");
            expect(rest.context().layout.hosts == host_map(left) && rest.context().layout.hosts.ranks_per_host() == 0,
                "hosts after shrink");
            const std::string weighed = explain(rest, collective::all_reduce, 1 << 20);
            expect(names(weighed, "host_hierarchy<circulant>"), weighed);
            for (const int root : {0, 5}) {
                check_calls<automatic>(rest, root, 40'003);
                check_calls<host_hierarchy<circulant<>>>(rest, root, 1001);
                check_calls<host_hierarchy<tree<>>>(rest, root, 1001);
            }
        });
    } catch (const std::exception& e) {
        ended = e.what();
    }
    CHECK(ended == "1 ranks of a world failed");  // the one that was killed
}

namespace {

/// Knows figures, and nothing else.
struct figures_alone final : detail::group_backend {
    detail::machine m;
    explicit figures_alone(const detail::machine& x) : m(x) {}
    const detail::machine& figures() override { return m; }
    std::byte* take(std::size_t) override { throw std::bad_alloc(); }
    void give(std::byte*, std::size_t) noexcept override {}
    std::uint64_t create(int) override { return 0; }
    std::unique_ptr<detail::rank_context> attach(
        detail::rank_context&, std::uint64_t, int, const detail::list<int>&) override {
        return nullptr;
    }
    void discard(std::uint64_t, int) override {}
    std::unique_ptr<detail::rank_context> shrink(detail::rank_context&) override { return nullptr; }
    std::unique_ptr<detail::pending> make_collective(detail::rank_context&) override { return nullptr; }
    std::unique_ptr<detail::pending> make_message(detail::rank_context&) override { return nullptr; }
    bool announced(detail::rank_context&, int) override { return false; }
};

}  // namespace

TEST_CASE("automatic: takes host_hierarchy on uneven hosts with a core for each rank, and begins at the root's host") {
    std::vector<int> host;
    for (const int size : {8, 7, 8, 5}) host.insert(host.end(), static_cast<std::size_t>(size), size == 7 ? 1 : 0);
    for (std::size_t r = 15; r < host.size(); ++r) host[r] = r < 23 ? 2 : 3;
    const detail::machine net{.alpha = 5e-6, .beta = 3e-10, .gamma = 1e-10, .cores = 1 << 20, .message = 3e-6};
    const int n = static_cast<int>(host.size());
    detail::rank_context e(0, n, detail::group_memory(), std::make_shared<figures_alone>(net));
    e.by_messages = true;
    e.layout.hosts = host_map(host);
    e.layout.two_levels = &detail::two_level_candidates_on;
    const auto chosen = [&](collective what, std::size_t bytes, int root = 0) {
        detail::demand d = detail::demand_of(e, what, bytes, false);
        d.root = root;
        return *detail::choose(e, d, detail::all_candidates_of(what)).of;
    };
    for (const std::size_t bytes : {std::size_t{1000}, std::size_t{1} << 20, std::size_t{64} << 20}) {
        INFO(bytes);
        CHECK(chosen(collective::all_reduce, bytes).name.starts_with("host_hierarchy<circulant>"));
        CHECK(chosen(collective::reduce_scatter, bytes).name == "host_hierarchy<circulant>");
    }
    CHECK(chosen(collective::all_reduce, 64 << 20).name == "host_hierarchy<circulant>");
    CHECK(chosen(collective::barrier, 0).name.starts_with("host_hierarchy"));
    const auto broadcast = chosen(collective::broadcast, 4096, 20);
    CHECK(broadcast.name.starts_with("host_hierarchy<tree>"));
    CHECK(broadcast.schedule.root(n) == 20);
    CHECK(chosen(collective::broadcast, 4096, 3).schedule.root(n) == 3);
    // It keeps off operators that do not commute, as all schedules but direct do.
    detail::demand ordered = detail::demand_of(e, collective::all_reduce, 1 << 20, false);
    ordered.in_order = true;
    CHECK(detail::choose(e, ordered, detail::all_candidates_of(collective::all_reduce)).of->name == "direct");
}
