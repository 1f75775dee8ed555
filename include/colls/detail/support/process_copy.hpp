// Copies that the kernel makes between the memory of two processes: one copy, where memory that both have mapped takes
// two (into it, and out of it).
// IWYU pragma: private, include <colls/transports/shm.hpp>
#pragma once

#include <colls/config.hpp>

#include <sys/uio.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace colls::inline v1::detail {

/// Repeats `copy` (process_vm_readv or process_vm_writev), which may stop early, until all bytes are copied. Returns 0,
/// or the system's error number.
template <class Copy>
int copy_all(Copy copy, pid_t process, void* here, void* there, std::size_t bytes) {
    auto *own = static_cast<std::byte*>(here), *far = static_cast<std::byte*>(there);
    while (bytes > 0) {
        const iovec near{own, bytes}, remote{far, bytes};
        const ssize_t copied = copy(process, &near, 1, &remote, 1, 0);
        if (copied < 0 && errno == EINTR) continue;
        if (copied <= 0) return copied < 0 ? errno : EFAULT;
        own += copied, far += copied, bytes -= static_cast<std::size_t>(copied);
    }
    return 0;
}
/// Copies from address `from` of that process. Returns 0, or the system's error number: EPERM where it is not
/// permitted, ESRCH where the process has ended, EFAULT where it has no such memory.
inline int copy_from_process(pid_t process, void* to, const void* from, std::size_t bytes) {
    return copy_all(&process_vm_readv, process, to, const_cast<void*>(from), bytes);
}
/// Copies to address `to` of that process; likewise.
inline int copy_to_process(pid_t process, void* to, const void* from, std::size_t bytes) {
    return copy_all(&process_vm_writev, process, const_cast<void*>(from), to, bytes);
}

/// A word in a process's own memory, which other processes try to read and to write. Its value is the process's own, so
/// that a process that is another one here (in a namespace of its own for process numbers) is not taken for it.
struct copy_probe {
    std::uint64_t value = 0;
    std::uint64_t target = 0;  ///< others write here: what value they write does not matter
};
/// May this process copy from and to that process, and is that the process with that value at that address?
inline bool may_copy(pid_t process, std::uint64_t at, std::uint64_t value) {
    auto* const there = reinterpret_cast<copy_probe*>(static_cast<std::uintptr_t>(at));
    std::uint64_t found = 0;
    return copy_from_process(process, &found, &there->value, sizeof found) == 0 && found == value &&
           copy_to_process(process, &there->target, &found, sizeof found) == 0;
}

}  // namespace colls::inline v1::detail
