#include "program.hpp"

#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>
#include <colls/world.hpp>

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace example {

namespace {

struct check_failed : std::runtime_error {
    static constexpr const char* mark = "check failed: ";
    explicit check_failed(const std::string& what) : std::runtime_error(mark + what) {}
};

}  // namespace

bool output::check(std::string_view what, bool ok) {
    int all = ok ? 1 : 0;
    colls::all_reduce(comm_, std::span(&all, 1), colls::min);
    print("{}: {}\n", what, all == 1 ? "yes" : "NO");
    if (all != 1 && failed_.empty()) failed_ = what;
    return all == 1;
}

void output::print_formatted(fmt::string_view format, fmt::format_args values) {
    if (comm_.rank() != 0) return;
    fmt::vprint(format, values);
    std::fflush(stdout);
}

program::program(const std::string& purpose) : options(purpose) {
    options.add("-r,--ranks", ranks_, "ranks, where no launcher says how many", between(1, 1024));
    options.add("-t,--transport", transport_,
        "what ranks are: threads; processes (shared memory); tcp (processes); world (what mpirun, srun or torchrun "
        "started); auto: world under a launcher, else threads",
        {"auto", "threads", "processes", "tcp", "world"});
    options.add("--quick", quick_, "small sizes: a few seconds");
    options.add("--plot", plot_, "the SVG file to write the chart to");
}

int program::run(int argc, const char* const* argv, const std::function<void(colls::communicator&, output&)>& f) {
    int status = 0;
    if (!options.parse(argc, argv, status)) return status;
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

}  // namespace example
