// The work requests that schedules become over verbs, counted from the simulated device's log; and the transport kit.
#include "catch.hpp"

#include "support/calls.hpp"
#include "support/schedules.hpp"
#include "support/verbs.hpp"

#include <colls/detail/choose/choose.hpp>
#include <colls/testing/transport.hpp>

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <set>

using namespace support;
using colls::collective;
using colls::none;
using colls::testing::dry_network;

namespace {

using kind = rdma::write_kind;
using log_of = std::vector<dry_network::entry>;

/// Messages and bytes of a schedule, and its doorbells: one for each peer in each round.
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
        if (slot >= s.blocks(n)) return bytes;  // scratch, of schedules of one block
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

/// Signalled requests that a queue may have in an operation beyond one, or every 16th of its requests.
constexpr long more_signals = 0;

/// Figures from the log.
struct counted {
    long requests = 0, messages = 0, notices = 0, credits = 0, asked = 0;  // requests: of all kinds
    long doorbells = 0, all_doorbells = 0;                                 // with data; all
    long signalled = 0, allowed = 0, beyond = -1000;  // beyond: what one queue has more than it may
    std::uint64_t payload = 0, bytes = 0;             // bytes: with headers, notices and credits
    std::string wrong;
    counted& operator+=(const counted& o) {
        requests += o.requests, messages += o.messages, notices += o.notices, credits += o.credits, asked += o.asked;
        doorbells += o.doorbells, all_doorbells += o.all_doorbells, signalled += o.signalled, allowed += o.allowed;
        beyond = std::max(beyond, o.beyond);
        payload += o.payload, bytes += o.bytes;
        return *this;
    }
};
counted count_of(const log_of& log) {
    counted c;
    std::set<std::uint64_t> data, all;
    std::map<std::pair<int, int>, std::pair<long, long>> queues;  // requests, signalled
    for (const auto& e : log) {
        ++c.requests;
        c.bytes += e.bytes;
        all.insert(e.doorbell);
        auto& [requests, signalled] = queues[{e.from, e.to}];
        ++requests;
        signalled += e.what.signalled;
        c.signalled += e.what.signalled;
        const kind k = rdma::kind_of(e.what.immediate);
        if (k == kind::notice) {
            ++(e.what.announces ? c.notices : c.credits);
            continue;
        }
        data.insert(e.doorbell);
        c.payload += e.bytes - (k == kind::slot && e.what.announces ? sizeof(rdma::message_header) : 0);
        c.messages += e.what.announces;
        c.asked += (e.what.immediate & rdma::acknowledgement_wanted) != 0;
    }
    c.doorbells = static_cast<long>(data.size());
    c.all_doorbells = static_cast<long>(all.size());
    for (const auto& [between, of] : queues) {
        const long most = std::max(1l, of.first / 16);
        c.allowed += most;
        c.beyond = std::max(c.beyond, of.second - most);
        if (of.second > most + more_signals)
            c.wrong += "from " + std::to_string(between.first) + " to " + std::to_string(between.second) + " " +
                       std::to_string(of.second) + " of " + std::to_string(of.first) + " requests are signalled; ";
    }
    return c;
}

/// Checks the order of writes in the log of a group's whole life: slots and notices must be used one after the other,
/// and none be written before credits have told its writer that it is free. Returns what is wrong, or nothing.
std::string order_of(const log_of& log, const verbs_shape& shape) {
    struct word_of {
        const std::byte* at;
        std::uint64_t landed;
    };
    struct direction {
        std::uint32_t used[2] = {};  // slots, notices
        std::uint64_t told[2] = {};
        std::vector<word_of> back;  // where the credits lie that came with writes the other way
        std::size_t seen = 0;
        const dry_network::entry* begun = nullptr;  // the first request of a slot, or notice, with its header
    };
    std::map<std::pair<int, int>, direction> directions;
    for (const auto& e : log) {
        const kind k = rdma::kind_of(e.what.immediate);
        if (k == kind::direct || e.landed == 0) continue;
        direction& w = directions[{e.to, e.from}];
        const bool alone = k == kind::notice && !e.what.announces;
        if (!alone && !w.begun) w.begun = &e;
        if (alone || e.what.announces)
            w.back.push_back(
                {alone ? e.head.data() : w.begun->head.data() + offsetof(rdma::message_header, returned), e.landed});
        if (!alone && e.what.announces) w.begun = nullptr;
    }
    for (const auto& e : log) {
        const kind k = rdma::kind_of(e.what.immediate);
        if (k == kind::direct || !e.what.announces) continue;
        direction& w = directions[{e.from, e.to}];
        for (; w.seen < w.back.size() && w.back[w.seen].landed <= e.posted; ++w.seen)
            for (std::size_t which = 0; which < 2; ++which) {
                std::uint64_t word;
                std::memcpy(&word, w.back[w.seen].at + 8 * which, sizeof word);
                w.told[which] = std::max(w.told[which], word);
            }
        const std::size_t which = k == kind::notice;
        std::uint32_t& next = w.used[which];
        const std::uint32_t room = which == 0 ? shape.slots : shape.notices,
                            number = e.what.immediate & rdma::count_mask;
        if (number != next++)
            return "out of order: " + std::to_string(number) + " instead of " + std::to_string(next - 1);
        if (number >= room && w.told[which] < number - room + 1)
            return "number " + std::to_string(number) + " from " + std::to_string(e.from) + " to " +
                   std::to_string(e.to) + " was written before there was room";
    }
    return "";
}

/// Calls the schedule's collective by it, out of place.
void call_by(colls::communicator& comm, const colls::any_schedule& s, const std::uint64_t* in, std::uint64_t* out,
    std::size_t count) {
    const auto what_it_is = static_cast<verb>(s.implements);
    const auto n = static_cast<std::size_t>(comm.size());
    const bool own_in = s.implements == collective::gather || s.implements == collective::all_gather;
    const bool own_out = s.implements == collective::scatter || s.implements == collective::reduce_scatter;
    arguments a;
    a.collective = what_it_is;
    a.chosen = &s;
    a.in = reinterpret_cast<const std::byte*>(in);
    a.out = reinterpret_cast<std::byte*>(out);
    a.in_count = own_in ? count / n : count;
    a.out_count = own_out ? count / n : count;
    switch (s.implements) {
        case collective::reduce:
        case collective::reduce_scatter:
        case collective::all_reduce:
        case collective::inclusive_scan:
        case collective::exclusive_scan:
            return fold_call<blocking_way, std::uint64_t>(comm, a, colls::sum);
        default:
            return move_call<blocking_way, std::uint64_t>(comm, a);
    }
}

enum class memory_of { device, other };  // registered, or not

/// Calls f(communicator, device) on n threads that meet at a barrier; where one of them throws, the others do not wait
/// for it there.
template <class F>
void run_with(std::barrier<>& all, const std::shared_ptr<dry_network>& net, int n, const verbs_shape& shape, F f) {
    run_over_verbs(
        net, n,
        [&](colls::communicator& comm, dry_device& device) {
            try {
                f(comm, device);
            } catch (...) {
                all.arrive_and_drop();
                throw;
            }
        },
        shape);
}

/// Is called with the schedule, the bytes, the figures of this call, and the bytes that all ranks have copied.
using check_of_call =
    std::function<void(const colls::any_schedule&, std::size_t, const counted&, const rdma::copied_bytes&)>;

/// Calls each schedule's collective, and `f` for each. Of several lengths each call takes the next one, three calls a
/// schedule.
void lower_all(int n, const std::vector<std::size_t>& words, memory_of where, const verbs_shape& shape,
    const check_of_call& f, std::uint64_t request_bytes = 1 << 30) {
    const auto net = std::make_shared<dry_network>(false, 256, 16, request_bytes);
    std::barrier<> all(n);
    std::mutex mutex;
    rdma::copied_bytes copied;
    counted sum;
    log_of whole;
    std::printf("%d ranks, blocks of", n);
    for (const std::size_t w : words) std::printf(" %zu,", w * static_cast<std::size_t>(n) * 8);
    std::printf(" bytes, %s\n", where == memory_of::device ? "registered" : "not registered");
    if (request_bytes < 1 << 20)
        std::printf("requests of at most %llu bytes\n", static_cast<unsigned long long>(request_bytes));
    const bool lines =
        (n == 4 && words.size() == 1 && where == memory_of::device) || setting("COLLS_TEST_FIGURES", 0) > 0;
    const auto print = [&](const char* name, const counted& c) {
        std::printf("%-46s%9ld%9ld%10ld%10ld%10ld%8ld%8ld%12llu%12llu\n", name, c.messages, c.requests, c.doorbells,
            c.all_doorbells, c.signalled, c.credits, c.notices, static_cast<unsigned long long>(c.payload),
            static_cast<unsigned long long>(c.bytes));
    };
    std::printf("%-46s%9s%9s%10s%10s%10s%8s%8s%12s%12s\n", "", "messages", "requests", "doorbells", "with all",
        "signalled", "credits", "notices", "payload", "bytes");
    run_with(all, net, n, shape, [&](colls::communicator& comm, dry_device& device) {
        // All queue pairs are connected first: messages that are sent earlier would go later, and together.
        std::vector<int> mine(static_cast<std::size_t>(n)), theirs(static_cast<std::size_t>(n));
        colls::all_to_all<colls::direct>(comm, mine, theirs);
        std::size_t turn = 0;
        for (const std::size_t all_schedules = every_schedule().size();
            turn < (words.size() > 1 ? 3 : 1) * all_schedules; ++turn) {
            const auto& [name, schedule] = every_schedule()[turn % all_schedules];
            if (!schedule.supports(n)) continue;
            const std::size_t words_per_block = words[turn % words.size()];
            const std::size_t count = static_cast<std::size_t>(schedule.blocks(n) == 1 ? n : schedule.blocks(n)) *
                                      words_per_block * static_cast<std::size_t>(n);
            std::optional<colls::memory<std::uint64_t>> known[2];
            std::vector<std::uint64_t> other[2];
            std::uint64_t* at[2];
            for (int i = 0; i < 2; ++i)
                at[i] = where == memory_of::device ? known[i].emplace(comm.allocate<std::uint64_t>(count)).data()
                                                   : (other[i].resize(count), other[i].data());
            for (std::size_t i = 0; i < count; ++i) at[0][i] = i + static_cast<std::size_t>(comm.rank());
            if (comm.rank() == 0) copied = {};
            // Where all ranks wait here nothing is under way: the log before is complete, and so is that of the call.
            all.arrive_and_wait();
            if (comm.rank() == 0) {
                for (const auto& e : net->log()) whole.push_back(e);
                net->clear_log();
            }
            const auto before = device.copied();
            all.arrive_and_wait();
            call_by(comm, schedule, at[0], at[1], count);
            {
                const std::lock_guard lock(mutex);
                copied.out += device.copied().out - before.out;
                copied.in += device.copied().in - before.in;
            }
            all.arrive_and_wait();
            if (comm.rank() == 0) {
                const counted c = count_of(net->log());
                if (lines) print(name.c_str(), c);
                INFO(name << ", " << n << " ranks, " << count * 8 << " bytes"
                          << (where == memory_of::device ? "" : ", not registered"));
                f(schedule, count * 8, c, copied);
                CHECK(c.wrong == "");
                sum += c;
            }
            all.arrive_and_wait();
        }
    });
    for (const auto& e : net->log()) whole.push_back(e);
    print("all", sum);
    std::printf("%ld of %ld signalled, of one queue in one operation %ld more than it may\n\n", sum.signalled,
        sum.allowed, sum.beyond);
    CHECK(sum.signalled <= sum.allowed);
    CHECK(order_of(whole, shape) == "");
    CHECK(net->regions() == 0);
}

/// Whether the root first tells the block's length, since ranks that pass blocks on must know it.
bool root_tells_length(const colls::any_schedule& s, int n) {
    return (s.implements == collective::gather || s.implements == collective::scatter) &&
           !colls::detail::execution_plan_for(s, n, colls::detail::reach::nothing)->own_blocks_only;
}
void run_kit(bool lazy, int per_host, const std::vector<int>& groups) {
    const auto net = std::make_shared<dry_network>(lazy);
    const auto report = colls::testing::transport(
        [&](int n, auto&& f) {
            run_over_verbs(net, n, [&](colls::communicator& comm, dry_device&) { f(comm); }, {}, per_host);
        },
        {.deadline = 300, .groups = groups});
    INFO(report.text());
    CHECK(report.ok());
    CHECK(net->regions() == 0);
}
const colls::any_schedule& count_schedule() {
    const auto all = colls::detail::candidates_for<collective::broadcast>();
    int i = 0;
    while (all.first[i].name != "tree") ++i;
    return all.first[i].schedule;
}

}  // namespace

TEST_CASE("verbs: the transport kit finds no fault", "[verbs_schedules]") {
    for (const bool lazy : {false, true})
        run_kit(lazy, 0,
            sanitized  ? std::vector{3}
            : long_run ? std::vector{1, 2, 3, 4}
            : lazy     ? std::vector{3}
                       : std::vector{1, 2, 4});
}

TEST_CASE("verbs: the transport kit finds no fault with shared memory within hosts and verbs between them",
    "[verbs_schedules]") {
    for (const int per_host : {2, 3})
        for (const bool lazy : {false, true}) {
            if (!long_run && lazy != (per_host == 2)) continue;
            run_kit(lazy, per_host, sanitized ? std::vector{4} : long_run ? std::vector{3, 4, 6} : std::vector{3, 6});
        }
}

TEST_CASE("verbs: small messages take one request each, one doorbell for each round and peer, few signals",
    "[verbs_schedules]") {
    // No signal is asked for because a rank waits: only the rule's are counted.
    const verbs_shape shape{.signal_after = 1e9};
    for (const memory_of where : {memory_of::device, memory_of::other})
        for (const int n : {2, 3, 4, 7, 8})
            for (const std::size_t words : {2u, 10u, 60u}) {
                if (words > 10 && n > 4) continue;
                lower_all(n, {words}, where, shape,
                    [&](const colls::any_schedule& s, std::size_t bytes, const counted& c,
                        const rdma::copied_bytes& copied) {
                        planned e = planned_of(s, n, bytes);
                        if (root_tells_length(s, n)) e += planned_of(count_schedule(), n, 8);
                        CHECK(c.messages == e.messages);
                        CHECK(c.doorbells == e.doorbells);
                        CHECK(c.notices == 0);
                        CHECK(c.payload == e.payload);
                        CHECK(c.bytes == e.payload + 64 * static_cast<std::uint64_t>(c.messages) +
                                             24 * static_cast<std::uint64_t>(c.credits));
                        CHECK(c.requests == c.messages + c.credits);
                        // Credits that are written by themselves were asked for, or give back half a ring.
                        CHECK(c.credits <= c.asked + e.messages * 2 / static_cast<long>(shape.slots) + n * n);
                        CHECK(copied.in == e.payload);
                        CHECK(copied.out <= (where == memory_of::device ? 0 : e.payload));
                    });
            }
}

TEST_CASE("verbs: large messages in registered memory are not copied; few signals", "[verbs_schedules]") {
    const verbs_shape shape{.offer_after = 1e9, .signal_after = 1e9};
    struct form {
        int n;
        std::size_t words;
        memory_of where = memory_of::device;
        std::uint64_t request_bytes = 1 << 30;
    };
    std::vector<form> all;
    for (const int n : {2, 3, 4, 7, 8}) {
        if (sanitized && n > 4) continue;
        const std::size_t words = n > 4 ? 2000 : 4000;
        all.push_back({n, words});
        all.push_back({n, words, memory_of::other});
        all.push_back({n, words, memory_of::device, 4096});  // one packet a request, as between soft-RoCE devices
    }
    if (!sanitized) all.insert(all.end(), {{2, 60'000}, {4, 60'000}});
    for (const form& f : all) {
        lower_all(
            f.n, {f.words}, f.where, shape,
            [&](const colls::any_schedule& s, std::size_t bytes, const counted& c, const rdma::copied_bytes& copied) {
                planned e = planned_of(s, f.n, bytes), ahead;  // the length, which the root tells first, is small
                if (root_tells_length(s, f.n)) ahead = planned_of(count_schedule(), f.n, 8);
                e += ahead;
                CHECK(c.payload == e.payload);
                CHECK(c.messages >= e.messages);  // in chunks
                CHECK(c.doorbells <= c.messages);
                if (f.where == memory_of::device) {
                    CHECK(c.notices <= c.messages);
                    CHECK(copied.in == ahead.payload);
                    CHECK(copied.out == 0);
                }
            },
            f.request_bytes);
    }
}

// A queue pair needs a signal now and then to know that it has room, even if no operation needs one.
TEST_CASE("verbs: small and large messages in turns need few signals in each operation", "[verbs_schedules]") {
    const verbs_shape shape{.offer_after = 1e9, .signal_after = 1e9};
    for (const int n : {2, 3, 4, 8})
        for (const std::uint64_t request_bytes : {1u << 30, 4096u})
            lower_all(
                n, {1, 2000, 1500, 1, 1, 2000, 40}, memory_of::device, shape,
                [&](const colls::any_schedule& s, std::size_t bytes, const counted& c, const rdma::copied_bytes&) {
                    CHECK(c.payload == planned_of(s, n, bytes).payload +
                                           (root_tells_length(s, n) ? planned_of(count_schedule(), n, 8).payload : 0));
                },
                request_bytes);
}

TEST_CASE("verbs: queue pairs are made exactly where a schedule has messages", "[verbs_schedules]") {
    constexpr int n = 4;
    for (const auto& [name, schedule] : every_schedule()) {
        if (!schedule.supports(n)) continue;
        std::set<std::pair<int, int>> edges;
        const auto add = [&](const colls::any_schedule& s) {
            for (int r = 0; r < n; ++r)
                for (int t = 0; t < s.rounds(n); ++t)
                    for (int p = 0; p < s.ports(n); ++p)
                        if (const int peer = s.at(r, n, t, p).send.peer; peer != none && peer != r)
                            edges.emplace(std::min(r, peer), std::max(r, peer));
        };
        add(schedule);
        if (root_tells_length(schedule, n)) add(count_schedule());
        const auto net = std::make_shared<dry_network>();
        run_over_verbs(net, n, [&, &chosen = schedule](colls::communicator& comm, dry_device&) {
            std::vector<std::uint64_t> in(768), out(768);
            call_by(comm, chosen, in.data(), out.data(), 768);
        });
        INFO(name);
        CHECK(net->opened() == 2 * edges.size());
    }
}

// A rank that only receives writes placement notices, which no operation signals, until the queue needs a signal to
// have room.
TEST_CASE("verbs: an operation after many without a signal has few signals", "[verbs_schedules]") {
    const verbs_shape shape{.offer_after = 1e9, .signal_after = 1e9};
    const auto net = std::make_shared<dry_network>();
    std::barrier<> all(2);
    counted sum;
    run_with(all, net, 2, shape, [&](colls::communicator& comm, dry_device&) {
        auto block = comm.allocate<std::uint64_t>(2000), both = comm.allocate<std::uint64_t>(4000);
        for (int before = 1; before < 140; before += before < 90 ? 22 : 1) {
            for (int k = 0; k < before; ++k) colls::broadcast<colls::direct>(comm, block, 0);
            all.arrive_and_wait();
            if (comm.rank() == 0) net->clear_log();
            all.arrive_and_wait();
            colls::all_gather<colls::direct>(comm, block, both);
            all.arrive_and_wait();
            if (comm.rank() == 0) {
                const counted c = count_of(net->log());
                INFO("after " << before << " broadcasts");
                CHECK(c.signalled >= 1);
                CHECK(c.wrong == "");
                sum += c;
            }
            all.arrive_and_wait();
        }
    });
    std::printf("%ld of %ld signalled, of one queue in one operation %ld more than it may\n", sum.signalled,
        sum.allowed, sum.beyond);
}
