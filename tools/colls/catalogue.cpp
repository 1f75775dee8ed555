#include "catalogue.hpp"

#include "../input.hpp"
#include "exchange/plan_file.hpp"
#include "own_header.hpp"

#include <colls/detail/choose/explanation.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <utility>

namespace tool {

const std::vector<entry>& catalogue() {
    static const std::vector<entry> all = [] {
        std::vector<entry> found;
        for (const std::string& family : families())
            for (int c = 0; c < colls::collective_count; ++c) {
                const auto list = colls::detail::all_candidates_of(static_cast<colls::collective>(c));
                for (int i = 0; i < list.count; ++i)
                    if (list.first[i].name == family) found.push_back({family, list.first[i].schedule, 0});
            }
        return found;
    }();
    return all;
}

std::vector<std::string> families() {
    return {colls::detail::known_names().begin(), colls::detail::known_names().end()};
}

bool names_collective(std::string_view name) {
    try {
        static_cast<void>(collective_named(name));
        return true;
    } catch (const std::runtime_error&) {
        return false;
    }
}

colls::collective collective_named(std::string_view name) {
    const auto plain = [](std::string_view text) {
        std::string letters;
        for (const char c : text)
            if (c != '_' && c != '-') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        return letters;
    };
    std::vector<std::string> known;
    for (int c = 0; c < colls::collective_count; ++c) {
        const auto which = static_cast<colls::collective>(c);
        known.emplace_back(colls::name_of(which));
        if (plain(known.back()) == plain(name)) return which;
    }
    throw std::runtime_error(input::unknown("collective", name, known));
}

std::vector<entry> find(const request& asked) {
    std::optional<colls::collective> only;
    if (!asked.collective.empty()) only = collective_named(asked.collective);
    std::vector<entry> all;
    if (exchange::names_plan(asked.name)) {
        const auto plan = exchange::load_plan(asked.name);
        all.push_back({asked.name, plan->schedule, plan->from->table.ranks});
    } else if (asked.include.empty()) {
        const auto names = families();
        if (std::ranges::find(names, asked.name) == names.end())
            throw std::runtime_error(input::unknown("family", asked.name, names) +
                                     ". A type of your own needs --include HEADER, and a plan of another library ends "
                                     "in .xml or .json");
        for (const entry& e : catalogue())
            if (e.family == asked.name) all.push_back(e);
    } else {
        for (const colls::any_schedule& s : schedules_of_header(asked.include, asked.name))
            all.push_back({asked.name, s, 0});
    }
    if (!only) return all;
    std::vector<std::string> has;
    std::vector<entry> found;
    for (const entry& e : all) {
        has.emplace_back(colls::name_of(e.schedule.implements));
        if (e.schedule.implements == *only) found.push_back(e);
    }
    if (found.empty())
        throw std::runtime_error(fmt::format(
            "{} has no schedule for {}; it has: {}", asked.name, colls::name_of(*only), fmt::join(has, ", ")));
    return found;
}

}  // namespace tool
