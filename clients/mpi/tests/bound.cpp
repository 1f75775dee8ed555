// The functions that MPI's libraries for Fortran call are those of libcolls_mpi.so, also where the linker has had such
// a library's table of addresses protected, as many distributions do; it is protected afterwards, too. MPI does not
// begin.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

extern "C" int (*called_for_fortran())(MPI_Comm);

namespace {

struct range {
    std::uintptr_t begin = 0, end = 0;
};
/// The pages of the library that are to be read only.
range protected_pages() {
    range found;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* to) {
            if (std::strstr(info->dlpi_name, "libmpifort.bound") == nullptr) return 0;
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const auto& segment = info->dlpi_phdr[i];
                if (segment.p_type != PT_GNU_RELRO) continue;
                const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
                const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
                *static_cast<range*>(to) = {begin / page * page, (begin + segment.p_memsz) / page * page};
            }
            return 1;
        },
        &found);
    return found;
}
bool is_writable(const range& pages) {
    std::FILE* const maps = std::fopen("/proc/self/maps", "r");
    bool found = false;
    unsigned long begin = 0, end = 0;
    char rights[5] = "", rest[4096];
    while (maps != nullptr && std::fscanf(maps, "%lx-%lx %4s%4095[^\n]", &begin, &end, rights, rest) == 4)
        found = found || (begin < pages.end && end > pages.begin && rights[1] == 'w');
    if (maps != nullptr) std::fclose(maps);
    return found;
}

}  // namespace

int main() {
    Dl_info where{};
    if (dladdr(reinterpret_cast<void*>(called_for_fortran()), &where) == 0) return 2;
    const bool bound = std::strstr(where.dli_fname, "/libcolls_mpi") != nullptr;
    const range pages = protected_pages();
    const bool left_open = pages.begin == pages.end || is_writable(pages);
    std::printf("PMPI_Barrier is that of %s; the table of addresses is %s\n", where.dli_fname,
        left_open ? "not protected" : "protected");
    return bound && !left_open ? 0 : 1;
}
