// The programs of a comparison, seen from the driver. Each side is started once for a number of ranks, and sleeps until
// the driver gives it a turn (measure.hpp).
#pragma once

#include "../tools/input.hpp"
#include "measure.hpp"
#include "statistics.hpp"

#include <fmt/core.h>

#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <vector>

namespace bench {

inline std::size_t parse_size(const std::string& text) { return static_cast<std::size_t>(input::parse_size(text, 40)); }
inline std::string show_size(std::size_t bytes) {
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MB", bytes >> 20);
    if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KB", bytes >> 10);
    return fmt::format("{} B", bytes);
}

/// The smallest size that `j` can be measured at: a float for each rank where blocks are exchanged.
inline std::size_t at_least_one_float(job j, int ranks, std::size_t bytes) {
    const bool whole = j == job::all_reduce || j == job::all_reduce_in_place || j == job::broadcast;
    return whole ? bytes : std::max(bytes, sizeof(float) * static_cast<std::size_t>(ranks));
}

/// The latency of a cache line in ns, one way, between the first two cores; 0 where there is one core.
inline double probe_line(double ticks_per_ns) {
    return std::thread::hardware_concurrency() < 2 ? 0 : line_latency(0, 1, ticks_per_ns);
}

/// One program of a side, running.
class child {
public:
    explicit child(std::vector<std::string> words) : name_(words.front()) {
        std::vector<char*> argv;
        for (std::string& w : words) argv.push_back(w.data());
        argv.push_back(nullptr);
        id_ = fork();
        if (id_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);  // the sides end when this program ends, however it ends
            execvp(argv[0], argv.data());
            fmt::print(stderr, "cannot run {}: {}\n", name_, std::strerror(errno));
            _exit(127);
        }
    }
    ~child() {
        if (!ends_within(3)) stop();  // a side that was told to quit takes some time to end
    }
    /// Ends it by SIGTERM, or by SIGKILL where that does not end it within 3 s.
    void stop() {
        if (id_ <= 0) return;
        kill(id_, SIGTERM);
        if (ends_within(3)) return;
        kill(id_, SIGKILL);
        waitpid(id_, nullptr, 0);
        id_ = -1;
    }
    child(child&& other) noexcept : name_(std::move(other.name_)), id_(std::exchange(other.id_, -1)) {}
    child& operator=(child&&) = delete;
    void throw_if_dead() {
        int status = 0;
        if (id_ > 0 && waitpid(id_, &status, WNOHANG) == id_) {
            id_ = -1;
            throw std::runtime_error(fmt::format("{} ended too early (status {:#x})", name_, status));
        }
    }

private:
    bool ends_within(int seconds) {
        for (int i = 0; id_ > 0 && i < 100 * seconds; ++i) {
            if (waitpid(id_, nullptr, WNOHANG) != 0)
                id_ = -1;
            else
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return id_ <= 0;
    }
    std::string name_;
    pid_t id_ = -1;
};

/// A folder that is removed with all that is in it.
class temporary_folder {
public:
    explicit temporary_folder(std::string path) : path_(std::move(path)) { std::filesystem::create_directory(path_); }
    ~temporary_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    temporary_folder(const temporary_folder&) = delete;
    temporary_folder& operator=(const temporary_folder&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

/// All sides, for one number of ranks.
class sides {
public:
    sides(int ranks, double ticks_per_ns)
        : folder_(fmt::format("/dev/shm/colls-bench-{}", getpid())),
          path_(folder_.path() + "/control"),
          shared_(path_, true) {
        shared_->ranks = static_cast<std::uint32_t>(ranks);
        shared_->cores = std::thread::hardware_concurrency();
        shared_->ticks_per_ns = ticks_per_ns;
    }
    ~sides() {
        for (int side = 0; side < size(); ++side) begin(side, job::quit, 0, 0, 0);
    }
    sides(const sides&) = delete;
    sides& operator=(const sides&) = delete;

    /// Starts a side by the words `command`, followed by CONTROL SIDE LARGEST and the words `more`, and waits until all
    /// its ranks are ready. `largest` is the size in bytes of a rank's buffers. Returns the side's number. Throws where
    /// the program ends early, or is not ready after 60 s.
    int start(std::vector<std::string> command, std::size_t largest, const std::vector<std::string>& more = {}) {
        const int side = size();
        if (side == max_sides) throw std::runtime_error(fmt::format("at most {} sides take turns", max_sides));
        command.insert(command.end(), {path_, std::to_string(side), std::to_string(largest)});
        command.insert(command.end(), more.begin(), more.end());
        programs_.emplace_back(std::move(command));
        wait(side, shared_->sides[side].ready, [&](std::uint32_t ready) { return ready == shared_->ranks; }, 60);
        return side;
    }
    /// Ends the programs of a side that failed. It must not be given another turn.
    void stop(int side) { programs_[static_cast<std::size_t>(side)].stop(); }
    /// One turn: the median of its calls in ns. The turn ends after `seconds`, but has at least `min_calls` calls
    /// besides the first, which does not count. Throws where it takes more than `limit` seconds.
    double turn(int side, job what, std::size_t bytes, std::uint32_t variant, double seconds,
        std::uint32_t min_calls = 3, double limit = 60) {
        side_block& at = shared_->sides[side];
        at.min_calls = min_calls;
        const std::uint32_t before = at.done.load();
        begin(side, what, bytes, variant, seconds);
        wait(side, at.done, [&](std::uint32_t d) { return d != before; }, limit);
        if (const auto wrong = at.wrong.exchange(0))
            throw std::runtime_error(fmt::format("{} of {}, {} ranks, side {}: {} elements are wrong", name_of(what),
                show_size(bytes), shared_->ranks, side, wrong));
        return median({at.ns, at.ns + at.calls});
    }
    int size() const { return static_cast<int>(programs_.size()); }
    /// The schedule that a side of this library used in its last turn.
    std::string chosen(int side) const { return shared_->sides[side].chosen; }

private:
    void begin(int side, job what, std::size_t bytes, std::uint32_t variant, double seconds) {
        side_block& at = shared_->sides[side];
        at.what = what;
        at.bytes = bytes;
        at.variant = variant;
        at.seconds = seconds;
        at.turn.fetch_add(1);
        wake_all(at.turn);
    }
    template <class Reached>
    void wait(int side, std::atomic<std::uint32_t>& word, Reached reached, double limit) {
        const auto begin = std::chrono::steady_clock::now();
        for (;;) {
            const std::uint32_t now = word.load();
            if (reached(now)) return;
            sleep_while(word, now, std::min(0.5, limit));
            programs_[static_cast<std::size_t>(side)].throw_if_dead();
            if (std::chrono::steady_clock::now() - begin > std::chrono::duration<double>(limit))
                throw std::runtime_error(fmt::format("no answer within {} s", limit));
        }
    }
    temporary_folder folder_;
    std::string path_;
    shared_control shared_;
    std::vector<child> programs_;
};

}  // namespace bench
