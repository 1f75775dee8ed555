// The Python module colls_torch._backend.
#include "backend.hpp"

#include <torch/csrc/utils/pybind.h>

namespace {

/// The backend of a group over a store. Collective, but with enable_reconfigure: that one has no group yet.
c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    double timeout, const std::string& group_name, std::vector<std::uint64_t> global_ranks, std::string title,
    bool enable_reconfigure) {
    auto how = c10::make_intrusive<c10d::Backend::Options>(
        "colls", std::chrono::milliseconds(static_cast<std::int64_t>(timeout * 1000)));
    how->group_name = group_name;
    how->global_ranks_in_group = global_ranks;
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    how->enable_reconfigure = enable_reconfigure;
#endif
    using colls_torch::backend;
    if (enable_reconfigure)
        return c10::make_intrusive<backend>(backend::no_group{}, store,
            colls_torch::membership{rank, size, std::move(global_ranks)}, std::move(how), std::move(title));
    return c10::make_intrusive<backend>(
        store, colls_torch::membership{rank, size, std::move(global_ranks)}, std::move(how), std::move(title));
}

}  // namespace

PYBIND11_MODULE(_backend, m) {
    m.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
        py::arg("group_name"), py::arg("global_ranks"), py::arg("title") = "colls",
        py::arg("enable_reconfigure") = false, py::call_guard<py::gil_scoped_release>());
    m.def(
        "finish_sends",
        [](double seconds) {
            colls_torch::message_queue::finish_sends(
                std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)));
        },
        py::arg("seconds"), py::call_guard<py::gil_scoped_release>());
}
