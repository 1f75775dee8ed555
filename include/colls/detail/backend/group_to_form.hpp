// A group of ranks that pass messages, while it is formed.
// IWYU pragma: private
#pragma once

#include <colls/detail/backend/join.hpp>
#include <colls/extend/message_member.hpp>

#include <utility>

namespace colls::inline v1::detail {

/// It is split from a group of this rank, `from`, or is the first.
class group_to_form final : public extend::message_formation {
public:
    explicit group_to_form(const extend::formation& f, rank_context* from = nullptr)
        : message_formation(f), from_(from) {}
    void exchange(extend::message_member&& over, const void* own, std::size_t bytes, void* all) const override {
        exchange_by_messages(std::move(over), rank, size(), from_, own, bytes, all);
    }

private:
    rank_context* from_;
};

}  // namespace colls::inline v1::detail
