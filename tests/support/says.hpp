// Whether a text says what it must: for either version of Catch2, whose own matchers for that have different names.
#pragma once

#include <initializer_list>
#include <string>

namespace support {

/// Empty where all parts are in the text; else what is missing, and where.
inline std::string lacks(const std::string& text, std::initializer_list<std::string> parts) {
    for (const std::string& part : parts)
        if (text.find(part) == std::string::npos) return "'" + part + "' is not in: " + text;
    return {};
}

}  // namespace support
