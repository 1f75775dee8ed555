// What the programs of examples/patterns and examples/exercises share: their options, how their ranks are started,
// and the checks by which each of them ends.
//
//     int main(int argc, char** argv) {
//         example::program program("Computes ... and compares it with ...");
//         int heads = 4;
//         program.cli.add_option("--heads", heads, "attention heads");
//         return program.run(argc, argv, [&](colls::communicator& comm, example::output& out) {
//             ...
//             out.print("{} heads\n", heads);                        // by rank 0
//             out.check("the same as one rank", difference < 1e-5);  // on every rank; exit status 1 if one says no
//         });
//     }
#pragma once

#include "plot.hpp"
#include "table.hpp"

#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>
#include <colls/world.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace example {

/// What a rank says: text by rank 0 alone, and checks by all ranks together.
class output {
public:
    output(colls::communicator& comm, bool quick, std::string plot_file)
        : comm_(comm), quick_(quick), plot_file_(std::move(plot_file)) {}

    /// Whether --quick was given: small sizes, as the tests take them.
    bool quick() const { return quick_; }

    /// Prints on rank 0.
    template <class... Values>
    void print(fmt::format_string<Values...> format, Values&&... values) {
        if (comm_.rank() != 0) return;
        fmt::print(format, std::forward<Values>(values)...);
        std::fflush(stdout);
    }
    void print(const table& t) { print("\n{}\n", t.text()); }

    /// Writes the chart, a plot or another one with write(file), to the file that --plot names, on rank 0; without
    /// --plot nothing.
    template <class Chart>
    void draw(const Chart& chart) {
        if (comm_.rank() != 0 || plot_file_.empty()) return;
        chart.write(plot_file_);
        print("wrote {}\n", plot_file_);
    }

    /// Prints "what: yes" or "what: NO". Collective: the answer is yes where `ok` is true on every rank. Returns it.
    bool check(std::string_view what, bool ok) {
        int all = ok ? 1 : 0;
        colls::all_reduce(comm_, std::span(&all, 1), colls::min);
        print("{}: {}\n", what, all == 1 ? "yes" : "NO");
        if (all != 1 && failed_.empty()) failed_ = what;
        return all == 1;
    }

    /// The first check that failed, or empty.
    const std::string& failed() const { return failed_; }

private:
    colls::communicator& comm_;
    bool quick_;
    std::string plot_file_;
    std::string failed_;
};

class program {
public:
    /// `purpose`: what --help says first.
    explicit program(const std::string& purpose) : cli(purpose) {
        cli.option_defaults()->always_capture_default();
        cli.add_option("-r,--ranks", ranks_, "ranks, where no launcher says how many")->check(CLI::Range(1, 1024));
        cli.add_option("-t,--transport", transport_,
               "what ranks are: threads; processes (shared memory); tcp (processes); world (what mpirun, srun or "
               "torchrun started); auto: world under a launcher, else threads")
            ->check(CLI::IsMember({"auto", "threads", "processes", "tcp", "world"}));
        cli.add_flag("--quick", quick_, "small sizes: a few seconds");
        cli.add_option("--plot", plot_, "the SVG file to write the chart to");
    }

    CLI::App cli;

    void default_ranks(int n) { ranks_ = n; }

    /// Parses the options and calls f(communicator&, output&) on every rank. Returns main's value: 0; 1 where a check
    /// failed; 2 where there was an error, which is printed.
    template <class F>
    int run(int argc, char** argv, F f) {
        CLI11_PARSE(cli, argc, argv);
        try {
            const auto rank = [&](colls::communicator& comm) {
                output out(comm, quick_, plot_);
                f(comm, out);
                std::fflush(stdout);
                if (!out.failed().empty()) throw check_failed(out.failed());
            };
            if (transport_ == "world" || (transport_ == "auto" && colls::read_launch().source != "none")) {
                colls::communicator comm = colls::world();
                rank(comm);
            } else if (transport_ == "processes" || transport_ == "tcp") {
                if (transport_ == "tcp") setenv("COLLS_TRANSPORT", "tcp", 1);
                colls::processes::run(ranks_, rank);
            } else {
                colls::threads::run(ranks_, rank);
            }
        } catch (const std::exception& e) {
            // A failed check of processes arrives as the library's report of the rank that threw it.
            const std::string text = e.what();
            fmt::print(stderr, "{}\n", text);
            return text.find(check_failed::mark) != std::string::npos ? 1 : 2;
        }
        return 0;
    }

private:
    struct check_failed : std::runtime_error {
        static constexpr const char* mark = "check failed: ";
        explicit check_failed(const std::string& what) : std::runtime_error(mark + what) {}
    };

    int ranks_ = 4;
    std::string transport_ = "auto", plot_;
    bool quick_ = false;
};

}  // namespace example
