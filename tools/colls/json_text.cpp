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

void print(const nlohmann::json& value) { fmt::print("{}\n", value.dump(2)); }

}  // namespace tool
