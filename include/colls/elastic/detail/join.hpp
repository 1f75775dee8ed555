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
    star s(e, uuid, list, how.timeout > 0 ? how.timeout : environment::read().timeout);
    try {
        s.meet();
        communicator comm = bootstrap(list.own, list.size(), s,
            {.interface_name = how.interface_name, .timeout = s.seconds_left(), .own_memory = true});
        const char formed = 1;
        std::vector<char> all(handles.size());
        s.all_gather(&formed, 1, all.data());  // nobody has the group before all have it
        return comm;
    } catch (const error& x) {
        if (std::string_view(x.what()).starts_with("colls: join ")) throw;
        if (x.code() == errc::peer_failed) s.look_for_cause();
        // An error of the forming: ranks are positions.
        const int about = x.peer() == none ? list.own : x.peer();
        s.fail(x.code(), about, error_text() << list.name(about) << ": " << quoted(x.what()));
    } catch (const std::exception& x) {
        s.tell(errc::peer_failed, list.own, std::string(list.name(list.own)) + ": " + x.what());
        throw;
    }
}

}  // namespace colls::inline v1
