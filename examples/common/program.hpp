// What the programs of examples/patterns and examples/exercises share: their options, how their ranks are started,
// and the checks by which each of them ends.
//
//     int main(int argc, char** argv) {
//         example::program program("Computes ... and compares it with ...");
//         int heads = 4;
//         program.options.add("--heads", heads, "attention heads");
//         return program.run(argc, argv, [&](colls::communicator& comm, example::output& out) {
//             ...
//             out.print("{} heads\n", heads);                        // by rank 0
//             out.check("the same as one rank", difference < 1e-5);  // on every rank; exit status 1 if one says no
//         });
//     }
#pragma once

#include "options.hpp"
#include "plot.hpp"
#include "table.hpp"

#include <colls/colls.hpp>

#include <fmt/format.h>

#include <functional>
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
        print_formatted(format, fmt::make_format_args(values...));
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
    bool check(std::string_view what, bool ok);

    /// The first check that failed, or empty.
    const std::string& failed() const { return failed_; }

private:
    void print_formatted(fmt::string_view format, fmt::format_args values);

    colls::communicator& comm_;
    bool quick_;
    std::string plot_file_;
    std::string failed_;
};

class program {
public:
    /// `purpose`: what --help says first.
    explicit program(const std::string& purpose);

    example::options options;  ///< those of all programs; a program adds its own

    void default_ranks(int n) { ranks_ = n; }
    /// What --ranks and --transport say, or their defaults.
    int ranks() const { return ranks_; }
    const std::string& transport() const { return transport_; }

    /// Parses the options and calls f on every rank. Returns main's value: 0; 1 where a check failed; 2 where there was
    /// an error, which is printed.
    int run(int argc, const char* const* argv, const std::function<void(colls::communicator&, output&)>& f);

private:
    int ranks_ = 4;
    std::string transport_ = "auto", plot_;
    bool quick_ = false;
};

}  // namespace example
