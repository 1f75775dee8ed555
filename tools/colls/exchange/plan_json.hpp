// The JSON of a plan, read with words for each place: what is missing, of another type or out of range is refused in
// one line that says where it is.
#pragma once

#include <nlohmann/json.hpp>

#include <initializer_list>
#include <string>
#include <vector>

namespace exchange {

/// A text of the file's in quotes, on one line, and no longer than can be read.
std::string quoted(const std::string& text);

/// A value of the file, and where it is. It refers to the JSON.
class json_value {
public:
    json_value(const nlohmann::json& value, std::string where) : value_(&value), where_(std::move(where)) {}

    const std::string& where() const { return where_; }
    /// The same under another name, for what is better known by one.
    json_value named(std::string where) const { return {*value_, std::move(where)}; }

    // Members of an object.
    bool has(const char* key) const;
    json_value at(const char* key) const;
    /// Refuses members with other names than these: what is not understood is not left out.
    void only(std::initializer_list<const char*> keys) const;

    std::vector<json_value> list() const;
    int integer(int least, int most) const;
    std::string text() const;
    bool flag() const;
    /// A size in bytes; as large as the type can say, if it is larger.
    unsigned long long bytes() const;

private:
    [[noreturn]] void refuse(const char* wanted) const;

    const nlohmann::json* value_;
    std::string where_;
};

/// Throws refused, with line and column, where the text is no JSON.
nlohmann::json parse_json(const std::string& text);

}  // namespace exchange
