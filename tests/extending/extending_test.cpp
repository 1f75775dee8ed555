// The examples of docs/extending.md: a schedule, a family, a combinator, operators and a memory group, written as a
// program writes them, from public headers alone. (The message transport is in support/own_transport.hpp.)
#include "catch.hpp"

#include <colls/colls.hpp>
#include <colls/extend/memory_group.hpp>
#include <colls/testing/schedule.hpp>
#include <colls/testing/transport.hpp>
#include <colls/transports/threads.hpp>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace {

namespace extend = colls::extend;

// example-begin schedule
/// Reduce to rank 0 along the chain n - 1, n - 2, ..., 0. Rounds: n - 1; each rank but the root sends everything once.
struct chain_reduce {
    static constexpr colls::collective implements = colls::collective::reduce;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr colls::step at(int rank, int n, int round) {
        const int sender = n - 1 - round;
        if (rank == sender) return {.send = {rank - 1, colls::block(0)}};
        if (rank == sender - 1) return {.recv = {rank + 1, colls::block(0), colls::action::reduce}};
        return {};
    }
};
static_assert(colls::prove<chain_reduce, 16>());
static_assert(colls::properties_of(chain_reduce{}, 16).order_preserving);  // also for operators that do not commute
// example-end

// example-begin several_blocks
/// All_gather: before round k rank r has the 2^k blocks from its own on, and gets those that follow from rank r + 2^k.
/// Rounds: ceil(log2 n); each rank sends n - 1 blocks, in one message a round; any n.
struct doubling_all_gather {
    static constexpr colls::collective implements = colls::collective::all_gather;
    static constexpr int rounds(int n) { return colls::log2_ceil(n); }
    static constexpr colls::step at(int rank, int n, int round) {
        const int have = 1 << round, count = have < n - have ? have : n - have;  // the last round may lack fewer
        return {.send = {colls::mod(rank - have, n), colls::block_range(rank, count, n)},
            .recv = {colls::mod(rank + have, n), colls::block_range(rank + have, count, n)}};
    }
};
static_assert(colls::prove<doubling_all_gather, 16>());
static_assert(colls::cost_of<doubling_all_gather>(13).rounds == 4);
static_assert(colls::cost_of<doubling_all_gather>(13).blocks_sent == 12);

/// Every fourth of 16 blocks, from block 1 on: 1, 5, 9, 13.
constexpr colls::block_set every_fourth{.first = 1, .count = 4, .period = 4};
static_assert(every_fourth.size() == 4 && every_fourth[1] == 5 && every_fourth[3] == 13);
// example-end

// example-begin family
/// Pairwise exchange: in round k rank r sends to rank r + k + 1 the block of that rank. Rounds: n - 1; any n.
struct pairwise {
    struct reduce_scatter {
        static constexpr colls::collective implements = colls::collective::reduce_scatter;
        static constexpr int rounds(int n) { return n - 1; }
        static constexpr colls::step at(int rank, int n, int round) {
            const int to = colls::mod(rank + round + 1, n), from = colls::mod(rank - round - 1, n);
            return {.send = {to, colls::block(to)}, .recv = {from, colls::block(rank), colls::action::reduce}};
        }
    };
    using reduce = chain_reduce;
};
static_assert(colls::prove<pairwise, 16>());  // what it names, and all that is derived from that
static_assert(colls::provides<pairwise, colls::collective::all_reduce>);       // reduce_scatter, then its reverse
static_assert(colls::provides<pairwise, colls::collective::broadcast>);        // the reverse of reduce
static_assert(!colls::provides<pairwise, colls::collective::inclusive_scan>);  // a call of it does not compile
// example-end

// example-begin combinator
/// S, an all_reduce, with rank r in the place of rank n - 1 - r.
/// Law: the step of rank r is S's step of rank n - 1 - r, with every peer p replaced by n - 1 - p; so rounds, ports and
/// blocks are those of S, and mirrored<mirrored<S>> has the steps of S.
template <colls::schedule S>
struct mirrored {
    static_assert(colls::implemented_by<S> == colls::collective::all_reduce, "mirrored<S>: S must be an all_reduce");
    S inner{};

    static constexpr colls::collective implements = colls::collective::all_reduce;
    constexpr int rounds(int n) const { return inner.rounds(n); }
    constexpr int blocks(int n) const { return colls::blocks_of(inner, n); }
    constexpr int ports(int n) const { return colls::ports_of(inner, n); }
    constexpr int scratch(int n) const { return colls::scratch_of(inner, n); }
    constexpr bool supports(int n) const { return colls::supports(inner, n); }
    constexpr colls::step at(int rank, int n, int round, int port) const {
        colls::step s = colls::step_of(inner, n - 1 - rank, n, round, port);
        if (s.send.peer != colls::none) s.send.peer = n - 1 - s.send.peer;
        if (s.recv.peer != colls::none) s.recv.peer = n - 1 - s.recv.peer;
        return s;
    }
};
using mirrored_pairwise = mirrored<colls::schedule_for<pairwise, colls::collective::all_reduce>>;
static_assert(colls::prove<mirrored_pairwise, 16>());
// example-end

// example-begin operator
/// The root mean square of all ranks' contributions.
struct root_mean_square {
    static constexpr bool commutative = true, pure = true;
    template <class T>
    constexpr T leaf(T x) const {
        return x * x;
    }
    template <class T>
    constexpr T operator()(T a, T b) const {
        return a + b;
    }
    template <class T>
    T finish(T x, int n) const {
        return std::sqrt(x / static_cast<T>(n));
    }
};
static_assert(colls::operator_on<root_mean_square, double> && colls::is_commutative<root_mean_square>);
// example-end

/// The map x -> a x + b, and "first f, then g": associative, not commutative, and so without the member `commutative`.
struct linear_map {
    std::uint32_t a, b;
    friend bool operator==(const linear_map&, const linear_map&) = default;
};
struct after {
    constexpr linear_map operator()(const linear_map& f, const linear_map& g) const {
        return {g.a * f.a, g.a * f.b + g.b};
    }
};
static_assert(colls::operator_on<after, linear_map> && !colls::is_commutative<after, linear_map>);

// example-begin memory_group
/// Threads that share memory. One object serves all ranks of a group; each rank's communicator keeps it alive.
class thread_group : public extend::memory_group {
public:
    explicit thread_group(int size) : control_(allocate(extend::control_bytes(size))) {
        std::memset(control_, 0, extend::control_bytes(size));
    }
    ~thread_group() override { deallocate(control_, 0); }

    /// What each rank brings into the group.
    static extend::memory_member member_of(const std::shared_ptr<thread_group>& g) {
        extend::memory_member m;
        m.group = g;
        m.control = g->control_;
        m.crowded = true;
        m.number = reinterpret_cast<std::uintptr_t>(g.get());
        return m;
    }

    // A place is a heap object: the new group, and how many members have still to join it.
    std::uint64_t create(int size) override {
        return reinterpret_cast<std::uintptr_t>(new place{{size}, std::make_shared<thread_group>(size)});
    }
    extend::memory_member join(const extend::formation& f) override {
        auto* const at = reinterpret_cast<place*>(f.place);
        const extend::memory_member m = member_of(at->group);
        if (--at->missing == 0) delete at;
        return m;
    }
    void discard(std::uint64_t unused, int) override { delete reinterpret_cast<place*>(unused); }

    const extend::machine& figures() const override {
        static const extend::machine m{.alpha = 4e-7, .beta = 1e-10, .gamma = 1.5e-10, .cores = 4};
        return m;
    }
    std::byte* allocate(std::size_t bytes) override { return static_cast<std::byte*>(operator new(bytes, align)); }
    void deallocate(std::byte* at, std::size_t) noexcept override { operator delete(at, align); }

private:
    static constexpr std::align_val_t align{128};
    struct place {
        std::atomic<int> missing;
        std::shared_ptr<thread_group> group;
    };
    std::byte* const control_;
};
// example-end

using rank_function = std::function<void(colls::communicator&)>;

/// Calls f on n threads. The exception that the first rank to fail threw comes out at the end. `as_processes`: their
/// address space is said to be a mapping that processes share.
void run_threads(int n, const rank_function& f, bool as_processes = false) {
    const auto group = std::make_shared<thread_group>(n);
    std::mutex mutex;
    std::exception_ptr first;
    std::vector<std::thread> ranks;
    for (int r = 0; r < n; ++r)
        ranks.emplace_back([&, r] {
            extend::memory_member m = thread_group::member_of(group);
            if (as_processes) {
                m.base = reinterpret_cast<std::byte*>(128);
                m.bytes = SIZE_MAX / 2;
            }
            colls::communicator comm = extend::join(std::move(m), r, n);
            try {
                f(comm);
            } catch (const std::exception& e) {
                {
                    const std::lock_guard lock(mutex);
                    if (!first) first = std::current_exception();
                }
                comm.abort(e.what());  // the calls of all other ranks throw colls::error
            }
        });
    for (std::thread& t : ranks) t.join();
    if (first) std::rethrow_exception(first);
}

constexpr int group_sizes[] = {1, 2, 3, 5, 7, 12};
constexpr std::size_t counts[] = {0, 1, 2, 11, 1000, 30'011};

std::uint32_t element(int rank, std::size_t i) {
    return static_cast<std::uint32_t>(i * 2654435761u) + 77u * static_cast<std::uint32_t>(rank);
}

std::vector<std::uint32_t> contribution(int rank, std::size_t count) {
    std::vector<std::uint32_t> x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = element(rank, i);
    return x;
}
std::vector<std::uint32_t> sum_of(int n, std::size_t count) {
    std::vector<std::uint32_t> x(count);
    for (int r = 0; r < n; ++r)
        for (std::size_t i = 0; i < count; ++i) x[i] += element(r, i);
    return x;
}
template <class T>
std::vector<T> block_of(const std::vector<T>& x, int n, int rank) {
    const auto b = colls::block_of(x.size(), n, rank);
    const auto first = x.begin() + static_cast<std::ptrdiff_t>(b.offset);
    return {first, first + static_cast<std::ptrdiff_t>(b.size)};
}

/// Calls f(comm, count), which says whether rank comm.rank() has the right result, on each size of group and buffer.
template <class F>
void on_all_ranks(F f) {
    for (const int n : group_sizes)
        for (const std::size_t count : counts) {
            std::vector<char> right(static_cast<std::size_t>(n));
            colls::threads::run(
                n, [&](colls::communicator& comm) { right[static_cast<std::size_t>(comm.rank())] = f(comm, count); });
            for (int r = 0; r < n; ++r) {
                INFO("rank " << r << " of " << n << ", " << count << " elements");
                CHECK(right[static_cast<std::size_t>(r)]);
            }
        }
}

/// The map of rank r, and of ranks 0 to n - 1 one after the other.
linear_map map_of(int rank, std::size_t i) { return {element(rank, i) | 1u, element(rank, i + 1)}; }
std::vector<linear_map> maps_of(int rank, std::size_t count) {
    std::vector<linear_map> x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = map_of(rank, i);
    return x;
}
std::vector<linear_map> all_maps(int n, std::size_t count) {
    std::vector<linear_map> x = maps_of(0, count);
    for (int r = 1; r < n; ++r)
        for (std::size_t i = 0; i < count; ++i) x[i] = after{}(x[i], map_of(r, i));
    return x;
}

/// Whether mirrored<S> keeps its law in groups of 1 to 33 ranks. (Not a lambda: g++ tries to evaluate the call of a
/// lambda while it compiles, here for a minute and a half.)
template <class S>
bool mirror_law_holds(S inner) {
    const mirrored<S> m{inner};
    const mirrored<mirrored<S>> twice{m};
    const auto mirror_peers = [](colls::step s, int n) {
        if (s.send.peer != colls::none) s.send.peer = n - 1 - s.send.peer;
        if (s.recv.peer != colls::none) s.recv.peer = n - 1 - s.recv.peer;
        return s;
    };
    const auto same = [](const colls::step& a, const colls::step& b) {
        return a.send.peer == b.send.peer && a.send.blocks == b.send.blocks && a.recv.peer == b.recv.peer &&
               a.recv.blocks == b.recv.blocks && a.recv.action == b.recv.action;
    };
    for (int n = 1; n <= 33; ++n) {
        const colls::cost a = colls::cost_of(inner, n), b = colls::cost_of(m, n);
        if (a.rounds != b.rounds || a.ports != b.ports || a.blocks_sent != b.blocks_sent) return false;
        for (int r = 0; r < n; ++r)
            for (int k = 0; k < a.rounds; ++k)
                for (int p = 0; p < a.ports; ++p) {
                    const colls::step s = colls::step_of(inner, r, n, k, p);
                    if (!same(colls::step_of(m, n - 1 - r, n, k, p), mirror_peers(s, n))) return false;
                    if (!same(colls::step_of(twice, r, n, k, p), s)) return false;
                }
        if (!colls::verify(m, n).ok()) return false;
    }
    return true;
}

}  // namespace

TEST_CASE("a schedule of one's own: passes the kit, and reduces in rank order", "[extending]") {
    // example-begin check_schedule
    const colls::testing::result result = colls::testing::check_schedule<chain_reduce>(64);
    INFO(result.text);
    CHECK(result.ok);
    // example-end
    CHECK(result.sizes == 64);

    on_all_ranks([](colls::communicator& comm, std::size_t count) {
        const int root = comm.size() / 2;
        std::vector<std::uint32_t> out(comm.rank() == root ? count : 0);
        colls::reduce<chain_reduce>(comm, contribution(comm.rank(), count), out, colls::sum, root);
        return comm.rank() != root || out == sum_of(comm.size(), count);
    });
    on_all_ranks([](colls::communicator& comm, std::size_t count) {
        std::vector<linear_map> out(comm.rank() == 0 ? count : 0);
        colls::reduce<chain_reduce>(comm, maps_of(comm.rank(), count), out, after{}, 0);
        return comm.rank() != 0 || out == all_maps(comm.size(), count);
    });
}

TEST_CASE("a schedule that sends several blocks at once: passes the kit, and gathers all of them", "[extending]") {
    const colls::testing::result result = colls::testing::check_schedule<doubling_all_gather>(64);
    INFO(result.text);
    CHECK(result.ok);

    on_all_ranks([](colls::communicator& comm, std::size_t count) {
        const std::vector<std::uint32_t> all = sum_of(comm.size(), count);
        std::vector<std::uint32_t> gathered(count);
        colls::all_gather<doubling_all_gather>(comm, block_of(all, comm.size(), comm.rank()), gathered);
        return gathered == all;
    });
}

TEST_CASE("a family of one's own: its schedules, and those that are derived, give the serial results", "[extending]") {
    const colls::testing::result named = colls::testing::check_schedule<pairwise::reduce_scatter>(32);
    INFO(named.text);
    CHECK(named.ok);
    const auto derived =
        colls::testing::check_schedule<colls::schedule_for<pairwise, colls::collective::all_reduce>>(32);
    INFO(derived.text);
    CHECK(derived.ok);
    CHECK(colls::cost_of<pairwise::reduce_scatter>(12).rounds == 11);
    CHECK(colls::cost_of<pairwise::reduce_scatter>(12).blocks_sent == 11);

    on_all_ranks([](colls::communicator& comm, std::size_t count) {
        std::vector<std::uint32_t> x = contribution(comm.rank(), count);
        // example-begin family_call
        colls::all_reduce<pairwise>(comm, x, colls::sum);
        // example-end
        return x == sum_of(comm.size(), count);
    });
    on_all_ranks([](colls::communicator& comm, std::size_t count) {
        const std::vector<std::uint32_t> all = sum_of(comm.size(), count);
        std::vector<std::uint32_t> own(block_of(all, comm.size(), comm.rank()).size());
        colls::reduce_scatter<pairwise>(comm, contribution(comm.rank(), count), own, colls::sum);
        if (own != block_of(all, comm.size(), comm.rank())) return false;
        std::vector<std::uint32_t> gathered(count);
        colls::all_gather<pairwise>(comm, own, gathered);
        return gathered == all;
    });
    on_all_ranks([](colls::communicator& comm, std::size_t count) {
        const int root = comm.size() - 1;
        std::vector<std::uint32_t> x = comm.rank() == root ? contribution(9, count) : std::vector<std::uint32_t>(count);
        colls::broadcast<pairwise>(comm, x, root);
        return x == contribution(9, count);
    });
}

TEST_CASE("a combinator of one's own: its law holds, and its all_reduce gives the serial result", "[extending]") {
    using pairwise_all_reduce = colls::schedule_for<pairwise, colls::collective::all_reduce>;
    using ring_all_reduce = colls::schedule_for<colls::ring, colls::collective::all_reduce>;
    using one_shot = colls::one_shot::all_reduce;

    CHECK(mirror_law_holds(pairwise_all_reduce{}));
    CHECK(mirror_law_holds(ring_all_reduce{}));
    CHECK(mirror_law_holds(one_shot{}));

    on_all_ranks([](colls::communicator& comm, std::size_t count) {
        std::vector<std::uint32_t> x = contribution(comm.rank(), count), y = x;
        colls::all_reduce<mirrored_pairwise>(comm, x, colls::sum);
        colls::all_reduce<mirrored<ring_all_reduce>>(comm, y, colls::sum);
        return x == sum_of(comm.size(), count) && y == x;
    });
}

TEST_CASE("an operator of one's own: leaf and finish are applied once to each contribution and result", "[extending]") {
    on_all_ranks([](colls::communicator& comm, std::size_t count) {
        const auto value = [](int rank, std::size_t i) {
            return static_cast<double>((i + 3u * static_cast<unsigned>(rank)) % 50);
        };
        std::vector<double> x(count), y(count), expected(count);
        for (std::size_t i = 0; i < count; ++i) {
            for (int r = 0; r < comm.size(); ++r) expected[i] += value(r, i) * value(r, i);  // exact: small integers
            expected[i] = std::sqrt(expected[i] / comm.size());
            x[i] = y[i] = value(comm.rank(), i);
        }
        colls::all_reduce(comm, x, root_mean_square{});
        colls::all_reduce<colls::ring>(comm, y, root_mean_square{});  // allowed: the operator is commutative
        return x == expected && y == expected;
    });
}

TEST_CASE("an operator of one's own that does not commute: operands keep the order of ranks", "[extending]") {
    CHECK(after{}(map_of(0, 1), map_of(1, 1)) != after{}(map_of(1, 1), map_of(0, 1)));
    // `automatic` takes the ring, which keeps another order, where the operator allows it.
    setenv("COLLS_SCHEDULE", "ring", 1);
    on_all_ranks([](colls::communicator& comm, std::size_t count) {
        std::vector<linear_map> x = maps_of(comm.rank(), count);
        colls::all_reduce(comm, x, after{});
        return x == all_maps(comm.size(), count);
    });
    unsetenv("COLLS_SCHEDULE");
    on_all_ranks([](colls::communicator& comm, std::size_t count) {
        std::vector<linear_map> x = maps_of(comm.rank(), count), scanned(count);
        colls::all_reduce(comm, x, after{});               // keeps the order of ranks
        colls::inclusive_scan(comm, x, scanned, after{});  // likewise; rank r gets the maps of ranks 0 to r
        if (x != all_maps(comm.size(), count)) return false;
        std::vector<linear_map> expected = x;  // the same on each rank: powers of one map
        for (int r = 0; r < comm.rank(); ++r)
            for (std::size_t i = 0; i < count; ++i) expected[i] = after{}(expected[i], x[i]);
        if (scanned != expected) return false;
        colls::inclusive_scan(comm, maps_of(comm.rank(), count), scanned, after{});
        return scanned == all_maps(comm.rank() + 1, count);
    });
}

TEST_CASE("elements: pairs, tuples and arrays of them are copied and reduced", "[extending]") {
    using pair = std::pair<double, int>;
    using triple = std::tuple<std::int8_t, pair, float>;
    static_assert(colls::detail::copies_as_bytes<std::array<pair, 3>>());
    static_assert(!colls::detail::copies_as_bytes<std::pair<int, std::string>>());
    static_assert(!colls::detail::copies_as_bytes<std::tuple<int, std::vector<int>>>());
    const auto later = [](const pair& a, const pair& b) { return a.first < b.first ? b : a; };
    const auto f = [&](colls::communicator& comm) {
        const int rank = comm.rank(), n = comm.size();
        for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{20'011}}) {
            auto x = comm.allocate<pair>(count);
            for (std::size_t i = 0; i < count; ++i)
                x.data()[i] = {
                    static_cast<double>((i + static_cast<std::size_t>(rank)) % static_cast<std::size_t>(n)), rank};
            colls::all_reduce(comm, x, later);
            bool right = true;
            for (std::size_t i = 0; i < count; ++i) {
                const int winner = (n - 1 - static_cast<int>(i % static_cast<std::size_t>(n)) + n) % n;
                right = right && x.data()[i] == pair(n - 1, winner);
            }
            std::vector<triple> one(count, triple(static_cast<std::int8_t>(rank), pair(0.5, rank), 2.0f)),
                all(count * static_cast<std::size_t>(n));
            colls::all_gather(comm, one, all);
            for (std::size_t i = 0; i < all.size(); ++i) {
                const int from = static_cast<int>(i / count);
                right = right && all[i] == triple(static_cast<std::int8_t>(from), pair(0.5, from), 2.0f);
            }
            std::vector<std::array<pair, 2>> arrays(count);
            if (rank == n - 1) arrays.assign(count, {pair(1, 2), pair(3, 4)});
            colls::broadcast(comm, arrays, n - 1);
            for (const auto& a : arrays) right = right && a[0] == pair(1, 2) && a[1] == pair(3, 4);
            if (!right) throw std::runtime_error("wrong");
        }
    };
    for (const int n : {1, 2, 3, 5}) CHECK_NOTHROW(colls::threads::run(n, f));
}

TEST_CASE("a memory group of one's own passes the kit for transports", "[extending]") {
    // example-begin check_memory_group
    const auto report = colls::testing::transport([](int n, const rank_function& f) { run_threads(n, f); });
    INFO(report.text());
    CHECK(report.ok());
    // example-end
    CHECK(report.checks() > 10'000);
}

TEST_CASE("a memory group of one's own: the ranks that remain shrink it", "[extending]") {
    // It cannot tell which ranks are dead: all live until they leave, in processes too.
    for (const bool as_processes : {false, true}) {
        INFO("as processes: " << as_processes);
        std::atomic<int> right = 0, first_calls = 0, shrunk = 0;
        run_threads(
            5,
            [&](colls::communicator& comm) {
                std::vector<std::uint32_t> x = contribution(comm.rank(), 1000);
                colls::all_reduce(comm, x, colls::sum);
                right += x == sum_of(5, 1000);
                x = contribution(comm.rank(), 1000);
                ++first_calls;
                if (comm.rank() == 4) {  // leaves the group, which breaks all calls that are not over
                    while (first_calls < 5) std::this_thread::yield();
                    return;
                }
                try {
                    colls::all_reduce(comm, x, colls::sum);
                    return;  // wrong: rank 4 has not taken part
                } catch (const colls::error&) {}
                colls::communicator rest = comm.shrink();
                x = contribution(comm.rank(), 30'000);
                colls::all_reduce(rest, x, colls::sum);
                shrunk += x == sum_of(4, 30'000);
            },
            as_processes);
        CHECK(right == 5);
        CHECK(shrunk == 4);
    }
}
