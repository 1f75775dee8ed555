#include "options.hpp"

#include "../command_line.hpp"
#include "schedule_list.hpp"

#include <colls/bootstrap/launch.hpp>
#include <colls/config.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace perf {

namespace {

/// Flags of nccl-tests that mean nothing here: the value that asks for nothing is accepted, others are refused.
struct elsewhere {
    const char *flag, *nothing, *instead;
};
constexpr elsewhere not_here[] = {
    {"-t,--nthreads", "1",
        "ranks are not counted by threads of a process: --ranks N --transport threads makes N ranks, a thread each"},
    {"-g,--ngpus", "1", "there are no GPUs: a rank is a thread or a process; --ranks N, or mpirun -n N"},
    {"-G,--cudagraph", "0", "there are no graphs: calls are made by the host, one by one; -m N starts N at once"},
    {"-p,--parallel_init", "0", "ranks always join their group at the same time, and that is not timed"},
    {"-C,--report_cputime", "0", "calls run on the CPU: the time printed is the CPU's; --percentiles shows its spread"},
    {"-M,--memory", "0",
        "memory is not measured: a rank has two buffers of -e bytes for each of the -m operations, and with -c a copy "
        "of both"},
    {"-D,--device_implementation", "0", "there are no kernels: --schedule NAME chooses the algorithm"},
    {"-V,--device_cta_count", "", "there are no kernels: a rank is one thread"},
    {"-x,--cta_policy", "", "there are no kernels: a rank is one thread"},
    {"-y,--stream_null", "0", "there are no streams: -z 0 starts operations, others make blocking calls"},
};

constexpr const char* examples = R"(Examples:
  colls_perf all_reduce -b 8 -e 128M -f 2 --ranks 4         four threads; as all_reduce_perf
  mpirun -n 8 colls_perf all_gather -b 1K -e 64M -f 4       the ranks that mpirun started
  colls_perf all -b 1K -e 1K -d all -o all --ranks 3        every collective, type and operator, checked
  colls_perf all_reduce -b 8 -e 16M -f 4 --schedule ring    one algorithm
  colls_perf all_reduce -b 8 -e 16M -f 4 --transport tcp --percentiles --json a.json --plot a.svg
  colls_perf all_reduce -b 8 -e 16M -f 4 --plot b.svg --peer before=a.json
  mpirun -n 8 colls_perf all -b 8 -e 16M -f 4 --tune cluster.tune
  COLLS_TUNE=cluster.tune mpirun -n 8 ./program             runs with what that measured
Exit status: 0; 1 an error; 2 wrong arguments; 3 wrong data.)";

/// The arguments are wrong.
struct refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::vector<std::string> type_names() {
    std::vector<std::string> names;
    for (const element_type& t : element_types())
        if (type_named(t.name)) names.emplace_back(t.name);
    return names;
}

std::vector<std::string> known_types() {
    std::vector<std::string> names = type_names();
    names.emplace_back("all");
    return names;
}
std::vector<std::string> known_jobs() {
    std::vector<std::string> names{"all"};
    for (int j = 0; j < job_count; ++j) names.emplace_back(name_of(static_cast<job>(j)));
    return names;
}

std::size_t bytes_of(const std::string& text, const char* flag) {
    constexpr int bits = 46;  // an address has 47
    try {
        return static_cast<std::size_t>(input::parse_size(text, bits));  // whole bytes, as nccl-tests counts
    } catch (const std::runtime_error& e) {
        throw refusal(fmt::format("{}: {}", flag, e.what()));
    }
}

/// Options as they are written.
struct written {
    std::vector<std::string> jobs, more_jobs, types{"float"}, ops{"sum"}, peers;
    std::string min, max, step, root = "0", output;
    int registered = 0, per_iteration = 0, timestamps = 0;
    std::vector<std::string> refused = std::vector<std::string>(std::size(not_here));
};

void declare(CLI::App& cli, options& o, written& w, bool over_mpi) {
    cli.get_formatter()->column_width(34);
    cli.footer(examples);
    std::vector<std::string> transports{"world", "threads", "processes", "shm", "tcp", "verbs", "ofi"};
    if (over_mpi) transports.emplace_back("mpi");
    const auto number = [](int least, int most) {
        CLI::Range range(least, most);
        range.description("");
        return range;
    };
    CLI::IsMember known_transport(transports);
    known_transport.description("");
    cli.add_option("collective", w.jobs,
           "broadcast, scatter, gather, all_gather, reduce, reduce_scatter, all_reduce,\n"
           "all_to_all, barrier, inclusive_scan, exclusive_scan; all: all of these;\n"
           "all_to_all_v, send_recv; several in a list: all_reduce,all_gather")
        ->delimiter(',')
        ->type_name("NAME");
    cli.add_option("--collective", w.more_jobs, "the same as an option")->delimiter(',')->type_name("NAME");
    std::string group = "Sizes";
    cli.add_option("-b,--minbytes", w.min, "least size [32M, or -e]")->group(group)->type_name("BYTES");
    cli.add_option("-e,--maxbytes", w.max, "greatest size [32M]")->group(group)->type_name("BYTES");
    cli.add_option("-i,--stepbytes", w.step, "from one size to the next [1M]")->group(group)->type_name("BYTES");
    cli.add_option("-f,--stepfactor", o.step_factor, "each size is this multiple of the one before; counts before -i")
        ->check(number(0, 1 << 16))
        ->group(group)
        ->type_name("N");
    group = "Calls";
    cli.add_option("-d,--datatype", w.types,
           "int8, uint8, int32, uint32, int64, uint64, half, float, double,\nbfloat16, or all [float]")
        ->delimiter(',')
        ->group(group)
        ->type_name("NAME");
    cli.add_option("-o,--op", w.ops, "sum, prod, min, max, avg, or all [sum]")
        ->delimiter(',')
        ->group(group)
        ->type_name("NAME");
    cli.add_option("-r,--root", w.root, "a rank, or all [0]")->group(group)->type_name("RANK");
    cli.add_option("--schedule", o.schedule, "the family of schedules (COLLS_SCHEDULE) [the library chooses]")
        ->group(group)
        ->type_name("NAME");
    cli.add_flag(
           "--reproducible", o.reproducible, "schedules whose bits depend on contributions alone\n(COLLS_REPRODUCIBLE)")
        ->group(group);
    cli.add_flag("--registered", o.registered, "buffers from communicator::allocate; also -R 1, -R 2")->group(group);
    cli.add_option("-R,--local_register", w.registered, "1, 2: the same as --registered")
        ->check(number(0, 2))
        ->group(group)
        ->type_name("0-2");
    cli.add_option("-u,--unalign", o.unalign, "buffers begin this many elements past a cache line [0]")
        ->check(number(0, 1 << 20))
        ->group(group)
        ->type_name("N");
    group = "Measurement";
    cli.add_option("-n,--iters", o.iterations, "timed iterations [20; more, up to 2000, until they take 20 ms]")
        ->check(number(1, 1 << 30))
        ->group(group)
        ->type_name("N")
        ->default_str("");
    cli.add_option("-w,--warmup_iters", o.warmup, "iterations before them [5]")
        ->check(number(0, 1 << 30))
        ->group(group)
        ->type_name("N");
    cli.add_option(
           "-m,--agg_iters", o.aggregate, "operations of an iteration, started at once, with buffers of their own\n[1]")
        ->check(number(1, 1024))
        ->group(group)
        ->type_name("N");
    cli.add_option("-N,--run_cycles", o.cycles, "how often all sizes are run; 0: for ever [1]")
        ->check(number(0, 1 << 30))
        ->group(group)
        ->type_name("N");
    cli.add_option("-z,--blocking", o.blocking,
           "0: each operation is started and waited for; 1: a blocking call and a\n"
           "barrier; 2: a blocking call; 3: as 1, the barrier not timed [2]")
        ->check(number(0, 3))
        ->group(group)
        ->type_name("0-3");
    cli.add_option("-a,--average", o.average, "time over ranks: 0 rank 0, 1 mean, 2 least, 3 greatest [3]")
        ->check(number(0, 3))
        ->group(group)
        ->type_name("0-3");
    cli.add_option("-c,--check", o.checks, "calls for each row whose data are checked; 0: none [1]")
        ->check(number(0, 1 << 30))
        ->group(group)
        ->type_name("N");
    cli.add_flag("--fresh", o.fresh,
           "each rank rewrites its input before each call and reads its output\nafter it, both not timed; else calls "
           "follow one another on the same\nbuffers")
        ->group(group);
    group = "Ranks";
    cli.add_option("--transport", o.transport,
           over_mpi ? "mpi (messages of MPI), world, threads, processes (shm), tcp,\nverbs, ofi [mpi]"
                    : "world (what mpirun, srun or torchrun started), threads, processes\n(shm), tcp, verbs, ofi "
                      "[world under a launcher, else threads]")
        ->check(known_transport)
        ->group(group)
        ->type_name("NAME");
    cli.add_option("--ranks", o.ranks, "where no launcher says it [cores]")
        ->check(number(1, 4096))
        ->group(group)
        ->type_name("N")
        ->default_str("");
    cli.add_flag("--pin", o.pin, "bind each rank to a core")->group(group);
    cli.add_option("-T,--timeout", o.timeout, "deadline of each wait (COLLS_TIMEOUT) [300]")
        ->group(group)
        ->type_name("SECONDS");
    group = "Output";
    cli.add_flag(
           "--percentiles", o.percentiles, "columns p50 and p99 of the iterations' times, the greatest over the\nranks")
        ->group(group);
    cli.add_option("-I,--per_iter_timing", w.per_iteration, "1: columns i_min, i_max, i_p99 and i_cv% of the same [0]")
        ->check(number(0, 1))
        ->group(group)
        ->type_name("0-1");
    cli.add_option("-S,--report_timestamps", w.timestamps, "1: when each row was measured [0]")
        ->check(number(0, 1))
        ->group(group)
        ->type_name("0-1");
    cli.add_flag("--show-schedule", o.show_schedule, "a column with the schedule that ran")->group(group);
    cli.add_option("--json", o.json, "write machine, settings and rows to this file; also -J")
        ->group(group)
        ->type_name("FILE");
    cli.add_option("-J,--output_file", w.output, "the same as --json")->group(group)->type_name("FILE");
    cli.add_option("--plot", o.plot, "draw time and bandwidth over size to this SVG file, with the\nmachine's bound")
        ->group(group)
        ->type_name("FILE");
    cli.add_option("--peer", w.peers, "one more line of the plot: a file that --json or scripts/bench wrote")
        ->group(group)
        ->type_name("NAME=FILE");
    cli.add_option("--name", o.name, "of these figures in the plot and the file [colls]")
        ->group(group)
        ->type_name("TEXT");
    cli.add_option("--tune", o.tune,
           "instead of the table: measure which schedules are faster than the\n"
           "library's choice, and write them to this file, for COLLS_TUNE")
        ->group(group)
        ->type_name("FILE");
    cli.add_flag("--progress", o.progress, "say on standard error what is being measured (default on a\nterminal)")
        ->group(group);
    for (std::size_t i = 0; i < std::size(not_here); ++i)
        cli.add_option(not_here[i].flag, w.refused[i], "")->group("");  // not in --help
}

/// --tune measures one kind of call, in place of the rows.
void check_tune(const options& o) {
    if (!o.schedule.empty()) throw refusal("--tune chooses among all schedules: leave out --schedule");
    if (!o.json.empty() || !o.plot.empty()) throw refusal("--tune prints no rows: leave out --json and --plot");
    if (o.types.size() != 1 || o.ops.size() != 1 || o.root < 0)
        throw refusal("--tune measures one type, operator and root: a file has one choice for all of them");
    if (const char* const set = std::getenv("COLLS_TUNE"); set && *set)
        throw refusal(
            fmt::format("--tune: COLLS_TUNE is {}, whose choices would count as the library's own: unset it", set));
    if (const char* const set = std::getenv("COLLS_SCHEDULE"); set && *set)
        throw refusal(
            fmt::format("--tune: COLLS_SCHEDULE is {}, which is not the library's own choice: unset it", set));
}

void resolve(options& o, const written& w, bool over_mpi) {
    for (std::size_t i = 0; i < std::size(not_here); ++i)
        if (!w.refused[i].empty() && w.refused[i] != not_here[i].nothing)
            throw refusal(fmt::format("{} {}: {}", not_here[i].flag, w.refused[i], not_here[i].instead));
    std::vector<std::string> names = w.jobs;
    names.insert(names.end(), w.more_jobs.begin(), w.more_jobs.end());
    if (names.empty()) throw refusal("no collective is named: all_reduce, for instance; --help lists them");
    for (const std::string& name : names) {
        if (name == "all") {
            o.all_jobs = true;
            for (const job j : all_jobs()) o.jobs.push_back(j);
        } else if (const auto j = job_named(name)) {
            o.jobs.push_back(*j);
        } else {
            throw refusal(input::unknown("collective", name, known_jobs()));
        }
    }
    for (const std::string& name : w.types) {
        for (const std::string& each : name == "all" ? type_names() : std::vector{name}) {
            o.types.push_back(type_named(each));
            if (!o.types.back()) throw refusal("-d: " + input::unknown("type", each, known_types()));
        }
    }
    o.ops.clear();
    for (const std::string& name : w.ops) {
        constexpr reduction all[] = {reduction::sum, reduction::prod, reduction::min, reduction::max, reduction::avg};
        o.all_ops = o.all_ops || name == "all";
        const std::size_t before = o.ops.size();
        for (const reduction op : all)
            if (name == "all" || name == name_of(op)) o.ops.push_back(op);
        if (o.ops.size() == before)
            throw refusal("-o: " + input::unknown("operator", name, {"sum", "prod", "min", "max", "avg", "all"}));
    }
    if (w.root == "all" || w.root == "-1") {  // nccl-tests writes -1
        o.root = -1;
    } else {
        const auto [end, failed] = std::from_chars(w.root.data(), w.root.data() + w.root.size(), o.root);
        if (failed != std::errc() || end != w.root.data() + w.root.size() || o.root < 0)
            throw refusal(fmt::format("-r {}: neither a rank nor all", w.root));
    }
    if (!w.max.empty()) o.max_bytes = bytes_of(w.max, "-e");
    o.min_bytes = w.min.empty() ? std::min(o.min_bytes, o.max_bytes) : bytes_of(w.min, "-b");
    if (!w.step.empty()) o.step_bytes = bytes_of(w.step, "-i");
    if (w.max.empty()) o.max_bytes = std::max(o.max_bytes, o.min_bytes);
    if (o.min_bytes > o.max_bytes) throw refusal(fmt::format("-b {} is more than -e {}", o.min_bytes, o.max_bytes));
    if (o.step_factor < 2 && o.step_bytes == 0 && o.min_bytes < o.max_bytes)
        throw refusal("-i 0: a step of 0 bytes never reaches -e; -f 2 doubles the size each time");
    if (!o.schedule.empty()) {
        const std::vector<std::string> known = schedule_names();
        if (std::ranges::find(known, o.schedule) == known.end())
            throw refusal("--schedule: " + input::unknown("family", o.schedule, known));
    }
    o.registered = o.registered || w.registered > 0;
    o.per_iteration = w.per_iteration > 0;
    o.timestamps = w.timestamps > 0;
    if (o.json.empty()) o.json = w.output;
    for (const std::string& peer : w.peers) {
        const std::size_t at = peer.find('=');
        if (at == 0 || at == std::string::npos) throw refusal(fmt::format("--peer {}: not NAME=FILE", peer));
        o.peers.emplace_back(peer.substr(0, at), peer.substr(at + 1));
    }
    if (!o.peers.empty() && o.plot.empty()) throw refusal("--peer: peers are drawn, so give --plot FILE, too");
    if (o.cycles == 0 && (!o.json.empty() || !o.plot.empty()))
        throw refusal(
            "-N 0: a run that never ends writes no file: give -N another number, or neither --json nor --plot");
    if (!o.tune.empty()) check_tune(o);
    if (o.name.empty()) o.name = o.schedule.empty() ? "colls" : "colls " + o.schedule;
    if (o.transport == "shm") o.transport = "processes";
    if (o.transport.empty())
        o.transport = over_mpi ? "mpi" : colls::read_launch().source != "none" ? "world" : "threads";
    const bool counted = o.transport != "world" && o.transport != "mpi";
    if (!counted && o.ranks > 0)
        throw refusal(fmt::format(
            "--ranks {}: with --transport {} the launcher says how many ranks there are", o.ranks, o.transport));
    if (o.ranks == 0) o.ranks = std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
}

/// One of the ranks of a launcher speaks.
bool speaks() {
    try {
        return colls::read_launch().rank == 0;
    } catch (const std::exception&) {
        return true;
    }
}

}  // namespace

std::optional<int> parse(int argc, char** argv, bool over_mpi, options& o) {
    CLI::App cli("Times the collectives of colls in the way of nccl-tests, and checks their results.",
        over_mpi ? "colls_perf_mpi" : "colls_perf");
    written w;
    declare(cli, o, w, over_mpi);
    command_line::add_version(cli);
    const auto refuse = [&](const std::string& why) {
        if (speaks()) fmt::print(stderr, "{}: {}\n", cli.get_name(), why);
        return 2;
    };
    o.command = cli.get_name();
    for (int i = 1; i < argc; ++i) o.command += std::string(" ") + argv[i];
    try {
        cli.parse(argc, argv);
        resolve(o, w, over_mpi);
        return {};
    } catch (const CLI::ParseError& e) {
        if (e.get_exit_code() != 0) return refuse(command_line::error_text(cli, e));
        if (speaks()) cli.exit(e);  // --help, --version
        return 0;
    } catch (const std::exception& e) {
        return refuse(e.what());
    }
}

}  // namespace perf
