#include "ports.hpp"

#include <algorithm>

namespace exchange {

// Messages are the edges of a bipartite graph of senders and receivers, and ports its colours: as many as the largest
// degree suffice (König). An edge whose ends have no free colour in common swaps two colours along a path.
std::pair<std::vector<int>, int> ports_of(const std::vector<std::pair<int, int>>& messages, int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    std::vector<int> sends(n), receives(n);
    int ports = 0;
    for (const auto& [from, to] : messages)
        ports = std::max({ports, ++sends[static_cast<std::size_t>(from)], ++receives[static_cast<std::size_t>(to)]});
    // The message on each port of each sender, then of each receiver, or -1.
    std::vector<std::vector<int>> on(2 * n, std::vector<int>(static_cast<std::size_t>(ports), -1));
    std::vector<int> port(messages.size(), -1);
    const auto end_of = [&](int message, bool receiver) {
        const auto& [from, to] = messages[static_cast<std::size_t>(message)];
        return receiver ? n + static_cast<std::size_t>(to) : static_cast<std::size_t>(from);
    };
    const auto free_at = [&](std::size_t end) {
        return static_cast<int>(std::ranges::find(on[end], -1) - on[end].begin());
    };
    const auto put = [&](int message, int p) {
        port[static_cast<std::size_t>(message)] = p;
        for (const bool receiver : {false, true}) on[end_of(message, receiver)][static_cast<std::size_t>(p)] = message;
    };
    for (int m = 0; m < static_cast<int>(messages.size()); ++m) {
        const int a = free_at(end_of(m, false)), b = free_at(end_of(m, true));
        // The path from the receiver whose messages have ports a, b, a, ...: it does not reach the sender.
        std::vector<int> path;
        bool receiver = true;
        std::size_t at = end_of(m, true);
        for (int p = a; a != b; p = p == a ? b : a) {
            const int next = on[at][static_cast<std::size_t>(p)];
            if (next < 0) break;
            path.push_back(next);
            receiver = !receiver;
            at = end_of(next, receiver);
        }
        for (const int each : path)
            for (const bool end : {false, true})
                on[end_of(each, end)][static_cast<std::size_t>(port[static_cast<std::size_t>(each)])] = -1;
        for (const int each : path) put(each, port[static_cast<std::size_t>(each)] == a ? b : a);
        put(m, a);
    }
    return {port, std::max(ports, 1)};
}

}  // namespace exchange
