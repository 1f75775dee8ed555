// Times how long units that use the library take to compile, for every transport, header-only and with the engine
// compiled separately (COLLS_SEPARATE): including it, the first call, and each further schedule, type and operator.
// Times are user seconds of the compiler, medians over several turns; all units are compiled once in each turn.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct settings {
    std::string compiler = "g++", include = COLLS_INCLUDE, mpi = COLLS_MPI_INCLUDE;
    std::vector<std::string> flags{"-O2"};
    int turns = 5;
    bool check = false;
};

struct spent {
    double seconds = 0;
    std::string said;
};

/// Runs a command; its standard output and its processor time. Throws if it fails.
spent run(const std::vector<std::string>& words) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        std::vector<char*> arguments;
        for (const auto& w : words) arguments.push_back(const_cast<char*>(w.c_str()));
        arguments.push_back(nullptr);
        execvp(arguments[0], arguments.data());
        _exit(127);
    }
    close(ends[1]);
    spent s;
    char buffer[4096];
    for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
        s.said.append(buffer, static_cast<std::size_t>(got));
    close(ends[0]);
    int status = 0;
    rusage used{};
    if (wait4(child, &status, 0, &used) < 0 || status != 0)
        throw std::runtime_error(fmt::format("failed: {}", fmt::join(words, " ")));
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    s.seconds = seconds(used.ru_utime);
    return s;
}

/// A source text, and the time and size of its compilation.
struct unit {
    std::string name, text;
    bool separate = false;
    std::vector<double> times{};
    double bytes = 0;

    double seconds() {
        const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
        std::nth_element(times.begin(), middle, times.end());
        return *middle;
    }
};

class bench {
public:
    explicit bench(const settings& how) : how_(how) {
        char name[] = "/tmp/colls_compile_cost_XXXXXX";
        if (!mkdtemp(name)) throw std::runtime_error("no temporary folder");
        folder_ = name;
    }
    ~bench() { fs::remove_all(folder_); }
    bench(const bench&) = delete;
    bench& operator=(const bench&) = delete;

    std::vector<std::string> command(const std::string& source) const {
        std::vector<std::string> words{how_.compiler, "-std=c++20", "-I" + how_.include};
        std::istringstream folders(how_.mpi);
        for (std::string folder; std::getline(folders, folder, ':');) words.push_back("-isystem" + folder);
        words.insert(words.end(), how_.flags.begin(), how_.flags.end());
        words.push_back(source);
        return words;
    }
    std::string write(const unit& u) const {
        const std::string source = (folder_ / (u.name + ".cpp")).string();
        std::ofstream(source) << u.text;
        return source;
    }

    /// Compiles all units in each turn, so that other load on the machine affects all of them alike.
    void measure(std::vector<unit>& units) const {
        const std::string object = (folder_ / "unit.o").string();
        for (int turn = 0; turn < how_.turns; ++turn)
            for (auto& u : units) {
                fmt::print(stderr, "\rturn {}/{}  {:<40}", turn + 1, how_.turns, u.name);
                auto words = command(write(u));
                if (u.separate) words.push_back("-DCOLLS_SEPARATE");
                words.insert(words.end(), {"-c", "-o", object});
                u.times.push_back(run(words).seconds);
                if (turn == 0) u.bytes = size_of(object);
            }
        fmt::print(stderr, "\r{:<60}\r", "");
    }

private:
    /// Bytes of code and data in an object file.
    static double size_of(const std::string& object) {
        std::istringstream table(run({"size", object}).said);
        std::string header;
        std::getline(table, header);
        double text = 0, data = 0, bss = 0;
        table >> text >> data >> bss;
        return text + data + bss;
    }

    settings how_;
    fs::path folder_;
};

/// The unit of comparison: the standard headers that a unit with threads.hpp included in version 0.1.0, when the goals
/// were set. It does not change with what the library includes.
constexpr const char* standard_headers[] = {"atomic", "bit", "concepts", "cstddef", "cstdint", "cstdio", "cstdlib",
    "cstring", "exception", "initializer_list", "memory", "mutex", "new", "sched.h", "stdexcept", "string",
    "string_view", "sys/mman.h", "thread", "time.h", "type_traits", "utility"};

struct transport {
    const char *name, *header, *groups;  ///< groups: how a program makes a communicator, and calls f; null: it has one
    double header_only_goal;
};
constexpr transport transports[] = {
    {"on a communicator&", "collectives.hpp", nullptr, 1.6},
    {"threads", "transports/threads.hpp", "colls::threads::run(4, [](colls::communicator& c) { f(c); });", 4},
    {"processes", "transports/shm.hpp", "colls::processes::run(4, [](colls::communicator& c) { f(c); });", 6},
    {"world()", "world.hpp", "colls::communicator c = colls::world(); f(c);", 6},
    {"mpi", "transports/mpi.hpp", "colls::communicator c = colls::mpi::communicator_of(MPI_COMM_WORLD); f(c);", 6},
};

std::string include_text(const transport& t) {
    return fmt::format("#include <colls/colls.hpp>\n#include <colls/{}>\n#include <span>\n", t.header);
}
std::string program_text(const transport& t) {
    return include_text(t) +
           "void f(colls::communicator& c) { float x[100]{}; colls::all_reduce(c, x, colls::sum); }\n" +
           (t.groups ? fmt::format("int main() {{ {} }}\n", t.groups) : "");
}

struct call {
    std::string schedule = "automatic", type = "float", op = "sum";
};
std::string calls_text(const std::vector<call>& calls) {
    std::string text = include_text(transports[1]);
    for (std::size_t i = 0; i < calls.size(); ++i) {
        const auto& c = calls[i];
        text += fmt::format(
            "void f{}(colls::communicator& c, std::span<{}> x) {{ colls::all_reduce<colls::{}>(c, x, colls::{}); }}\n",
            i, c.type, c.schedule, c.op);
    }
    return text;
}

}  // namespace

int main(int argc, char** argv) {
    settings how;
    CLI::App app{"Times how long units that use the library take to compile."};
    app.add_option("--compiler", how.compiler, "the compiler")->capture_default_str();
    app.add_option("--flags", how.flags, "its flags")->capture_default_str();
    app.add_option("--include", how.include, "folder of the library's headers")->capture_default_str();
    app.add_option("--mpi", how.mpi, "folders of mpi.h, separated by colons; empty: without MPI")
        ->capture_default_str();
    app.add_option("--turns", how.turns, "times that each unit is compiled")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    app.add_flag("--check", how.check, "exit with 1 if a goal is missed");
    CLI11_PARSE(app, argc, argv);

    try {
        const bench b(how);
        const std::vector<std::string> schedules{"ring", "circulant<>", "halving_doubling", "recursive_doubling",
            "tree<2>", "double_tree", "direct", "tree<4>"};
        const std::vector<std::string> types{
            "double", "int", "long", "short", "unsigned", "unsigned char", "colls::half", "colls::bfloat16"};
        const std::vector<std::string> operators{"prod", "min", "max", "avg", "sum", "prod", "min", "max"};
        const std::size_t further = schedules.size();

        // Units of one call; of further calls with a new schedule, type or operator, or all three new; of all
        // combinations.
        std::vector<call> first{{}}, new_schedule = first, new_type = first, new_operator = first, new_all = first,
                                     crossed = first;
        for (std::size_t i = 0; i < further; ++i) {
            new_schedule.push_back({.schedule = schedules[i]});
            new_type.push_back({.type = types[i]});
            new_all.push_back({schedules[i], types[i], operators[i]});
        }
        for (std::size_t i = 0; i < 4; ++i) new_operator.push_back({.op = operators[i]});
        for (std::size_t i = 0; i < 64; ++i) crossed.push_back({schedules[i % 4], types[i / 4 % 4], operators[i / 16]});

        std::string standard;
        for (const char* h : standard_headers) standard += fmt::format("#include <{}>\n", h);
        std::vector<unit> units{{"standard headers", standard + "int nothing;\n"}};
        for (const bool separate : {false, true}) {
            for (const transport& t : transports) {
                if (how.mpi.empty() && std::string_view(t.name) == "mpi") continue;
                units.push_back(
                    {fmt::format("{} included{}", t.name, separate ? ", separate" : ""), include_text(t), separate});
                units.push_back(
                    {fmt::format("{} used{}", t.name, separate ? ", separate" : ""), program_text(t), separate});
            }
            const std::string mark = separate ? ", separate" : "";
            units.push_back({"first" + mark, calls_text(first), separate});
            units.push_back({"schedules" + mark, calls_text(new_schedule), separate});
            units.push_back({"types" + mark, calls_text(new_type), separate});
            units.push_back({"operators" + mark, calls_text(new_operator), separate});
            units.push_back({"triples" + mark, calls_text(new_all), separate});
            units.push_back({"crossed" + mark, calls_text(crossed), separate});
        }
        for (unit& u : units)
            std::replace_if(u.name.begin(), u.name.end(), [](char c) { return c == ' ' || c == ','; }, '_');
        b.measure(units);

        fmt::print("{} {}, user seconds, median of {}\n", how.compiler, fmt::join(how.flags, " "), how.turns);
        const double base = units[0].seconds();
        fmt::print("{} standard headers alone: {:.2f} s\n\n", std::size(standard_headers), base);
        bool missed = false;
        const auto verdict = [&](double value, double goal) {
            if (value > goal) missed = true;
            return fmt::format("at most {}{}", goal, value > goal ? ": missed" : "");
        };
        std::size_t at = 1;
        for (const bool separate : {false, true}) {
            fmt::print("{:<42} {:>8} {:>9} {:>8}\n", separate ? "the engine apart (COLLS_SEPARATE)" : "header-only", "",
                "x headers", "goal");
            for (const transport& t : transports) {
                if (how.mpi.empty() && std::string_view(t.name) == "mpi") continue;
                for (const bool calls : {false, true}) {
                    unit& u = units[at++];
                    const double seconds = u.seconds();
                    fmt::print("  {:<40} {:>6.2f} s {:>9.2f} {:>16} {:>6.0f} KB\n",
                        calls ? fmt::format("... {}: one all_reduce", t.name)
                              : fmt::format("colls.hpp and {} included", t.header),
                        seconds, seconds / base,
                        calls ? verdict(seconds / base, separate ? 1.5 : t.header_only_goal) : "", u.bytes / 1e3);
                }
            }
            unit& one = units[at++];
            const auto row = [&](const char* name, std::size_t calls, bool goal) {
                unit& u = units[at++];
                const double ms = (u.seconds() - one.seconds()) * 1e3 / static_cast<double>(calls);
                const double bytes = (u.bytes - one.bytes) / static_cast<double>(calls);
                fmt::print("  {:<40} {:>6.0f} ms {:>7.0f} B{}\n", name, ms, bytes,
                    goal ? fmt::format("   {} ms, {} B", verdict(ms, 60), verdict(bytes, 6144)) : "");
            };
            row("each further schedule", further, false);
            row("each further type", further, false);
            row("each further operator", 4, false);
            row("each further triple, all three new", further, true);
            row("each of 4 schedules x 4 types x 4 operators", 64, true);
        }
        return how.check && missed ? 1 : 0;
    } catch (const std::exception& failure) {
        fmt::print(stderr, "{}\n", failure.what());
        return 1;
    }
}
