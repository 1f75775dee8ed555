// The group of all ranks that were launched together.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/forming/bootstrap.hpp>
#include <colls/net/detail/forming/launch.hpp>
#include <colls/net/detail/forming/rendezvous.hpp>

namespace colls::inline v1 {

COLLS_INLINE communicator world(const launch& l) {
    using namespace detail;
    bring_bootstrap();
    const environment env = environment::read();
    const auto star = meet(l, env.timeout);
    return form_over(*star, {.exchange = *star,
                                .rank = l.rank,
                                .size = l.size,
                                .env = env,
                                .keeps_memory = false,
                                .needs_memory = true,
                                .source = l.source,
                                .listen = [&](bool) {
                                    return l.size == 1 ? listen_on_loopback()
                                                       : rendezvous::listen_for_members(l, star->at);
                                }});
}
COLLS_INLINE communicator world() { return world(read_launch()); }

}  // namespace colls::inline v1
