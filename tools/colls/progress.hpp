// What a long command says on a terminal while it works.
#pragma once

#include <fmt/format.h>

#include <unistd.h>

#include <cstdio>
#include <string>

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

}  // namespace tool
