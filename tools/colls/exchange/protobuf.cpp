#include "protobuf.hpp"

namespace exchange::protobuf {

namespace {

enum class wire : unsigned char { number = 0, sized = 2 };

void append_varint(std::string& to, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
    to.push_back(static_cast<char>(value));
}
void append_key(std::string& to, int field, wire how) {
    append_varint(to, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(how));
}

}  // namespace

message& message::number(int field, std::uint64_t value) {
    append_key(encoded_, field, wire::number);
    append_varint(encoded_, value);
    return *this;
}

message& message::text(int field, std::string_view value) {
    append_key(encoded_, field, wire::sized);
    append_varint(encoded_, value.size());
    encoded_ += value;
    return *this;
}

message& message::numbers(int field, const std::set<std::uint64_t>& values) {
    if (values.empty()) return *this;
    std::string packed;
    for (const std::uint64_t value : values) append_varint(packed, value);
    return text(field, packed);
}

std::string message::delimited() const {
    std::string all;
    append_varint(all, encoded_.size());
    return all + encoded_;
}

}  // namespace exchange::protobuf
