// The schedule of a call that names none.
#pragma once

#include <colls/config.hpp>

namespace colls::inline v1 {

/// As the schedule of a call: the library chooses among its families, from the predicted time at this group size, this
/// number of bytes and this machine (see explain.hpp for what it chooses, and why). All ranks of a group choose alike.
/// COLLS_SCHEDULE=name forces the choice where that family has the collective at this group size. COLLS_REPRODUCIBLE=1
/// restricts it to schedules of a single fold (reproducible.hpp).
struct automatic {};

}  // namespace colls::inline v1
