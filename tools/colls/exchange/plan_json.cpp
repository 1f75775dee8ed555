#include "plan_json.hpp"

#include "program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace exchange {

using nlohmann::json;

std::string quoted(const std::string& text) {
    constexpr std::size_t most = 40;
    const std::string dumped = json(text).dump(-1, ' ', true, json::error_handler_t::replace);
    return dumped.size() <= most ? dumped : dumped.substr(0, most) + "...\"";
}

bool json_value::has(const char* key) const {
    if (!value_->is_object()) refuse("an object");
    return value_->contains(key);
}

json_value json_value::at(const char* key) const {
    if (!has(key)) throw refused(fmt::format("{} has no \"{}\", which such plans must have", where_, key));
    return {(*value_)[key], fmt::format("{}, \"{}\"", where_, key)};
}

void json_value::only(std::initializer_list<const char*> keys) const {
    if (!value_->is_object()) refuse("an object");
    for (const auto& member : value_->items())
        if (std::ranges::none_of(keys, [&](const char* key) { return member.key() == key; }))
            throw refused(fmt::format("{} has {}, which is not understood: docs/exchange.md lists what is read", where_,
                quoted(member.key())));
}

std::vector<json_value> json_value::list() const {
    if (!value_->is_array()) refuse("a list");
    std::vector<json_value> all;
    all.reserve(value_->size());
    for (const json& each : *value_) all.emplace_back(each, fmt::format("{}[{}]", where_, all.size()));
    return all;
}

int json_value::integer(int least, int most) const {
    if (!value_->is_number_integer()) refuse("a whole number");
    const bool large = value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX;
    const std::int64_t n = large ? INT64_MAX : value_->get<std::int64_t>();
    if (n < least || n > most)
        throw refused(fmt::format("{} is {}: it must be from {} to {}", where_, value_->dump(), least, most));
    return static_cast<int>(n);
}

std::string json_value::text() const {
    if (!value_->is_string()) refuse("a text");
    return value_->get<std::string>();
}

bool json_value::flag() const {
    if (!value_->is_boolean()) refuse("true or false");
    return value_->get<bool>();
}

unsigned long long json_value::bytes() const {
    if (value_->is_number_unsigned()) return value_->get<unsigned long long>();
    // What does not fit is read as a number with a fraction.
    if (!value_->is_number_float() || value_->get<double>() < 1e19) refuse("a number of bytes");
    return UINT64_MAX;
}

void json_value::refuse(const char* wanted) const {
    throw refused(fmt::format("{} is {}, and must be {}", where_,
        value_->is_null()      ? "empty"
        : value_->is_object()  ? "an object"
        : value_->is_array()   ? "a list"
        : value_->is_string()  ? "a text"
        : value_->is_boolean() ? "true or false"
                               : "the number " + value_->dump(),
        wanted));
}

json parse_json(const std::string& text) {
    try {
        return json::parse(text);
    } catch (const json::parse_error& e) {
        const std::size_t end = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());
        const std::string before = text.substr(0, end);
        const std::size_t line = before.rfind('\n');
        throw refused(fmt::format("line {}, column {}: this is no JSON: the file may be cut off, or of another kind",
            std::ranges::count(before, '\n') + 1, line == std::string::npos ? end + 1 : end - line));
    }
}

}  // namespace exchange
