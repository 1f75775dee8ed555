// Messages of protobuf, encoded: what a few fields of a known schema need, without the library and its compiler.
//
// A field begins with its number times 8, plus how its value is written: 0 a number, 2 a length and so many bytes.
// Numbers and lengths are varints: 7 bits a byte, the lowest first; all bytes but the last have the highest bit set.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace exchange::protobuf {

/// A message, to which fields are appended. Fields are written whatever their value: in a oneof a 0 counts.
class message {
public:
    /// A field of type bool, enum, uint32, uint64, int32 or int64; negative ones as 64 bits (two's complement).
    message& number(int field, std::uint64_t value);
    /// A field of type string or bytes.
    message& text(int field, std::string_view value);
    /// A field of a message's type.
    message& add(int field, const message& value) { return text(field, value.encoded_); }
    /// A field of a repeated number's type, packed as proto3 has it; without numbers there is no field.
    message& numbers(int field, const std::set<std::uint64_t>& values);

    const std::string& encoded() const { return encoded_; }
    /// As one of several in a file: its length comes first.
    std::string delimited() const;

private:
    std::string encoded_;
};

}  // namespace exchange::protobuf
