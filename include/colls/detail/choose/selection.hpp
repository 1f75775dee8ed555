// The choice among candidates: by a name that the user gives, or by the least predicted time. The host's calls and
// those of GPUs choose by it, each with predictions of its own.
// IWYU pragma: private, include <colls/explain.hpp>
#pragma once

#include <colls/detail/request/known_families.hpp>
#include <colls/detail/request/request.hpp>
#include <colls/detail/support/error_text.hpp>
#include <colls/detail/support/tuning_file.hpp>
#include <colls/error.hpp>

#include <cstddef>
#include <string_view>

namespace colls::inline v1::detail {

/// In the file: from this size on the library chooses.
inline constexpr std::string_view automatic_name = "automatic";

/// Is it a name that COLLS_SCHEDULE may give to a schedule?
[[gnu::cold]] inline bool is_known_name(std::string_view name) {
    for (const std::string_view known : known_names())
        if (known == name) return true;
    return false;
}

/// Throws invalid_argument where a line names no collective, or no schedule. (Names for GPUs are checked with the
/// candidates of their calls.)
[[gnu::cold]] inline void check_names(const tuning_file& file) {
    for (const tuned_schedule& s : file.schedules) {
        bool known = false;
        for (int c = 0; c < collective_count; ++c)
            known = known || std::string_view(s.collective) == name_of(static_cast<collective>(c));
        error_text text;
        text << "colls: COLLS_TUNE: " << file.path << ", line " << s.row << ": ";
        if (!known) throw error(errc::invalid_argument, (text << s.collective << " is not a collective").text());
        const std::string_view name = s.name;
        if (s.on_gpus || name == automatic_name || name == eager_name || is_known_name(name)) continue;
        text << s.name << " is none of: " << automatic_name << ", " << eager_name;
        for (const std::string_view each : known_names()) text << ", " << each;
        throw error(errc::invalid_argument, text.text());
    }
}

/// The name of the schedule for a call of `bytes` bytes on n ranks; empty: the file has none, and the library
/// chooses. A size that lies in two lines takes the one that begins later; of equal ones the last.
[[gnu::cold]] inline std::string_view tuned_name(collective what, int n, double bytes, bool on_gpus = false) {
    const tuning_file* const file = tuning();
    if (!file) return {};
    static const bool checked = (check_names(*file), true);
    static_cast<void>(checked);
    const tuned_schedule* best = nullptr;
    for (const tuned_schedule& s : file->schedules)
        if (s.on_gpus == on_gpus && s.ranks == n && std::string_view(s.collective) == name_of(what) &&
            static_cast<double>(s.from) <= bytes && (!best || s.from >= best->from))
            best = &s;
    return best && best->name != automatic_name ? std::string_view(best->name) : std::string_view{};
}

/// The name of a schedule that COLLS_SCHEDULE, whose value is given, asks for; empty: it asks for none. Throws where
/// there is no such schedule.
[[gnu::cold]] inline std::string_view forced_schedule(const char* variable, int rank) {
    if (!variable) return {};
    const std::string_view name = variable;
    if (name == "mailbox") return eager_name;  // the former name
    if (name == eager_name || is_known_name(name)) return name;
    error_text text;
    text << "colls: rank " << rank << ": COLLS_SCHEDULE is " << name << ", which is none of: " << eager_name;
    for (const std::string_view known : known_names()) text << ", " << known;
    throw error(errc::invalid_argument, text.text(), rank);
}

struct prediction {
    const candidate* of = nullptr;  ///< null: the eager path
    std::size_t chunk = 0;          ///< bytes of a unit
    double seconds = 0;
};

/// The first candidate of that name which fits(candidate) accepts; null: there is none.
template <class Fits>
const candidate* named(const candidates& list, std::string_view name, const Fits& fits) {
    for (int i = 0; i < list.count; ++i)
        if (const candidate& c = list.first[i]; c.name == name && fits(c)) return &c;
    return nullptr;
}
/// The first one that fits.
template <class Fits>
prediction first_of(const candidates& list, const Fits& fits) {
    for (int i = 0; i < list.count; ++i)
        if (fits(list.first[i])) return {&list.first[i], std::size_t{1} << 40, 0};
    return {};
}
/// Takes the least prediction of the candidates that fit and are weighed, and of `best` where one is found before;
/// returns whether one is found now.
template <class Fits, class Weighed, class Predict>
bool take_least(prediction& best, bool found, const candidates& list, const Fits& fits, const Weighed& weighed,
    const Predict& predict) {
    for (int i = 0; i < list.count; ++i) {
        const candidate& c = list.first[i];
        if (!fits(c) || !weighed(c)) continue;
        const prediction p = predict(c);
        if (found && p.seconds >= best.seconds) continue;
        best = p;
        found = true;
    }
    return found;
}

/// Sizes are told apart to an eighth of a power of two: there is one choice for all sizes of a class.
constexpr std::uint64_t size_class(std::size_t bytes) {
    if (bytes < 16) return bytes;
    const int log = 60 - __builtin_clzll(bytes);  // bytes >> log is 8 to 15
    return static_cast<std::uint64_t>(log) * 8 + (bytes >> log);
}
/// The smallest size of the class, from which all ranks predict for all calls of the class.
constexpr double class_bytes(std::size_t bytes) {
    int log = 0;
    while (bytes >> log >= 16) ++log;
    return static_cast<double>(bytes >> log << log);
}

}  // namespace colls::inline v1::detail
