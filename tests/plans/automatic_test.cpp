// The choice of `automatic`: its candidates, its predictions, COLLS_SCHEDULE, and that all ranks choose alike.
#include "catch.hpp"

#include <colls/colls.hpp>
#include <colls/detail/choose/explanation.hpp>
#include <colls/transports/threads.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

/// Sets an environment variable while it lives.
class setting_of {
public:
    setting_of(const char* name, const std::string& value) : name_(name) {
        if (const char* old = std::getenv(name)) before_ = old;
        setenv(name, value.c_str(), 1);
    }
    ~setting_of() {
        if (before_.empty())
            unsetenv(name_);
        else
            setenv(name_, before_.c_str(), 1);
    }
    setting_of(const setting_of&) = delete;
    setting_of& operator=(const setting_of&) = delete;

private:
    const char* name_;
    std::string before_;
};

constexpr std::array collectives = {colls::collective::broadcast, colls::collective::scatter, colls::collective::gather,
    colls::collective::all_gather, colls::collective::reduce, colls::collective::reduce_scatter,
    colls::collective::all_reduce, colls::collective::all_to_all, colls::collective::barrier,
    colls::collective::inclusive_scan, colls::collective::exclusive_scan};
constexpr std::array<std::size_t, 7> sizes = {0, 8, 1000, 8192, 100'000, std::size_t{3} << 20, std::size_t{1} << 30};

}  // namespace

TEST_CASE("candidates: each collective has two or more, with different names, one of them direct", "[automatic]") {
    colls::threads::run(4, [](auto& comm) {
        if (comm.rank() != 0) return;
        for (const auto c : collectives) {
            INFO(colls::name_of(c));
            const auto list = colls::detail::all_candidates_of(c);
            CHECK(list.count >= 2);
            std::set<std::string> names;
            for (int i = 0; i < list.count; ++i) {
                names.insert(std::string(list.first[i].name));
                CHECK(list.first[i].schedule.implements == c);
                CHECK_FALSE(list.first[i].schedule.needs_proof());
            }
            CHECK(names.size() == static_cast<std::size_t>(list.count));
            CHECK(names.count("direct") == 1);
        }
    });
}

TEST_CASE("chosen: the same on all ranks, and the one that explain marks", "[automatic]") {
    for (const int n : {1, 2, 3, 8, 17}) {
        std::vector<std::vector<std::string>> seen(static_cast<std::size_t>(n));
        colls::threads::run(n, [&](auto& comm) {
            for (const auto c : collectives)
                for (const std::size_t bytes : sizes)
                    seen[static_cast<std::size_t>(comm.rank())].push_back(colls::chosen(comm, c, bytes));
            if (comm.rank() != 0) return;
            std::size_t i = 0;
            for (const auto c : collectives)
                for (const std::size_t bytes : sizes) {
                    const std::string text = colls::explain(comm, c, bytes), &name = seen[0][i++];
                    INFO(text);
                    const auto mark = text.find("<- chosen");
                    REQUIRE(mark != std::string::npos);
                    CHECK(text.find("<- chosen", mark + 1) == std::string::npos);
                    const auto line = text.rfind('\n', mark) + 1;
                    CHECK(text.compare(line + 2, name.size() + 1, name + " ") == 0);
                    CHECK(text.find(colls::name_of(c)) == 0);
                }
        });
        for (const auto& names : seen) CHECK(names == seen[0]);
    }
}

TEST_CASE("explain: each row has the figures of its schedule, and a chunk where it has one", "[automatic]") {
    for (const int n : {1, 2, 5, 8})
        colls::threads::run(n, [n](auto& comm) {
            if (comm.rank() != 0) return;
            for (const auto c : collectives)
                for (const std::size_t bytes : sizes) {
                    std::istringstream text(colls::explain(comm, c, bytes));
                    const auto list = colls::detail::all_candidates_of(c);
                    INFO(text.str());
                    const bool own = c == colls::collective::gather || c == colls::collective::all_gather;
                    const auto ranks = static_cast<std::size_t>(n), posted = own ? (bytes + ranks - 1) / ranks : bytes;
                    const bool unsized = colls::owned(c) && colls::rooted(c);  // ranks do not know what others post
                    const int wanted = !unsized && posted <= colls::detail::eager_capacity;
                    int rows = 0, eager = 0, wrong = 0;
                    for (std::string line; std::getline(text, line);) {
                        std::istringstream row(line);
                        std::string name, chunk;
                        long rounds = 0;
                        double sent = 0, us = -1;
                        if (!(row >> name >> rounds >> sent >> chunk >> us)) continue;  // the heading
                        if (chunk != "-") wrong += std::stod(chunk) <= 0 || std::stod(chunk) >= std::ldexp(1, 40);
                        wrong += us < 0;
                        if (name == "eager") {
                            wrong += rounds != 1 || chunk != "-" || sent != double(posted);
                            ++eager;
                            continue;
                        }
                        for (int i = 0; i < list.count; ++i) {
                            if (list.first[i].name != name) continue;
                            const colls::cost is = colls::cost_of(list.first[i].schedule, n);
                            const double block = is.blocks > 0 ? double(bytes) / is.blocks : 0;
                            wrong += rounds != is.rounds || std::abs(sent - double(is.blocks_sent) * block) > 0.5;
                            ++rows;
                        }
                    }
                    CHECK(wrong == 0);
                    CHECK(eager == wanted);
                    int supported = 0;
                    for (int i = 0; i < list.count; ++i) supported += list.first[i].schedule.supports(n);
                    CHECK(rows == supported);
                }
        });
}

TEST_CASE("COLLS_SCHEDULE: takes the named family where it supports the group, with right results", "[automatic]") {
    for (const std::string_view name : colls::detail::known_names()) {
        const setting_of forced("COLLS_SCHEDULE", std::string(name));
        for (const int n : {2, 4, 6}) {
            INFO(name << ", n " << n);
            std::atomic<int> wrong{0}, taken{0};
            colls::threads::run(n, [&](auto& comm) {
                const auto list = colls::detail::all_candidates_of(colls::collective::all_reduce);
                bool fits = false;
                for (int i = 0; i < list.count; ++i)
                    fits = fits || (list.first[i].name == name && list.first[i].schedule.supports(n));
                for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{70'001}}) {
                    std::vector<long> x(count, comm.rank() + 1), part(count / static_cast<std::size_t>(n) + 1);
                    colls::all_reduce(comm, x, colls::sum);
                    if (std::any_of(x.begin(), x.end(), [&](long v) { return v != n * (n + 1) / 2; })) ++wrong;
                    colls::broadcast(comm, x, n - 1);
                    const bool here = colls::chosen(comm, colls::collective::all_reduce, count * sizeof(long)) == name;
                    if (here != fits) ++wrong;
                    taken += here;
                }
            });
            CHECK(wrong == 0);
            if (n == 4) CHECK(taken > 0);  // each family provides an all_reduce, named or derived
        }
    }
}

TEST_CASE(
    "COLLS_SCHEDULE: eager, or mailbox as it was called, takes the eager path for small messages", "[automatic]") {
    for (const char* name : {"eager", "mailbox"}) {
        INFO(name);
        const setting_of forced("COLLS_SCHEDULE", name);
        std::atomic<int> small{0}, large{0};
        colls::threads::run(2, [&](auto& comm) {
            small += colls::chosen(comm, colls::collective::all_reduce, 8192) == "eager";
            large += colls::chosen(comm, colls::collective::all_reduce, 1 << 20) == "eager";
        });
        CHECK(small == 2);
        CHECK(large == 0);
    }
}

TEST_CASE("COLLS_SCHEDULE: a name that is none is an error on every rank, which lists the names", "[automatic]") {
    const setting_of forced("COLLS_SCHEDULE", "rings");
    std::atomic<int> caught{0};
    colls::threads::run(3, [&](auto& comm) {
        std::vector<int> x(10, 1);
        try {
            colls::all_reduce(comm, x, colls::sum);
        } catch (const colls::error& failure) {
            const std::string text = failure.what();
            if (failure.code() == colls::errc::invalid_argument && text.find("rings") != std::string::npos &&
                text.find("none of: eager, direct, ring") != std::string::npos &&
                text.find("halving_doubling") != std::string::npos && x[0] == 1)
                ++caught;
        }
    });
    CHECK(caught == 3);
}

TEST_CASE(
    "COLLS_SCHEDULE: a schedule that reorders operands is not taken for a non-commutative operator", "[automatic]") {
    const setting_of forced("COLLS_SCHEDULE", "ring");
    const auto left = [](long a, long) { return a; };
    std::atomic<int> wrong{0};
    colls::threads::run(5, [&](auto& comm) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{50'000}}) {
            std::vector<long> x(count, comm.rank() + 7);
            colls::all_reduce(comm, x, left);
            if (x[0] != 7 || x[count - 1] != 7) ++wrong;
        }
    });
    CHECK(wrong == 0);
}

namespace {

/// A backend of a machine with given figures.
struct fake_backend : colls::detail::group_backend {
    colls::detail::machine m;
    explicit fake_backend(const colls::detail::machine& x) : m(x) {}
    const colls::detail::machine& figures() override { return m; }
    std::byte* take(std::size_t) override { throw std::bad_alloc(); }
    void give(std::byte*, std::size_t) noexcept override {}
    std::uint64_t create(int) override { return 0; }
    std::unique_ptr<colls::detail::rank_context> attach(
        colls::detail::rank_context&, std::uint64_t, int, const colls::detail::list<int>&) override {
        return nullptr;
    }
    void discard(std::uint64_t, int) override {}
    std::unique_ptr<colls::detail::rank_context> shrink(colls::detail::rank_context&) override { return nullptr; }
    std::unique_ptr<colls::detail::pending> make_collective(colls::detail::rank_context&) override { return nullptr; }
    std::unique_ptr<colls::detail::pending> make_message(colls::detail::rank_context&) override { return nullptr; }
    bool announced(colls::detail::rank_context&, int) override { return false; }
};

}  // namespace

TEST_CASE("predictions: a larger buffer is never predicted to take less time", "[automatic]") {
    using namespace colls;
    const detail::machine memory{2e-7, 1e-10, 2e-10, 2, 0}, net{5e-6, 3e-10, 1e-10, 1 << 20, 3e-6},
        crowded{5e-6, 3e-10, 1e-10, 2, 3e-6};
    for (const auto& machine : {memory, net, crowded})
        for (const int n : {2, 5, 8, 32})
            for (const int node : {0, 2}) {
                if (node > 0 && (machine.message == 0 || n % node != 0 || n == node)) continue;
                const auto backend = std::make_shared<fake_backend>(machine);
                detail::rank_context e(0, n, detail::group_memory(), backend);
                std::vector<int> host;
                for (int r = 0; r < n && node > 0; ++r) host.push_back(r / node);
                if (node > 0) e.layout.hosts = host_map(host);
                const detail::shared_machine m = detail::model_of(machine, n);
                CHECK(m.alpha >= machine.alpha);
                for (const auto c : collectives) {
                    const auto list = detail::all_candidates_of(c);
                    for (int i = 0; i < list.count; ++i) {
                        if (!list.first[i].schedule.supports(n)) continue;
                        double last = 0, last_staged = 0;
                        for (const std::size_t bytes : sizes) {
                            const auto p = detail::predicted(list.first[i], e, m, static_cast<double>(bytes));
                            const auto staged =
                                detail::predict_out_of_reach(list.first[i], n, m, static_cast<double>(bytes), false);
                            INFO(list.first[i].name << ", n " << n << ", bytes " << bytes << ", node " << node);
                            CHECK(p.of == &list.first[i]);
                            CHECK(p.seconds >= last);
                            CHECK(staged.seconds >= last_staged);
                            last = p.seconds;
                            last_staged = staged.seconds;
                        }
                    }
                }
            }
}

TEST_CASE("predictions: ranks that share cores take their turns in each part of a call", "[automatic]") {
    using namespace colls;
    const detail::machine m{2e-7, 1e-10, 2e-10, 2, 0};
    const detail::shared_machine alone = detail::model_of(m, 2), turns = detail::model_of(m, 6);
    CHECK(alone.ranks == 2);
    CHECK(turns.ranks == 6);
    CHECK(alone.ranks_per_core == 1);
    CHECK(turns.ranks_per_core == 3);
    CHECK(alone.meet == 0);
    CHECK(turns.meet > 0);
    // A turn itself takes time, and what is in the caches is another rank's.
    for (const auto figure :
        {&detail::shared_machine::alpha, &detail::shared_machine::beta, &detail::shared_machine::gamma})
        CHECK(turns.*figure > 3 * alone.*figure);
    for (const auto figure : {&detail::shared_machine::enter, &detail::shared_machine::round,
             &detail::shared_machine::eager, &detail::shared_machine::partial}) {
        CHECK(alone.*figure > 0);
        CHECK(turns.*figure == Catch::Detail::Approx(3 * alone.*figure));
    }
}

TEST_CASE("many processes on a core: a schedule that each plans fast, where there is one", "[automatic]") {
    using namespace colls;
    const detail::machine figures{.alpha = 8e-8, .beta = 4e-11, .gamma = 5e-11, .cores = 2};
    const auto chosen_by = [&](collective what, int n, bool processes, const char* forced = nullptr) {
        detail::rank_context e(0, n, detail::group_memory(), std::make_shared<fake_backend>(figures));
        if (processes) e.access.reach = std::size_t{1} << 30;
        e.env.schedule = forced;
        return detail::choose(e, detail::demand_of(e, what, 400'000, false), detail::all_candidates_of(what));
    };
    for (const int n : {33, 128, 256}) {
        INFO(n);
        for (const auto what : {collective::all_reduce, collective::reduce, collective::broadcast}) {
            const any_schedule& s = chosen_by(what, n, true).of->schedule;
            INFO(name_of(what) << " by " << s.name());
            CHECK(s.blocks(n) <= 8);
            CHECK(s.rounds(n) <= 24);
        }
        // Here all take long: the prediction decides.
        const detail::prediction gathers = chosen_by(collective::all_gather, n, true);
        CHECK(gathers.of == chosen_by(collective::all_gather, n, false).of);
        CHECK(gathers.seconds > 0);
        CHECK(chosen_by(collective::all_reduce, n, true, "direct").of->name == "direct");
    }
}

namespace {

/// A schedule of a shape that no family has; it is never run.
struct shaped {
    static constexpr auto implements = colls::collective::broadcast;
    int of_blocks, of_rounds, of_ports;
    constexpr int blocks(int) const { return of_blocks; }
    constexpr int rounds(int) const { return of_rounds; }
    constexpr int ports(int) const { return of_ports; }
    constexpr colls::step at(int, int, int, int) const { return {}; }
};

}  // namespace

TEST_CASE(
    "many processes on a core: from how many ranks, blocks, rounds and steps on a plan takes long", "[automatic]") {
    using namespace colls;
    const auto takes_long = [](const shaped& s, int n, int cores, std::size_t reach) {
        const detail::machine figures{.cores = cores};
        detail::rank_context e(0, n, detail::group_memory(), std::make_shared<fake_backend>(figures));
        e.access.reach = reach;
        return detail::takes_long_to_plan({.name = "shaped", .schedule = any_schedule(s)}, e);
    };
    constexpr std::size_t processes = std::size_t{1} << 30, threads = ~std::size_t{0};
    constexpr shaped many{9, 25, 49};
    CHECK(takes_long(many, 33, 2, processes));
    CHECK_FALSE(takes_long(many, 32, 2, processes));
    CHECK(takes_long(many, 17, 1, processes));
    CHECK_FALSE(takes_long(many, 33, 2, threads));  // they make one plan together
    CHECK_FALSE(takes_long({8, 24, 2}, 33, 2, processes));
    CHECK(takes_long({9, 1, 1}, 33, 2, processes));
    CHECK(takes_long({1, 25, 1}, 33, 2, processes));
    CHECK_FALSE(takes_long({1, 1, 48}, 33, 2, processes));
    CHECK(takes_long({1, 1, 49}, 33, 2, processes));
}

TEST_CASE("predictions: of messages, each costs both its ranks its time, and no unit is cut", "[automatic]") {
    using namespace colls;
    constexpr int n = 7;
    const detail::machine figures{.alpha = 0, .beta = 0, .gamma = 0, .cores = n, .message = 1};
    detail::rank_context e(0, n, detail::group_memory(), std::make_shared<fake_backend>(figures));
    e.by_messages = true;
    int more_than_rounds = 0;
    for (const collective what : collectives) {
        const detail::candidates all = detail::all_candidates_of(what);
        for (int i = 0; i < all.count; ++i) {
            const detail::candidate& c = all.first[i];
            if (!c.schedule.supports(n)) continue;
            INFO(name_of(what) << " by " << c.name);
            const cost counted = detail::traffic_of_candidate(c, n);
            const double others = static_cast<double>(counted.critical_messages - 2L * counted.rounds);
            const detail::prediction p = detail::predicted(c, e, detail::model_of(figures, n), 4000);
            CHECK(p.seconds == Catch::Detail::Approx(0.5 * others));
            CHECK(p.chunk == detail::whole_unit_bytes);
            more_than_rounds += others > 0;
        }
    }
    CHECK(more_than_rounds > 5);
    e.by_messages = false;
}

TEST_CASE(
    "the eager path: taken for what the figures of near and of far cores allow, by each collective", "[automatic]") {
    using namespace colls;
    const auto eager_limit = [](const detail::machine& figures, collective what, std::size_t reach) {
        detail::rank_context e(0, 2, detail::group_memory(), std::make_shared<fake_backend>(figures));
        e.access.reach = reach;
        std::size_t last = 0;
        for (std::size_t bytes = 64; bytes <= 65536; bytes += 64) {
            const detail::prediction p =
                detail::choose(e, detail::demand_of(e, what, bytes, false), detail::all_candidates_of(what));
            if (p.of == nullptr) {
                CHECK(bytes <= last + last / 8 + 64);  // one limit, but for the sizes of one class
                last = bytes;
            }
        }
        return last;
    };
    // Two cores of an AMD EPYC, near and far from each other, and the sizes at which eager calls were measured to take
    // as long as those by a schedule: of an all_reduce the geometric mean of in place and out of place.
    const detail::machine near{.alpha = 5.7e-8, .beta = 2e-11, .gamma = 3e-11, .cores = 2},
        far{.alpha = 2.4e-7, .beta = 4e-11, .gamma = 5.7e-11, .cores = 2};
    constexpr std::size_t all = ~std::size_t{0};
    struct row {
        collective what;
        double near, far;
    };
    for (const auto& [what, at_near, at_far] : {row{collective::all_reduce, 3000, 4200},
             row{collective::broadcast, 3000, 2600}, row{collective::all_gather, 4100, 4300},
             row{collective::reduce_scatter, 3000, 4100}, row{collective::all_to_all, 3300, 2700}}) {
        INFO(name_of(what));
        CHECK(static_cast<double>(eager_limit(near, what, all)) / at_near == Catch::Detail::Approx(1).margin(0.45));
        CHECK(static_cast<double>(eager_limit(far, what, all)) / at_far == Catch::Detail::Approx(1).margin(0.45));
        // Where buffers may turn out to be out of reach, a schedule may cost more than it seems.
        CHECK(eager_limit(far, what, 1 << 20) > eager_limit(far, what, all));
    }
    CHECK(detail::eager_read_bytes(collective::all_to_all, 4, 400) == 300);
    CHECK(detail::eager_read_bytes(collective::all_reduce, 4, 400) == 1200);
    CHECK(detail::eager_pays(1, 0.9, 1.3));
    CHECK_FALSE(detail::eager_pays(1, 0.9, 1.1));
    CHECK_FALSE(detail::eager_pays(1, 0.9, 0.5));
}

TEST_CASE("figures_now: a usual time of a line where the cores' distance has changed", "[automatic]") {
    using namespace colls;
    struct seen {
        bool as_measured = false, first = false, follows = false;
    };
    std::vector<seen> of_rank(2);
    threads::run(2, [&](auto& comm) {
        detail::rank_context& self = comm.context();
        const detail::machine& measured = self.backend->figures();
        const bool was_near = measured.alpha < measured.near_below;
        seen& s = of_rank[static_cast<std::size_t>(comm.rank())];
        s.as_measured = detail::figures_now(self, detail::near_so_far(self)).alpha == measured.alpha;
        s.first = self.direct.count == 0;
        if (comm.rank() == 0)
            for (int i = 0; i < 2; ++i)
                detail::distance::take_sample(self, 0, was_near ? 2 * measured.near_below : measured.near_below / 2);
        std::vector<float> x(100'000);
        while (self.direct.count <= detail::window + 8) colls::broadcast(comm, x, 0);
        s.follows = detail::near_so_far(self) == was_near ||  // cores were sampled meanwhile, and decided so
                    (detail::figures_now(self, detail::near_so_far(self)).alpha < measured.near_below) == !was_near;
    });
    for (const seen& s : of_rank) {
        CHECK(s.as_measured);
        CHECK(s.first);
        CHECK(s.follows);
    }
}

TEST_CASE("prepare: all ranks choose alike, whatever each has prepared before, and when", "[automatic]") {
    using namespace colls;
    for (const int n : {2, 3, 8})
        CHECK_NOTHROW(threads::run(n, [&](communicator& comm) {
            std::vector<float> x(100'000), y(x.size());
            broadcast(comm, x, 0);  // an operation of which the distance is decided
            auto& decided = comm.context().memory.distance().decisions[0];
            for (std::size_t least = 16; least <= 65536;) {
                int log = 0;
                while (least >> log >= 16) ++log;
                const std::size_t after = ((least >> log) + 1) << log;  // the next class
                const auto of = [&](std::size_t bytes) {
                    const auto in = std::span(x).first(bytes / 4), out = std::span(y).first(bytes / 4);
                    return prepare::all_reduce(comm, in, out, sum);
                };
                // Rank 0 prepares the smaller one first, and before the distance changes.
                std::vector<plan> plans;
                if (comm.rank() == 0) plans.push_back(of(least));
                if (comm.rank() == 0) plans.push_back(of(after - 4));
                barrier(comm);
                if (comm.rank() == 0) decided.store(comm.context().access.starts_near ? 2 : 3);
                barrier(comm);
                if (comm.rank() != 0) plans.push_back(of(after - 4));
                if (comm.rank() != 0) plans.insert(plans.begin(), of(least));
                for (plan& p : plans) p.run();
                barrier(comm);
                if (comm.rank() == 0) decided.store(0);
                barrier(comm);
                least = after;
            }
        }));
}

TEST_CASE("distance: the rank whose turn it is sends rank 0's line back, however late it comes", "[automatic]") {
    using namespace colls;
    struct alignas(detail::line) lines {
        std::byte of[detail::line]{};
    };
    std::vector<lines> memory(detail::group_memory::bytes(3) / detail::line + 1);
    const detail::group_memory group(reinterpret_cast<std::byte*>(memory.data()), 3);
    const auto backend = std::make_shared<fake_backend>(detail::machine{});
    std::vector<std::unique_ptr<detail::rank_context>> ranks;
    for (int r = 0; r < 3; ++r) ranks.push_back(std::make_unique<detail::rank_context>(r, 3, group, backend));
    detail::distance_state& shared = group.distance();
    for (const std::uint64_t sequence : {std::uint64_t{100}, std::uint64_t{101}}) {
        const int asked = 1 + static_cast<int>(sequence % 2);
        const std::uint64_t before = shared.back.value;
        detail::distance::sample(*ranks[0], sequence, 0, true);  // no rank is there: it waits for a moment
        CHECK(ranks[0]->eager.near_votes == 0);
        const std::uint64_t sent = shared.there.value;
        CHECK(sent > before);
        CHECK(shared.back.value == before);
        detail::distance::sample(*ranks[static_cast<std::size_t>(3 - asked)], sequence, 0, true);
        CHECK(shared.back.value == before);
        detail::distance::sample(*ranks[static_cast<std::size_t>(asked)], sequence, 0, true);
        CHECK(shared.back.value == sent);
    }
}

TEST_CASE("the eager path: also of blocks of unlike lengths, while the longest fits a slot", "[automatic]") {
    using namespace colls;
    for (const int n : {2, 3, 5}) {
        std::atomic<int> wrong_data{0}, other_path{0};
        threads::run(n, [&](communicator& comm) {
            const auto size = static_cast<std::size_t>(n), me = static_cast<std::size_t>(comm.rank());
            const auto eager = [&](const std::vector<std::size_t>& counts) {
                const std::uint64_t before = comm.context().eager.count;
                std::size_t whole = 0, first = 0;
                for (std::size_t r = 0; r < size; ++r) first += r < me ? counts[r] : 0, whole += counts[r];
                std::vector<int> own(counts[me], 100 + comm.rank()), all(whole + 1, -1);
                all_gather_v(comm, own, std::span(all).first(whole), counts);
                std::size_t wrong = all[whole] != -1, at = 0;
                for (std::size_t r = 0; r < size; ++r)
                    for (std::size_t i = 0; i < counts[r]; ++i) wrong += all[at++] != 100 + static_cast<int>(r);
                std::vector<int> in(whole), sum(counts[me] + 1, -1);
                for (std::size_t i = 0; i < whole; ++i) in[i] = static_cast<int>(i) + comm.rank();
                reduce_scatter_v(comm, in, std::span(sum).first(counts[me]), counts, colls::sum);
                wrong += sum[counts[me]] != -1;
                for (std::size_t i = 0; i < counts[me]; ++i)
                    wrong += sum[i] != n * static_cast<int>(first + i) + n * (n - 1) / 2;
                wrong_data += static_cast<int>(wrong);
                return comm.context().eager.count - before;
            };
            std::vector<std::size_t> counts(size, 3);
            other_path += eager(counts) != 2;
            counts[size - 1] = 0;
            other_path += eager(counts) != 2;
            counts[0] = 100;
            other_path += eager(counts) != 2;
            counts[0] = detail::eager_capacity;  // elements of four bytes
            other_path += eager(counts) != 0;
        });
        CHECK(wrong_data == 0);
        CHECK(other_path == 0);
    }
}

TEST_CASE("the eager path: one call in 128 tells the distance of the cores, with the same bits", "[automatic]") {
    using namespace colls;
    constexpr int calls = 1280;
    struct seen {
        std::uint64_t eager = 0, scheduled = 0, of_plan = 0;
        int differ = 0;
        bool chosen = false;
    };
    const auto bytes = GENERATE(std::size_t{512}, std::size_t{1024});
    const auto [n, barriers] = GENERATE(std::pair(3, false), std::pair(3, true), std::pair(8, false));
    std::vector<seen> of_rank(static_cast<std::size_t>(n));
    threads::run(n, [&](auto& comm) {
        detail::rank_context& self = comm.context();
        self.crowded = false;  // where ranks share cores nothing depends on the distance
        seen& s = of_rank[static_cast<std::size_t>(comm.rank())];
        std::vector<float> in(bytes / sizeof(float)), first(in.size()), out(in.size());
        for (std::size_t i = 0; i < in.size(); ++i)
            in[i] = std::ldexp(static_cast<float>(3 * i + 1), static_cast<int>(i % 50) - 7 * comm.rank());
        // Where a sanitizer makes the eager path slow, a schedule may be chosen from the start.
        const auto eager_is_chosen = [&] { return chosen(comm, collective::all_reduce, bytes) == "eager"; };
        s.chosen = eager_is_chosen();
        all_reduce(comm, in, first, sum);
        for (int i = 1; i < calls - 1; ++i) {
            if (barriers) barrier(comm);  // is no call of the kind, and does not count
            all_reduce(comm, in, out, sum);
            s.differ += std::memcmp(out.data(), first.data(), bytes) != 0;
        }
        // The next call tells the distance: a plan that is made now does not, nor does it count.
        const std::uint64_t before = self.eager.count;
        auto plan = prepare::all_reduce(comm, in, out, sum);
        for (int i = 0; i < 3; ++i) plan.run();
        s.of_plan = self.eager.count - before;
        all_reduce(comm, in, out, sum);
        s.eager = self.eager.count, s.scheduled = self.direct.count;
        s.chosen = s.chosen && eager_is_chosen();
    });
    for (const seen& s : of_rank) {
        CHECK(s.differ == 0);
        CHECK(s.eager + s.scheduled == static_cast<std::uint64_t>(calls + 3 + (barriers ? calls - 2 : 0)));
        if (!s.chosen) continue;
        CHECK(s.of_plan == 3);
        CHECK(s.scheduled == (bytes < 1024 ? 0 : calls / 128));
    }
}

TEST_CASE("traffic: messages within hosts and between hosts add up to all messages", "[automatic]") {
    using namespace colls;
    for (const auto c : collectives) {
        const auto list = detail::all_candidates_of(c);
        for (int i = 0; i < list.count; ++i)
            for (const int n : {4, 8, 12}) {
                const detail::candidate& of = list.first[i];
                if (!of.schedule.supports(n)) continue;
                const cost all = detail::traffic_of_candidate(of, n),
                           within = detail::traffic_of_candidate(of, n, {2, false}),
                           between = detail::traffic_of_candidate(of, n, {2, true});
                INFO(list.first[i].name << ", n " << n);
                CHECK(within.messages + between.messages == all.messages);
                CHECK(within.all_sent + between.all_sent == all.all_sent);
                CHECK(between.messages > 0);
                CHECK(between.rounds <= all.rounds);
            }
    }
}

TEST_CASE("size classes: ascend one by one, and class_bytes is at most an eighth below each size", "[automatic]") {
    using namespace colls::detail;
    std::uint64_t last = 0;
    for (std::size_t bytes = 0; bytes < 200'000; ++bytes) {
        const auto now = size_class(bytes);
        REQUIRE(now >= last);
        REQUIRE(now - last <= 1);
        REQUIRE(class_bytes(bytes) <= static_cast<double>(bytes));
        REQUIRE(class_bytes(bytes) * 1.125 + 1 >= static_cast<double>(bytes));
        last = now;
    }
}

TEST_CASE(
    "choice table: finds what was added, of equal keys the one that is asked for, and nothing else", "[automatic]") {
    using colls::detail::choice_table, colls::detail::schedule_choice;
    // Keys that differ in few bits, as those of sizes do, and in the highest ones, as those of roots.
    const auto key_of = [](std::size_t i) { return static_cast<std::uint64_t>(i % 500) | (i / 500) << 48; };
    const auto any = [](const schedule_choice&) { return true; };
    choice_table table;
    CHECK(table.find(0, any) == nullptr);
    for (std::size_t i = 0; i < 4000; ++i) {
        table.add({.key = key_of(i), .chunk_bytes = i});
        if (i % 7 == 0) table.add({.key = key_of(i), .chunk_bytes = 10'000 + i});
        for (std::size_t j = 0; j <= i; j += 1 + i / 20) {
            const schedule_choice* const first = table.find(key_of(j), any);
            REQUIRE(first != nullptr);
            REQUIRE(first->chunk_bytes == j);
        }
        const schedule_choice* const second =
            table.find(key_of(i), [](const schedule_choice& p) { return p.chunk_bytes >= 10'000; });
        REQUIRE((second != nullptr) == (i % 7 == 0));
        if (second) REQUIRE(second->chunk_bytes == 10'000 + i);
        REQUIRE(table.find(key_of(i + 1), any) == nullptr);
    }
    CHECK(std::distance(table.begin(), table.end()) == 4000 + 572);
}
