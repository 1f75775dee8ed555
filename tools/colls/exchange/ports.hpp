// Ports for the messages of one round: a rank sends and receives one message on each port at most.
#pragma once

#include <utility>
#include <vector>

namespace exchange {

/// A port for each message (sender, receiver), and how many there are: as many as the busiest rank sends or receives.
std::pair<std::vector<int>, int> ports_of(const std::vector<std::pair<int, int>>& messages, int ranks);

}  // namespace exchange
