// What the loader has mapped: the program and its libraries.
#pragma once

#include <link.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace colls_mpi {

using address = std::uintptr_t;

struct object {
    std::string path;  ///< empty: the program
    address base;
    const ElfW(Phdr) * segments;
    std::size_t count;

    std::string_view name() const { return std::string_view(path).substr(path.rfind('/') + 1); }
    /// An address of its dynamic section: glibc has added the base to most of them, other loaders have not.
    address at(address p) const { return p < base ? base + p : p; }
    /// Calls f with each entry of its dynamic section.
    template <class F>
    void for_each_entry(const F& f) const {
        for (std::size_t i = 0; i < count; ++i) {
            if (segments[i].p_type != PT_DYNAMIC) continue;
            const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(base + segments[i].p_vaddr);
            for (; entry->d_tag != DT_NULL; ++entry) f(*entry);
        }
    }
};
std::vector<object> loaded_objects();

/// The functions of one object.
class functions_of {
public:
    /// That of the object which has `place` in it.
    explicit functions_of(const void* place);
    functions_of(const functions_of&) = delete;
    functions_of& operator=(const functions_of&) = delete;
    ~functions_of();

    address base() const { return base_; }
    /// Null: the object does not define it itself.
    void* operator()(const char* name) const;

private:
    void* handle_ = nullptr;
    address base_ = 0;
};

}  // namespace colls_mpi
