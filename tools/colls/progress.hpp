// What a long command says on a terminal while it works.
#pragma once

#include <colls/any_schedule.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

namespace tool {

/// A line on a terminal that the next one replaces; nothing elsewhere.
class progress {
public:
    void say(const std::string& text) const {
        if (on_) fmt::print(stderr, "\r\033[K{}", text);
    }
    ~progress() {
        if (on_) fmt::print(stderr, "\r\033[K");
    }
    progress() = default;
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;

private:
    const bool on_ = isatty(STDERR_FILENO) == 1;
};

/// A schedule on n ranks that says how much of it has been read, for proofs and counts that may take minutes. An
/// all_to_all is asked for what slots hold before most of its steps are read.
class watched final : public colls::detail::schedule_reader {
public:
    /// What it refers to outlives it. `what` is what else the line says. All steps are read `times` times.
    watched(const colls::any_schedule& s, int n, const progress& shown, std::string what, double times = 1)
        : schedule_reader(s.implements), s_(s), shown_(shown), what_(std::move(what)) {
        if (!s.supports(n)) return;
        steps_.all = times * n * s.rounds(n) * s.ports(n);
        slots_.all = 2.0 * n * s.blocks(n);
    }
    colls::step at(int rank, int n, int round, int port) const override {
        tell(steps_, "steps");
        return s_.at(rank, n, round, port);
    }

private:
    struct part {
        double read = 0, all = 0;
    };
    int ask(colls::detail::question q, int rank, int n, int slot) const override {
        if (q == colls::detail::question::input || q == colls::detail::question::output) tell(slots_, "slots");
        return colls::detail::answer(s_, q, rank, n, slot);
    }
    void tell(part& of, const char* name) const {
        if ((static_cast<long>(++of.read) & 63) != 0) return;
        const auto now = std::chrono::steady_clock::now();
        if (now - last_ < std::chrono::milliseconds(200)) return;
        last_ = now;
        // More than all of them: they are read again.
        shown_.say(fmt::format("{}: {:.0f} % of its {} read", what_, std::min(100 * of.read / of.all, 100.0), name));
    }

    const colls::any_schedule& s_;
    const progress& shown_;
    const std::string what_;
    mutable part steps_, slots_;
    mutable std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace tool
