// The file that COLLS_TUNE names: figures of the machine, and schedules that were measured to be the fastest.
// IWYU pragma: private, include <colls/explain.hpp>
//
//     machine ALPHA BETA GAMMA NEAR_BELOW               seconds, as in extend::machine; instead of a measurement
//     schedule COLLECTIVE RANKS BYTES NAME              for this many ranks, from this many bytes of the larger buffer
//                                                       on, up to the next such line; a family, eager, or automatic:
//                                                       there the library chooses
//     gpu_schedule COLLECTIVE RANKS BYTES NAME          the same for calls of cuda::communicator; also
//                                                       host_hierarchy<...>
//     gpu_links ROUND BYTE FAR_ROUND FAR_BYTE           seconds of a round and of a byte between GPUs, within a host
//                                                       and between hosts
//     # comment
//
// `colls_perf --tune FILE` writes one (docs/perf.md). A schedule holds for buffers that all ranks reach, and for those
// that are staged. All ranks must read the same lines: where they choose differently, their calls do not match.
#pragma once

#include <colls/detail/choose/selection.hpp>
#include <colls/detail/support/environment.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/detail/support/process_lock.hpp>
#include <colls/extend/machine.hpp>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

namespace colls::inline v1::detail {

/// One of its schedules.
struct tuning_line {
    char collective[24];
    int ranks;
    std::size_t from;
    char name[48];
    int row;       ///< of the file, for errors
    bool on_gpus;  ///< for calls of GPUs
};
struct tuning_file {
    const char* path = nullptr;
    bool has_machine = false;
    extend::machine figures;
    bool has_gpu_links = false;
    double gpu_links[4] = {};  ///< seconds: of a round and of a byte within a host, and between hosts
    list<tuning_line> schedules;
};

/// Throws invalid_argument, with the number of the line, where the file cannot be read or a line has another form.
[[gnu::cold]] inline void read_tuning(const char* path, tuning_file& to) {
    to.path = path;
    const numbers_with_point as_written;
    const auto refuse = [&](int row, const char* why) {
        error_text text;
        text << "colls: COLLS_TUNE: " << path;
        if (row > 0) text << ", line " << row;
        throw error(errc::invalid_argument, text << ": " << why);
    };
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "r"), &std::fclose);
    if (!file) refuse(0, "the file cannot be opened");
    char words[256];
    for (int row = 1; std::fgets(words, sizeof words, file.get()); ++row) {
        if (std::strlen(words) + 1 == sizeof words) refuse(row, "the line is longer than 254 characters");
        char kind[16], surplus[2];
        if (std::sscanf(words, "%15s", kind) != 1 || kind[0] == '#') continue;
        const bool on_gpus = std::strcmp(kind, "gpu_schedule") == 0;
        if (std::strcmp(kind, "machine") == 0) {
            extend::machine& m = to.figures;
            double* const values[] = {&m.alpha, &m.beta, &m.gamma, &m.near_below};
            if (std::sscanf(words, "%*s %lf %lf %lf %lf %1s", values[0], values[1], values[2], values[3], surplus) != 4)
                refuse(row, "machine takes four numbers: alpha, beta, gamma, near_below");
            for (const double* v : values)
                if (!(*v >= 0 && *v < 1)) refuse(row, "the figures are seconds, from 0 to less than 1");
            if (!(m.alpha > 0 && m.beta > 0 && m.gamma > 0)) refuse(row, "alpha, beta and gamma are above 0");
            to.has_machine = true;
        } else if (std::strcmp(kind, "gpu_links") == 0) {
            double* const at = to.gpu_links;
            if (std::sscanf(words, "%*s %lf %lf %lf %lf %1s", at, at + 1, at + 2, at + 3, surplus) != 4)
                refuse(row,
                    "gpu_links takes four numbers: seconds of a round and of a byte within a host, then between hosts");
            for (const double v : to.gpu_links)
                if (!(v > 0 && v < 1)) refuse(row, "the figures are seconds, above 0 and below 1");
            to.has_gpu_links = true;
        } else if (on_gpus || std::strcmp(kind, "schedule") == 0) {
            tuning_line s{};
            long long from = 0;
            if (std::sscanf(words, "%*s %23s %d %lld %47s %1s", s.collective, &s.ranks, &from, s.name, surplus) != 4)
                refuse(row, "schedule takes a collective, a number of ranks, a number of bytes, and a name");
            if (s.ranks < 1 || from < 0) refuse(row, "there is 1 rank or more, and 0 bytes or more");
            s.from = static_cast<std::size_t>(from);
            s.row = row;
            s.on_gpus = on_gpus;
            to.schedules.push_back(s);
        } else {
            refuse(row, "a line begins with machine, schedule, gpu_schedule, gpu_links, or #");
        }
    }
}
/// In the file: from this size on the library chooses.
inline constexpr std::string_view automatic_name = "automatic";

/// Throws invalid_argument where a line names no collective, or no schedule. (Names for GPUs are checked with the
/// candidates of their calls.)
[[gnu::cold]] inline void check_names(const tuning_file& file) {
    for (const tuning_line& s : file.schedules) {
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

/// The file's content, read at the first call in a process; null where COLLS_TUNE is not set. Throws as read_tuning.
[[gnu::cold]] inline const tuning_file* tuning() {
    const process_lock lock;
    static const tuning_file* const read = []() -> const tuning_file* {
        const char* const path = variable("COLLS_TUNE");
        if (path == nullptr) return nullptr;
        static tuning_file& file = *new tuning_file;  // never destroyed: threads may outlive main
        file = {};
        read_tuning(path, file);
        return &file;
    }();
    return read;
}

COLLS_INLINE const extend::machine* tuned_figures() {
    const tuning_file* const file = tuning();
    return file && file->has_machine ? &file->figures : nullptr;
}
COLLS_INLINE const double* tuned_gpu_links() {
    const tuning_file* const file = tuning();
    return file && file->has_gpu_links ? file->gpu_links : nullptr;
}
/// A size that lies in two lines takes the one that begins later; of equal ones the last.
[[gnu::cold]] COLLS_INLINE tuned_schedule tuned_for(collective what, int n, double bytes, bool on_gpus) {
    const tuning_file* const file = tuning();
    if (!file) return {};
    static const bool checked = (check_names(*file), true);
    static_cast<void>(checked);
    const tuning_line* best = nullptr;
    for (const tuning_line& s : file->schedules)
        if (s.on_gpus == on_gpus && s.ranks == n && std::string_view(s.collective) == name_of(what) &&
            static_cast<double>(s.from) <= bytes && (!best || s.from >= best->from))
            best = &s;
    if (!best || best->name == automatic_name) return {};
    return {best->name, file->path};
}

}  // namespace colls::inline v1::detail
