// Redistribution between layouts: the schedule is proven and counted, and calls are compared with a serial reference.
#include "catch.hpp"
#include "support/every_transport.hpp"
#include "support/guarded.hpp"

#include <colls/redistribute.hpp>
#include <colls/testing/schedule.hpp>
#include <colls/verify.hpp>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace colls;

namespace {

/// Ways to lay out a matrix over some ranks.
enum class way { rows, columns, blocks, rows_twice, columns_twice, whole, uneven_rows, uneven_columns };
constexpr std::array every_way = {way::rows, way::columns, way::blocks, way::rows_twice, way::columns_twice, way::whole,
    way::uneven_rows, way::uneven_columns};

/// Sizes that add up to `total`, of which some are 0 and one is large.
std::vector<std::size_t> uneven(std::size_t total, int parts) {
    std::vector<std::size_t> sizes(static_cast<std::size_t>(parts), 0);
    for (std::size_t i = 1; i < sizes.size(); i += 2) sizes[i] = total / (2 * sizes.size());
    sizes[sizes.size() / 2] += total - std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    return sizes;
}

layout made(way w, const tensor_shape& shape, const rank_range& ranks) {
    const bool halves = ranks.count % 2 == 0;
    const rank_range half{ranks.first, halves ? ranks.count / 2 : ranks.count, ranks.stride};
    switch (w) {
        case way::rows:
            return layout::by_rows(shape, ranks);
        case way::columns:
            return layout::by_columns(shape, ranks);
        case way::blocks: {
            int down = 1;
            for (int d = 1; d * d <= ranks.count; ++d)
                if (ranks.count % d == 0) down = d;
            return layout::by_blocks(shape, down, ranks.count / down, ranks.first, ranks.stride);
        }
        case way::rows_twice:
            return layout::by_rows(shape, half).replicated(halves ? 2 : 1);
        case way::columns_twice:
            return layout::by_columns(shape, half).replicated(halves ? 2 : 1);
        case way::whole:
            return layout::whole(shape, ranks);
        case way::uneven_rows:
            return layout::by_rows(shape, ranks).with_row_sizes(uneven(shape.rows, ranks.count));
        default:
            return layout::by_columns(shape, ranks).with_column_sizes(uneven(shape.columns, ranks.count));
    }
}

std::string text(const layout& l) {
    return std::to_string(l.rows.parts) + " x " + std::to_string(l.columns.parts) + " parts of " +
           std::to_string(l.rows.extent) + " x " + std::to_string(l.columns.extent) + ", " +
           std::to_string(l.replicas) + " times, from rank " + std::to_string(l.first) + " by " +
           std::to_string(l.stride);
}

/// A schedule whose tables are the builder's.
using schedule_in_test = redistribution_schedule<v1::detail::tables_at_run_time>;

/// Executes the steps on sets of pieces, by no code of the proof. Empty, or what is wrong.
template <class S>
std::string played(const S& s, int n) {
    const auto count = static_cast<std::size_t>(s.blocks(n));
    std::vector<std::vector<int>> held(static_cast<std::size_t>(n), std::vector<int>(count, none));
    for (int r = 0; r < n; ++r)
        for (int x = 0; x < s.blocks(n); ++x)
            held[static_cast<std::size_t>(r)][static_cast<std::size_t>(x)] = s.input(r, n, x);
    for (int k = 0; k < s.rounds(n); ++k) {
        auto after = held;
        for (int r = 0; r < n; ++r) {
            const step own = step_of(s, r, n, k, 0);
            for (const int peer : {own.send.peer, own.recv.peer})
                if (peer < none || peer >= n) return "a peer is no rank";
            if (own.send.peer != none && step_of(s, own.send.peer, n, k, 0).recv.peer != r)
                return "a send is not received";
            if (own.recv.peer == none) continue;
            const step there = step_of(s, own.recv.peer, n, k, 0);
            if (there.send.peer != r) return "a receive is not sent";
            if (own.recv.action != action::copy) return "a block is reduced";
            if (own.recv.blocks.size() != there.send.blocks.size()) return "sizes differ";
            for (int i = 0; i < own.recv.blocks.size(); ++i) {
                const int x = there.send.blocks[i], y = own.recv.blocks[i];
                if (x < 0 || x >= s.blocks(n) || y < 0 || y >= s.blocks(n)) return "a block is no slot";
                const int moved = held[static_cast<std::size_t>(own.recv.peer)][static_cast<std::size_t>(x)];
                if (moved == none) return "what is sent is not there";
                after[static_cast<std::size_t>(r)][static_cast<std::size_t>(y)] = moved;
            }
        }
        held = after;
    }
    for (int r = 0; r < n; ++r)
        for (int x = 0; x < s.blocks(n); ++x)
            if (const int to_hold = s.output(r, n, x);
                to_hold != none && held[static_cast<std::size_t>(r)][static_cast<std::size_t>(x)] != to_hold)
                return "rank " + std::to_string(r) + " lacks a piece";
    return {};
}

std::size_t common(const tensor_block& a, const tensor_block& b) {
    const auto overlap = [](std::size_t x, std::size_t nx, std::size_t y, std::size_t ny) {
        const std::size_t begin = std::max(x, y), end = std::min(x + nx, y + ny);
        return end > begin ? end - begin : 0;
    };
    return overlap(a.row, a.rows, b.row, b.rows) * overlap(a.column, a.columns, b.column, b.columns);
}

std::size_t divided_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

/// What is promised of the traffic: empty, or which promise is broken.
std::string broken_promise(const schedule_in_test& s, int n) {
    const layout &from = s.from(), &to = s.to();
    std::size_t largest_piece = 0, all_sent = 0, all_received = 0, smallest_part = ~std::size_t{0}, largest_part = 0;
    for (int r = 0; r < n; ++r)
        for (int x = 0; x < s.blocks(n); ++x) largest_piece = std::max(largest_piece, s.piece(r, x).size());
    for (int p = 0; p < from.parts(); ++p) {
        smallest_part = std::min(smallest_part, from.part(p).size());
        largest_part = std::max(largest_part, from.part(p).size());
    }
    bool disjoint = true;
    for (int r = 0; r < n; ++r) {
        disjoint = disjoint && (from.index_of(r) == none || to.index_of(r) == none);
        const redistribution_load l = s.load_of(r);
        const std::size_t kept = common(from.held_by(r), to.held_by(r));
        if (l.held != from.size_of(r)) return "the pieces of a rank are not its part";
        if (l.kept != kept) return "a rank does not keep what it has";
        if (l.received != to.size_of(r) - kept) return "a rank does not receive just what it lacks";
        if (l.sent > divided_up(from.size_of(r), static_cast<std::size_t>(from.replicas)) + largest_piece)
            return "a sender sends more than its share of its part and a piece";
        const std::size_t whole = from.shape().rows * from.shape().columns;
        if (smallest_part == largest_part &&
            l.sent > divided_up(whole, static_cast<std::size_t>(from.ranks())) + largest_piece)
            return "a sender sends more than ceil(S / M) and a piece";
        if (to.replicas == 1 && l.passed_on > 0) return "something is passed on without replicas";
        if (l.passed_on > to.size_of(r)) return "a receiver passes on more than it receives";
        std::vector<int> sends(static_cast<std::size_t>(s.blocks(n)), 0);
        for (int k = 0; k < s.rounds(n); ++k) {
            const step does = s.at(r, n, k);
            for (int i = 0; does.send.peer != none && i < does.send.blocks.size(); ++i)
                if (++sends[static_cast<std::size_t>(does.send.blocks[i])] > 1) return "a rank sends a piece twice";
        }
        all_sent += l.sent + l.passed_on;
        all_received += l.received;
    }
    if (all_sent != all_received) return "sent and received differ";
    if (s.rounds(n) > std::max(from.ranks(), to.ranks()) + (disjoint ? 1 : 2) * (to.replicas - 1))
        return "too many rounds";
    const auto replicas = static_cast<std::size_t>(to.replicas);
    for (int r = 0; r < n && disjoint; ++r)
        if (s.load_of(r).passed_on * replicas > to.size_of(r) * (replicas - 1) + largest_piece * replicas)
            return "a receiver passes on more than (r - 1) / r of its part and a piece";
    return {};
}

/// Empty, or which rank has no fair share, to within a piece, of what replicas send of a part, or of what receivers of
/// one part pass on, or does not receive each element once. The layouts have no rank in common.
std::string unfair_share(const schedule_in_test& s, int n) {
    for (int r = 0; r < n; ++r) {
        std::size_t piece = 0;
        for (int x = 0; x < s.blocks(n); ++x) piece = std::max(piece, s.piece(r, x).size());
        const auto is_fair = [&](std::size_t share, std::size_t whole, int replicas) {
            const auto sharers = static_cast<std::size_t>(replicas);
            return whole == 0 || (share + piece > whole / sharers && share < divided_up(whole, sharers) + piece);
        };
        const redistribution_load l = s.load_of(r);
        const std::string rank = "rank " + std::to_string(r);
        if (!is_fair(l.sent, s.from().size_of(r), s.from().replicas)) return rank + " sends " + std::to_string(l.sent);
        const tensor_block own = s.to().held_by(r);
        if (!is_fair(own.size() - l.passed_on, own.size(), s.to().replicas))
            return rank + " passes on " + std::to_string(l.passed_on);
        std::vector<int> arrived(own.size());
        for (int k = 0; k < s.rounds(n); ++k) {
            const step does = s.at(r, n, k);
            for (int i = 0; does.recv.peer != none && i < does.recv.blocks.size(); ++i) {
                const tensor_block b = s.piece(r, does.recv.blocks[i]);
                if (common(b, own) != b.size()) return rank + " receives what it is not to have";
                for (std::size_t e = 0; e < b.size(); ++e)
                    ++arrived[(b.row - own.row + e / b.columns) * own.columns + b.column - own.column + e % b.columns];
            }
        }
        if (std::ranges::count(arrived, 1) != std::ssize(arrived)) return rank + " does not receive each element once";
    }
    return {};
}

/// Empty, or a rank whose packing does not copy just those pieces of its part that it keeps or sends, or receives.
std::string wrong_packing(const layout& from, const layout& to) {
    const v1::detail::transfer_builder built(from, to);
    const v1::detail::transfer_table& t = built.table();
    const schedule_in_test s{{&t}};
    for (int r = 0; r < t.ranks; ++r) {
        std::vector<std::size_t> input, output;
        for (int slot = 0; slot < s.blocks(t.ranks) && slot < t.slots(r); ++slot) {
            const int number = t.label_of(r, slot);
            bool is_sent = false;
            for (int k = 0; k < s.rounds(t.ranks); ++k) {
                const step does = s.at(r, t.ranks, k);
                for (int i = 0; does.send.peer != none && i < does.send.blocks.size(); ++i)
                    is_sent = is_sent || does.send.blocks[i] == slot;
            }
            const std::size_t size = s.piece(r, slot).size();
            if (t.holds(r, number) && (t.wants(r, number) || is_sent)) input.push_back(size);
            if (t.wants(r, number)) output.push_back(size);
        }
        for (const auto side : {v1::detail::packed_side::input, v1::detail::packed_side::output}) {
            std::vector<std::size_t> copied;
            for (const v1::detail::packed_rows& x : v1::detail::packing_of(t, r, side, 4).pieces)
                copied.push_back(x.rows * x.bytes / 4);
            if (copied != (side == v1::detail::packed_side::input ? input : output))
                return "rank " + std::to_string(r) + " copies other pieces";
        }
    }
    return {};
}

/// The element at a place of the matrix: each of its bytes depends on the place, and on the turn.
template <class T>
T element_at(std::size_t row, std::size_t column, std::size_t turn) {
    T x;
    std::uint64_t h = (row * 1'000'003 + column + 1 + (turn << 40)) * 0x9e3779b97f4a7c15u;
    auto* const bytes = reinterpret_cast<unsigned char*>(&x);
    for (std::size_t i = 0; i < sizeof(T); ++i, h = h * 0xbf58476d1ce4e5b9u + 1)
        bytes[i] = static_cast<unsigned char>(h >> 56);
    return x;
}
template <class T>
void fill(std::span<T> local, const tensor_block& b, std::size_t turn = 0) {
    for (std::size_t i = 0; i < local.size(); ++i)
        local[i] = element_at<T>(b.row + i / b.columns, b.column + i % b.columns, turn);
}
template <class T>
bool holds(std::span<const T> local, const tensor_block& b, std::size_t turn = 0) {
    for (std::size_t i = 0; i < local.size(); ++i) {
        const T want = element_at<T>(b.row + i / b.columns, b.column + i % b.columns, turn);
        if (std::memcmp(&want, &local[i], sizeof(T)) != 0) return false;
    }
    return true;
}

struct rgb {
    unsigned char r, g, b;
};

/// One call on one rank, by the serial reference. Throws where the result is wrong.
template <class T>
void compare(communicator& comm, const layout& from, const layout& to, int form) {
    const int me = comm.rank();
    support::guarded in_memory(from.size_of(me) * sizeof(T), alignof(T)),
        out_memory(to.size_of(me) * sizeof(T), alignof(T) * 3);
    const std::span<T> in = in_memory.as<T>(), out = out_memory.as<T>();
    fill(in, from.held_by(me));
    std::size_t turn = 0;
    const auto check = [&](const char* when) {
        std::string wrong;
        if (!holds(std::span<const T>(out), to.held_by(me), turn)) wrong = "the output is wrong";
        if (!holds(std::span<const T>(in), from.held_by(me), turn)) wrong = "the input has changed";
        if (!in_memory.broken().empty() || !out_memory.broken().empty()) wrong = "a guard has changed";
        if (!wrong.empty())
            throw std::runtime_error(
                "rank " + std::to_string(me) + ", " + when + ": " + wrong + ": " + text(from) + " to " + text(to));
    };
    if (form == 0) {
        redistribute(comm, in, from, out, to);
        return check("blocking");
    }
    prepared_redistribution again(comm, in, from, out, to);
    while (turn < 4) {
        fill(in, from.held_by(me), ++turn);
        std::fill(out.begin(), out.end(), T{});
        if (turn % 2 == 1) {
            again.run();
            check("prepared");
            continue;
        }
        again.start();
        if (turn == 2)
            again.wait();
        else
            while (!again.test()) std::this_thread::yield();
        check("started");
        // What is over is not brought to the output again.
        std::fill(out.begin(), out.end(), T{});
        again.wait();
        again.test();
        for (const std::byte b : std::as_bytes(out))
            if (b != std::byte{}) throw std::runtime_error("wait or test has written after the call was over");
    }
}

/// Some pairs of layouts for a group of n ranks, the same on every rank.
struct pair_of_layouts {
    layout from, to;
};
std::vector<pair_of_layouts> drawn(int n, int count, std::uint64_t seed) {
    support::random_source random(seed);
    std::vector<pair_of_layouts> pairs;
    while (static_cast<int>(pairs.size()) < count) {
        const tensor_shape shape{random.one_in(4) ? random.below(6) : 1 + random.below(40),
            random.one_in(4) ? 1 + random.below(3) : 1 + random.below(50)};
        const auto any = [&] {
            const int stride = random.between(1, 2), ranks = random.between(1, (n + stride - 1) / stride);
            const int first = random.between(0, n - 1 - (ranks - 1) * stride);
            return made(random.pick(every_way), shape, {first, ranks, stride});
        };
        const layout from = any();
        pairs.push_back({from, any()});
    }
    return pairs;
}

constexpr auto four_by_rows = layout::by_rows({10, 7}, {0, 4});
constexpr auto two_by_columns_twice = layout::by_columns({10, 7}, {4, 2}).replicated(2);
constexpr auto on_two_by_two = layout::by_blocks({10, 7}, 2, 2, 2);
constexpr auto on_all_eight = layout::whole({10, 7}, {0, 8});
constexpr auto as_given = layout::by_rows({10, 7}, {0, 3, 3}).with_row_sizes({7, 0, 3});

static_assert(proven<redistribution_between<four_by_rows, two_by_columns_twice>, 9>);
static_assert(proven<redistribution_between<on_two_by_two, four_by_rows>, 7>);
static_assert(proven<redistribution_between<four_by_rows, on_all_eight>, 8>);
static_assert(proven<redistribution_between<on_all_eight, on_two_by_two>, 8>);
static_assert(proven<redistribution_between<as_given, two_by_columns_twice>, 8>);
static_assert(cost_of<redistribution_between<four_by_rows, two_by_columns_twice>>(8).rounds == 5);
static_assert(redistribution_between<four_by_rows, two_by_columns_twice>{}.load_of(0).sent == 21);

// One cell, which four replicas share equally.
constexpr auto on_four = layout::whole({16, 16}, {0, 4}), on_one = layout::whole({16, 16}, {4, 1});
static_assert(redistribution_between<on_four, on_one>{}.load_of(0).sent == 64);
static_assert(redistribution_between<on_four, on_one>{}.load_of(3).sent == 64);

/// Both ranks hold a replica of the one block, and rank 1 adds that of rank 0 to its own.
struct added_replica {
    static constexpr collective implements = collective::redistribute;
    static constexpr int blocks(int) { return 1; }
    static constexpr int rounds(int) { return 1; }
    static constexpr step at(int rank, int, int) {
        if (rank == 0) return {.send = {1, block(0)}};
        if (rank == 1) return {.recv = {0, block(0), action::reduce}};
        return {};
    }
    static constexpr int input(int rank, int, int) { return rank < 2 ? 0 : none; }
    static constexpr int output(int rank, int, int) { return rank == 1 ? 0 : none; }
};
static_assert(verify<added_replica>(2).law == law::exactly_once);

}  // namespace

TEST_CASE("layouts: which rank holds what", "[redistribute]") {
    const auto l = layout::by_blocks({10, 7}, 2, 3, 1, 2).replicated(2);
    CHECK(l.parts() == 6);
    CHECK(l.ranks() == 12);
    CHECK(l.group_size() == 24);
    CHECK(l.held_by(1) == tensor_block{0, 5, 0, 3});
    CHECK(l.held_by(11) == tensor_block{5, 5, 5, 2});
    CHECK(l.held_by(13) == tensor_block{0, 5, 0, 3});
    CHECK(l.held_by(2).size() == 0);
    CHECK(l.part_of(25) == none);
    CHECK(as_given.size_of(0) == 49);
    CHECK(as_given.size_of(3) == 0);
    CHECK(as_given.held_by(6) == tensor_block{7, 3, 0, 7});
    const auto refused = [](auto f) {
        try {
            f();
        } catch (const error& e) {
            return e.code() == errc::invalid_argument ? std::string(e.what()) : "another code";
        }
        return std::string("nothing thrown");
    };
    CHECK(refused([] { layout::by_rows({3, 3}, {0, 0}); }) == "colls: layout: there is one rank at least");
    CHECK(refused([] { layout::by_rows({3, 3}, {-1, 2}); }).find("first rank") != std::string::npos);
    CHECK(refused([] { layout::by_rows({3, 3}, {0, 2}).with_row_sizes({1, 1}); }).find("add up") != std::string::npos);
    CHECK(refused([] { layout::by_rows({3, 3}, {0, 2}).with_row_sizes(std::vector{4, -1}); }).find("negative") !=
          std::string::npos);
    CHECK(refused([] { layout::by_rows({3, 3}, {0, 2}).with_row_sizes({3}); }).find("fewer") != std::string::npos);
    CHECK(refused([] { layout::by_rows({3, 3}, {0, 2}).with_row_sizes({1, 1, 1}); }).find("more") != std::string::npos);
    CHECK(refused([] { layout::by_rows({3, 3}, {0, 2}).replicated(0); }).find("replica") != std::string::npos);
    // Products and sums that would wrap.
    constexpr std::size_t far = std::size_t{1} << 62;
    CHECK(refused([] { layout::whole({far, 4}); }).find("2^63 elements") != std::string::npos);
    CHECK(refused([] {
        layout::by_rows({8, 1}, {0, 5}).with_row_sizes({far, far, far, far, std::size_t{8}});
    }).find("add up") != std::string::npos);
    CHECK(refused([] { layout::by_blocks({8, 8}, 1 << 16, 1 << 16); }).find("ranks") != std::string::npos);
    CHECK(refused([] { layout::by_rows({8, 8}, {INT_MAX, 1}); }).find("ranks") != std::string::npos);
    CHECK(refused([] { layout::by_rows({100, 1}, {0, 65}).with_row_sizes(std::vector<int>(65, 1)); }).find("64") !=
          std::string::npos);
    CHECK(refused([] { layout::by_rows({8, 8}, {1 << 30, 4, 1 << 29}); }).find("ranks") != std::string::npos);
    CHECK(
        refused([] { layout::by_rows({8, 8}, {0, 1 << 20}).replicated(1 << 12); }).find("ranks") != std::string::npos);
}

TEST_CASE("redistribution: proven for M, N up to 16, within the promised traffic", "[redistribute]") {
    int count = 0;
    for (int m = 1; m <= 16; ++m)
        for (int n = 1; n <= 16; ++n) {
            if (!support::long_run && m > 4 && n > 4 && m != n && m + n != 17) continue;
            for (const way a : every_way)
                for (const way b : every_way)
                    for (const int first : {m, 0, m / 2}) {  // apart, from the same first rank on, in part the same
                        const bool even = (m + n + first) % 2 == 0;
                        const tensor_shape shape = even ? tensor_shape{48, 48} : tensor_shape{13, 37};
                        const layout from = made(a, shape, {0, m}), to = made(b, shape, {first, n});
                        const v1::detail::transfer_builder built(from, to);
                        const schedule_in_test s{{&built.table()}};
                        const int size = built.table().ranks;
                        const report r = verify(s, size);
                        const std::string broken = broken_promise(s, size);
                        ++count;
                        if (r.ok() && broken.empty()) continue;
                        INFO(text(from) << " to " << text(to));
                        CHECK(r.ok());
                        CHECK(broken == "");
                    }
        }
    CHECK(count == (support::long_run ? 16 * 16 : 16 * 16 - 124) * 64 * 3);
}

TEST_CASE("redistribution: replicas share sizes that do not divide, to within a piece", "[redistribute]") {
    int count = 0;
    for (const std::size_t rows : {1u, 2u, 3u, 5u, 7u, 11u, 14u})
        for (const std::size_t columns : {1u, 2u, 5u})
            for (const int parts : {1, 2, 3})
                for (const int replicas : {1, 2, 3, 4, 5})
                    for (const int targets : {1, 2, 3})
                        for (const int copies : {1, 2, 3, 4}) {
                            const tensor_shape shape{rows, columns};
                            const layout from = layout::by_rows(shape, {0, parts}).replicated(replicas);
                            const rank_range others{from.ranks(), targets};
                            const layout to =
                                (count % 2 == 0 ? layout::by_rows(shape, others) : layout::by_columns(shape, others))
                                    .replicated(copies);
                            const v1::detail::transfer_builder built(from, to);
                            std::string wrong = unfair_share(schedule_in_test{{&built.table()}}, built.table().ranks);
                            if (wrong.empty()) wrong = wrong_packing(from, to);
                            ++count;
                            if (wrong.empty()) continue;
                            INFO(text(from) << " to " << text(to));
                            CHECK(wrong == "");
                        }
    CHECK(count == 7 * 3 * 3 * 5 * 3 * 4);
    // Four pieces for each of four replicas, of a matrix that could be cut into more.
    const layout four = layout::whole({64, 64}, {0, 4}), one = layout::whole({64, 64}, {4, 1});
    CHECK(v1::detail::transfer_builder(four, one).table().pieces == 16);
}

TEST_CASE("redistribution: one change is rejected, or harmless", "[redistribute]") {
    int tried = 0, rejected = 0;
    for (const auto& [from, to] : drawn(8, 60, 11)) {
        const redistribution s(from, to);
        CHECK(played(s, 8) == "");
        CHECK(testing::play(s, 8, 1).ok());
        if (s.rounds(8) == 0) continue;
        for (std::uint64_t seed = 0; seed < 40; ++seed) {
            const auto m = testing::mutate(s, 8, seed);
            const report r = verify(m, 8);
            const std::string wrong = played(m, 8);
            INFO(text(from) << " to " << text(to) << ": " << m.text() << ": " << r.text() << " / " << wrong);
            CHECK(r.ok() == wrong.empty());
            ++tried;
            rejected += !r.ok();
        }
    }
    CHECK(tried > 1000);
    CHECK(rejected > tried / 2);
}

TEST_CASE("redistribution: the proof names what is no block", "[redistribute]") {
    struct wrong {
        collective implements = collective::redistribute;
        int label = 0;
        int blocks(int) const { return 2; }
        int rounds(int) const { return 1; }
        int input(int rank, int, int slot) const { return rank == 0 && slot == 0 ? label : none; }
        int output(int rank, int, int slot) const { return rank == 1 && slot == 1 ? 3 : none; }
        step at(int rank, int, int) const {
            if (rank == 0) return {.send = {1, block(0)}};
            if (rank == 1) return {.recv = {0, block(1)}};
            return {};
        }
    };
    CHECK(verify(wrong{.label = 3}, 2).text() == "proven for 2 ranks");
    CHECK(verify(wrong{.label = 2}, 2).text() == "rank 1 ends with block 2 in its block 1 (law: complete)");
    CHECK(verify(wrong{.label = 4}, 2).text() ==
          "rank 0 names block 4 for its slot 0, and there is no such block (law: in_range)");
    CHECK(verify(wrong{.label = none}, 2).text() ==
          "round 0: rank 0 sends block 0, which holds nothing yet, to rank 1 (law: in_range)");
}

TEST_CASE("redistribution: as the serial reference, on every transport", "[redistribute]") {
    for (const std::string& transport : support::every_transport())
        for (const int n : {1, 2, 3, 4, 5, 6, 7, 16}) {
            const int cases = transport == "threads" ? 100 : n == 16 ? 20 : 50;
            INFO(transport << ", " << n << " ranks");
            const auto pairs = drawn(n, cases, static_cast<std::uint64_t>(n));
            CHECK_NOTHROW(support::run_over(transport, n, [&](communicator& comm) {
                int i = 0;
                for (const auto& [from, to] : pairs) {
                    compare<int>(comm, from, to, i % 4 == 0);
                    if (i % 3 == 0) compare<rgb>(comm, from, to, 0);
                    ++i;
                }
            }));
        }
}

TEST_CASE("redistribution: large parts, on every transport", "[redistribute]") {
    const auto from = layout::by_rows({701, 503}, {0, 4}), to = layout::by_columns({701, 503}, {2, 2}).replicated(2);
    for (const std::string& transport : support::every_transport()) {
        INFO(transport);
        CHECK_NOTHROW(support::run_over(transport, 6, [&](communicator& comm) { compare<double>(comm, from, to, 1); }));
    }
}

TEST_CASE("redistribution: constant layouts", "[redistribute]") {
    threads::run(8, [](communicator& comm) {
        std::vector<int> in(four_by_rows.size_of(comm.rank())), out(on_all_eight.size_of(comm.rank()), -1);
        fill(std::span(in), four_by_rows.held_by(comm.rank()));
        redistribute<four_by_rows, on_all_eight>(comm, in, out);
        if (!holds(std::span<const int>(out), on_all_eight.held_by(comm.rank()))) throw std::runtime_error("wrong");
    });
}

TEST_CASE("redistribution: wrong arguments are refused before anything moves", "[redistribute]") {
    const auto from = layout::by_rows({6, 6}, {0, 2}), to = layout::by_columns({6, 6}, {0, 3});
    // What each of 3 ranks throws in f.
    const auto thrown = [](auto f) {
        std::vector<std::string> texts(3);
        std::vector<errc> codes(3);
        threads::run(3, [&](communicator& comm) {
            const auto me = static_cast<std::size_t>(comm.rank());
            std::vector<int> in(18, 1), out(12, 7);
            try {
                f(comm, in, out);
            } catch (const error& e) {
                texts[me] = e.what();
                codes[me] = e.code();
            }
            if (comm.rank() == 1 && out != std::vector<int>(out.size(), 7)) texts[me] += " (the output has changed)";
        });
        return std::pair(texts, codes);
    };
    {
        const auto [texts, codes] = thrown([&](communicator& comm, auto& in, auto& out) {
            redistribute(comm, in, from, out, layout::by_columns({6, 6}, {1, 3}));
        });
        for (std::size_t r = 0; r < 3; ++r) {
            CHECK(codes[r] == errc::invalid_argument);
            CHECK(texts[r] ==
                  "colls: rank " + std::to_string(r) +
                      " in redistribute: the layout of the output has ranks 1 to 3, and this group has 3 ranks");
        }
    }
    communicator of_no_group;
    std::vector<int> nothing;
    CHECK_THROWS_WITH(redistribute(of_no_group, nothing, from, nothing, to), Catch::Contains("belongs to no group"));
    {
        const auto [texts, codes] = thrown([&](communicator& comm, auto& in, auto& out) {
            redistribute(comm, in, from, out, layout::by_columns({6, 7}, {0, 3}));
        });
        CHECK(texts[1] ==
              "colls: redistribute: the layouts are of matrices of 6 x 6 and 6 x 7 elements, and must be of "
              "one shape");
    }
    {
        const auto [texts, codes] = thrown([&](communicator& comm, auto& in, auto& out) {
            if (comm.rank() == 2) in.clear();
            if (comm.rank() == 1) in.pop_back();
            redistribute(comm, in, from, out, to);
        });
        CHECK(codes[1] == errc::invalid_argument);
        CHECK(texts[1] == "colls: rank 1 in redistribute: the input holds 17 elements, and should hold 18");
        CHECK(codes[0] == errc::peer_failed);
        CHECK(texts[0].find("rank 1") != std::string::npos);
    }
    {
        const auto [texts, codes] = thrown([&](communicator& comm, auto& in, auto& out) {
            if (comm.rank() == 2) return redistribute(comm, std::span<int>(), from, out, to);
            if (comm.rank() == 0) return redistribute(comm, in, from, out, to);
            redistribute(comm, in, from, std::span(in).first(12), to);
        });
        CHECK(texts[1] == "colls: rank 1 in redistribute: input and output overlap");
    }
    {
        const auto [texts, codes] = thrown([&](communicator& comm, auto& in, auto& out) {
            if (comm.rank() == 2) in.clear();
            redistribute(comm, in, from, out, comm.rank() == 0 ? to : layout::by_rows({6, 6}, {0, 3}));
        });
        CHECK((codes[0] == errc::mismatch || codes[0] == errc::peer_failed));
        CHECK((codes[0] == errc::mismatch || codes[1] == errc::mismatch || codes[2] == errc::mismatch));
    }
}
