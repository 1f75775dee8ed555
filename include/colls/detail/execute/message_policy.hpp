// How the message executor cuts data into messages.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <cstddef>

namespace colls::inline v1::detail {

struct message_policy {
    static constexpr std::size_t chunk = std::size_t{512} << 10;  ///< bytes of a unit
    static constexpr std::size_t chunks = 4;  ///< under way at most, where the schedule has many rounds
};

}  // namespace colls::inline v1::detail
