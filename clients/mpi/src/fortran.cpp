// The collectives of programs in Fortran. The MPIs have a library of their own for Fortran, which converts the
// arguments and calls functions of C: those of Open MPI call PMPI_Allreduce, not MPI_Allreduce, and MPICH's module
// mpi_f08 calls PMPI_Barrier, PMPI_Wait, PMPI_Start, PMPI_Finalize and others that have no buffers. So the loader binds
// them to MPI. When this library is loaded, it binds them to its own functions, in those libraries only: their table of
// addresses has an entry for each function that they call.
#include "objects.hpp"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace {

using namespace colls_mpi;

// The names are those of Open MPI, its module mpi_f08, MPICH as Debian names it, MPICH, and the standard ABI.
bool is_for_fortran(std::string_view name) {
    for (const std::string_view start :
        {"libmpi_mpifh.", "libmpi_usempif08.", "libmpichfort.", "libmpifort.", "libmpifort_abi."}) {
        if (name.starts_with(start)) return true;
    }
    return false;
}

class table_of_addresses {
public:
    explicit table_of_addresses(const object& library) : base_(library.base) {
        for (std::size_t i = 0; i < library.count; ++i) {
            const auto& segment = library.segments[i];
            if (segment.p_type != PT_GNU_RELRO) continue;
            protected_begin_ = base_ + segment.p_vaddr;
            protected_end_ = protected_begin_ + segment.p_memsz;
        }
        read(library);
    }

    /// Binds each PMPI_ function to that which `own` has for its name with MPI_.
    void bind(const functions_of& own) const {
        if (symbols_ == nullptr || names_ == nullptr) return;
        for (const auto& [begin, bytes] : {calls_, others_}) {
            const auto* const entries = reinterpret_cast<const ElfW(Rela)*>(begin);
            for (std::size_t i = 0; i < bytes / sizeof *entries; ++i) {
                const auto& symbol = symbols_[entries[i].r_info >> symbol_shift];
                const char* const name = names_ + symbol.st_name;
                if (symbol.st_shndx != SHN_UNDEF || std::strncmp(name, "PMPI_", 5) != 0) continue;
                if (keeps_arrays_in_request(name)) continue;
                if (void* const function = own(name + 1)) write(base_ + entries[i].r_offset, function);
            }
        }
    }

private:
    static constexpr int symbol_shift = sizeof(address) == 8 ? 32 : 8;

    struct relocations {
        address begin = 0;
        std::size_t bytes = 0;
    };

    /// Fortran of Open MPI from 5.0 on notes in the request of such a call, which is to be MPI's own, what it frees.
    static bool keeps_arrays_in_request(const char* name) {
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5
        for (const char* const known :
            {"Ialltoallw", "Ineighbor_alltoallw", "Alltoallw_init", "Neighbor_alltoallw_init"})
            if (std::strcmp(name + 5, known) == 0) return true;
#endif
        static_cast<void>(name);
        return false;
    }
    void read(const object& library) {
        bool with_addends = true;
        library.for_each_entry([&](const ElfW(Dyn) & entry) {
            switch (entry.d_tag) {
                case DT_SYMTAB:
                    symbols_ = reinterpret_cast<const ElfW(Sym)*>(library.at(entry.d_un.d_ptr));
                    break;
                case DT_STRTAB:
                    names_ = reinterpret_cast<const char*>(library.at(entry.d_un.d_ptr));
                    break;
                case DT_JMPREL:
                    calls_.begin = library.at(entry.d_un.d_ptr);
                    break;
                case DT_PLTRELSZ:
                    calls_.bytes = entry.d_un.d_val;
                    break;
                case DT_RELA:
                    others_.begin = library.at(entry.d_un.d_ptr);
                    break;
                case DT_RELASZ:
                    others_.bytes = entry.d_un.d_val;
                    break;
                case DT_PLTREL:
                    with_addends = entry.d_un.d_val == DT_RELA;
                    break;
                default:
                    break;
            }
        });
        if (!with_addends) calls_ = {};  // the processors of 64 bits have them
    }

    void write(address slot, void* function) const {
        const bool is_protected = slot >= protected_begin_ && slot < protected_end_;
        const auto page = static_cast<address>(sysconf(_SC_PAGESIZE));
        void* const start = reinterpret_cast<void*>(slot / page * page);
        if (is_protected && mprotect(start, page, PROT_READ | PROT_WRITE) != 0) return;
        *reinterpret_cast<void**>(slot) = function;
        if (is_protected) mprotect(start, page, PROT_READ);
    }

    address base_, protected_begin_ = 0, protected_end_ = 0;
    const ElfW(Sym) * symbols_ = nullptr;
    const char* names_ = nullptr;
    relocations calls_, others_;
};

[[gnu::constructor]] void bind_fortran() {
    const functions_of own(reinterpret_cast<const void*>(&bind_fortran));
    for (const object& library : loaded_objects())
        if (is_for_fortran(library.name())) table_of_addresses(library).bind(own);
}

}  // namespace
