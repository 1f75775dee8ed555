// colls_perf as a user runs it: transports, columns, files, and what is refused.
#include "execute.hpp"

#include <nlohmann/json.hpp>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct result : support::program_result {
    /// The lines that are not headers.
    std::vector<std::vector<std::string>> rows() const {
        std::vector<std::vector<std::string>> all;
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);)
            if (!line.empty() && line[0] == ' ') {
                std::istringstream words(line);
                all.emplace_back();
                for (std::string word; words >> word;) all.back().push_back(word);
            }
        return all;
    }
};

result execute(const std::string& command) { return {support::execute(command)}; }
result perf(const std::string& arguments) { return execute("'" COLLS_TEST_PERF "' " + arguments); }

/// No wrong element in any row, and as many rows as there must be.
void check_rows(const result& r, std::size_t count) {
    INFO(r.text);
    REQUIRE(r.status == 0);
    CHECK(r.rows().size() == count);
    CHECK(r.says("# Out of bounds values : 0 OK"));
    CHECK_FALSE(r.says("FAILED"));
    CHECK(r.says("# Avg bus bandwidth    : "));
}

/// A file name that no other run of the test uses.
std::string scratch(const std::string& name) {
    return (std::filesystem::temp_directory_path() / ("colls_perf_" + std::to_string(getpid()) + "_" + name)).string();
}
nlohmann::json parsed(const std::string& file) {
    std::ifstream in(file);
    return nlohmann::json::parse(in);
}

}  // namespace

TEST_CASE("colls_perf: every collective, type and operator on three threads", "[perf]") {
    // 10 types; 5 operators of reduce, reduce_scatter and all_reduce, 4 of the scans; broadcast, scatter, gather,
    // all_gather and all_to_all; one barrier.
    check_rows(perf("all -b 999 -e 999 -d all -o all --ranks 3 -n 2 -w 1"), 10 * (3 * 5 + 2 * 4 + 5) + 1);
}

TEST_CASE("colls_perf: two processes, over shared memory, TCP and libfabric", "[perf]") {
    std::vector<const char*> transports{"processes", "tcp"};
#ifdef COLLS_TEST_PERF_OFI
    transports.push_back("ofi");
#endif
    for (const char* transport : transports)
        check_rows(
            perf(std::string(
                     "all,all_to_all_v,send_recv -b 8 -e 40000 -f 5000 -d float,int8 --ranks 2 -n 3 --transport ") +
                 transport),
            2 * 2 * 12 + 1);
}

TEST_CASE("colls_perf: operations in flight, fresh data, registered memory, barriers, any root", "[perf]") {
    const std::string base = "all,send_recv -b 100 -e 3000 -f 30 --ranks 3 -n 3 -w 1 ";
    for (const char* flags : {"-m 3", "-z 0 --reproducible", "-z 1 -u 1", "-z 3 --registered", "--fresh -m 2 -R 1"})
        check_rows(perf(base + flags), 2 * 11 + 1);
    check_rows(perf("reduce,broadcast,gather -b 64 -e 64 -r all --ranks 3 -n 2"), 9);
    check_rows(perf("all_reduce -b 1K -e 4K -i 1024 -N 2 --ranks 1"), 8);
}

#ifdef COLLS_TEST_MPIRUN
TEST_CASE("colls_perf: the ranks of mpirun are the world; rank 0 alone prints", "[perf]") {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    const std::string mpirun = COLLS_TEST_MPIRUN " -n 2 ";
    const result r = execute(mpirun + "'" COLLS_TEST_PERF "' all_reduce,all_gather -b 1K -e 4K -f 2 -g 1 -t 1");
    check_rows(r, 6);
    CHECK(r.says("nRanks 2 transport: world"));
    const result refused = execute(mpirun + "'" COLLS_TEST_PERF "' all_reduce -g 8");
    CHECK(refused.status == 2);
    CHECK(refused.text.find("no GPUs") == refused.text.rfind("no GPUs"));
#ifdef COLLS_TEST_PERF_MPI
    const result over = execute(mpirun + "'" COLLS_TEST_PERF_MPI "' all -b 1K -e 1K -n 3");
    check_rows(over, 11);
    CHECK(over.says("nRanks 2 transport: mpi"));
#endif
}
#endif

TEST_CASE("colls_perf: columns are those of nccl-tests", "[perf]") {
    const result r = perf("all_gather -b 4K -e 4K --ranks 2 -d double");
    INFO(r.text);
    CHECK(r.says(
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   "
        "busbw  #wrong\n#        (B)    (elements)"));
    CHECK(r.says("           out-of-place                       in-place"));
    REQUIRE(r.rows().size() == 1);
    const std::vector<std::string> row = r.rows()[0];
    REQUIRE(row.size() == 13);
    CHECK((row[0] == "4096" && row[1] == "256" && row[2] == "double" && row[3] == "none" && row[4] == "-1"));
    CHECK((row[8] == "0" && row[12] == "0"));

    const result more = perf("broadcast -b 64 -e 64 --ranks 2 -c 0 --percentiles -I 1 --show-schedule");
    REQUIRE(more.rows().size() == 1);
    CHECK(more.rows()[0].size() == 5 + 2 * (4 + 6) + 1);
    CHECK(more.rows()[0][5] == "N/A");   // broadcast has one buffer
    CHECK(more.rows()[0][18] == "N/A");  // -c 0

    const result pinned = perf("all_reduce -b 8 -e 8 -n 1 --ranks 2 --pin -S 1");
    INFO(pinned.text);
    CHECK(pinned.says("timestamp"));
    REQUIRE(pinned.rows().size() == 1);
    CHECK(pinned.rows()[0].size() == 13 + 2);  // day and time
    std::set<std::string> cores;
    for (std::size_t at = pinned.text.find(" core "); at != std::string::npos; at = pinned.text.find(" core ", at + 1))
        cores.insert(pinned.text.substr(at, pinned.text.find('\n', at) - at));
    cpu_set_t usable;
    REQUIRE(sched_getaffinity(0, sizeof usable, &usable) == 0);
    CHECK(cores.size() == static_cast<std::size_t>(std::min(2, CPU_COUNT(&usable))));
}

TEST_CASE("colls_perf: --json holds every row; --plot draws it with a peer and the bound", "[perf]") {
    const std::string json = scratch("a.json"), svg = scratch("a.svg"), peer = scratch("peer.json");
    std::ofstream(peer) << R"([{"collective": "all_reduce", "ranks": 2, "bytes": 1024, "peer_us": 9.5},
                               {"collective": "broadcast", "ranks": 2, "bytes": 4096, "peer_us": 8}])";
    check_rows(perf("all_reduce -b 1K -e 4K -f 2 --ranks 2 --json " + json), 3);
    check_rows(perf("all_reduce -b 1K -e 4K -f 2 --ranks 2 --percentiles -J " + json + " --plot " + svg +
                    " --peer gloo=" + peer + " --peer before=" + json),
        3);  // a peer is read before the file is written again
    const nlohmann::json all = parsed(json);
    CHECK(all["tool"] == "colls_perf");
    CHECK(all["machine"]["ranks"] == 2);
    CHECK(all["settings"]["transport"] == "threads");
    CHECK(all["out_of_bounds"] == 0);
    REQUIRE(all["rows"].size() == 3);
    for (const nlohmann::json& row : all["rows"]) {
        const double seconds = row["out_of_place"]["seconds"], bytes = row["bytes"];
        CHECK(row["collective"] == "all_reduce");
        CHECK(row["seconds"] == seconds);
        CHECK(row["bound_seconds"] > 0.0);
        CHECK(row["in_place"]["wrong"] == 0);
        CHECK(row["in_place"]["p99"] >= row["in_place"]["p50"]);
        CHECK(row["out_of_place"]["busbw_gb_s"].get<double>() == Approx(bytes / seconds / 1e9));  // 2 (n - 1) / n is 1
    }
    std::ifstream in(svg);
    const std::string picture((std::istreambuf_iterator<char>(in)), {});
    for (const char* text : {">colls</text>", ">bound</text>", ">gloo</text>", ">before</text>", "GB/s", " us</text>"})
        CHECK(picture.find(text) != std::string::npos);
    for (const std::string& file : {json, svg, peer}) std::filesystem::remove(file);
}

TEST_CASE("colls_perf: --schedule runs what it names, or says why not", "[perf]") {
    check_rows(perf("all_reduce -b 4K -e 4K --ranks 3 --schedule ring --show-schedule"), 1);
    CHECK(perf("all_reduce -b 4K -e 4K --ranks 3 --schedule ring --show-schedule").rows()[0].back() == "ring");
    check_rows(perf("scatter,gather -b 4K -e 4K --ranks 3 --schedule tree"), 2);
    const result all = perf("all -b 4K -e 4K --ranks 4 --schedule swing");
    check_rows(all, 4);
    CHECK(all.says("# Left out: scatter: swing has no schedule for scatter"));
    const auto refused = [](const std::string& arguments, const std::string& words) {
        const result r = perf(arguments);
        INFO(arguments << "\n" << r.text);
        CHECK(r.status == 2);
        CHECK(r.says(words));
    };
    refused(
        "all_reduce --schedule rung", "there is no family 'rung'; did you mean 'ring'? There are: eager, direct, ring");
    refused("all_gather --schedule tree", "tree has no schedule for all_gather");
    refused("all_reduce --schedule swing --ranks 3", "swing does not support 3 ranks");
    refused("all_reduce --schedule ring --reproducible --ranks 3 -e 1K", "not reproducible");
    refused("all_reduce --schedule eager -b 1M -e 1M --ranks 2", "eager does not work for it");
}

TEST_CASE("colls_perf: wrong arguments are refused in words, with exit status 2", "[perf]") {
    const std::vector<std::array<const char*, 2>> wrong{{"", "collective"},
        {"all_redude", "there is no collective 'all_redude'; did you mean 'all_reduce'? There are: all, broadcast, "},
        {"all_reduce --wrong", "there is no option '--wrong' (colls_perf --help)"},
        {"all_reduce --rank 3", "; did you mean '--ranks'? (colls_perf --help)"},
        {"all_reduce -b 1Q", "-b: '1Q' is not a size"},
        {"all_reduce -e 100000000000000000000",
            "-e: '100000000000000000000' is more than the largest size, 2^46 bytes"},
        {"all_reduce -b 64 -e 1K -f 288230376151711745", "--stepfactor: "},
        {"all_reduce --schedule rings", "; did you mean 'ring'? There are: "},
        {"all_reduce -b 2K -e 1K", "-b 2048 is more than -e 1024"}, {"all_reduce -i 0 -b 1 -e 2", "never reaches"},
        {"all_reduce -d floot", "did you mean 'float'?"},
        {"all_reduce -o minus", "there is no operator 'minus'; did you mean 'min'? There are: sum, "},
        {"all_reduce -r x", "neither a rank nor all"}, {"reduce -r 7 --ranks 2 -e 8", "ranks 0 to 1"},
        {"scan -o avg --ranks 2 -e 8", "no average"}, {"all_reduce -n 0", "--iters"}, {"all_reduce -z 4", "--blocking"},
        {"all_reduce -a 4", "--average"}, {"all_reduce --ranks 0", "--ranks"},
        {"all_reduce --ranks 2 --transport world", "the launcher says"}, {"all_reduce --transport pigeon", "pigeon"},
        {"all_reduce -t 4", "--ranks N"}, {"all_reduce -g 8", "no GPUs"}, {"all_reduce -G 1", "no graphs"},
        {"all_reduce -p 1", "join their group"}, {"all_reduce -D 1", "no kernels"},
        {"all_reduce --peer a=b.json", "--plot"}, {"all_reduce --peer ab --plot x.svg", "NAME=FILE"},
        {"all_reduce -e 8 --json /no/such/folder/a.json", "cannot be written"},
        {"all_reduce -e 8 --tune /no/such/folder/a.tune", "/no/such/folder/a.tune cannot be written"},
        {"all_reduce -e 8 --tune /tmp", "/tmp cannot be written"},
        {"all_reduce -e 8 --tune a --schedule ring", "leave out --schedule"},
        {"all_reduce -e 8 --tune a --json b", "leave out --json"}, {"all_reduce -e 8 --tune a -d all", "one type"},
        {"send_recv -e 8 --tune /tmp/x.tune", "without a schedule"},
        {"gather -e 8 --tune /tmp/x.tune", "not all ranks know its size"},
        {"all_to_all_v -e 8 --tune /tmp/x.tune", "no other rank knows the counts"},
        {"send_recv -e 8 --schedule ring", "without a schedule"},
        {"all_to_all_v -e 8 --schedule bruck", "always goes by direct"},
        {"all_reduce -N 0 -J /tmp/x.json", "a run that never ends"}, {"barrier --plot /tmp/x.svg", "nothing to draw"},
        {"all_reduce -e 8 --plot /tmp/x.svg --peer a=/no/such.json", "cannot be read"}};
    for (const auto& [arguments, words] : wrong) {
        const result r = perf(arguments);
        INFO(arguments << "\n" << r.text);
        CHECK(r.status == 2);
        CHECK(r.says(words));
        CHECK(r.text.starts_with("colls_perf: "));
        CHECK(std::ranges::count(r.text, '\n') == 1);
    }
    // Values that ask for nothing are accepted, as scripts pass them.
    check_rows(perf("all_reduce -e 8 --ranks 2 -t 1 -g 1 -G 0 -p 0 -C 0"), 1);
    const result help = perf("--help");
    CHECK(help.status == 0);
    for (const char* text : {"Examples:", "-b,--minbytes", "--schedule", "--fresh", "mpirun -n 8"})
        CHECK(help.says(text));
}

TEST_CASE("colls_perf: --tune writes a file that COLLS_TUNE reads", "[perf]") {
    const std::string file = scratch("a.tune");
    const result tuned = perf("all_reduce,scatter,broadcast -b 64 -e 32K -f 512 -n 20 --ranks 2 --tune " + file);
    INFO(tuned.text);
    REQUIRE(tuned.status == 2);  // scatter has no choice
    CHECK(tuned.says("scatter always goes by direct"));
    CHECK_FALSE(std::filesystem::exists(file));

    const result right = perf("all_reduce,broadcast -b 64 -e 32K -f 512 -n 20 --progress --ranks 2 --tune " + file);
    INFO(right.text);
    REQUIRE(right.status == 0);
    CHECK(right.says("2 of 4: all_reduce float 32768 bytes"));
    CHECK(right.says("# Written: " + file));
    std::ifstream in(file);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    INFO(text);
    for (const char* part : {"\nmachine ", "transport threads, 2 ranks on 1 host; float, sum, ordinary buffers",
             "# colls_perf all_reduce,broadcast -b 64 -e 32K -f 512 -n 20 --progress --ranks 2 --tune "})
        CHECK(text.find(part) != std::string::npos);
    for (const auto& other : std::filesystem::directory_iterator(std::filesystem::path(file).parent_path()))
        CHECK(other.path().string().find(file + ".") == std::string::npos);

    // Each line of the table holds in a run with the file.
    setenv("COLLS_TUNE", file.c_str(), 1);
    const result run = perf("all_reduce,broadcast -b 64 -e 32K -f 512 -n 2 --ranks 2 --show-schedule");
    const result again = perf("all_reduce -e 8 --ranks 2 --tune " + file);
    unsetenv("COLLS_TUNE");
    check_rows(run, 4);
    for (const std::vector<std::string>& row : right.rows()) {
        const bool first = row[0] == "all_reduce";
        CHECK(run.rows()[(first ? 0U : 2U) + (row[1] == "64" ? 0U : 1U)].back() == row[4]);
    }
    CHECK(again.status == 2);
    CHECK(again.says("COLLS_TUNE is " + file));
    std::filesystem::remove(file);
}

TEST_CASE("colls_perf: a line of COLLS_TUNE holds for staged buffers, too", "[perf]") {
    const std::string file = scratch("staged.tune");
    std::ofstream(file) << "schedule all_reduce 2 0 ring\n";
    const result r = execute("COLLS_DEBUG=info COLLS_TUNE=" + file +
                             " '" COLLS_TEST_PERF "' all_reduce -b 1M -e 1M --transport processes --ranks 2 -n 2");
    INFO(r.text);
    CHECK(r.says(": ring, predicted"));
    CHECK(r.says("ordinary buffers staged: ring"));
    std::filesystem::remove(file);
}

TEST_CASE("colls_perf: an error of the library is printed, with exit status 1", "[perf]") {
    const result r = perf("all_reduce -e 8 --ranks 2 -T x");
    INFO(r.text);
    CHECK(r.status == 1);
    CHECK(r.says("COLLS_TIMEOUT is x"));
    for (const char* const transport : {"threads", "processes"}) {
        const result full = execute(std::string("( '" COLLS_TEST_PERF "' all_reduce -e 8 --ranks 2 --transport ") +
                                    transport + " > /dev/full )");
        INFO(full.text);
        CHECK(full.status == 1);
        CHECK(full.says("colls_perf: cannot write to the standard output"));
    }
}
