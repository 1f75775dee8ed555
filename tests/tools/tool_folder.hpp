// The tool colls, run in a folder of a test's own.
#pragma once

#include "execute.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace support {

/// A folder that is removed with all that is in it; the tool's cache is there, too.
class tool_folder {
public:
    tool_folder() : path_(std::filesystem::temp_directory_path() / ("colls tool " + std::to_string(getpid()))) {
        std::filesystem::create_directory(path_);
    }
    ~tool_folder() { std::filesystem::remove_all(path_); }
    tool_folder(const tool_folder&) = delete;
    tool_folder& operator=(const tool_folder&) = delete;

    std::string file(const std::string& name) const { return (path_ / name).string(); }
    std::string read(const std::string& name) const {
        std::ifstream in(file(name));
        std::ostringstream text;
        text << in.rdbuf();
        return text.str();
    }
    void write(const std::string& name, const std::string& text) const { std::ofstream(file(name)) << text; }
    program_result run(const std::string& arguments) const {
        return execute(
            "XDG_CACHE_HOME='" + file("cache") + "' CXX='" COLLS_TEST_CXX "' '" COLLS_TEST_TOOL "' " + arguments);
    }

private:
    std::filesystem::path path_;
};

}  // namespace support
