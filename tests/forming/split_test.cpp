// communicator::split on threads: members, order, calls in several groups, nested groups.
#include "catch.hpp"

#include "support/batch.hpp"

#include <array>
#include <atomic>

using namespace support;

namespace {

using communicator = colls::threads::communicator;

/// Whether the values `mine` of the group's ranks sum up to `want`.
template <class Comm>
bool sums_to(Comm& comm, long mine, long want) {
    long x = mine;
    colls::all_reduce(comm, std::span(&x, 1), colls::sum);
    return x == want;
}

}  // namespace

TEST_CASE("split: colors make the groups, keys order their ranks", "[split]") {
    for (const int n : {1, 2, 3, 5, 8, 13, 33}) {
        std::atomic<int> wrong{0};
        colls::threads::run(n, [&](auto& comm) {
            const int rank = comm.rank(), color = rank % 2;
            auto half = comm.split(color, -rank);  // descending
            const int members = (n + 1 - color) / 2;
            if (half.size() != members) ++wrong;
            if (half.rank() != members - 1 - rank / 2) ++wrong;
            std::vector<int> order(static_cast<std::size_t>(members));
            const std::array<int, 1> own = {rank};
            colls::all_gather(half, own, order);
            for (int i = 0; i < members; ++i)
                if (order[static_cast<std::size_t>(i)] != 2 * (members - 1 - i) + color) ++wrong;
        });
        INFO("n " << n);
        CHECK(wrong == 0);
    }
}

TEST_CASE("split: equal keys keep the parent's order, and colors may be large", "[split]") {
    std::atomic<int> wrong{0};
    colls::threads::run(9, [&](auto& comm) {
        const int rank = comm.rank();
        auto third = comm.split(1'000'000'007 * (rank % 3 == 0), 5);  // two colors: 0 and a large one
        const bool large = rank % 3 == 0;
        if (third.size() != (large ? 3 : 6)) ++wrong;
        if (third.rank() != (large ? rank / 3 : rank - rank / 3 - 1)) ++wrong;
        auto alone = comm.split(rank, 0);
        if (alone.size() != 1 || alone.rank() != 0) ++wrong;
        auto same = comm.split(7, 0);
        if (same.size() != 9 || same.rank() != rank) ++wrong;
        if (!sums_to(alone, rank, rank) || !sums_to(same, rank, 36)) ++wrong;
    });
    CHECK(wrong == 0);
}

TEST_CASE("split: calls in parent and parts alternate and overlap", "[split]") {
    for (const int n : {2, 4, 7, 16}) {
        std::atomic<int> wrong{0};
        colls::threads::run(n, [&](auto& comm) {
            const int rank = comm.rank();
            auto row = comm.split(rank / 2, rank);
            auto column = comm.split(rank % 2, rank);
            random_source random = stream(1, static_cast<std::uint64_t>(rank));
            for (int turn = 0; turn < 100; ++turn) {
                dawdle(random);
                const long all = static_cast<long>(n) * (n - 1) / 2 + static_cast<long>(turn) * n;
                long in_row = 0, in_column = 0;
                for (int r = 0; r < n; ++r) {
                    if (r / 2 == rank / 2) in_row += r + turn;
                    if (r % 2 == rank % 2) in_column += r + turn;
                }
                if (!sums_to(row, rank + turn, in_row)) ++wrong;
                if (!sums_to(comm, rank + turn, all)) ++wrong;
                if (!sums_to(column, rank + turn, in_column)) ++wrong;
                // And two calls in flight at once.
                std::vector<long> a(700, rank), b(900, rank);
                auto first = colls::start::all_reduce(row, a, colls::sum);
                auto second = colls::start::all_reduce(comm, b, colls::sum);
                if (rank % 2) {
                    second.wait();
                    first.wait();
                } else {
                    first.wait();
                    second.wait();
                }
                if (a[699] != in_row - static_cast<long>(turn) * row.size() ||
                    b[0] != static_cast<long>(n) * (n - 1) / 2)
                    ++wrong;
            }
        });
        INFO("n " << n);
        CHECK(wrong == 0);
    }
}

TEST_CASE("split: parts can be split again", "[split]") {
    std::atomic<int> wrong{0};
    colls::threads::run(16, [&](auto& comm) {
        const int rank = comm.rank();
        auto eight = comm.split(rank / 8, rank);
        auto four = eight.split(eight.rank() / 4, eight.rank());
        auto two = four.split(four.rank() / 2, -four.rank());
        for (int turn = 0; turn < 20; ++turn) {
            const auto in = [&](int width) {
                const long first = rank / width * width;
                return first * width + static_cast<long>(width) * (width - 1) / 2;
            };
            if (!sums_to(two, rank, in(2)) || !sums_to(four, rank, in(4)) || !sums_to(comm, rank, in(16)) ||
                !sums_to(eight, rank, in(8)))
                ++wrong;
        }
        if (two.rank() != 1 - rank % 2) ++wrong;
    });
    CHECK(wrong == 0);
}

TEST_CASE("split: 300 times in a row", "[split]") {
    std::atomic<int> wrong{0};
    colls::threads::run(5, [&](auto& comm) {
        for (int turn = 0; turn < 300; ++turn) {
            auto part = comm.split((comm.rank() + turn) % 2, comm.rank() * (turn % 2 ? 1 : -1));
            if (!sums_to(part, 1, part.size())) ++wrong;
        }
    });
    CHECK(wrong == 0);
}

TEST_CASE("split: random calls in two parts and their parent, mixed", "[split]") {
    for (const int n : {4, 10}) {
        random_source random(static_cast<std::uint64_t>(n));
        const int first = n / 2 - 1, sizes[2] = {first, n - first};
        std::deque<job<communicator>> jobs[2], parents;
        const auto& kinds = common_kinds<communicator>();
        for (int i = 0; i < 60; ++i) {
            for (int color = 0; color < 2; ++color) {
                const auto& e = random.pick(kinds);
                jobs[color].emplace_back(e, pick_plan(random, sizes[color], e, 400'000));
            }
            const auto& e = random.pick(kinds);
            parents.emplace_back(e, pick_plan(random, n, e, 400'000));
        }
        colls::threads::run(n, [&](auto& comm) {
            const int color = comm.rank() < first ? 0 : 1;
            auto part = comm.split(color, comm.rank());
            flight in_flight;
            random_source own = stream(3, static_cast<std::uint64_t>(comm.rank()));
            for (std::size_t i = 0; i < 60; ++i) {
                dawdle(own);
                jobs[color][i].run(part, in_flight);
                parents[i].run(comm, in_flight);
                while (in_flight.size() > 4) {
                    in_flight.back().wait();
                    in_flight.pop_back();
                }
            }
            for (auto& operation : in_flight) operation.wait();
        });
        for (const auto* list : {&jobs[0], &jobs[1], &parents})
            for (const auto& j : *list) {
                const std::string wrong = j.wrong();
                if (!wrong.empty()) FAIL(j.describe() << ": " << wrong);
            }
        CHECK(parents.size() == 60);
    }
}

TEST_CASE("split: each rank of a part can allocate memory from it", "[split]") {
    std::atomic<int> wrong{0};
    colls::threads::run(6, [&](auto& comm) {
        auto part = comm.split(comm.rank() % 2, comm.rank());
        auto memory = part.template allocate<double>(1000);
        if (memory.size() != 1000) ++wrong;
        for (std::size_t i = 0; i < memory.size(); ++i) memory.data()[i] = 1.0;
        colls::all_reduce(part, std::span(memory.data(), memory.size()), colls::sum);
        for (std::size_t i = 0; i < memory.size(); ++i)
            if (memory.data()[i] != 3.0) ++wrong;
    });
    CHECK(wrong == 0);
}
