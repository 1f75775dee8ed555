// A reader of Chakra's execution traces for tests: its own decoder of protobuf's wire format, and the schema's fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chakra {

inline void require(bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error("no trace of Chakra: " + what);
}

inline std::uint64_t take_varint(std::string_view& from) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < from.size() && i < 10; ++i) {
        const auto byte = static_cast<unsigned char>(from[i]);
        value += static_cast<std::uint64_t>(byte % 128) << (7 * i);
        if (byte >= 128) continue;
        from.remove_prefix(i + 1);
        return value;
    }
    throw std::runtime_error("no trace of Chakra: a varint without end");
}
inline std::string_view take_sized(std::string_view& from) {
    const std::uint64_t size = take_varint(from);
    require(size <= from.size(), "a length beyond the end");
    const std::string_view taken = from.substr(0, size);
    from.remove_prefix(size);
    return taken;
}

/// The fields of one message by number: numbers, or bytes. Each field must be in the schema, as a number or as bytes.
struct fields {
    std::multimap<int, std::uint64_t> numbers;
    std::multimap<int, std::string_view> bytes;

    fields(std::string_view message, const std::map<int, char>& schema) {
        while (!message.empty()) {
            const std::uint64_t key = take_varint(message);
            const int field = static_cast<int>(key / 8);
            const std::string name = "field " + std::to_string(field);
            require(schema.contains(field), name + " is not in the schema");
            const bool sized = schema.at(field) == 's';
            require(key % 8 == (sized ? 2U : 0U), name + " has another type");
            if (sized)
                bytes.emplace(field, take_sized(message));
            else
                numbers.emplace(field, take_varint(message));
        }
    }
    std::uint64_t number(int field) const {
        require(numbers.count(field) == 1, "not one field " + std::to_string(field));
        return numbers.find(field)->second;
    }
    std::string text(int field) const {
        require(bytes.count(field) == 1, "not one field " + std::to_string(field));
        return std::string(bytes.find(field)->second);
    }
    std::vector<std::uint64_t> packed(int field) const {
        std::vector<std::uint64_t> all;
        const auto [first, last] = bytes.equal_range(field);
        for (auto each = first; each != last; ++each)
            for (std::string_view rest = each->second; !rest.empty();) all.push_back(take_varint(rest));
        return all;
    }
};

struct value {
    std::string type;
    std::uint64_t number = 0;
    std::string text;
};
using attributes = std::map<std::string, value>;

inline attributes attributes_of(const fields& message, int field) {
    static const std::map<int, std::string> types{{7, "int32"}, {9, "int64"}, {13, "uint64"}, {27, "bool"}};
    attributes all;
    const auto [first, last] = message.bytes.equal_range(field);
    for (auto each = first; each != last; ++each) {
        const fields a(each->second, {{1, 's'}, {7, 'n'}, {9, 'n'}, {13, 'n'}, {27, 'n'}, {29, 's'}});
        require(a.numbers.size() + a.bytes.size() == 2, "an attribute without one name and one value");
        value v{"string", 0, ""};
        if (a.numbers.empty())
            v.text = a.text(29);
        else
            v = {types.at(a.numbers.begin()->first), a.numbers.begin()->second, ""};
        require(all.emplace(a.text(1), v).second, "an attribute twice: " + a.text(1));
    }
    return all;
}

enum node_type : std::uint64_t { compute = 4, send = 5, receive = 6 };

struct node {
    std::uint64_t id = 0, type = 0;
    std::string name;
    std::vector<std::uint64_t> control, data;
    attributes with;

    std::uint64_t number(const std::string& attribute, const std::string& type_wanted) const {
        require(with.contains(attribute), name + " has no " + attribute);
        require(with.at(attribute).type == type_wanted, attribute + " is no " + type_wanted);
        return with.at(attribute).number;
    }
    std::uint64_t source() const { return number("comm_src", "int32"); }
    std::uint64_t destination() const { return number("comm_dst", "int32"); }
    std::uint64_t tag() const { return number("comm_tag", "int32"); }
    std::uint64_t size() const { return number("comm_size", "int64"); }
};

struct file {
    std::string version;
    attributes metadata;
    std::vector<node> nodes;
};

/// Reads one rank's file. Throws std::runtime_error where it is none.
inline file read(std::string_view content) {
    const fields first(take_sized(content), {{1, 's'}, {2, 's'}});
    file f{first.text(1), attributes_of(first, 2), {}};
    while (!content.empty()) {
        const fields m(take_sized(content), {{1, 'n'}, {2, 's'}, {3, 'n'}, {4, 's'}, {5, 's'}, {10, 's'}});
        f.nodes.push_back({m.number(1), m.number(3), m.text(2), m.packed(4), m.packed(5), attributes_of(m, 10)});
    }
    return f;
}

}  // namespace chakra
