// The quotas of control groups (cgroups) on processor time: containers are often granted two cores of 64 that way.
// IWYU pragma: private, include <colls/explain.hpp>
#pragma once

#include <colls/detail/support/host.hpp>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace colls::inline v1::detail {

/// The quotas of control groups, read from the system's files. `root` stands before every path: a test has a tree of
/// its own.
class cgroup_quota {
public:
    static constexpr double none = 1e9;  ///< cores, where there is no quota

    explicit cgroup_quota(std::string root = "") : root_(std::move(root)) {}

    /// The least quota of the cgroups that this process is in and of all those above them, in cores. What cannot be
    /// read or understood is no quota.
    [[gnu::cold]] double cores() const {
        double least = none;
        lines(text_of("/proc/self/mountinfo"), [&](std::string_view mount) {
            // ID PARENT DEVICE ROOT WHERE OPTIONS [more fields] - TYPE SOURCE OPTIONS
            const std::size_t middle = mount.find(" - ");
            if (middle == std::string_view::npos) return;
            const std::string_view type = field(mount.substr(middle + 3), 0),
                                   options = field(mount.substr(middle + 3), 2);
            const bool version_2 = type == "cgroup2";
            if (!version_2 && !(type == "cgroup" && lists(options, "cpu"))) return;
            const double found =
                least_from(field(mount, 4), below(path_of_process(version_2), field(mount, 3)), version_2);
            if (found < least) least = found;
        });
        return least;
    }

private:
    /// The process's path in version 2, or in the version 1 hierarchy of the cpu controller.
    [[gnu::cold]] std::string path_of_process(bool version_2) const {
        std::string path = "/";
        lines(text_of("/proc/self/cgroup"), [&](std::string_view entry) {  // NUMBER:CONTROLLERS:PATH
            const std::size_t first = entry.find(':'), last = entry.find(':', first + 1);
            if (first == std::string_view::npos || last == std::string_view::npos) return;
            const std::string_view controllers = entry.substr(first + 1, last - first - 1);
            if (version_2 ? entry.substr(0, last + 1) == "0::" : lists(controllers, "cpu"))
                path = entry.substr(last + 1);
        });
        return path;
    }
    /// A path below the part of the hierarchy that is mounted. A container may see its own cgroup as the mount's root,
    /// while the path tells where that is outside.
    [[gnu::cold]] static std::string below(const std::string& path, std::string_view mounted) {
        if (mounted == "/") return path;
        const bool within = path.compare(0, mounted.size(), mounted) == 0 &&
                            (path.size() == mounted.size() || path[mounted.size()] == '/');
        return within ? path.substr(mounted.size()) : "";
    }
    [[gnu::cold]] double least_from(std::string_view mount, std::string path, bool version_2) const {
        double least = none;
        for (;; path.resize(path.rfind('/'))) {
            while (!path.empty() && path.back() == '/') path.pop_back();
            const std::string folder = std::string(mount) + path;
            const double q =
                version_2
                    ? quota_in(text_of(folder + "/cpu.max"))
                    : quota_in(text_of(folder + "/cpu.cfs_quota_us") + " " + text_of(folder + "/cpu.cfs_period_us"));
            if (q < least) least = q;
            if (path.find('/') == std::string::npos) return least;
        }
    }
    /// The quota in "QUOTA PERIOD", both in microseconds; "max" and -1 are no quota.
    [[gnu::cold]] static double quota_in(const std::string& text) {
        char* end = nullptr;
        const double quota = std::strtod(text.c_str(), &end), period = std::strtod(end, nullptr);
        return quota > 0 && period > 0 && quota < 1e15 && period < 1e15 ? quota / period : none;
    }
    /// Takes the part before the next separator off `rest`; all of it where there is none.
    static std::string_view next(std::string_view& rest, char separator) {
        const std::size_t end = rest.find(separator);
        const std::string_view part = rest.substr(0, end);
        rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
        return part;
    }
    static bool lists(std::string_view names, std::string_view name) {
        while (!names.empty())
            if (next(names, ',') == name) return true;
        return false;
    }
    static std::string_view field(std::string_view text, int number) {
        for (; number > 0; --number) next(text, ' ');
        return text.substr(0, text.find(' '));
    }
    template <class F>
    static void lines(std::string_view text, F f) {
        while (!text.empty()) f(next(text, '\n'));
    }
    [[gnu::cold]] std::string text_of(const std::string& path) const { return text_of_file(root_ + path); }
    std::string root_;
};

}  // namespace colls::inline v1::detail
