// Runs of ranks, without the type of their function: defined in detail/run/.
// IWYU pragma: private, include <colls/transports/threads.hpp>
#pragma once

#include <colls/detail/call/rank_task.hpp>

namespace colls::inline v1 {

namespace threads::detail {
void run(int n, colls::detail::rank_task f);
}
namespace processes::detail {
void run(int n, colls::detail::rank_task f);
}

}  // namespace colls::inline v1
