// `colls run`: ranks of this host, and of others, for which a script stands that runs here what it is to run there.
#include "catch.hpp"

#include "tool_folder.hpp"

#include <colls/colls.hpp>
#include <colls/world.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <set>
#include <thread>

using namespace support;

namespace {

std::string own_program() { return "'" + std::filesystem::read_symlink("/proc/self/exe").string() + "' '[.rank]'"; }

/// The present folder, as long as this exists.
struct present_folder {
    std::filesystem::path before = std::filesystem::current_path();
    explicit present_folder(const std::string& now) { std::filesystem::current_path(now); }
    present_folder(const present_folder&) = delete;
    present_folder& operator=(const present_folder&) = delete;
    ~present_folder() { std::filesystem::current_path(before); }
};
/// Lines as they stand, in any order.
std::multiset<std::string> lines_of(const std::string& text) {
    std::multiset<std::string> all;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) all.insert(line);
    return all;
}
std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t n = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
    return n;
}
/// The script; it keeps what it was told in the file `told`.
void write_shell(const tool_folder& folder) {
    folder.write("far shell",
        "#!/bin/sh\nhost=$2\nshift 2\necho \"$host: $*\" >> \"$(dirname \"$0\")/told\"\nexec sh -c \"$*\"\n");
    chmod(folder.file("far shell").c_str(), 0755);
    folder.write("shell", "#!/bin/sh\nexec \"$(dirname \"$0\")/far shell\" \"$@\"\n");
    chmod(folder.file("shell").c_str(), 0755);
}

}  // namespace

TEST_CASE("a rank of the tests below", "[.rank]") {
    colls::communicator comm = colls::world();
    std::vector<int> x{comm.rank() + 1};
    colls::all_reduce(comm, x, colls::sum);
    std::printf("rank %d of %d: %d\n", comm.rank(), comm.size(), x[0]);
}

TEST_CASE("run: the ranks of this host are one group, and each line begins with its rank", "[run]") {
    tool_folder folder;
    const program_result r = folder.run("run -n 3 " + own_program());
    INFO(r.text);
    CHECK(r.status == 0);
    for (const char* line : {"[0] rank 0 of 3: 6\n", "[1] rank 1 of 3: 6\n", "[2] rank 2 of 3: 6\n"})
        CHECK(r.says(line));
    const program_result plain = folder.run("run --no-label -n 2 " + own_program());
    CHECK(plain.says("\nrank 1 of 2: 3\n"));
    CHECK(plain.status == 0);
}

TEST_CASE("run: words reach the program as they are, and so do its input and its lines", "[run]") {
    tool_folder folder;
    write_shell(folder);
    const std::string words = R"('a b' "it's" '$HOME' '-n' '"' '*')";
    const program_result here = folder.run("run -n 2 printf '%s.' " + words), there = [&] {
        const present_folder now(folder.file(""));
        return folder.run("run --shell './shell x' --hosts localhost printf '%s.' " + words);
    }();
    CHECK(lines_of(here.text) ==
          std::multiset<std::string>{"[0] a b.it's.$HOME.-n.\".*.", "[1] a b.it's.$HOME.-n.\".*."});
    CHECK(there.text == "[0] a b.it's.$HOME.-n.\".*.\n");
    folder.write("in", "one\ntwo");
    const program_result input = folder.run("run -n 2 cat < '" + folder.file("in") + "'");
    CHECK(input.text == "[0] one\n[0] two\n");
    const program_result errors =
        execute("( '" COLLS_TEST_TOOL "' run -n 1 sh -c 'echo out; echo err >&2' 2> '" + folder.file("err") + "' )");
    CHECK(errors.text == "[0] out\n");
    CHECK(folder.read("err") == "[0] err\n");
    const program_result variables = folder.run(
        "run -n 2 sh -c 'echo $COLLS_RANK/$COLLS_SIZE/$COLLS_LOCAL_RANK/$COLLS_MASTER_ADDR/${#COLLS_TOKEN}'");
    CHECK(lines_of(variables.text) == std::multiset<std::string>{"[0] 0/2/0/127.0.0.1/32", "[1] 1/2/1/127.0.0.1/32"});
    const program_result much = folder.run("run -n 2 sh -c 'seq 20000; exit 0'");
    CHECK(count_of(much.text, "\n") == 40'000);
    CHECK(count_of(much.text, "] 20000\n") == 2);
}

TEST_CASE("run: the first rank that fails ends the others, and its status is the command's", "[run]") {
    tool_folder folder;
    const auto begun = std::chrono::steady_clock::now();
    const program_result status = folder.run("run -n 3 sh -c 'test $COLLS_RANK != 1 && exec sleep 1000; exit 7'");
    CHECK(status.status == 7);
    CHECK(status.text == "colls run: rank 1 has ended with status 7: all others end\n");
    const program_result killed = folder.run("run -n 2 sh -c 'test $COLLS_RANK = 0 && kill -9 $$; exec sleep 1000'");
    CHECK(killed.status == 137);
    CHECK(killed.says("colls run: rank 0 was ended by signal 9: all others end\n"));
    // One that takes no notice of SIGTERM.
    const program_result stubborn =
        folder.run("run -n 2 sh -c 'test $COLLS_RANK = 0 && exit 1; trap \"\" TERM; while :; do sleep 1; done'");
    CHECK(stubborn.status == 1);
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(600));
    const program_result elastic =
        folder.run("run --elastic -n 3 sh -c 'test $COLLS_RANK = 1 && exit 7; sleep 1; echo well'");
    CHECK(elastic.status == 0);
    CHECK(count_of(elastic.text, "well") == 2);
    CHECK(elastic.says("colls run: rank 1 has ended with status 7\n"));
    CHECK(folder.run("run --elastic -n 2 sh -c 'exit 4'").status == 4);
}

TEST_CASE("run: ranks on hosts are started by a shell, which never sees the token", "[run]") {
    tool_folder folder;
    write_shell(folder);
    const present_folder now(folder.file(""));
    const std::string shell = "run --shell './shell x' ";
    const program_result r = folder.run(shell + "--hosts 127.0.0.1,localhost:2 " + own_program());
    INFO(r.text);
    CHECK(r.status == 0);
    for (const char* line : {"[0] rank 0 of 3: 6\n", "[1] rank 1 of 3: 6\n", "[2] rank 2 of 3: 6\n"})
        CHECK(r.says(line));
    const std::string told = folder.read("told");
    CHECK(count_of(told, "127.0.0.1: sh -c") == 1);
    CHECK(count_of(told, "localhost: sh -c") == 2);
    const program_result token = folder.run(shell + "--hosts localhost sh -c 'echo $COLLS_TOKEN; pwd; cat'");
    REQUIRE(token.text.size() > 37);
    CHECK(folder.read("told").find(token.text.substr(4, 32)) == std::string::npos);
    CHECK(token.says("[0] " + std::filesystem::current_path().string() + "\n"));
    CHECK(execute(
        "COLLS_SCHEDULE=\"it's\" '" COLLS_TEST_TOOL "' " + shell + "--hosts localhost sh -c 'echo $COLLS_SCHEDULE'")
            .says("[0] it's\n"));
    CHECK(folder.run(shell + "--hosts localhost,127.0.0.1 sh -c 'test $COLLS_RANK = 0 && exit 9; exec sleep 1000'")
              .status == 9);
    // How many go where.
    const auto places = [&](const std::string& options) {
        return lines_of(
            folder.run(shell + options + " sh -c 'echo $COLLS_LOCAL_RANK $COLLS_SIZE $COLLS_MASTER_ADDR'").text);
    };
    CHECK(places("-n 5 --hosts a,b") ==
          std::multiset<std::string>{"[0] 0 5 a", "[1] 1 5 a", "[2] 2 5 a", "[3] 0 5 a", "[4] 1 5 a"});
    CHECK(places("-n 3 --hosts a:2,b") == std::multiset<std::string>{"[0] 0 3 a", "[1] 1 3 a", "[2] 0 3 a"});
    CHECK(places("-n 1 --hosts a:2,b") == std::multiset<std::string>{"[0] 0 1 a"});
    CHECK(places("--hosts [::1]:2") == std::multiset<std::string>{"[0] 0 2 ::1", "[1] 1 2 ::1"});
    CHECK(places("--hosts ::1") == std::multiset<std::string>{"[0] 0 1 ::1"});
}

TEST_CASE("run: where the command ends, its ranks do, here and on hosts", "[run]") {
    tool_folder folder;
    write_shell(folder);
    const present_folder now(folder.file(""));
    for (const std::string& where : {std::string("-n 2"), std::string("--shell './shell x' --hosts localhost:2")})
        for (const std::string& by : {std::string("TERM"), std::string("KILL"), std::string("INT")}) {
            INFO(where << " " << by);
            std::filesystem::remove(folder.file("ranks"));
            folder.write("program", "echo $$ >> '" + folder.file("ranks") + "'; exec sleep 1000\n");
            const program_result r =
                execute("'" COLLS_TEST_TOOL "' run " + where +
                        " sh program & tool=$!; "
                        "until test \"$(cat ranks 2> /dev/null | wc -l)\" = 2; do sleep 0.05; done; kill -" +
                        by + " $tool; wait $tool; echo status $?");
            CHECK(r.says(by == "TERM" ? "status 143" : by == "KILL" ? "status 137" : "status "));
            std::istringstream ranks(folder.read("ranks"));
            for (pid_t p; ranks >> p;) {
                bool gone = false;
                for (int i = 0; i < 6000 && !gone; ++i) {
                    gone = kill(p, 0) != 0;
                    std::this_thread::sleep_for(std::chrono::milliseconds(10));
                }
                CHECK(gone);
            }
        }
}

TEST_CASE("run: what cannot be run is said before anything is", "[run]") {
    tool_folder folder;
    const auto refused = [&](const std::string& options, const std::string& words) {
        const program_result r = folder.run("run " + options);
        INFO(options << ": " << r.text);
        CHECK(r.status == 2);
        CHECK(r.says(words));
    };
    refused("-n 2", "say which program");
    refused("true", "say how many ranks");
    refused("-n 0 true", "say how many ranks");
    refused("-n -3 true", "say how many ranks");
    refused("-n 2 --nonsense true", "--nonsense");
    refused("-n 2 /nowhere/program", "cannot start /nowhere/program: No such file or directory");
    refused("--hosts a:0 true", "'a:0' is not HOST or HOST:RANKS");
    refused("--hosts a:x true", "'a:x' is not HOST or HOST:RANKS");
    refused("--hosts a,,b true", "'' is not HOST or HOST:RANKS");
    refused("--hosts -oProxyCommand=x true", "is not HOST or HOST:RANKS");
    refused("-n 4 --hosts a:1,b:2 true", "--hosts has room for 3 ranks, fewer than -n 4");
    refused("--shell /nowhere/ssh --hosts a true", "cannot start /nowhere/ssh");
}

TEST_CASE("run: a parent that ignores the ends of its children makes no rank look alive", "[run]") {
    const program_result r =
        execute("timeout -s KILL 100 env --ignore-signal=CHLD '" COLLS_TEST_TOOL "' run -n 2 sh -c 'exit $COLLS_RANK'");
    INFO(r.text);
    CHECK(r.status == 1);
    CHECK(r.says("colls run: rank 1 has ended with status 1"));
}

TEST_CASE("run: an output that is not ready for more loses nothing", "[run]") {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    REQUIRE(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl(COLLS_TEST_TOOL, "colls", "run", "-n", "1", "seq", "50000", static_cast<char*>(nullptr));
        _exit(127);
    }
    close(ends[1]);
    std::string text;
    std::array<char, 512> part{};
    for (ssize_t n; (n = read(ends[0], part.data(), part.size())) > 0;) {
        text.append(part.data(), static_cast<std::size_t>(n));
        if (text.size() < 20'000) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    close(ends[0]);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(count_of(text, "\n") == 50'000);
    CHECK(text.ends_with("[0] 50000\n"));
}

TEST_CASE("run: an output that cannot be written is said, and ends no rank", "[run]") {
    tool_folder folder;
    for (const std::string options : {"", "--elastic "}) {
        const program_result r =
            execute("( '" COLLS_TEST_TOOL "' run " + options + "-n 2 sh -c 'echo x; echo x; echo done >> \"$0\"' '" +
                    folder.file("done") + "' > /dev/full )");
        INFO(r.text);
        CHECK(r.status == 1);
        CHECK(r.text == "colls run: what ranks write to stdout is lost: No space left on device\n");
    }
    CHECK(folder.read("done") == "done\ndone\ndone\ndone\n");
    // Where nothing reads any more, there is nothing to say.
    CHECK(execute("( '" COLLS_TEST_TOOL "' run -n 1 seq 100000 | head -n 1 )").text == "[0] 1\n");
}
