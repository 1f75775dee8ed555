// What the library costs to compile: the first call of a unit, and each further schedule, type and operator. Times are
// those that the compiler spends (user and system), medians of several turns taken in alternation.
#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct settings {
    std::string compiler = "g++", include = COLLS_INCLUDE;
    std::vector<std::string> flags{"-O2"};
    int turns = 7;
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
    for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) s.said.append(buffer, static_cast<std::size_t>(got));
    close(ends[0]);
    int status = 0;
    rusage used{};
    if (wait4(child, &status, 0, &used) < 0 || status != 0)
        throw std::runtime_error(fmt::format("failed: {}", fmt::join(words, " ")));
    const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
    s.seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
    return s;
}

/// A source text and what compiling it took.
struct unit {
    std::string name, text;
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
        words.insert(words.end(), how_.flags.begin(), how_.flags.end());
        words.push_back(source);
        return words;
    }
    std::string write(const unit& u) const {
        const std::string source = (folder_ / (u.name + ".cpp")).string();
        std::ofstream(source) << u.text;
        return source;
    }

    /// The standard headers that a unit comes to include through the library.
    std::set<std::string> standard_headers(const std::string& text) const {
        auto words = command(write({"headers", text}));
        words.push_back("-M");
        std::istringstream dependencies(run(words).said);
        std::set<std::string> files, wanted;
        for (std::string word; dependencies >> word;) files.insert(word);
        for (const auto& file : files) {
            if (file.find("/colls/") == std::string::npos) continue;
            std::ifstream in(file);
            for (std::string line; std::getline(in, line);) {
                const auto begin = line.find('<'), end = line.find('>');
                if (line.rfind("#include <", 0) != 0 || end == std::string::npos) continue;
                const std::string header = line.substr(begin + 1, end - begin - 1);
                // One that stands behind an #if may not have been reached.
                const bool reached = std::any_of(files.begin(), files.end(), [&](const auto& f) { return f.ends_with("/" + header); });
                if (header.rfind("colls/", 0) != 0 && reached) wanted.insert(header);
            }
        }
        return wanted;
    }

    /// By turns, so that what else the machine does falls on all alike.
    void measure(std::vector<unit>& units) const {
        const std::string object = (folder_ / "unit.o").string();
        for (int turn = 0; turn < how_.turns; ++turn)
            for (auto& u : units) {
                fmt::print(stderr, "\rturn {}/{}  {:<40}", turn + 1, how_.turns, u.name);
                auto words = command(write(u));
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

struct call {
    std::string schedule = "automatic", type = "float", op = "sum";
};

std::string unit_text(const std::vector<call>& calls) {
    std::string text = "#include <colls/colls.hpp>\n#include <colls/transports/threads.hpp>\n#include <span>\n"
                       "using comm = colls::threads::communicator;\n";
    for (std::size_t i = 0; i < calls.size(); ++i) {
        const auto& c = calls[i];
        text += fmt::format("void f{}(comm& c, std::span<{}> x) {{ colls::all_reduce<colls::{}>(c, x, colls::{}); }}\n", i, c.type,
                            c.schedule, c.op);
    }
    return text;
}

}  // namespace

int main(int argc, char** argv) {
    settings how;
    CLI::App app{"What the library costs to compile."};
    app.add_option("--compiler", how.compiler, "the compiler")->capture_default_str();
    app.add_option("--flags", how.flags, "its flags")->capture_default_str();
    app.add_option("--include", how.include, "where the library is")->capture_default_str();
    app.add_option("--turns", how.turns, "how often each unit is compiled")->capture_default_str()->check(CLI::PositiveNumber);
    app.add_flag("--check", how.check, "fail where a goal is missed");
    CLI11_PARSE(app, argc, argv);

    try {
        const bench b(how);
        const std::vector<std::string> schedules{"ring", "circulant<>", "halving_doubling", "recursive_doubling", "tree<2>",
            "double_tree", "direct", "tree<4>"};
        const std::vector<std::string> types{"double", "int", "long", "short", "unsigned", "unsigned char", "colls::half",
            "colls::bfloat16"};
        const std::vector<std::string> operators{"prod", "min", "max", "avg", "sum", "prod", "min", "max"};
        const std::size_t further = schedules.size();

        std::string standard;
        const auto headers = b.standard_headers(unit_text({{}}));
        for (const auto& h : headers) standard += "#include <" + h + ">\n";
        // What the units are made of: the first call, and then one new thing each, all three, or the same three crossed.
        std::vector<call> first{{}}, new_schedule = first, new_type = first, new_operator = first, new_all = first, crossed = first;
        for (std::size_t i = 0; i < further; ++i) {
            new_schedule.push_back({.schedule = schedules[i]});
            new_type.push_back({.type = types[i]});
            new_all.push_back({schedules[i], types[i], operators[i]});
        }
        for (std::size_t i = 0; i < 4; ++i) new_operator.push_back({.op = operators[i]});
        for (std::size_t i = 0; i < 64; ++i) crossed.push_back({schedules[i % 4], types[i / 4 % 4], operators[i / 16]});

        std::vector<unit> units{
            {"standard headers", standard + "int nothing;\n"},
            {"include", unit_text({})},
            {"one call", unit_text(first)},
            {"further schedules", unit_text(new_schedule)},
            {"further types", unit_text(new_type)},
            {"further operators", unit_text(new_operator)},
            {"further triples", unit_text(new_all)},
            {"crossed", unit_text(crossed)},
        };
        b.measure(units);

        fmt::print("{} {}, median of {}\n", how.compiler, fmt::join(how.flags, " "), how.turns);
        fmt::print("the {} standard headers that the library includes: {}\n\n", headers.size(), fmt::join(headers, " "));
        const double base = units[0].seconds(), one = units[2].seconds();
        bool missed = false;
        const auto verdict = [&](double value, double goal) {
            if (value > goal) missed = true;
            return fmt::format("goal {}{}", goal, value > goal ? ", missed" : "");
        };
        fmt::print("{:<44} {:>8.0f} ms\n", "the standard headers alone", base * 1e3);
        fmt::print("{:<44} {:>8.0f} ms {:>11.2f} x\n", "colls.hpp and threads.hpp included", units[1].seconds() * 1e3,
                   units[1].seconds() / base);
        fmt::print("{:<44} {:>8.0f} ms {:>11.2f} x   {}\n\n", "... and one all_reduce called", one * 1e3, one / base,
                   verdict(one / base, 1.5));
        fmt::print("{:<44} {:>11} {:>13}\n", "each further", "time", "code");
        const auto row = [&](const char* name, unit& u, std::size_t calls, bool goal) {
            const double ms = (u.seconds() - one) * 1e3 / static_cast<double>(calls);
            const double bytes = (u.bytes - units[2].bytes) / static_cast<double>(calls);
            fmt::print("{:<44} {:>8.1f} ms {:>11.0f} B{}\n", name, ms, bytes,
                       goal ? "   " + verdict(ms, 60) + " ms, " + verdict(bytes, 6144) + " B" : "");
        };
        row("schedule", units[3], further, false);
        row("type", units[4], further, false);
        row("operator", units[5], 4, false);
        row("schedule, type and operator, all new", units[6], further, true);
        row("of 4 schedules x 4 types x 4 operators", units[7], 64, true);
        return how.check && missed ? 1 : 0;
    } catch (const std::exception& failure) {
        fmt::print(stderr, "{}\n", failure.what());
        return 1;
    }
}
