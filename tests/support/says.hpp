// Checks of texts, without the string matchers of Catch2, which have different names in its versions 2 and 3.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace support {

/// Whether the text contains the part.
inline bool says(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// Empty where the text contains all parts; else the first missing part and the text.
inline std::string lacks(const std::string& text, std::initializer_list<std::string> parts) {
    for (const std::string& part : parts)
        if (text.find(part) == std::string::npos) return "'" + part + "' is not in: " + text;
    return {};
}

}  // namespace support
