// How many devices this machine has, asked in a child process: the CUDA runtime does not survive a fork, so that a
// program that forks its ranks must not use it before.
#pragma once

#include <cuda_runtime.h>

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>

inline int devices_of_machine() {
    const pid_t child = fork();
    if (child == 0) {
        int devices = 0;
        _exit(cudaGetDeviceCount(&devices) == cudaSuccess ? std::min(devices, 100) : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}
