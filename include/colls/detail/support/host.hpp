// The host that a process runs on.
// IWYU pragma: private
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace colls::inline v1::detail {

struct host_label {
    char text[64] = {};  ///< zeros behind the end
};

/// The host's name; "host" where the system gives none.
inline host_label host_name() {
    host_label name;
    if (gethostname(name.text, sizeof name.text - 1) != 0) name = {"host"};
    return name;
}
/// The number of the host's boot, the same in all its processes and containers; the host's name where it has none.
inline host_label boot_of_host() {
    std::FILE* const file = std::fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == nullptr) return host_name();
    host_label id;
    [[maybe_unused]] const std::size_t n = std::fread(id.text, 1, sizeof id.text - 1, file);
    std::fclose(file);
    if (char* const end = std::strchr(id.text, '\n')) *end = '\0';
    return id;
}

}  // namespace colls::inline v1::detail
