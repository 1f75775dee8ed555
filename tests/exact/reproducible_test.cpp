// colls::reproducible: the bits of results depend neither on counts, nor on how data are cut into calls, nor on the
// transport, nor on where buffers lie.
//
// Short: 1,000 to 4,000 elements, 16 cuts. COLLS_TEST_LONG: 10^6 floats and bfloat16, 1,000 cuts, every group of 2 to
// 16 ranks on every transport; the hashes are printed.
#include "catch.hpp"

#include "support/every_transport.hpp"
#include "support/reproducible.hpp"
#include "support/says.hpp"
#include "support/verbs.hpp"

#include <colls/any_schedule.hpp>
#include <colls/colls.hpp>
#include <colls/cuda/detail/kernel/host_thread_group.hpp>
#include <colls/cuda/detail/kernel/partition.hpp>
#include <colls/detail/choose/explanation.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

using namespace colls;

namespace {

const std::size_t elements = support::long_run ? 1'000'000 : 4'000;  // a quarter for more than 8 ranks
const int cuts = support::long_run ? 1'000 : 16;

/// The group sizes that are tried on threads, and on transports whose groups take longer to form.
std::vector<int> group_sizes(bool all) {
    std::vector<int> sizes;
    for (int n = 2; n <= 16; ++n)
        if (all || support::long_run || n == 2 || n == 3 || n == 5 || n == 8) sizes.push_back(n);
    return sizes;
}
void check_on(const char* transport, int n, colls::communicator& comm) {
    const auto [in_float, in_bfloat16] =
        support::check_reproducible(comm, n > 8 && !support::long_run ? elements / 4 : elements, cuts, 7);
    if (support::long_run && comm.rank() == 0)
        std::printf("%-8s %2d ranks: float %016llx, bfloat16 %016llx\n", transport, n,
            static_cast<unsigned long long>(in_float), static_cast<unsigned long long>(in_bfloat16));
}

void compare_with_proof(const any_schedule& s, std::string_view family, bool listed) {
    int other = 0;
    for (int n = 1; n <= 33; ++n) {
        if (!s.supports(n)) continue;
        const bool single = folds_of(s, n).single_fold;
        INFO(family << ", " << name_of(s.implements) << ", n " << n);
        if (listed) CHECK(single);
        other += !single;
    }
    INFO(family << ", " << name_of(s.implements));
    if (!listed) CHECK(other > 0);  // else it could be chosen
}

/// One thread of a kernel's group: it walks heads, vectors and tails alone.
struct one_thread {
    static int index() { return 0; }
    static int size() { return 1; }
    static cuda::detail::quad load(const cuda::detail::quad* from) {
        return cuda::detail::host_thread_group::load(from);
    }
    static void store(cuda::detail::quad* to, const cuda::detail::quad& q) {
        cuda::detail::host_thread_group::store(to, q);
    }
};

/// A fold on the host and the pass of a kernel that does the same.
struct both_folds {
    support::typed_fold types;
    const detail::op_table* host;
    void (*device)(std::byte* out, const cuda::detail::operand* x, int k, std::size_t count, const void* op);
};
template <class T, class Op>
void fold_on_device(std::byte* out, const cuda::detail::operand* x, int k, std::size_t count, const void* op) {
    cuda::detail::fold_elements<T>(one_thread{}, reinterpret_cast<T*>(out), x, k, false,
        static_cast<std::uint32_t>(count), *static_cast<const Op*>(op), cuda::no_epilogue{}, k, 0);
}
template <class T, class Op>
both_folds both(const Op& op, const char* name) {
    return {support::typed<T>(op, name), &detail::op_table_for<T, Op>, &fold_on_device<T, Op>};
}

/// Folds k operands of `count` elements that begin `shift` elements into aligned buffers, on the host and by the pass
/// of a kernel, in place and not, against the serial loop. Returns how many differ.
int count_wrong_folds(const both_folds& f, int k, std::size_t count, std::size_t shift) {
    using bytes = std::vector<std::byte>;
    const std::size_t size = f.types.size, length = count * size, before = shift * size;
    const void* const op = f.types.op;
    const detail::op_table& table = *f.host;
    std::vector<bytes> x;
    for (int r = 0; r < k; ++r) f.types.contribute(x.emplace_back(length).data(), r, count, 3 * count + shift);
    bytes want(length);
    f.types.fold(want.data(), x, k, op);
    std::vector<bytes> moved;
    std::vector<detail::operand> host;
    std::vector<cuda::detail::operand> device;
    for (const bytes& from : x) {
        bytes& to = moved.emplace_back(before + length);
        std::copy(from.begin(), from.end(), to.data() + before);
        host.push_back({to.data() + before});
        device.push_back({to.data() + before, 1});
    }
    bytes out(before + length);
    // On the host each rank has changed its own contribution before.
    const auto contribute = [&] {
        for (std::size_t r = 0; r < x.size(); ++r) {
            std::copy(x[r].begin(), x[r].end(), moved[r].data() + before);
            if (table.leaf) table.leaf(moved[r].data() + before, moved[r].data() + before, count, op);
        }
    };
    const auto differs = [&](const std::byte* got) { return std::memcmp(got, want.data(), length) != 0; };
    f.device(out.data() + before, device.data(), k, count, op);
    int wrong = differs(out.data() + before);
    contribute();
    for (const bool in_place : {false, true}) {
        std::byte* const to = (in_place ? moved[static_cast<std::size_t>(k) / 2] : out).data() + before;
        table.fold(to, host.data(), k, count, op);
        if (table.finish) table.finish(to, count, k, op);
        wrong += differs(to);
    }
    if (k != 2 || !table.fold_twice) return wrong;
    // Into two places: new ones, whose element behind the last must stay, and those of the operands, as they are in
    // place. `moved` has been folded into, so the operands are restored.
    using detail::past_caches;
    for (const past_caches past : {past_caches::none, past_caches::second, past_caches::both, past_caches::alone})
        for (const bool in_place : {false, true}) {
            contribute();
            bytes first(before + length + size), second(before + length + size);
            std::byte* const to = (in_place ? moved[1] : first).data() + before;
            std::byte* const also = past == past_caches::alone ? to : (in_place ? moved[0] : second).data() + before;
            if (!table.fold_twice(to, also, past, host.data(), count, op)) continue;
            detail::fence_stream();
            if (table.finish) table.finish(to, count, k, op);
            if (table.finish && also != to) table.finish(also, count, k, op);
            wrong += differs(to) + differs(also);
            const bytes untouched(size);
            wrong += !in_place && std::memcmp(first.data() + before + length, untouched.data(), size) != 0;
            wrong += !in_place && std::memcmp(second.data() + before + length, untouched.data(), size) != 0;
        }
    return wrong;
}
void check_folds(const both_folds& f) {
    for (int k = 2; k <= 16; k += k < 6 ? 1 : 5)
        for (const std::size_t count : {1u, 2u, 7u, 31u, 33u, 64u, 100u, 517u, 2600u})
            for (const std::size_t shift : {0u, 1u, 3u, 8u}) {
                INFO(f.types.name << ", " << k << " operands, count " << count << ", shift " << shift);
                CHECK(count_wrong_folds(f, k, count, shift) == 0);
            }
}

/// Its steps are known at run time only: direct's if `at_once`, else those of a ring.
struct chosen_later {
    static constexpr collective implements = collective::reduce_scatter;
    bool at_once;
    int rounds(int n) const { return at_once ? direct::reduce_scatter::rounds(n) : ring::reduce_scatter::rounds(n); }
    int ports(int n) const { return at_once ? direct::reduce_scatter::ports(n) : 1; }
    step at(int rank, int n, int round, int port) const {
        return at_once ? step_of(direct::reduce_scatter{}, rank, n, round, port)
                       : step_of(ring::reduce_scatter{}, rank, n, round, port);
    }
};

}  // namespace

TEST_CASE("folds: the bits of a serial loop for any count, alignment and number of operands", "[reproducible]") {
    const support::blend by_blend;
    const support::opaque_blend by_opaque_blend;
    const auto by_premul_sum = premul_sum(1.1f);
    check_folds(both<float>(colls::sum, "sum in float"));
    check_folds(both<double>(colls::prod, "prod in double"));
    check_folds(both<bfloat16>(colls::sum, "sum in bfloat16"));
    check_folds(both<half>(colls::sum, "sum in half"));
    check_folds(both<bfloat16>(colls::avg, "avg in bfloat16"));
    check_folds(both<half>(colls::avg, "avg in half"));
    check_folds(both<float>(by_premul_sum, "premul_sum in float"));
    check_folds(both<bfloat16>(by_premul_sum, "premul_sum in bfloat16"));
    check_folds(both<half>(by_premul_sum, "premul_sum in half"));
    check_folds(both<float>(by_blend, "a pure operator in float"));
    check_folds(both<bfloat16>(by_blend, "a pure operator in bfloat16"));
    check_folds(both<half>(by_blend, "a pure operator in half"));
    check_folds(both<float>(by_opaque_blend, "any operator in float"));
    check_folds(both<bfloat16>(by_opaque_blend, "any operator in bfloat16"));
}

TEST_CASE("the table of families that fold once is what the proof finds", "[reproducible]") {
    int compared = 0;
    detail::known_families::for_each([&]<class Family>(const Family& family, std::string_view name) {
        const auto compare = [&]<int C>(std::integral_constant<int, C>) {
            constexpr auto what = static_cast<collective>(C);
            if constexpr (reduces(what) && provides<Family, what>) {
                compare_with_proof(any_schedule(schedule_of<what>(family)), name, detail::folds_once<Family>);
                ++compared;
            }
        };
        [&]<int... C>(std::integer_sequence<int, C...>) { (compare(std::integral_constant<int, C>{}), ...); }(
            std::make_integer_sequence<int, collective_count>{});
    });
    CHECK(compared > 30);
}

TEST_CASE("reproducible: the bits of a serial loop, on threads", "[reproducible]") {
    for (const int n : group_sizes(support::long_run && !support::sanitized)) {
        INFO(n << " ranks");
        CHECK_NOTHROW(colls::threads::run(n, [&](auto& comm) { check_on("threads", n, comm); }));
    }
}

TEST_CASE("reproducible: the bits of a serial loop, on processes over shared memory and TCP", "[reproducible]") {
    for (const std::string& transport : support::every_transport()) {
        if (transport == "threads") continue;
        for (const int n : group_sizes(false)) {
            INFO(transport << ", " << n << " ranks");
            CHECK_NOTHROW(support::run_over(transport, n, [&](auto& comm) { check_on(transport.c_str(), n, comm); }));
        }
    }
}

TEST_CASE("reproducible: the bits of a serial loop, on hosts of two ranks each", "[reproducible]") {
    if (support::sanitized_threads) return;
    for (const int n : support::long_run ? group_sizes(true) : std::vector<int>{3}) {
        INFO(n << " ranks");
        CHECK_NOTHROW(support::launch_world(n, 2, [&](auto& comm) { check_on("routed", n, comm); }));
    }
}

TEST_CASE("reproducible: the bits of a serial loop, by RDMA on a simulated device", "[reproducible]") {
    for (const int n : group_sizes(false)) {
        INFO(n << " ranks");
        const auto net = std::make_shared<colls::testing::dry_network>(true);
        CHECK_NOTHROW(support::run_over_verbs(net, n, [&](auto& comm, auto&) { check_on("verbs", n, comm); }));
    }
}

TEST_CASE("expressions: different trees of ranks have different hashes, and none that of nothing", "[reproducible]") {
    using colls::detail::expression;
    std::vector<std::uint64_t> all{expression{}.hash};
    for (int n = 1; n <= 20; ++n) all.push_back(colls::detail::leaf(n - 1).hash);
    for (int first = 0; first < 5; ++first)
        for (int end = first + 2; end < 9; ++end) all.push_back(colls::detail::single_fold_of(first, end).hash);
    const auto pair = [](const expression& a, const expression& b) {
        return colls::detail::folded(colls::detail::with_operand(colls::detail::first_operand(a), b));
    };
    const expression a = colls::detail::leaf(0), b = colls::detail::leaf(1), c = colls::detail::leaf(2);
    for (const expression& e : {pair(b, a), pair(pair(a, b), c), pair(a, pair(b, c)), pair(a, a), pair(pair(a, a), a)})
        all.push_back(e.hash);
    std::ranges::sort(all);
    CHECK(std::ranges::adjacent_find(all) == all.end());
}

TEST_CASE("a named schedule of one expression gives the same bits for the whole and for pieces", "[reproducible]") {
    const auto check = [](int n, const auto& schedule) {
        colls::threads::run(n, [&](auto& comm) {
            const auto x = support::contribution_of<bfloat16>(comm.rank(), 3'001, 5);
            std::vector<bfloat16> whole = x, pieces = x;
            colls::all_reduce(comm, whole, colls::sum, schedule, reproducible{});
            for (std::size_t at = 0, step = 1; at < x.size(); at += step, step = step * 3 % 800 + 1) {
                step = std::min(step, x.size() - at);
                colls::all_reduce(comm, std::span(pieces).subspan(at, step), colls::sum, schedule, reproducible{});
            }
            support::expect(support::hash_of(whole) == support::hash_of(pieces), "pieces have other bits");
        });
    };
    CHECK_NOTHROW(check(8, recursive_doubling{}));
    CHECK_NOTHROW(check(8, halving_doubling{}));
    CHECK_NOTHROW(check(7, tree<2>{}));
    CHECK_NOTHROW(check(5, tree<4>{}));
    CHECK_NOTHROW(check(5, one_shot{}));
}

TEST_CASE("a schedule that is known at run time only is checked there", "[reproducible]") {
    for (const bool at_once : {true, false}) {
        std::atomic<int> refused{0}, right{0};  // assertions are for one thread
        colls::threads::run(3, [&](auto& comm) {
            const std::vector<float> x(9, 1.0f);
            std::vector<float> out(3);
            try {
                colls::reduce_scatter(comm, x, out, colls::sum, chosen_later{at_once}, reproducible{});
                right += out[2] == 3;
            } catch (const colls::error& e) {
                refused += e.code() == errc::unsupported &&
                           support::lacks(e.what(), {"at 3 ranks", "one fold expression", "take direct"}).empty();
            }
            colls::barrier(comm);  // the group works
        });
        CHECK(right == (at_once ? 3 : 0));
        CHECK(refused == (at_once ? 0 : 3));
    }
}

TEST_CASE("COLLS_REPRODUCIBLE=1 constrains calls that name no schedule, and explain shows it", "[reproducible]") {
    const auto chosen_for = [](auto constraint, std::size_t bytes, int n) {
        std::string name, table;
        colls::threads::run(n, [&](auto& comm) {
            if (comm.rank() != 0) return;
            name = colls::chosen<decltype(constraint)>(comm, collective::all_reduce, bytes);
            table = colls::explain<decltype(constraint)>(comm, collective::all_reduce, bytes);
        });
        return std::pair(name, table);
    };
    const auto once = [](const std::string& name) {
        return name == "eager" || name == "direct" || name == "one_shot" || name == "fan_in";
    };
    for (const int n : {2, 3, 8})
        for (const std::size_t bytes : {8u, 4096u, 100'000u, 30'000'000u}) {
            const auto [name, table] = chosen_for(reproducible{}, bytes, n);
            INFO(table);
            CHECK(once(name));
            CHECK(support::says(table, ", reproducible\n"));
            CHECK(support::says(table, "not reproducible"));
            const support::with_environment all("COLLS_REPRODUCIBLE", "1");
            CHECK(chosen_for(automatic{}, bytes, n).first == name);
            const support::with_environment forced("COLLS_SCHEDULE", "ring");
            CHECK(once(chosen_for(automatic{}, bytes, n).first));
        }
    {
        const support::with_environment all("COLLS_REPRODUCIBLE", "1");
        std::atomic<int> wrong{0};
        colls::threads::run(5, [&](auto& comm) {
            std::vector<std::vector<float>> x;
            for (int r = 0; r < 5; ++r) x.push_back(support::contribution_of<float>(r, 50'000, 9));
            std::vector<float> own = x[static_cast<std::size_t>(comm.rank())];
            colls::all_reduce(comm, own, colls::sum);
            wrong += support::hash_of(own) != support::hash_of(support::serial_fold(x, 5, colls::sum));
            colls::all_reduce<ring>(comm, own, colls::sum);  // a call that names a schedule has that schedule
        });
        CHECK(wrong == 0);
    }
    const support::with_environment misspelt("COLLS_REPRODUCIBLE", "yes");
    CHECK_THROWS_AS(colls::threads::run(2, [](auto&) {}), colls::error);
}

TEST_CASE("ranks that differ in COLLS_REPRODUCIBLE get a mismatch", "[reproducible]") {
    for (const std::size_t count : {10u, 100'000u}) {
        std::atomic<int> told{0};
        CHECK_THROWS_AS(colls::threads::run(3,
                            [&](auto& comm) {
                                comm.context().env.reproducible = comm.rank() == 1;
                                std::vector<float> x(count, 1.0f);
                                try {
                                    colls::all_reduce(comm, x, colls::sum);
                                } catch (const colls::error& e) {
                                    told += e.code() == errc::mismatch && support::says(e.what(), "reproducible");
                                    throw;
                                }
                            }),
            colls::error);
        CHECK(told >= 1);
    }
}
