// Stores with compare-and-set: what they are as a store of bootstrap, and a folder.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/detail/support/clock.hpp>
#include <colls/detail/support/descriptor.hpp>
#include <colls/detail/support/environment.hpp>
#include <colls/elastic/store.hpp>

#include <sys/file.h>
#include <sys/stat.h>
#include <cstdio>

namespace colls::inline v1 {

COLLS_INLINE void elastic::store::set_bytes(std::string_view key, const void* value, std::size_t bytes) {
    compare_and_set(key, "", {static_cast<const char*>(value), bytes});
}
COLLS_INLINE void elastic::store::get_bytes(std::string_view key, void* value, std::size_t bytes) {
    for (const double until = detail::seconds_now() + detail::environment::read().timeout;; usleep(1000)) {
        if (const std::string found = read(key); !found.empty()) {
            std::memcpy(value, found.data(), std::min(bytes, found.size()));
            return;
        }
        if (detail::seconds_now() > until)
            throw error(errc::timeout, detail::error_text() << "colls: the store has no value of " << key);
    }
}

COLLS_INLINE std::string elastic::folder::file_of(std::string_view key) const {
    std::string name = path_ + "/";
    for (const char c : key) name += c == '/' ? '_' : c;
    return name;
}
[[gnu::cold]] COLLS_INLINE std::string elastic::folder::read_file(std::string_view key) const {
    const std::string name = file_of(key);
    const detail::descriptor file = detail::opened([&] { return ::open(name.c_str(), O_RDONLY | O_CLOEXEC); });
    if (!file && errno == ENOENT) return {};
    std::string value;
    char part[4096];
    ssize_t n = file ? 1 : -1;
    while (n > 0 && (n = ::read(file.get(), part, sizeof part)) > 0) value.append(part, static_cast<std::size_t>(n));
    if (n < 0)
        throw error(errc::unsupported, detail::error_text()
                                           << "colls: cannot read " << name << ": " << detail::system_text(errno));
    return value;
}
[[gnu::cold]] COLLS_INLINE bool elastic::folder::replace(
    std::string_view key, std::string_view expected, std::string_view value) const {
    const std::string name = file_of(key), lock_name = name + ".lock", next_name = name + ".next";
    const auto refuse = [&](const std::string& file) {
        throw error(errc::unsupported, detail::error_text()
                                           << "colls: cannot write " << file << ": " << detail::system_text(errno));
    };
    const detail::descriptor lock =
        detail::opened([&] { return ::open(lock_name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); });
    if (!lock) refuse(lock_name);
    // The system unlocks what a process has locked that dies.
    for (const double until = detail::seconds_now() + detail::environment::read().timeout;
        flock(lock.get(), LOCK_EX | LOCK_NB) != 0; usleep(1000)) {
        if (errno != EWOULDBLOCK && errno != EINTR) refuse(lock_name);
        if (detail::seconds_now() > until)
            throw error(errc::timeout,
                detail::error_text() << "colls: another process holds the lock of " << lock_name << ": is it stopped?");
    }
    if (read_file(key) != expected) return false;
    {
        const detail::descriptor next =
            detail::opened([&] { return ::open(next_name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600); });
        if (!next) refuse(next_name);
        for (std::string_view rest = value; !rest.empty();) {
            const ssize_t n = ::write(next.get(), rest.data(), rest.size());
            if (n < 0 && errno != EINTR) refuse(next_name);
            if (n > 0) rest.remove_prefix(static_cast<std::size_t>(n));
        }
    }
    if (std::rename(next_name.c_str(), name.c_str()) != 0) refuse(name);
    return true;
}

}  // namespace colls::inline v1
