#include "json_text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tool {

std::string without_exception_names(std::string text) {
    for (std::size_t at; (at = text.find("[json.exception.")) != std::string::npos;) {
        const std::size_t end = text.find("] ", at);
        if (end == std::string::npos) break;
        text.erase(at, end + 2 - at);
    }
    return text;
}

std::string text_of(const nlohmann::json& value, int indent) {
    return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

void print(const nlohmann::json& value) { fmt::print("{}\n", text_of(value, 2)); }

}  // namespace tool
