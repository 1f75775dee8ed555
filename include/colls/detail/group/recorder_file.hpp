// The file of a process's recorders: the JSON array of events that Chrome's trace viewer defined. ("Trace Event
// Format", Google, 2016.) It is complete after each time of writing, also one that fails.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/recorder.hpp>
#include <colls/detail/support/descriptor.hpp>
#include <colls/detail/support/error_text.hpp>
#include <colls/detail/support/host.hpp>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
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
        const std::lock_guard hold(mutex_);
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

    std::mutex mutex_;
    descriptor file_;
    pid_t opened_by_ = 0;
    std::size_t end_ = 0;
    std::string asked_, name_;
};

/// Text for JSON: names of schedules hold no other characters that it would have to escape.
[[gnu::cold]] inline std::string quotable(const char* text) {
    std::string s;
    for (; *text; ++text) s += *text == '"' || *text == '\\' || static_cast<unsigned char>(*text) < 32 ? '?' : *text;
    return s;
}

COLLS_INLINE recorder::recorder(const char* path, const char* group, int rank, int size)
    : path_(path), group_(group), rank_(rank), size_(size), thread_(syscall(SYS_gettid)) {}
COLLS_INLINE recorder::~recorder() { write(); }

COLLS_INLINE void recorder::add(const recorded_call& c, std::string_view schedule) {
    recorded_call& kept = (calls_.push_back(c), calls_.back());
    kept.parts = parts_.size();
    schedule.copy(kept.schedule, sizeof kept.schedule - 1);
    if (parts_.size() > most / 2 || calls_.size() > most / 8) write();
}

[[gnu::cold]] COLLS_INLINE void recorder::write() {
    const long process = getpid();
    std::string text;
    char one[512];
    const auto put = [&](const char* name, double begin, double end, const char* more) {
        std::snprintf(one, sizeof one,
            "{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%ld,\"tid\":%ld,\"args\":{"
            "\"group\":\"%s\",\"rank\":%d%s}},\n",
            name, begin * 1e6, (end - begin) * 1e6, process, thread_, group_, rank_, more);
        text += one;
    };
    if (!introduced_ && !calls_.empty()) {
        // The boot's number says which processes have one clock.
        std::snprintf(one, sizeof one,
            "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%ld,\"tid\":%ld,\"args\":{\"name\":\"rank %d of group "
            "%s\"}},\n",
            process, thread_, rank_, group_);
        text += one;
        std::snprintf(one, sizeof one,
            "{\"name\":\"colls\",\"ph\":\"M\",\"pid\":%ld,\"tid\":%ld,\"args\":{\"group\":\"%s\",\"rank\":%d,\"size\":%"
            "d,"
            "\"host\":\"%s\",\"clock\":\"%s\"}},\n",
            process, thread_, group_, rank_, size_, quotable(host_name().text).c_str(),
            quotable(boot_of_host().text).c_str());
        text += one;
        introduced_ = true;
    }
    constexpr const char* names[] = {"", "", "wait", "copy", "fold"};
    std::size_t next = 0;
    for (const recorded_call& c : calls_) {
        char more[256];
        std::snprintf(more, sizeof more, ",\"call\":%lld,\"schedule\":\"%s\",\"bytes\":%zu,\"peer\":%d%s%s",
            c.number == no_call ? -1LL : static_cast<long long>(c.number), quotable(c.schedule).c_str(), c.whole.bytes,
            c.whole.peer, c.whole.what == recorded::started ? ",\"started\":true" : "",
            c.failed ? ",\"failed\":true" : "");
        put(c.name, c.whole.begin, c.whole.end, more);
        // A wait is added when the work that follows it is done.
        std::sort(parts_.begin() + next, parts_.begin() + c.parts, [](const recorded_part& a, const recorded_part& b) {
            return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
        });
        while (next < c.parts) {
            // Parts of one round, one after another, are shown as the round.
            std::size_t last = next;
            while (last + 1 < c.parts && parts_[last + 1].round == parts_[next].round) ++last;
            if (parts_[next].round != none) {
                std::snprintf(more, sizeof more, ",\"round\":%d", parts_[next].round);
                put("round", parts_[next].begin, parts_[last].end, more);
            }
            for (; next <= last; ++next) {
                const recorded_part& p = parts_[next];
                std::snprintf(more, sizeof more, ",\"round\":%d,\"peer\":%d,\"bytes\":%zu", p.round, p.peer, p.bytes);
                put(names[static_cast<int>(p.what)], p.begin, p.end, more);
            }
        }
    }
    // Parts of a call that is not over are kept.
    if (calls_.empty()) return;
    list<recorded_part> rest;
    for (std::size_t i = next; i < parts_.size(); ++i) rest.push_back(parts_[i]);
    parts_ = static_cast<list<recorded_part>&&>(rest);
    calls_.clear();
    trace_file::of_process().add(path_, text);
}

}  // namespace colls::inline v1::detail
