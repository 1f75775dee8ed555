// The shuffle against the lists that the ranks are known to send.
#include "catch.hpp"

#include "support/every_transport.hpp"

#include <colls/patterns/shuffle.hpp>

using namespace support;

namespace {

/// What rank `from` sends to rank `to`: of a length that differs by pair, for some pairs 0.
std::vector<long> list(int from, int to, int turn) {
    std::vector<long> v(static_cast<std::size_t>((from * 7 + to * 3 + turn) % 5 * (to == 1 ? 1000 : 3)));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = from * 1'000'000L + to * 10'000L + static_cast<long>(i);
    return v;
}

}  // namespace

TEST_CASE("shuffle: each rank has the list of every rank, in rank order", "[patterns]") {
    for (const int n : {1, 2, 3, 5, 7, 8})
        on_every_transport(n, [&](colls::communicator& comm) {
            for (int turn = 0; turn < 5; ++turn) {
                std::vector<std::vector<long>> lists;
                for (int to = 0; to < n; ++to) lists.push_back(list(comm.rank(), to, turn));
                const auto got = colls::shuffle(comm, lists);
                expect(got.size() == static_cast<std::size_t>(n), "one list a rank");
                for (int from = 0; from < n; ++from)
                    expect(got[static_cast<std::size_t>(from)] == list(from, comm.rank(), turn), "a list");
            }
            const std::vector<std::vector<char>> empty(static_cast<std::size_t>(n));
            expect(colls::shuffle(comm, empty) == empty, "empty lists alone");
        });
}

TEST_CASE("shuffle: a wrong number of lists is refused, and the call may be made again", "[patterns]") {
    on_every_transport(3, [](colls::communicator& comm) {
        const std::vector<std::vector<int>> few(2), many(4), right(3);
        const auto refused = [&](const auto& lists) {
            return refusal_of([&] { colls::shuffle(comm, lists); }).find("one list for each rank");
        };
        expect(refused(few) != std::string::npos && refused(many) != std::string::npos, "refused");
        expect(colls::shuffle(comm, right) == right, "made again");
    });
}
