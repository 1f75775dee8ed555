// Documents that are wrong in one place.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>

namespace support {

/// f(document) for each of `whole` with one value in it replaced by something that does not belong there.
inline void spoiled(const nlohmann::json& whole, const std::function<void(const nlohmann::json&)>& f) {
    using nlohmann::json;
    const json values[] = {nullptr, true, -1, 0.5, 1e300, 2147483647, 99999999999999999ll, "", "x", json::array(),
        json::object(), json::array({1, "x"})};
    const json flat = whole.flatten();
    for (const auto& [path, old] : flat.items())
        for (const json& value : values) {
            json now = whole;
            now[json::json_pointer(path)] = value;
            f(now);
        }
}

}  // namespace support
