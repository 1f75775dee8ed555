// For the tests of a transport of one's own, in any test framework or none:
//     const auto report = colls::testing::transport([](int n, auto&& f) { my_transport::run(n, f); });
//     if (!report.ok()) fail(report.text());
#pragma once

#include <colls/detail/group/backoff.hpp>
#include <colls/detail/testing/collective_case.hpp>

#include <chrono>
#include <memory>
#include <thread>

namespace colls::inline v1::testing {

/// What the kit has found.
class transport_report {
public:
    bool ok() const { return finding_.empty(); }
    /// The first thing that is wrong, with the number of ranks, or a summary.
    std::string text() const {
        return ok() ? std::to_string(checks_) + " checks in groups of up to " + std::to_string(ranks_) + " ranks"
                    : finding_;
    }
    /// Calls and situations that were judged, on every rank each.
    std::size_t checks() const { return checks_; }

    void passed(int ranks, std::size_t checks) {
        ranks_ = std::max(ranks_, ranks);
        checks_ += checks;
    }
    void failed(int ranks, const std::string& what) { finding_ = std::to_string(ranks) + " ranks: " + what; }

private:
    std::string finding_;
    std::size_t checks_ = 0;
    int ranks_ = 0;
};

/// How much of it.
struct transport_limits {
    double deadline = 20;                       ///< seconds that any wait may take (at most COLLS_TIMEOUT)
    std::vector<int> groups = {1, 2, 3, 4, 7};  ///< sizes of groups
};

/// Everything that a group owes its user, tried on groups of several sizes: each collective and v-variant against a
/// serial reference, of sizes around those where the library changes its ways; messages; started and prepared calls;
/// groups split off; memory; errors that must reach everyone. Over a thousand calls a group, in a second or so for
/// threads. Stops at the first finding; where the transport loses something, that takes `deadline` seconds.
///
/// `run(n, f)` makes a group of n ranks, threads or processes, calls f(colls::communicator&) on each, and returns when
/// all have ended. An exception that leaves f on one rank must break the group (threads::run and processes::run do so),
/// and come out of run, with its text, when all have ended. That is the one way in which findings come back, so ranks
/// need not share memory with the caller; it is tried first. Where the program's own processes are the ranks (MPI),
/// each of them calls this, run leaves out those beyond n, and throws in all of them or in none.
template <class Run>
transport_report transport(Run&& run, const transport_limits& limits = {});

// ---- implementation ----

namespace detail {

inline std::vector<spec> calls_for(int n) {
    constexpr std::size_t k = 1024;
    constexpr std::size_t sizes[] = {
        0, 1, 7, 8, 56, 57, 64, 1000, 8 * k - 8, 8 * k, 8 * k + 1, 128 * k - 8, 128 * k, 128 * k + 8, 1024 * k + 8};
    std::vector<spec> all;
    std::uint64_t seed = hashed(index(n), 17);
    const auto add = [&](spec s) {
        s.seed = seed = hashed(seed);
        const bool keeps_order = s.schedule == by::automatic || s.schedule == by::direct;
        s.ordered = v1::reduces(s.what) && keeps_order && drawn(hashed(seed, 1), 2) == 0;
        s.how = s.schedule == by::automatic ? static_cast<way>(drawn(hashed(seed, 2), 3)) : way::blocking;
        s.small_elements =
            s.bytes % 8 != 0 || (s.schedule == by::automatic && s.bytes < 9 * k && drawn(hashed(seed, 3), 2) == 0);
        if (s.root == none) s.root = drawn(hashed(seed, 4), n);
        all.push_back(s);
    };
    for (int c = 0; c < collective_count; ++c) {
        const auto what = static_cast<collective>(c);
        const bool blocks = v1::owned(what) || what == collective::all_to_all;
        for (const by schedule : {by::automatic, by::direct, by::ring, by::tree}) {
            if (!offers(schedule, what)) continue;
            if (what == collective::barrier) {
                for (int i = 0; i < 3; ++i) add({.what = what, .schedule = schedule, .root = 0});
                continue;
            }
            for (const std::size_t bytes : sizes) {
                if (schedule != by::automatic && bytes % 8 != 0) continue;
                // All roots of small groups.
                const bool each_root = v1::rooted(what) && n <= 4 && (bytes == 56 || bytes == 8 * k);
                for (int root = each_root ? 0 : none; root < (each_root ? n : 0); ++root)
                    for (const bool in_place : {false, true}) {
                        if (in_place && what == collective::broadcast) continue;  // it always is
                        if (schedule != by::automatic && in_place != (drawn(hashed(seed, 5), 2) == 0)) continue;
                        add({.what = what, .in_place = in_place, .schedule = schedule, .bytes = bytes, .root = root});
                        if (blocks && schedule == by::automatic)
                            add({.what = what, .variable = true, .in_place = in_place, .bytes = bytes, .root = root});
                    }
            }
        }
    }
    return all;
}
inline std::vector<spec> small_calls(int n, int count) {
    std::vector<spec> all = calls_for(n), some;
    std::erase_if(all, [](const spec& s) { return s.bytes > 1000; });
    for (int i = 0; i < count; ++i) {
        some.push_back(all[index(drawn(hashed(index(n), 23, index(i)), static_cast<int>(all.size())))]);
        some.back().seed = hashed(some.back().seed, index(i));
    }
    return some;
}

/// All that is tried on one rank of one group.
class battery {
public:
    battery(communicator& comm, int n, double deadline) : comm_(comm), n_(n), rank_(comm.rank()), deadline_(deadline) {}

    static std::size_t checks(int n) {
        const std::size_t calls =
            calls_for(n).size() + in_a_row + in_flight_rounds * in_flight_width + 3 * std::size(message_sizes);
        return index(n) * (1 + calls + 2 * split_rounds + memory_rounds + (n > 1 ? mismatches + 2 : 0));
    }

    void run() {
        try {
            doing_ = "who is who";
            identity();
            limit(comm_);
            doing_ = "one call after the other";
            for (const spec& s : calls_for(n_)) one(s);
            doing_ = "calls in a row, of ranks that keep no step";
            row();
            doing_ = "operations in flight";
            in_flight();
            doing_ = "messages";
            messages();
            doing_ = "groups split off";
            for (int i = 0; i < split_rounds; ++i) splits(hashed(index(n_), 31, index(i)));
            doing_ = "memory of the group";
            for (int i = 0; i < memory_rounds; ++i) memory_outlives(hashed(index(n_), 37, index(i)));
            if (n_ > 1) {
                doing_ = "an operator that throws on one rank";
                operator_throws();
                doing_ = "a rank that leaves";
                rank_leaves();
                for (int i = 0; i < mismatches; ++i) mismatch(i);
            }
            doing_ = "the end";
            agree(true, "");
        } catch (const error& e) {
            // News of another's error pass as they are, so that its own text is the one that counts.
            if (e.code() == errc::peer_failed) throw;
            throw finding(std::string(doing_) + ": " + e.what());
        }
    }

private:
    static constexpr std::size_t in_a_row = 300, in_flight_rounds = 10, in_flight_width = 6;
    static constexpr std::size_t message_sizes[] = {0, 1, 100, 4096, 16'384, 16'385, 200'001};  // elements of 8 bytes
    static constexpr int split_rounds = 6, memory_rounds = 6, mismatches = 9;

    [[noreturn]] void found(const std::string& what) const {
        throw finding(
            std::string(doing_) + ": rank " + std::to_string(rank_) + " of " + std::to_string(n_) + ": " + what);
    }
    void expect(bool holds, const auto& otherwise) const {
        if (!holds) found(otherwise);
    }
    void limit(communicator& comm) const {
        if (comm.size() > 0) comm.context().env.timeout = std::min(comm.context().env.timeout, deadline_);
    }
    communicator part(communicator& of, int color, int key) const {
        communicator made = of.split(color, key);
        limit(made);
        return made;
    }
    /// Every rank has come here, and all are content.
    void agree(bool content, const std::string& otherwise) {
        expect(content, otherwise);
        int one = 1;
        all_reduce(comm_, std::span(&one, 1), sum);
        expect(one == n_, "an all_reduce of ones gives " + std::to_string(one));
    }

    void identity() {
        expect(comm_.size() == n_, "the communicator's size is " + std::to_string(comm_.size()));
        expect(rank_ >= 0 && rank_ < n_, "not a rank of the group");
        limit(comm_);
        std::vector<int> all(index(n_), none);
        all_gather(comm_, std::span(&rank_, 1), all);
        for (int r = 0; r < n_; ++r)
            expect(all[index(r)] == r,
                "rank " + std::to_string(r) + " of the group says that it is rank " + std::to_string(all[index(r)]));
    }
    void one(const spec& s) {
        if (s.small_elements)
            collective_case<std::uint8_t>(comm_, s).run();
        else
            collective_case<std::uint64_t>(comm_, s).run();
    }
    // Nobody waits for anybody but by these calls; now one rank is late, now another.
    void row() {
        std::uint64_t turn = 0;
        for (const spec& s : small_calls(n_, in_a_row)) {
            if (++turn % 16 == 0 && drawn(turn, n_) == rank_)
                std::this_thread::sleep_for(std::chrono::microseconds(300));
            one(s);
        }
    }
    void in_flight() {
        const std::vector<spec> all = calls_for(n_);
        for (std::size_t round = 0; round < in_flight_rounds; ++round) {
            std::vector<std::unique_ptr<collective_case<std::uint64_t>>> cases;
            std::vector<operation> operations;
            for (std::size_t i = 0; i < in_flight_width; ++i) {
                spec s = all[index(drawn(hashed(index(n_), round, i), static_cast<int>(all.size())))];
                s.schedule = by::automatic;
                s.how = way::started;
                s.bytes = std::min<std::size_t>(s.bytes / 8 * 8, 160 << 10);
                cases.push_back(std::make_unique<collective_case<std::uint64_t>>(comm_, s));
                operations.push_back(cases.back()->start());
            }
            // Each rank finishes them in an order of its own: waits, asks again and again, or lets the destructor wait.
            for (std::uint64_t turn = 0; !cases.empty(); ++turn) {
                const std::uint64_t seed = hashed(turn, index(rank_), round);
                const auto i = static_cast<std::ptrdiff_t>(drawn(seed, static_cast<int>(cases.size())));
                operation& o = operations[static_cast<std::size_t>(i)];
                if (seed % 3 == 0)
                    o.wait();
                else if (seed % 3 == 1)
                    while (!o.test()) std::this_thread::yield();
                else
                    o = operation();
                cases[static_cast<std::size_t>(i)]->judge();
                operations.erase(operations.begin() + i);
                cases.erase(cases.begin() + i);
            }
        }
    }

    void messages() {
        for (const std::size_t count : message_sizes) {
            around(count);
            there_and_back(count);
            several(count);
        }
    }
    guarded<std::uint64_t> filled(std::size_t count, std::uint64_t seed, bool of_group) {
        guarded<std::uint64_t> g(comm_, count, of_group);
        for (std::size_t i = 0; i < count; ++i) g.data()[i] = element<std::uint64_t>(seed, i);
        return g;
    }
    void judge(guarded<std::uint64_t>& got, std::uint64_t seed, const char* what, int from) {
        for (std::size_t i = 0; i < got.size(); ++i)
            if (got.data()[i] !=
                element<std::uint64_t>(seed, i))  // what is said of it takes longer to say than to find
                found(std::string(what) + ": element " + std::to_string(i) + " of " + std::to_string(got.size()) +
                      " from rank " + std::to_string(from) + " is wrong");
        expect(got.intact(), std::string(what) + ": memory beside a buffer has changed");
    }
    static std::span<const std::uint64_t> from(guarded<std::uint64_t>& g) { return {g.data(), g.size()}; }
    static std::span<std::uint64_t> to(guarded<std::uint64_t>& g) { return {g.data(), g.size()}; }
    std::uint64_t between(int source, int target, std::size_t i) const {
        return hashed(index(source), index(target), i);
    }

    // Every rank to the k-th after it, itself included, all under way at once.
    void around(std::size_t count) {
        for (int k = 0; k < n_; ++k) {
            const int right = (rank_ + k) % n_, left = (rank_ + n_ - k) % n_;
            auto out = filled(count, between(rank_, right, count), k % 2 == 0);
            auto in = filled(count, 0, (k + rank_) % 2 == 0);
            operation sending, receiving;
            if (rank_ % 2 == 0) sending = start::send(comm_, from(out), right);
            receiving = start::recv(comm_, to(in), left);
            if (rank_ % 2 != 0) sending = start::send(comm_, from(out), right);
            (k % 2 == 0 ? sending : receiving).wait();
            sending.wait();
            receiving.wait();
            judge(in, between(left, rank_, count), "start::send and start::recv", left);
        }
    }
    // Blocking, in pairs; the receiver is late, and the sender's memory is its own again when send returns.
    void there_and_back(std::size_t count) {
        const int other = rank_ ^ 1;
        if (other >= n_) return;
        auto out = filled(count, between(rank_, other, count), rank_ == 0), in = filled(count, 0, rank_ != 0);
        for (int turn = 0; turn < 2; ++turn)
            if (turn == rank_ % 2) {
                send(comm_, from(out), other);
                std::fill_n(out.data(), count, 0);
            } else {
                std::this_thread::sleep_for(std::chrono::microseconds(200));
                recv(comm_, to(in), other);
            }
        judge(in, between(other, rank_, count), "send and recv", other);
    }
    // Of one pair, in order, received in pieces of other sizes than the ones before, with a collective between.
    void several(std::size_t count) {
        const int right = (rank_ + 1) % n_, left = (rank_ + n_ - 1) % n_;
        std::vector<guarded<std::uint64_t>> out, in;
        std::vector<operation> all;
        for (std::size_t i = 0; i < 4; ++i) {
            out.push_back(filled(count / (i + 1), between(rank_, right, i), i % 2 == 0));
            in.push_back(filled(count / (i + 1), 0, i % 2 != 0));
        }
        for (auto& g : out) all.push_back(start::send(comm_, from(g), right));
        for (auto& g : in) all.push_back(start::recv(comm_, to(g), left));
        barrier(comm_);
        while (!all.empty()) {
            all.back().wait();
            all.pop_back();
        }
        for (std::size_t i = 0; i < in.size(); ++i) judge(in[i], between(left, rank_, i), "messages of one pair", left);
    }

    struct wish {
        int color, key;
        wish(std::uint64_t seed, int r, bool negative)
            : color(drawn(hashed(seed, 1, index(r)), 3) - negative), key(drawn(hashed(seed, 2, index(r)), 4) - 2) {}
    };
    // With a call of the whole group under way from before to after.
    void splits(std::uint64_t seed) {
        const bool negative = seed % 2 == 0;
        const wish own(seed, rank_, negative);
        communicator some = part(comm_, own.color, own.key);
        std::vector<std::uint64_t> a(40'000, 1), b(5000, 1), c(5000, 1);
        operation in_all = start::all_reduce(comm_, a, sum);
        if (own.color < 0) {
            expect(some.size() == 0, "a negative color joins a group of " + std::to_string(some.size()));
        } else {
            std::vector<int> members, inner;
            for (int key = -2; key < 2; ++key)
                for (int r = 0; r < n_; ++r)
                    if (const wish w(seed, r, negative); w.color == own.color && w.key == key) members.push_back(r);
            expect_members(some, members);
            // Within it, backwards, every second rank.
            communicator few = part(some, some.rank() % 2, -some.rank());
            for (int i = some.size() - 1; i >= 0; --i)
                if (i % 2 == some.rank() % 2) inner.push_back(members[index(i)]);
            expect_members(few, inner);
            operation in_some = start::all_reduce(some, b, sum), in_few = start::all_reduce(few, c, sum);
            (rank_ % 2 == 0 ? in_some : in_few).wait();
            in_some.wait();
            in_few.wait();
            expect(std::count(b.begin(), b.end(), members.size()) == 5000 &&
                       std::count(c.begin(), c.end(), inner.size()) == 5000,
                "all_reduce in groups within groups: wrong sums");
        }
        in_all.wait();
        agree(
            std::count(a.begin(), a.end(), index(n_)) == 40'000, "all_reduce while groups were split off: wrong sums");
    }
    void expect_members(communicator& group, const std::vector<int>& want) {
        expect(group.size() == static_cast<int>(want.size()), "split gives a group of " + std::to_string(group.size()) +
                                                                  ", and should give one of " +
                                                                  std::to_string(want.size()));
        std::vector<int> got(want.size(), none);
        all_gather(group, std::span(&rank_, 1), got);
        for (std::size_t i = 0; i < want.size(); ++i)
            expect(got[i] == want[i], "in a group split off, rank " + std::to_string(i) + " was rank " +
                                          std::to_string(got[i]) + ", and should have been " + std::to_string(want[i]));
        const bool within = group.rank() >= 0 && group.rank() < group.size();
        expect(within && want[index(group.rank())] == rank_, "split gives a wrong rank");
    }

    // Taken and given in an order of chance; what is left stays good when the group it came from is gone.
    void memory_outlives(std::uint64_t seed) {
        communicator own = part(comm_, 0, 0);
        std::vector<std::pair<memory<std::uint64_t>, std::uint64_t>> kept;
        const auto check = [&](auto& m) {
            for (std::size_t i = 0; i < m.first.size(); ++i)
                expect(m.first[i] == element<std::uint64_t>(m.second, i), "memory from allocate has changed by itself");
        };
        const auto drop = [&](std::uint64_t turn) {
            std::swap(kept[index(drawn(turn, static_cast<int>(kept.size())))], kept.back());
            check(kept.back());
            kept.pop_back();
        };
        for (std::uint64_t turn = 0; turn < 60; ++turn) {
            const std::uint64_t chance = hashed(seed, turn, index(rank_));
            if (kept.size() > 8 || (!kept.empty() && chance % 3 == 0)) {
                drop(chance);
            } else {
                const std::size_t most = chance % 5 == 0 ? 60'000 : 300;
                kept.emplace_back(own.allocate<std::uint64_t>(hashed(chance) % most), chance);
                auto& made = kept.back().first;
                const auto at = reinterpret_cast<std::uintptr_t>(made.data());
                expect(at % 128 == 0, "memory from allocate is not aligned to 128 bytes");
                for (std::size_t i = 0; i < made.size(); ++i) made[i] = element<std::uint64_t>(chance, i);
            }
        }
        own = communicator();
        while (!kept.empty()) drop(seed + kept.size());
        agree(true, "");
    }

    /// Calls until an error comes, which it must by the second call: what a rank misses, the next call of all cannot do
    /// without.
    template <class F>
    void expect_error(const char* situation, errc want, F call) {
        for (int i = 0; i < 4; ++i) try {
                call();
            } catch (const error& e) {
                // An error that the group has of itself: its text says more than this.
                expect(e.code() == want || e.code() == errc::peer_failed,
                    std::string(situation) + ": the error that a rank gets is another: " + e.what());
                return;
            }
        found(std::string(situation) + ": no error on this rank");
    }
    void operator_throws() {
        const auto maps = [&](bool throws) {
            return [throws](std::uint64_t x, std::uint64_t y) {
                if (throws) throw std::runtime_error("the operator's own");
                return x + y;
            };
        };
        for (const std::size_t count : {std::size_t{2}, std::size_t{30'000}}) {
            communicator own = part(comm_, 0, 0);
            std::vector<std::uint64_t> x(count, 1);
            const bool odd = rank_ == n_ - 1;
            try {
                // The last rank folds something in every schedule, if only in the scan.
                expect_error("another rank's operator throws", errc::peer_failed, [&] {
                    inclusive_scan(own, x, x, maps(odd));
                    barrier(own);
                });
            } catch (const finding&) {
                throw;
            } catch (const std::runtime_error& e) {
                expect(odd, std::string("an exception that is not this rank's: ") + e.what());
            }
            agree(true, "");
        }
    }
    void rank_leaves() {
        communicator own = part(comm_, 0, 0);
        std::vector<std::uint64_t> x(1000, 1);
        all_reduce(own, x, sum);
        if (rank_ == n_ / 2)
            own = communicator();
        else
            expect_error("another rank has left the group", errc::peer_failed, [&] { all_reduce(own, x, sum); });
        agree(true, "");
    }

    // One rank makes another call than all others: everyone gets an error, in this call or the next.
    void mismatch(int kind) {
        constexpr const char* names[] = {"another collective", "another count", "another size", "another type",
            "another operator", "another root", "another order", "a call started, not blocking", "another schedule"};
        static_assert(std::size(names) == mismatches);
        const std::string name = std::string("one rank makes ") + names[kind];
        doing_ = "calls that do not match";
        communicator own = part(comm_, 0, 0);
        const bool odd = rank_ == drawn(hashed(index(n_), index(kind)), n_);
        std::vector<int> x(100, 1), y(99, 1), z(30'000, 1);
        std::vector<float> f(100, 1);
        const int root = odd ? 1 : 0;
        expect_error(name.c_str(), errc::mismatch, [&] {
            switch (kind) {
                case 0:
                    odd ? broadcast(own, x, 0) : all_reduce(own, x, sum);
                    break;
                case 1:
                    odd ? all_reduce(own, y, sum) : all_reduce(own, x, sum);
                    break;
                case 2:
                    odd ? all_reduce(own, z, sum) : all_reduce(own, x, sum);
                    break;
                case 3:
                    odd ? all_reduce(own, f, sum) : all_reduce(own, x, sum);
                    break;
                case 4:
                    odd ? all_reduce(own, x, max) : all_reduce(own, x, sum);
                    break;
                case 5:
                    broadcast(own, x, root);
                    break;
                case 6:
                    if (odd) barrier(own);
                    all_reduce(own, x, sum);
                    if (!odd) barrier(own);
                    break;
                case 7:
                    odd ? start::all_reduce(own, x, sum).wait() : all_reduce(own, x, sum);
                    break;
                default:
                    odd ? all_reduce<direct>(own, x, sum) : all_reduce<ring>(own, x, sum);
                    break;
            }
            barrier(own);
        });
        agree(true, "");
    }

    communicator& comm_;
    const int n_, rank_;
    const double deadline_;
    const char* doing_ = "";
};

/// Runs it; what comes out, or empty.
template <class Run, class F>
std::string outcome_of(Run& run, int n, F f) {
    try {
        run(n, f);
    } catch (const std::exception& e) {
        return *e.what() ? e.what() : "an exception without a text";
    } catch (...) {
        return "an exception that is no std::exception";
    }
    return {};
}

/// An exception on one rank comes out of run, and ends the others' calls. Without this nothing else could be learned.
template <class Run>
bool exceptions_come_out(Run& run, const transport_limits& limits, transport_report& report) {
    constexpr int n = 3;
    for (int thrower = 0; thrower < n; ++thrower) {
        const std::string own = "the word of rank " + std::to_string(thrower);
        const std::string said = outcome_of(run, n, [&](communicator& comm) {
            if (comm.rank() == thrower) throw std::runtime_error(own);
            comm.context().env.timeout = std::min(comm.context().env.timeout, limits.deadline);
            for (int i = 0; i < 4; ++i) barrier(comm);  // an error ends this
        });
        if (said.find(own) == std::string::npos) {
            report.failed(
                n, "an exception left the function of rank " + std::to_string(thrower) + ", and run " +
                       (said.empty() ? "returned as if nothing had happened" : "threw something else: " + said));
            return false;
        }
        report.passed(n, n);
    }
    return true;
}

}  // namespace detail

template <class Run>
transport_report transport(Run&& run, const transport_limits& limits) {
    transport_report report;
    if (!detail::exceptions_come_out(run, limits, report)) return report;
    for (const int n : limits.groups) {
        const std::string said =
            detail::outcome_of(run, n, [&](communicator& comm) { detail::battery(comm, n, limits.deadline).run(); });
        if (!said.empty()) {
            report.failed(n, said);
            break;
        }
        report.passed(n, detail::battery::checks(n));
    }
    return report;
}

}  // namespace colls::inline v1::testing
