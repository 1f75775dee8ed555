// The file of COLLS_TRACE: the JSON array of events that Chrome's trace viewer defined, which Perfetto,
// chrome://tracing and `colls trace` open. ("Trace Event Format", Google, 2016.) It is complete after each time of
// writing, also one that fails.
// IWYU pragma: private
#pragma once

#include <colls/detail/support/descriptor.hpp>
#include <colls/detail/support/host.hpp>
#include <colls/detail/support/process_lock.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

namespace colls::inline v1::detail {

/// What the ranks of a process have in common: one file, whose name is COLLS_TRACE's with the host's name and the
/// process's number before the extension.
class trace_file {
public:
    static trace_file& of_process() {
        static trace_file& file = *new trace_file;  // never destroyed: a communicator may end later than statics
        return file;
    }
    /// Adds events, each of which ends with ",\n".
    [[gnu::cold]] void add(const char* path, const std::string& events) {
        const process_lock lock;
        if (opened_by_ != getpid() || asked_ != path) open(path);  // a forked process has a file of its own
        if (!file_ || events.empty()) return;
        std::string text = end_ == 0 ? "[\n" : ",\n";
        text.append(events, 0, events.size() - 2).append("\n]\n");
        const std::size_t at = end_ == 0 ? 0 : end_ - 3;  // over the end of the array
        if (!write(text, at)) return give_up_writing(at);
        end_ = at + text.size();
    }

private:
    [[gnu::cold]] void open(const char* path) {
        opened_by_ = getpid();
        asked_ = path;
        end_ = 0;
        name_ = path;
        const std::size_t folder = name_.rfind('/'), dot = name_.rfind('.');
        const bool has_extension = dot != std::string::npos && (folder == std::string::npos || dot > folder);
        name_.insert(has_extension ? dot : name_.size(),
            "." + std::string(host_name().text) + "." + std::to_string(static_cast<long>(opened_by_)));
        // A new file: what another user has put there under this name, such as a link, is not written to.
        unlink(name_.c_str());
        file_ =
            opened([&] { return ::open(name_.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, 0600); });
        if (!file_) give_up("open", errno, "");
    }
    bool write(std::string_view text, std::size_t at) {
        while (!text.empty()) {
            const ssize_t n = pwrite(file_.get(), text.data(), text.size(), static_cast<off_t>(at));
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return false;
            text.remove_prefix(static_cast<std::size_t>(n));
            at += static_cast<std::size_t>(n);
        }
        return true;
    }
    /// Leaves the events before those, for which there is room; or, without any, no file.
    void give_up_writing(std::size_t at) {
        const int why = errno;
        if (end_ != 0 && ftruncate(file_.get(), static_cast<off_t>(end_)) == 0 && write("\n]\n", at))
            return give_up("write to", why, ", and the file has what came before");
        unlink(name_.c_str());
        give_up("write to", why, ", and the file is removed");
    }
    void give_up(const char* what, int why, const char* file) {
        std::fprintf(stderr, "colls: cannot %s %s, the file of COLLS_TRACE: %s; this process records nothing more%s\n",
            what, name_.c_str(), std::strerror(why), file);
        file_.close();
    }

    descriptor file_;
    pid_t opened_by_ = 0;
    std::size_t end_ = 0;
    std::string asked_, name_;
};

}  // namespace colls::inline v1::detail
