#include "hosts.hpp"

#include <colls/views.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace tool {

std::vector<int> hosts_of(const std::string& text, int n) {
    std::vector<int> sizes, hosts;
    const char *at = text.data(), *const end = at + text.size();
    for (bool more = !text.empty(); more;) {
        int size = 0;
        const auto [next, wrong] = std::from_chars(at, end, size);
        more = next != end && *next == ',';
        at = more ? next + 1 : next;
        if (wrong != std::errc() || size < 1 || (!more && next != end))
            throw std::runtime_error(fmt::format(
                "--hosts {}: write how many ranks each host has, as 2,1,3, or one number for all, as 4", text));
        sizes.push_back(size);
    }
    if (sizes.size() == 1) {  // the last host may have fewer
        for (int r = 0; r < n; ++r) hosts.push_back(r / sizes[0]);
        return hosts;
    }
    long all = 0;
    for (const int size : sizes) all += size;
    if (!sizes.empty() && all != n)
        throw std::runtime_error(fmt::format("--hosts {}: these are {} ranks, and the group has {}", text, all, n));
    for (std::size_t h = 0; h < sizes.size(); ++h)
        hosts.insert(hosts.end(), static_cast<std::size_t>(sizes[h]), static_cast<int>(h));
    return hosts;
}

far_traffic far_traffic_of(const colls::any_schedule& s, const std::vector<int>& hosts) {
    const auto n = hosts.size();
    std::vector<std::uint64_t> ranks(n), each(n);
    far_traffic all;
    int last = -1;
    for (const colls::views::transfer& t : colls::views::transfers(s, static_cast<int>(n))) {
        const auto from = static_cast<std::size_t>(t.from);
        const auto host = static_cast<std::size_t>(hosts[from]);
        if (hosts[from] == hosts[static_cast<std::size_t>(t.to)]) continue;
        all.rounds += t.round != last;
        last = t.round;
        const auto blocks = static_cast<std::uint64_t>(t.blocks.size());
        all.blocks = std::max(all.blocks, ranks[from] += blocks);
        all.of_a_host = std::max(all.of_a_host, each[host] += blocks);
    }
    return all;
}

}  // namespace tool
