#include "own_header.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>

namespace tool {

namespace {

namespace files = std::filesystem;

/// The unit that is compiled: a function that returns the schedule for a collective, or null.
std::string unit(const files::path& header, const std::string& type) {
    return fmt::format(R"(#include <colls/any_schedule.hpp>
#include <colls/family.hpp>
#include "{}"
using schedule_of_the_header = {};
template <int c>
const colls::any_schedule* schedule_for(int wanted) {{
    if constexpr (c < colls::collective_count) {{
        if (c != wanted) return schedule_for<c + 1>(wanted);
        if constexpr (colls::provides<schedule_of_the_header, static_cast<colls::collective>(c)>) {{
            static const colls::any_schedule s(colls::schedule_of<static_cast<colls::collective>(c)>(schedule_of_the_header{{}}));
            return &s;
        }}
    }}
    return nullptr;
}}
extern "C" const colls::any_schedule* colls_schedule(int c) {{ return schedule_for<0>(c); }}
)",
        header.string(), type);
}

std::string quoted(const std::string& word) {
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}
/// What a command prints, and whether it returned 0.
std::pair<std::string, bool> output_of(const std::string& command) {
    std::FILE* const pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
    std::string text;
    std::array<char, 4096> part{};
    while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), got);
    return {text, pclose(pipe) == 0};
}

files::path cache() {
    const char* const set = std::getenv("XDG_CACHE_HOME");
    const char* const home = std::getenv("HOME");
    return (set != nullptr       ? files::path(set)
               : home != nullptr ? files::path(home) / ".cache"
                                 : files::temp_directory_path()) /
           "colls" / "schedules";
}
/// The library's headers: those of the installation that the tool is in, or those that it was compiled with.
files::path headers() {
    const files::path installed = files::canonical("/proc/self/exe").parent_path().parent_path() / "include";
    return files::exists(installed / "colls" / "any_schedule.hpp") ? installed : files::path(COLLS_TOOL_INCLUDE);
}

}  // namespace

std::vector<colls::any_schedule> schedules_of_header(const std::string& header, const std::string& type) {
    if (!files::is_regular_file(header))
        throw std::runtime_error((files::exists(header) ? "this is not a file: " : "there is no header ") + header);
    const char* const set = std::getenv("CXX");
    const std::string compile =
        fmt::format("{} -std=c++20 -O1 -I{}", set != nullptr && *set != '\0' ? set : "c++", quoted(headers().string()));
    const files::path folder = cache();
    files::create_directories(folder);
    // Several hosts may share the folder, and several containers their numbers of processes, too.
    std::string name = (folder / "XXXXXX.cpp").string();
    const int file = mkstemps(name.data(), 4);
    if (file < 0) throw std::runtime_error("cannot write to " + folder.string());
    close(file);
    const files::path source = name;
    std::ofstream(source) << unit(files::canonical(header), type);

    // What the preprocessor makes of it names the library: it changes with every header that is included.
    const auto [read, readable] = output_of(fmt::format("{} -E -P {} 2>&1", compile, quoted(source.string())));
    const files::path library = folder / fmt::format("{:016x}.so", std::hash<std::string>{}(compile + type + read));
    bool made = readable;
    std::string said = read;
    if (made && !files::exists(library)) {
        std::fprintf(stderr, "colls: compiling %s\n", header.c_str());
        const files::path fresh = files::path(source).replace_extension(".so");
        std::tie(said, made) = output_of(
            fmt::format("{} -shared -fPIC {} -o {} 2>&1", compile, quoted(source.string()), quoted(fresh.string())));
        if (made) files::rename(fresh, library);
    }
    files::remove(source);
    if (!made) throw std::runtime_error(fmt::format("{} with {} does not compile:\n{}", header, type, said));

    void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // for as long as the program runs
    if (loaded == nullptr) throw std::runtime_error(dlerror());
    const auto schedule = reinterpret_cast<const colls::any_schedule* (*)(int)>(dlsym(loaded, "colls_schedule"));
    std::vector<colls::any_schedule> found;
    for (int c = 0; c < colls::collective_count; ++c)
        if (const colls::any_schedule* const s = schedule(c)) found.push_back(*s);
    if (found.empty())
        throw std::runtime_error(
            fmt::format("{} is neither a schedule nor a family: it has no `implements`, and names no schedules", type));
    return found;
}

}  // namespace tool
