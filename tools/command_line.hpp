// How the programs of tools/ refuse a command line: in one line, with the program's name, as they report all errors.
#pragma once

#include "input.hpp"

#include <colls/config.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace command_line {

inline void add_version(CLI::App& app) {
    app.set_version_flag("--version",
        fmt::format("{} {}.{}.{}", app.get_name(), COLLS_VERSION_MAJOR, COLLS_VERSION_MINOR, COLLS_VERSION_PATCH),
        "print the version");
}

/// Commands, or long options, that are in --help.
inline std::vector<std::string> known_words(const CLI::App& app, bool options) {
    std::vector<std::string> words;
    for (const CLI::App* const each : app.get_subcommands(nullptr))
        if (!options) words.push_back(each->get_name());
    for (const CLI::Option* const each : app.get_options())
        for (const std::string& name : each->get_lnames())
            if (options && !each->get_group().empty()) words.push_back("--" + name);
    return words;
}

/// What is wrong with the command line: "cost: there is no option '--rank'; did you mean '--ranks'? (colls cost
/// --help)".
inline std::string error_text(const CLI::App& app, const CLI::ParseError& e) {
    const CLI::App* used = &app;
    std::string before, help = app.get_name();
    while (used->remaining().empty() && !used->get_subcommands().empty()) {
        used = used->get_subcommands()[0];
        before += used->get_name() + ": ";
        help += " " + used->get_name();
    }
    // An unknown word comes first: that another one is missing may follow from it.
    std::string text = e.what();
    const std::vector<std::string> left = used->remaining(), commands = known_words(*used, false);
    const auto option = std::ranges::find_if(left, [](const std::string& word) { return word.starts_with('-'); });
    if (option != left.end())
        text = fmt::format("there is no option '{}'{}", *option,
            input::did_you_mean(option->substr(0, option->find('=')), known_words(*used, true)));
    else if (!left.empty() && !commands.empty())
        text = input::unknown("command", left[0], commands);
    else if (!left.empty())
        text = fmt::format("'{}' is one word too many", left[0]);
    else if (!commands.empty() && e.get_name() == "RequiredError")
        text = fmt::format("name a command: {}", fmt::join(commands, ", "));
    return fmt::format("{}{} ({} --help)", before, text, help);
}

}  // namespace command_line
