// The choice among candidates: by a name that the user gives, or by the least predicted time. The host's calls and
// those of GPUs choose by it, each with predictions of its own.
// IWYU pragma: private, include <colls/explain.hpp>
#pragma once

#include <colls/detail/request/known_families.hpp>
#include <colls/detail/request/request.hpp>
#include <colls/detail/support/rank_error.hpp>
#include <colls/error.hpp>

#include <cstddef>
#include <string_view>

namespace colls::inline v1::detail {

/// What the file of COLLS_TUNE says of a call.
struct tuned_schedule {
    std::string_view name = {};  ///< empty: the library chooses
    const char* path = nullptr;  ///< the file's
};
/// For a call of `bytes` bytes on n ranks, of the host or of GPUs. Throws invalid_argument where the file is wrong.
/// (Groups bring it with them, as their engine.)
tuned_schedule tuned_for(collective what, int n, double bytes, bool on_gpus = false);
/// Seconds of a round and of a byte between GPUs of a host, then between hosts; null: the file has none.
const double* tuned_gpu_links();

/// Is it a name that COLLS_SCHEDULE may give to a schedule?
[[gnu::cold]] inline bool is_known_name(std::string_view name) {
    for (const std::string_view known : known_names())
        if (known == name) return true;
    return false;
}

/// The name of a schedule that COLLS_SCHEDULE, whose value is given, asks for; empty: it asks for none. Throws where
/// there is no such schedule.
[[gnu::cold]] inline std::string_view forced_schedule(const char* variable, int rank) {
    if (!variable) return {};
    const std::string_view name = variable;
    if (name == "mailbox") return eager_name;  // the former name
    if (name == eager_name || is_known_name(name)) return name;
    error_text text;
    text << "COLLS_SCHEDULE is " << name << ", which is none of: " << eager_name;
    for (const std::string_view known : known_names()) text << ", " << known;
    throw_of_rank(rank, errc::invalid_argument, text);
}

struct prediction {
    const candidate* of = nullptr;  ///< null: the eager path
    std::size_t chunk = 0;          ///< bytes of a unit
    double seconds = 0;
    bool eager_first = false;  ///< as schedule_choice says
};

/// The first candidate of that name which fits(candidate) accepts; null: there is none.
template <class Fits>
const candidate* named(const candidates& list, std::string_view name, const Fits& fits) {
    for (int i = 0; i < list.count; ++i)
        if (const candidate& c = list.first[i]; c.name == name && fits(c)) return &c;
    return nullptr;
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

}  // namespace colls::inline v1::detail
