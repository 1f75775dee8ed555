// Whether a text says what it must: for either version of Catch2, whose own matchers for that have different names.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace support {

inline bool says(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// Empty where all parts are in the text; else what is missing, and where.
inline std::string lacks(const std::string& text, std::initializer_list<std::string> parts) {
    for (const std::string& part : parts)
        if (text.find(part) == std::string::npos) return "'" + part + "' is not in: " + text;
    return {};
}

}  // namespace support
