// What the test kit of transports does on each rank of a group: calls of every kind against a reference, and errors
// that every rank must get.
// IWYU pragma: private, include <colls/testing/transport.hpp>
#pragma once

#include <colls/detail/group/backoff.hpp>
#include <colls/testing/detail/collective_case.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace colls::inline v1::detail::testing {

/// The collective calls that are tried one at a time in a group of n: every collective and v-variant, of sizes around
/// those at which the library changes its method (cache lines, the eager path, chunks).
inline std::vector<collective_spec> calls_for(int n) {
    constexpr std::size_t k = 1024;
    constexpr std::size_t sizes[] = {
        0, 1, 7, 8, 56, 57, 64, 1000, 8 * k - 8, 8 * k, 8 * k + 1, 128 * k - 8, 128 * k, 128 * k + 8, 1024 * k + 8};
    std::vector<collective_spec> all;
    std::uint64_t seed = hash(index(n), 17);
    const auto add = [&](collective_spec s) {
        s.seed = seed = hash(seed);
        const bool keeps_order = s.schedule == schedule_choice::automatic || s.schedule == schedule_choice::direct;
        s.ordered = v1::reduces(s.what) && keeps_order && draw(hash(seed, 1), 2) == 0;
        s.mode = s.schedule == schedule_choice::automatic ? static_cast<call_mode>(draw(hash(seed, 2), 3))
                                                          : call_mode::blocking;
        s.small_elements = s.bytes % 8 != 0 ||
                           (s.schedule == schedule_choice::automatic && s.bytes < 9 * k && draw(hash(seed, 3), 2) == 0);
        if (s.root == none) s.root = draw(hash(seed, 4), n);
        all.push_back(s);
    };
    for (int c = 0; c < collective_count; ++c) {
        const auto what = static_cast<collective>(c);
        const bool blocks = v1::owned(what) || what == collective::all_to_all;
        for (const schedule_choice schedule :
            {schedule_choice::automatic, schedule_choice::direct, schedule_choice::ring, schedule_choice::tree}) {
            if (!offers(schedule, what)) continue;
            if (what == collective::barrier) {
                for (int i = 0; i < 3; ++i) add({.what = what, .schedule = schedule, .root = 0});
                continue;
            }
            for (const std::size_t bytes : sizes) {
                if (schedule != schedule_choice::automatic && bytes % 8 != 0) continue;
                // In small groups every rank is the root of some calls.
                const bool each_root = v1::rooted(what) && n <= 4 && (bytes == 56 || bytes == 8 * k);
                for (int root = each_root ? 0 : none; root < (each_root ? n : 0); ++root)
                    for (const bool in_place : {false, true}) {
                        if (in_place && what == collective::broadcast) continue;  // it has one buffer anyway
                        if (schedule != schedule_choice::automatic && in_place != (draw(hash(seed, 5), 2) == 0))
                            continue;
                        add({.what = what, .in_place = in_place, .schedule = schedule, .bytes = bytes, .root = root});
                        if (blocks && schedule == schedule_choice::automatic)
                            add({.what = what, .variable = true, .in_place = in_place, .bytes = bytes, .root = root});
                    }
            }
        }
    }
    return all;
}
/// `count` random ones of them, of at most 1000 bytes.
inline std::vector<collective_spec> small_calls(int n, int count) {
    std::vector<collective_spec> all = calls_for(n), some;
    std::erase_if(all, [](const collective_spec& s) { return s.bytes > 1000; });
    for (int i = 0; i < count; ++i) {
        some.push_back(all[index(draw(hash(index(n), 23, index(i)), static_cast<int>(all.size())))]);
        some.back().seed = hash(some.back().seed, index(i));
    }
    return some;
}

/// All checks of one rank in one group.
class transport_battery {
public:
    transport_battery(communicator& comm, int n, double deadline)
        : comm_(comm), n_(n), rank_(comm.rank()), deadline_(deadline) {}

    /// How many checks the ranks of a group of n make together.
    static std::size_t checks(int n) {
        const std::size_t calls = calls_for(n).size() + back_to_back_calls + in_flight_rounds * in_flight_width +
                                  3 * std::size(message_sizes);
        return index(n) * (1 + calls + 2 * split_rounds + memory_rounds + (n > 1 ? mismatches + 2 : 0));
    }

    void run() {
        try {
            step_ = "ranks and size";
            identity();
            limit(comm_);
            step_ = "collective calls, one at a time";
            for (const collective_spec& s : calls_for(n_)) one(s);
            step_ = "collective calls back to back, with late ranks";
            back_to_back();
            step_ = "operations in flight";
            in_flight();
            step_ = "point-to-point messages";
            messages();
            step_ = "split groups";
            for (int i = 0; i < split_rounds; ++i) splits(hash(index(n_), 31, index(i)));
            step_ = "group memory";
            for (int i = 0; i < memory_rounds; ++i) memory_outlives(hash(index(n_), 37, index(i)));
            if (n_ > 1) {
                step_ = "an operator that throws on one rank";
                operator_throws();
                step_ = "a rank that leaves the group";
                rank_leaves();
                for (int i = 0; i < mismatches; ++i) mismatch(i);
                for (int i = 0; i < mismatches; ++i) leaves_after_mismatch(i);
            }
            step_ = "the last agreement";
            agree(true, "");
        } catch (const error& e) {
            // An error that another rank caused passes unchanged: `run` must throw the text of that rank.
            if (e.code() == errc::peer_failed) throw;
            throw finding(std::string(step_) + ": " + e.what());
        }
    }

private:
    static constexpr std::size_t back_to_back_calls = 300, in_flight_rounds = 10, in_flight_width = 6;
    static constexpr std::size_t message_sizes[] = {0, 1, 100, 4096, 16'384, 16'385, 200'001};  // elements of 8 bytes
    static constexpr int split_rounds = 6, memory_rounds = 6, mismatches = 9;

    [[noreturn]] void found(const std::string& what) const {
        throw finding(
            std::string(step_) + ": rank " + std::to_string(rank_) + " of " + std::to_string(n_) + ": " + what);
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
    /// Ends a step: checks this rank's result, and that an all_reduce of the whole group works.
    void agree(bool right, const std::string& otherwise) {
        expect(right, otherwise);
        int one = 1;
        all_reduce(comm_, std::span(&one, 1), sum);
        expect(one == n_, "an all_reduce of ones gives " + std::to_string(one));
    }

    void identity() {
        expect(comm_.size() == n_,
            "the communicator's size is " + std::to_string(comm_.size()) + ", expected " + std::to_string(n_));
        expect(rank_ >= 0 && rank_ < n_, "the communicator's rank is out of range");
        limit(comm_);
        std::vector<int> all(index(n_), none);
        all_gather(comm_, std::span(&rank_, 1), all);
        for (int r = 0; r < n_; ++r)
            expect(all[index(r)] == r,
                "rank " + std::to_string(r) + " of the group says that it is rank " + std::to_string(all[index(r)]));
    }
    void one(const collective_spec& s) {
        if (s.small_elements)
            collective_case<std::uint8_t>(comm_, s).run();
        else
            collective_case<std::uint64_t>(comm_, s).run();
    }
    // Nothing but the calls synchronises the ranks; a different rank is late each time.
    void back_to_back() {
        std::uint64_t turn = 0;
        for (const collective_spec& s : small_calls(n_, back_to_back_calls)) {
            if (++turn % 16 == 0 && draw(turn, n_) == rank_)
                std::this_thread::sleep_for(std::chrono::microseconds(300));
            one(s);
        }
    }
    void in_flight() {
        const std::vector<collective_spec> all = calls_for(n_);
        for (std::size_t round = 0; round < in_flight_rounds; ++round) {
            std::vector<std::unique_ptr<collective_case<std::uint64_t>>> cases;
            std::vector<operation> operations;
            for (std::size_t i = 0; i < in_flight_width; ++i) {
                collective_spec s = all[index(draw(hash(index(n_), round, i), static_cast<int>(all.size())))];
                s.schedule = schedule_choice::automatic;
                s.mode = call_mode::started;
                s.bytes = std::min<std::size_t>(s.bytes / 8 * 8, 160 << 10);
                cases.push_back(std::make_unique<collective_case<std::uint64_t>>(comm_, s));
                operations.push_back(cases.back()->start());
            }
            // Each rank completes them in an order of its own, by wait, by test, or by the destructor.
            for (std::uint64_t turn = 0; !cases.empty(); ++turn) {
                const std::uint64_t seed = hash(turn, index(rank_), round);
                const auto i = static_cast<std::ptrdiff_t>(draw(seed, static_cast<int>(cases.size())));
                operation& o = operations[static_cast<std::size_t>(i)];
                if (seed % 3 == 0)
                    o.wait();
                else if (seed % 3 == 1)
                    while (!o.test()) std::this_thread::yield();
                else
                    o = operation();
                cases[static_cast<std::size_t>(i)]->check();
                operations.erase(operations.begin() + i);
                cases.erase(cases.begin() + i);
            }
        }
    }

    void messages() {
        for (const std::size_t count : message_sizes) {
            shift(count);
            exchange_in_pairs(count);
            keep_order(count);
        }
    }
    guarded_buffer<std::uint64_t> filled(std::size_t count, std::uint64_t seed, bool of_group) {
        guarded_buffer<std::uint64_t> g(comm_, count, of_group);
        for (std::size_t i = 0; i < count; ++i) g.data()[i] = element<std::uint64_t>(seed, i);
        return g;
    }
    void check_received(guarded_buffer<std::uint64_t>& got, std::uint64_t seed, const char* what, int from) {
        for (std::size_t i = 0; i < got.size(); ++i)
            if (got.data()[i] != element<std::uint64_t>(seed, i))  // an `expect` would build its text for every element
                found(std::string(what) + ": element " + std::to_string(i) + " of " + std::to_string(got.size()) +
                      " from rank " + std::to_string(from) + " is wrong");
        expect(got.intact(), std::string(what) + ": memory next to a buffer has changed");
    }
    static std::span<const std::uint64_t> from(guarded_buffer<std::uint64_t>& g) { return {g.data(), g.size()}; }
    static std::span<std::uint64_t> to(guarded_buffer<std::uint64_t>& g) { return {g.data(), g.size()}; }
    std::uint64_t between(int source, int target, std::size_t i) const { return hash(index(source), index(target), i); }

    // Every rank sends to the k-th rank after it and receives from the k-th before it; k = 0 is a message to itself.
    void shift(std::size_t count) {
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
            check_received(in, between(left, rank_, count), "start::send and start::recv", left);
        }
    }
    // Blocking, in pairs. The receiver is late, and the sender overwrites its buffer as soon as send returns.
    void exchange_in_pairs(std::size_t count) {
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
        check_received(in, between(other, rank_, count), "send and recv", other);
    }
    // Four messages of different sizes between each pair keep their order, with a collective in between.
    void keep_order(std::size_t count) {
        const int right = (rank_ + 1) % n_, left = (rank_ + n_ - 1) % n_;
        std::vector<guarded_buffer<std::uint64_t>> out, in;
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
        for (std::size_t i = 0; i < in.size(); ++i)
            check_received(in[i], between(left, rank_, i), "messages of one pair", left);
    }

    struct split_arguments {
        int color, key;
        split_arguments(std::uint64_t seed, int r, bool negative)
            : color(draw(hash(seed, 1, index(r)), 3) - negative), key(draw(hash(seed, 2, index(r)), 4) - 2) {}
    };
    // Splits the group, and a part of it once more, while a call of the whole group is in flight.
    void splits(std::uint64_t seed) {
        const bool negative = seed % 2 == 0;
        const split_arguments own(seed, rank_, negative);
        communicator some = part(comm_, own.color, own.key);
        std::vector<std::uint64_t> a(40'000, 1), b(5000, 1), c(5000, 1);
        operation in_all = start::all_reduce(comm_, a, sum);
        if (own.color < 0) {
            expect(some.size() == 0,
                "split with a negative color made a group of " + std::to_string(some.size()) + ", expected none");
        } else {
            std::vector<int> members, inner;
            for (int key = -2; key < 2; ++key)
                for (int r = 0; r < n_; ++r)
                    if (const split_arguments w(seed, r, negative); w.color == own.color && w.key == key)
                        members.push_back(r);
            expect_members(some, members);
            // The ranks of one parity of the part, in descending order.
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
                "all_reduce in nested split groups: wrong sums");
        }
        in_all.wait();
        agree(std::count(a.begin(), a.end(), index(n_)) == 40'000, "all_reduce in flight during a split: wrong sums");
    }
    void expect_members(communicator& group, const std::vector<int>& want) {
        expect(group.size() == static_cast<int>(want.size()),
            "split made a group of " + std::to_string(group.size()) + ", expected " + std::to_string(want.size()));
        std::vector<int> got(want.size(), none);
        all_gather(group, std::span(&rank_, 1), got);
        for (std::size_t i = 0; i < want.size(); ++i)
            expect(got[i] == want[i], "rank " + std::to_string(i) + " of a split group was rank " +
                                          std::to_string(got[i]) + " of its parent, expected " +
                                          std::to_string(want[i]));
        const bool within = group.rank() >= 0 && group.rank() < group.size();
        expect(within && want[index(group.rank())] == rank_, "split made a communicator with a wrong rank");
    }

    // Memory is allocated and freed in random order; what is left stays valid after its group has been left.
    void memory_outlives(std::uint64_t seed) {
        communicator own = part(comm_, 0, 0);
        std::vector<std::pair<memory<std::uint64_t>, std::uint64_t>> kept;
        const auto check = [&](auto& m) {
            for (std::size_t i = 0; i < m.first.size(); ++i)
                expect(m.first[i] == element<std::uint64_t>(m.second, i),
                    "memory from allocate has changed without a write");
        };
        const auto drop = [&](std::uint64_t turn) {
            std::swap(kept[index(draw(turn, static_cast<int>(kept.size())))], kept.back());
            check(kept.back());
            kept.pop_back();
        };
        for (std::uint64_t turn = 0; turn < 60; ++turn) {
            const std::uint64_t chance = hash(seed, turn, index(rank_));
            if (kept.size() > 8 || (!kept.empty() && chance % 3 == 0)) {
                drop(chance);
            } else {
                const std::size_t most = chance % 5 == 0 ? 60'000 : 300;
                kept.emplace_back(own.allocate<std::uint64_t>(hash(chance) % most), chance);
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

    /// Repeats the call until it throws. A rank may miss the error in the first call, if nothing that it does there
    /// depends on the failing rank, but not in the next ones.
    template <class F>
    void expect_error(const char* situation, errc want, F call) {
        for (int i = 0; i < 4; ++i) try {
                call();
            } catch (const error& e) {
                // peer_failed comes from a group that is broken already; another rank's text names the cause.
                expect(e.code() == want || e.code() == errc::peer_failed,
                    std::string(situation) + ": this rank has a different error: " + e.what());
                return;
            }
        found(std::string(situation) + ": this rank has no error");
    }
    void operator_throws() {
        const auto adding = [&](bool fails) {
            return [fails](std::uint64_t x, std::uint64_t y) {
                if (fails) throw std::runtime_error("thrown by the operator");
                return x + y;
            };
        };
        for (const std::size_t count : {std::size_t{2}, std::size_t{30'000}}) {
            communicator own = part(comm_, 0, 0);
            std::vector<std::uint64_t> x(count, 1);
            const bool throws = rank_ == n_ - 1;
            try {
                // The last rank folds in every schedule of a scan.
                expect_error("another rank's operator throws", errc::peer_failed, [&] {
                    inclusive_scan(own, x, x, adding(throws));
                    barrier(own);
                });
            } catch (const finding&) {
                throw;
            } catch (const std::runtime_error& e) {
                expect(throws, std::string("this rank has the exception of another rank's operator: ") + e.what());
            }
            agree(true, "");
        }
    }
    void rank_leaves() {
        communicator own = part(comm_, 0, 0);
        std::vector<std::uint64_t> x(1000, 1);
        all_reduce(own, x, sum);
        agree(true, "");  // or a rank that notices it in the next call may break the group under this one
        if (rank_ == n_ / 2)
            own = communicator();
        else
            expect_error("another rank has left the group", errc::peer_failed, [&] { all_reduce(own, x, sum); });
        agree(true, "");
    }

    // One rank makes a different call from all others: every rank gets an error, in this call or the next.
    void mismatch(int kind) {
        constexpr const char* names[] = {"a different collective", "a slightly different count", "a much larger count",
            "a different type", "a different operator", "a broadcast from a different root",
            "its calls in a different order", "a started call, not a blocking one", "a call with a different schedule"};
        static_assert(std::size(names) == mismatches);
        const std::string name = std::string("one rank makes ") + names[kind];
        step_ = "calls that do not match";
        communicator own = part(comm_, 0, 0);
        const bool differs = rank_ == draw(hash(index(n_), index(kind)), n_);
        std::vector<int> x(100, 1), y(99, 1), z(30'000, 1);
        std::vector<float> f(100, 1);
        const int root = differs ? 1 : 0;
        expect_error(name.c_str(), errc::mismatch, [&] {
            switch (kind) {
                case 0:
                    differs ? broadcast(own, x, 0) : all_reduce(own, x, sum);
                    break;
                case 1:
                    differs ? all_reduce(own, y, sum) : all_reduce(own, x, sum);
                    break;
                case 2:
                    differs ? all_reduce(own, z, sum) : all_reduce(own, x, sum);
                    break;
                case 3:
                    differs ? all_reduce(own, f, sum) : all_reduce(own, x, sum);
                    break;
                case 4:
                    differs ? all_reduce(own, x, max) : all_reduce(own, x, sum);
                    break;
                case 5:
                    broadcast(own, x, root);
                    break;
                case 6:
                    if (differs) barrier(own);
                    all_reduce(own, x, sum);
                    if (!differs) barrier(own);
                    break;
                case 7:
                    differs ? start::all_reduce(own, x, sum).wait() : all_reduce(own, x, sum);
                    break;
                default:
                    differs ? all_reduce<direct>(own, x, sum) : all_reduce<ring>(own, x, sum);
                    break;
            }
            barrier(own);
        });
        agree(true, "");
    }
    // Each rank leaves as soon as it has its error, while others may still wait for theirs. The result of an all_reduce
    // hangs on every rank's operand: so no rank has one.
    void leaves_after_mismatch(int turn) {
        step_ = "a rank that leaves after calls that do not match";
        communicator own = part(comm_, 0, 0);
        const bool differs = rank_ == draw(hash(index(n_), index(turn)), n_);
        constexpr std::size_t counts[] = {1, 1000, 30'000};
        std::vector<std::uint64_t> x(counts[turn % 3] + (differs ? 1 : 0), 1);
        barrier(own);  // connects the ranks
        agree(true, "");
        try {
            all_reduce(own, x, sum);
        } catch (const error& e) {
            expect(e.code() == errc::mismatch || e.code() == errc::peer_failed,
                std::string("one rank gives a different count: this rank has a different error: ") + e.what());
            return;
        }
        found("one rank gives a different count: the all_reduce of this rank succeeds");
    }

    communicator& comm_;
    const int n_, rank_;
    const double deadline_;
    const char* step_ = "";
};

/// The text of the exception that run(n, f) throws, or empty.
template <class Run, class F>
std::string outcome_of(Run& run, int n, F f) {
    try {
        run(n, f);
    } catch (const std::exception& e) {
        return *e.what() ? e.what() : "an exception without a text";
    } catch (...) {
        return "an exception that is not a std::exception";
    }
    return {};
}

/// Checks that an exception of rank `thrower` breaks the group and comes out of run: empty, or what happened instead.
template <class Run>
std::string lost_exception(Run& run, int n, int thrower, double deadline) {
    const std::string own = "the kit's own exception, thrown by rank " + std::to_string(thrower);
    const std::string text = outcome_of(run, n, [&](communicator& comm) {
        if (comm.rank() == thrower) throw std::runtime_error(own);
        comm.context().env.timeout = std::min(comm.context().env.timeout, deadline);
        for (int i = 0; i < 4; ++i) barrier(comm);  // throws when the group breaks
    });
    if (text.find(own) != std::string::npos) return {};
    return "an exception left the function of rank " + std::to_string(thrower) + ", and run " +
           (text.empty() ? "returned normally" : "threw a different one: " + text);
}

}  // namespace colls::inline v1::detail::testing
