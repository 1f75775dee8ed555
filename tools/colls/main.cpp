// colls: what schedules there are, whether they are right, what they cost, what they look like, and how long they take
// on a network; and what a run has recorded. docs/colls.md, docs/simulate.md, docs/tracing.md.
#include "../command_line.hpp"
#include "commands.hpp"
#include "exchange/program.hpp"
#include "exchanges.hpp"
#include "explorer.hpp"
#include "hosts.hpp"
#include "json_text.hpp"
#include "local_proofs.hpp"
#include "picture.hpp"
#include "recording.hpp"
#include "run.hpp"
#include "simulations.hpp"
#include "status.hpp"

#include <colls/detail/support/descriptor.hpp>
#include <colls/detail/support/error_text.hpp>

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string_view>

namespace {

void write(const std::string& file, const std::string& text) {
    std::ofstream out(file);
    out << text;
    if (!out.flush()) throw std::runtime_error("cannot write " + file);
}

struct arguments {
    tool::request asked;
    std::string collective, ranks, bytes = "1M", svg, page;
    std::vector<std::string> sizes;
    double alpha = 5, beta = 0.1, gamma = 0.05;
    std::string topology, tune, stragglers, hosts;
    std::vector<std::string> groups, traces, targets;
    double noise = 0;
    int trials = 10, tries = 200, network_ranks = 0, largest = 0;
    bool json = false, run = false, local = false, prometheus = false;
    std::string output;
    tool::export_request format;
    tool::synthesis_request synthesis;
    tool::run_request start;
    int cut = 0;

    /// FAMILY COLLECTIVE, in this order or the other, or one of them alone. (A type may be named as a collective.)
    void settle_words() {
        const bool first = tool::names_collective(asked.name), second = tool::names_collective(asked.collective);
        if (first && !second && (asked.include.empty() || !asked.collective.empty()))
            std::swap(asked.name, asked.collective);
    }
    /// The schedules of the type that --include is for, and of the collective; none without it.
    std::vector<tool::entry> own() const {
        if (asked.include.empty() && !asked.name.empty())
            throw std::runtime_error(
                fmt::format("compare takes all families of the library: leave out '{}'", asked.name));
        if (!asked.include.empty() && asked.name.empty())
            throw std::runtime_error("--include needs the name of the type, before the collective");
        return asked.include.empty() ? std::vector<tool::entry>{} : tool::find(asked);
    }
    colls::model machine() const { return {alpha * 1e-6, beta * 1e-9, gamma * 1e-9}; }
    /// The group sizes asked for; without any that of a plan, or 8.
    std::pair<int, int> group_range(int of_plan = 0) const {
        if (ranks.empty()) return {of_plan > 0 ? of_plan : 8, of_plan > 0 ? of_plan : 8};
        return tool::parse_range(ranks);
    }
    /// What --hosts says for a page: 0 where it says nothing.
    int ranks_a_host() const {
        if (hosts.find(',') != std::string::npos)
            throw std::runtime_error("a page has equally many ranks on all hosts: give --hosts one number");
        return static_cast<int>(std::ranges::count(tool::hosts_of(hosts, tool::most_page_ranks), 0));
    }
    int group(int of_plan = 0) const {
        const auto [first, last] = group_range(of_plan);
        if (first != last) throw std::runtime_error("give one group size here, not a range");
        return first;
    }
    std::vector<double> sizes_or_steps() const {
        std::vector<double> all;
        for (const std::string& text : sizes) all.push_back(input::parse_size(text));
        for (double each = 8; sizes.empty() && each <= 0x1p30; each *= 4) all.push_back(each);
        std::ranges::sort(all);
        return all;
    }
    tool::disturbance disturbances() const {
        tool::disturbance d{noise * 1e-6, 0, 0, trials};
        if (stragglers.empty()) return d;
        double late = 0;
        char surplus = 0;
        if (std::sscanf(stragglers.c_str(), "%d:%lf%c", &d.one_in, &late, &surplus) != 2 || d.one_in < 1 ||
            !(late >= 0 && late < 1e18))
            throw std::runtime_error("--stragglers takes ONE_IN:MICROSECONDS, such as 16:500");
        d.late = late * 1e-6;
        return d;
    }
};

/// A number from 0 on: neither below it, nor infinite, nor none at all.
CLI::Validator duration() {
    return {[](const std::string& text) {
                double x = -1;
                return CLI::detail::lexical_cast(text, x) && x >= 0 && x < 1e18 ? ""
                                                                                : text + " is not a time of 0 or more";
            },
        "TIME"};
}

/// FAMILY COLLECTIVE; `compares`: a command that has all families, and needs the collective alone.
void add_schedule(CLI::App& to, arguments& a, bool compares = false) {
    CLI::Option* const family = to.add_option("family", a.asked.name,
        compares ? "with --include: a C++ type, which is compared with the families of the library"
                 : "a family of the library (`colls list`), with --include a C++ type, or a plan's file (.xml, .json)");
    to.add_option(compares ? "--collective,collective" : "collective", a.asked.collective,
        compares ? "all_reduce, allgather, ..." : "all_reduce, allgather, ... (default: all that the family has)");
    if (!compares) family->required();
    to.add_option("--include", a.asked.include,
        "a header that declares the type, a schedule or a family; $CXX, or c++, compiles it");
}
void add_machine(CLI::App& to, arguments& a) {
    to.add_option("--alpha", a.alpha, "microseconds of a round")->capture_default_str()->check(duration());
    to.add_option("--beta", a.beta, "nanoseconds to send a byte")->capture_default_str()->check(duration());
    to.add_option("--gamma", a.gamma, "nanoseconds to reduce a byte")->capture_default_str()->check(duration());
}

/// Becomes colls_perf, the one beside this program or else that of PATH.
[[noreturn]] void become_perf(char** argv) {
    const std::string beside = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "colls_perf";
    execv(beside.c_str(), argv);
    execvp("colls_perf", argv);
    throw std::runtime_error("there is no colls_perf beside this program (" + beside +
                             ") nor in PATH; it is built and installed with the tools: docs/perf.md");
}

int run(int argc, char** argv) {
    // What follows is for colls_perf, --help too, so that the options of this program do not take part.
    if (argc > 1 && std::string_view(argv[1]) == "perf") become_perf(argv + 1);
    arguments a;
    CLI::App app{
        "Schedules of collectives: what there is, proofs, costs and pictures; plans of other libraries.\n\n"
        "    colls list --ranks 8\n"
        "    colls prove circulant --ranks 2..512\n"
        "    colls prove ring all_reduce --ranks 2..65536 --local\n"
        "    colls prove --include my.hpp my::schedule --ranks 2..64\n"
        "    colls cost ring all_reduce --ranks 16 --bytes 64M\n"
        "    colls compare all_reduce --ranks 16 --alpha 5 --beta 0.1 --svg crossovers.svg\n"
        "    colls draw tree broadcast --ranks 7 --svg tree.svg\n"
        "    colls draw ring --page ring.html\n"
        "    colls simulate all_reduce --topology cluster.json --bytes 64M --groups 16,64,256\n"
        "    colls choose all_reduce --topology cluster.json --tune cluster.tune\n"
        "    colls synthesise all_gather --topology cluster.json --bytes 1G -o own.hpp\n"
        "    colls place ring all_reduce --topology cluster.json --bytes 64M\n"
        "    colls export ring all_reduce --ranks 8 --format msccl -o ring.xml\n"
        "    colls import ring.xml --run\n"
        "    colls perf all_reduce --ranks 4 -b 8 -e 16M\n"
        "    COLLS_TRACE=run.json mpirun -n 4 ./program; colls trace summary run.json\n"
        "    colls run -n 4 ./program\n"
        "    colls status\n\n"
        "Exit status: 0; 1: a schedule is refuted; 2: the command is wrong; 3: a plan is proven, but has a form that "
        "this library\n"
        "does not run; 4: prove has proven nothing, since no schedule supports one of the group sizes.",
        "colls"};
    app.require_subcommand(1);
    command_line::add_version(app);

    CLI::App& list = *app.add_subcommand("list", "the families, and what each implements, needs and guarantees");
    list.add_option("collective", a.collective, "only this one");
    CLI::App& prove = *app.add_subcommand("prove", "proves a schedule for a range of group sizes");
    add_schedule(prove, a);
    prove.add_flag("--local", a.local,
        "prove by local conditions, from the steps of each rank, or of rank 0 where the others are its translations: "
        "every size to 65536 ranks (docs/proof.md)");
    CLI::App& cost = *app.add_subcommand("cost", "rounds, messages, bytes, and the predicted time");
    add_schedule(cost, a);
    add_machine(cost, a);
    cost.add_option("--bytes", a.bytes, "of the user's buffer, with K, M or G")->capture_default_str();
    CLI::App& compare =
        *app.add_subcommand("compare", "all schedules of a collective over sizes, and the best of each");
    compare.add_option("collective", a.collective, "all_reduce, allgather, ...")->required();
    add_machine(compare, a);
    compare.add_option("--sizes", a.sizes, "bytes, with K, M or G (default: 8 to 1G, each 4 times the one before)")
        ->delimiter(',');
    CLI::App& draw = *app.add_subcommand("draw",
        "a picture of all rounds, and a page that plays them\n\n"
        "    colls draw ring --page ring.html                 every collective, group size and root\n"
        "    colls draw tree broadcast --ranks 7 --svg tree.svg\n"
        "    colls draw --include my.hpp my::schedule --page my.html      shows what is refuted, too, with status 1");
    add_schedule(draw, a);
    add_machine(draw, a);
    draw.add_option("--page,--html", a.page,
        "write a page to this file, which needs no other one: it plays every collective, group size and root");
    draw.add_option("--largest", a.largest, "of the page: the largest group size, 32 at most; default: 16, or --ranks")
        ->check(CLI::Range(1, tool::most_page_ranks));
    CLI::App& simulate = *app.add_subcommand("simulate", "times of schedules on a network, by the number of ranks");
    add_schedule(simulate, a);
    simulate.add_option("--groups", a.groups, "numbers of ranks, such as 8,64 (default: powers of two)")
        ->delimiter(',');
    simulate
        .add_option("--noise", a.noise,
            "microseconds that each rank loses in each round, on average "
            "(exponentially distributed)")
        ->check(duration());
    simulate.add_option(
        "--stragglers", a.stragglers, "ONE_IN:MICROSECONDS: one rank in ONE_IN begins MICROSECONDS late");
    simulate.add_option("--trials", a.trials, "with --noise or --stragglers: the mean of this many simulations")
        ->capture_default_str()
        ->check(CLI::Range(1, 1 << 30));
    CLI::App& choose =
        *app.add_subcommand("choose", "the best schedule on a network by size, as a file for COLLS_TUNE");
    add_schedule(choose, a, true);
    choose.add_option("--sizes", a.sizes, "bytes, with K, M or G (default: 8 to 1G, each 4 times the one before)")
        ->delimiter(',');
    choose.add_option("--tune", a.tune, "write the choices to this file, for COLLS_TUNE");
    CLI::App& place = *app.add_subcommand("place", "looks for places of the ranks on a network that take less time");
    add_schedule(place, a);
    place.add_option("--tries", a.tries, "exchanges of two ranks to try")
        ->capture_default_str()
        ->check(CLI::Range(0, 1 << 30));
    CLI::App& synthesise = *app.add_subcommand("synthesise",
        "makes a schedule for a network: searched, proven, compared with the bound of its links\n\n"
        "    colls synthesise --topology torus.json --collective all_gather --bytes 1G -o torus.hpp\n"
        "    colls prove --include torus.hpp synthesised::all_gather_of_16 -n 16");
    add_schedule(synthesise, a, true);
    synthesise
        .add_option("--cut", a.cut, "parts into which each rank's block is cut (default: the best of several numbers)")
        ->check(CLI::Range(1, 1024));
    synthesise.add_option("--tries", a.synthesis.what.tries, "searches for each cut; the best result is taken")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000));
    synthesise.add_option("--seed", a.synthesis.what.seed, "of the search")->capture_default_str();
    synthesise.add_option("-o,--output", a.synthesis.output, "write a header with the schedule to this file");
    synthesise.add_option(
        "--type", a.synthesis.type, "the name of its type (default: synthesised::COLLECTIVE_of_RANKS)");
    CLI::App& trace = *app.add_subcommand("trace", "what the ranks of a program did, recorded by COLLS_TRACE");
    trace.require_subcommand(1);
    CLI::App& summary = *trace.add_subcommand("summary", "the slowest rank and link, and where the time went");
    CLI::App& merge = *trace.add_subcommand("merge", "one file for all processes, on one clock, for Perfetto");
    for (CLI::App* const each : {&summary, &merge})
        each->add_option("traces", a.traces, "the value of COLLS_TRACE, or the files that it made")->required();
    merge.add_option("-o,--output", a.output, "the file to write")->required();
    CLI::App& now = *app.add_subcommand("status",
        "what the ranks of running programs do, stragglers first\n\n"
        "    colls status                     all programs of this host that this user may look at\n"
        "    colls status 4711                the groups of process 4711\n"
        "    colls status node3:7000          of a program that was started with COLLS_STATUS=[::]:7000\n\n"
        "COLLS_TOKEN has to be that of the program.");
    now.add_option("targets", a.targets, "processes, or HOST:PORT; several are shown together");
    now.add_flag("--prometheus", a.prometheus, "print metrics in the text format of Prometheus");
    CLI::App& start = *app.add_subcommand("run",
        "starts the ranks of a program, whose colls::world() is their group\n\n"
        "    colls run -n 4 ./program argument\n"
        "    colls run -n 16 --hosts node1,node2:12 ./program      by ssh, in this folder there\n\n"
        "The lines that they write begin with the rank. The first that fails ends all, and its status is that of this\n"
        "command: 128 + S after signal S. This host's ranks have its environment, others the variables COLLS_*.");
    start.add_option("-n,--ranks", a.start.ranks, "how many (with --hosts: one for each place)");
    start.add_option("--hosts", a.start.hosts,
        "HOST or HOST:RANKS, with commas; rank 0 is on the first, and the others reach it by that name");
    start.add_option("--shell", a.start.shell, "the command that runs another one on a host")->capture_default_str();
    start.add_flag("!--no-label", a.start.label, "pass on what the ranks write as it is");
    start.add_flag("--elastic", a.start.elastic, "a rank that fails ends no other; the status is 0 if one ends well");
    start.prefix_command();
    app.add_subcommand("perf", "times collectives: colls_perf with these options");  // see above
    CLI::App& export_plan = *app.add_subcommand("export",
        "a schedule in another library's format\n\n"
        "    colls export ring all_reduce --ranks 8 --format msccl -o ring.xml\n"
        "    colls export tree broadcast --ranks 7 --format dot | dot -Tsvg -o tree.svg\n"
        "    colls export ring all_reduce --ranks 8 --bytes 64M --format chakra -o ring");
    add_schedule(export_plan, a);
    export_plan
        .add_option("--format", a.format.format,
            "msccl: MSCCL XML, which MSCCL and RCCL run; mscclpp: a plan of MSCCL++, as JSON; dot: a graph for "
            "Graphviz; chakra: execution traces for ASTRA-sim, a file for each rank; trace: their nodes as JSON")
        ->capture_default_str();
    export_plan.add_flag("--out-of-place", a.format.out_of_place, "msccl: input and output are different buffers");
    export_plan.add_option("-o,--output", a.output, "write to this file; chakra: to PREFIX.0.et, PREFIX.1.et, ...");
    CLI::App& import = *app.add_subcommand("import",
        "a plan of another library: what it is, proven or refuted, priced, run\n\n"
        "    colls import ring.xml --run\n\n"
        "prove, cost, draw, simulate, place and export take a plan's file in place of a family.");
    import.add_option("plan", a.asked.name, "MSCCL XML (.xml), or an execution plan of MSCCL++ (.json)")->required();
    import.add_flag("--run", a.run, "run it on threads, and compare with a serial computation");
    add_machine(import, a);
    for (CLI::App* const each : {&export_plan, &import})
        each->add_option("--bytes", a.bytes, "of the user's buffer, with K, M or G")->capture_default_str();
    for (CLI::App* const each : {&simulate, &choose, &place, &synthesise})
        each->add_option("--topology", a.topology, "the network: a file of JSON, docs/simulate.md")->required();
    for (CLI::App* const each : {&choose, &place, &synthesise})
        each->add_option("-n,--ranks", a.network_ranks, "group size: the first ranks of the network (default: all)")
            ->check(CLI::Range(1, 1 << 28));
    for (CLI::App* const each : {&simulate, &place, &synthesise})
        each->add_option("--bytes", a.bytes, "of the user's buffer, with K, M or G")->capture_default_str();
    for (CLI::App* const each : {&cost, &draw})
        each->add_option("--hosts", a.hosts,
            "ranks of each host, one host after the other, as 2,1,3, or one number for all: shows what goes between "
            "them");
    for (CLI::App* const each : {&compare, &draw})
        each->add_option("--svg,--plot", a.svg, "write a picture to this file");
    for (CLI::App* const each : {&list, &prove, &cost, &compare, &draw, &export_plan})
        each->add_option("-n,--ranks", a.ranks,
            each == &prove  ? "group sizes: 8, or 2..512 (default: 8, or that of the plan)"
            : each == &draw ? "group size, the first one that a page shows (default: 8, or that of the plan)"
                            : "group size (default: 8, or that of the plan)");
    for (CLI::App* const each :
        {&list, &prove, &cost, &compare, &simulate, &choose, &place, &synthesise, &import, &summary, &now})
        each->add_flag("--json", a.json, "print JSON");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        if (e.get_exit_code() != 0) throw std::runtime_error(command_line::error_text(app, e));
        return app.exit(e);  // --help, --version
    }

    if (now.parsed()) {
        if (a.json && a.prometheus) throw std::runtime_error("status: take --json or --prometheus");
        return tool::show_status(a.targets, a.json         ? tool::status_format::json
                                            : a.prometheus ? tool::status_format::prometheus
                                                           : tool::status_format::table);
    }
    if (start.parsed()) {
        a.start.command = start.remaining();
        if (!a.start.command.empty() && a.start.command[0] == "--") a.start.command.erase(a.start.command.begin());
        if (!a.start.command.empty() && a.start.command[0].starts_with("-"))
            throw std::runtime_error(fmt::format("run: unknown option {} (colls run --help)", a.start.command[0]));
        return tool::run_ranks(a.start);
    }
    a.settle_words();
    if ((simulate.parsed() || choose.parsed() || synthesise.parsed()) && a.asked.collective.empty())
        throw std::runtime_error("name a collective, such as all_reduce");
    if (trace.parsed()) {
        const tool::recording recorded = tool::read_recording(a.traces);
        if (summary.parsed()) return tool::summarise(recorded, a.json);
        write(a.output, recorded.events.dump());
        return tool::good;
    }
    if (list.parsed()) return tool::list(a.collective, a.group(), a.json);
    if (prove.parsed() && a.local) {
        const auto [first, last] = a.group_range();
        return tool::prove_locally(a.asked, first, last, a.json);
    }
    if (prove.parsed()) {
        const std::vector<tool::entry> found = tool::find(a.asked);
        const auto [first, last] = a.group_range(found[0].ranks);
        return tool::prove(found, first, last, a.json);
    }
    if (cost.parsed()) {
        const std::vector<tool::entry> found = tool::find(a.asked);
        const int n = a.group(found[0].ranks);
        return tool::cost(found, n, input::parse_size(a.bytes), a.machine(), tool::hosts_of(a.hosts, n), a.json);
    }
    if (import.parsed()) return tool::import(a.asked.name, input::parse_size(a.bytes), a.machine(), a.run, a.json);
    if (compare.parsed()) return tool::compare(a.collective, a.group(), a.sizes_or_steps(), a.machine(), a.svg, a.json);
    if (simulate.parsed() || choose.parsed() || place.parsed() || synthesise.parsed()) {
        const tool::network on = tool::read_network(a.topology);
        const int n = a.network_ranks > 0 ? a.network_ranks : on.topology.ranks();
        if (place.parsed()) return tool::place(tool::find(a.asked), on, n, input::parse_size(a.bytes), a.tries, a.json);
        std::string command = "colls";
        for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
        if (synthesise.parsed()) {
            tool::synthesis_request& s = a.synthesis;
            s.what.what = tool::collective_named(a.asked.collective);
            s.what.ranks = n;
            s.what.cut = a.cut;
            s.bytes = input::parse_size(a.bytes);
            s.origin = command;
            if (s.type.empty()) s.type = fmt::format("synthesised::{}_of_{}", colls::name_of(s.what.what), n);
            return tool::synthesise(s, a.own(), on, a.json);
        }
        if (choose.parsed())
            return tool::choose(a.asked.collective, a.own(), on, n, a.sizes_or_steps(), a.tune, command, a.json);
        std::vector<int> groups;
        for (const std::string& text : a.groups) {
            const auto [first, last] = tool::parse_range(text);
            if (first != last) throw std::runtime_error("--groups takes numbers, such as 8,16,32");
            groups.push_back(first);
        }
        const std::vector<tool::entry> only = a.asked.name.empty() ? std::vector<tool::entry>{} : tool::find(a.asked);
        return tool::simulate(
            a.asked.collective, only, on, groups, input::parse_size(a.bytes), a.disturbances(), a.json);
    }
    const std::vector<tool::entry> found = tool::find(a.asked);
    if (draw.parsed() && a.svg.empty() && a.page.empty())
        throw std::runtime_error("name a file to draw to: --page FILE, --svg FILE");
    tool::status status = tool::good;
    if (draw.parsed() && !a.page.empty()) {
        const tool::explorer_page page =
            tool::explorer_of(found, {a.ranks.empty() ? 0 : a.group(), a.largest, a.ranks_a_host(), a.machine()});
        write(a.page, page.text);
        for (const std::string& finding : page.refuted) fmt::print("{}\n", finding);
        if (!page.refuted.empty()) status = tool::refuted;
        if (a.svg.empty()) return status;
    }
    if (found.size() > 1) throw std::runtime_error("name one collective: `colls draw ring all_gather`");
    const int n = a.group(found[0].ranks);
    if (export_plan.parsed()) {
        a.format.bytes = input::parse_size(a.bytes);
        for (const tool::exported_file& file : tool::exported(found[0], n, a.format)) {
            if (a.output.empty() && !file.suffix.empty())
                throw std::runtime_error(fmt::format(
                    "{} writes a file for each rank: give the start of their names, -o PREFIX for PREFIX{} and so on",
                    a.format.format, file.suffix));
            if (a.output.empty())
                fmt::print("{}", file.content);
            else
                write(a.output + file.suffix, file.content);
        }
        return tool::good;
    }
    write(a.svg, tool::svg_of(found[0], n, tool::hosts_of(a.hosts, n)));
    return status;
}

}  // namespace

int main(int argc, char** argv) {
    const colls::detail::standard_descriptors_held held;  // a file that it writes is none of them
    signal(SIGCHLD, SIG_DFL);  // a parent that ignores it would make waits for other programs fail
    try {
        const int status = run(argc, argv);
        if (std::fflush(stdout) != 0 || !std::cout.flush())  // the last lines are written now
            throw std::runtime_error(
                fmt::format("cannot write to the standard output: {}", colls::detail::system_text(errno)));
        return status;
    } catch (const exchange::refuted& e) {
        fmt::print(stderr, "refuted: {}\n", e.what());
        return tool::refuted;
    } catch (const std::bad_alloc&) {
        fmt::print(stderr, "colls: there is not enough memory: ask for fewer ranks\n");
        return tool::misused;
    } catch (const std::exception& e) {
        fmt::print(stderr, "colls: {}\n", tool::without_exception_names(colls::detail::quoted(e.what())));
        return tool::misused;
    }
}
