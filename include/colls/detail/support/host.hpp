// The host that a process runs on.
// IWYU pragma: private
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

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
/// What a file of the system holds; "" where it cannot be read.
[[gnu::cold]] inline std::string text_of_file(const std::string& path) {
    std::string text;
    if (std::FILE* const f = std::fopen(path.c_str(), "re")) {
        char part[4096];
        while (const std::size_t n = std::fread(part, 1, sizeof part, f)) text.append(part, n);
        std::fclose(f);
    }
    return text;
}
/// The number of the host's boot, the same in all its processes and containers; the host's name where it has none.
[[gnu::cold]] inline host_label boot_of_host() {
    const std::string number = text_of_file("/proc/sys/kernel/random/boot_id");
    host_label id;
    number.substr(0, number.find('\n')).copy(id.text, sizeof id.text - 1);
    return number.empty() ? host_name() : id;
}

}  // namespace colls::inline v1::detail
