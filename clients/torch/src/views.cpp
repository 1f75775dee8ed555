// Conjugate views and negative ones: torch hands a copy of such a tensor to c10d's functions, so a result is lost that
// should go to the view. The backend "colls" gets the view itself; other backends get what they got.
#include "backend.hpp"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <ATen/native/MathBitsFallback.h>
#include <torch/library.h>

namespace colls_torch {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

template <DispatchKey Key>
struct as_torch_does final : at::native::MathOpFallback {
    as_torch_does() : MathOpFallback(Key, Key == DispatchKey::Conjugate ? "conjugate" : "negation") {}
    bool is_bit_set(const at::Tensor& t) override { return Key == DispatchKey::Conjugate ? t.is_conj() : t.is_neg(); }
};

bool is_of_colls(c10d::ProcessGroup& group) {
    for (const c10::Device device : group.getDeviceTypes())
        if (device.is_cpu()) return dynamic_cast<const backend*>(group.getBackend(device.type()).get()) != nullptr;
    return false;
}

template <DispatchKey Key>
void call(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
    const auto& schema = op.schema();
    const auto at = static_cast<std::size_t>(schema.argumentIndexWithName("process_group").value());
    const auto group = torch::jit::peek(*stack, at, schema.arguments().size()).toCustomClass<c10d::ProcessGroup>();
    if (is_of_colls(*group))
        op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, Key), stack);
    else
        as_torch_does<Key>().fallback_impl(op, keys, stack);
}
template <DispatchKey Key>
void add_to(torch::Library& m) {
    for (const char* const name : {"broadcast_", "allreduce_", "allreduce_coalesced_", "reduce_", "allgather_",
             "_allgather_base_", "allgather_coalesced_", "allgather_into_tensor_coalesced_", "gather_", "scatter_",
             "reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_", "alltoall_base_",
             "alltoall_", "send", "recv_", "recv_any_source_"})
        m.impl(name, torch::CppFunction::makeFromBoxedFunction<&call<Key>>());
}

TORCH_LIBRARY_IMPL(c10d, Conjugate, m) { add_to<DispatchKey::Conjugate>(m); }
TORCH_LIBRARY_IMPL(c10d, Negative, m) { add_to<DispatchKey::Negative>(m); }

}  // namespace
}  // namespace colls_torch
