// System calls that are refused to this process, as a sandbox refuses them.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <fcntl.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace support {

struct forbidden_call {
    std::uint32_t number;
    std::uint32_t argument = 0, bits = 0;  ///< only if that argument has one of these bits; 0: always
};
inline const std::vector<forbidden_call> no_memory_files = {
    {SYS_memfd_create}, {SYS_openat, 2, O_TMPFILE & ~O_DIRECTORY}};
inline const std::vector<forbidden_call> no_unix_sockets = {{SYS_socket, 0, AF_UNIX & ~(AF_INET | AF_INET6)}};

/// From now on the system refuses these calls to this process and its children.
inline void forbid(const std::vector<forbidden_call>& calls) {
    std::vector<sock_filter> program;
    for (const forbidden_call& c : calls) {
        program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, c.number, 0, static_cast<std::uint8_t>(c.bits ? 3 : 1)));
        if (c.bits) {
            program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                static_cast<std::uint32_t>(offsetof(seccomp_data, args) + c.argument * sizeof(std::uint64_t))));
            program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, c.bits, 0, 1));
        }
        program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
    }
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog all{static_cast<unsigned short>(program.size()), program.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) != 0)
        std::abort();
}

}  // namespace support
