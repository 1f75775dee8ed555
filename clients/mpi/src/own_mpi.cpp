// Refuses a program of another MPI than that for which this library is built. Otherwise the program would run by that
// of the library, which the loader finds first, or each of them would be given handles of the other one. Looked for
// where the program begins MPI, which it may have loaded after this library.
#include "objects.hpp"

#include <colls/detail/support/futex.hpp>
#include <colls/mpi/detail/mpi_header.hpp>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace {

using namespace colls_mpi;

/// The names that an object needs, and its own.
struct names_of {
    explicit names_of(const object& o) {
        const char* names = nullptr;
        o.for_each_entry([&](const ElfW(Dyn) & entry) {
            if (entry.d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(o.at(entry.d_un.d_ptr));
        });
        if (names == nullptr) return;
        o.for_each_entry([&](const ElfW(Dyn) & entry) {
            if (entry.d_tag == DT_NEEDED) needed.emplace_back(names + entry.d_un.d_val);
            if (entry.d_tag == DT_SONAME) own = names + entry.d_un.d_val;
        });
    }
    std::string_view own;
    std::vector<std::string_view> needed;
};

bool is_an_mpi(const object& o) {
    const functions_of functions(o.segments);
    return functions("PMPI_Init") != nullptr;
}

void refuse_other_mpi() {
    const functions_of own(reinterpret_cast<const void*>(&refuse_other_mpi));
    // Where a library of the program has brought this one, without the program's knowledge, that library's MPI counts.
    void* const program = dlopen(nullptr, RTLD_LAZY);
    void* const called = program == nullptr ? nullptr : dlsym(program, "MPI_Barrier");
    if (program != nullptr) dlclose(program);
    if (called == nullptr || called != own("MPI_Barrier")) return;

    // What this library needs, and what that needs: an MPI may be a layer over another one.
    const std::vector<object> objects = loaded_objects();
    std::vector<names_of> names(objects.begin(), objects.end());
    std::vector<bool> is_needed(objects.size(), false);
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < objects.size(); ++i)
        if (is_needed[i] = objects[i].base == own.base(); is_needed[i]) open.push_back(i);
    while (!open.empty()) {
        const names_of& user = names[open.back()];
        open.pop_back();
        for (const std::string_view needed : user.needed)
            for (std::size_t i = 0; i < objects.size(); ++i)
                if (!is_needed[i] && (names[i].own == needed || objects[i].name() == needed)) {
                    is_needed[i] = true;
                    open.push_back(i);
                }
    }
    const object *ours = nullptr, *other = nullptr;
    for (std::size_t i = 0; i < objects.size(); ++i) {
        const object*& kind = is_needed[i] ? ours : other;
        if (kind == nullptr && is_an_mpi(objects[i])) kind = &objects[i];
    }
    if (ours == nullptr || other == nullptr) return;
    std::fprintf(stderr,
        "colls_mpi: the program uses another MPI, %s, than that for which the preloaded library is built, %s: preload "
        "the library that is built for the program's MPI\n",
        other->path.c_str(), ours->path.c_str());
    std::_Exit(1);
}

/// What comes before the program's MPI begins.
void begin() {
    refuse_other_mpi();
    // Open MPI makes threads: a process that has some already waits 10 ms and more for the system to do this.
    colls::detail::open_to_fences();
}

}  // namespace

extern "C" {

int MPI_Init(int* argc, char*** argv) {
    begin();
    return PMPI_Init(argc, argv);
}
int MPI_Init_thread(int* argc, char*** argv, int wanted, int* provided) {
    begin();
    return PMPI_Init_thread(argc, argv, wanted, provided);
}
#if MPI_VERSION >= 4
int MPI_Session_init(MPI_Info info, MPI_Errhandler handler, MPI_Session* session) {
    begin();
    return PMPI_Session_init(info, handler, session);
}
#endif

}  // extern "C"
