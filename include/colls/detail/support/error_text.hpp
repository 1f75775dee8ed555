// Builds the texts of errors and of lines on stderr.
// IWYU pragma: private, include <colls/error.hpp>
#pragma once

#include <colls/config.hpp>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace colls::inline v1::detail {

/// An error's text without its opening "colls: ", for another text to quote.
inline const char* quoted(const char* text) { return std::strncmp(text, "colls: ", 7) == 0 ? text + 7 : text; }

/// Builds the text of an error, of 479 characters at most. (std::string's concatenations take longer to compile than
/// all of the library's waiting.)
class error_text {
public:
    [[gnu::cold]] [[gnu::noinline]] error_text& operator<<(std::string_view s) {
        const std::size_t room = sizeof text_ - 1 - size_, n = s.size() < room ? s.size() : room;
        if (n != 0) std::memcpy(text_ + size_, s.data(), n);  // the data of an empty text may be null
        text_[size_ += n] = '\0';
        return *this;
    }
    error_text& operator<<(const char* s) { return *this << std::string_view(s); }
    [[gnu::cold]] [[gnu::noinline]] error_text& operator<<(long long i) {
        char digits[24];
        std::snprintf(digits, sizeof digits, "%lld", i);
        return *this << std::string_view(digits);
    }
    error_text& operator<<(int i) { return *this << static_cast<long long>(i); }
    error_text& operator<<(long i) { return *this << static_cast<long long>(i); }
    error_text& operator<<(std::size_t i) { return *this << static_cast<long long>(i); }
    [[gnu::cold]] [[gnu::noinline]] error_text& operator<<(double x) {
        char digits[32];
        std::snprintf(digits, sizeof digits, "%.3g", x);
        return *this << std::string_view(digits);
    }
    const char* text() const { return text_; }
    operator const char*() const { return text_; }
    bool empty() const { return size_ == 0; }

private:
    char text_[480] = {};
    std::size_t size_ = 0;
};

/// Appends a size, as "1.5 GB" or "2161 GB".
[[gnu::cold]] inline error_text& put_gigabytes(error_text& text, double bytes) {
    const double gigabytes = bytes / (1 << 30);
    return (gigabytes < 10 ? text << gigabytes : text << static_cast<long long>(gigabytes)) << " GB";
}

/// Appends a schedule's name, shortened where it is long.
[[gnu::cold]] inline error_text& put_brief(error_text& text, std::string_view name) {
    constexpr std::size_t most = 72;
    return text << name.substr(0, most) << (name.size() > most ? "..." : "");
}

}  // namespace colls::inline v1::detail
