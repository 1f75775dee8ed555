#include "objects.hpp"

#include <dlfcn.h>

namespace colls_mpi {

std::vector<object> loaded_objects() {
    std::vector<object> found;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* list) {
            static_cast<std::vector<object>*>(list)->push_back(
                {info->dlpi_name, info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum});
            return 0;
        },
        &found);
    return found;
}

functions_of::functions_of(const void* place) {
    Dl_info found{};
    if (dladdr(place, &found) == 0) return;
    base_ = reinterpret_cast<address>(found.dli_fbase);
    handle_ = dlopen(found.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}
functions_of::~functions_of() {
    if (handle_ != nullptr) dlclose(handle_);
}
void* functions_of::operator()(const char* name) const {
    // dlsym also finds what the libraries define on which this one depends.
    void* const found = handle_ == nullptr ? nullptr : dlsym(handle_, name);
    Dl_info where{};
    return found != nullptr && dladdr(found, &where) != 0 && reinterpret_cast<address>(where.dli_fbase) == base_
               ? found
               : nullptr;
}

}  // namespace colls_mpi
