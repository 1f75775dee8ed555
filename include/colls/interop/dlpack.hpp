// Tensors of other libraries and languages by DLPack (https://github.com/dmlc/dlpack): the structures of its ABI, whose
// major version is 1, and what a call takes of a tensor. Link colls::colls.
//
//   const interop::dlpack::owner tensor(managed);                                       // from a producer
//   dynamic::all_reduce(comm, interop::strided(tensor.writable()), dynamic::op::sum);   // on the host, any strides
//   colls::all_reduce(comm, interop::elements<float>(tensor.writable()), colls::sum);   // on the host, in a row
//   colls::cuda::all_reduce(comm, interop::device_elements<float>(tensor.writable(), device), colls::sum, stream);
//
// The structures are those of dlpack.h in memory. A program that has that header casts pointers:
// reinterpret_cast<interop::dlpack::managed_tensor*>(p).
#pragma once

#include <colls/interop/detail/dlpack_tensor.hpp>

#include <span>

namespace colls::inline v1 {
namespace interop {

namespace dlpack {

/// A managed tensor that a producer has handed over: its deleter is called once, by the destructor.
class owner {
public:
    explicit owner(managed_tensor* m)
        : tensor_(&m->dl_tensor), managed_(m), free_([](void* p) {
              const auto self = static_cast<managed_tensor*>(p);
              if (self->deleter) self->deleter(self);
          }) {}
    /// Throws invalid_argument where the major version is not 1.
    explicit owner(managed_tensor_versioned* m)
        : read_only_((m->flags & flag_read_only) != 0), managed_(m), free_([](void* p) {
              const auto self = static_cast<managed_tensor_versioned*>(p);
              if (self->deleter) self->deleter(self);
          }) {
        if (m->version.major != 1) {
            const auto major = m->version.major;
            free_(managed_);
            detail::refuse_tensor(detail::error_text() << "colls: a DLPack tensor of version " << std::size_t{major}
                                                       << ".x: this library knows version 1.x");
        }
        tensor_ = &m->dl_tensor;
    }
    owner(owner&& other) noexcept
        : tensor_(other.tensor_),
          read_only_(other.read_only_),
          managed_(std::exchange(other.managed_, nullptr)),
          free_(other.free_) {}
    /// Swaps the two.
    owner& operator=(owner&& other) noexcept {
        std::swap(tensor_, other.tensor_), std::swap(read_only_, other.read_only_);
        std::swap(managed_, other.managed_), std::swap(free_, other.free_);
        return *this;
    }
    ~owner() {
        if (managed_) free_(managed_);
    }

    /// For inputs.
    const tensor& readable() const { return *tensor_; }
    /// For outputs. Throws invalid_argument where the producer says that the tensor is read only.
    const tensor& writable() const {
        if (read_only_)
            detail::refuse_tensor(detail::error_text() << "colls: this DLPack tensor is read only: copy it");
        return *tensor_;
    }

private:
    const tensor* tensor_ = nullptr;
    bool read_only_ = false;
    void* managed_;
    void (*free_)(void*);
};

}  // namespace dlpack

/// The elements of a tensor in memory of the host (CPU, CUDA host or managed memory) in the order of their indices, for
/// dynamic calls. The tensor may end before the call does, but not its memory.
///
/// Throws colls::error with invalid_argument where the memory is elsewhere, no element type of dynamic.hpp is the
/// tensor's (floats of 8 bits, vectors, ...), a stride is negative or 0, or the structure contradicts itself.
inline strided_buffer strided(const dlpack::tensor& t) {
    detail::expect_on_host(t);
    return {detail::tensor_data(t), detail::element_type_of(t.dtype), detail::layout_of(t)};
}
/// The elements of a tensor of T in memory of the host, which lie in the order of their indices without gaps: for typed
/// calls. T may be const. Throws as `strided`, and where elements are not T, or do not lie so.
template <class T>
std::span<T> elements(const dlpack::tensor& t) {
    detail::expect_on_host(t);
    return {static_cast<T*>(detail::tensor_data(t)), detail::count_in_row(t, dlpack::type_of<std::remove_const_t<T>>)};
}
/// The same of a tensor in memory of the GPU `device`, as CUDA numbers it, or in managed memory: for colls::cuda calls.
/// What has written it must be over, or ordered before the call on its stream.
template <class T>
std::span<T> device_elements(const dlpack::tensor& t, int device) {
    detail::expect_on_device(t, device);
    return {static_cast<T*>(detail::tensor_data(t)), detail::count_in_row(t, dlpack::type_of<std::remove_const_t<T>>)};
}

}  // namespace interop
}  // namespace colls::inline v1
