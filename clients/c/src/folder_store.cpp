#include "folder_store.hpp"

#include "failure.hpp"

#include <colls/detail/support/descriptor.hpp>
#include <colls/error.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

namespace colls_c {

namespace {

constexpr const char* function = "colls_bootstrap_folder";

using colls::detail::descriptor;

descriptor opened(const std::string& file, int flags) {
    return colls::detail::opened([&] { return ::open(file.c_str(), flags | O_CLOEXEC, 0600); });
}

}  // namespace

folder_store::folder_store(int rank, const char* folder, std::string_view name) : rank_(rank), folder_(folder) {
    if (name.empty() || name.find('/') != std::string_view::npos)
        refuse(function, error_text() << "the name \"" << name
                                      << "\" of the group is empty or has a slash: it begins "
                                         "the names of files");
}

void folder_store::set(std::string_view key, const void* value, std::size_t bytes) {
    const std::string file = file_of(key);
    const descriptor d = opened(file, O_WRONLY | O_CREAT | O_EXCL);
    if (!d && errno == EEXIST)
        refuse(function, error_text() << "rank " << rank_ << ": the file " << file
                                      << " exists: a group of this name has used the folder, or two processes have "
                                         "this rank; take another name");
    // So few bytes go into the file at once; `get` waits for all of them.
    if (!d || ::write(d.get(), value, bytes) != static_cast<ssize_t>(bytes)) fail(errno, file, "cannot be written");
}

void folder_store::get(std::string_view key, void* value, std::size_t bytes) {
    using clock = std::chrono::steady_clock;
    const std::string file = file_of(key);
    const clock::time_point begin = clock::now();
    std::chrono::microseconds pause(200);
    for (;;) {
        {
            const descriptor d = opened(file, O_RDONLY);
            if (!d && errno != ENOENT) fail(errno, file, "cannot be opened");
            if (d) {
                const ssize_t got = ::pread(d.get(), value, bytes, 0);
                if (got < 0) fail(errno, file, "cannot be read");
                if (got == static_cast<ssize_t>(bytes)) return;
            }
        }
        if (std::chrono::duration<double>(clock::now() - begin).count() > timeout_) {
            const int peer = std::atoi(std::string(key.substr(key.rfind('/') + 1)).c_str());
            throw colls::error(colls::errc::timeout,
                error_text() << "colls: rank " << rank_ << " in " << function << ": rank " << peer
                             << " has not come: waited " << timeout_ << " s for its file " << file
                             << "; was it started, with the same folder and name? (COLLS_TIMEOUT sets the deadline)",
                rank_, peer);
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(10000));
    }
}

std::string folder_store::file_of(std::string_view key) const {
    std::string name(key);
    std::replace(name.begin(), name.end(), '/', '.');
    return folder_ + "/" + name;
}

void folder_store::fail(int code, const std::string& file, const char* what) const {
    refuse(function,
        error_text() << "rank " << rank_ << ": the file " << file << " " << what << ": " << std::strerror(code)
                     << "; does the folder exist, and may this process write there?",
        COLLS_STORE_FAILED);
}

}  // namespace colls_c
