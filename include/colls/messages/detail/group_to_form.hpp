// A group of ranks that pass messages, while it is formed.
// IWYU pragma: private
#pragma once

#include <colls/detail/backend/join.hpp>
#include <colls/extend/message_member.hpp>

#include <optional>
#include <utility>

namespace colls::inline v1::detail {

/// It is split from a group of this rank, `from`, or is the first. `timeout`: seconds for which a rank waits for the
/// others in an exchange; 0: COLLS_TIMEOUT. `shrinks`: it is formed also where the exchange fails.
class group_to_form final : public extend::message_formation {
public:
    explicit group_to_form(
        const extend::formation& f, rank_context* from = nullptr, double timeout = 0, bool shrinks = false)
        : message_formation(f), from_(from), timeout_(timeout), shrinks_(shrinks) {}
    void exchange(extend::message_member&& over, const void* own, std::size_t bytes, void* all) const override {
        exchange_by_messages(std::move(over), rank, size(), from_, timeout_, own, bytes, all);
    }

    bool forms_broken(const error& why) const override {
        if (shrinks_) failed_.emplace(why);
        return shrinks_;
    }
    /// The error of an exchange, where the group was formed all the same.
    const std::optional<error>& failed() const { return failed_; }

private:
    rank_context* const from_;
    const double timeout_;
    const bool shrinks_;
    mutable std::optional<error> failed_;
};

}  // namespace colls::inline v1::detail
