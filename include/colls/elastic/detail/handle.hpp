// The handle of an endpoint: a text that says where another process reaches it, and nothing that is secret.
//
//     colls1/HOST/NAME/PROCESS/PORT/ADDRESS,ADDRESS...
//
// HOST (16 hexadecimal digits) is equal for processes that can share memory; NAME (32) is random. Containers have equal
// addresses on many hosts: so who answers at an address has to show the name.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/net/detail/forming/interfaces.hpp>
#include <colls/net/detail/forming/records.hpp>

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace colls::inline v1::detail::endpoints {

using endpoint_name = rendezvous::nonce;

/// As a handle has it.
[[gnu::cold]] inline std::string text_of(const endpoint_name& name) {
    std::string s;
    for (const std::byte b : name)
        for (const unsigned half : {std::to_integer<unsigned>(b) >> 4, std::to_integer<unsigned>(b) & 15u})
            s += "0123456789abcdef"[half];
    return s;
}

struct handle {
    static constexpr std::size_t most_addresses = 4, most_text = 255;
    static constexpr std::string_view version = "colls1";

    std::uint64_t host = 0;
    endpoint_name name{};
    std::int64_t pid = 0;
    std::vector<address> at{};  ///< at all of which it listens, perhaps not all reached from everywhere

    [[gnu::cold]] std::string text() const {
        char host_digits[17];
        std::snprintf(host_digits, sizeof host_digits, "%016llx", static_cast<unsigned long long>(host));
        std::string s(version);
        s.append("/").append(host_digits).append("/").append(text_of(name));
        s.append("/").append(std::to_string(pid)).append("/").append(std::to_string(at[0].port()));
        for (std::size_t i = 0; i < at.size(); ++i) s.append(i == 0 ? "/" : ",").append(host_text(at[i]));
        return s;
    }
    /// "process 7 at 10.0.0.3:2000".
    std::string place() const { return "process " + std::to_string(pid) + " at " + text_of(at[0]); }
};

/// The name in the text of a handle, as text_of has it.
inline std::string_view name_in(std::string_view handle_text) {
    constexpr std::size_t at = handle::version.size() + 18, digits = 2 * sizeof(endpoint_name);
    return handle_text.substr(std::min(at, handle_text.size()), digits);
}

/// The handle that the text is; where it is none, `why` says so.
[[gnu::cold]] inline std::optional<handle> parse_handle(std::string_view text, const char*& why) {
    if (!text.starts_with("colls")) return why = "is no handle of an endpoint", std::nullopt;
    if (!text.starts_with(handle::version) || text.substr(handle::version.size(), 1) != "/")
        return why = "is a handle of another version of colls", std::nullopt;
    why = "is a handle with a part that is missing or wrong";
    std::vector<std::string_view> parts;
    for (std::string_view rest = text.substr(handle::version.size()); !rest.empty();) {  // each begins with a slash
        const std::size_t end = rest.find('/', 1);
        parts.push_back(rest.substr(1, end == rest.npos ? end : end - 1));
        rest.remove_prefix(end == rest.npos ? rest.size() : end);
    }
    if (parts.size() != 5 || parts[0].size() != 16 || parts[1].size() != 32) return {};
    const auto number = [](std::string_view digits, auto& to, int base) {
        const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), to, base);
        return code == std::errc() && end == digits.data() + digits.size();
    };
    handle h;
    int port = 0;
    if (!number(parts[0], h.host, 16) || !number(parts[2], h.pid, 10) || h.pid <= 0 || !number(parts[3], port, 10) ||
        port < 1 || port > 65535)
        return {};
    for (std::size_t i = 0; i < h.name.size(); ++i) {
        unsigned char b = 0;
        if (!number(parts[1].substr(2 * i, 2), b, 16)) return {};
        h.name[i] = std::byte{b};
    }
    for (std::string_view rest = parts[4]; !rest.empty();) {
        const std::size_t end = rest.find(',');
        h.at.push_back(numeric_address(std::string(rest.substr(0, end)), port));
        if (h.at.back().length == 0) return {};
        rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    }
    if (h.at.empty() || h.at.size() > handle::most_addresses || h.text() != text) return {};  // one text for a handle
    return h;
}

}  // namespace colls::inline v1::detail::endpoints
