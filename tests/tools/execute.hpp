// Runs a program as a user does.
#pragma once

#include "catch.hpp"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

namespace support {

struct program_result {
    int status = -1;   ///< -1: it did not end by itself
    std::string text;  ///< standard output and standard error

    bool says(std::string_view words) const { return text.find(words) != std::string::npos; }
};

/// Runs a command of the shell.
inline program_result execute(const std::string& command) {
    program_result r;
    std::FILE* const out = popen((command + " 2>&1").c_str(), "r");
    REQUIRE(out);
    std::array<char, 4096> part{};
    while (const std::size_t n = std::fread(part.data(), 1, part.size(), out)) r.text.append(part.data(), n);
    const int ended = pclose(out);
    r.status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    return r;
}

}  // namespace support
