// What the ranks of this host's processes do, as their records say (record.hpp). Nothing that a record holds is
// trusted: it may be of another version, cut off, or change while it is read.
// IWYU pragma: private
#pragma once

#include <colls/detail/support/clock.hpp>
#include <colls/detail/support/descriptor.hpp>
#include <colls/detail/support/error_text.hpp>
#include <colls/detail/support/host.hpp>
#include <colls/error.hpp>
#include <colls/status/detail/record.hpp>

#include <dirent.h>
#include <sys/stat.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace colls::inline v1::detail::status {

/// A rank, as it was at one moment: bytes alone, since it also travels so (door.hpp).
struct seen_rank {
    std::uint64_t group = 0, epoch = 0;  ///< group: equal on its ranks; 0: not known
    std::uint64_t calls = 0, messages = 0, latest = 0, bytes = 0, errors = 0, waits = 0;
    std::uint64_t waited = 0;  ///< milliseconds, where it waits for long
    std::int64_t process = 0;
    std::int32_t rank = 0, size = 0;
    std::uint32_t by = 0;      ///< rank_status::shares
    std::uint8_t in_call = 0;  ///< 1: in a call; not a bool, since any bytes may come
    char state = 0;            ///< of the process, as in /proc/PID/stat
    char host[sizeof(host_label::text)] = {};
    char label[decltype(rank_status::label)::most + 1] = {};
    char error[decltype(rank_status::error)::most + 1] = {};  ///< the last one; "" without one

    /// Whatever its bytes are: is it one that a rank may have shown? Texts end, and are printable, afterwards.
    bool sound() {
        for (const auto& [text, most] : {std::pair{host, sizeof host}, {label, sizeof label}, {error, sizeof error}}) {
            text[most - 1] = '\0';
            for (char* c = text; *c; ++c)
                if (static_cast<unsigned char>(*c) < ' ' || *c == 127) *c = '?';
        }
        return size >= 1 && rank >= 0 && rank < size && by <= rank_status::no_memory;
    }
    bool is_in_group_of(const seen_rank& o) const {
        const bool one_process = process == o.process && std::strcmp(host, o.host) == 0;
        return group == o.group && size == o.size && by == o.by && std::strcmp(label, o.label) == 0 &&
               (one_process || (group != 0 && by != rank_status::memory_of_threads));
    }
};
static_assert(std::is_trivially_copyable_v<seen_rank>);

[[noreturn, gnu::cold]] inline void refuse(std::int64_t process, const error_text& why) {
    throw error(
        errc::invalid_argument, error_text() << "colls: process " << static_cast<long long>(process) << why.text());
}

/// The word behind a name in /proc/PID/status, the last one of the line; "" where there is none.
inline std::string last_word(const std::string& text, const char* name) {
    const std::size_t at = text.find(name);
    if (at == text.npos) return "";
    const std::string line = text.substr(at, text.find('\n', at) - at);
    return line.substr(line.find_last_of("\t ") + 1);
}

/// The process's state, as in /proc/PID/stat: 'T' is stopped, 'Z' has ended; 0: there is no such process.
inline char state_of(const std::string& folder) {
    const std::string stat = text_of_file(folder + "/stat");
    const std::size_t after = stat.rfind(')');  // a program's name may contain parentheses
    return after == stat.npos || after + 2 >= stat.size() ? '\0' : stat[after + 2];
}

/// Adds what one record shows. False: it is another process's, which this one was forked from; `own`: the number by
/// which the process knows itself. Throws where it is none that this version reads.
inline bool add_record(std::vector<seen_rank>& to, int fd, std::int64_t process, std::int64_t own) {
    record_head head{};
    const auto read = [&](void* into, std::size_t bytes, std::size_t from) {
        return pread(fd, into, bytes, static_cast<off_t>(from)) == static_cast<ssize_t>(bytes);
    };
    if (!read(&head, sizeof head, 0) || std::memcmp(head.magic, record_head::begin, sizeof head.magic) != 0)
        refuse(process, error_text() << " has a damaged record: it is cut off, or none of colls");
    if (head.form != format || head.place_bytes != sizeof(rank_status)) {
        const auto part = [&](int shift) { return static_cast<int>(head.version >> shift & 1023); };
        refuse(process, error_text() << " uses colls " << part(20) << "." << part(10) << "." << part(0)
                                     << ", whose record has form " << static_cast<long long>(head.form)
                                     << ", and this program reads form " << static_cast<long long>(format)
                                     << ": take the tool of that version");
    }
    if (head.process != own) return false;
    const std::uint32_t used = head.used.load(std::memory_order_relaxed);
    if (used > record_head::most) refuse(process, error_text() << " has a damaged record: it names too many places");
    // A place may go to another group meanwhile: what is read between two equal numbers of its use is of one.
    std::vector<rank_status> before(used), now(used), after(used);
    for (std::vector<rank_status>* const each : {&before, &now, &after})
        if (!read(each->data(), used * sizeof(rank_status), record_head::bytes))
            refuse(process, error_text() << " has a damaged record: it is cut off");
    const std::uint64_t time = milliseconds_now();
    const host_label host = host_name();
    for (std::size_t i = 0; i < used; ++i) {
        const auto of = [](const std::atomic<std::uint64_t>& x) { return x.load(std::memory_order_relaxed); };
        const rank_status& s = now[i];
        if (of(s.shown) == 0 || of(before[i].shown) != of(s.shown) || of(after[i].shown) != of(s.shown)) continue;
        seen_rank r;
        r.group = s.group, r.epoch = of(s.epoch), r.calls = of(s.calls), r.latest = of(s.latest);
        r.messages = of(s.messages), r.bytes = of(s.bytes), r.waits = of(s.waits);
        if (r.waits != 0) r.waited = time - std::min(time, of(s.waits_from));
        r.process = process, r.rank = s.rank, r.size = s.size, r.by = s.by;
        r.in_call = s.in_call.load(std::memory_order_relaxed);
        std::memcpy(r.host, host.text, sizeof r.host);
        s.label.load(r.label);
        if ((r.errors = of(after[i].errors)) != 0 && r.errors == of(before[i].errors)) s.error.load(r.error);
        if (r.sound()) to.push_back(r);
    }
    return true;
}

/// What a process shows. Throws invalid_argument, which says why it shows nothing.
[[gnu::cold]] inline std::vector<seen_rank> ranks_of_process(std::int64_t process) {
    const std::string folder = "/proc/" + std::to_string(process);
    const auto open_folder = [&] { return opendir((folder + "/fd").c_str()); };
    const std::unique_ptr<DIR, int (*)(DIR*)> files(open_folder(), &closedir);
    const int why = errno;
    const char state = state_of(folder);
    if (state == '\0') refuse(process, error_text() << " is not there: no process of this host has that number");
    if (state == 'Z') refuse(process, error_text() << " has ended");
    if (!files && is_forbidden(why)) {
        struct stat owner{};
        const bool other = stat(folder.c_str(), &owner) == 0 && owner.st_uid != geteuid();
        refuse(process, other ? error_text() << " belongs to another user (" << static_cast<long>(owner.st_uid)
                                             << "): ask as that user, or as root"
                              : error_text() << " does not let others look at it (PR_SET_DUMPABLE): ask as root");
    }
    const std::string own = last_word(text_of_file(folder + "/status"), "NSpid:");
    const std::int64_t as_itself = own.empty() ? process : std::strtoll(own.c_str(), nullptr, 10);
    std::vector<seen_rank> all;
    bool found = false;
    const std::string wanted = std::string("/memfd:") + file_name + " (deleted)";
    while (const dirent* const each = files ? readdir(files.get()) : nullptr) {
        const std::string file = folder + "/fd/" + each->d_name;
        char name[64];
        const ssize_t length = readlink(file.c_str(), name, sizeof name);
        if (length < 0 || std::string_view(name, static_cast<std::size_t>(length)) != wanted) continue;
        const descriptor fd = opened([&] { return ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
        if (fd) found = add_record(all, fd.get(), process, as_itself) || found;
    }
    if (!found)
        refuse(process, error_text() << " shows no group of colls: it has made none yet, uses an earlier version, or "
                                        "cannot make files in memory (memfd_create, ulimit -f)");
    for (seen_rank& r : all) r.state = state;
    return all;
}

/// What all processes of this host show that this one may look at, as far as they have a group in common with
/// `process`; 0: all of them. Throws invalid_argument, where that one shows nothing.
[[gnu::cold]] inline std::vector<seen_rank> ranks_around(std::int64_t process) {
    std::vector<seen_rank> all;
    if (process != 0) all = ranks_of_process(process);
    const std::size_t asked = all.size();
    const std::unique_ptr<DIR, int (*)(DIR*)> processes(opendir("/proc"), &closedir);
    while (const dirent* const each = processes ? readdir(processes.get()) : nullptr) {
        const std::int64_t other = std::strtoll(each->d_name, nullptr, 10);
        if (other <= 0 || other == process) continue;
        std::vector<seen_rank> more;
        try {
            more = ranks_of_process(other);
        } catch (const error&) {
            continue;  // most have nothing to do with colls
        }
        for (const seen_rank& r : more)
            if (process == 0 || std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(asked),
                                    [&](const seen_rank& a) { return a.is_in_group_of(r); }))
                all.push_back(r);
    }
    return all;
}

}  // namespace colls::inline v1::detail::status
