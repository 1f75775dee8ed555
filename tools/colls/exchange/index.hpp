// An index that is a signed number.
#pragma once

#include <cstddef>

namespace exchange {

inline std::size_t at(long i) { return static_cast<std::size_t>(i); }

}  // namespace exchange
