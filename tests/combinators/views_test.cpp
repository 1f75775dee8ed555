// Schedules as ranges: what the views give, counted, is what cost_of counts, and what at() says.
#include "catch.hpp"
#include "support/schedules.hpp"

#include <colls/cost.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/views.hpp>

#include <range/v3/range/primitives.hpp>
#include <range/v3/view/join.hpp>

#include <algorithm>
#include <vector>

namespace views = colls::views;
using views::transfer;

namespace {

template <class Range>
std::vector<transfer> listed(Range&& range) {
    return ranges::to<std::vector<transfer>>(range);
}

/// Read in the plainest way.
std::vector<transfer> by_loops(const colls::any_schedule& s, int n) {
    std::vector<transfer> all;
    for (int k = 0; k < s.rounds(n); ++k)
        for (int r = 0; r < n; ++r)
            for (int p = 0; p < s.ports(n); ++p) {
                const colls::send_part out = s.at(r, n, k, p).send;
                if (out.peer == colls::none) continue;
                const colls::receive_part in = s.at(out.peer, n, k, p).recv;
                all.push_back({k, p, r, out.peer, out.blocks, in.blocks, in.action});
            }
    return all;
}

}  // namespace

TEST_CASE("views: the transfers of every schedule are those of its steps, and cost as much", "[views]") {
    for (const support::row& row : support::all_schedules())
        for (int n = 1; n <= 9; ++n) {
            if (!row.supports(n)) continue;
            INFO(row.name << ", " << colls::name_of(row.schedule.implements) << " on " << n);
            const colls::any_schedule& s = row.schedule;
            const auto all = listed(views::transfers(s, n));
            REQUIRE(all == by_loops(s, n));
            CHECK(listed(views::rounds(s, n) | ranges::views::join) == all);

            const colls::cost counted = colls::traffic_of(s, n);
            long messages = 0, blocks = 0, reduced = 0, busiest = 0;
            for (const transfer& t : all) {
                CHECK(t.blocks.size() == t.stored.size());
                if (t.action == colls::action::reduce) reduced += t.stored.size();
            }
            for (const transfer& t : all | views::messages()) ++messages, blocks += t.blocks.size();
            for (int r = 0; r < n; ++r) {
                long sent = 0;
                for (const transfer& t : all | views::messages() | views::sent_by(r)) sent += t.blocks.size();
                busiest = std::max(busiest, sent);
            }
            CHECK(messages == counted.messages);
            CHECK(blocks == counted.all_sent);
            CHECK(reduced == counted.all_reduced);
            CHECK(busiest == counted.blocks_sent);
        }
}

TEST_CASE("views: filters and groups partition the transfers", "[views]") {
    for (const support::row& row : support::all_schedules())
        for (const int n : {1, 2, 5, 8}) {
            if (!row.supports(n)) continue;
            INFO(row.name << ", " << colls::name_of(row.schedule.implements) << " on " << n);
            const auto all = listed(views::transfers(row.schedule, n));
            std::size_t sent = 0, received = 0, either = 0, linked = 0, carried = 0, grouped = 0;
            for (int r = 0; r < n; ++r) {
                sent += listed(all | views::sent_by(r)).size();
                received += listed(all | views::received_by(r)).size();
                either += listed(all | views::at_rank(r)).size();
                for (int other = 0; other < n; ++other) linked += listed(all | views::on_link(r, other)).size();
            }
            const auto local =
                static_cast<std::size_t>(std::ranges::count_if(all, [](const transfer& t) { return t.local(); }));
            CHECK(sent == all.size());
            CHECK(received == all.size());
            CHECK(either + local == 2 * all.size());
            CHECK(linked == all.size());
            CHECK(listed(all | views::messages()).size() + local == all.size());
            for (auto&& group : all | views::by_round()) {
                const auto of_round = listed(group);
                grouped += of_round.size();
                CHECK(of_round ==
                      listed(views::transfers(row.schedule, n, of_round.front().round, of_round.front().round + 1)));
            }
            CHECK(grouped == all.size());
            const auto links = views::links(all);
            long blocks = 0;
            for (const views::link& l : links) {
                CHECK(l.transfers == listed(all | views::on_link(l.from, l.to)));
                carried += l.transfers.size();
                blocks += l.blocks();
            }
            CHECK(carried == all.size());
            long expected = 0;
            for (const transfer& t : all) expected += t.blocks.size();
            CHECK(blocks == expected);
            CHECK(std::ranges::is_sorted(links, {}, [](const views::link& l) { return std::pair(l.from, l.to); }));
        }
}

TEST_CASE("views: a ring's reduce_scatter, read by hand", "[views]") {
    constexpr colls::ring::reduce_scatter ring;
    const auto of_two = listed(views::transfers(ring, 4) | views::sent_by(2) | views::reducing());
    REQUIRE(of_two.size() == 3);
    for (int k = 0; k < 3; ++k) {
        const transfer& t = of_two[static_cast<std::size_t>(k)];
        CHECK(t.round == k);
        CHECK(t.port == 0);
        CHECK(t.blocks.size() == 1);
        CHECK(t.blocks[0] == t.stored[0]);
        CHECK((t.to == 1 || t.to == 3));
        CHECK(t.to == of_two[0].to);
    }
    CHECK(ranges::distance(views::rounds(ring, 4)) == 3);
    CHECK(views::links(views::transfers(ring, 4)).size() == 4);
    CHECK(views::links(views::transfers(ring, 1)).empty());
}
