// JSON, and what nlohmann-json says is wrong, as text for a person.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace tool {

/// Its text without the names of its exceptions: "[json.exception.type_error.304] cannot use ..." -> "cannot use ...".
std::string without_exception_names(std::string text);

/// Its text. Bytes that are no UTF-8, as names of files and hosts may have, become U+FFFD.
std::string text_of(const nlohmann::json& value, int indent = -1);

/// Prints `value`, indented.
void print(const nlohmann::json& value);

}  // namespace tool
