// A group of ranks that pass messages, while it is formed.
// IWYU pragma: private
#pragma once

#include <colls/detail/backend/join.hpp>
#include <colls/extend/message_member.hpp>

#include <utility>

namespace colls::inline v1::detail {

/// It is split from a group of this rank, `from`, or is the first. `timeout`: seconds for which a rank waits for the
/// others in an exchange; 0: COLLS_TIMEOUT.
class group_to_form final : public extend::message_formation {
public:
    explicit group_to_form(const extend::formation& f, rank_context* from = nullptr, double timeout = 0)
        : message_formation(f), from_(from), timeout_(timeout) {}
    void exchange(extend::message_member&& over, const void* own, std::size_t bytes, void* all) const override {
        exchange_by_messages(std::move(over), rank, size(), from_, timeout_, own, bytes, all);
    }

private:
    rank_context* from_;
    double timeout_;
};

}  // namespace colls::inline v1::detail
