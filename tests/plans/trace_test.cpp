// COLLS_DEBUG=trace: one line for each call of each rank, when the call is over. COLLS_TRACE: the file, where something
// is in its way. (What is in it: tools/recording_test.)
#include "catch.hpp"

#include "support/fault.hpp"

#include <colls/transports/threads.hpp>

#include <colls/detail/support/host.hpp>
#include <colls/files/detail/call_tracer.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

using namespace support;

namespace {

/// The lines that f prints to stderr in a process of its own, where COLLS_DEBUG is `level`.
template <class F>
std::vector<std::string> lines_of(const char* level, F f) {
    const int file = memfd_create("stderr", 0);
    fcntl(file, F_SETFL, O_APPEND);
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        dup2(file, 2);
        setenv("COLLS_DEBUG", level, 1);
        int status = 0;
        try {
            f();
        } catch (const std::exception& failure) {
            std::fprintf(stderr, "failed: %s\n", failure.what());
            status = 1;
        }
        std::fflush(nullptr);
        _exit(status);
    }
    int status = 1;
    waitpid(child, &status, 0);
    std::string text(static_cast<std::size_t>(lseek(file, 0, SEEK_END)), '\0');
    if (pread(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) text = "cannot be read";
    close(file);
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    if (status != 0) lines.push_back("failed");
    return lines;
}
struct traced_call {
    double at = 0, took = 0;
    int rank = 0;
    std::string group, call;
};
/// The calls in those of the lines that are traces.
std::vector<traced_call> traces_in(const std::vector<std::string>& lines) {
    static const std::regex form(R"(colls: (\d+\.\d{6}) s: rank (\d+) of group ([^ ]+): (.*[:,r]) (\d+\.\d) us)");
    std::vector<traced_call> found;
    for (const std::string& line : lines)
        if (std::smatch part; std::regex_match(line, part, form))
            found.push_back({std::stod(part[1]), std::stod(part[5]), std::stoi(part[2]), part[3], part[4]});
    return found;
}
long count_of(const std::vector<traced_call>& calls, int rank, const std::string& group, const std::string& call) {
    return std::count_if(calls.begin(), calls.end(),
        [&](const traced_call& c) { return c.rank == rank && c.group == group && c.call == call; });
}
std::string all_of(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
}
void nap(double seconds) {
    const timespec t{0, static_cast<long>(seconds * 1e9)};
    nanosleep(&t, nullptr);
}

void every_kind(colls::communicator& comm) {
    const int rank = comm.rank();
    std::vector<double> data(1000, 1);
    std::vector<int> block(rank == 0 ? 4 : 3), whole(rank == 0 ? 10 : 0), four(4);
    nap(0.02);
    colls::all_reduce<colls::ring>(comm, data, colls::sum);
    colls::barrier<colls::direct>(comm);
    colls::gather<colls::direct>(comm, block, whole, 0);
    auto started = colls::start::broadcast<colls::tree<4>>(comm, four, 0);
    nap(0.02);
    started.wait();
    auto plan = colls::prepare::all_reduce<colls::circulant<>>(comm, data, colls::sum);
    plan.run();
    if (rank == 0) colls::send(comm, data, 1);
    if (rank == 1) colls::recv(comm, data, 0);
    colls::communicator same = comm.split(0, 0), half = comm.split(rank % 2, 0),
                        none = comm.split(rank == 0 ? 0 : -1, 0);
    colls::barrier<colls::direct>(same);
    colls::barrier<colls::direct>(half);
    colls::communicator deep = half.split(5, 0);
    colls::barrier<colls::direct>(deep);
}

void check_every_kind(const std::vector<std::string>& lines) {
    INFO(all_of(lines));
    const auto calls = traces_in(lines);
    for (int rank = 0; rank < 3; ++rank) {
        INFO("rank " << rank);
        CHECK(count_of(calls, rank, "0", "all_reduce of 1000 elements (8000 bytes) by ring:") == 1);
        CHECK(count_of(calls, rank, "0", "barrier of 0 elements (0 bytes) by direct:") == 1);
        CHECK(count_of(calls, rank, "0",
                  rank == 0 ? "gather of 10 elements (40 bytes) by direct:"
                            : "gather of 3 elements (12 bytes) by direct:") == 1);
        CHECK(count_of(calls, rank, "0", "all_reduce of 1000 elements (8000 bytes) by circulant:") == 1);
        CHECK(count_of(calls, rank, "0.1", "barrier of 0 elements (0 bytes) by direct:") == 1);
        const std::string half = "0.2:" + std::to_string(rank % 2);
        CHECK(count_of(calls, rank / 2, half, "barrier of 0 elements (0 bytes) by direct:") == 1);
        CHECK(count_of(calls, rank / 2, half + ".1", "barrier of 0 elements (0 bytes) by direct:") == 1);
    }
    CHECK(count_of(calls, 0, "0", "send of 1000 elements (8000 bytes) to rank 1:") == 1);
    CHECK(count_of(calls, 1, "0", "recv of 1000 elements (8000 bytes) from rank 0:") == 1);
    // There are no other lines but those that `automatic` prints when it chooses.
    CHECK(calls.size() + static_cast<std::size_t>(std::count_if(lines.begin(), lines.end(),
                             [](const std::string& line) { return line.find(", predicted ") != line.npos; })) ==
          lines.size());
    CHECK(calls.size() == 3 * 8 + 2);
    for (const traced_call& c : calls) {
        CHECK(c.at >= 0.019);  // since the first group was made, also in groups that were split off
        CHECK(c.at < 100);
        CHECK(c.took < 100e6);
        if (c.call.starts_with("broadcast")) {
            CHECK(c.call == "broadcast of 4 elements (16 bytes) by tree<4>: started,");
            CHECK(c.took >= 19e3);
        }
    }
}

}  // namespace

TEST_CASE("trace: prints one line for each call of each rank, on threads", "[trace]") {
    check_every_kind(lines_of("trace", [] { colls::threads::run(3, [](auto& comm) { every_kind(comm); }); }));
}

TEST_CASE("trace: prints one line for each call of each rank, in processes", "[trace]") {
    for (const std::string& transport : process_transports()) {
        const with_environment way("COLLS_TRANSPORT", transport.c_str());
        INFO(transport);
        check_every_kind(lines_of("trace", [] { colls::processes::run(3, [](auto& comm) { every_kind(comm); }); }));
    }
}

TEST_CASE("trace: names the eager path, and numbers the groups of a process", "[trace]") {
    const auto lines = lines_of("trace", [] {
        for (int turn = 0; turn < 2; ++turn)
            colls::threads::run(2, [](auto& comm) {
                long one = 1;
                colls::all_reduce(comm, std::span(&one, 1), colls::sum);
            });
    });
    INFO(all_of(lines));
    const auto calls = traces_in(lines);
    for (const int rank : {0, 1})
        for (const char* group : {"0", "1"})
            CHECK(count_of(calls, rank, group, "all_reduce of 1 elements (8 bytes) by eager:") == 1);
    CHECK(calls.size() == 4);
}

TEST_CASE("trace: prints calls that fail, and calls of a shrunk group", "[trace]") {
    const auto lines = lines_of("trace", [] {
        colls::processes::run(3, [](auto& comm) {
            std::vector<int> data(1000);
            colls::barrier<colls::direct>(comm);
            if (comm.rank() == 2) return;
            auto started = colls::start::all_reduce<colls::ring>(comm, data, colls::sum);
            int failed = 0;
            try {
                colls::all_reduce<colls::direct>(comm, data, colls::sum);
            } catch (const colls::error&) {
                ++failed;
            }
            try {
                started.wait();
            } catch (const colls::error&) {
                ++failed;
            }
            if (failed != 2) throw std::runtime_error("no errors");
            comm = comm.shrink();
            colls::barrier<colls::direct>(comm);
        });
    });
    INFO(all_of(lines));
    const auto calls = traces_in(lines);
    for (const int rank : {0, 1}) {
        CHECK(count_of(calls, rank, "0", "all_reduce of 1000 elements (4000 bytes) by direct: failed after") == 1);
        CHECK(
            count_of(calls, rank, "0", "all_reduce of 1000 elements (4000 bytes) by ring: started, failed after") == 1);
        CHECK(count_of(calls, rank, "0.shrunk", "barrier of 0 elements (0 bytes) by direct:") == 1);
    }
}

TEST_CASE("trace: prints nothing where COLLS_DEBUG is warn", "[trace]") {
    CHECK(lines_of("warn", [] { colls::threads::run(3, [](auto& comm) { every_kind(comm); }); }).empty());
}

namespace {

namespace fs = std::filesystem;

std::string contents_of(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}
/// The file that COLLS_TRACE=folder/t.json makes in a process that calls `prepare` with its path first, and then makes
/// `groups` groups of two ranks; the path is the same without a process's number. What it prints is in `said`.
fs::path traced(const fs::path& folder, int groups, std::vector<std::string>& said, void (*prepare)(const fs::path&)) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    said = lines_of("warn", [&] {
        const std::string host = colls::detail::host_name().text;
        prepare(folder / ("t." + host + "." + std::to_string(getpid()) + ".json"));
        const with_environment to("COLLS_TRACE", (folder / "t.json").c_str());
        for (int i = 0; i < groups; ++i)
            colls::threads::run(2, [](auto& comm) { colls::barrier<colls::direct>(comm); });
    });
    for (const auto& file : fs::directory_iterator(folder))
        if (file.path().filename().string().starts_with("t.")) return file.path();
    return {};
}
struct test_folder {
    const fs::path path = fs::temp_directory_path() / ("colls_trace_test." + std::to_string(getpid()));
    ~test_folder() { fs::remove_all(path); }
};

}  // namespace

TEST_CASE("trace: a link in the file's place is not followed, and the file is its owner's alone", "[trace]") {
    const test_folder folder;
    std::vector<std::string> said;
    const mode_t mask = umask(0);
    const fs::path file = traced(folder.path, 1, said, [](const fs::path& at) {
        std::ofstream(at.parent_path() / "victim") << "precious";
        fs::create_symlink("victim", at);
    });
    umask(mask);
    INFO(all_of(said));
    CHECK(said.empty());
    CHECK(contents_of(folder.path / "victim") == "precious");
    struct stat s{};
    REQUIRE(lstat(file.c_str(), &s) == 0);
    CHECK(S_ISREG(s.st_mode));
    CHECK((s.st_mode & 0777) == 0600);
    CHECK(contents_of(file).ends_with("}\n]\n"));
}

TEST_CASE("trace: where the file cannot grow, it has whole events or is not there", "[trace]") {
    const test_folder folder;
    std::vector<std::string> said;
    static const auto limited = [](rlim_t bytes) {
        signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{bytes, bytes};
        setrlimit(RLIMIT_FSIZE, &limit);
    };
    const fs::path whole = traced(folder.path, 100, said, [](const fs::path&) {});
    CHECK(said.empty());
    CHECK(fs::file_size(whole) > 20'000);
    const fs::path some = traced(folder.path, 100, said, [](const fs::path&) { limited(20'000); });
    INFO(all_of(said));
    REQUIRE(said.size() == 1);
    CHECK(said[0].find("the file has what came before") != std::string::npos);
    const std::string text = contents_of(some);
    CHECK(text.size() > 10'000);
    CHECK(text.starts_with("[\n{"));
    CHECK(text.ends_with("}}\n]\n"));
    std::istringstream lines(text.substr(2, text.size() - 5));
    for (std::string line; std::getline(lines, line);) {
        INFO(line);
        CHECK((line.starts_with("{\"name\":") && (line.ends_with("}},") || lines.peek() == EOF)));
    }
    CHECK(traced(folder.path, 100, said, [](const fs::path&) { limited(350); }).empty());  // room for what it says
    INFO(all_of(said));
    REQUIRE(said.size() == 1);
    CHECK(said[0].find("the file is removed") != std::string::npos);
}

TEST_CASE("trace: the file's name has host and process before its extension, if it has one", "[trace]") {
    const test_folder folder;
    const std::string inserted = "." + std::string(colls::detail::host_name().text) + "." + std::to_string(getpid());
    fs::create_directories(folder.path / "b.d");
    const fs::path before = fs::current_path();
    fs::current_path(folder.path);
    for (const auto& [asked, stem, extension] :
        {std::array{"a", "a", ""}, {"a.x.json", "a.x", ".json"}, {"b.d/c", "b.d/c", ""}, {"b.d/c.y", "b.d/c", ".y"}})
        for (const bool absolute : {false, true}) {
            const std::string path = absolute ? (folder.path / asked).string() : asked;
            const fs::path at = stem + inserted + extension;
            INFO(path);
            fs::remove(at);
            colls::detail::trace_file file;
            file.add(path.c_str(), "");
            CHECK(contents_of(at) == "");
            file.add(path.c_str(), "{1},\n");
            CHECK(contents_of(at) == "[\n{1}\n]\n");
            file.add(path.c_str(), "");
            file.add(path.c_str(), "{2},\n{3},\n");
            CHECK(contents_of(at) == "[\n{1},\n{2},\n{3}\n]\n");
        }
    fs::current_path(before);
    CHECK(colls::detail::quotable("a\"b\\c\x1f ~") == "a?b?c? ~");
}
