// Loads the MPI whose file it is given and begins it, as programs do that choose theirs when they run, such as Python.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
    if (argc != 2 || dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
        std::printf("loader: it takes a library that can be loaded: %s\n", argc == 2 ? dlerror() : "none is given");
        return 2;
    }
    // By the names that a library of the program would call.
    auto* const begin = reinterpret_cast<int (*)(int*, char***)>(dlsym(RTLD_DEFAULT, "MPI_Init"));
    auto* const end = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPI_Finalize"));
    if (begin == nullptr || end == nullptr || begin(nullptr, nullptr) != 0) return 2;
    std::puts("begun");
    std::fflush(stdout);
    return end();
}
