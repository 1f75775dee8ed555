// token_exchange: rows to the ranks that their data chooses, and back in order.
#include "catch.hpp"

#include <colls/patterns/token_exchange.hpp>
#include <colls/transports/threads.hpp>

#include "support/random.hpp"
#include "support/says.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

using colls::token_exchange;

namespace {

/// Row i of a rank: where it was, so that every row of a run is unique.
std::array<int, 3> row_of(int rank, std::size_t i) { return {rank, static_cast<int>(i), 7 * rank + 3}; }

/// The destinations of a rank's rows: some stay behind; every third rank has no rows.
std::vector<int> destinations_of(int rank, int n, std::size_t rows) {
    support::random_source random = support::stream(17, static_cast<std::uint64_t>(rank * 100 + n));
    std::vector<int> to(rank % 3 == 2 ? 0 : rows + static_cast<std::size_t>(rank));
    for (int& d : to) d = static_cast<int>(random.below(static_cast<std::size_t>(n) + 1)) - 1;
    return to;
}

}  // namespace

TEST_CASE("token_exchange: rows arrive by rank, then in their order, and results return to their own places",
    "[token_exchange]") {
    for (const int n : {1, 2, 3, 5, 7})
        for (const std::size_t rows : {0u, 1u, 6u, 500u}) {
            std::atomic<int> wrong{0};
            colls::threads::run(n, [&](colls::communicator& comm) {
                const std::vector<int> to = destinations_of(comm.rank(), n, rows);
                std::vector<int> mine;
                for (std::size_t i = 0; i < to.size(); ++i)
                    for (const int x : row_of(comm.rank(), i)) mine.push_back(x);

                // What must arrive, from every rank's destinations, which are known here.
                std::vector<int> expected;
                std::vector<std::size_t> counts(static_cast<std::size_t>(n));
                for (int r = 0; r < n; ++r) {
                    const std::vector<int> theirs = destinations_of(r, n, rows);
                    for (std::size_t i = 0; i < theirs.size(); ++i)
                        if (theirs[i] == comm.rank()) {
                            ++counts[static_cast<std::size_t>(r)];
                            for (const int x : row_of(r, i)) expected.push_back(x);
                        }
                }

                token_exchange exchange(comm, to);
                std::vector<int> there(exchange.received() * 3);
                exchange.dispatch(mine, there, 3);
                if (there != expected || exchange.rows() != to.size()) ++wrong;
                if (!std::ranges::equal(exchange.received_counts(), counts)) ++wrong;

                // Two numbers for each received row go back; rows that stayed behind keep what they had.
                std::vector<double> results;
                for (std::size_t i = 0; i < there.size(); i += 3)
                    results.insert(results.end(), {there[i] + 0.5, there[i + 1] * 2.0});
                std::vector<double> back(to.size() * 2, -1);
                exchange.collect(results, back, 2);
                for (std::size_t i = 0; i < to.size(); ++i) {
                    const bool stayed = to[i] == colls::none;
                    if (back[2 * i] != (stayed ? -1 : comm.rank() + 0.5)) ++wrong;
                    if (back[2 * i + 1] != (stayed ? -1 : 2.0 * static_cast<double>(i))) ++wrong;
                }
                if (exchange.sent() != to.size() - static_cast<std::size_t>(std::ranges::count(to, colls::none)))
                    ++wrong;
            });
            INFO("n " << n << ", rows " << rows);
            CHECK(wrong == 0);
        }
}

TEST_CASE("token_exchange: is used again for rows of other widths and types, in both directions", "[token_exchange]") {
    for (const int n : {1, 3, 5}) {
        std::atomic<int> wrong{0};
        colls::threads::run(n, [&](colls::communicator& comm) {
            const std::vector<int> to = destinations_of(comm.rank(), n, 40);
            token_exchange exchange(comm, to);
            const auto turn = [&]<class T>(T, std::size_t width, int number) {
                // Every element says where it is from, where it goes, and which turn it is of.
                std::vector<T> mine;
                for (std::size_t i = 0; i < to.size(); ++i)
                    for (std::size_t e = 0; e < width; ++e)
                        mine.push_back(static_cast<T>(
                            (((number * 10 + comm.rank()) * 100 + static_cast<int>(i)) * 10 + to[i] + 1) * 10 +
                            static_cast<int>(e)));
                std::vector<T> there(exchange.received() * width), back(mine.size(), T(-1));
                exchange.dispatch(mine, there, width);
                std::size_t at = 0;
                for (int r = 0; r < n; ++r) {
                    int last = -1;
                    for (std::size_t k = 0; k < exchange.received_counts()[static_cast<std::size_t>(r)]; ++k, ++at)
                        for (std::size_t e = 0; e < width; ++e) {
                            const int code = static_cast<int>(there[at * width + e]), row = code / 100 % 100;
                            wrong += code % 10 != static_cast<int>(e) || code / 10 % 10 != comm.rank() + 1 ||
                                     code / 10'000 != number * 10 + r || (e == 0 ? row <= last : row != last);
                            last = row;
                        }
                }
                for (T& x : there) x = static_cast<T>(x + T(1));
                exchange.collect(there, back, width);
                for (std::size_t i = 0; i < mine.size(); ++i)
                    wrong += back[i] != (to[i / width] == colls::none ? T(-1) : static_cast<T>(mine[i] + T(1)));
            };
            turn(int{}, 3, 1);
            turn(double{}, 1, 2);
            turn(int{}, 7, 3);
            turn(int{}, 0, 4);
            turn(double{}, 2, 5);
        });
        INFO("n " << n);
        CHECK(wrong == 0);
    }
}

TEST_CASE(
    "token_exchange: one rank's bad destination is refused on all ranks, and the group goes on", "[token_exchange]") {
    for (const int bad : {3, -2, 1'000'000})
        colls::threads::run(3, [&](colls::communicator& comm) {
            std::vector<int> to{0, 1, 2, colls::none};
            if (comm.rank() == 1) to[2] = bad;
            std::string text;
            colls::errc code{};
            int peer = colls::none;
            try {
                token_exchange exchange(comm, to);
            } catch (const colls::error& e) {
                text = e.what();
                code = e.code();
                peer = e.peer();
            }
            const std::string expected =
                comm.rank() == 1 ? "colls: rank 1 in token_exchange: destination " + std::to_string(bad) +
                                       " of row 2 is out of range: this group has ranks 0 to 2"
                                 : "colls: rank " + std::to_string(comm.rank()) +
                                       " in token_exchange: rank 1 refused its own rows, so none has moved; its error "
                                       "says why";
            if (text != expected) throw std::runtime_error("another text: " + text);
            if (code != (comm.rank() == 1 ? colls::errc::invalid_argument : colls::errc::peer_failed) ||
                peer != (comm.rank() == 1 ? colls::none : 1))
                throw std::runtime_error("another code or peer");

            token_exchange exchange(comm, std::vector<int>{2 - comm.rank()});  // the group is whole
            std::vector<int> in{comm.rank()}, out{-1};
            exchange.dispatch(in, out, 1);
            if (out[0] != 2 - comm.rank()) throw std::runtime_error("the exchange after a refusal is wrong");
        });
}

TEST_CASE("token_exchange: a caller's refusal is told on all ranks", "[token_exchange]") {
    std::atomic<int> refused{0}, told{0};
    colls::threads::run(4, [&](colls::communicator& comm) {
        try {
            token_exchange exchange(comm, {}, comm.rank() == 2 ? "id 9 is out of range" : "");
        } catch (const colls::error& e) {
            const std::string text = e.what();
            if (comm.rank() == 2 && text == "colls: rank 2 in token_exchange: id 9 is out of range") ++refused;
            if (comm.rank() != 2 && e.peer() == 2) ++told;
        }
    });
    CHECK(refused == 1);
    CHECK(told == 3);
}

TEST_CASE("token_exchange: ranks that wait for one with a wrong buffer are told", "[token_exchange]") {
    std::atomic<int> told{0}, over{0};
    colls::threads::run(2, [&](colls::communicator& comm) {
        comm.set_timeout(std::chrono::seconds(60));
        const std::vector<int> to{0, 1};
        token_exchange exchange(comm, to);
        std::vector<int> in(comm.rank() == 1 ? 5 : 4), out(4);
        try {
            exchange.dispatch(in, out, 2);
        } catch (const colls::error& e) {
            told += e.code() == (comm.rank() == 1 ? colls::errc::invalid_argument : colls::errc::peer_failed) &&
                    support::says(e.what(), "the input has 5 elements");
        }
        ++over;
        while (over < 2) std::this_thread::yield();  // rank 1 does not leave before
    });
    CHECK(told == 2);
}

TEST_CASE("token_exchange: a buffer of another length is refused in words", "[token_exchange]") {
    colls::threads::run(1, [&](colls::communicator& comm) {
        const std::vector<int> to{0, 0};
        token_exchange exchange(comm, to);
        std::vector<int> four(4), other_four(4), five(5);
        const auto refusal = [](auto call) -> std::string {
            try {
                call();
            } catch (const colls::error& e) {
                return e.what();
            }
            return "no error";
        };
        CHECK(support::says(refusal([&] { exchange.dispatch(five, four, 2); }),
            "the input has 5 elements, and should have 4, which is rows() * width"));
        CHECK(support::says(refusal([&] { exchange.collect(four, five, 2); }), "the output has 5 elements"));
        CHECK(support::says(refusal([&] { exchange.dispatch(four, five, 2); }), "5"));  // by all_to_all_v
        CHECK(refusal([&] { exchange.dispatch(four, other_four, 2); }) == "no error");
        // Widths by which the product is 0, or 4.
        for (const std::size_t width : {std::size_t{1} << 63, (std::size_t{1} << 63) + 2}) {
            std::vector<int> as_wrapped(2 * width);  // as many as the wrapped product says
            CHECK(support::says(refusal([&] { exchange.dispatch(as_wrapped, four, width); }), "2 * -922337"));
            CHECK(support::says(refusal([&] { exchange.collect(four, as_wrapped, width); }), "more than there is"));
        }
    });
}
