// The quotas of control groups (cgroups) on processor time: containers are often granted two cores of 64 that way.
// IWYU pragma: private, include <colls/explain.hpp>
#pragma once

#include <colls/config.hpp>

#include <cstdio>
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
    double cores() const {
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
    std::string path_of_process(bool version_2) const {
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
    static std::string below(const std::string& path, std::string_view mounted) {
        if (mounted == "/") return path;
        const bool within = path.compare(0, mounted.size(), mounted) == 0 &&
                            (path.size() == mounted.size() || path[mounted.size()] == '/');
        return within ? path.substr(mounted.size()) : "";
    }
    double least_from(std::string_view mount, std::string path, bool version_2) const {
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
    /// Of "QUOTA PERIOD", both in microseconds; "max" and -1 are no quota.
    static double quota_in(const std::string& text) {
        char* end = nullptr;
        const double quota = std::strtod(text.c_str(), &end), period = std::strtod(end, nullptr);
        return quota > 0 && period > 0 && quota < 1e15 && period < 1e15 ? quota / period : none;
    }
    static bool lists(std::string_view names, std::string_view name) {
        for (std::size_t at = 0; at <= names.size();) {
            const std::size_t end = names.find(',', at) < names.size() ? names.find(',', at) : names.size();
            if (names.substr(at, end - at) == name) return true;
            at = end + 1;
        }
        return false;
    }
    static std::string_view field(std::string_view text, int number) {
        for (; number > 0; --number) {
            const std::size_t space = text.find(' ');
            if (space == std::string_view::npos) return {};
            text.remove_prefix(space + 1);
        }
        return text.substr(0, text.find(' '));
    }
    template <class F>
    static void lines(const std::string& text, F f) {
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t end = text.find('\n', at) < text.size() ? text.find('\n', at) : text.size();
            f(std::string_view(text).substr(at, end - at));
            at = end + 1;
        }
    }
    std::string text_of(const std::string& path) const {
        std::string text;
        if (std::FILE* const f = std::fopen((root_ + path).c_str(), "re")) {
            char part[4096];
            while (const std::size_t n = std::fread(part, 1, sizeof part, f)) text.append(part, n);
            std::fclose(f);
        }
        return text;
    }
    std::string root_;
};

}  // namespace colls::inline v1::detail
