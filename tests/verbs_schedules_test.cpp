// What schedules become over verbs: chains of work requests, counted from the device's log. And the kit for transports.
#include "catch.hpp"

#include "support/calls.hpp"
#include "support/every_schedule.hpp"
#include "support/verbs.hpp"

#include <colls/automatic.hpp>
#include <colls/testing/transport.hpp>

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <set>

using namespace support;
using colls::collective;
using colls::none;
using colls::testing::dry_network;

namespace {

using kind = verbs_wire::kind;
using log_of = std::vector<dry_network::entry>;

/// What a schedule says: messages, doorbells, one for each peer in each round, and bytes.
struct planned {
    long messages = 0, doorbells = 0;
    std::size_t payload = 0;
    planned& operator+=(const planned& other) {
        messages += other.messages;
        doorbells += other.doorbells;
        payload += other.payload;
        return *this;
    }
};
planned planned_of(const colls::any_schedule& s, int n, std::size_t bytes) {
    planned all;
    // Slots of one home are equal parts of its block; all homes' blocks are equally long.
    std::map<int, std::size_t> parts;
    const bool homes = colls::owned(s.implements);
    for (int i = 0; homes && i < s.blocks(n); ++i) ++parts[s.home(n, i)];
    const auto length = [&](int slot) -> std::size_t {
        if (s.implements == collective::barrier) return 0;
        if (slot >= s.blocks(n)) return bytes;   // scratch, of schedules of one block
        if (!homes) return bytes / static_cast<std::size_t>(s.blocks(n));
        return s.home(n, slot) == none ? 0 : bytes / static_cast<std::size_t>(n) / parts[s.home(n, slot)];
    };
    for (int r = 0; r < n; ++r)
        for (int t = 0; t < s.rounds(n); ++t) {
            std::set<int> peers;
            for (int p = 0; p < s.ports(n); ++p)
                if (const colls::send_part sent = s.at(r, n, t, p).send; sent.peer != none && sent.peer != r) {
                    peers.insert(sent.peer);
                    ++all.messages;
                    for (int i = 0; i < sent.blocks.size(); ++i) all.payload += length(sent.blocks[i]);
                }
            all.doorbells += static_cast<long>(peers.size());
        }
    return all;
}

/// What the log says.
struct counted {
    long requests = 0, messages = 0, notices = 0, credits = 0, doorbells = 0, all_doorbells = 0, signalled = 0, allowed = 0;
    std::uint64_t payload = 0;
    std::string wrong;
};
counted count_of(const log_of& log) {
    counted c;
    std::set<std::uint64_t> data, all;
    std::map<std::pair<int, int>, std::pair<long, long>> queues;   // requests, signalled
    for (const auto& e : log) {
        ++c.requests;
        all.insert(e.doorbell);
        auto& [requests, signalled] = queues[{e.from, e.to}];
        ++requests;
        signalled += e.what.signalled;
        c.signalled += e.what.signalled;
        const kind k = verbs_wire::kind_of(e.what.immediate);
        if (k == kind::notice) {
            ++(e.what.announces ? c.notices : c.credits);
            continue;
        }
        data.insert(e.doorbell);
        c.payload += e.bytes - (k == kind::slot ? 64 : 0);
        c.messages += k == kind::slot || e.what.announces;
    }
    c.doorbells = static_cast<long>(data.size());
    c.all_doorbells = static_cast<long>(all.size());
    for (const auto& [between, of] : queues) {
        const long most = std::max(1l, of.first / 16);
        c.allowed += most;
        // One more where the queue, after more than a hundred requests of this operation and those before, needs one to have room.
        if (of.second > most + 1)
            c.wrong += "from " + std::to_string(between.first) + " to " + std::to_string(between.second) + " " + std::to_string(of.second) + " of " +
                       std::to_string(of.first) + " requests are signalled; ";
    }
    return c;
}

/// Empty, or what is wrong with the order of what was written, from the beginning of the group on: slots and notices one after the
/// other, and none that was written before it was free, as far as its writer has been told.
std::string order_of(const log_of& log, const verbs_shape& shape) {
    struct way {
        std::uint32_t slots = 0, notices = 0;
    };
    std::map<std::pair<int, int>, way> written;
    const auto told = [&](int writer, int owner, std::uint64_t before, std::size_t which) {
        std::uint64_t most = 0;
        for (const auto& e : log) {
            if (e.from != owner || e.to != writer || e.landed == 0 || e.landed > before) continue;
            const kind k = verbs_wire::kind_of(e.what.immediate);
            if (k == kind::direct) continue;
            std::uint64_t word;
            std::memcpy(&word, e.head.data() + (e.what.announces ? 40 : 0) + 8 * which, sizeof word);
            most = std::max(most, word);
        }
        return most;
    };
    for (const auto& e : log) {
        const kind k = verbs_wire::kind_of(e.what.immediate);
        if (k == kind::direct || !e.what.announces) continue;
        way& w = written[{e.from, e.to}];
        std::uint32_t& next = k == kind::slot ? w.slots : w.notices;
        const std::uint32_t room = k == kind::slot ? shape.slots : shape.notices, number = e.what.immediate & verbs_wire::count_bits;
        if (number != next++) return "out of order: " + std::to_string(number) + " instead of " + std::to_string(next - 1);
        if (number < room) continue;
        if (told(e.from, e.to, e.posted, k == kind::slot ? 0 : 1) < number - room + 1)
            return "number " + std::to_string(number) + " from " + std::to_string(e.from) + " to " + std::to_string(e.to) + " was written before there was room";
    }
    return "";
}

/// One call of a collective by that schedule, out of place, with data of which the result is known to the tests of collectives.
void call(colls::communicator& comm, const colls::any_schedule& s, colls::memory<std::uint64_t>& in, colls::memory<std::uint64_t>& out, std::size_t count) {
    const auto what_it_is = static_cast<what>(s.implements);
    const auto n = static_cast<std::size_t>(comm.size());
    const bool own_in = s.implements == collective::gather || s.implements == collective::all_gather;
    const bool own_out = s.implements == collective::scatter || s.implements == collective::reduce_scatter;
    arguments a;
    a.collective = what_it_is;
    a.chosen = &s;
    a.in = reinterpret_cast<const std::byte*>(in.data());
    a.out = reinterpret_cast<std::byte*>(out.data());
    a.in_count = own_in ? count / n : count;
    a.out_count = own_out ? count / n : count;
    switch (s.implements) {
        case collective::reduce:
        case collective::reduce_scatter:
        case collective::all_reduce:
        case collective::inclusive_scan:
        case collective::exclusive_scan: return fold_call<blocking_way, std::uint64_t>(comm, a, colls::sum);
        default: return move_call<blocking_way, std::uint64_t>(comm, a);
    }
}

/// Lowers a call of each schedule; f(name, schedule, the log of this call alone, what was copied).
template <class F>
void lower_all(int n, std::size_t words_per_block, const verbs_shape& shape, F f) {
    const auto net = std::make_shared<dry_network>();
    std::barrier<> all(n);
    std::atomic<std::uint64_t> copied{0};
    long signalled = 0, allowed = 0;
    log_of whole;
    run_over_verbs(
        net, n,
        [&](colls::communicator& comm, dry_way& way) {
            // All get to know each other: what is sent before a queue pair is connected goes later, and together.
            std::vector<int> mine(static_cast<std::size_t>(n)), theirs(static_cast<std::size_t>(n));
            colls::all_to_all<colls::direct>(comm, mine, theirs);
            for (const auto& [name, schedule] : every_schedule()) {
                if (!schedule.supports(n)) continue;
                const std::size_t count = static_cast<std::size_t>(schedule.blocks(n) == 1 ? n : schedule.blocks(n)) * words_per_block * static_cast<std::size_t>(n);
                auto in = comm.allocate<std::uint64_t>(count), out = comm.allocate<std::uint64_t>(count);
                for (std::size_t i = 0; i < count; ++i) in[i] = i + static_cast<std::size_t>(comm.rank());
                if (comm.rank() == 0) copied = 0;
                // Nothing is under way where all wait here: so the log before is whole, and that of the call alone too.
                all.arrive_and_wait();
                if (comm.rank() == 0) {
                    for (const auto& e : net->log()) whole.push_back(e);
                    net->clear_log();
                }
                const auto before = way.copied();
                all.arrive_and_wait();
                call(comm, schedule, in, out, count);
                copied += way.copied().out - before.out + way.copied().in - before.in;
                all.arrive_and_wait();
                if (comm.rank() == 0) {
                    f(name, schedule, count * 8, net->log(), copied.load());
                    signalled += count_of(net->log()).signalled;
                    allowed += count_of(net->log()).allowed;
                }
                all.arrive_and_wait();
            }
        },
        shape);
    for (const auto& e : net->log()) whole.push_back(e);
    std::printf("%ld requests are signalled, of %ld that one for each queue pair and operation, or every 16th, would be\n\n", signalled, allowed);
    CHECK(signalled <= allowed);
    CHECK(order_of(whole, shape) == "");
    CHECK(net->regions() == 0);
}

/// The length of a rank's block goes ahead where ranks between the root and others must know it.
bool learns(const colls::any_schedule& s, int n) {
    return (s.implements == collective::gather || s.implements == collective::scatter) &&
           !colls::detail::script_for(s, n, colls::detail::reach::nothing)->own_only;
}
const colls::any_schedule& count_schedule() {
    const auto all = colls::detail::candidates_for<collective::broadcast>();
    int i = 0;
    while (all.first[i].name != "tree") ++i;
    return all.first[i].schedule;
}

}  // namespace

TEST_CASE("the kit for transports finds nothing over verbs", "[verbs_schedules]") {
    for (const bool lazy : {false, true}) {
        const auto net = std::make_shared<dry_network>(lazy);
        const auto report = colls::testing::transport(
            [&](int n, auto&& f) { run_over_verbs(net, n, [&](colls::communicator& comm, dry_way&) { f(comm); }); }, {.groups = sanitized ? std::vector{3} : std::vector{1, 2, 3, 4}});
        INFO(report.text());
        CHECK(report.ok());
        CHECK(net->regions() == 0);
    }
}

TEST_CASE("the kit for transports finds nothing over memory within hosts and verbs between them", "[verbs_schedules]") {
    for (const int per_host : {2, 3})
        for (const bool lazy : {false, true}) {
            if (sanitized && lazy != (per_host == 2)) continue;
            const auto net = std::make_shared<dry_network>(lazy);
            const auto report = colls::testing::transport(
                [&](int n, auto&& f) { run_over_verbs(net, n, [&](colls::communicator& comm, dry_way&) { f(comm); }, {}, per_host); }, {.groups = sanitized ? std::vector{4} : std::vector{3, 4, 6}});
            INFO(report.text());
            CHECK(report.ok());
            CHECK(net->regions() == 0);
        }
}

TEST_CASE("small messages: a request each, a doorbell for each round and peer, few signals", "[verbs_schedules]") {
    // Nobody asks the device because it waits: what is signalled is what the rule says.
    const verbs_shape shape{.mark_after = 1e9};
    for (const int n : {2, 3, 4, 7, 8})
        for (const std::size_t words : {std::size_t{2}, std::size_t{10}}) {
            std::printf("%d ranks, blocks of %zu bytes\n%-44s%9s%9s%10s%10s%10s%11s\n", n, words * static_cast<std::size_t>(n) * 8, "", "messages", "requests", "doorbells",
                        "signalled", "credits", "bytes");
            lower_all(n, words, shape, [&](const std::string& name, const colls::any_schedule& s, std::size_t bytes, const log_of& log, std::uint64_t) {
                INFO(name << ", " << n << " ranks, " << bytes << " bytes");
                planned e = planned_of(s, n, bytes);
                const counted c = count_of(log);
                std::printf("%-44s%9ld%9ld%10ld%10ld%10ld%11zu\n", name.c_str(), c.messages, c.requests, c.doorbells, c.signalled, c.credits,
                            static_cast<std::size_t>(c.payload));
                if (learns(s, n)) e += planned_of(count_schedule(), n, 8);
                CHECK(c.messages == e.messages);
                CHECK(c.doorbells == e.doorbells);
                CHECK(c.notices == 0);
                CHECK(c.payload == e.payload);
                CHECK(c.requests == c.messages + c.credits);
                CHECK(c.wrong == "");
            });
        }
}

TEST_CASE("large messages in registered memory: no copy, and as few signals", "[verbs_schedules]") {
    const verbs_shape shape{.offer_after = 1e9, .mark_after = 1e9};
    for (const int n : {2, 4, 7})
        for (const std::size_t words : {std::size_t{4000}, std::size_t{60'000}}) {
            if (sanitized && (n > 4 || words > 4000)) continue;
            std::printf("%d ranks, blocks of %zu bytes\n%-44s%9s%9s%10s%10s%10s%12s%10s\n", n, words * static_cast<std::size_t>(n) * 8, "", "messages", "requests",
                        "doorbells", "signalled", "credits", "bytes", "notices");
            lower_all(n, words, shape, [&](const std::string& name, const colls::any_schedule& s, std::size_t bytes, const log_of& log, std::uint64_t copied) {
                INFO(name << ", " << n << " ranks, " << bytes << " bytes");
                planned e = planned_of(s, n, bytes);
                const counted c = count_of(log);
                std::printf("%-44s%9ld%9ld%10ld%10ld%10ld%12zu%10ld\n", name.c_str(), c.messages, c.requests, c.doorbells, c.signalled, c.credits,
                            static_cast<std::size_t>(c.payload), c.notices);
                if (learns(s, n)) e += planned_of(count_schedule(), n, 8);
                CHECK(c.payload == e.payload);
                CHECK(c.messages >= e.messages);   // in chunks
                CHECK(c.doorbells <= c.messages);
                CHECK(c.notices <= c.messages);
                CHECK(c.wrong == "");
                // What goes ahead of it is small.
                CHECK(copied <= (learns(s, n) ? 8 * static_cast<std::uint64_t>(n) * 2 : 0));
            });
        }
}
