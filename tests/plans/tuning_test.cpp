// What the library takes from the file of COLLS_TUNE, and how it follows the distance of the ranks' cores.
#include "catch.hpp"

#include "support/says.hpp"

#include <colls/colls.hpp>
#include <colls/detail/choose/choose.hpp>
#include <colls/detail/execute/distance.hpp>
#include <colls/detail/support/machine.hpp>
#include <colls/explain.hpp>
#include <colls/files/detail/tuning_file.hpp>
#include <colls/transports/threads.hpp>

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace colls;
using colls::detail::distance;

namespace {

class file_of {
public:
    explicit file_of(const std::string& text) {
        const int at = mkstemp(path_);
        if (at < 0 || write(at, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
        close(at);
    }
    ~file_of() { unlink(path_); }
    file_of(const file_of&) = delete;
    file_of& operator=(const file_of&) = delete;
    const char* path() const { return path_; }

private:
    char path_[32] = "/tmp/colls_tuning_XXXXXX";
};

std::string refusal_of(const std::string& text) {
    const file_of file(text);
    try {
        detail::tuning_file read;
        detail::read_tuning(file.path(), read);
        detail::check_names(read);
    } catch (const colls::error& e) {
        CHECK(e.code() == errc::invalid_argument);
        return e.what();
    }
    return "no error";
}

// The library reads the variable once in a process.
const file_of tuned(
    "# figures, then choices\n"
    "machine 3e-7 2e-11 5e-11 4e-7\n"
    "schedule all_reduce 3 4096 ring\n"
    "schedule all_reduce 3 65536 tree\n"
    "schedule all_reduce 3 4194304 automatic\n"
    "schedule all_gather 3 0 bruck\n"
    "schedule all_gather 3 0 circulant\n"
    "gpu_schedule all_gather 3 0 ring\n"
    "schedule broadcast 3 1000000 tree\n"
    "schedule reduce 3 0 eager\n"
    "gpu_links 3e-6 2e-11 4e-6 5e-11\n"
    "  \n");
const bool is_set = setenv("COLLS_TUNE", tuned.path(), 1) == 0;

}  // namespace

TEST_CASE("COLLS_TUNE: figures and choices of the file are taken, and explain says so", "[tuning]") {
    REQUIRE(is_set);
    CHECK(detail::measured().alpha == 3e-7);
    CHECK(detail::measured().near_below == 4e-7);
    CHECK(detail::measured().cores == detail::cores());
    std::string small, middle, large, beyond, gathered, other, text, text_beyond, right;
    threads::run(3, [&](auto& comm) {
        std::vector<float> x(5000, static_cast<float>(comm.rank()));
        colls::all_reduce(comm, x, colls::sum);
        if (comm.rank() != 0) return;
        right = x[4999] == 3 ? "right" : "wrong";
        small = chosen(comm, collective::all_reduce, 512);
        middle = chosen(comm, collective::all_reduce, 20'000);
        large = chosen(comm, collective::all_reduce, 1 << 20);
        beyond = chosen(comm, collective::all_reduce, 4 << 20);
        text_beyond = explain(comm, collective::all_reduce, 4 << 20);
        gathered = chosen(comm, collective::all_gather, 64);
        other = chosen(comm, collective::broadcast, 20'000);
        text = explain(comm, collective::all_reduce, 20'000);
    });
    CHECK(right == "right");
    CHECK(small != "ring");
    CHECK(middle == "ring");
    CHECK(large == "tree");
    CHECK(beyond != "tree");
    CHECK_FALSE(support::says(text_beyond, "by COLLS_TUNE"));
    CHECK(gathered == "circulant");
    CHECK(other == "direct");
    REQUIRE(detail::tuned_gpu_links() != nullptr);
    for (const int i : {0, 1, 2, 3})
        CHECK(detail::tuned_gpu_links()[i] == std::array{3e-6, 2e-11, 4e-6, 5e-11}[static_cast<std::size_t>(i)]);
    CHECK(std::string_view(detail::tuned_for(collective::all_gather, 3, 64, true).name) == "ring");
    CHECK(std::string_view(detail::tuned_for(collective::reduce, 3, 64, false).name) == "eager");
    CHECK(support::says(text, std::string("by COLLS_TUNE: ") + tuned.path()));
}

TEST_CASE("COLLS_TUNE: a file that cannot be read so is refused by line", "[tuning]") {
    CHECK(refusal_of("schedule all_reduce 2 0 ring\n#\n\n") == "no error");
    CHECK(support::says(refusal_of("#\nmachine 1e-7 1e-10\n"), "line 2: machine takes four numbers"));
    CHECK(support::says(refusal_of("machine 1e-7 1e-10 1e-10 0 7\n"), "line 1: machine takes four numbers"));
    CHECK(support::says(refusal_of("machine 1e-7 -1e-10 1e-10 0\n"), "from 0 to less than 1"));
    CHECK(support::says(refusal_of("machine nan 1e-10 1e-10 0\n"), "from 0 to less than 1"));
    CHECK(refusal_of("machine 0.99 0.99 0.99 0\nschedule all_reduce 1 0 eager\n") == "no error");
    for (const char* const four : {"1 1e-10 1e-10 0", "1e-7 1 1e-10 0", "1e-7 1e-10 1 0", "1e-7 1e-10 1e-10 1"})
        CHECK(support::says(refusal_of(std::string("machine ") + four + "\n"), "from 0 to less than 1"));
    for (const char* const four : {"0 1e-10 1e-10 0", "1e-7 0 1e-10 0", "1e-7 1e-10 0 0"})
        CHECK(support::says(refusal_of(std::string("machine ") + four + "\n"), "are above 0"));
    CHECK(support::says(refusal_of("schedule all_reduce 2 0\n"), "line 1: schedule takes"));
    CHECK(support::says(refusal_of("schedule all_reduce 0 0 ring\n"), "1 rank or more"));
    CHECK(support::says(refusal_of("schedule all_reduce 2 -1 ring\n"), "0 bytes or more"));
    CHECK(support::says(refusal_of("schedule all_red 2 0 ring\n"), "all_red is not a collective"));
    CHECK(support::says(refusal_of("schedule all_reduce 2 0 rong\n"), "rong is none of: automatic, eager, "));
    CHECK(support::says(refusal_of("gpu_links 1e-6 1e-11 2e-6\n"), "gpu_links takes four numbers"));
    CHECK(support::says(refusal_of("gpu_links 1e-6 0 2e-6 1e-11\n"), "above 0 and below 1"));
    CHECK(support::says(refusal_of("gpu_links 1e-6 1e-11 2e-6 1\n"), "above 0 and below 1"));
    CHECK(refusal_of("gpu_links 0.9 1e-11 2e-6 0.9\n") == "no error");
    CHECK(support::says(refusal_of("gpu_schedule all_gather 2\n"), "takes a collective, a number of ranks"));
    CHECK(support::says(refusal_of("gpu_schedule all_gathr 2 0 ring\n"), "all_gathr is not a collective"));
    CHECK(support::says(
        refusal_of("shedule all_reduce 2 0 ring\n"), "begins with machine, schedule, gpu_schedule, gpu_links, or #"));
    CHECK(support::says(refusal_of(std::string(300, '#')), "longer than 254"));
    detail::tuning_file read;
    CHECK_THROWS_AS(detail::read_tuning("/nowhere/at/all", read), colls::error);
}

TEST_CASE("distance: samples that agree change it, for an operation that no rank has begun", "[tuning]") {
    threads::run(2, [&](auto& comm) {
        if (comm.rank() != 0) return;
        detail::rank_context& self = comm.context();
        const double short_time = 50e-9, long_time = 500e-9, preempted = 1;
        std::string wrong;
        const auto expect = [&](bool right, const char* what) {
            if (!right) wrong += std::string(what) + "; ";
        };
        expect(distance::is_near(self, 0), "near at the start, by the figures of the file");
        std::uint64_t at = 100;
        const auto sample = [&](double seconds, int times) {
            for (int i = 0; i < times; ++i) distance::take_sample(self, at, seconds);
        };
        sample(short_time, 10);
        sample(long_time, 3);
        expect(distance::is_near(self, ~std::uint64_t{0} >> 2), "still near: the votes do not agree yet");
        sample(preempted, 100);
        sample(long_time, 1);
        const std::uint64_t first = at + detail::window;
        expect(distance::is_near(self, first - 1), "operations that may have begun are as before");
        expect(!distance::is_near(self, first), "far from then on");
        at += 10;
        sample(short_time, 20);
        expect(!distance::is_near(self, ~std::uint64_t{0} >> 2), "no third decision while ranks may need the first");
        at = first + detail::window;
        sample(short_time, 1);
        expect(distance::is_near(self, at + detail::window), "near again");
        expect(!distance::is_near(self, at + detail::window - 1), "a rank that is behind sees the decision before");
        if (!wrong.empty()) throw std::runtime_error(wrong);
    });
}
