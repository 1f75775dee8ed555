// A list of transfers as a header of C++: a schedule that compilers prove and programs use.
#pragma once

#include "exchange/transfer_table.hpp"

#include <string>

namespace tool {

/// `name`: the type's, "my::schedule", its namespaces included. `remark`: how it was made, for the first line.
std::string header_of(const exchange::transfer_table& table, const std::string& name, const std::string& remark);

}  // namespace tool
