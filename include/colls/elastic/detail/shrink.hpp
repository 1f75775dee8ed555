// How a store decides which ranks remain in a shrink: the first list that is written under the group's key stands. So
// there is one decision for a group, whichever ranks die or are cut off; the next is that of the new group.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/detail/perform/group_calls.hpp>
#include <colls/elastic/detail/store.hpp>
#include <colls/elastic/shrink.hpp>
#include <colls/messages/detail/messaging_backend.hpp>

#include <string>

namespace colls::inline v1 {

[[gnu::cold]] COLLS_INLINE communicator elastic::shrink(communicator& comm, store& door, std::string_view name) {
    using namespace detail;
    const auto decide = [&](const rank_context& group, const shrink_agreement::value& own) {
        if (group.number == 0)
            throw_in_call(group.rank, "shrink", errc::unsupported,
                error_text() << "by a store: the transport gives its groups no number");
        const std::string key = std::string(name) + "/" + std::to_string(group.number);
        std::string text = std::to_string(own.place) + " ";
        for (const bool is_member : own.members) text += is_member ? '1' : '0';
        door.compare_and_set(key, "", text);
        text = door.read(key);
        const std::size_t space = std::min(text.find(' '), text.size());
        shrink_agreement::value v{{}, std::strtoull(text.c_str(), nullptr, 10)};
        for (const char c : text.substr(space))
            if (c != ' ') v.members.push_back(c == '1');
        if (v.members.size() != own.members.size())
            throw_in_call(group.rank, "shrink", errc::mismatch,
                error_text() << "the store's value of " << key << " is no list of this group's ranks");
        return v;
    };
    rank_context& self = comm.context();
    return communicator(shrink_by(self, [&] {
        return self.by_messages ? static_cast<messaging_backend&>(*self.backend).shrink_by(self, decide)
                                : self.backend->shrink(self);
    }));
}

}  // namespace colls::inline v1
