// The choice that the file of COLLS_TUNE makes for a call.
// IWYU pragma: private, include <colls/explain.hpp>
#pragma once

#include <colls/detail/choose/candidates.hpp>
#include <colls/detail/execute/eager.hpp>
#include <colls/detail/support/tuning_file.hpp>

namespace colls::inline v1::detail {

/// In the file: from this size on the library chooses.
inline constexpr std::string_view automatic_name = "automatic";

/// Throws invalid_argument where a line names no collective, or no schedule.
[[gnu::cold]] inline void check_names(const tuning_file& file) {
    for (const tuned_schedule& s : file.schedules) {
        bool known = false;
        for (int c = 0; c < collective_count; ++c)
            known = known || std::string_view(s.collective) == name_of(static_cast<collective>(c));
        error_text text;
        text << "colls: COLLS_TUNE: " << file.path << ", line " << s.row << ": ";
        if (!known) throw error(errc::invalid_argument, (text << s.collective << " is not a collective").text());
        if (s.name == automatic_name || s.name == eager_name || is_known_name(s.name)) continue;
        text << s.name << " is none of: " << automatic_name << ", " << eager_name;
        for (const std::string_view name : known_names) text << ", " << name;
        throw error(errc::invalid_argument, text.text());
    }
}

/// The name of the schedule for a call of `bytes` bytes on n ranks; empty: the file has none, and the library
/// chooses. A size that lies in two lines takes the one that begins later; of equal ones the last.
[[gnu::cold]] inline std::string_view tuned_name(collective what, int n, double bytes) {
    const tuning_file* const file = tuning();
    if (!file) return {};
    static const bool checked = (check_names(*file), true);
    static_cast<void>(checked);
    const tuned_schedule* best = nullptr;
    for (const tuned_schedule& s : file->schedules)
        if (s.ranks == n && std::string_view(s.collective) == name_of(what) && static_cast<double>(s.from) <= bytes &&
            (!best || s.from >= best->from))
            best = &s;
    return best && best->name != automatic_name ? std::string_view(best->name) : std::string_view{};
}

}  // namespace colls::inline v1::detail
