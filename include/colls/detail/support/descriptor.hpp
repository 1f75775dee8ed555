// Owned file descriptors.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace colls::inline v1::detail {

/// The same file at a descriptor of 3 or above, closed by exec. A program whose standard output is closed gets
/// descriptor 1 for the next file that it opens, and what it prints would then go there. -1 (errno says why) where `fd`
/// is, or where there is no other descriptor.
inline int above_standard(int fd) {
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), why = errno;
    ::close(fd);
    errno = why;
    return moved;
}

/// Raises the number of descriptors that this process may have from its soft limit to its hard one. False: it is there.
inline bool raise_descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}
/// That errno says that the system, or a limit, gives no more of something.
inline bool is_exhausted(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS || error == ENOSPC;
}
/// That errno says that this process may not do it at all: a sandbox, or a policy.
inline bool is_forbidden(int error) { return error == EPERM || error == EACCES || error == ENOSYS; }
/// What an errno means and, where something is exhausted, what to do.
[[gnu::cold]] inline std::string system_text(int error) {
    std::string text = std::strerror(error);
    rlimit limit{};
    if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        text.append(": this process may have ")
            .append(std::to_string(limit.rlim_cur))
            .append(" descriptors (ulimit -n); raise that limit, or keep fewer groups and files");
    else if (error == ENFILE)
        text.append(": all processes of this system together have as many as it allows (sysctl fs.file-max)");
    else if (error == ENOMEM || error == ENOBUFS)
        text.append(": the system, or this process's memory cgroup, has no more memory for it");
    return text;
}

/// Owns a file descriptor, which is 3 or above. Whatever the library opens and keeps is one of these
/// (scripts/check-layers).
class descriptor {
public:
    descriptor() = default;
    explicit descriptor(int fd) : fd_(above_standard(fd)) {}
    descriptor(descriptor&& other) noexcept : fd_(other.release()) {}
    descriptor& operator=(descriptor other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~descriptor() { close(); }

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    int release() { return std::exchange(fd_, -1); }
    /// Leaves errno as it is: the caller may still have to report an earlier failure.
    void close() {
        const int before = errno;
        if (fd_ >= 0) ::close(release());  // after EINTR it is closed too
        errno = before;
    }

private:
    int fd_ = -1;
};

/// What make() opens; none (errno says why) where it returns -1. Where this process has as many descriptors as its soft
/// limit allows, the limit is raised.
template <class F>
descriptor opened(F make) {
    const int fd = make();
    return descriptor(fd < 0 && errno == EMFILE && raise_descriptor_limit() ? make() : fd);
}

/// While it lives, descriptors 0 to 2 are all in use, and what another library opens is 3 or above, too.
class standard_descriptors_held {
public:
    standard_descriptors_held() {
        for (int fd = 0; fd <= STDERR_FILENO; ++fd)
            if (fcntl(fd, F_GETFD) < 0)  // an open gives the lowest that is free
                opened_[fd] = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    }
    standard_descriptors_held(const standard_descriptors_held&) = delete;
    standard_descriptors_held& operator=(const standard_descriptors_held&) = delete;
    ~standard_descriptors_held() {
        for (const int fd : opened_)
            if (fd >= 0) ::close(fd);
    }

private:
    int opened_[3] = {-1, -1, -1};
};

}  // namespace colls::inline v1::detail
