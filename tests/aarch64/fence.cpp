// Compiled and not run: what a rank does before it trusts the data that it has read.
#include <colls/detail/group/failure.hpp>

extern "C" void fence_before_poison(colls::detail::rank_context& self, const colls::detail::wait_site& at) {
    colls::detail::confirm(self, at);
}
