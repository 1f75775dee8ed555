// What a group of n ranks costs one of them before data move, up to n = 131072: to plan where messages pass, to prove,
// and to choose. Nothing is sent, so one process stands for the group. Each cell is measured in a forked child, whose
// largest memory is that of the cell, and which is stopped at a limit of time and memory.
#include <colls/colls.hpp>
#include <colls/detail/choose/explanation.hpp>
#include <colls/detail/plan/make_execution_plan.hpp>
#include <colls/messages/detail/message_lowering.hpp>
#include <colls/transports/threads.hpp>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace {

using colls::any_schedule;
using colls::collective;
namespace detail = colls::detail;

struct settings {
    int from = 4, to = 17;
    unsigned seconds = 20;
    std::size_t gigabytes = 8;
    std::string what = "all_reduce";
};

double seconds_of(auto f) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
double peak_bytes() {
    rusage u;
    getrusage(RUSAGE_SELF, &u);
    return static_cast<double>(u.ru_maxrss) * 1024;
}
std::string time_text(double s) {
    return s < 1e-3 ? fmt::format("{:.0f} us", s * 1e6)
           : s < 1  ? fmt::format("{:.3g} ms", s * 1e3)
                    : fmt::format("{:.3g} s", s);
}
std::string bytes_text(double b) {
    return b < 1e6   ? fmt::format("{:.3g} KB", b / 1e3)
           : b < 1e9 ? fmt::format("{:.3g} MB", b / 1e6)
                     : fmt::format("{:.3g} GB", b / 1e9);
}

/// What f returns, run in a child of this process.
std::string in_child(const settings& s, auto f) {
    int ends[2];
    if (pipe(ends) != 0) return "no pipe";
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        alarm(s.seconds);
        const rlimit memory{s.gigabytes << 30, s.gigabytes << 30};
        setrlimit(RLIMIT_AS, &memory);
        std::string text;
        try {
            text = f();
        } catch (const std::bad_alloc&) {
            text = fmt::format("more than {} GB", s.gigabytes);
        } catch (const std::exception& e) {
            text = e.what();
        }
        const auto written = write(ends[1], text.data(), text.size());
        _exit(written < 0);
    }
    close(ends[1]);
    std::string text;
    char part[4096];
    for (ssize_t got; (got = read(ends[0], part, sizeof part)) > 0;) text.append(part, static_cast<std::size_t>(got));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? fmt::format("more than {} s", s.seconds) : text;
}

// ---- one schedule ----

struct entry {
    std::string name;
    any_schedule schedule, unproven;  // as one of the library's, and as one of a user's own
    int period;
};
template <class Family>
entry entry_of(const char* name, const Family& family, collective what) {
    static constexpr collective all[] = {collective::all_reduce, collective::reduce_scatter, collective::all_gather,
        collective::broadcast, collective::all_to_all};
    entry made{"", any_schedule(colls::schedule_of<collective::barrier>(family)),
        any_schedule(colls::schedule_of<collective::barrier>(family)), 0};
    const auto take = [&]<collective c>() {
        if constexpr (colls::provides<Family, c>)
            if (c == what) {
                const auto s = colls::schedule_of<c>(family);
                using type = std::remove_const_t<decltype(s)>;
                made = {name, any_schedule(s, detail::table_of<type, true>, name), any_schedule(s), 0};
                if constexpr (requires { family.node; })
                    made.period = family.node;
                else
                    made.period = detail::rotates<Family>;
                if (colls::rooted(c) || colls::is_scan(c)) made.period = 0;
            }
    };
    [&]<std::size_t... i>(std::index_sequence<i...>) { (take.template operator()<all[i]>(), ...); }(
        std::make_index_sequence<std::size(all)>{});
    return made;
}

std::string plan_cells(const entry& e, int n) {
    std::unique_ptr<detail::execution_plan> plan;
    const double group =
        seconds_of([&] { plan = make_execution_plan(e.schedule, n, detail::reach::nothing, detail::copying::pushed); });
    double slowest = 0, largest = 0;
    int messages = 0;
    std::size_t peers = 0;
    for (const int rank : std::set{0, 1, n / 2, n - 1}) {
        const double s = seconds_of([&] { static_cast<void>(plan->program_of(rank)); });
        const detail::rank_program& p = plan->program_of(rank);
        std::set<int> talks;
        for (const detail::instruction& i : p.body)
            if (i.op == detail::opcode::send || i.op == detail::opcode::receive) talks.insert(i.peer);
        slowest = std::max(slowest, s);
        largest = std::max(largest,
            static_cast<double>(p.body.size() * sizeof(detail::instruction) +
                                p.operands.size() * (sizeof(detail::location) + sizeof(int)) + p.segments.size() * 4));
        messages = std::max(messages, p.sends + p.receives);
        peers = std::max(peers, talks.size());
    }
    return fmt::format("{} | {} | {} | {} | {} | {}", plan->rounds, peers, messages, time_text(group),
        time_text(slowest), bytes_text(largest));
}
std::string planning_memory(const entry& e, int n, int rank) {
    const double before = peak_bytes();
    const auto plan = make_execution_plan(e.schedule, n, detail::reach::nothing, detail::copying::pushed);
    static_cast<void>(plan->program_of(rank));
    return bytes_text(peak_bytes() - before);
}
std::string count_cell(const entry& e, int n) {
    const detail::candidate c{.name = e.name, .schedule = e.schedule, .period = e.period};
    if (!detail::is_countable(c, n, {})) return "not counted";
    return time_text(seconds_of([&] { static_cast<void>(detail::traffic_of_candidate(c, n)); }));
}
std::string proof_cell(const entry& e, int n) {
    const double before = peak_bytes();
    detail::finding f;
    const double s = seconds_of([&] { f = e.unproven.prove(n); });
    if (f.unproven) return "refused";
    if (!f.right) return "WRONG";
    return fmt::format("{}, {}{}", time_text(s), bytes_text(std::max(peak_bytes() - before, 0.0)),
        f.expressions_known ? "" : ", by symmetry");
}
// ---- the choice ----

/// `automatic`'s choice on a group of n ranks that exchange messages: a group of one rank that says it is larger.
std::string choice_cell(collective what, int n, std::size_t bytes) {
    std::string text;
    colls::threads::run(1, [&](colls::communicator& comm) {
        detail::rank_context& self = comm.context();
        self.size = n;
        self.by_messages = true;
        detail::prediction best;
        static_cast<void>(self.backend->figures());
        const double s = seconds_of([&] {
            best = detail::choose(self, detail::demand_of(self, what, bytes, false), detail::all_candidates_of(what));
        });
        text = fmt::format("{} ({})", time_text(s), best.of ? best.of->name : detail::eager_name);
        self.size = 1;
        self.by_messages = false;
    });
    return text;
}

}  // namespace

int main(int argc, char** argv) {
    detail::plan_by_messages();
    settings s;
    CLI::App app{"What a group of n ranks costs one of them before data move: to plan, to prove and to choose"};
    app.add_option("--from", s.from, "the smallest group has 2^FROM ranks")
        ->check(CLI::Range(1, 20))
        ->capture_default_str();
    app.add_option("--to", s.to, "the largest group has 2^TO ranks")->check(CLI::Range(1, 20))->capture_default_str();
    app.add_option("--seconds", s.seconds, "a cell that takes longer is given up")->capture_default_str();
    app.add_option("--gigabytes", s.gigabytes, "so is one that takes more memory")->capture_default_str();
    app.add_option("--collective", s.what, "all_reduce, reduce_scatter, all_gather, broadcast or all_to_all")
        ->check(CLI::IsMember({"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"}))
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    collective what = collective::all_reduce;
    for (int c = 0; c < colls::collective_count; ++c)
        if (s.what == name_of(static_cast<collective>(c))) what = static_cast<collective>(c);
    const entry all[] = {entry_of("ring", colls::ring{}, what), entry_of("circulant", colls::circulant<>{}, what),
        entry_of("tree", colls::tree<2>{}, what),
        entry_of("hierarchical", colls::hierarchical<colls::direct, colls::circulant<>>{.node = 8}, what),
        entry_of("double_tree", colls::double_tree{}, what), entry_of("direct", colls::direct{}, what)};

    fmt::print(
        "{}\n\n| schedule | n | rounds | peers | messages | plan | program | program's memory | making it | traffic "
        "| proof |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
        s.what);
    for (const entry& e : all)
        for (int k = s.from; k <= s.to && !e.name.empty(); ++k) {
            const int n = 1 << k;
            if (!e.schedule.supports(n)) continue;
            const std::string plan = in_child(s, [&] { return plan_cells(e, n); });
            std::string memory, count, proof;
            memory = in_child(s, [&] { return planning_memory(e, n, n / 2); });
            count = in_child(s, [&] { return count_cell(e, n); });
            proof = in_child(s, [&] { return proof_cell(e, n); });
            fmt::print("| {} | {} | {} | {} | {} | {} |\n", e.name, n, plan, memory, count, proof);
        }

    fmt::print(
        "\nIn shared memory, where a plan has the programs of all ranks:\n\n| schedule | largest n | refused beyond "
        "|\n|---|---|---|\n");
    for (const entry& e : all) {
        int largest = 0;
        std::string why = "not up to the largest n asked";
        for (int k = s.from; k <= s.to && !e.name.empty(); ++k) {
            if (!e.schedule.supports(1 << k)) continue;
            if (const detail::error_text m = detail::too_large(e.schedule, 1 << k, detail::reach::buffers);
                !m.empty()) {
                why = m.text();
                break;
            }
            largest = 1 << k;
        }
        if (!e.name.empty()) fmt::print("| {} | {} | {} |\n", e.name, largest, why);
    }

    fmt::print("\nThe proof of a user's own schedule at the largest n:\n\n");
    for (const entry& e : all)
        if (!e.name.empty() && e.schedule.supports(1 << s.to))
            fmt::print("- {}\n", in_child(s, [&] {
                const detail::finding f = e.unproven.prove(1 << s.to);
                return fmt::format("{}: {}", e.name, f.unproven ? f.text.text() : "proven");
            }));

    fmt::print("\nThe choice by automatic, of 8 bytes and of 1 MB:\n\n| n | 8 B | 1 MB |\n|---|---|---|\n");
    for (int k = s.from; k <= s.to; ++k)
        fmt::print("| {} | {} | {} |\n", 1 << k, in_child(s, [&] { return choice_cell(what, 1 << k, 8); }),
            in_child(s, [&] { return choice_cell(what, 1 << k, std::size_t{1} << 20); }));
}
