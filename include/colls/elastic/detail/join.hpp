// join(): a bootstrap whose exchange is a star of connections between endpoints.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/elastic/detail/star.hpp>
#include <colls/net/detail/forming/bootstrap.hpp>

namespace colls::inline v1 {

[[gnu::cold]] COLLS_INLINE communicator join(
    endpoint& own, std::string_view uuid, std::span<const std::string> handles, const join_options& how) {
    using namespace detail;
    using namespace endpoints;
    endpoint::state& e = own.opened();
    if (uuid.empty()) refuse_join(uuid, error_text() << "the uuid is empty");
    const join_list list = read_list(e.own, uuid, handles);
    if (e.has_used(number_of_group(uuid)))
        refuse_join(uuid, error_text() << "this endpoint has used that uuid before: each attempt needs a new one");
    if (how.timeout < 0) refuse_join(uuid, error_text() << "the timeout is " << how.timeout << " s");
    environment env = environment::read();
    if (how.accepted) how.accepted();
    star s(e, uuid, list, how.timeout > 0 ? how.timeout : env.timeout);
    s.meet_all();
    env.timeout = s.seconds_left();
    return form_over(
        s, {.exchange = s,
               .rank = list.own,
               .size = list.size(),
               .env = env,
               .keeps_memory = false,
               .source = "join",
               .listen = [&](bool alone) { return listen_for_members(list.own, how.interface_name, alone); }});
}

}  // namespace colls::inline v1
