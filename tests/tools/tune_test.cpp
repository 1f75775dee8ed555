// colls_perf --tune: when a schedule counts as faster, the lines that follow, and the file as the library reads it.
#include "catch.hpp"

#include "support/says.hpp"

#include <perf/run.hpp>
#include <perf/tune.hpp>

#include <colls/detail/group/rank_context.hpp>
#include <colls/explain.hpp>
#include <colls/transports/threads.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using namespace perf;

namespace {

std::string scratch(const std::string& name) {
    return (std::filesystem::temp_directory_path() / ("tune_test_" + std::to_string(getpid()) + "_" + name)).string();
}

const std::vector<tuned_cell> cells{{job::broadcast, 1024, "eager", 1e-6, {}},
    {job::all_reduce, 1024, "eager", 3e-6, {{"ring", 1e-6}}}, {job::all_reduce, 4096, "direct", 3e-6, {{"ring", 2e-6}}},
    {job::all_reduce, 16384, "direct", 3e-6, {{"tree", 2e-6}, {"ring", 2.01e-6}}},
    {job::all_reduce, 65536, "direct", 3e-6, {}},
    {job::all_reduce, 262144, "direct", 3e-5, {{"tree", 2e-5}, {"ring", 2.5e-5}}},
    {job::all_gather, 3000, "direct", 3e-5, {{"circulant", 2e-5}}}};

// The library reads the variable once in a process.
const std::string file = [] {
    const std::string path = scratch("file");
    replace_file(path, tuning_text({.measured = "test", .command = std::string(500, 'x'), .ranks = 3, .figures = {}},
                           lines_of(cells)));
    setenv("COLLS_TUNE", path.c_str(), 1);
    return path;
}();

}  // namespace

TEST_CASE("tune: a schedule is faster where it is 5 % faster in three rounds of four", "[perf]") {
    const std::vector<double> usual(8, 1.0);
    CHECK(clearly_faster({.9, .9, .9, .9, .9, .9, 2, 2}, usual));
    CHECK_FALSE(clearly_faster({.1, .1, .1, .1, .1, 2, 2, 2}, usual));
    CHECK_FALSE(clearly_faster(std::vector<double>(8, 0.96), usual));
    CHECK_FALSE(clearly_faster({.9, .9, .9, .9, .9, .9, .9, .9}, {.9, .9, .9, .9, .9, .9, .9, .9}));
    CHECK_FALSE(clearly_faster({}, {}));
}

TEST_CASE("tune: lines begin between the sizes, and end behind the last one", "[perf]") {
    const std::vector<tuned_line> lines = lines_of(cells);
    const auto is = [&](std::size_t i, job what, std::size_t from, const char* name) {
        return i < lines.size() && lines[i].what == what && lines[i].from == from && lines[i].name == name;
    };
    REQUIRE(lines.size() == 6);
    CHECK(is(0, job::all_reduce, 1024, "ring"));         // stays at 16384, where tree is less than 3 % faster
    CHECK(is(1, job::all_reduce, 32769, "automatic"));   // sqrt(16385 * 65536)
    CHECK(is(2, job::all_reduce, 131073, "tree"));       // sqrt(65537 * 262144)
    CHECK(is(3, job::all_reduce, 262145, "automatic"));  // larger sizes were not measured
    CHECK(is(4, job::all_gather, 2816, "circulant"));    // the least size of the class of 3000
    CHECK(is(5, job::all_gather, 3001, "automatic"));
    CHECK(lines_of({}).empty());
    CHECK(lines_of({{job::barrier, 0, "eager", 1e-6, {{"direct", 5e-7}}}}).size() == 1);
}

TEST_CASE("tune: the library follows the file, and explain says so", "[perf]") {
    std::vector<std::string> names;
    std::string text, beyond;
    colls::threads::run(3, [&](colls::communicator& comm) {
        if (comm.rank() != 0) return;
        for (const std::size_t bytes : {1024U, 4096U, 16384U, 262144U})
            names.push_back(colls::chosen(comm, colls::collective::all_reduce, bytes));
        names.push_back(colls::chosen(comm, colls::collective::all_gather, 3000));
        text = colls::explain(comm, colls::collective::all_reduce, 4096);
        beyond = colls::explain(comm, colls::collective::all_reduce, 1 << 20);
    });
    CHECK(names == std::vector<std::string>{"ring", "ring", "ring", "tree", "circulant"});
    CHECK(support::says(text, "by COLLS_TUNE: " + file));
    CHECK_FALSE(support::says(beyond, "by COLLS_TUNE"));
    std::filesystem::remove(file);
}

TEST_CASE("tune: finds the schedule that is faster than the choice, and gives the choice back", "[perf]") {
    // Calls that sleep, but by one schedule. They are not the library's, whose times no test can foresee.
    static std::string quick;
    static const element_type& right = *type_named("float");
    static const element_type slow{"float", right.size,
        [](colls::communicator& comm, const call&) {
            const char* const forced = comm.context().env.schedule;
            if (!forced || forced != quick) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        },
        right.start, right.contribute, right.fold};
    options o;
    o.iterations = 1;
    o.warmup = 0;
    struct asked {
        const char *quick, *before;
        std::size_t bytes;
    };
    // `eager` is no candidate with a schedule, and is tried all the same. By the file, since the library's own choice
    // changes when the system moves the ranks to other cores.
    for (const auto& [name, usual, bytes] : {asked{"ring", "tree", 262144}, asked{"eager", "ring", 1024}}) {
        INFO(name);
        quick = name;
        std::mutex mutex;
        std::vector<tuned_cell> found(3);
        bool kept = true;
        colls::threads::run(3, [&, usual = usual, bytes = bytes](colls::communicator& comm) {
            const shape s = shape_of(job::all_reduce, bytes, 4, 3);
            std::vector<buffer_pair> pairs;
            pairs.push_back({guarded(comm, s.bytes(), 0, false), guarded(comm, s.bytes(), 0, false)});
            const std::string before = colls::chosen(comm, colls::collective::all_reduce, bytes);
            const tuned_cell cell = tune(comm, {job::all_reduce, &slow, reduction::sum, 0, false, -1, 0}, s, pairs, o);
            const std::lock_guard lock(mutex);
            found[static_cast<std::size_t>(comm.rank())] = cell;
            kept = kept && before == usual && colls::chosen(comm, colls::collective::all_reduce, bytes) == before;
        });
        CHECK(kept);
        REQUIRE_FALSE(found[0].faster.empty());  // others may be there by chance, on a busy machine
        CHECK(found[0].faster[0].name == name);
        for (const tuned_cell& cell : found) {
            CHECK(cell.faster.size() == found[0].faster.size());
            CHECK(cell.bytes == bytes);
        }
        CHECK(found[0].usual_seconds >= 3e-3);
        CHECK(found[0].faster[0].seconds < found[0].usual_seconds);
        CHECK(support::says(tuning_table({found[0]}, lines_of({found[0]})), ' ' + quick + ' '));
    }
    CHECK(support::says(tuning_table({cells[0]}, {}), "is best at all 1 sizes"));
}

TEST_CASE("tune: a remark is cut into lines that the library reads, and loses nothing", "[perf]") {
    for (const std::size_t length : {0U, 1U, 199U, 200U, 201U, 400U, 401U}) {
        std::string command;
        for (std::size_t i = 0; i < length; ++i) command += static_cast<char>('a' + i % 26);
        std::istringstream text(tuning_text({.measured = "test", .command = command, .ranks = 3, .figures = {}}, {}));
        std::string read, line;
        for (int i = 0; i < 2; ++i) std::getline(text, line);
        CHECK(line == "# test");
        while (std::getline(text, line) && !line.starts_with("# no line with the machine's figures")) {
            CHECK((line.size() > 2 && line.size() <= 254 && line.starts_with("# ")));
            read += line.substr(2);
        }
        CHECK(read == command);
    }
}

TEST_CASE("tune: a file is replaced as a whole, or refused", "[perf]") {
    const std::string path = scratch("whole");
    replace_file(path, "before");
    check_writable(path);
    std::ifstream in(path);
    std::string text;
    CHECK((in >> text && text == "before"));
    replace_file(path, "after");
    std::ifstream again(path);
    CHECK((again >> text && text == "after"));
    CHECK_THROWS(check_writable("/no/such/folder/file"));
    CHECK_THROWS(check_writable("/tmp"));
    CHECK_THROWS(replace_file("/no/such/folder/file", "text"));
    std::filesystem::remove(path);
}
