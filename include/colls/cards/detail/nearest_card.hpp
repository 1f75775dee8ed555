// Which network cards are near a GPU, or near cores, by the tree of PCI devices in /sys; and which of them the
// environment allows.
// IWYU pragma: private
//
// Needs no libibverbs and no GPU: tests give it trees of their own.
#pragma once

#include <colls/detail/support/host.hpp>

#include <dirent.h>
#include <fnmatch.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <cctype>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace colls::inline v1::detail::rdma {

/// How many cards a rank uses at once, as the lanes of a message: the text of a control message names no more.
inline constexpr std::uint32_t most_lanes = 4;

/// Calls f with each pattern of a list, and whether it excludes what it matches.
template <class F>
void for_each_pattern(std::string_view list, const F& f) {
    while (!list.empty()) {
        const std::size_t end = list.find(',');
        std::string pattern(list.substr(0, end));
        list = end == std::string_view::npos ? std::string_view{} : list.substr(end + 1);
        std::erase_if(pattern, [](unsigned char c) { return std::isspace(c) != 0; });
        if (pattern.empty()) continue;
        const bool excludes = pattern.front() == '^';
        f(pattern.c_str() + excludes, excludes);
    }
}
/// Does a list of patterns, separated by commas, name any device? A pattern has the wildcards of a shell; those that
/// begin with ^ exclude what they match, also from those before and after.
inline bool names_some(std::string_view list) {
    bool some = false;
    for_each_pattern(list, [&](const char*, bool excludes) { some = some || !excludes; });
    return some;
}
/// Does it name `device`? A list that names none allows all that it does not exclude.
inline bool is_allowed(std::string_view list, const char* device) {
    bool named = !names_some(list), excluded = false;
    for_each_pattern(list, [&](const char* pattern, bool excludes) {
        if (fnmatch(pattern, device, 0) == 0) (excludes ? excluded : named) = true;
    });
    return named && !excluded;
}

/// The cores in a list of the system's, such as "0-15,32-47".
inline cpu_set_t cores_of_list(std::istream&& list) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    std::size_t first = 0;
    for (char separator = ','; separator == ',' && list >> first;) {
        std::size_t last = first;
        if (list.peek() == '-') list.ignore() >> last;
        for (std::size_t c = first; c <= last && c < CPU_SETSIZE; ++c) CPU_SET(c, &cores);
        separator = '\0';
        list.get(separator);
    }
    return cores;
}

/// How two devices of a host reach each other, the nearest first.
enum class pci_distance : int {
    same_switch,  ///< below one port of a host bridge, by switches alone
    same_bridge,  ///< through a host bridge
    same_node,    ///< through the memory controllers of a NUMA node
    other_node,   ///< through another NUMA node
    unknown       ///< one of them is no PCI device, as soft-RoCE
};

/// The PCI devices of a host.
class pci_tree {
public:
    explicit pci_tree(std::string sysfs = "/sys") : root_(std::move(sysfs)) {}

    /// Where the device with that address, such as 0000:1b:00.0, or the card of that RDMA device or address, is in the
    /// tree; empty: that is not known.
    std::string path_of(std::string_view address) const {
        std::string name(address);
        for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        // CUDA may write a domain of 8 digits.
        if (name.size() > 12) name.erase(0, name.size() - 12);
        return real(root_ + "/bus/pci/devices/" + name);
    }
    std::string path_of_card(const char* device) const {
        const std::string path = real(root_ + "/class/infiniband/" + device + "/device");
        return path.empty() ? path_of(device) : path;
    }
    /// The cores of the NUMA node of the device there; none where the system does not tell.
    cpu_set_t cores_near(const std::string& path) const {
        const std::string node = "/devices/system/node/node" + std::to_string(node_of(path));
        return cores_of_list(std::istringstream(text_of_file(root_ + node + "/cpulist")));
    }

    /// The kind of the way, and then how many bridges are on it.
    struct way {
        pci_distance kind = pci_distance::unknown;
        int bridges = 0;
        friend auto operator<=>(const way&, const way&) = default;
    };
    way between(const std::string& a, const std::string& b) const {
        if (a.empty() || b.empty()) return {};
        const std::vector<std::string> x = parts_of(a), y = parts_of(b);
        std::size_t common = 0;
        while (common < x.size() && common < y.size() && x[common] == y[common]) ++common;
        if (common == 0) {
            const int p = node_of(a), q = node_of(b);
            return {p == q && p >= 0 ? pci_distance::same_node : pci_distance::other_node, 0};
        }
        // Part 0 is the host bridge, part 1 one of its ports; two devices of the bridge itself are 0 bridges apart.
        if (common == 1) return {pci_distance::same_bridge, 0};
        return {pci_distance::same_switch, static_cast<int>(x.size() + y.size() - 2 * common)};
    }

    /// The addresses of the host's GPUs of NVIDIA, sorted.
    std::vector<std::string> gpus() const {
        std::vector<std::string> all;
        const std::string folder = root_ + "/bus/pci/devices";
        if (DIR* const d = opendir(folder.c_str())) {
            while (const dirent* const e = readdir(d)) {
                const std::string at = folder + "/" + e->d_name;
                if (e->d_name[0] == '.' || line_of(at + "/vendor") != "0x10de") continue;
                const std::string kind = line_of(at + "/class");
                if (kind.rfind("0x0302", 0) == 0 || kind.rfind("0x0300", 0) == 0) all.emplace_back(e->d_name);
            }
            closedir(d);
        }
        std::sort(all.begin(), all.end());
        return all;
    }

    /// Those of the cards that are on a NUMA node of these cores, in their order; all where none is.
    std::vector<std::string> near_cores(const cpu_set_t& cores, const std::vector<std::string>& cards) const {
        std::vector<std::string> near;
        for (const std::string& c : cards) {
            cpu_set_t common = cores_near(path_of_card(c.c_str()));
            CPU_AND(&common, &common, &cores);
            if (CPU_COUNT(&common) > 0) near.push_back(c);
        }
        return near.empty() ? cards : near;
    }
    /// The nearest ones to the GPU among the cards, in their order; all where no way is known.
    /// `taken`: the place of the one that the GPU takes, so that the GPUs that are equally near the same ones spread
    /// over them. `sharing`: how many these GPUs are: where there are more cards it takes each `sharing`th from there.
    std::vector<std::string> nearest(std::string_view gpu, const std::vector<std::string>& cards, std::size_t& taken,
        std::size_t* sharing = nullptr) const {
        const std::string at = path_of(gpu);
        std::vector<std::string> best = nearest_to(at, cards);
        std::size_t before = 0, all = 0;
        bool found = false;
        for (const std::string& other : gpus()) {
            const std::string there = path_of(other);
            found = found || there == at;
            const bool same = nearest_to(there, cards) == best;
            all += same, before += same && !found;
        }
        if (sharing) *sharing = std::max<std::size_t>(all, 1);
        taken = best.empty() ? 0 : before % best.size();
        return best;
    }

private:
    std::vector<std::string> nearest_to(const std::string& gpu, const std::vector<std::string>& cards) const {
        std::vector<std::string> best;
        way least;
        for (const std::string& c : cards) {
            const way w = between(gpu, path_of_card(c.c_str()));
            if (!best.empty() && w > least) continue;
            if (best.empty() || w < least) best.clear();
            least = w;
            best.push_back(c);
        }
        return best;
    }
    /// The host bridge, and the devices from there on: the components from "pciDDDD:BB" on.
    static std::vector<std::string> parts_of(const std::string& path) {
        std::vector<std::string> all;
        for (std::size_t at = 0; at < path.size();) {
            const std::size_t end = std::min(path.find('/', at), path.size());
            const std::string part = path.substr(at, end - at);
            if (!all.empty() || part.rfind("pci", 0) == 0) all.push_back(part);
            at = end + 1;
        }
        return all;
    }
    int node_of(const std::string& path) const {
        const std::string text = line_of(path + "/numa_node");
        return text.empty() ? -1 : std::atoi(text.c_str());
    }
    static std::string line_of(const std::string& file) {
        std::string line = text_of_file(file);
        while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.pop_back();
        return line;
    }
    static std::string real(const std::string& path) {
        char to[PATH_MAX];
        return realpath(path.c_str(), to) != nullptr ? std::string(to) : std::string();
    }

    std::string root_;
};

}  // namespace colls::inline v1::detail::rdma
