// What nlohmann-json says is wrong, as a line for a person.
#pragma once

#include <exception>
#include <string>

namespace tool {

/// Its text without the names of its exceptions: "[json.exception.type_error.304] cannot use ..." -> "cannot use ...".
inline std::string without_exception_names(std::string text) {
    for (std::size_t at; (at = text.find("[json.exception.")) != std::string::npos;) {
        const std::size_t end = text.find("] ", at);
        if (end == std::string::npos) break;
        text.erase(at, end + 2 - at);
    }
    return text;
}

}  // namespace tool
